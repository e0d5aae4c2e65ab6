//! A descriptor that is shared with the shell and may block: a permanent thread of its own writes to it.
//!
//! What waits here is bounded by the credit that was granted for it. The thread starts with its first byte.

use bytes::Bytes;
use rlaunch_sys::doorbell::Doorbell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Written between two rings of the bell while there is more to write.
const REPORT_EVERY: u64 = 128 << 10;
/// Pieces per writev(2): IOV_MAX is 1024.
const PIECES: usize = 512;

/// Where it writes to: one of 0-2, which we never own, or a file of ours.
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
    fn raw(&self) -> i32 {
        match self {
            Self::Shared(fd) => *fd,
            Self::Own(fd) => fd.as_raw_fd(),
        }
    }
}

/// The machine thread's end.
pub(super) struct Sink {
    name: &'static str,
    target: Option<Target>,
    shared: Arc<Shared>,
    bell: Doorbell,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Bytes, u64)>,
    /// The thread is writing what it has taken out of the queue.
    busy: bool,
    /// Cost of what was written or dropped and not told yet.
    done: u64,
    /// errno of the write that failed; everything is dropped since then.
    failed: Option<i32>,
    /// Bytes of ranks that were dropped.
    lost: u64,
    /// Bytes of ranks that the thread has taken and not written yet.
    in_hand: u64,
    /// What they cost, as far as it was not told as done.
    in_hand_cost: u64,
    /// What ranks write is dropped.
    abandoned: bool,
    /// Also while abandoned, our own words are taken.
    resumed: bool,
}

/// What has happened since it was asked last.
pub(super) struct Progress {
    /// Cost of what is not waiting any more.
    pub(super) done: u64,
    /// Nothing is waiting or being written.
    pub(super) idle: bool,
    /// errno, once it has failed.
    pub(super) failed: Option<i32>,
}

impl Sink {
    pub(super) fn new(name: &'static str, target: impl Into<Target>, bell: Doorbell) -> Self {
        let shared = Shared { state: Mutex::new(State::default()), work: Condvar::new() };
        Self { name, target: Some(target.into()), shared: Arc::new(shared), bell }
    }

    /// Queues bytes. `cost` is what they took from the node's window; 0 for our own words.
    pub(super) fn push(&mut self, bytes: Bytes, cost: u64) {
        let mut state = self.shared.lock();
        if state.failed.is_some() || (state.abandoned && (cost > 0 || !state.resumed)) {
            state.drop_piece(&bytes, cost);
            return;
        }
        state.queue.push_back((bytes, cost));
        drop(state);
        match self.target.take() {
            Some(target) => self.start(target),
            None => self.shared.work.notify_one(),
        }
    }

    fn start(&self, target: Target) {
        let (shared, bell) = (Arc::clone(&self.shared), self.bell.clone());
        let started = rlaunch_sys::thread::permanent(self.name, move || write_all(&shared, &target, &bell));
        if let Err(error) = started {
            self.shared.lock().fail(error.raw_os_error().unwrap_or(0));
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let mut state = self.shared.lock();
        Progress { done: std::mem::take(&mut state.done), idle: state.is_idle(), failed: state.failed }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.shared.lock().is_idle()
    }

    /// Bytes of ranks that were not written and will not be.
    pub(super) fn lost(&self) -> u64 {
        let state = self.shared.lock();
        state.lost + if state.abandoned { state.in_hand } else { 0 }
    }

    /// Drops what waits, and what comes. What the thread has in hand cannot be taken from it, but nobody may wait for it
    /// either: its cost may be the whole window, without which the node cannot even say that it is done.
    pub(super) fn abandon(&self) {
        let mut state = self.shared.lock();
        state.abandoned = true;
        state.done += std::mem::take(&mut state.in_hand_cost);
        state.drop_queue();
    }

    /// Takes words of our own again after `abandon`.
    pub(super) fn resume(&self) {
        self.shared.lock().resumed = true;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.busy
    }

    /// So much of what the thread had in hand is done, unless that was told before.
    fn put_down(&mut self, cost: u64) {
        let cost = cost.min(self.in_hand_cost);
        self.in_hand_cost -= cost;
        self.done += cost;
    }

    fn drop_piece(&mut self, bytes: &Bytes, cost: u64) {
        self.done += cost;
        if cost > 0 {
            self.lost += u64::try_from(bytes.len()).unwrap_or(0);
        }
    }

    fn drop_queue(&mut self) {
        for (bytes, cost) in std::mem::take(&mut self.queue) {
            self.drop_piece(&bytes, cost);
        }
    }

    fn fail(&mut self, errno: i32) {
        self.failed = Some(errno);
        self.lost += std::mem::take(&mut self.in_hand);
        self.drop_queue();
    }
}

/// The thread.
fn write_all(shared: &Shared, target: &Target, bell: &Doorbell) {
    let mut batch = Vec::new();
    loop {
        let mut state = shared.lock();
        while state.queue.is_empty() {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let n = state.queue.len().min(PIECES);
        batch.extend(state.queue.drain(..n));
        state.busy = true;
        state.in_hand = batch.iter().filter(|(_, cost)| *cost > 0).map(|(b, _)| len(b)).sum();
        state.in_hand_cost = batch.iter().map(|(_, cost)| cost).sum();
        drop(state);
        write_batch(shared, target, bell, &mut batch);
        let mut state = shared.lock();
        state.busy = false;
        state.in_hand = 0;
        let more = !state.queue.is_empty();
        drop(state);
        if !more {
            bell.ring();
        }
    }
}

fn write_batch(shared: &Shared, target: &Target, bell: &Doorbell, batch: &mut Vec<(Bytes, u64)>) {
    let (mut at, mut offset, mut unrung) = (0, 0usize, 0);
    while at < batch.len() {
        let slices: Vec<IoSlice<'_>> = (batch.iter().skip(at).enumerate())
            .map(|(n, (bytes, _))| IoSlice::new(bytes.get(if n == 0 { offset } else { 0 }..).unwrap_or_default()))
            .collect();
        match rlaunch_sys::fd::writev(target.raw(), &slices) {
            Ok(mut n) => {
                let (mut done, mut bytes_done) = (0, 0);
                while let Some((bytes, cost)) = batch.get(at) {
                    let rest = bytes.len() - offset;
                    if n < rest {
                        offset += n;
                        break;
                    }
                    (n, at, offset) = (n - rest, at + 1, 0);
                    done += cost;
                    bytes_done += if *cost > 0 { len(bytes) } else { 0 };
                }
                let mut state = shared.lock();
                state.put_down(done);
                state.in_hand = state.in_hand.saturating_sub(bytes_done);
                drop(state);
                unrung += done;
                if unrung >= REPORT_EVERY {
                    unrung = 0;
                    bell.ring();
                }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                // Somebody we share it with has made it non-blocking.
                io::ErrorKind::WouldBlock => rlaunch_sys::fd::wait_writable(target.raw()),
                _ => {
                    let mut state = shared.lock();
                    state.put_down(u64::MAX);
                    state.fail(error.raw_os_error().unwrap_or(0));
                    break;
                }
            },
        }
    }
    batch.clear();
}

fn len(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(0)
}
