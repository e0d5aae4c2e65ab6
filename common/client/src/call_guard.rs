//! The waits of this process in stores: a wait does not outlive its round.
//!
//! Each wait of a process that takes part in rounds is noted, and ended with the round. Until the function was left no wait begins: it
//! would be noted too late to be ended. Hooks that run meanwhile, on threads of their own, may ask as they like.

use crate::Interrupted;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The process that takes part; 0: none does. A forked child finds another one than itself, and is not concerned.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static ALL: Mutex<Waits> = Mutex::new(Waits { closed: false, free: Vec::new(), under_way: Vec::new(), next: 0 });

struct Waits {
    closed: bool,
    free: Vec<ThreadId>,
    under_way: Vec<(u64, Arc<UnixStream>, Arc<AtomicBool>)>,
    next: u64,
}

impl Waits {
    fn refuses(&self) -> bool {
        self.closed && !self.free.contains(&thread::current().id())
    }
}

/// A wait that is under way.
pub(crate) struct Wait {
    number: u64,
    ended: Arc<AtomicBool>,
}

impl Wait {
    /// Ends the wait. Returns whether its connection was ended meanwhile; it is not any more from here on.
    pub(crate) fn was_ended(self) -> bool {
        let ended = Arc::clone(&self.ended);
        drop(self);
        ended.load(Ordering::Acquire)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if is_here() {
            all().under_way.retain(|(number, ..)| *number != self.number);
        }
    }
}

fn all() -> MutexGuard<'static, Waits> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_here() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Whether one may begin: before a connection is made for it.
pub(crate) fn may_begin() -> Result<(), Interrupted> {
    if is_here() && all().refuses() { Err(Interrupted) } else { Ok(()) }
}

/// Notes a wait on a connection, if there are rounds.
pub(crate) fn begin(socket: &Arc<UnixStream>) -> Result<Option<Wait>, Interrupted> {
    if !is_here() {
        return Ok(None);
    }
    let mut all = all();
    if all.free.contains(&thread::current().id()) {
        return Ok(None);
    }
    if all.refuses() {
        return Err(Interrupted);
    }
    let ended = Arc::new(AtomicBool::new(false));
    let number = all.next;
    all.next += 1;
    all.under_way.push((number, Arc::clone(socket), Arc::clone(&ended)));
    Ok(Some(Wait { number, ended }))
}

/// Records that the process takes part in rounds from now on.
pub(crate) fn takes_part() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Records that the process does not take part any more.
pub(crate) fn takes_no_part() {
    PROCESS.store(0, Ordering::Relaxed);
    let mut all = all();
    (all.closed, all.free) = (false, Vec::new());
}

/// Records that waits of this thread belong to no round.
pub(crate) fn this_thread_is_free() {
    let mut all = all();
    let own = thread::current().id();
    if !all.free.contains(&own) {
        all.free.push(own);
    }
}

/// Ends all waits; with `inside` none begins until [`open`].
pub(crate) fn end(inside: bool) {
    let mut all = all();
    all.closed = inside;
    for (_, socket, ended) in &all.under_way {
        ended.store(true, Ordering::Release);
        // A connection that is closed already needs no end.
        let _closed = socket.shutdown(Shutdown::Both);
    }
}

/// Waits may begin again.
pub(crate) fn open() {
    all().closed = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// The answer has come, and then the end of the round.
    #[test]
    fn connection_that_was_ended_after_its_answer_is_known() {
        let _turn = crate::session::tests::turn();
        let (near, mut far) = UnixStream::pair().unwrap();
        let near = Arc::new(near);
        takes_part();
        let wait = begin(&near).unwrap().unwrap();
        far.write_all(b"answer").unwrap();
        end(false);
        assert!(wait.was_ended());
        let another = begin(&near).unwrap().unwrap();
        assert!(!another.was_ended());
        end(false);
        takes_no_part();
    }
}
