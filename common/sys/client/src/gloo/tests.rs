//! A gloo of our own, with tables as C++ has them. One test: what is replaced is so for the whole process.

#![forbid(unsafe_code)]

use super::*;
use crate::tests::{connect, held, now_at, read_only, seen, wait};
use crate::{Connect, HoldError, Wait};
use std::ffi::c_int;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex};

/// The object of a wait.
#[derive(Default)]
#[repr(align(16))]
struct Buffer {
    /// The time of each wait, and whether the waits were aborted.
    state: Mutex<(Vec<i64>, bool)>,
    changed: Condvar,
}

impl Buffer {
    fn of<'a>(this: *mut c_void) -> &'a Self {
        // The objects that are handed in below are never freed.
        seen(this)
    }

    fn leaked() -> &'static Self {
        Box::leak(Box::default())
    }

    fn waits(&self, times: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.0.len() < times).unwrap());
    }
}

/// Throws for a time-out of nothing, as gloo does; a time-out of 1 is something that has come already.
extern "C-unwind" fn waits(this: *mut c_void, _rank: *mut c_int, timeout: i64) -> bool {
    let buffer = Buffer::of(this);
    let mut state = buffer.state.lock().unwrap();
    state.0.push(timeout);
    buffer.changed.notify_all();
    if timeout <= 1 {
        drop(state);
        if timeout == 0 {
            resume_unwind(Box::new("timed out"));
        }
        return true;
    }
    drop(buffer.changed.wait_while(state, |state| !state.1).unwrap());
    false
}

extern "C-unwind" fn connects(this: *mut c_void, _address: *const c_void) {
    let _closed = wait(waits, this, 2);
}

extern "C-unwind" fn aborts(this: *mut c_void) {
    let buffer = Buffer::of(this);
    buffer.state.lock().unwrap().1 = true;
    buffer.changed.notify_all();
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().spawn(body).unwrap()
}

fn busy() -> usize {
    SLOTS.iter().filter(|slot| slot.who.load(Ordering::Acquire) != 0).count()
}

/// Sessions of other tests come and go meanwhile.
static TURNS: Turns = Turns::new();

#[test]
fn waits_that_a_round_leaves_behind_end() {
    let table: &'static mut [*mut c_void; 3] = Box::leak(Box::new([
        waits as Wait as *mut c_void,
        waits as Wait as *mut c_void,
        connects as Connect as *mut c_void,
    ]));
    let [recv, send, to] = table.each_mut().map(std::ptr::from_mut);
    let given = |close| rl_gloo {
        wait_recv: recv,
        wait_send: send,
        connect: to,
        abort_recv: Some(aborts),
        abort_send: Some(aborts),
        close,
    };
    assert!(held(&given(None)).is_err());
    let odd = rl_gloo { wait_recv: recv.wrapping_byte_add(1), ..given(Some(aborts)) };
    // Refused before it is looked at.
    assert!(held(&odd).is_err());
    // A table that cannot be written leaves the others as they are, and the next call does the work.
    let stiff = rl_gloo { wait_send: read_only(), ..given(Some(aborts)) };
    assert!(matches!(held(&stiff), Err(HoldError::System(_))));
    assert!(now_at::<Wait>(recv) as usize == waits as Wait as usize, "it was replaced");
    for _ in 0..2 {
        held(&given(Some(aborts))).unwrap();
    }
    let ours: (Wait, Connect) = (now_at(recv), now_at(to));
    assert!(ours.0 as usize != waits as Wait as usize, "it was replaced");

    TURNS.arm(true);
    // Nothing is changed for what ends by itself.
    let quick = Buffer::leaked();
    let this = |buffer: &'static Buffer| std::ptr::from_ref(buffer).cast_mut().cast::<c_void>();
    assert!(wait(ours.0, this(quick), 1));
    assert_eq!((quick.state.lock().unwrap().0.clone(), busy()), (vec![1], 0));

    // Waiting threads are notified, and throw. Threads that begin a wait before the next round do, too.
    let (early, late, pair) = (Buffer::leaked(), Buffer::leaked(), Buffer::leaked());
    let waiting_at = |at: &'static Buffer| move || catch_unwind(|| wait(ours.0, this(at), 60_000));
    let first = spawn(waiting_at(early));
    let connecting = spawn(move || connect(ours.1, this(pair)));
    early.waits(1);
    pair.waits(1);
    assert_eq!(busy(), 2);
    TURNS.end();
    assert!(first.join().unwrap().is_err());
    connecting.join().unwrap();
    assert!(spawn(waiting_at(late)).join().unwrap().is_err());
    for buffer in [early, late] {
        assert_eq!(buffer.state.lock().unwrap().0, [60_000, 0]);
    }
    assert_eq!(busy(), 0, "an exception takes its note with it");

    // The next round has begun: a thread that waits now is left alone by the end of the round before.
    TURNS.over();
    let next = Buffer::leaked();
    let waiting = spawn(waiting_at(next));
    next.waits(1);
    assert!(!next.state.lock().unwrap().1);
    TURNS.end();
    assert!(waiting.join().unwrap().is_err());
    TURNS.over();
    TURNS.arm(false);
    TURNS.end();
    assert_eq!(TURNS.turn.load(Ordering::Acquire) & 1, 0, "nobody has asked for it any more");
}
