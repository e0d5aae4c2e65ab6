//! A descriptor that is shared with the shell and may block: a permanent thread of its own writes to it.
//!
//! Bytes that the kernel takes without waiting are written at once, without the thread. Pipes, sockets and /dev/null support that
//! (`RWF_NOWAIT`), files and terminals do not. The thread starts with the first byte that is left for it. Waiting bytes are bounded by
//! the credit that was granted for them, and those of the event log by the records that are pushed (`log`).
//!
//! If the kernel refuses the thread (a limit on processes, a filter of system calls), the machine thread writes. Every [`RETRY`], it writes
//! as much as the descriptor takes without blocking, and tries again to start the thread.

use super::ledger::{Ledger, Tally};
use bytes::{Buf as _, Bytes};
use rlaunch_base::id::NodeId;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::stream::turn::Pace;
use rlaunch_sys::fd::Kind;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Pieces per writev(2): IOV_MAX is 1024.
const PIECES: usize = 512;
/// Bytes that are collected before they are written in the middle of a round: the thread shall not sleep meanwhile.
const COLLECT: usize = 128 << 10;
/// Pause after which the machine thread writes again, and tries to start the writer thread, while there is none.
const RETRY: Span = Span::from_millis(10);
/// Bytes that a writable pipe takes without blocking (PIPE_BUF).
const PIPE_TAKES: usize = 4096;
/// Bytes that a writable terminal takes without blocking.
const TERMINAL_TAKES: usize = 256;

/// The destination: one of 0-2, which we never own, or a file of ours.
pub(super) enum Target {
    Shared(i32),
    Own(OwnedFd),
}

impl From<OwnedFd> for Target {
    fn from(fd: OwnedFd) -> Self {
        Self::Own(fd)
    }
}

impl Target {
    pub(super) fn raw(&self) -> i32 {
        match self {
            Self::Shared(fd) => *fd,
            Self::Own(fd) => fd.as_raw_fd(),
        }
    }
}

/// The machine thread's end.
pub(super) struct Sink {
    name: &'static str,
    target: Arc<Target>,
    /// Pushed and not handed on yet.
    collected: Batch,
    /// The kernel may be asked to write without waiting.
    direct: bool,
    started: bool,
    /// Set if the thread cannot be started: the time of the next attempt to write the collected bytes.
    retry_at: Option<Mono>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    ledger: Ledger,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Piece>,
    /// The thread is writing what it has taken out of the queue.
    busy: bool,
    /// Whether the end of the last write has to be reported.
    is_end_awaited: bool,
    /// errno of the write that failed; everything is dropped since then.
    failed: Option<i32>,
    /// Bytes of ranks that were dropped.
    lost: u64,
    /// Bytes of ranks that the thread has taken and not written yet.
    in_hand: u64,
    /// Their costs, as far as they were not counted as done.
    in_hand_cost: Tally,
    /// Whether output of ranks is dropped.
    abandoned: bool,
    /// Also while abandoned, our own words are taken.
    resumed: bool,
    /// Something was written since `pace` was asked last.
    moved: bool,
    /// Bytes in the queue and in the thread's hand.
    waiting: usize,
}

/// Bytes, whose they are, and what they took from the node's window: 0 for our own words.
struct Piece {
    bytes: Bytes,
    node: NodeId,
    cost: u64,
}

impl Piece {
    fn of_ranks(&self) -> u64 {
        if self.cost > 0 { len(self.bytes.len()) } else { 0 }
    }
}

impl Sink {
    pub(super) fn new(name: &'static str, target: impl Into<Target>, ledger: Ledger) -> Self {
        let shared = Shared { state: Mutex::new(State::default()), work: Condvar::new(), ledger };
        Self {
            name,
            target: Arc::new(target.into()),
            collected: Batch::default(),
            direct: true,
            started: false,
            retry_at: None,
            shared: Arc::new(shared),
        }
    }

    /// Takes words of our own, to be written by the next `flush` at the latest.
    pub(super) fn say(&mut self, bytes: Bytes) {
        self.push(bytes, NodeId::new(0), 0);
    }

    /// The same with what a rank of this node has written. `cost` is what it took from the node's window.
    pub(super) fn push(&mut self, bytes: Bytes, node: NodeId, cost: u64) {
        self.collected.push(Piece { bytes, node, cost });
        if self.collected.bytes >= COLLECT {
            self.flush();
        }
    }

    /// Writes what was pushed, or hands it to the thread.
    pub(super) fn flush(&mut self) {
        if self.collected.pieces.is_empty() {
            self.retry_at = None;
            return;
        }
        let mut state = self.shared.lock();
        if state.failed.is_some() || state.abandoned {
            let takes = |piece: &Piece| state.failed.is_none() && state.resumed && piece.cost == 0;
            let (kept, dropped) = self.collected.take().into_iter().partition::<Vec<_>, _>(takes);
            dropped.iter().for_each(|piece| state.drop_piece(piece, &self.shared.ledger));
            kept.into_iter().for_each(|piece| self.collected.push(piece));
        }
        let first = state.is_idle();
        drop(state);
        let moved = first && self.direct && self.write_now();
        if self.collected.pieces.is_empty() {
            self.retry_at = None;
            return;
        }
        self.shared.lock().moved |= moved;
        if self.started {
            self.hand_over();
        } else {
            self.start_or_write();
        }
    }

    /// Gives the collected bytes to the thread.
    fn hand_over(&mut self) {
        let bytes = self.collected.bytes;
        let rest = self.collected.take();
        let mut state = self.shared.lock();
        state.waiting += bytes;
        state.queue.extend(rest);
        drop(state);
        self.shared.work.notify_one();
    }

    /// Starts the thread for the collected bytes, or writes without it.
    fn start_or_write(&mut self) {
        if self.retry_at.is_some_and(|at| at > super::now()) {
            return;
        }
        let (shared, target) = (Arc::clone(&self.shared), Arc::clone(&self.target));
        match rlaunch_sys::thread::permanent(self.name, move || write_all(&shared, &target)) {
            Ok(()) => {
                (self.started, self.retry_at) = (true, None);
                self.hand_over();
            }
            Err(error) => {
                tracing::debug!(%error, "the thread '{}' cannot be started", self.name);
                self.write_ready();
                self.retry_at = (!self.collected.pieces.is_empty()).then(|| super::now() + RETRY);
            }
        }
    }

    /// Writes in the machine thread, which must not block: no more than the descriptor is known to take.
    fn write_ready(&mut self) {
        let raw = self.target.raw();
        let takes = match rlaunch_sys::fd::kind(raw) {
            Ok(Kind::Terminal) => TERMINAL_TAKES,
            Ok(Kind::Stream) => PIPE_TAKES,
            Ok(Kind::File | Kind::Null) | Err(_) => usize::MAX,
        };
        while let Some(piece) = self.collected.pieces.front() {
            if !rlaunch_sys::fd::writable_now(raw) {
                return;
            }
            let bytes = piece.bytes.get(..takes).unwrap_or(&piece.bytes);
            match rlaunch_sys::fd::write(raw, bytes) {
                Ok(n) => {
                    self.shared.lock().moved = true;
                    let ledger = &self.shared.ledger;
                    self.collected.advance(n, |node, cost| {
                        let _looked_at_anyway = ledger.add_silently(node, cost);
                    });
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return,
                    _ => return self.fail(error.raw_os_error().unwrap_or(0)),
                },
            }
        }
    }

    /// Drops the collected bytes, and all that follow.
    fn fail(&mut self, errno: i32) {
        let dropped = self.collected.take();
        let mut state = self.shared.lock();
        dropped.iter().for_each(|piece| state.drop_piece(piece, &self.shared.ledger));
        drop(state);
        self.shared.fail(errno);
    }

    /// Time at which to call [`Self::flush`] again although nothing was pushed.
    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.retry_at
    }

    /// Writes what the kernel takes without waiting; returns whether that was anything. The thread meets an error again, and reports it.
    fn write_now(&mut self) -> bool {
        let mut moved = false;
        while !self.collected.pieces.is_empty() {
            match rlaunch_sys::fd::writev_now(self.target.raw(), &self.collected.slices()) {
                Ok(n) => {
                    moved = true;
                    let ledger = &self.shared.ledger;
                    self.collected.advance(n, |node, cost| {
                        let _looked_at_anyway = ledger.add_silently(node, cost);
                    });
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => break,
                    _ => {
                        self.direct = false;
                        break;
                    }
                },
            }
        }
        moved
    }

    /// errno, once it has failed.
    pub(super) fn failed(&self) -> Option<i32> {
        self.shared.lock().failed
    }

    /// Whether nothing is waiting or being written. If something is, the bell rings when that has changed.
    pub(super) fn is_idle(&self) -> bool {
        let mut state = self.shared.lock();
        let idle = state.is_idle();
        state.is_end_awaited = !idle;
        idle && self.collected.pieces.is_empty()
    }

    /// Bytes that were pushed and are not written yet.
    pub(super) fn waiting(&self) -> usize {
        self.shared.lock().waiting + self.collected.bytes
    }

    /// State for streams that wait for their turn: a sink that drops everything delays none. If the sink is not idle, the bell rings when
    /// it is.
    pub(super) fn pace(&self) -> Pace {
        if self.is_idle() {
            return Pace::Idle;
        }
        let mut state = self.shared.lock();
        match std::mem::take(&mut state.moved) {
            _ if state.abandoned || state.failed.is_some() => Pace::Idle,
            true => Pace::Writing,
            false => Pace::Stuck,
        }
    }

    /// Bytes of ranks that were not written and will not be.
    pub(super) fn lost(&self) -> u64 {
        let state = self.shared.lock();
        state.lost + if state.abandoned { state.in_hand } else { 0 }
    }

    /// Drops what waits, and what comes. The bytes that the thread is writing cannot be taken from it, but must not be waited for either.
    /// Their cost may be the whole window, without which the node cannot even send that it is done.
    pub(super) fn abandon(&mut self) {
        let mut state = self.shared.lock();
        state.waiting += self.collected.bytes;
        state.queue.extend(self.collected.take());
        state.abandoned = true;
        state.count_in_hand(&self.shared.ledger);
        state.drop_queue(&self.shared.ledger);
    }

    /// Takes words of our own again after `abandon`.
    pub(super) fn resume(&mut self) {
        self.flush();
        self.shared.lock().resumed = true;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, errno: i32) {
        let mut state = self.lock();
        state.failed = Some(errno);
        state.lost += std::mem::take(&mut state.in_hand);
        state.count_in_hand(&self.ledger);
        state.drop_queue(&self.ledger);
        state.waiting = 0;
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.busy
    }

    fn drop_piece(&mut self, piece: &Piece, ledger: &Ledger) {
        ledger.add(piece.node, piece.cost);
        self.lost += piece.of_ranks();
    }

    /// Counts the bytes that are being written as done.
    fn count_in_hand(&mut self, ledger: &Ledger) {
        self.in_hand_cost.iter().for_each(|(node, cost)| ledger.add(node, cost));
        self.in_hand_cost.clear();
    }

    fn drop_queue(&mut self, ledger: &Ledger) {
        for piece in std::mem::take(&mut self.queue) {
            self.waiting = self.waiting.saturating_sub(piece.bytes.len());
            self.drop_piece(&piece, ledger);
        }
    }
}

/// Pieces that are written together.
#[derive(Default)]
struct Batch {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, piece: Piece) {
        self.bytes += piece.bytes.len();
        self.pieces.push_back(piece);
    }

    fn take(&mut self) -> VecDeque<Piece> {
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        self.pieces.iter().take(PIECES).map(|piece| IoSlice::new(&piece.bytes)).collect()
    }

    /// Takes `n` written bytes from the front. Calls `complete` with the cost of each complete piece, and returns how many bytes were of
    /// ranks.
    fn advance(&mut self, mut n: usize, mut complete: impl FnMut(NodeId, u64)) -> u64 {
        let mut of_ranks = 0;
        self.bytes = self.bytes.saturating_sub(n);
        while let Some(piece) = self.pieces.front_mut() {
            if n < piece.bytes.len() {
                of_ranks += if piece.cost > 0 { len(n) } else { 0 };
                piece.bytes.advance(n);
                break;
            }
            n -= piece.bytes.len();
            of_ranks += piece.of_ranks();
            complete(piece.node, piece.cost);
            self.pieces.pop_front();
        }
        of_ranks
    }
}

/// The thread.
fn write_all(shared: &Shared, target: &Target) {
    let mut batch = Batch::default();
    loop {
        let mut state = shared.lock();
        while state.queue.is_empty() {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let n = state.queue.len().min(PIECES);
        state.queue.drain(..n).for_each(|piece| batch.push(piece));
        state.busy = true;
        state.in_hand = batch.pieces.iter().map(Piece::of_ranks).sum();
        state.in_hand_cost.clear();
        batch.pieces.iter().for_each(|piece| state.in_hand_cost.add(piece.node, piece.cost));
        drop(state);
        write_batch(shared, target, &mut batch);
        let mut state = shared.lock();
        state.busy = false;
        state.in_hand = 0;
        let is_end_due = state.queue.is_empty() && std::mem::take(&mut state.is_end_awaited);
        drop(state);
        if is_end_due {
            shared.ledger.bell().ring();
        }
    }
}

fn write_batch(shared: &Shared, target: &Target, batch: &mut Batch) {
    while !batch.pieces.is_empty() {
        match rlaunch_sys::fd::writev(target.raw(), &batch.slices()) {
            Ok(n) => {
                let mut done = Tally::default();
                let of_ranks = batch.advance(n, |node, cost| done.add(node, cost));
                let mut state = shared.lock();
                state.moved = true;
                state.in_hand = state.in_hand.saturating_sub(of_ranks);
                state.waiting = state.waiting.saturating_sub(n);
                // Unless `abandon` counted them before.
                let costs: Vec<_> =
                    done.iter().map(|(node, cost)| (node, state.in_hand_cost.spend(node, cost))).collect();
                drop(state);
                costs.into_iter().for_each(|(node, cost)| shared.ledger.add(node, cost));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                // Another process that shares the descriptor has made it non-blocking.
                io::ErrorKind::WouldBlock => rlaunch_sys::fd::wait_writable(target.raw()),
                _ => {
                    batch.take();
                    shared.fail(error.raw_os_error().unwrap_or(0));
                    shared.ledger.bell().ring();
                }
            },
        }
    }
}

fn len(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}
