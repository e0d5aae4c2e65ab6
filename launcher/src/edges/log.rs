//! The event log on its way to its file or descriptor.
//!
//! Its reader may be suspended, and a job runs for weeks: waiting records are bounded, and beyond that whole records are left out. The
//! log says how many, where they would have been. The closing report knows nothing of this: it is folded from the records themselves.

use super::ledger::Ledger;
use super::part::{Outcome, Part};
use super::sink::Sink;
use crate::cli::Events;
use crate::directory::NoFiles;
use anyhow::Context as _;
use rlaunch_base::errno::EPIPE;
use rlaunch_base::time::Mono;
use rlaunch_core::events::{Record, What, line};
use rlaunch_sys::doorbell::Doorbell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::task::Context;

/// Bytes that may wait for the reader.
const ROOM: usize = 4 << 20;
/// Records are taken again when no more than this waits: or every other record would be one about lost ones.
const ROOM_AGAIN: usize = ROOM / 2;

pub(super) struct Log {
    sink: Sink,
    /// Records left out since the last that was taken.
    lost: u64,
    reported: bool,
}

impl Log {
    /// Opens it. A FIFO waits for its reader.
    pub(super) fn open(target: &Events, bell: &Doorbell) -> anyhow::Result<Self> {
        Ok(Self::to(open(target)?, bell))
    }

    fn to(target: OwnedFd, bell: &Doorbell) -> Self {
        Self { sink: Sink::new("events", target, Ledger::new(bell.clone(), 0)), lost: 0, reported: false }
    }

    /// Takes a record, or leaves it out. Nothing is left out where nothing waits, however long it is; and never the last.
    fn push(&mut self, record: &Record) {
        let text = line(record);
        let (waiting, last) = (self.sink.waiting(), matches!(record.what, What::JobEnd { .. }));
        let room = if self.lost == 0 { ROOM } else { ROOM_AGAIN };
        if !last && waiting > 0 && waiting + text.len() > room {
            self.lost += 1;
            return;
        }
        if self.lost > 0 {
            let what = What::LogLost { records: std::mem::take(&mut self.lost) };
            self.sink.say(
                line(&Record {
                    what,
                    t: record.t,
                    wall: record.wall,
                    generation: record.generation,
                    round: record.round,
                })
                .into(),
            );
        }
        self.sink.say(text.into());
    }

    pub(super) fn is_idle(&self) -> bool {
        self.sink.is_idle()
    }

    /// errno, once, if it cannot be written. A reader that left has what it wanted.
    fn failure(&mut self) -> Option<i32> {
        let errno = self.sink.failed()?;
        (!std::mem::replace(&mut self.reported, true) && errno != EPIPE).then_some(errno)
    }
}

impl Part for Log {
    fn receive(&mut self, record: &Record) {
        self.push(record);
    }

    /// Writes what was taken, or hands it to the thread. Says once that it cannot be written.
    fn poll(&mut self, _cx: &mut Context<'_>, out: &mut Outcome) {
        self.sink.flush();
        out.lines.extend(self.failure().map(crate::view::notices::log_failed));
    }

    /// Time at which to flush again.
    fn deadline(&self) -> Option<Mono> {
        self.sink.deadline()
    }
}

fn open(target: &Events) -> anyhow::Result<OwnedFd> {
    match target {
        Events::File(path) => {
            let name = std::ffi::OsStr::from_bytes(path);
            let file = std::fs::File::create(name).map_err(|error| NoFiles::named(path, &error))?;
            Ok(file.into())
        }
        Events::Fd(number) => i32::try_from(*number)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
            .and_then(rlaunch_sys::fd::inherited)
            .with_context(|| format!("cannot write the event log to descriptor {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::exit::Ending;
    use rlaunch_base::id::Rank;
    use rlaunch_base::time::{Span, WallNs};
    use rlaunch_core::events::Cause;
    use rlaunch_protocol::wire::to_root::Facts;
    use std::io::{BufRead as _, BufReader};

    fn record(t: u64, what: What) -> Record {
        Record { t: Span::from_nanos(t), wall: WallNs(t), generation: 0, round: None, what }
    }

    fn facts(n: u32) -> Record {
        let facts = Facts { tail: "x".repeat(1 << 10).as_str().into(), ..Facts::default() };
        record(u64::from(n), What::RankFacts { rank: Rank::new(n), facts })
    }

    fn end(t: u64) -> Record {
        record(
            t,
            What::JobEnd {
                cause: Cause::Success,
                exit: Ending::Code(0),
                left: Some(0),
                launch: None,
                never_started: None,
            },
        )
    }

    #[test]
    fn suspended_reader_loses_records_and_memory_stays_bounded() {
        const COUNT: u32 = 10_000;
        let (reader, writer) = std::io::pipe().unwrap();
        let mut log = Log::to(writer.into(), &Doorbell::new().unwrap());
        for n in 0..COUNT {
            log.push(&facts(n));
            log.sink.flush();
            assert!(log.sink.waiting() <= ROOM, "{}", log.sink.waiting());
        }
        log.push(&end(COUNT.into()));
        log.sink.flush();
        let lines: Vec<serde_json::Value> = {
            let mut lines = Vec::new();
            for line in BufReader::new(&reader).lines() {
                lines.push(serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
                if lines.last().unwrap()["ev"] == "job.end" {
                    break;
                }
            }
            lines
        };
        let [taken @ .., lost, last] = lines.as_slice() else { panic!("{} lines", lines.len()) };
        assert_eq!((&lost["ev"], &last["ev"]), (&"log.lost".into(), &"job.end".into()));
        assert!(taken.iter().enumerate().all(|(n, line)| line["rank"] == n), "the first ones, without a gap");
        assert_eq!(taken.len() as u64 + lost["records"].as_u64().unwrap(), u64::from(COUNT));
        assert!(taken.len() > 3_000, "{}", taken.len());
    }

    #[test]
    fn log_gap_is_reported_once_after_room() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut reader = BufReader::new(reader).lines();
        let mut log = Log::to(writer.into(), &Doorbell::new().unwrap());
        let mut n = 0;
        while log.lost < 100 {
            log.push(&facts(n));
            log.sink.flush();
            n += 1;
        }
        let taken = n - 100;
        // A little room is not enough, or gaps and records would take turns.
        (0..500).for_each(|_| drop(reader.next().unwrap().unwrap()));
        log.push(&facts(n));
        assert_eq!(log.lost, 101);
        (500..taken).for_each(|_| drop(reader.next().unwrap().unwrap()));
        while !log.is_idle() {
            std::thread::yield_now();
        }
        (n + 1..n + 20).for_each(|n| log.push(&facts(n)));
        log.sink.flush();
        let next: Vec<String> = reader.take(20).map(Result::unwrap).collect();
        assert!(next[0].contains("\"ev\":\"log.lost\",\"records\":101}"), "{}", next[0]);
        assert!(next[1..].iter().all(|line| line.contains("rank.facts")));
    }
}
