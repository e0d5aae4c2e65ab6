//! Everything whose readiness is an event, in one set: ends of ranks, the spawn thread's bell, signals, the guardian, init.

use super::lease::LeaseLine;
use super::{Edges, check, convert, device_thread, logs, mpi, preempt_probe, probe, rank_table, sweep};
use crate::clock::now;
use crate::edges::live_set::LiveSet;
use rlaunch_core::id::ProcId;
use rlaunch_core::node::{NodeEvent, SignalledPart};
use rlaunch_core::signal::Signal;
use rlaunch_core::status::Status;
use rlaunch_core::wire::to_root::Usage;
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::ns::Init;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::signals::{self, SignalFd};
use std::io;
use std::os::fd::OwnedFd;
use std::task::Context;

/// Tokens below this are process numbers.
const OURS: u64 = 1 << 32;
const BELL: u64 = OURS;
const SIGNALS: u64 = OURS + 1;
const GUARDIAN: u64 = OURS + 2;
const INIT_GONE: u64 = OURS + 3;
const INIT_ENDED: u64 = OURS + 4;
const CHILDREN: u64 = OURS + 5;
const FILES: u64 = OURS + 6;
const LOGS: u64 = OURS + 7;
const PROBES: u64 = OURS + 8;
const GUARDIAN_SIGNALS: u64 = OURS + 9;
const DEVICES: u64 = OURS + 10;
const PREEMPT_PROBE: u64 = OURS + 11;
const PROC_SEARCHES: u64 = OURS + 12;

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
        set.add(&signals, SIGNALS)?;
        set.add(&guardian, GUARDIAN)?;
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

    /// Listens to signals that the guardian is sent.
    pub(super) fn watch_guardian_signals(&self, line: &LeaseLine) -> io::Result<()> {
        self.set.add(line, GUARDIAN_SIGNALS)
    }

    pub(super) fn watch_bell(&self, bell: &Doorbell) -> io::Result<()> {
        self.set.add(bell, BELL)
    }

    pub(super) fn watch_files(&self, bell: &Doorbell) -> io::Result<()> {
        self.set.add(bell, FILES)
    }

    pub(super) fn watch_proc_searches(&self, bell: &Doorbell) -> io::Result<()> {
        self.set.add(bell, PROC_SEARCHES)
    }

    pub(super) fn watch_devices(&self, bell: &Doorbell) -> io::Result<()> {
        self.set.add(bell, DEVICES)
    }

    pub(super) fn watch_preempt_probe(&self, bell: &Doorbell) -> io::Result<()> {
        self.set.add(bell, PREEMPT_PROBE)
    }

    pub(super) fn watch_logs(&self, bell: &Doorbell) -> io::Result<()> {
        self.set.add(bell, LOGS)
    }

    pub(super) fn watch_probes(&self, set: &ReadySet) -> io::Result<()> {
        self.set.add(set, PROBES)
    }

    pub(super) fn forget_probes(&self, set: &ReadySet) {
        self.set.remove(set);
    }

    /// Listens to SIGCHLD. Not needed in a PID namespace: init reaps orphans there, and ranks are watched one by one.
    pub(super) fn watch_children(&mut self) -> io::Result<()> {
        let children = SignalFd::new(&[signals::CHLD])?;
        self.set.add(&children, CHILDREN)?;
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
        self.set.add(&init.hangup, INIT_GONE)?;
        self.set.add(&init.pidfd, INIT_ENDED)?;
        self.init = Some(init);
        Ok(())
    }
}

/// Takes in what is ready, as much as is fair to the other edges. They share the runtime's budget for one poll.
pub(super) fn poll(edges: &mut Edges, cx: &mut Context<'_>) {
    for _ in 0..ROUNDS {
        let Some(tokens) = edges.watch.set.poll(cx) else { return };
        tokens.into_iter().for_each(|token| one(edges, token));
    }
    cx.waker().wake_by_ref();
}

fn one(edges: &mut Edges, token: u64) {
    match token {
        BELL => {
            if let Some(port) = edges.sandbox.spawn_port() {
                port.bell().clear();
            }
            rank_table::drain_outcomes(edges);
        }
        SIGNALS => {
            let mut numbers: Vec<u8> = pending(&edges.watch.signals).collect();
            // The kernel gives them by number. systemd sends SIGTERM first, and SIGHUP after it.
            numbers.sort_by_key(|number| *number != TERM);
            for number in numbers {
                let event = |sig| NodeEvent::Signal { sig, to: SignalledPart::Agent };
                edges.events.extend(Signal::new(number).map(event));
            }
        }
        GUARDIAN_SIGNALS => {
            let Some(line) = &edges.lease else { return };
            match line.signals() {
                Some(signals) => {
                    edges.events.extend(signals.map(|sig| NodeEvent::Signal { sig, to: SignalledPart::Guardian }));
                }
                None => edges.watch.set.remove(line),
            }
        }
        CHILDREN => {
            edges.watch.children.iter().flat_map(pending).for_each(drop);
            sweep::stirred(edges);
        }
        GUARDIAN => {
            edges.watch.set.remove(&edges.watch.guardian);
            edges.events.push_back(NodeEvent::GuardianLost);
        }
        FILES => check::settle(edges),
        PROC_SEARCHES => edges.proc_searches.settle(),
        LOGS => logs::settle(edges),
        DEVICES => device_thread::settle(edges),
        PREEMPT_PROBE => preempt_probe::settle(edges),
        PROBES => probe::look(edges),
        INIT_GONE => init_gone(edges),
        INIT_ENDED => {
            if let Some(init) = &edges.watch.init {
                edges.watch.set.remove(&init.pidfd);
                let _ended = rlaunch_sys::pidfd::ended(&init.pidfd, true);
            }
            sweep::stirred(edges);
        }
        proc => rank_ended(edges, ProcId::new(u32::try_from(proc).unwrap_or(u32::MAX))),
    }
}

/// Signals that have come, as many as are taken at once. The descriptor stays ready for the rest.
fn pending(signals: &SignalFd) -> impl Iterator<Item = u8> {
    std::iter::from_fn(|| signals.next()).take(MOST_SIGNALS)
}

/// Reports init's end before its consequences are reported.
pub(super) fn look_at_init(edges: &mut Edges) {
    if edges.watch.init.as_ref().is_some_and(|init| rlaunch_sys::fd::readable_now(&init.hangup)) {
        init_gone(edges);
    }
}

/// Init hung up.
fn init_gone(edges: &mut Edges) {
    if let Some(init) = &edges.watch.init {
        edges.watch.set.remove(&init.hangup);
    }
    if !edges.watch.init_expected {
        edges.watch.init_expected = true;
        edges.events.push_back(NodeEvent::InitLost);
    }
}

fn rank_ended(edges: &mut Edges, proc: ProcId) {
    if edges.ranks.get(proc).is_none() {
        // The end came before the outcome of its launch was taken in.
        rank_table::drain_outcomes(edges);
    }
    let Some(rank) = edges.ranks.get(proc) else {
        std::thread::yield_now();
        return;
    };
    let (status, usage) = match rank.ended() {
        Ok(None) => return,
        Ok(Some(ended)) => (convert::status(&ended), convert::usage(&ended)),
        // Nobody can say any more. It must end for the machine nevertheless, or it would be waited for for ever.
        Err(_) => (Status::Signaled { sig: Signal::KILL, core: false }, Usage::default()),
    };
    let rank_of = (rank.world(), rank.number());
    edges.watch.set.remove(&rank.pidfd);
    let killed = status == Status::Signaled { sig: Signal::KILL, core: false };
    // A killed rank and a hang-up of init together mean that init took it.
    if killed {
        look_at_init(edges);
    }
    let status = mpi::status(edges, rank_of, status);
    let alive_at = edges.watch.set.quiet_at();
    edges.events.push_back(NodeEvent::Exited { proc, status, at: now(), alive_at, usage });
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
            edges.watch.set.add(&flooded, 7).unwrap();
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
