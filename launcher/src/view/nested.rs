//! Lines that tell a restarter around the job what this one does, as NVRx writes them (`--nested-restarter`): `InJob` is the start of all
//! ranks, `InProcess` a round. A fold of the event log.

use rlaunch_core::events::{Cause, Record, What};
use rlaunch_core::restart::{RoundNote, RoundsEnd};
use rlaunch_core::time::WallNs;
use std::time::{Duration, SystemTime};

/// The messages so far.
#[derive(Debug)]
pub(crate) struct Nested {
    /// The name of the restarter.
    name: String,
    /// Ranks of a start.
    world: u32,
    /// All ranks are being started again; how many of them are not yet.
    handling: Option<u32>,
}

/// Which of the two restarters.
#[derive(Clone, Copy)]
enum Level {
    Job,
    Process,
}

impl Nested {
    pub(crate) fn new(pid: u32, host: &str) -> Self {
        Self { name: format!("rlaunch{pid}@{host}"), world: 0, handling: None }
    }

    /// The lines for a record.
    pub(crate) fn lines(&mut self, record: &Record) -> String {
        let at = record.wall;
        match &record.what {
            What::JobStart(start) => {
                self.world = start.world_size;
                self.line(at, Level::Job, "initialize")
            }
            What::LeftOut { world_size, .. } => {
                self.world = *world_size;
                String::new()
            }
            What::Slices(taken) => {
                self.world = taken.world_size;
                String::new()
            }
            What::Clearing { .. } => {
                self.handling = Some(self.world);
                self.line(at, Level::Job, "handling stage=starting")
            }
            What::Restart { .. } => {
                self.handling = Some(self.world);
                self.line(at, Level::Job, "handling stage=processing")
            }
            What::RankStarted { .. } => match &mut self.handling {
                Some(1) => {
                    self.handling = None;
                    self.line(at, Level::Job, "handling stage=completed")
                }
                Some(left) => {
                    *left = left.saturating_sub(1);
                    String::new()
                }
                None => String::new(),
            },
            What::Round { note, .. } => match &**note {
                RoundNote::Began { faults, .. } if faults.is_empty() => self.line(at, Level::Process, "initialize"),
                RoundNote::Began { phases: [_, drained, assigned], .. } => {
                    let took = drained.nanos().saturating_add(assigned.nanos());
                    let from = WallNs(at.0.saturating_sub(took));
                    self.line(from, Level::Process, "handling stage=starting")
                        + &self.line(at, Level::Process, "handling stage=completed")
                }
                _ => String::new(),
            },
            What::RoundsOver(given) => match **given {
                RoundsEnd::Done => self.line(at, Level::Process, "finalized"),
                RoundsEnd::Impossible { .. } => self.line(at, Level::Process, "aborted"),
            },
            What::JobEnd { cause, .. } => {
                let wanted = matches!(
                    cause,
                    Cause::Success | Cause::Signal(_) | Cause::Scheduler { .. } | Cause::Timeout { .. }
                );
                let state = if wanted && self.handling.is_none() { "finalized" } else { "aborted" };
                self.line(at, Level::Job, state)
            }
            _ => String::new(),
        }
    }

    fn line(&self, at: WallNs, level: Level, state: &str) -> String {
        let level = match level {
            Level::Job => "InJob",
            Level::Process => "InProcess",
        };
        format!("[{}] [ALWAYS] [{}] [NestedRestarter] name=[{level}] state={state}\n", time(at), self.name)
    }
}

/// As Python's logging writes it, in UTC.
fn time(WallNs(ns): WallNs) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
    humantime::format_rfc3339_millis(at).to_string().replace('T', " ").replace('.', ",").replace('Z', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_core::events::RestartCause;
    use rlaunch_core::exit::Ending;
    use rlaunch_core::id::{LocalRank, NodeId, Rank, Round};
    use rlaunch_core::rank_set::RankSet;
    use rlaunch_core::restart::rank_fault::{Fault, FaultKind};
    use rlaunch_core::status::Status;
    use rlaunch_core::time::Span;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn times_are_as_pythons() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00,007"),
            (951_782_399, "2000-02-28 23:59:59,007"),
            (951_782_400, "2000-02-29 00:00:00,007"),
            (1_767_225_599, "2025-12-31 23:59:59,007"),
            (1_795_386_000, "2026-11-22 22:20:00,007"),
            (4_107_542_400, "2100-03-01 00:00:00,007"),
        ] {
            assert_eq!(time(WallNs(seconds * SECOND + 7_900_000)), expected);
        }
    }

    /// Without the time, and without who speaks.
    fn said(nested: &mut Nested, what: What) -> Vec<String> {
        let wall = WallNs(SECOND);
        let text = nested.lines(&Record { t: Span::ZERO, wall, generation: 0, round: None, what });
        let state = |line: &str| line.split_once("[NestedRestarter] ").unwrap().1.to_owned();
        text.lines().map(state).collect()
    }

    fn began(faults: Vec<Fault>) -> What {
        let note = RoundNote::Began {
            round: Round::new(0),
            faults,
            world_size: 2,
            active_world_size: 2,
            discarded: RankSet::new(),
            reserve: RankSet::new(),
            phases: [Span::ZERO, Span::from_millis(30), Span::ZERO],
        };
        What::Round { node: None, note: Box::new(note) }
    }

    fn end(cause: Cause) -> What {
        What::JobEnd { cause, exit: Ending::Code(0), left: Some(0), launch: None, never_started: None }
    }

    #[test]
    fn rounds_are_handled_within_processes() {
        let mut nested = Nested::new(7, "h");
        assert_eq!(said(&mut nested, began(vec![])), ["name=[InProcess] state=initialize"]);
        let fault = Fault { initial: Rank::new(1), kind: FaultKind::Exception, text: "x".into() };
        let wall = WallNs(SECOND);
        let what = began(vec![fault]);
        assert_eq!(
            nested.lines(&Record { t: Span::ZERO, wall, generation: 0, round: None, what }),
            "[1970-01-01 00:00:00,970] [ALWAYS] [rlaunch7@h] [NestedRestarter] name=[InProcess] state=handling stage=starting\n\
             [1970-01-01 00:00:01,000] [ALWAYS] [rlaunch7@h] [NestedRestarter] name=[InProcess] state=handling stage=completed\n"
        );
        assert_eq!(
            said(&mut nested, What::RoundsOver(Box::new(RoundsEnd::Done))),
            ["name=[InProcess] state=finalized"]
        );
        assert_eq!(said(&mut nested, end(Cause::Success)), ["name=[InJob] state=finalized"]);
    }

    #[test]
    fn all_ranks_have_to_be_there_again() {
        let mut nested = Nested::new(7, "h");
        nested.world = 2;
        let (rank, status) = (Rank::new(1), Status::Exited(3));
        let started = || What::RankStarted {
            rank,
            node: NodeId::new(0),
            local_rank: LocalRank::new(0),
            group: None,
            pid: 5,
            at: Span::ZERO,
        };
        assert_eq!(said(&mut nested, started()), [""; 0]);
        let why = RestartCause::of_rank(rank, NodeId::new(0), status);
        let clearing = What::Clearing { why, grace: Span::ZERO };
        assert_eq!(said(&mut nested, clearing), ["name=[InJob] state=handling stage=starting"]);
        let (lived, delay) = (Span::ZERO, Span::ZERO);
        let restart = What::Restart { restart: 1, why, lived, delay, fewer: None };
        assert_eq!(said(&mut nested, restart), ["name=[InJob] state=handling stage=processing"]);
        assert_eq!(said(&mut nested, started()), [""; 0]);
        assert_eq!(said(&mut nested, started()), ["name=[InJob] state=handling stage=completed"]);
        assert_eq!(said(&mut nested, end(Cause::Rank { rank, status })), ["name=[InJob] state=aborted"]);
    }
}
