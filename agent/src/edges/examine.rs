//! Why a failed rank failed: its last words, its core file, the kernel's out-of-memory killer, its own error file.

use super::ranks::Rank;
use super::{Edges, pump};
use crate::early::now;
use rlaunch_core::id::ProcId;
use rlaunch_core::node::{Depth, NodeEvent};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::signal::Signal;
use rlaunch_core::status::Status;
use rlaunch_core::time::{Mono, Span};
use rlaunch_core::wire::to_root::Facts;
use rlaunch_sys::facts::core_file::{self, Crash};
use rlaunch_sys::facts::error_file;
use rlaunch_sys::facts::oom::OomWatch;
use std::os::unix::ffi::OsStringExt as _;

/// When the kernel's counters of out-of-memory kills are read for the first time, and the launch's memory is given back:
/// a job of a few milliseconds neither needs it nor shall pay for it.
const SETTLED: Span = Span::from_millis(50);

#[derive(Default)]
pub(super) struct Examinations {
    asked: Vec<(ProcId, Status, Depth)>,
    memory: OomWatch,
    baseline: Baseline,
}

#[derive(Default)]
enum Baseline {
    #[default]
    NotYet,
    At(Mono),
    Taken,
}

impl Examinations {
    pub(super) fn ask(&mut self, proc: ProcId, status: Status, depth: Depth) {
        self.asked.push((proc, status, depth));
    }

    /// A rank runs.
    pub(super) fn watch_memory(&mut self) {
        if let Baseline::NotYet = self.baseline {
            self.baseline = Baseline::At(now() + SETTLED);
        }
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        match self.baseline {
            Baseline::At(at) => Some(at),
            Baseline::NotYet | Baseline::Taken => None,
        }
    }

    /// True once, when the job has settled.
    pub(super) fn poll(&mut self, now: Mono) -> bool {
        let settled = self.deadline().is_some_and(|at| at <= now);
        if settled {
            self.memory.baseline();
            self.baseline = Baseline::Taken;
        }
        settled
    }
}

/// Answers the examinations that need not wait any more: a rank's last words are in its pipe when it dies, so they are
/// read first, unless the reader of our output holds everything up.
pub(super) fn settle(edges: &mut Edges) {
    if edges.examine.asked.is_empty() {
        return;
    }
    let asked = std::mem::take(&mut edges.examine.asked);
    for (proc, status, depth) in asked {
        if depth == Depth::Full && pump::has_unread(edges, proc) {
            edges.examine.asked.push((proc, status, depth));
            continue;
        }
        let facts = facts(edges, proc, status, depth);
        edges.events.push_back(NodeEvent::Examined { proc, facts });
    }
}

fn facts(edges: &mut Edges, proc: ProcId, status: Status, depth: Depth) -> Facts {
    let error_file = edges.ranks.get(proc).and_then(|rank| error_file::read(&rank.error_file.path())).map(OsBytes::new);
    if depth == Depth::ErrorFile {
        return Facts { error_file, ..Facts::default() };
    }
    let killed = status == Status::Signaled { sig: Signal::KILL, core: false };
    let oom_limit = if killed { edges.examine.memory.killed_since() } else { None };
    let core = match status {
        Status::Signaled { sig, core: true } => edges.ranks.get(proc).and_then(|rank| core_of(rank, sig)),
        Status::Signaled { core: false, .. } | Status::Exited(_) | Status::Lost => None,
    };
    let tail = OsBytes::new(edges.pump.last_words(&mut edges.ranks, proc));
    Facts { tail, core: core.map(OsBytes::new), oom_limit, error_file }
}

fn core_of(rank: &Rank, sig: Signal) -> Option<Vec<u8>> {
    let pid = rank.pid.cast_unsigned();
    let cwd = std::env::current_dir().map(|dir| dir.into_os_string().into_vec()).unwrap_or_default();
    let wdir = match &rank.base.wdir {
        Some(dir) if dir.starts_with(b"/") => dir.to_vec(),
        Some(dir) => [&cwd, &b"/"[..], dir].concat(),
        None => cwd,
    };
    let (uid, gid) = rlaunch_sys::facts::host::user();
    let ended = rlaunch_sys::clock::wall();
    let ran = now().since(rank.started).nanos();
    core_file::find(&Crash {
        pid,
        inside: core_file::ns_pid(pid),
        signal: sig.get(),
        wdir: &wdir,
        exe: rank.base.argv.iter().next().unwrap_or_default(),
        uid,
        gid,
        started: ended.saturating_sub(ran),
        ended,
    })
}
