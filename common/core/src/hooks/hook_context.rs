//! The variables of a command for a restart, or for the job's end: a fold of the event log.

use super::On;
use crate::events::{Cause, JobStart, Record, RestartCause, What};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{NodeId, Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_restart::RoundNote;

/// Most bytes of a variable: the kernel takes 128 KiB of one string, and lists of ranks or hosts, or what a rank says, may be longer.
const MOST: usize = 16 << 10;

/// Names and values.
pub type Vars = Vec<(&'static str, OsBytes)>;

/// A command that is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) on: On,
    pub(super) vars: Vars,
}

/// The known facts about the job.
#[derive(Debug)]
pub(super) struct Facts {
    job: String,
    placement: Arc<Placement>,
    /// By node.
    hosts: Vec<String>,
    /// Healthy ranks, and those of them that work.
    world: (u32, u32),
}

/// Whether a record says something of this.
#[must_use]
pub const fn concerns(what: &What) -> bool {
    matches!(what, What::JobStart(_) | What::Round { .. } | What::Restart { .. } | What::JobEnd { .. })
}

pub(super) fn number(n: u32) -> OsBytes {
    n.to_string().as_str().into()
}

/// The part of a text that fits; the rest becomes three dots.
fn fits(text: &[u8]) -> OsBytes {
    match text.get(..MOST) {
        Some(begin) if text.len() > MOST => [begin, b"..."].concat().as_slice().into(),
        Some(_) | None => text.into(),
    }
}

/// The last event, and its subject.
struct Happened<'a> {
    kind: &'static str,
    ranks: RankSet,
    hosts: Vec<NodeId>,
    text: Cow<'a, [u8]>,
}

impl Facts {
    pub(super) fn new(placement: Arc<Placement>, hosts: Vec<String>) -> Self {
        let mut facts = Self { job: String::new(), placement, hosts, world: (0, 0) };
        facts.whole();
        facts
    }

    pub(super) fn place(&mut self, placement: Arc<Placement>) {
        let other = self.placement.ranks.len() != placement.ranks.len();
        self.placement = placement;
        if other {
            self.whole();
        }
    }

    /// A host has become known.
    pub(super) fn know(&mut self, node: NodeId, name: &str) {
        if self.hosts.len() <= node.index() {
            self.hosts.resize(node.index().saturating_add(1), String::new());
        }
        self.hosts.get_mut(node.index()).into_iter().for_each(|known| *known = name.into());
    }

    fn whole(&mut self) {
        let all = u32::try_from(self.placement.ranks.len()).unwrap_or(u32::MAX);
        self.world = (all, all);
    }

    /// The command that a record asks for.
    pub(super) fn on_record(&mut self, record: &Record) -> Option<Call> {
        match &record.what {
            What::JobStart(start) => {
                let JobStart { job, .. } = &**start;
                self.job = job.to_string();
                None
            }
            What::Round { note, .. } => match &**note {
                RoundNote::Began { round, faults, world_size, active_world_size, .. } => {
                    let before = core::mem::replace(&mut self.world, (*world_size, *active_world_size));
                    let happened = self.of_faults(faults)?;
                    Some(self.restart(record.generation, ("round", Some(*round)), before, &happened))
                }
                _ => None,
            },
            What::Restart { restart, why, .. } => {
                let before = self.world;
                self.whole();
                Some(self.restart(*restart, ("generation", None), before, &of_restart(*why)))
            }
            What::JobEnd { cause, exit, left, .. } => Some(self.end(record, cause, *exit, *left)),
            _ => None,
        }
    }

    fn end(&self, record: &Record, cause: &Cause, exit: Ending, left: Option<u32>) -> Call {
        let (kind, rank, node, text) = ended(cause);
        let node = node.or_else(|| self.node(rank?));
        let happened = Happened {
            kind,
            ranks: rank.into_iter().collect(),
            hosts: node.into_iter().collect(),
            text: Cow::Borrowed(text.as_bytes()),
        };
        let mut vars = self.vars("exit", record.generation, record.round, &happened);
        vars.push(("RLAUNCH_HOOK_EXIT_CODE", number(exit.shell_code().into())));
        vars.push(("RLAUNCH_HOOK_LEFT", left.map(number).unwrap_or_default()));
        Call { on: On::Exit, vars }
    }

    fn restart(
        &self,
        generation: u32,
        (level, round): (&str, Option<Round>),
        before: (u32, u32),
        happened: &Happened<'_>,
    ) -> Call {
        let mut vars = self.vars("restart", generation, round, happened);
        vars.push(("RLAUNCH_HOOK_LEVEL", level.into()));
        vars.push(("RLAUNCH_HOOK_WORLD_BEFORE", number(before.0)));
        Call { on: On::Restart, vars }
    }

    fn vars(&self, on: &str, generation: u32, round: Option<Round>, happened: &Happened<'_>) -> Vars {
        let Happened { kind, ranks, hosts, text } = happened;
        let hosts: Vec<&str> =
            hosts.iter().filter_map(|node| self.hosts.get(node.index())).map(String::as_str).collect();
        [
            ("RLAUNCH_JOB_ID", self.job.as_str().into()),
            ("RLAUNCH_HOOK", on.into()),
            ("RLAUNCH_HOOK_GENERATION", number(generation)),
            ("RLAUNCH_HOOK_ROUND", round.map(|round| number(round.get())).unwrap_or_default()),
            ("RLAUNCH_HOOK_KIND", (*kind).into()),
            ("RLAUNCH_HOOK_RANKS", fits(ranks.to_string().as_bytes())),
            ("RLAUNCH_HOOK_HOSTS", fits(hosts.join(",").as_bytes())),
            ("RLAUNCH_HOOK_TEXT", fits(text)),
            ("RLAUNCH_HOOK_WORLD", number(self.world.0)),
            ("RLAUNCH_HOOK_ACTIVE", number(self.world.1)),
        ]
        .into()
    }

    /// `None`: there are none.
    fn of_faults<'a>(&self, faults: &'a [Fault]) -> Option<Happened<'a>> {
        let (first, _) = Fault::first_of(faults)?;
        // Exceptions of others mostly follow from the loss of these.
        let others = faults.iter().filter(|fault| *fault != first && fault.kind.is_loss());
        let meant = || core::iter::once(first).chain(others.clone());
        let ranks = meant().map(|fault| fault.initial).collect();
        let mut hosts: Vec<NodeId> = Vec::new();
        for node in meant().filter_map(|fault| self.node(fault.initial)) {
            if hosts.last() != Some(&node) && !hosts.contains(&node) {
                hosts.push(node);
            }
        }
        let text = match first.kind {
            FaultKind::Ended(status) | FaultKind::Overdue(status) if first.text.is_empty() => {
                Cow::Owned(status.to_string().into_bytes())
            }
            _ => Cow::Borrowed(first.text.as_slice()),
        };
        Some(Happened { kind: first.kind.word(), ranks, hosts, text })
    }

    fn node(&self, rank: Rank) -> Option<NodeId> {
        self.placement.ranks.get(rank.index()).map(|placed| placed.node)
    }
}

/// Why all ranks are started again.
fn of_restart(why: RestartCause) -> Happened<'static> {
    match why {
        RestartCause::Failed { rank, node, status, lost } => Happened {
            kind: if lost.is_some() { "host_lost" } else { "ended" },
            ranks: [rank].into_iter().collect(),
            hosts: [node].into(),
            text: Cow::Owned(status.to_string().into_bytes()),
        },
        RestartCause::Grown { size, running } => Happened {
            kind: "grown",
            ranks: RankSet::default(),
            hosts: Vec::new(),
            text: Cow::Owned(format!("{size} slices instead of {running}").into_bytes()),
        },
    }
}

/// Why a job ended: its kind, who it was about, and more of it.
fn ended(cause: &Cause) -> (&'static str, Option<Rank>, Option<NodeId>, String) {
    let kind = cause.word();
    match cause {
        Cause::Success | Cause::ReaderClosed(_) | Cause::TooFewSlices { .. } => (kind, None, None, String::new()),
        Cause::Rank { rank, status } => (kind, Some(*rank), None, Status::to_string(status)),
        Cause::Lead { rank } | Cause::Spawn { rank, .. } => (kind, Some(*rank), None, String::new()),
        Cause::Refused { node, .. }
        | Cause::Unreachable { node, .. }
        | Cause::Lost { node, .. }
        | Cause::Preempted { node, .. } => (kind, None, Some(*node), String::new()),
        Cause::Signal(sig) | Cause::Scheduler { sig, .. } => (kind, None, None, sig.to_string()),
        Cause::Timeout { limit } => (kind, None, None, format!("{limit}")),
    }
}
