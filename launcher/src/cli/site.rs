//! From what was asked for to a placement: hostfiles are read and this machine is looked at, through functions, so that
//! everything can be tried without either.

use super::errors::CliError;
use super::place::{Counted, Own, PerNode, Said};
use super::{Lookup, Program, Run};
use crate::view::words;
use rlaunch_core::hostlist::groups::{Definition, Ground, GroupFault, GroupName, Groups};
use rlaunch_core::hostlist::{self, Entry, Outside};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::place::{self, AppRequest, Here, Placement, Request};
use std::cell::RefCell;
use std::io;

/// Largest hostfile: a line for each of as many hosts as there can be, and comments.
pub(crate) const LARGEST: u64 = 16 << 20;

/// This machine, as far as a command line is about it.
pub(crate) struct Site<'a> {
    /// Its name and processors.
    pub(crate) here: Here,
    /// Its GPUs, if that can be told.
    pub(crate) gpus: &'a dyn Fn() -> Option<u32>,
    /// The content of a file.
    pub(crate) read: &'a dyn Fn(&OsBytes) -> io::Result<Vec<u8>>,
    /// Whether a path is a file.
    pub(crate) is_file: &'a dyn Fn(&OsBytes) -> bool,
    /// Whether a path is a file, and runs.
    pub(crate) runs: &'a dyn Fn(&OsBytes) -> Option<Runs>,
    /// The directory in which rlaunch was started, if it has a name.
    pub(crate) directory: &'a dyn Fn() -> Option<OsBytes>,
    /// The caller's environment.
    pub(crate) env: Lookup<'a>,
    /// Groups of hosts.
    pub(crate) groups: &'a Known<'a>,
}

/// Whether a file runs when it is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    /// The kernel knows how, and may.
    Itself,
    /// Something else would have to read it.
    Never,
}

/// Groups of hosts: read when the first is named, and only once.
pub(crate) struct Known<'a> {
    ground: &'a dyn Ground,
    groups: RefCell<Option<Result<Groups, GroupFault>>>,
}

impl<'a> Known<'a> {
    pub(crate) const fn new(ground: &'a dyn Ground) -> Self {
        Self { ground, groups: RefCell::new(None) }
    }

    fn definition(&self, name: &GroupName) -> Result<Definition, GroupFault> {
        let mut groups = self.groups.borrow_mut();
        match groups.get_or_insert_with(|| Groups::read(self.ground)) {
            Ok(groups) => groups.definition(name, self.ground),
            Err(fault) => Err(fault.clone()),
        }
    }
}

/// What lists name beside hosts.
struct Around<'a>(&'a Site<'a>);

impl Outside for Around<'_> {
    fn file(&mut self, path: &str) -> Result<Vec<u8>, String> {
        (self.0.read)(&path.into()).map_err(|error| why(&error))
    }

    fn group(&mut self, name: &GroupName) -> Result<Definition, GroupFault> {
        self.0.groups.definition(name)
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
            ([], []) => Ok(Vec::new()),
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

    fn app(&self, program: &Program, hosts: Vec<Entry>) -> Result<AppRequest, CliError> {
        let ppn = match &program.place.ppn {
            None => None,
            Some(PerNode::Ranks(n)) => Some(*n),
            Some(PerNode::Counted(option, counted)) => {
                if let Some(entry) = hosts.iter().find(|entry| !self.here.is(&entry.host)) {
                    return Err(CliError::CountedElsewhere { option: option.clone(), host: entry.host.to_string() });
                }
                Some(self.count(option, *counted)?)
            }
        };
        Ok(AppRequest { n: program.n, ppn, hosts })
    }

    fn count(&self, option: &OsBytes, counted: Counted) -> Result<u32, CliError> {
        match counted {
            Counted::Gpu => match (self.gpus)() {
                Some(0) => Err(CliError::NoGpu { option: option.clone() }),
                Some(gpus) => Ok(gpus),
                None => Err(CliError::UnknownGpus { option: option.clone() }),
            },
            Counted::Auto => Ok((self.gpus)().filter(|n| *n > 0).unwrap_or(self.here.cpus.max(1))),
            Counted::Cpu => Ok(self.here.cpus.max(1)),
        }
    }
}

impl Run {
    /// Where its ranks are to run.
    ///
    /// # Errors
    /// Hosts that cannot be understood, or ranks that do not fit.
    pub(crate) fn place(&self, site: &Site<'_>) -> Result<Placement, CliError> {
        let mut apps = Vec::new();
        for program in &self.programs {
            apps.push((program, site.hosts(&program.place)?));
        }
        let named: Vec<Entry> = apps.iter().flat_map(|(_, hosts)| hosts.clone()).collect();
        let app = |(program, hosts): (&Program, Vec<Entry>)| {
            // Hosts of another program may be this one's too.
            let all = if hosts.is_empty() { named.clone() } else { hosts.clone() };
            site.app(program, all).map(|app| AppRequest { hosts, ..app })
        };
        let request = Request {
            apps: apps.into_iter().map(app).collect::<Result<_, _>>()?,
            here: site.here.clone(),
            map_by: self.whole.map_by,
            rank_by: self.whole.rank_by,
            nnodes: self.whole.nnodes,
            min_hosts: self.whole.min_hosts,
            strict: self.whole.strict,
        };
        place::place(&request).map_err(|source| CliError::Place { source, variables: self.variables.clone() })
    }
}

pub(crate) fn why(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), words::errno)
}

/// For tests: nobody has set groups up.
#[cfg(test)]
pub(crate) struct Nobody;

#[cfg(test)]
impl Ground for Nobody {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn file(&self, _path: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn directory(&self, _path: &str) -> Result<Option<Vec<String>>, String> {
        Ok(None)
    }

    fn run(&self, _command: &str, _directory: &str) -> Result<Vec<u8>, String> {
        Err("is not run here".into())
    }
}
