//! From records to the picture.

use super::coarse::{self, Room};
use super::{Bar, End, Entry, Fault, FaultEntry, Finish, HostFact, HostMark, How, LostWord, Mark, Phase, Row, RowKey};
use super::{Stretch, Time, Timeline};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_protocol::rank_fault::named_by;

/// Most characters of a text in the log that a picture repeats.
const TEXT: usize = 120;
/// Most hosts and arguments that are kept.
const NAMES: usize = 65_536;

/// Process that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    node: u32,
    pid: u32,
    from: Time,
    is_spare: bool,
}

/// Makes the picture from one record after the other.
#[derive(Debug, Default)]
pub struct Builder {
    timeline: Timeline,
    room: Room,
    /// Ranks now.
    world_size: u32,
    running: BTreeMap<u32, Running>,
    /// Last host of each rank.
    nodes: BTreeMap<u32, u32>,
    /// Ranks of this generation that were started.
    started: BTreeSet<u32>,
    /// Begin of the launch that is not complete.
    launching: Option<Time>,
    /// The last start of this generation.
    last_start: Time,
    /// Begin of the stop before all ranks are started again.
    clearing: Option<Time>,
    /// All ranks are about to be started again.
    generation: Option<Phase>,
    ending: Option<(Time, FaultEntry)>,
    lost_nodes: BTreeSet<u32>,
}

impl Builder {
    /// An empty picture with room for so many things.
    #[must_use]
    pub fn new(room: Room) -> Self {
        Self { room, ..Self::default() }
    }

    /// Takes one more record into account. Records come in the order of the log.
    pub fn add(&mut self, entry: Entry) {
        let t = entry.t.max(self.timeline.last);
        self.timeline.last = t;
        match entry.ev.as_str() {
            "job.start" => self.start(entry),
            "host.lost" => self.host_lost(t, entry),
            "host.refused" => self.host(t, entry.node, HostFact::Refused(short(&entry.why))),
            "host.failed" => self.host(t, entry.node, HostFact::Failed(short(&entry.why))),
            "host.warned" => self.host(t, entry.node, HostFact::Warned(short(&entry.source))),
            "hosts.left_out" => self.left_out(&entry),
            "rank.started" => self.rank_started(t, &entry),
            "rank.failed" => self.rank_failed(t, &entry),
            "rank.exited" => self.rank_exited(t, &entry),
            "round" => self.round(t, entry),
            "clearing" => self.clearing = self.clearing.or(Some(t)),
            "restart" => self.restart(t, entry),
            "ending" => self.ending(t, entry),
            "log.lost" => self.timeline.missing = self.timeline.missing.saturating_add(entry.records),
            "job.end" => self.job_end(t, entry),
            _ => {}
        }
        self.room.keep(&mut self.timeline);
    }

    /// The picture. Running processes are shown up to the last record.
    #[must_use]
    pub fn finish(mut self) -> Timeline {
        let last = self.timeline.last;
        for rank in self.running.keys().copied().collect::<Vec<_>>() {
            self.close(rank, last, Finish::Unknown);
        }
        self.launched(last);
        if let Some((from, cause)) = self.ending.take() {
            self.phase(from, last, Phase::Ending { cause });
        }
        self.timeline.phases.sort_by_key(|phase| phase.from);
        self.timeline
    }

    fn start(&mut self, entry: Entry) {
        self.world_size = entry.world_size;
        self.launching = Some(0);
        let timeline = &mut self.timeline;
        (timeline.job, timeline.world_size) = (short(&entry.job), entry.world_size);
        timeline.hosts = entry.hosts.into_iter().take(NAMES).map(|host| short(&host)).collect();
        timeline.programs = entry.apps;
        for program in &mut timeline.programs {
            program.argv.truncate(NAMES);
            program.argv.iter_mut().for_each(|word| *word = short(word));
        }
    }

    fn host(&mut self, at: Time, node: Option<u32>, what: HostFact) {
        let Some(node) = node else { return };
        if self.timeline.host_marks.len() < NAMES {
            self.timeline.host_marks.push(HostMark { at, node, what });
        }
    }

    fn host_lost(&mut self, t: Time, entry: Entry) {
        let Some(node) = entry.node.filter(|node| self.lost_nodes.insert(*node)) else { return };
        let word = match entry.lost {
            Some(LostWord::Host(word)) => short(&word),
            Some(LostWord::Rank(_)) | None => String::new(),
        };
        self.host(t, Some(node), HostFact::Lost(word));
        let there: Vec<u32> = self.running.iter().filter(|(_, of)| of.node == node).map(|(rank, _)| *rank).collect();
        there.into_iter().for_each(|rank| self.close(rank, t, Finish::HostLost));
    }

    fn left_out(&mut self, entry: &Entry) {
        self.world_size = entry.world_size;
        self.nodes.clear();
        if let Some(Phase::Generation { left, .. }) = &mut self.generation {
            *left = Some(entry.world_size);
        }
    }

    fn rank_started(&mut self, t: Time, entry: &Entry) {
        let (Some(rank), Some(node)) = (entry.rank, entry.node) else { return };
        let from = entry.at.unwrap_or(t).min(t);
        if self.running.contains_key(&rank) {
            self.close(rank, from, Finish::Unknown);
        }
        if !self.has_row((node, rank)) {
            return;
        }
        self.running.insert(rank, Running { node, pid: entry.pid, from, is_spare: false });
        self.nodes.insert(rank, node);
        self.last_start = self.last_start.max(from);
        self.started.insert(rank);
        if self.started.len() >= self.world_size as usize {
            self.launched(self.last_start);
        }
    }

    fn rank_failed(&mut self, t: Time, entry: &Entry) {
        let (Some(rank), Some(node)) = (entry.rank, entry.node) else { return };
        if self.has_row((node, rank)) {
            self.mark((node, rank), t, Fault::NotStarted { step: short(&entry.step) });
        }
    }

    fn rank_exited(&mut self, t: Time, entry: &Entry) {
        let Some(rank) = entry.rank else { return };
        let Some(running) = self.running.get(&rank).copied() else { return };
        let how = How { code: entry.code, signal: entry.signal.as_deref().map(short) };
        let at = entry.at.unwrap_or(t).min(t);
        let finish = match (entry.lost.is_some(), entry.code, entry.asked) {
            (true, ..) => Finish::HostLost,
            (false, Some(0), _) => Finish::Success,
            (false, _, true) => Finish::Stopped(how),
            (false, _, false) => {
                self.mark((running.node, rank), at, Fault::Failed(how.clone()));
                Finish::Failed(how)
            }
        };
        self.close(rank, at, finish);
    }

    fn round(&mut self, t: Time, entry: Entry) {
        let took = entry.decided.saturating_add(entry.drained).saturating_add(entry.assigned);
        let from = t.saturating_sub(took);
        let mut faults = entry.faults;
        for fault in &mut faults {
            fault.text = short(&fault.text);
            let Some(rank) = fault.rank else { continue };
            let continued = !matches!(fault.kind.as_str(), "ended" | "overdue" | "host_lost" | "warned" | "joined");
            if let Some(node) = self.nodes.get(&rank).copied().filter(|_| continued) {
                let what = Fault::InRound { kind: short(&fault.kind), text: fault.text.clone() };
                self.mark((node, rank), from, what);
            }
        }
        let (generation, number) = (entry.generation, entry.round.unwrap_or(0));
        if let Some((first, more)) = named_by(&faults, |fault| &fault.kind) {
            let (fault, more) = (Some(first.clone()), u32::try_from(more).unwrap_or(u32::MAX));
            let (world_size, active) = (entry.world_size, entry.active_world_size);
            self.phase(from, t, Phase::Round { generation, number, fault, more, world_size, active });
        }
        let spares: BTreeSet<u32> = entry.reserve.into_iter().collect();
        let ranks: Vec<u32> = self.running.keys().copied().collect();
        for rank in ranks {
            self.set_spare(rank, t, spares.contains(&rank));
        }
    }

    fn set_spare(&mut self, rank: u32, t: Time, is_spare: bool) {
        let Some(running) = self.running.get(&rank).copied().filter(|running| running.is_spare != is_spare) else {
            return;
        };
        self.close(rank, t, Finish::Continued);
        self.running.insert(rank, Running { from: t, is_spare, ..running });
    }

    fn restart(&mut self, t: Time, entry: Entry) {
        self.clearing = self.clearing.or(Some(t));
        self.started.clear();
        self.launching = None;
        let is_host_lost = matches!(entry.lost, Some(LostWord::Host(_)));
        let how = How { code: entry.code, signal: entry.signal.as_deref().map(short) };
        let (number, rank) = (entry.generation, entry.rank);
        self.generation = Some(Phase::Generation { number, rank, node: entry.node, how, is_host_lost, left: None });
    }

    fn ending(&mut self, t: Time, entry: Entry) {
        self.launched(t);
        if self.ending.is_none() {
            self.ending = Some((t, entry.cause.unwrap_or_default()));
        }
    }

    fn job_end(&mut self, t: Time, entry: Entry) {
        for rank in self.running.keys().copied().collect::<Vec<_>>() {
            self.close(rank, t, Finish::Unknown);
        }
        self.timeline.end =
            Some(End { at: t, cause: entry.cause.unwrap_or_default(), exit: entry.exit.unwrap_or_default() });
    }

    /// All ranks of the generation run, or no more will.
    fn launched(&mut self, at: Time) {
        if let Some(from) = self.launching.take() {
            self.phase(from, at, Phase::Launch);
        }
        if let Some(what) = self.generation.take() {
            let from = self.clearing.take().unwrap_or(at);
            self.phase(from, at, what);
        }
    }

    fn has_row(&mut self, key: RowKey) -> bool {
        let rows = &mut self.timeline.rows;
        if !rows.contains_key(&key) {
            if rows.len() >= coarse::ROWS {
                self.timeline.hidden_rows = self.timeline.hidden_rows.saturating_add(1);
                return false;
            }
            rows.insert(key, Row::default());
        }
        true
    }

    fn close(&mut self, rank: u32, to: Time, finish: Finish) {
        let Some(Running { node, pid, from, is_spare }) = self.running.remove(&rank) else { return };
        if let Some(row) = self.timeline.rows.get_mut(&(node, rank)) {
            let what = Bar { pid, is_spare, finish };
            row.bars.push(Stretch { from, to: to.max(from), count: 1, what });
            self.room.used(1);
        }
    }

    fn mark(&mut self, key: RowKey, at: Time, what: Fault) {
        if let Some(row) = self.timeline.rows.get_mut(&key) {
            row.marks.push(Mark { at, count: 1, what });
            self.room.used(1);
        }
    }

    fn phase(&mut self, from: Time, to: Time, what: Phase) {
        self.timeline.phases.push(Stretch { from, to: to.max(from), count: 1, what });
        self.room.used(1);
    }
}

/// The beginning of a text of the log.
fn short(text: &str) -> String {
    text.chars().take(TEXT).collect()
}
