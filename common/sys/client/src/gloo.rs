//! Waits of gloo, PyTorch's transport between CPUs, that gloo itself would forget.
//!
//! When a connection ends, gloo wakes threads that wait for a transfer which has not begun. It does not wake threads that wait for a
//! message which has come or gone in part, or threads whose kernel reported the end before gloo did. Those wait for their own time-out,
//! half an hour by default. Its buffers can abort waits (`abortWaitRecv`, `abortWaitSend`), but no code that could call this knows the
//! buffers. So the tables of its classes get functions of ours: they note each waiter, and do their old work. When a round ends, a thread
//! that still waits a moment after the connections were shut down is aborted.
//!
//! The notes are atomics and no lock, so that a forked child can wait as well. C++'s exceptions pass through these functions.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use crate::{Abort, GLOO, Gloo};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Time that ending connections need to have their waiters out by themselves.
const FIRST: Duration = Duration::from_millis(5);
/// The pause from then on: a thread that is out of one wait may be in the next.
const AGAIN: Duration = Duration::from_millis(10);

/// Number of tries after the end of a session.
const LAST: u32 = 200;

/// Places in tables of gloo's classes, and functions to call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_gloo {
    pub(crate) wait_recv: *mut *mut c_void,
    pub(crate) wait_send: *mut *mut c_void,
    pub(crate) connect: *mut *mut c_void,
    pub(crate) abort_recv: Option<Abort>,
    pub(crate) abort_send: Option<Abort>,
    pub(crate) close: Option<Abort>,
}

/// Whether waits are ended. A process has one; tests have their own.
struct Turns {
    /// A session has asked for it.
    armed: AtomicBool,
    /// Goes up whenever it is to begin or to be over; odd: waits are ended.
    turn: AtomicU32,
}

static PROCESS: Turns = Turns::new();

/// The kind of a wait.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Recv = 0,
    Send = 1,
    Connect = 2,
}

impl Kind {
    pub(crate) const fn of(number: usize) -> Self {
        match number {
            0 => Self::Recv,
            1 => Self::Send,
            _ => Self::Connect,
        }
    }
}

/// A waiter: the address of its object, with bits below. gloo's objects are aligned.
struct Slot {
    who: AtomicUsize,
    kind: AtomicU8,
}

/// The object is being notified: it must not go away.
const HELD: usize = 1;
/// The object was notified.
const ABORTED: usize = 2;

/// More threads than this do not wait for gloo; who finds none free waits unnoted.
static SLOTS: [Slot; 256] = [const { Slot { who: AtomicUsize::new(0), kind: AtomicU8::new(0) } }; 256];

/// Notes that this thread waits, while it lives.
struct Noted(Option<&'static Slot>);

impl Noted {
    fn new(who: usize, kind: Kind) -> Self {
        let free = |slot: &&Slot| slot.who.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = SLOTS.iter().find(free);
        if let Some(slot) = slot {
            slot.kind.store(kind as u8, Ordering::Relaxed);
            slot.who.store(who, Ordering::Release);
        }
        Self(slot)
    }

    fn was_aborted(&self) -> bool {
        self.0.is_some_and(|slot| slot.who.load(Ordering::Acquire) & (ABORTED | HELD) != 0)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let Some(slot) = self.0 else { return };
        let mut now = slot.who.load(Ordering::Acquire);
        loop {
            if now & HELD != 0 {
                thread::yield_now();
                now = slot.who.load(Ordering::Acquire);
                continue;
            }
            match slot.who.compare_exchange_weak(now, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}

/// A slot whose waiter must not go away.
pub(crate) struct Held<'a> {
    slot: &'a Slot,
    who: usize,
}

impl<'a> Held<'a> {
    fn new(slot: &'a Slot) -> Option<Self> {
        let who = slot.who.load(Ordering::Acquire);
        (who != 0 && who & (HELD | ABORTED) == 0)
            .then(|| slot.who.compare_exchange(who, who | HELD, Ordering::AcqRel, Ordering::Relaxed))?
            .ok()
            .map(|who| Self { slot, who })
    }

    /// The address of what it waits at.
    pub(crate) const fn who(&self) -> usize {
        self.who
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.slot.who.store(self.who | ABORTED, Ordering::Release);
    }
}

/// Ends all waits, each once.
fn abort_all(gloo: &Gloo) {
    for held in SLOTS.iter().filter_map(Held::new) {
        gloo.abort(Kind::of(usize::from(held.slot.kind.load(Ordering::Relaxed))), &held);
    }
}

/// Waits as gloo does, and noted.
pub(crate) fn wait(kind: Kind, who: usize, timeout: i64, original: impl Fn(i64) -> bool) -> bool {
    let noted = Noted::new(who, kind);
    let done = original(timeout);
    if done || !noted.was_aborted() {
        return done;
    }
    // Its callers take false for what they have asked for. A time-out they understand: they throw, and close what they have.
    original(0)
}

/// The same for who connects.
pub(crate) fn connect(who: usize, original: impl FnOnce()) {
    let _noted = Noted::new(who, Kind::Connect);
    original();
}

impl Turns {
    const fn new() -> Self {
        Self { armed: AtomicBool::new(false), turn: AtomicU32::new(0) }
    }

    fn end(&'static self) {
        let turn = self.turn.load(Ordering::Acquire);
        let ours = turn.wrapping_add(1);
        if !self.armed.load(Ordering::Acquire)
            || turn & 1 != 0
            || self.turn.compare_exchange(turn, ours, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        let chase = move || {
            let (mut pause, mut more) = (FIRST, LAST);
            while more > 0 {
                thread::sleep(pause);
                pause = AGAIN;
                match GLOO.get() {
                    Some(gloo) if self.turn.load(Ordering::Acquire) == ours => abort_all(gloo),
                    _ => return,
                }
                if !self.armed.load(Ordering::Acquire) {
                    more -= 1;
                }
            }
        };
        // Without a thread it is gloo's time-out, or the hard limit, that gets them out.
        let _none = thread::Builder::new().name("rlaunch-gloo".into()).spawn(chase);
    }

    fn over(&self) {
        let turn = self.turn.load(Ordering::Acquire);
        if turn & 1 != 0 {
            let next = turn.wrapping_add(1);
            let _another_did = self.turn.compare_exchange(turn, next, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn arm(&self, is_armed: bool) {
        self.armed.store(is_armed, Ordering::Release);
    }
}

/// From now on waits are ended with the rounds of this process.
pub fn arm() {
    PROCESS.arm(true);
}

/// A round has ended: who waits is to come out, until it is [`over`].
pub fn end() {
    PROCESS.end();
}

/// The next round begins. Not before: objects of the round before may be freed after its end, and its threads are waited for.
pub fn over() {
    PROCESS.over();
}

/// The session that has asked for it has ended; threads that it has left in a wait may still come out.
pub fn disarm() {
    PROCESS.arm(false);
}
