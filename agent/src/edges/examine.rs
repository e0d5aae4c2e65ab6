//! Why a failed rank failed: its last words, its core file, the kernel's out-of-memory killer, its own error file.

use super::files::{Dump, Found, Look};
use super::pump;
use super::rank_table::Rank;
use crate::clock::now;
use crate::edges::part::{Base, Part};
use crate::edges::watch::Source;
use rlaunch_base::id::ProcId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::node::{Depth, ExamineAction, NodeEvent};
use rlaunch_protocol::wire::to_root::{Facts, HostUse};
use rlaunch_sys::facts::error_file;
use rlaunch_sys::facts::host::{self, Memory};
use std::task::Context;

/// How long the state of the host is not read again.
const FRESH: Span = Span::from_secs(1);

#[derive(Default)]
pub(super) struct Examinations {
    asked: Vec<Asked>,
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

impl Part for Examinations {
    type Action = ExamineAction;

    fn perform(&mut self, base: &mut Base, ExamineAction { proc, status, depth }: ExamineAction) {
        // A process that holds the pipe may continue writing for ever: the last words are the bytes in it by now.
        let up_to = if depth == Depth::Full { pump::written_by_now(base, proc) } else { 0 };
        let Base { ranks, files, watch, sandbox, .. } = base;
        let rank = ranks.get(proc);
        let dump = match status {
            Status::Signaled { sig, core: true } if depth == Depth::Full => rank.map(|rank| dump_of(rank, sig)),
            Status::Signaled { .. } | Status::Exited(_) | Status::Lost => None,
        };
        let near = |rank: &Rank| is_near(sandbox.error_files_are_near(), rank);
        let far = rank.filter(|rank| !near(rank)).map(|rank| rank.error_file.path().to_vec());
        let files_asked = far.is_some() || dump.is_some();
        if files_asked {
            files.ask(Look { proc, error_file: far, dump }, |bell| watch.add(bell, Source::Files));
        }
        self.asked.push(Asked { proc, status, depth, up_to, files: files_asked });
    }

    /// Answers the examinations that need not wait any more: a rank's last words are in its pipe when it dies, so they are
    /// read first, unless the reader of our output holds everything up.
    fn poll(&mut self, base: &mut Base, _cx: &mut Context<'_>) {
        if self.asked.is_empty() {
            return;
        }
        for asked in std::mem::take(&mut self.asked) {
            let unread = asked.depth == Depth::Full && pump::will_be_read(base, asked.proc, asked.up_to);
            let found = match asked.files {
                true if unread => None,
                true => base.files.found(asked.proc),
                false => Some(Found::default()),
            };
            let Some(found) = found.filter(|_| !unread) else {
                self.asked.push(asked);
                continue;
            };
            let facts = facts(base, &mut self.host, &asked, found);
            base.events.push_back(NodeEvent::Examined { proc: asked.proc, facts });
        }
    }
}

fn facts(base: &mut Base, host: &mut Option<(Mono, HostUse)>, asked: &Asked, found: Found) -> Facts {
    let Asked { proc, status, depth, .. } = *asked;
    let near = base.sandbox.error_files_are_near();
    let read = || {
        base.ranks
            .get(proc)
            .filter(|rank| is_near(near, rank))
            .and_then(|rank| error_file::read(&rank.error_file.path()))
    };
    let error_file = found.error_file.or_else(read).map(OsBytes::new);
    if depth == Depth::ErrorFile {
        return Facts { error_file, late: found.late, ..Facts::default() };
    }
    let killed = status == Status::Signaled { sig: Signal::KILL, core: false };
    let oom_limit = if killed { base.memory.killed_since() } else { None };
    let tail = OsBytes::new(base.pump.last_words(&mut base.ranks, proc));
    let host = host_use(host);
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
