//! Layout from `--map-by`, `--rank-by` and `--cpus-per-rank`. Files are read, and hosts are asked for their units.
//!
//! Other hosts' processors are known to their agents only. For most mappings their number does not matter: the agent maps its own ranks.
//! If it matters (`ppr:N:numa`, and ranks numbered by packages, NUMA nodes or L3 groups), hosts are asked before ranks are placed, as
//! for `--ppn gpu`.

use super::errors::CliError;
use super::place::Whole;
use super::site::Site;
use super::{Program, Run, values};
use rlaunch_base::id::AppIndex;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bind::{Bind, BindTo, CpuList};
use rlaunch_plan::hostlist::{Entry, Host};
use rlaunch_plan::place::map_by::{MapBy, Order};
use rlaunch_plan::place::rankfile::{self, RankfileError};
use rlaunch_plan::place::{AppRequest, By, Layout, MOST_RANKS, Placement, RankBy};
use rlaunch_plan::topology::Level;
use std::collections::{BTreeMap, BTreeSet};

/// The option, as messages name it.
const OPTION: &str = "--map-by";

/// The words of `--rank-by`.
pub(super) const RANK_BY: [(&str, RankBy); 4] =
    [("slot", RankBy::Slot), ("node", RankBy::Node), ("fill", RankBy::Fill), ("span", RankBy::Span)];

/// The host of each rank, as a file names it, with its cores if these are named.
pub(super) type Listed = Vec<(Host, Option<CpuList>)>;

/// `--map-by`.
pub(super) fn map_by(option: &OsBytes, value: &OsBytes) -> Result<MapBy, CliError> {
    MapBy::parse(&value.to_string()).map_err(|error| {
        let words = value.to_ascii_lowercase();
        let hint = match words.as_slice() {
            words if words.ends_with(b":nooversubscribe") => "--strict".to_owned(),
            words if words.starts_with(b"device=gpu") => {
                "--gpus-per-rank 1, which binds ranks near their GPUs".to_owned()
            }
            _ => values::spell(option, "slot"),
        };
        let takes = format!("a mapping such as slot, numa:PE=2 or ppr:2:l3 ({error})").into();
        CliError::Value { option: option.clone(), takes, got: value.clone(), hint: Some(hint.into()) }
    })
}

impl Whole {
    /// Takes what is for the whole job from the options of its programs: the first one's count for those that have none.
    ///
    /// # Errors
    /// A later program has a mapping to units below a host.
    pub(super) fn take_common(&mut self, programs: &[Program]) -> Result<(), CliError> {
        let Some(first) = programs.first() else { return Ok(()) };
        self.map_by = first.place.map_by.clone().map(|(_, map)| map).unwrap_or_default();
        self.bind.cores = first.place.cores;
        let common = self.bind.cores.or(self.map_by.cores);
        for program in programs {
            let own = program.place.map_by.as_ref().filter(|(_, map)| *map != self.map_by);
            if let Some((said, map)) = own
                && (map.span || !matches!(map.order, Order::Slot | Order::Node | Order::EachHost(_)))
            {
                let takes = "slot, node or ppr:N:node for one program of several, with or without :PE=N".into();
                let hint = Some("units below a host before the first program, for all".into());
                return Err(CliError::Value { option: said.option.clone(), takes, got: said.value.clone(), hint });
            }
            let cores = program.place.cores.or_else(|| own.and_then(|(_, map)| map.cores)).or(common);
            self.own_cores.push(cores.unwrap_or(1));
        }
        Ok(())
    }

    /// The binding of ranks.
    pub(crate) fn bound(&self) -> Bind {
        let Self { bind, map_by, .. } = self;
        let to = match (&bind.to, &map_by.order) {
            (BindTo::Share, Order::Cores(cores)) => BindTo::Lists(vec![CpuList::Cores(cores.clone())]),
            (to, _) => to.clone(),
        };
        let cores = bind.cores.or(map_by.cores);
        let (spread, threads) = (map_by.spread(), map_by.threads);
        Bind { to, spread, cores, threads, ..bind.clone() }
    }

    /// The cores of each rank, where a rankfile names them or programs have different numbers of them. Empty: `--bind-to` alone decides.
    pub(crate) fn rank_cpus(&self, placement: &Placement) -> Vec<CpuList> {
        let unit = match self.bind.to {
            BindTo::Share => None,
            BindTo::Unit(level) => Some(level),
            BindTo::None | BindTo::Lists(_) => return Vec::new(),
        };
        let of = |app: AppIndex| self.own_cores.get(app.index()).copied().unwrap_or(1);
        if self.own_cores.iter().any(|cores| *cores != of(AppIndex::new(0))) {
            return placement.ranks.iter().map(|rank| CpuList::Next(of(rank.app), unit)).collect();
        }
        self.listed.iter().flatten().filter_map(|(_, cores)| cores.clone()).collect()
    }

    /// The order of hosts.
    pub(super) const fn by(&self) -> By {
        self.map_by.by()
    }
}

/// Hosts in the order in which they were named, each as often as it was named.
fn in_turn(hosts: &[Entry]) -> Vec<Host> {
    let turns = |(at, entry): (usize, &Entry)| match entry.turns.as_slice() {
        [] => vec![at],
        turns => turns.to_vec(),
    };
    let mut all: Vec<(usize, &Host)> =
        hosts.iter().enumerate().flat_map(|row| turns(row).into_iter().map(move |turn| (turn, &row.1.host))).collect();
    all.sort_by_key(|(turn, _)| *turn);
    all.into_iter().map(|(_, host)| host.clone()).collect()
}

/// The hosts of a list of ranks, each with a slot for each of its ranks.
fn hosts_of<T>(listed: &[(Host, T)]) -> Vec<Entry> {
    let hosts: BTreeSet<&Host> = listed.iter().map(|(host, _)| host).collect();
    let ranks = |host: &Host| listed.iter().filter(|(own, _)| own == host).count();
    let entry = |host: &Host| Entry { slots: u32::try_from(ranks(host)).ok(), ..Entry::plain(host.clone()) };
    hosts.into_iter().map(entry).collect()
}

impl Run {
    /// Reads the file that `--map-by` names.
    ///
    /// # Errors
    /// The file cannot be read, or names no ranks.
    pub(crate) fn read_map_file(&mut self, site: &Site<'_>) -> Result<(), CliError> {
        let refuse = |path: &str, why: String| CliError::Value {
            option: OPTION.into(),
            takes: format!("a file that can be used ({why})").into(),
            got: path.into(),
            hint: Some("docs/reference/binding.md shows such files".into()),
        };
        let read = |path: &str| {
            let bytes = (site.read)(&path.into()).map_err(|error| refuse(path, super::site::why(&error)))?;
            Ok::<_, CliError>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let unusable = |path: &str, error: &RankfileError| refuse(path, error.to_string());
        self.whole.listed = match &self.whole.map_by.order {
            Order::Sequence(Some(path)) => {
                let hosts = rankfile::sequence(&read(path)?).map_err(|error| unusable(path, &error))?;
                Some(hosts.iter().map(|name| (Host::named(name), None)).collect())
            }
            Order::Rankfile(path) => {
                let ranks = rankfile::rankfile(&read(path)?).map_err(|error| unusable(path, &error))?;
                Some(ranks.into_iter().map(|(name, cores)| (Host::named(&name), Some(cores))).collect())
            }
            Order::Default
            | Order::Slot
            | Order::Node
            | Order::Unit(_)
            | Order::EachHost(_)
            | Order::Each(_, _)
            | Order::Sequence(None)
            | Order::Cores(_) => None,
        };
        Ok(())
    }

    /// The parts of `--map-by` beside the order of hosts. The requests of programs get the ranks of each host or unit.
    pub(super) fn layout(&self, apps: &mut [AppRequest], named: &[Entry], site: &Site<'_>) -> Result<Layout, CliError> {
        let MapBy { order, span, .. } = &self.whole.map_by;
        // Slots of an allocation are tasks, which have their processors already.
        let mut are_slots_cores = self.in_allocation.is_none();
        let mut layout = Layout { span: *span, ..Layout::default() };
        if let Some(level) = self.whole.map_by.counts() {
            layout.units_here = (site.units)(level);
            layout.units = self.units(named, level, site)?;
        }
        let of_host = |entry: &Entry| match layout.units.get(&entry.host) {
            Some(units) => *units,
            None => layout.units_here,
        };
        match order {
            Order::EachHost(each) => {
                let without = apps.iter_mut().filter(|app| app.map_by.is_none());
                without.for_each(|app| app.ppn = app.ppn.or(Some(*each)));
            }
            Order::Each(each, _) => {
                for app in apps.iter_mut().filter(|app| app.ppn.is_none() && !app.counted) {
                    let own = if app.hosts.is_empty() { named } else { &app.hosts };
                    if own.is_empty() {
                        app.ppn = Some(each.saturating_mul(layout.units_here));
                        continue;
                    }
                    let counted = |entry: &Entry| {
                        let slots = Some(each.saturating_mul(of_host(entry)));
                        Entry { slots, named: 1, ..entry.clone() }
                    };
                    app.hosts = own.iter().map(counted).collect();
                    app.counted = true;
                }
                are_slots_cores = false;
            }
            Order::Sequence(None) if !named.is_empty() => {
                let of = |app: &AppRequest| in_turn(&app.hosts).into_iter().take(app.n.unwrap_or(u32::MAX) as usize);
                layout.listed = Some(apps.iter().flat_map(of).collect());
            }
            Order::Default if self.leaves_order_to_scheduler() => layout.listed = self.scheduled(apps),
            Order::Default
            | Order::Slot
            | Order::Node
            | Order::Unit(_)
            | Order::Sequence(_)
            | Order::Rankfile(_)
            | Order::Cores(_) => {}
        }
        if let Some(listed) = &self.whole.listed {
            layout.listed = Some(listed.iter().map(|(host, _)| host.clone()).collect());
            // A file that names hosts is a list of them, where there is no other.
            if let (true, Some(app)) = (named.is_empty() && self.in_allocation.is_none(), apps.first_mut()) {
                app.hosts = hosts_of(listed);
                are_slots_cores = false;
            }
        }
        for (app, cores) in apps.iter_mut().zip(&self.whole.own_cores).filter(|_| are_slots_cores) {
            app.slots_per_rank = *cores;
        }
        Ok(layout)
    }

    /// Whether no option says on which hosts ranks run.
    fn leaves_order_to_scheduler(&self) -> bool {
        let is_silent = |program: &Program| program.place.ppn.is_none() && !program.place.names_hosts();
        let Whole { rank_by, nnodes, .. } = &self.whole;
        rank_by.is_none() && nnodes.is_none() && self.programs.iter().all(is_silent)
    }

    /// The host of each rank in the order that the user has asked the scheduler for. Ranks beyond its tasks begin again at the first.
    fn scheduled(&self, apps: &[AppRequest]) -> Option<Vec<Host>> {
        let tasks = self.in_allocation.as_ref()?.allocation.sequence()?;
        let ranks = apps.iter().filter_map(|app| app.n).fold(0u32, u32::saturating_add).min(MOST_RANKS);
        let length = tasks.len().max(ranks as usize);
        Some(tasks.into_iter().cycle().take(length).collect())
    }

    /// The units of other hosts: they are asked.
    fn units(&self, named: &[Entry], level: Level, site: &Site<'_>) -> Result<BTreeMap<Host, u32>, CliError> {
        let others: BTreeSet<&Host> =
            named.iter().map(|entry| &entry.host).filter(|host| !site.here.is(host)).collect();
        let asked = self.ask_hosts(&OPTION.into(), others, site)?;
        Ok(asked.into_iter().map(|(host, has)| (host, has.units_of(level).max(1))).collect())
    }
}
