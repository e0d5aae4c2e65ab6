//! Everything whose readiness is an event, in one set: ends of ranks, the spawn thread's bell, signals, the guardian, init.

use super::{Edges, check, convert, logs, rank_table, sweep};
use crate::clock::now;
use crate::edges::live_set::LiveSet;
use crate::edges::part::{Base, PartName};
use rlaunch_base::id::ProcId;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_core::node::{NodeEvent, SignalledPart};
use rlaunch_protocol::wire::to_root::Usage;
use rlaunch_sys::ns::Init;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::signals::{self, SignalFd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::Context;

/// Tokens below this are process numbers.
const OURS: u64 = 1 << 32;
/// Tokens from this on are parts.
const PARTS: u64 = 1 << 33;

/// A descriptor of the set, besides those of ranks and parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The spawn thread's bell.
    Spawn,
    /// Signals for the agent.
    Signals,
    /// The end of the guardian.
    Guardian,
    /// Signals for the guardian.
    GuardianSignals,
    /// Init hangs up.
    InitGone,
    /// Init has ended.
    InitEnded,
    /// SIGCHLD.
    Children,
    /// The bell of the `files` thread.
    Files,
    /// The bell of the `file` thread, which writes the output of ranks.
    Logs,
    /// The bell of the `proc` thread.
    ProcSearches,
    /// The bell of the `sockets` thread.
    SocketSearches,
}

impl Source {
    const ALL: [Self; 11] = [
        Self::Spawn,
        Self::Signals,
        Self::Guardian,
        Self::GuardianSignals,
        Self::InitGone,
        Self::InitEnded,
        Self::Children,
        Self::Files,
        Self::Logs,
        Self::ProcSearches,
        Self::SocketSearches,
    ];

    const fn token(self) -> u64 {
        OURS + self as u64
    }
}

/// Rounds before other edges have their turn.
const ROUNDS: usize = 16;
/// SIGTERM
const TERM: u8 = 15;
/// Signals that are taken at once: more than there are.
const MOST_SIGNALS: usize = 64;

pub(super) struct Watch {
    pub(super) set: LiveSet,
    signals: SignalFd,
    /// SIGCHLD, where orphans of the ranks become ours.
    children: Option<SignalFd>,
    guardian: OwnedFd,
    pub(super) init: Option<Init>,
    /// Whether init was killed by us, or its loss was reported: its end is no news.
    pub(super) init_expected: bool,
}

impl Watch {
    pub(super) fn new(origin: &Origin, guardian: OwnedFd) -> io::Result<Self> {
        let set = LiveSet::with_room(64)?;
        let signals = SignalFd::new(&origin.watched())?;
        set.add(&signals, Source::Signals.token())?;
        set.add(&guardian, Source::Guardian.token())?;
        Ok(Self { set, signals, children: None, guardian, init: None, init_expected: false })
    }

    /// Whether the guardian is gone.
    pub(super) fn is_unguarded(&self) -> bool {
        rlaunch_sys::fd::readable_now(&self.guardian)
    }

    pub(super) fn wake_guardian(&self) {
        if let Err(error) = rlaunch_sys::pidfd::signal(&self.guardian, signals::CONT) {
            tracing::debug!(%error, "the guardian is gone");
        }
    }

    /// Watches a descriptor for something to read.
    pub(super) fn add(&self, fd: &impl AsFd, source: Source) -> io::Result<()> {
        self.set.add(fd, source.token())
    }

    /// Watches a descriptor of a part, whose [`super::part::Part::ready`] is called then.
    pub(super) fn add_part(&self, fd: &impl AsFd, part: PartName) -> io::Result<()> {
        self.set.add(fd, PARTS + part as u64)
    }

    /// Listens to SIGCHLD. Not needed in a PID namespace: init reaps orphans there, and ranks are watched one by one.
    pub(super) fn watch_children(&mut self) -> io::Result<()> {
        let children = SignalFd::new(&[signals::CHLD])?;
        self.set.add(&children, Source::Children.token())?;
        self.children = Some(children);
        Ok(())
    }

    /// Init has ended with all that was in its namespace; whether there was one.
    pub(super) fn let_go_of_init(&mut self) -> bool {
        self.init_expected = false;
        let Some(init) = self.init.take() else { return false };
        self.set.remove(&init.hangup);
        self.set.remove(&init.pidfd);
        true
    }

    pub(super) fn watch_init(&mut self, init: Init) -> io::Result<()> {
        self.set.add(&init.hangup, Source::InitGone.token())?;
        self.set.add(&init.pidfd, Source::InitEnded.token())?;
        self.init = Some(init);
        Ok(())
    }
}

/// Takes in what is ready, as much as is fair to the other edges. They share the runtime's budget for one poll.
pub(super) fn poll(edges: &mut Edges, cx: &mut Context<'_>) {
    for _ in 0..ROUNDS {
        let Some(tokens) = edges.base.watch.set.poll(cx) else { return };
        tokens.into_iter().for_each(|token| one(edges, token));
    }
    cx.waker().wake_by_ref();
}

fn one(edges: &mut Edges, token: u64) {
    if token >= PARTS {
        edges.parts.ready(&mut edges.base, token - PARTS);
        // The command of `--preempt-probe` may have ended, which a sweep waits for.
        return sweep::stirred(edges);
    }
    let Some(source) = Source::ALL.into_iter().find(|source| source.token() == token) else {
        return rank_ended(edges, ProcId::new(u32::try_from(token).unwrap_or(u32::MAX)));
    };
    let base = &mut edges.base;
    match source {
        Source::Spawn => {
            if let Some(port) = base.sandbox.spawn_port() {
                port.bell().clear();
            }
            rank_table::drain_outcomes(base);
        }
        Source::Signals => {
            let mut numbers: Vec<u8> = pending(&base.watch.signals).collect();
            // The kernel gives them by number. systemd sends SIGTERM first, and SIGHUP after it.
            numbers.sort_by_key(|number| *number != TERM);
            for number in numbers {
                let event = |sig| NodeEvent::Signal { sig, to: SignalledPart::Agent };
                base.events.extend(Signal::new(number).map(event));
            }
        }
        Source::GuardianSignals => {
            let Some(line) = &base.lease else { return };
            match line.signals() {
                Some(signals) => {
                    base.events.extend(signals.map(|sig| NodeEvent::Signal { sig, to: SignalledPart::Guardian }));
                }
                None => base.watch.set.remove(line),
            }
        }
        Source::Children => {
            base.watch.children.iter().flat_map(pending).for_each(drop);
            sweep::stirred(edges);
        }
        Source::Guardian => {
            base.watch.set.remove(&base.watch.guardian);
            base.events.push_back(NodeEvent::GuardianLost);
        }
        Source::Files => check::receive_checked(base),
        Source::ProcSearches => base.proc_searches.receive_answers(),
        Source::SocketSearches => base.socket_searches.receive_answers(),
        Source::Logs => logs::receive_answers(base),
        Source::InitGone => init_gone(base),
        Source::InitEnded => {
            if let Some(init) = &base.watch.init {
                base.watch.set.remove(&init.pidfd);
                let _ended = rlaunch_sys::pidfd::ended(&init.pidfd, true);
            }
            sweep::stirred(edges);
        }
    }
}

/// Signals that have come, as many as are taken at once. The descriptor stays ready for the rest.
fn pending(signals: &SignalFd) -> impl Iterator<Item = u8> {
    std::iter::from_fn(|| signals.next()).take(MOST_SIGNALS)
}

/// Reports init's end before its consequences are reported.
pub(super) fn look_at_init(base: &mut Base) {
    if base.watch.init.as_ref().is_some_and(|init| rlaunch_sys::fd::readable_now(&init.hangup)) {
        init_gone(base);
    }
}

/// Init hung up.
fn init_gone(base: &mut Base) {
    if let Some(init) = &base.watch.init {
        base.watch.set.remove(&init.hangup);
    }
    if !base.watch.init_expected {
        base.watch.init_expected = true;
        base.events.push_back(NodeEvent::InitLost);
    }
}

fn rank_ended(edges: &mut Edges, proc: ProcId) {
    if edges.base.ranks.get(proc).is_none() {
        // The end came before the outcome of its launch was taken in.
        rank_table::drain_outcomes(&mut edges.base);
    }
    let Some(rank) = edges.base.ranks.get(proc) else {
        std::thread::yield_now();
        return;
    };
    let (status, usage) = match rank.ended() {
        Ok(None) => return,
        Ok(Some(ended)) => (convert::status(&ended), convert::usage(&ended)),
        // The status cannot be known any more. The rank must end for the machine, or it would be waited for for ever.
        Err(_) => (Status::Signaled { sig: Signal::KILL, core: false }, Usage::default()),
    };
    let rank_of = (rank.world(), rank.number());
    edges.base.watch.set.remove(&rank.pidfd);
    let killed = status == Status::Signaled { sig: Signal::KILL, core: false };
    // A killed rank and a hang-up of init together mean that init took it.
    if killed {
        look_at_init(&mut edges.base);
    }
    let status = match &mut edges.parts.mpi {
        Some(mpi) => mpi.status(&mut edges.base, rank_of, status),
        None => status,
    };
    let alive_at = edges.base.watch.set.quiet_at();
    edges.base.events.push_back(NodeEvent::Exited { proc, status, at: now(), alive_at, usage });
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::poll_fn;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::task::Poll;

    /// A socket that has a byte to read.
    fn ready() -> (UnixStream, UnixStream) {
        let (mut far, near) = UnixStream::pair().unwrap();
        far.write_all(b"x").unwrap();
        (far, near)
    }

    #[test]
    fn descriptor_that_stays_ready_leaves_other_edges_their_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (mut edges, _far) = super::super::testing::edges();
            // No rank has this number, so nothing takes the byte.
            let (_flooder, flooded) = ready();
            edges.base.watch.set.add(&flooded, 7).unwrap();
            let (_far, near) = ready();
            let other = rlaunch_net::ready::readable(near).unwrap();
            drop(other.readable().await.unwrap());
            let has_turn = poll_fn(|cx| {
                poll(&mut edges, cx);
                Poll::Ready(other.poll_read_ready(cx).is_ready())
            });
            assert!(has_turn.await, "the flood uses up the budget of the poll");
        });
    }
}
