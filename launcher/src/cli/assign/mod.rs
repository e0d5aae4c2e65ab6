//! `rlaunch assign`: what a policy makes of losses, tried before a job depends on it. Nothing is started.

mod file;
mod keys;
mod trial_rounds;

use super::errors::CliError;
use super::place::Said;
use super::scan::{self, Given};
use super::site::{Site, why};
use super::table::{ASSIGN, Id, options};
use super::values::count;
use super::{Answer, Command, help};
use crate::view::assign::RankFates;
use keys::Named;
pub(super) use keys::Placed;
use rlaunch_base::error::Hint;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::place::{self, AppRequest, By, MOST_RANKS, Placement, Request};
use rlaunch_plan::rank_assign::{Policy, parse};
use rlaunch_protocol::rounds::PolicyReader;
use rlaunch_restart::terms::POLICY;
use std::fmt::Display;
use trial_rounds::Step;

pub(super) const USAGE: &str = "\
Usage: rlaunch assign --world N [--assign POLICY] [--lose RANKS]... [OPTIONS]

Shows who is which rank after each loss. Nothing is started; a job takes the
same --assign. POLICY, whose last part runs first, is made of
  all  max=N  divisible=N   who works: every rank, at most N, a multiple of N
  shift  fill               numbers of lost ranks: the others move up, or the
                            last ones take them
  group(KEY)==N  >=N  %N    ranks of smaller groups are discarded
  regrow                    more may work again once there are more
or is @FILE, which may have a tree of groups. KEY is host, rack, slice, numa,
env:NAME, rank/N or initial/N. More: docs/reference/policies.md.

";

options! {
    Assign;
    World -b'n' ["world", "np", "ntasks"] One("N"): "ranks at the start (default: the slots of the hosts)";
    Assign ["assign", "policy"] One("POLICY"): "as max=12,shift; or @FILE (default: all,shift)";
    Lose ["lose"] One("RANKS"): "a round: these are lost, as 3,7 or 0-7 or none";
    Join ["join"] One("RANKS"): "a round: these initial ranks come back";
    PerHost ["ranks-per-host", "ppn"] One("N"): "so many ranks share a host";
    Per ["ranks-per"] One("KEY=N"): "so many share a slice, rack, numa or env:NAME";
    Hosts -b'H' ["hosts", "host"] One("LIST"): "hosts, as for a job: node[0-3]:8";
    Hostfile -b'f' ["hostfile", "machinefile"] One("FILE"): "hosts of a file, as for a job";
    All -b'a' ["all-ranks"] Nothing: "a line for each rank, also of more than 64";
    Json ["json"] Nothing: "for programs";
    Help -b'h' ["help"] Nothing: "print this";
}

/// A trial of a policy.
#[derive(Debug)]
pub(crate) struct Trial {
    policy: Said,
    world: Option<u32>,
    per_host: Option<u32>,
    keys: Named,
    lists: Vec<Said>,
    files: Vec<Said>,
    steps: Vec<Step>,
    pub(crate) all: bool,
    pub(crate) json: bool,
}

/// Reads the words after `assign`.
pub(super) fn parse(words: Vec<OsBytes>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &ASSIGN)?;
    let of = OsBytes::from("rlaunch assign");
    let mut trial = Trial {
        // As for a job whose program asks for nothing.
        policy: Said { option: of.clone(), value: OsBytes::from(POLICY) },
        world: None,
        per_host: None,
        keys: Named::default(),
        lists: Vec::new(),
        files: Vec::new(),
        steps: Vec::new(),
        all: false,
        json: false,
    };
    for Given { row, spelled: option, value, .. } in words.given {
        let Id::Assign(opt) = row.id else { continue };
        match opt {
            Opt::World => trial.world = Some(count(&option, &value, MOST_RANKS)?),
            Opt::Assign => trial.policy = Said { option, value },
            Opt::Lose => trial.steps.push(Step::lose(Said { option, value })?),
            Opt::Join => trial.steps.push(Step::join(Said { option, value })?),
            Opt::PerHost => trial.per_host = Some(count(&option, &value, MOST_RANKS)?),
            Opt::Per => trial.keys.per(&option, &value)?,
            Opt::Hosts => trial.lists.push(Said { option, value }),
            Opt::Hostfile => trial.files.push(Said { option, value }),
            Opt::All => trial.all = true,
            Opt::Json => trial.json = true,
            Opt::Help => return Ok(Command::text(help::command_named("assign"))),
        }
    }
    if let Some(word) = words.argv.into_iter().next() {
        let hint = Some("--lose RANKS   or   --assign POLICY".into());
        return Err(CliError::Value { option: of, takes: "options only".into(), got: word, hint });
    }
    if trial.world.is_none() && trial.lists.is_empty() && trial.files.is_empty() {
        return Err(CliError::missing(&of, "--world N, or hosts", &ASSIGN));
    }
    Ok(Command::Answer(Answer::Assign(Box::new(trial))))
}

impl Trial {
    /// Plays the rounds, and returns the fate of the ranks.
    ///
    /// # Errors
    /// The policy, the hosts or a loss cannot be.
    pub(crate) fn fates(mut self, site: &Site<'_>) -> Result<RankFates, CliError> {
        let policy = policy(&self.policy, site)?;
        let world = match self.place(site)? {
            Some(placement) => {
                let name =
                    |node: rlaunch_base::id::NodeId| placement.nodes.get(node.index()).map(|node| &node.host.name);
                let hosts = placement.ranks.iter().filter_map(|placed| name(placed.node).cloned());
                self.keys.hosts = hosts.collect();
                u32::try_from(placement.ranks.len()).unwrap_or(MOST_RANKS)
            }
            None => {
                self.keys.per_host(self.per_host);
                self.world.unwrap_or_default()
            }
        };
        trial_rounds::play(policy, world, self.keys, &self.steps)
    }

    /// The placement of the ranks, if there are hosts.
    fn place(&self, site: &Site<'_>) -> Result<Option<Placement>, CliError> {
        let hosts = match (self.files.as_slice(), self.lists.as_slice()) {
            ([], []) => return Ok(None),
            (files, []) => site.files(files)?,
            ([], lists) => site.lists(lists)?,
            (files, lists) => {
                let mut all = site.files(files)?;
                all.extend(site.lists(lists)?);
                all
            }
        };
        let request = Request {
            apps: vec![AppRequest { n: self.world, ppn: self.per_host, hosts, ..AppRequest::default() }],
            here: site.here.clone(),
            carries_all: false,
            map_by: By::Slot,
            rank_by: None,
            layout: place::Layout::default(),
            nnodes: None,
            min_hosts: None,
            strict: false,
            keeps_hosts: false,
        };
        place::place(&request).map(Some).map_err(|source| CliError::Place { source, variables: Vec::new() })
    }
}

/// `--assign POLICY|@FILE`
pub(super) fn policy(Said { option, value }: &Said, site: &Site<'_>) -> Result<Policy, CliError> {
    let Some(path) = value.strip_prefix(b"@") else {
        let text = String::from_utf8_lossy(value);
        return parse::policy(&text).map_err(|error| refuse(option, &error));
    };
    let path = OsBytes::from(path);
    let unread = |what: String| CliError::Assign { at: option.to_string(), what, hint: None };
    let text = (site.read)(&path).map_err(|error| unread(format!("cannot read {path}: {}", why(&error))))?;
    let text = std::str::from_utf8(&text).map_err(|_| unread(format!("{path} is no text file (UTF-8)")))?;
    file::policy(text).map_err(|fault| {
        let at = fault.line.map_or_else(|| path.to_string(), |line| format!("{path}, line {line}"));
        CliError::Assign { at, what: fault.what, hint: fault.hint.map(Into::into) }
    })
}

/// A policy that a program asks for: words, or the text of a file.
///
/// # Errors
/// It is none, and why.
pub(crate) fn read_policy(text: &str) -> Result<Policy, String> {
    if text.contains(['[', '\n']) && text.contains("assign") {
        return file::policy(text).map_err(|file::Fault { line, what, hint }| {
            let at = line.map_or_else(String::new, |line| format!("line {line}: "));
            let hint = hint.map_or_else(String::new, |hint| format!(" (try: {hint})"));
            format!("{at}{what}{hint}")
        });
    }
    PolicyReader::default().0(text)
}

/// An error of ours about an option.
pub(super) fn refuse(option: &OsBytes, error: &(impl Display + Hint)) -> CliError {
    CliError::Assign { at: option.to_string(), what: error.to_string(), hint: error.hint() }
}

/// Ranks as `3,7` or `0-7`; none: nothing or `none`.
fn ranks(said: &Said) -> Result<Vec<Rank>, CliError> {
    let refuse = || CliError::Value {
        option: said.option.clone(),
        takes: "ranks, as 3,7 or 0-7 or none".into(),
        got: said.value.clone(),
        hint: Some(format!("{} 3,7", said.option).into()),
    };
    let text = std::str::from_utf8(&said.value).map_err(|_| refuse())?.trim();
    if matches!(text, "" | "none") {
        return Ok(Vec::new());
    }
    let number = |text: &str| -> Option<u32> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|n| digits && *n < MOST_RANKS)
    };
    let mut all = std::collections::BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (number(first.trim()), number(last.trim())) {
            (Some(first), Some(last)) if first <= last => all.extend((first..=last).map(Rank::new)),
            (Some(_) | None, _) => return Err(refuse()),
        }
    }
    Ok(all.into_iter().collect())
}

#[cfg(test)]
mod tests;
