//! Waits of gloo, PyTorch's transport between CPUs, that gloo itself would forget.
//!
//! When a connection ends, gloo wakes who waits for what is still to begin on it: not who waits for a message that has come or gone in part,
//! and not who was told by the kernel, before gloo itself, that the other end is gone. Those wait for their own time-out, half an hour by
//! default. Its buffers can be told to wait no more (`abortWaitRecv`, `abortWaitSend`), but who could tell them does not know them. So the
//! tables of its classes are given functions of ours: they note who waits, and do what they did. When a round ends, who still waits a moment
//! after the connections were shut down is told.
//!
//! The notes are atomics and no lock, so that a forked child can wait as well. C++'s exceptions pass through these functions.

#[cfg(test)]
mod tests;

use super::error::{Failure, SYSTEM};
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What connections that end need to have their waiters out by themselves.
const FIRST: Duration = Duration::from_millis(5);
/// From then on: whoever is out of one wait may be in the next.
const AGAIN: Duration = Duration::from_millis(10);

/// So many times behind the end of a session.
const LAST: u32 = 200;

/// `bool UnboundBuffer::waitRecv(int *rank, std::chrono::milliseconds timeout)`, and `waitSend`; false: it was told to wait no more.
type Wait = unsafe extern "C-unwind" fn(this: *mut c_void, rank: *mut c_int, timeout: i64) -> bool;
/// `void Pair::connect(const std::vector<char> &)`
type Connect = unsafe extern "C-unwind" fn(this: *mut c_void, address: *const c_void);
/// `void UnboundBuffer::abortWaitRecv()`, `abortWaitSend`, `void Pair::close()`
type Tell = unsafe extern "C-unwind" fn(this: *mut c_void);

/// Places in tables of gloo's classes, and functions to call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_gloo {
    pub(super) wait_recv: *mut *mut c_void,
    pub(super) wait_send: *mut *mut c_void,
    pub(super) connect: *mut *mut c_void,
    pub(super) abort_recv: Option<Tell>,
    pub(super) abort_send: Option<Tell>,
    pub(super) close: Option<Tell>,
}

/// What gloo has.
struct Gloo {
    wait_recv: Wait,
    wait_send: Wait,
    connect: Connect,
    tell: [Tell; 3],
}

static GLOO: OnceLock<Gloo> = OnceLock::new();
/// Whether waits are ended. A process has one; tests have their own.
struct Turns {
    /// A session has asked for it.
    armed: AtomicBool,
    /// Goes up whenever it is to begin or to be over; odd: waits are ended.
    turn: AtomicU32,
}

static PROCESS: Turns = Turns::new();

/// By what somebody is told to wait no more: an index of [`Gloo::tell`].
#[derive(Clone, Copy)]
enum Kind {
    Recv = 0,
    Send = 1,
    Connect = 2,
}

/// One that waits: the address of what it waits at, with bits below. gloo's objects are aligned.
struct Slot {
    who: AtomicUsize,
    kind: AtomicU8,
}

/// It is being told: it must not go away.
const HELD: usize = 1;
/// It was told.
const TOLD: usize = 2;

/// More threads than this do not wait for gloo; who finds none free waits unnoted.
static SLOTS: [Slot; 256] = [const { Slot { who: AtomicUsize::new(0), kind: AtomicU8::new(0) } }; 256];

/// Notes that this thread waits, while it lives.
struct Noted(Option<&'static Slot>);

impl Noted {
    fn new(this: *mut c_void, kind: Kind) -> Self {
        let free = |slot: &&Slot| slot.who.compare_exchange(0, HELD, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = SLOTS.iter().find(free);
        if let Some(slot) = slot {
            slot.kind.store(kind as u8, Ordering::Relaxed);
            slot.who.store(this.addr(), Ordering::Release);
        }
        Self(slot)
    }

    fn was_told(&self) -> bool {
        self.0.is_some_and(|slot| slot.who.load(Ordering::Acquire) & (TOLD | HELD) != 0)
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

/// Tells all that wait, each once.
fn tell_all(gloo: &Gloo) {
    for slot in &SLOTS {
        let who = slot.who.load(Ordering::Acquire);
        if who == 0
            || who & (HELD | TOLD) != 0
            || slot.who.compare_exchange(who, who | HELD, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            continue;
        }
        if let Some(tell) = gloo.tell.get(usize::from(slot.kind.load(Ordering::Relaxed))) {
            // SAFETY: gloo's own function, for an object that somebody waits at, and who does so stays until it is not held any more.
            unsafe { tell(std::ptr::with_exposed_provenance_mut(who)) };
        }
        slot.who.store(who | TOLD, Ordering::Release);
    }
}

fn wait(kind: Kind, original: Wait, this: *mut c_void, rank: *mut c_int, timeout: i64) -> bool {
    this.expose_provenance();
    let noted = Noted::new(this, kind);
    // SAFETY: what was called, with what it was given.
    let done = unsafe { original(this, rank, timeout) };
    if done || !noted.was_told() {
        return done;
    }
    // Its callers take false for what they have asked for. A time-out they understand: they throw, and close what they have.
    // SAFETY: the same.
    unsafe { original(this, rank, 0) }
}

unsafe extern "C-unwind" fn wait_recv(this: *mut c_void, rank: *mut c_int, timeout: i64) -> bool {
    GLOO.get().is_some_and(|gloo| wait(Kind::Recv, gloo.wait_recv, this, rank, timeout))
}

unsafe extern "C-unwind" fn wait_send(this: *mut c_void, rank: *mut c_int, timeout: i64) -> bool {
    GLOO.get().is_some_and(|gloo| wait(Kind::Send, gloo.wait_send, this, rank, timeout))
}

unsafe extern "C-unwind" fn connect(this: *mut c_void, address: *const c_void) {
    let Some(gloo) = GLOO.get() else { return };
    this.expose_provenance();
    let _noted = Noted::new(this, Kind::Connect);
    // SAFETY: what was called, with what it was given.
    unsafe { (gloo.connect)(this, address) };
}

/// From now on waits are noted, and can be ended.
///
/// # Safety
/// The places are in tables of gloo's classes for TCP, as built for this platform, and hold what the header says; so are the functions.
unsafe fn hold(given: &rl_gloo) -> Result<(), Failure> {
    let places = [given.wait_recv, given.wait_send, given.connect];
    let (Some(abort_recv), Some(abort_send), Some(close)) = (given.abort_recv, given.abort_send, given.close) else {
        return Err(Failure::argument("a function of gloo's is NULL"));
    };
    if places.iter().any(|place| place.is_null() || !place.is_aligned()) {
        return Err(Failure::argument("a place in gloo's tables is NULL, or between two"));
    }
    if GLOO.get().is_none() {
        // SAFETY: as the caller says, they can be read.
        let was = places.map(|place| unsafe { place.read() });
        if was.iter().any(|was| was.is_null()) {
            return Err(Failure::argument("a place in gloo's tables is empty"));
        }
        let gloo = Gloo {
            // SAFETY: as the caller says, that is what is there.
            wait_recv: unsafe { std::mem::transmute::<*mut c_void, Wait>(was[0]) },
            // SAFETY: the same.
            wait_send: unsafe { std::mem::transmute::<*mut c_void, Wait>(was[1]) },
            // SAFETY: the same.
            connect: unsafe { std::mem::transmute::<*mut c_void, Connect>(was[2]) },
            tell: [abort_recv, abort_send, close],
        };
        if GLOO.set(gloo).is_ok() {
            let ours =
                [wait_recv as Wait as *mut c_void, wait_send as Wait as *mut c_void, connect as Connect as *mut c_void];
            for (place, ours) in places.into_iter().zip(ours) {
                // SAFETY: as the caller says; ours takes and does what was there.
                unsafe { replace(place, ours) }?;
            }
        }
    }
    Ok(())
}

/// Gives a place of a table, which may be in memory that cannot be written, something else.
///
/// # Safety
/// The place is in a table of functions, and the new one takes and does what the old one does.
unsafe fn replace(place: *mut *mut c_void, new: *mut c_void) -> Result<(), Failure> {
    // SAFETY: no memory is touched.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).ok().filter(|page| page.is_power_of_two()).unwrap_or(4096);
    let start = place.map_addr(|addr| addr & !(page - 1)).cast::<c_void>();
    // It stays writable: other threads may need the rest of the page to be, and what it was before cannot be asked.
    // SAFETY: the page is there, as one place of it is, and is read as before.
    if unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        let why = io::Error::last_os_error();
        return Err(Failure::new(SYSTEM, format!("cannot make a table of gloo's writable: {why}")));
    }
    // SAFETY: it is aligned, can be written now, and is read by whole words.
    unsafe { AtomicPtr::from_ptr(place) }.store(new, Ordering::Release);
    Ok(())
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
                    Some(gloo) if self.turn.load(Ordering::Acquire) == ours => tell_all(gloo),
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

/// As [`hold`], for the session of this process.
///
/// # Safety
/// The same.
pub(super) unsafe fn arm(given: &rl_gloo) -> Result<(), Failure> {
    // SAFETY: as the caller says.
    unsafe { hold(given) }?;
    PROCESS.arm(true);
    Ok(())
}

/// A round has ended: who waits is to come out, until it is [`over`].
pub(crate) fn end() {
    PROCESS.end();
}

/// The next round begins. Not before: what the one before has left behind may be freed behind its end, and its threads are waited for.
pub(crate) fn over() {
    PROCESS.over();
}

/// The session that has asked for it is over; what it has left behind may still come out.
pub(crate) fn disarm() {
    PROCESS.arm(false);
}
