//! The closing report: everything that is worth saying about a job after its end, folded from its event log.

use super::became::Became;
use super::forgotten::Forgotten;
use super::round_summary::{Behind, Rounds};
use crate::events::{Answer, Cause, JobNews, JobStart, Lost, Record, RestartCause, SliceNews, What, WorldLine};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use rlaunch_base::by_rank::ByRank;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{LocalRank, NodeId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::bootstrap::HostFailure;
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::wire::to_root::{Facts, Hello, Leftover, NodeRefusal};

/// The longest time by which the launcher learns of a scheduler's signal later than the ranks.
const SIGNAL_LAG: Span = Span::from_millis(250);

/// The knowledge about a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Its description; `None` before its first record.
    pub start: Option<Box<JobStart>>,
    /// The guarantee that held.
    pub tier: Option<Tier>,
    /// Hosts that cannot be reached, and why.
    pub unreached: Vec<(NodeId, HostFailure)>,
    /// Hosts that cannot do what was asked for, and why.
    pub refused: Vec<(NodeId, NodeRefusal)>,
    /// Other hosts on which a part of ours was lost before the ending began; the first part.
    pub lost_hosts: Vec<(NodeId, Lost)>,
    /// How each host was lost, at any time; the first part.
    pub losses: BTreeMap<NodeId, Lost>,
    /// The count of each host that has ended; `None`: not counted.
    pub counts: BTreeMap<NodeId, Option<u32>>,
    /// Hosts that are about to be taken away.
    pub warned: BTreeSet<NodeId>,
    /// The scheduler has suspended the job at some time.
    pub was_suspended: bool,
    /// The pool of the job, if it has ended before the job.
    pub lost_pool: Option<OsBytes>,
    /// Hosts that the job did without.
    pub left_out: Vec<NodeId>,
    /// Hosts that were lost, one of them first, and it cannot be known which.
    pub together: Vec<NodeId>,
    /// Its ranks.
    pub ranks: ByRank<RankLine>,
    /// The worlds that ranks have started, by their first ranks.
    pub spawned: BTreeMap<Rank, Box<WorldLine>>,
    /// The ranks of worlds that ended long before the job.
    pub forgotten: Forgotten,
    /// When and how its ending began. A job whose ranks all end by themselves has none.
    pub began: Option<Began>,
    /// Signals that were passed on to these ranks.
    pub forwarded: BTreeSet<Signal>,
    /// Further facts about ranks that failed before the ending.
    pub facts: BTreeMap<Rank, Facts>,
    /// The most memory that each of these had, in KiB.
    pub peaks: BTreeMap<Rank, u64>,
    /// How often all ranks were started again, and why each time.
    pub restarts: Vec<Restarted>,
    /// Rounds of the ranks that there were last.
    pub rounds: Rounds,
    /// How long the first launch took, where ranks were started again later.
    pub launched: Option<Span>,
    /// Processes that still exist; `None`: not counted.
    pub left: Option<u32>,
    /// The first of them.
    pub named: Vec<Leftover>,
    /// Bytes of output received but not written.
    pub lost: u64,
    /// Lines broken because another rank waited.
    pub broken: u64,
    /// Its end.
    pub end: Option<End>,
}

/// Why all ranks were started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restarted {
    /// The cause.
    pub why: RestartCause,
    /// How long the rank had run that failed first.
    pub lived: Span,
}

/// A rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankLine {
    /// Its host.
    pub node: NodeId,
    /// Its rank there.
    pub local_rank: LocalRank,
    /// Its process id there and when it was started.
    pub started: Option<(u32, Span)>,
    /// Its fate.
    pub fate: Fate,
}

impl RankLine {
    const fn pending(n: u32) -> Self {
        Self { node: NodeId::new(0), local_rank: LocalRank::new(n), started: None, fate: Fate::Pending }
    }
}

/// The fate of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// No event of the rank has come yet.
    Pending,
    /// Runs, as far as is known.
    Running,
    /// Ended.
    Ended {
        /// How.
        status: Status,
        /// When.
        at: Span,
        /// Whether its host had been ordered to end it before this was seen there.
        asked: bool,
    },
    /// Could not be started.
    NotStarted,
}

/// The beginning of a job's ending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Began {
    /// When.
    pub at: Span,
    /// The signal sent to every rank, if one was.
    pub sent: Option<Signal>,
}

/// The end of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// Its first cause.
    pub cause: Cause,
    /// How rlaunch ends.
    pub exit: Ending,
    /// From its start to its end.
    pub took: Span,
    /// From its start to that of its last rank.
    pub launch: Option<Span>,
}

/// Ranks that had the same fate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Their fate.
    pub became: Became,
    /// Which.
    pub ranks: Vec<Rank>,
    /// From the beginning of the ending to the last of them.
    pub after: Span,
}

/// Whether it can no longer be known which ranks an agent has started.
const fn loses_agent(cause: &Cause) -> bool {
    matches!(cause, Cause::Lost { lost, .. } | Cause::Preempted { lost, .. } if matches!(lost, Lost::Agent(_) | Lost::AgentMute | Lost::Expired | Lost::Starved(_)))
}

/// The report of a whole log.
#[must_use]
pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Report {
    let mut report = Report::default();
    records.into_iter().for_each(|record| report.add(record));
    report
}

impl Report {
    /// Takes one more record into account.
    pub fn add(&mut self, record: &Record) {
        match &record.what {
            What::JobStart(start) => {
                self.ranks = (0..start.world_size).map(RankLine::pending).collect();
                self.start = Some(start.clone());
            }
            What::WorldStart(line) => self.add_world(line),
            What::HostReady { node, hello } => self.came_up(*node, hello),
            What::HostDone { node, left, named } => {
                self.counts.insert(*node, *left);
                self.named.extend_from_slice(named);
            }
            What::RankStarted { rank, node, local_rank, group: _, pid, at } => {
                let started = Some((*pid, *at));
                let line = RankLine { node: *node, local_rank: *local_rank, started, fate: Fate::Running };
                self.started(*rank, line);
            }
            What::RankFailed { rank, node, .. } => {
                // A rank that has run has an end: the next record is about another process.
                let anew = |line: &&mut RankLine| line.started.is_none();
                if let Some(line) = self.ranks.get_mut(rank.index()).filter(anew) {
                    (line.node, line.fate) = (*node, Fate::NotStarted);
                }
            }
            What::RankExited { rank, status, at, asked, usage, .. } => {
                self.peaks.extend((!asked && !status.is_success()).then_some((*rank, usage.max_rss_kib)));
                self.set(*rank, Fate::Ended { status: *status, at: *at, asked: *asked });
            }
            What::RankFacts { rank, facts } => {
                // Of ranks that we ended ourselves the last words explain nothing, and there may be thousands.
                if self.failed_by_itself(*rank) {
                    self.facts.insert(*rank, facts.clone());
                }
            }
            What::Ending { sent, .. } => self.began = Some(Began { at: record.t, sent: *sent }),
            What::OutputEnd { lost, broken } => {
                self.lost = *lost;
                self.broken = *broken;
            }
            What::JobEnd { cause, exit, left, launch, never_started: _ } => {
                self.left = *left;
                self.end = Some(End { cause: cause.clone(), exit: *exit, took: record.t, launch: *launch });
            }
            What::HostFailed { node, why } => self.unreached.push((*node, why.clone())),
            What::HostRefused { node, why } => self.refused.push((*node, why.clone())),
            What::HostLost { node, lost } => self.host_lost(*node, *lost),
            What::Together { nodes } => self.together.clone_from(nodes),
            What::LeftOut { nodes, world_size, procs, is_known: _ } => self.leave_out(nodes, *world_size, procs),
            What::Slices(taken) => self.resize(taken.world_size, &taken.procs),
            What::Restart { why, lived, .. } => self.restart(Restarted { why: *why, lived: *lived }),
            What::News(JobNews::SchedulerSignal { sig: Signal::TSTP, .. }) => self.was_suspended = true,
            What::News(JobNews::HostWarned { node, .. }) => {
                self.warned.insert(*node);
            }
            What::News(JobNews::PoolLost { pool }) => self.lost_pool = Some(pool.clone()),
            What::News(JobNews::Slices(SliceNews::Found { nodes, hosts, .. })) => self.know(nodes, hosts),
            What::Clearing { .. } | What::News(_) | What::NodeNews { .. } => {}
            What::Round { note, node: _ } => self.rounds.add(note),
            What::RoundsOver(given) => self.rounds.over(given),
            What::Signal { sig, answer } => self.signal(*sig, *answer),
            What::StreamEnd { .. } | What::SinkLost { .. } | What::LogLost { .. } | What::FileLost { .. } => {}
        }
    }

    fn host_lost(&mut self, node: NodeId, lost: Lost) {
        self.losses.entry(node).or_insert(lost);
        if self.began.is_none() && !self.is_missing(node) {
            self.lost_hosts.push((node, lost));
        }
    }

    /// Ranks are added while the job runs. They have no part in the launch.
    fn add_world(&mut self, line: &WorldLine) {
        self.launched = self.launched.or_else(|| self.launch());
        let ranks = line.apps.iter().fold(0_u32, |sum, app| sum.saturating_add(app.procs));
        self.ranks.extend((0..ranks).map(RankLine::pending));
        self.spawned.insert(line.first, Box::new(line.clone()));
        self.forget(&line.forgotten);
    }

    /// Hosts have become known.
    fn know(&mut self, nodes: &[NodeId], hosts: &[OsBytes]) {
        let Some(start) = &mut self.start else { return };
        for (node, host) in nodes.iter().zip(hosts) {
            if start.hosts.len() <= node.index() {
                start.hosts.resize(node.index().saturating_add(1), OsBytes::default());
            }
            start.hosts.get_mut(node.index()).into_iter().for_each(|name| name.clone_from(host));
        }
    }

    fn signal(&mut self, sig: Signal, answer: Answer) {
        match answer {
            Answer::Forwarded => {
                self.forwarded.insert(sig);
            }
            Answer::Ended | Answer::Noted { .. } | Answer::Unwritten { .. } => {}
            Answer::Killed | Answer::Left | Answer::Ignored => {}
        }
    }

    /// Another process of a rank (`--respawn`) has no part in the launch.
    fn started(&mut self, rank: Rank, process: RankLine) {
        if self.ranks.get(rank.index()).is_some_and(|line| line.started.is_some()) {
            self.launched = self.launched.or_else(|| self.launch());
        }
        if let Some(line) = self.ranks.get_mut(rank.index()) {
            *line = process;
        }
    }

    /// Begins a generation: no process of the earlier ranks remains; others take their places.
    fn restart(&mut self, restarted: Restarted) {
        // Hosts that are lost later are lost for another reason.
        self.lost_pool = None;
        if self.restarts.is_empty() {
            self.launched = self.launch();
        }
        self.restarts.push(restarted);
        self.ranks.iter_mut().for_each(|line| (line.started, line.fate) = (None, Fate::Pending));
        self.facts.clear();
        self.peaks.clear();
        self.forwarded.clear();
        self.rounds = Rounds::default();
    }

    fn is_missing(&self, node: NodeId) -> bool {
        self.unreached.iter().any(|(known, _)| *known == node)
            || self.refused.iter().any(|(known, _)| *known == node)
            || self.lost_hosts.iter().any(|(known, _)| *known == node)
    }

    /// A host is there, maybe for the second time.
    fn came_up(&mut self, node: NodeId, hello: &Hello) {
        self.tier = Some(hello.tier);
        self.unreached.retain(|(unreached, _)| *unreached != node);
        self.refused.retain(|(refused, _)| *refused != node);
    }

    fn leave_out(&mut self, nodes: &[NodeId], world_size: u32, procs: &[u32]) {
        // Hosts that were lost later are reported as such.
        if self.restarts.is_empty() {
            self.left_out = nodes.to_vec();
        }
        self.resize(world_size, procs);
    }

    fn resize(&mut self, world_size: u32, procs: &[u32]) {
        self.ranks = (0..world_size).map(RankLine::pending).collect();
        if let Some(start) = &mut self.start {
            start.world_size = world_size;
            start.apps.iter_mut().zip(procs).for_each(|(app, procs)| app.procs = *procs);
        }
    }

    /// The knowledge about hosts, without the ranks.
    #[must_use]
    pub fn of_hosts(&self) -> Self {
        let Self { start, unreached, refused, lost_hosts, left_out, .. } = self;
        Self {
            start: start.clone(),
            unreached: unreached.clone(),
            refused: refused.clone(),
            lost_hosts: lost_hosts.clone(),
            left_out: left_out.clone(),
            ..Self::default()
        }
    }

    /// Hosts that were asked for.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.start.as_ref().map_or(1, |start| start.hosts.len().max(1))
    }

    /// Hosts that could be had, of a job that ended before its start.
    #[must_use]
    pub fn ready(&self) -> usize {
        let missing = self.unreached.len() + self.refused.len() + self.lost_hosts.len();
        self.asked().saturating_sub(missing)
    }

    /// From the start of the job to that of its last rank; `None` while one is missing.
    #[must_use]
    pub fn launch(&self) -> Option<Span> {
        if self.launched.is_some() || !self.restarts.is_empty() {
            return self.launched;
        }
        self.ranks.iter().try_fold(Span::ZERO, |last, line| line.started.map(|(_, at)| last.max(at)))
    }

    /// Ranks that were never started, in a job that ends for this cause. `None`: an agent that is gone may have started some.
    #[must_use]
    pub fn never_started(&self, cause: &Cause) -> Option<u32> {
        let pending = self.ranks.iter().filter(|line| line.fate == Fate::Pending).count();
        let pending = pending.saturating_add(self.forgotten.pending);
        u32::try_from(pending).ok().filter(|pending| *pending == 0 || !loses_agent(cause))
    }

    /// Ranks without which a round has continued, and that are not back. A rank whose other process has finished well is back, even where
    /// it has only waited in reserve.
    #[must_use]
    pub fn left_behind(&self) -> Vec<(Rank, Behind)> {
        let of = |(rank, why): (&Rank, &Option<_>)| {
            let again = self.rounds.again.contains(rank);
            let behind = match (why, self.ranks.get(rank.index()).filter(|_| again).map(|line| line.fate)) {
                (None, _) => Behind::Discarded,
                (Some(_), Some(Fate::Ended { status, .. })) if status.is_success() => return None,
                (Some(_), Some(Fate::Running | Fate::Ended { asked: true, .. })) => Behind::Again,
                (Some(_), Some(Fate::Ended { asked: false, .. } | Fate::Pending | Fate::NotStarted) | None) => {
                    Behind::Lost
                }
            };
            Some((*rank, behind))
        };
        self.rounds.lost.iter().filter_map(of).collect()
    }

    /// Number of ranks that have finished, in a job that has. Lost ranks, and ranks that were started again and have not exited, do not count.
    #[must_use]
    pub fn finished(&self) -> usize {
        let behind = self.left_behind();
        let unfinished = behind.iter().filter(|(_, how)| matches!(how, Behind::Lost | Behind::Again)).count();
        self.all_ranks().saturating_sub(unfinished)
    }

    /// Number of ranks that the job has had.
    #[must_use]
    pub fn all_ranks(&self) -> usize {
        self.ranks.len().saturating_add(self.forgotten.ranks)
    }

    /// Hosts that were lost, or drained because they were about to be taken away, before a rank on them had finished.
    #[must_use]
    pub fn lost_early(&self) -> Vec<NodeId> {
        let finished = |line: &RankLine| matches!(line.fate, Fate::Ended { status, .. } if status.is_success());
        let lost = |node: &&NodeId| !self.ranks.iter().any(|line| line.node == **node && finished(line));
        let gone: BTreeSet<&NodeId> = self.losses.keys().chain(&self.warned).collect();
        gone.into_iter().filter(lost).copied().collect()
    }

    /// The fates of the ranks that are not the first cause, grouped, in the order of their first ranks. A rank that failed in a round
    /// that another made good is not among them.
    #[must_use]
    pub fn others(&self) -> Vec<Group> {
        let first = match self.end.as_ref().map(|end| &end.cause) {
            Some(Cause::Rank { rank, .. } | Cause::Spawn { rank, .. }) => Some(*rank),
            _ => None,
        };
        let mut groups: Vec<Group> = Vec::new();
        for (rank, line) in self.ranks.with_ranks().filter(|(rank, _)| Some(*rank) != first) {
            let (became, after) = self.became(line);
            // A round continued without it: the report names it there, and that it ended is no failure of the job's.
            if matches!(became, Became::Failed(_)) && self.rounds.lost.contains_key(&rank) {
                continue;
            }
            match groups.iter_mut().find(|group| group.became == became) {
                Some(group) => {
                    group.ranks.push(rank);
                    group.after = group.after.max(after);
                }
                None => groups.push(Group { became, ranks: [rank].into(), after }),
            }
        }
        groups
    }

    fn became(&self, line: &RankLine) -> (Became, Span) {
        let (status, at, asked) = match line.fate {
            Fate::Ended { at, asked: true, .. } if self.is_of_group_end(at) => return (Became::GroupEnded, Span::ZERO),
            // An agent that is gone may have started it and not said so.
            Fate::Pending if self.agent_lost() && self.left == Some(0) => {
                return (Became::EndedOrNeverStarted, Span::ZERO);
            }
            Fate::Pending if self.agent_lost() => return (Became::NoContact, Span::ZERO),
            Fate::Pending | Fate::NotStarted => return (Became::NeverStarted, Span::ZERO),
            Fate::Running if self.is_empty(line.node) => return (Became::Ended, Span::ZERO),
            Fate::Running => return (Became::NoContact, Span::ZERO),
            Fate::Ended { status, at, asked } => (status, at, asked || self.is_schedulers(status, at)),
        };
        let killed = matches!(status, Status::Signaled { sig: Signal::KILL, .. });
        match self.lost_on(line.node) {
            // The kernel was faster than the news of it.
            Some(Lost::Init) if killed && asked => return (Became::TakenAlong, Span::ZERO),
            // The agent kills everything before it can say why.
            Some(Lost::Guardian) if killed && asked => return (Became::Killed, Span::ZERO),
            Some(_) | None => {}
        }
        let Some(began) = self.began.filter(|_| asked) else {
            return (if status.is_success() { Became::Finished } else { Became::Failed(status) }, Span::ZERO);
        };
        let after = Span::from_nanos(at.nanos().saturating_sub(began.at.nanos()));
        let became = match began.sent {
            _ if killed => Became::Killed,
            Some(sig) => match status {
                Status::Exited(code) if code != 0 && u32::from(code) != 128 + u32::from(sig.get()) => {
                    Became::After(status, sig)
                }
                Status::Exited(_) | Status::Signaled { .. } | Status::Lost => Became::Stopped(sig),
            },
            None if status.is_success() => Became::Finished,
            None => Became::Failed(status),
        };
        (became, after)
    }

    /// The scheduler that has ended the job.
    #[must_use]
    pub fn scheduler(&self) -> Option<Scheduler> {
        let end = self.end.as_ref()?;
        if let Cause::Scheduler { scheduler, .. } = end.cause { Some(scheduler) } else { None }
    }

    /// Whether the scheduler's last signal has ended a rank: it may have come to the rank before it came to us. A rank that handles it
    /// mostly exits with 0. Another code may be a failure of its own.
    fn is_schedulers(&self, status: Status, at: Span) -> bool {
        let is_late = || self.began.is_some_and(|began| at + SIGNAL_LAG >= began.at);
        match (self.end.as_ref().map(|end| &end.cause), status) {
            (Some(Cause::Scheduler { sig, .. }), Status::Signaled { sig: own, .. }) => *sig == own,
            (Some(Cause::Scheduler { .. }), Status::Exited(0)) => is_late(),
            (_, Status::Signaled { .. } | Status::Exited(_) | Status::Lost) => false,
        }
    }

    /// Whether a count has shown that no process remains on this host.
    fn is_empty(&self, node: NodeId) -> bool {
        self.left == Some(0) || self.counts.get(&node) == Some(&Some(0))
    }

    /// Hosts without a count of remaining processes; none where that is so of all.
    #[must_use]
    pub fn uncounted(&self) -> Vec<NodeId> {
        let hosts = u32::try_from(self.asked()).unwrap_or(u32::MAX);
        let used = (0..hosts).map(NodeId::new).filter(|node| {
            !self.left_out.contains(node) && self.unreached.iter().all(|(unreached, _)| unreached != node)
        });
        let (counted, uncounted): (Vec<NodeId>, Vec<NodeId>) =
            used.partition(|node| self.counts.get(node).is_some_and(Option::is_some));
        if counted.is_empty() { Vec::new() } else { uncounted }
    }

    /// Hosts that were lost besides those that the first cause names or that were lost with it, by how they were.
    #[must_use]
    pub fn other_losses(&self) -> Vec<(Lost, Vec<NodeId>)> {
        let mut groups: Vec<(Lost, Vec<NodeId>)> = Vec::new();
        for (node, lost) in &self.losses {
            if self.lost_on(*node).is_some() || self.together.contains(node) || self.left_out.contains(node) {
                continue;
            }
            match groups.iter_mut().find(|(other, _)| other.is_like(*lost)) {
                Some((_, nodes)) => nodes.push(*node),
                None => groups.push((*lost, [*node].into())),
            }
        }
        groups
    }

    /// The part whose loss began the ending, if it was on this host.
    fn lost_on(&self, host: NodeId) -> Option<Lost> {
        match &self.end {
            Some(End { cause: Cause::Lost { node, lost } | Cause::Preempted { node, lost }, .. }) if *node == host => {
                Some(*lost)
            }
            Some(_) | None => None,
        }
    }

    fn agent_lost(&self) -> bool {
        self.end.as_ref().is_some_and(|end| loses_agent(&end.cause))
    }

    fn failed_by_itself(&self, rank: Rank) -> bool {
        match self.ranks.get(rank.index()).map(|line| line.fate) {
            Some(Fate::Ended { asked, .. }) => !asked,
            Some(Fate::Pending | Fate::Running | Fate::NotStarted) | None => false,
        }
    }

    fn set(&mut self, rank: Rank, fate: Fate) {
        if let Some(line) = self.ranks.get_mut(rank.index()) {
            line.fate = fate;
        }
    }
}
