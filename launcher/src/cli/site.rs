//! Placement of a requested job. Functions read hostfiles and examine this machine, so that tests need neither.

use super::errors::CliError;
use super::place::{Counted, Own, PerNode, Said};
use super::{Lookup, Program, Reach, Run};
use crate::view::phrases;
use rlaunch_base::id::AppIndex;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bootstrap::Target;
use rlaunch_plan::hostlist::groups::{self, Commands, GroupFault, GroupName};
use rlaunch_plan::hostlist::{self, Entry, Host, Outside};
use rlaunch_plan::place::map_by::{MapBy, Order};
use rlaunch_plan::place::{self, AppRequest, Here, Note, Placement, Request};
use rlaunch_plan::topology::Level;
use rlaunch_sys::slots::Turn;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Largest hostfile: a line for each of as many hosts as there can be, and comments.
pub(crate) const LARGEST: u64 = 16 << 20;

/// Facts about this machine that a command line needs.
pub(crate) struct Site<'a> {
    /// Its name and processors.
    pub(crate) here: Here,
    /// Its GPUs, if they can be found out.
    pub(crate) gpus: &'a dyn Fn() -> Option<u32>,
    /// How many units of a kind programs may use on it.
    pub(crate) units: &'a dyn Fn(Level) -> u32,
    /// The question for the resources of other hosts.
    pub(crate) ask: Ask<'a>,
    /// The content of a file.
    pub(crate) read: &'a dyn Fn(&OsBytes) -> io::Result<Vec<u8>>,
    /// Whether a path is a file.
    pub(crate) is_file: &'a dyn Fn(&OsBytes) -> bool,
    /// The file beside a missing one whose name is nearly the same.
    pub(crate) near: &'a dyn Fn(&OsBytes) -> Option<OsBytes>,
    /// Whether a path is a file, and runs.
    pub(crate) runs: &'a dyn Fn(&OsBytes) -> Option<Runs>,
    /// Whether rlaunch's standard input is a file, a pipe or a socket.
    pub(crate) has_input: &'a dyn Fn() -> bool,
    /// The directory in which rlaunch was started, if it has a name.
    pub(crate) directory: &'a dyn Fn() -> Option<OsBytes>,
    /// The caller's environment.
    pub(crate) env: Lookup<'a>,
    /// Groups of hosts.
    pub(crate) groups: &'a Known<'a>,
    /// The turn to choose slots of an allocation.
    pub(crate) turn: &'a dyn Fn(&str) -> io::Result<Turn>,
}

/// Asks hosts what they have, all at a time.
pub(crate) type Ask<'a> = &'a dyn Fn(&[Target], &Reach) -> Result<Vec<Result<Has, Silent>>, Silent>;

/// Whether a file runs when it is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    /// The kernel knows how, and may.
    Itself,
    /// Something else would have to read it.
    Never,
}

/// Groups of hosts: each is looked up once.
pub(crate) struct Known<'a> {
    commands: &'a dyn Commands,
    groups: RefCell<BTreeMap<GroupName, Result<String, GroupFault>>>,
}

impl<'a> Known<'a> {
    pub(crate) const fn new(commands: &'a dyn Commands) -> Self {
        Self { commands, groups: RefCell::new(BTreeMap::new()) }
    }

    /// The output of a command in a directory.
    pub(super) fn run(&self, command: &str, directory: &str) -> Result<Vec<u8>, String> {
        self.commands.run(command, directory)
    }

    fn hosts(&self, name: &GroupName) -> Result<String, GroupFault> {
        let mut groups = self.groups.borrow_mut();
        groups.entry(name.clone()).or_insert_with(|| groups::hosts(name, self.commands)).clone()
    }
}

/// Names beside hosts that lists may have.
struct Around<'a>(&'a Site<'a>);

impl Outside for Around<'_> {
    fn file(&mut self, path: &str) -> Result<Vec<u8>, String> {
        (self.0.read)(&path.into()).map_err(|error| why(&error))
    }

    fn group(&mut self, name: &GroupName) -> Result<String, GroupFault> {
        self.0.groups.hosts(name)
    }
}

impl Site<'_> {
    /// The hosts of a hostfile list, in its order.
    pub(super) fn files(&self, files: &[Said]) -> Result<Vec<Entry>, CliError> {
        let mut texts = Vec::new();
        for file in files {
            let text = (self.read)(&file.value).map_err(|error| CliError::Hostfile {
                option: file.option.clone(),
                path: file.value.clone(),
                why: why(&error),
                near: (self.near)(&file.value),
            })?;
            texts.push((file.value.to_string(), text));
        }
        let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_slice()));
        hostlist::files(texts, &mut Around(self)).map_err(CliError::hostlist)
    }

    /// The hosts of lists on the command line.
    pub(super) fn lists(&self, lists: &[Said]) -> Result<Vec<Entry>, CliError> {
        for said in lists {
            // A host called like a file here would be taken for it otherwise.
            if (self.is_file)(&said.value) {
                return Err(CliError::IsFile { option: said.option.clone(), path: said.value.clone() });
            }
        }
        let names: Vec<String> = lists.iter().map(|said| said.option.to_string()).collect();
        let texts = names.iter().zip(lists).map(|(name, said)| (name.as_str(), said.value.as_slice()));
        hostlist::lists(texts, &mut Around(self)).map_err(CliError::hostlist)
    }

    /// The hosts of a program; empty: it names none.
    pub(super) fn hosts(&self, own: &Own) -> Result<Vec<Entry>, CliError> {
        match (own.files.as_slice(), own.lists.as_slice()) {
            ([], []) => Ok(own.granted.clone()),
            (files, []) => self.files(files),
            ([], lists) => self.lists(lists),
            (files, lists) => {
                let all = self.files(files)?;
                hostlist::select(&all, self.lists(lists)?).map_err(|host| CliError::NotInHostfile {
                    option: lists.first().map(|said| said.option.clone()).unwrap_or_default(),
                    host: host.to_string(),
                    path: files.last().map(|said| said.value.clone()).unwrap_or_default(),
                })
            }
        }
    }

    /// Programs of which each host shall have as many ranks as it has of something.
    fn app(&self, program: &Program, own: Vec<Entry>, named: &[Entry], asked: &Asked) -> Result<AppRequest, CliError> {
        let (n, hosts) = (program.n, own);
        let (option, counted) = match &program.place.ppn {
            None => return Ok(AppRequest { n, hosts, ..AppRequest::default() }),
            Some(PerNode::Ranks(ppn)) => {
                return Ok(AppRequest { n, ppn: Some(*ppn), hosts, ..AppRequest::default() });
            }
            Some(PerNode::Counted(option, counted)) => (option, *counted),
        };
        // Hosts of another program may be this one's too.
        let all = if hosts.is_empty() { named } else { &hosts };
        if all.iter().all(|entry| self.here.is(&entry.host)) {
            return Ok(AppRequest { n, ppn: Some(self.count(option, counted)?), hosts, ..AppRequest::default() });
        }
        let mut here = false;
        let mut hosts = Vec::new();
        for entry in all {
            let ranks = match asked.get(&entry.host) {
                Some(has) => has.ranks(&entry.host.to_string(), option, counted)?,
                // This machine under a second name is no second machine.
                None if std::mem::replace(&mut here, true) => continue,
                None => self.count(option, counted)?,
            };
            hosts.push(Entry { slots: Some(ranks), ..entry.clone() });
        }
        Ok(AppRequest { n, counted: true, hosts, ..AppRequest::default() })
    }

    fn count(&self, option: &OsBytes, counted: Counted) -> Result<u32, CliError> {
        let gpus = if counted == Counted::Cpu { None } else { (self.gpus)() };
        Has { cpus: self.here.cpus, gpus, units: [0; 5] }.ranks("this machine", option, counted)
    }
}

/// The resources of other hosts, by their names.
pub(super) type Asked = BTreeMap<Host, Has>;

/// The resources of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Has {
    /// Processors that programs may use; 0: not known.
    pub(crate) cpus: u32,
    /// GPUs, if they can be found out.
    pub(crate) gpus: Option<u32>,
    /// Units that programs may use, as in `Level::ALL`; 0: not known.
    pub(crate) units: [u32; 5],
}

impl Has {
    /// How many units of a kind it has.
    pub(super) fn units_of(self, level: Level) -> u32 {
        Level::ALL.iter().zip(self.units).find(|(own, _)| **own == level).map_or(0, |(_, count)| count)
    }

    fn ranks(self, host: &str, option: &OsBytes, counted: Counted) -> Result<u32, CliError> {
        let (option, host) = (option.clone(), host.to_owned());
        match (counted, self.gpus) {
            (Counted::Gpu, Some(0)) => Err(CliError::NoGpu { option, host }),
            (Counted::Gpu, None) => Err(CliError::UnknownGpus { option, host }),
            (Counted::Gpu | Counted::Auto, Some(gpus @ 1..)) => Ok(gpus),
            (Counted::Auto, Some(0) | None) | (Counted::Cpu, _) => Ok(self.cpus.max(1)),
        }
    }
}

/// A host that does not report its resources.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Silent {
    pub(crate) host: String,
    /// Why.
    pub(crate) text: String,
    /// ssh's words.
    pub(crate) words: OsBytes,
    /// The advice.
    pub(crate) hint: Option<String>,
}

impl Silent {
    /// Its words, as a line of their own.
    pub(super) fn said(&self) -> String {
        let line = |line: &str| format!("\n  ssh     {line}");
        self.words.to_string().lines().map(line).collect()
    }
}

impl Run {
    /// Places its ranks.
    ///
    /// # Errors
    /// Hosts that cannot be understood, or ranks that do not fit.
    pub(crate) fn place(&self, site: &Site<'_>) -> Result<Placement, CliError> {
        let (mut apps, mut notes) = (Vec::new(), Vec::new());
        for program in &self.programs {
            apps.push((program, self.with_discovered(self.hosts(program, site, &mut notes)?, site, &mut notes)?));
        }
        let named: Vec<Entry> = apps.iter().flat_map(|(_, hosts)| hosts.clone()).collect();
        let asked = self.ask(&apps, &named, site)?;
        let app = |(program, hosts): (&Program, Vec<Entry>)| {
            let app = site.app(program, hosts, &named, &asked)?;
            let map_by = program.place.map_by.as_ref().map(|(_, map)| map);
            let each = map_by.and_then(|map| if let Order::EachHost(each) = map.order { Some(each) } else { None });
            let (ppn, map_by) = (app.ppn.or(each), map_by.map(MapBy::by));
            let app = AppRequest { share: self.shares(program), ppn, map_by, ..app };
            Ok(if self.is_one_per_host(program) { AppRequest { ppn: Some(1), ..app } } else { app })
        };
        let mut apps = apps.into_iter().map(app).collect::<Result<Vec<_>, CliError>>()?;
        let layout = self.layout(&mut apps, &named, site)?;
        let request = Request {
            apps,
            layout,
            here: site.here.clone(),
            carries_all: self.reach.carries_all(),
            map_by: self.whole.by(),
            rank_by: self.whole.rank_by,
            nnodes: self.whole.nnodes,
            min_hosts: self.whole.min_hosts,
            strict: self.whole.strict,
            keeps_hosts: self.lead().is_some(),
        };
        let placed = place::place(&request);
        let mut placement = placed.map_err(|source| CliError::Place { source, variables: self.variables.clone() })?;
        placement.notes.extend(notes.into_iter().take(1));
        placement.notes.extend(self.one_per_host(&placement, site));
        placement.notes.extend(super::allocation::without_hosts(self, site));
        placement.notes.extend(self.beside.clone());
        placement.notes.extend(self.unread(&placement, site));
        let one = placement.notes.iter().find_map(|note| if let Note::OneRank(app) = note { Some(*app) } else { None });
        let passed_on = |app: AppIndex| Some(Note::PassedOn(app, self.programs.get(app.index())?.passed_on()?));
        placement.notes.extend(one.and_then(passed_on));
        placement.worlds = self.worlds(&placement)?;
        self.check_chips(&placement)?;
        self.by_slices(placement)
    }

    /// Asks other hosts for their resources, where ranks are placed by them: all at a time.
    fn ask(&self, apps: &[(&Program, Vec<Entry>)], named: &[Entry], site: &Site<'_>) -> Result<Asked, CliError> {
        let mut option = None;
        let mut hosts: BTreeSet<&Host> = BTreeSet::new();
        for (program, own) in apps {
            let Some(PerNode::Counted(said, _)) = &program.place.ppn else { continue };
            let all = if own.is_empty() { named } else { own };
            option = option.or(Some(said));
            hosts.extend(all.iter().map(|entry| &entry.host).filter(|host| !site.here.is(host)));
        }
        option.map_or_else(|| Ok(Asked::new()), |option| self.ask_hosts(option, hosts, site))
    }

    /// Asks these hosts.
    pub(super) fn ask_hosts(
        &self,
        option: &OsBytes,
        hosts: BTreeSet<&Host>,
        site: &Site<'_>,
    ) -> Result<Asked, CliError> {
        if hosts.is_empty() {
            return Ok(Asked::new());
        }
        let target = |host: &&Host| {
            Target::of(host).map_err(|source| CliError::Host { option: option.clone(), source: Box::new(source) })
        };
        let targets = hosts.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        let uncounted = |first, others| CliError::Uncounted { option: option.clone(), first: Box::new(first), others };
        let answers = (site.ask)(&targets, &self.reach).map_err(|error| uncounted(error, Vec::new()))?;
        let (mut asked, mut silent) = (Asked::new(), Vec::new());
        for (host, answer) in hosts.into_iter().zip(answers) {
            match answer {
                Ok(has) => drop(asked.insert(host.clone(), has)),
                Err(error) => silent.push(error),
            }
        }
        let mut silent = silent.into_iter();
        match silent.next() {
            None => Ok(asked),
            Some(first) => Err(uncounted(first, silent.map(|rest| rest.host).collect())),
        }
    }
}

pub(crate) fn why(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), phrases::errno)
}

/// For tests: a machine without nodeset.
#[cfg(test)]
pub(crate) struct NoNodeset;

#[cfg(test)]
impl Commands for NoNodeset {
    fn run(&self, _command: &str, _directory: &str) -> Result<Vec<u8>, String> {
        Err("exited with 127: not found".into())
    }
}
