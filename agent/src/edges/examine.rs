//! Why a failed rank failed: its last words, its core file, the kernel's out-of-memory killer, its own error file.

use super::files::{Dump, Found, Look};
use super::rank_table::Rank;
use super::{Edges, check, pump};
use crate::clock::now;
use rlaunch_core::id::ProcId;
use rlaunch_core::machine::earliest;
use rlaunch_core::node::{Depth, NodeEvent};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::signal::Signal;
use rlaunch_core::status::Status;
use rlaunch_core::time::{Mono, Span};
use rlaunch_core::wire::to_root::{Facts, HostUse};
use rlaunch_sys::facts::error_file;
use rlaunch_sys::facts::host::{self, Memory};
use rlaunch_sys::facts::oom::OomWatch;

/// When the kernel's counters of out-of-memory kills are read for the first time, counted from the first rank. A job that ends
/// earlier does not pay for it, and no rank fills its memory earlier.
const BEFORE_KILLS: Span = Span::from_millis(2);

/// When the memory of the launch is given back, counted from the last rank.
const SETTLED: Span = Span::from_millis(50);

/// The pause before memory is released after a look for files. Without it, code that the thread still runs would be mapped again.
const IDLE: Span = Span::from_millis(5);

/// How long the state of the host is not read again.
const FRESH: Span = Span::from_secs(1);

#[derive(Default)]
pub(super) struct Examinations {
    asked: Vec<Asked>,
    memory: OomWatch,
    baseline: Baseline,
    trim_at: Option<Mono>,
    /// The state of the host, and when it was read: many ranks may fail at once.
    host: Option<(Mono, HostUse)>,
}

struct Asked {
    proc: ProcId,
    status: Status,
    depth: Depth,
    /// How far its stderr is read first.
    up_to: u64,
    /// The `files` thread was asked too.
    files: bool,
}

#[derive(Default)]
enum Baseline {
    #[default]
    NotYet,
    At(Mono),
    Taken,
}

impl Examinations {
    /// A rank runs.
    pub(super) fn watch_memory(&mut self) {
        let now = now();
        self.trim_at = Some(now + SETTLED);
        if let Baseline::NotYet = self.baseline {
            self.baseline = Baseline::At(now + BEFORE_KILLS);
        }
    }

    /// Memory that was used after the launch is given back soon, when the thread that used it waits.
    pub(super) fn give_back(&mut self) {
        self.trim_at.get_or_insert_with(|| now() + IDLE);
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let baseline = match self.baseline {
            Baseline::At(at) => Some(at),
            Baseline::NotYet | Baseline::Taken => None,
        };
        earliest(baseline, self.trim_at)
    }

    /// Whether memory is to be given back.
    pub(super) fn poll(&mut self, now: Mono) -> bool {
        if matches!(self.baseline, Baseline::At(at) if at <= now) {
            self.memory.baseline();
            self.baseline = Baseline::Taken;
        }
        self.trim_at.take_if(|at| *at <= now).is_some()
    }
}

/// The state of this host, at most a second old.
fn host_use(known: &mut Option<(Mono, HostUse)>) -> Option<HostUse> {
    let now = now();
    if known.is_none_or(|(at, _)| now.since(at) > FRESH) {
        let memory = host::memory()?;
        let [load, ..] = host::load().unwrap_or_default();
        let Memory { available, total, swap_free, swap_total } = memory;
        *known = Some((now, HostUse { available, total, swap_free, swap_total, load: hundredths(load) }));
    }
    known.map(|(_, host)| host)
}

fn hundredths(load: f64) -> u32 {
    format!("{:.0}", load * 100.0).parse().unwrap_or(u32::MAX)
}

/// Begins an examination.
pub(super) fn ask(edges: &mut Edges, proc: ProcId, status: Status, depth: Depth) {
    // Somebody who holds the pipe may continue writing for ever: its last words are what was in it by now.
    let up_to = if depth == Depth::Full { pump::written_by_now(edges, proc) } else { 0 };
    let Edges { ranks, files, watch, sandbox, examine, .. } = edges;
    let rank = ranks.get(proc);
    let dump = match status {
        Status::Signaled { sig, core: true } if depth == Depth::Full => rank.map(|rank| dump_of(rank, sig)),
        Status::Signaled { .. } | Status::Exited(_) | Status::Lost => None,
    };
    let near = |rank: &Rank| is_near(sandbox.error_files_are_near(), rank);
    let far = rank.filter(|rank| !near(rank)).map(|rank| rank.error_file.path().to_vec());
    let files_asked = far.is_some() || dump.is_some();
    if files_asked {
        files.ask(Look { proc, error_file: far, dump }, |bell| watch.watch_files(bell));
    }
    examine.asked.push(Asked { proc, status, depth, up_to, files: files_asked });
}

/// Answers the examinations that need not wait any more: a rank's last words are in its pipe when it dies, so they are
/// read first, unless the reader of our output holds everything up.
pub(super) fn settle(edges: &mut Edges) {
    check::settle(edges);
    if edges.examine.asked.is_empty() {
        return;
    }
    for asked in std::mem::take(&mut edges.examine.asked) {
        let unread = asked.depth == Depth::Full && pump::will_be_read(edges, asked.proc, asked.up_to);
        let found = match asked.files {
            true if unread => None,
            true => edges.files.found(asked.proc),
            false => Some(Found::default()),
        };
        let Some(found) = found.filter(|_| !unread) else {
            edges.examine.asked.push(asked);
            continue;
        };
        let facts = facts(edges, &asked, found);
        edges.events.push_back(NodeEvent::Examined { proc: asked.proc, facts });
    }
}

fn facts(edges: &mut Edges, asked: &Asked, found: Found) -> Facts {
    let Asked { proc, status, depth, .. } = *asked;
    let near = edges.sandbox.error_files_are_near();
    let read = || {
        edges
            .ranks
            .get(proc)
            .filter(|rank| is_near(near, rank))
            .and_then(|rank| error_file::read(&rank.error_file.path()))
    };
    let error_file = found.error_file.or_else(read).map(OsBytes::new);
    if depth == Depth::ErrorFile {
        return Facts { error_file, late: found.late, ..Facts::default() };
    }
    let killed = status == Status::Signaled { sig: Signal::KILL, core: false };
    let oom_limit = if killed { edges.examine.memory.killed_since() } else { None };
    let tail = OsBytes::new(edges.pump.last_words(&mut edges.ranks, proc));
    let host = host_use(&mut edges.examine.host);
    Facts { tail, core: found.core.map(OsBytes::new), oom_limit, error_file, late: found.late, host }
}

/// A rank's error file lies on a file system that always answers. The file system of log files is unknown.
fn is_near(own: bool, rank: &Rank) -> bool {
    own && rank.error_file.directory().is_none()
}

fn dump_of(rank: &Rank, sig: Signal) -> Dump {
    let ended = rlaunch_sys::clock::wall();
    let ran = now().since(rank.started).nanos();
    Dump {
        pid: rank.pid.cast_unsigned(),
        signal: sig.get(),
        wdir: rank.base.wdir.as_deref().map(<[u8]>::to_vec),
        exe: rank.base.argv.iter().next().unwrap_or_default().to_vec(),
        started: ended.saturating_sub(ran),
        ended,
    }
}
