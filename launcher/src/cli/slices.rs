//! `--slices` and the options beside it: how many slices of the hosts a job takes.

use super::errors::CliError;
use super::place::Whole;
use super::{Run, Site, values};
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::discover;
use rlaunch_plan::hostlist::{Chips, Entry, Host};
use rlaunch_plan::place::map_by::Order;
use rlaunch_plan::place::{MOST_RANKS, Node, Note, Placement, RankBy, RankPlacement};
use rlaunch_plan::slices::{Grow, Sizes, SizesError, SlicePlan, Slot, SlotError, SlotId, slots};
use rlaunch_plan::tpu::{self, SliceHost, TpuFacts};
use rlaunch_protocol::guard::devices::DeviceKind;
use rlaunch_protocol::restarts::MOST_PREEMPT;
use std::collections::BTreeSet;

/// The default of `--scale-timeout`.
const SCALE_TIMEOUT: Span = Span::from_secs(600);

/// The options, as far as they were given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Args {
    /// `--slices`, as it was typed, and its numbers.
    sizes: Option<(OsBytes, Vec<i64>)>,
    /// `--spare-slices`, as it was typed.
    spares: Option<(OsBytes, u32)>,
    /// `--scale-timeout`, as it was typed.
    timeout: Option<(OsBytes, Span)>,
    /// `--grow`, as it was typed.
    grow: Option<(OsBytes, Grow)>,
    /// `--discover`, as it was typed.
    discover: Option<(OsBytes, OsBytes)>,
}

impl Args {
    pub(super) const fn is_given(&self) -> bool {
        self.sizes.is_some()
    }

    /// The numbers of slices that a job wants of a pool: the valid numbers, with its spare slices.
    pub(super) fn wanted_of_pool(&self) -> Option<Vec<u32>> {
        let spares = self.spares.as_ref().map_or(0, |(_, spares)| *spares);
        Some(self.numbers()?.into_iter().map(|number| number.saturating_add(spares)).collect())
    }

    fn numbers(&self) -> Option<Vec<u32>> {
        let (_, numbers) = self.sizes.as_ref()?;
        Some(numbers.iter().filter_map(|number| u32::try_from(*number).ok()).collect())
    }

    /// The numbers of slices that a pool has for its jobs. The hosts of a pool form whole slices of one size, or none.
    ///
    /// # Errors
    /// The hosts form no such slices, or fewer of them. `named` is the option that names the hosts.
    pub(super) fn numbers_for_pool(&self, hosts: &[Entry], named: &OsBytes) -> Result<Vec<u32>, SlicesError> {
        if self.sizes.is_none() && hosts.iter().all(|entry| entry.slice().is_none()) {
            return Ok(Vec::new());
        }
        let option = self.sizes.as_ref().map_or(named, |(option, _)| option);
        let slots = slots_of(hosts).map_err(|source| SlicesError::Hosts { option: option.clone(), source })?;
        let Some((option, numbers)) = &self.sizes else { return Ok(Vec::new()) };
        let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let sizes =
            Sizes::new(numbers, count).map_err(|source| SlicesError::Sizes { option: option.clone(), source })?;
        Ok(sizes.as_slice().to_vec())
    }

    /// Whether a job without `--slices` can be one on slices of a pool.
    pub(super) const fn goes_with(&self, whole: &Whole) -> bool {
        let is_slot = matches!(whole.map_by.order, Order::Default | Order::Slot);
        let is_counted = whole.nnodes.is_some() || whole.min_hosts.is_some() || whole.allow_partial;
        self.sizes.is_none() && is_slot && matches!(whole.rank_by, None | Some(RankBy::Slot)) && !is_counted
    }

    /// The numbers of slices that a pool has for jobs that name none.
    pub(super) fn use_sizes(&mut self, sizes: &[u32]) {
        self.sizes = Some(("--slices of the pool".into(), sizes.iter().map(|size| i64::from(*size)).collect()));
    }

    /// `--slices`: numbers with commas between them.
    pub(super) fn take_sizes(&mut self, option: &OsBytes, value: &OsBytes) -> Result<(), CliError> {
        let number = |part: &[u8]| std::str::from_utf8(part).ok()?.trim().parse::<i64>().ok();
        let numbers: Option<Vec<i64>> = match value.is_empty() {
            true => Some(Vec::new()),
            false => value.split(|b| *b == b',').map(number).collect(),
        };
        let takes = |takes: String| CliError::Value {
            option: option.clone(),
            takes: takes.into(),
            got: value.clone(),
            hint: Some(values::spell(option, "2,4,8").into()),
        };
        let numbers = numbers.ok_or_else(|| takes("numbers of slices, with commas between them".into()))?;
        Sizes::new(&numbers, MOST_RANKS).map_err(|error| takes(format!("numbers of slices above 0 ({error})")))?;
        self.sizes = Some((option.clone(), numbers));
        Ok(())
    }

    /// `--spare-slices`
    pub(super) fn take_spares(&mut self, option: &OsBytes, value: &OsBytes) -> Result<(), CliError> {
        self.spares = Some((option.clone(), values::count_or_none(option, value, MOST_RANKS)?));
        Ok(())
    }

    /// `--scale-timeout`
    pub(super) fn take_timeout(&mut self, option: &OsBytes, value: &OsBytes) -> Result<(), CliError> {
        self.timeout = Some((option.clone(), values::span(option, value)?));
        Ok(())
    }

    /// `--grow`
    pub(super) fn take_grow(&mut self, option: &OsBytes, value: &OsBytes) -> Result<(), CliError> {
        let grow = values::choice(option, value, &[("next", Grow::Next), ("now", Grow::Now)])?;
        self.grow = Some((option.clone(), grow));
        Ok(())
    }

    /// `--discover`
    pub(super) fn take_discover(&mut self, option: &OsBytes, value: &OsBytes) -> Result<(), CliError> {
        if value.is_empty() || value.contains(&0) {
            let hint = Some(values::spell(option, "'./hosts-now'").into());
            return Err(CliError::Value {
                option: option.clone(),
                takes: "a command".into(),
                got: value.clone(),
                hint,
            });
        }
        self.discover = Some((option.clone(), value.clone()));
        Ok(())
    }

    /// The command of `--discover`; empty: there is none.
    pub(super) fn discover(&self) -> OsBytes {
        self.discover.as_ref().map(|(_, command)| command.clone()).unwrap_or_default()
    }

    /// The first option that has no effect without `--slices`.
    fn alone(&self) -> Option<&OsBytes> {
        let spares = self.spares.as_ref().map(|(option, _)| option);
        let timeout = self.timeout.as_ref().map(|(option, _)| option);
        let grow = self.grow.as_ref().map(|(option, _)| option);
        spares.or(timeout).or(grow).or(self.discover.as_ref().map(|(option, _)| option))
    }
}

/// Slices that a job cannot have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlicesError {
    /// Beside an option that places ranks in another way.
    #[error("--slices places ranks slice by slice, and so does not go with {with}")]
    Beside { with: &'static str, hint: &'static str },
    /// `--spare-slices` without `--slices`.
    #[error("{option} has no effect without --slices")]
    Alone { option: OsBytes },
    /// The hosts form no slices.
    #[error("{option}: {source}")]
    Hosts { option: OsBytes, source: SlotError },
    /// More slices than the hosts form.
    #[error("{option}: {source}")]
    Sizes { option: OsBytes, source: SizesError },
    /// The command of `--discover` fails, or prints no host, and no others are named.
    #[error("{option} gives no list of hosts: {why}")]
    NoList { option: OsBytes, why: String },
    /// More slices than the hosts form, with the spare ones.
    #[error("{option}: {slices} slices and {spares} spare ones are wanted, and the hosts form {slots}")]
    Spares { option: OsBytes, slices: u32, spares: u32, slots: u32 },
}

impl SlicesError {
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Beside { hint, .. } => hint,
            Self::Alone { .. } => "--slices N, the number of slices",
            Self::Hosts { .. } => "slice=NAME id=N for each host in the hostfile, alike for all slices",
            Self::NoList { .. } => "see what the command prints: a line such as   host[0-3] slice=a id=0",
            Self::Sizes { .. } | Self::Spares { .. } => "a smaller number, or further slices in the hostfile",
        }
    }
}

impl Run {
    /// Retries after preemptions: slices are taken away and come back.
    pub(super) const fn preempt_retries(&self) -> u32 {
        match self.settings.restarts.preempt {
            0 if self.whole.slices.is_given() && !self.is_preempt_given => MOST_PREEMPT,
            given => given,
        }
    }

    /// The hosts that the hostfile describes form slices, and their ranks can share their chips. Else the job would end after its hosts
    /// were reached. `--slices` has rules of its own.
    pub(super) fn check_chips(&self, placement: &Placement) -> Result<(), CliError> {
        if self.whole.slices.is_given() || self.settings.devices.kind == DeviceKind::None {
            return Ok(());
        }
        let words = |(node, id): (&Node, u32)| {
            let chips = node.chips.as_ref().filter(|chips| !chips.slice.is_empty())?;
            Some((NodeId::new(id), TpuFacts::of_words(chips), node.ranks))
        };
        let all: Vec<(NodeId, TpuFacts, u32)> = placement.nodes.iter().zip(0..).filter_map(words).collect();
        // The number of chips of a host may be known only there.
        let is_counted = all.iter().all(|(_, facts, _)| facts.chips > 0);
        let host = |(node, facts, ranks): (&NodeId, _, &u32)| SliceHost {
            node: *node,
            facts,
            ranks: if is_counted { *ranks } else { 1 },
        };
        let hosts: Vec<SliceHost<'_>> = all.iter().map(|(node, facts, ranks)| host((node, facts, ranks))).collect();
        match tpu::plan(&hosts, self.whole.allow_partial) {
            Ok(_) => Ok(()),
            Err(source) => Err(CliError::Chips { source }),
        }
    }

    /// Ranks go slice by slice, and host by host.
    pub(super) fn by_slices(&self, placement: Placement) -> Result<Placement, CliError> {
        let placement = self.with_reserve(placement)?;
        let Some(plan) = self.slice_plan(&placement)? else { return Ok(placement) };
        Ok(placement.of_hosts(&plan.hosts((0..).map(SlotId::new).take(plan.slots.len()))))
    }

    /// The slices of the job.
    pub(crate) fn slice_plan(&self, placement: &Placement) -> Result<Option<SlicePlan>, CliError> {
        let args = &self.whole.slices;
        let Some((option, numbers)) = &args.sizes else {
            return match args.alone() {
                Some(option) => Err(SlicesError::Alone { option: option.clone() }.into()),
                None => Ok(None),
            };
        };
        self.check_beside()?;
        let slots = known_slots(placement).map_err(|source| SlicesError::Hosts { option: option.clone(), source })?;
        let slots = with_reserved_slots(placement, slots);
        let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let spares = args.spares.as_ref().map_or(0, |(_, spares)| *spares);
        // A pool has given the hosts of one valid number, with the spare ones: larger numbers are beyond them.
        let is_granted = self.programs.iter().any(|program| !program.place.granted.is_empty());
        let fits = |number: &&i64| !is_granted || **number <= i64::from(count.saturating_sub(spares));
        let numbers: Vec<i64> = numbers.iter().filter(fits).copied().collect();
        let sizes =
            Sizes::new(&numbers, count).map_err(|source| SlicesError::Sizes { option: option.clone(), source })?;
        let slices = sizes.largest();
        if let Some((option, spares)) = args.spares.clone().filter(|_| slices.saturating_add(spares) > count) {
            return Err(SlicesError::Spares { option, slices, spares, slots: count }.into());
        }
        let timeout = args.timeout.as_ref().map_or(SCALE_TIMEOUT, |(_, timeout)| *timeout);
        let grow = args.grow.as_ref().map_or(Grow::Next, |(_, grow)| *grow);
        Ok(Some(SlicePlan { sizes, slots, spares, timeout, grow }))
    }

    /// Options that place ranks in another way.
    fn check_beside(&self) -> Result<(), SlicesError> {
        let whole = &self.whole;
        let is_mapped = !matches!(whole.map_by.order, Order::Default | Order::Slot);
        let is_ranked = !matches!(whole.rank_by, None | Some(RankBy::Slot));
        let is_granted = self.programs.iter().any(|program| !program.place.granted.is_empty());
        let cases = [
            (self.programs.len() > 1, "several programs", "one program"),
            (self.programs.iter().any(|program| program.n.is_some()), "-n", "--ppn N, the ranks of each host"),
            (whole.nnodes.is_some(), "--nnodes", "--slices alone: the hostfile has the hosts of a slice"),
            (whole.min_hosts.is_some(), "--min-hosts", "--slices 2,4: the numbers of slices that are enough"),
            (whole.allow_partial, "--allow-partial", "whole slices"),
            (is_mapped, "--map-by", "--map-by slot"),
            (is_ranked, "--rank-by", "--rank-by slot"),
            (self.reach.srun.is_some(), "--launcher slurm", "--launcher ssh"),
            (
                whole.slices.discover.is_some() && is_granted,
                "--pool and --discover",
                "rlaunch pool add, for further hosts",
            ),
        ];
        match cases.into_iter().find(|(is_given, ..)| *is_given) {
            Some((_, with, hint)) => Err(SlicesError::Beside { with, hint }),
            None => Ok(()),
        }
    }
}

/// Slots for slices that are discovered while the job runs, beyond those that the job has and needs.
const RESERVE: usize = 16;

impl Run {
    /// The hosts of a program, with those that the command of `--discover` prints; a note, if that gives no list.
    pub(super) fn with_discovered(
        &self,
        mut hosts: Vec<Entry>,
        site: &Site<'_>,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<Entry>, CliError> {
        let args = &self.whole.slices;
        let Some((option, command)) = args.discover.as_ref().filter(|_| args.is_given()) else { return Ok(hosts) };
        let printed = site.groups.run(&command.to_string(), ".").and_then(|output| discover::read(&output));
        match printed {
            Ok(found) => {
                let known: BTreeSet<Host> = hosts.iter().map(|entry| entry.host.clone()).collect();
                hosts.extend(found.into_iter().filter(|entry| !known.contains(&entry.host)).map(alone));
                Ok(hosts)
            }
            // A later run may be better.
            Err(why) if !hosts.is_empty() => {
                notes.push(Note::Undiscovered(why));
                Ok(hosts)
            }
            Err(why) => Err(SlicesError::NoList { option: option.clone(), why }.into()),
        }
    }

    /// Adds hosts that nothing is known of yet, where slices are discovered while the job runs.
    fn with_reserve(&self, mut placement: Placement) -> Result<Placement, CliError> {
        let args = &self.whole.slices;
        let (Some(_), Some((option, numbers))) = (&args.discover, &args.sizes) else { return Ok(placement) };
        let slots = known_slots(&placement).map_err(|source| SlicesError::Hosts { option: option.clone(), source })?;
        let Some(model) = slots.first() else { return Ok(placement) };
        let largest = numbers.iter().copied().max().unwrap_or(0);
        let wanted = usize::try_from(largest).unwrap_or(0) + args.spares.as_ref().map_or(0, |(_, n)| *n as usize);
        let reserve = RESERVE + wanted.min(MOST_RANKS as usize).saturating_sub(slots.len());
        for _ in 0..reserve {
            for host in model.hosts.clone() {
                add_unknown(&mut placement, host);
            }
        }
        Ok(placement)
    }
}

/// The slots that hosts of a pool form: whole slices of one size.
///
/// # Errors
/// They form none.
pub(crate) fn slots_of<'a>(hosts: impl IntoIterator<Item = &'a Entry>) -> Result<Vec<Slot>, SlotError> {
    let node = |entry: &Entry| Node { chips: entry.chips.clone(), ..Node::of(entry.host.clone(), entry.slots()) };
    slots(&hosts.into_iter().map(node).collect::<Vec<_>>())
}

/// Adds a host like this one, of which nothing is known yet.
fn add_unknown(placement: &mut Placement, like: NodeId) {
    let Some(model) = placement.nodes.get(like.index()).cloned() else { return };
    let node = NodeId::new(u32::try_from(placement.nodes.len()).unwrap_or(u32::MAX));
    let ranks: Vec<RankPlacement> = placement
        .ranks
        .iter()
        .filter(|placed| placed.node == like)
        .map(|placed| RankPlacement { node, ..*placed })
        .collect();
    placement.nodes.push(Node { host: Host::named(""), local: false, chips: None, ..model });
    placement.ranks.extend(ranks);
}

/// A host without a slice is one by itself.
fn alone(mut entry: Entry) -> Entry {
    let chips = entry.chips.get_or_insert_with(|| Chips::of("", 0, 0));
    if chips.slice.is_empty() {
        (chips.slice, chips.hosts) = (entry.host.name.clone(), 1);
    }
    entry
}

/// The slots of the hosts that are known.
fn known_slots(placement: &Placement) -> Result<Vec<Slot>, SlotError> {
    let known = placement.nodes.iter().take_while(|node| !node.is_unknown()).count();
    slots(placement.nodes.get(..known).unwrap_or_default())
}

/// Adds the slots of hosts that are not known yet.
fn with_reserved_slots(placement: &Placement, mut slots: Vec<Slot>) -> Vec<Slot> {
    let size = slots.first().map_or(1, |slot| slot.hosts.len()).max(1);
    let unknown = placement.nodes.iter().zip((0..).map(NodeId::new)).filter(|(node, _)| node.is_unknown());
    let unknown: Vec<NodeId> = unknown.map(|(_, node)| node).collect();
    slots.extend(unknown.chunks(size).map(|hosts| Slot { name: String::new(), hosts: hosts.to_vec() }));
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_plan::hostlist::{Alone, files};

    #[test]
    fn hosts_of_a_pool_form_whole_slices_of_one_size_or_none() {
        let numbers = |sizes: &str, text: &str| {
            let mut args = Args::default();
            if !sizes.is_empty() {
                args.take_sizes(&"--slices".into(), &sizes.into()).unwrap();
            }
            let hosts = files([("hosts", text.as_bytes())], &mut Alone).unwrap();
            args.numbers_for_pool(&hosts, &"-f".into()).map_err(|error| error.to_string())
        };
        let two = "n[0-1] slice=a id=0 devices=4\nn[2-3] slice=b id=0 devices=4\n";
        assert_eq!(numbers("", "n0\nn1\n"), Ok(vec![]));
        assert_eq!(numbers("", two), Ok(vec![]));
        assert_eq!(numbers("2,1", two), Ok(vec![1, 2]));
        for (sizes, text, why) in [
            ("3", two.to_owned(), "--slices: 3 slices are wanted, and the hosts form 2"),
            ("2", "n0\nn1\n".to_owned(), "--slices: n0 has no slice"),
            ("", format!("{two}n4\n"), "-f: n4 has no slice"),
            ("", format!("{two}n4 slice=c id=0 devices=4\n"), "-f: slice c has 1 host, and slice a has 2"),
            (
                "1",
                format!("{two}n[4-5] slice=c id=0 devices=8\n"),
                "--slices: slice c has 8 chips on a host, and slice a has 4",
            ),
        ] {
            assert_eq!(numbers(sizes, &text), Err(why.to_owned()));
        }
    }
}
