//! What only C does with a session: forks, signals to threads, and arguments that are none.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls in a row, for one reason")]

use super::error::{CODES, INTERRUPTED, OK};
use super::run::is_running;
use super::types::text;
use super::*;
use crate::session::Session;
use crate::session::tests::{SOON, plain};
use rlaunch_core::id::Round;
use rlaunch_core::wire::frozen::client::round::Said;
use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

fn held(session: Session) -> *mut rl_session {
    Arc::into_raw(rl_session::held(session)).cast_mut()
}

fn code(name: &str) -> c_int {
    CODES.iter().find(|(known, ..)| *known == name).unwrap().1
}

fn next(session: *mut rl_session) -> rl_next {
    let mut next = rl_next { kind: 0, round: rl_round::none(), text: text(b"") };
    // SAFETY: both are there.
    assert_eq!(unsafe { rl_session_next(session, &raw mut next) }, OK);
    next
}

#[test]
fn a_forked_child_speaks_for_nobody() {
    let (session, mut agent) = plain();
    let handle = held(session);
    agent.begins(0, Some(1));
    assert_eq!(next(handle).kind, 1);
    // SAFETY: the child calls nothing but what is tested, which looks first whose process it is, and leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the session is there.
        let calls = unsafe { [rl_session_enter(handle), rl_session_ping(handle), rl_session_returned(handle)] };
        // SAFETY: the same.
        let due = unsafe { rl_session_due(handle) };
        // SAFETY: the same.
        let closed = unsafe { rl_session_close(handle) };
        let well = calls == [code("RL_E_FORKED"); 3] && due == 0 && closed == OK;
        // SAFETY: nothing of the parent's is run at this end.
        unsafe { libc::_exit(if well { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: it is our child, and the place is there.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    // The parent's session is as it was.
    // SAFETY: the session is there.
    assert_eq!(unsafe { rl_session_enter(handle) }, OK);
    // SAFETY: the same.
    assert_eq!(unsafe { rl_session_exit(handle) }, OK);
    // SAFETY: the same.
    assert_eq!(unsafe { rl_session_returned(handle) }, OK);
    assert_eq!(agent.heard(), Said::Returned(Round::new(0)));
    // SAFETY: it is not used behind this.
    assert_eq!(unsafe { rl_session_close(handle) }, OK);
}

static CAME: AtomicU32 = AtomicU32::new(0);

extern "C" fn comes(_: c_int) {
    CAME.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn the_training_thread_is_signalled_until_it_is_out() {
    let signo = libc::SIGRTMIN() + 3;
    let handler: extern "C" fn(c_int) = comes;
    // SAFETY: the handler does nothing but count.
    unsafe { libc::signal(signo, handler as libc::sighandler_t) };
    let (session, mut agent) = plain();
    let handle = held(session);
    // SAFETY: no memory is touched.
    let tid = i32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap();
    // SAFETY: the session is there.
    assert_eq!(unsafe { rl_session_signal_thread(handle, tid, signo, 0) }, OK);
    agent.begins(0, Some(1));
    assert_eq!(next(handle).kind, 1);
    // SAFETY: the session is there.
    assert_eq!(unsafe { rl_session_enter(handle) }, OK);
    let began = Instant::now();
    agent.interrupts(0);
    while CAME.load(Ordering::SeqCst) < 2 {
        assert!(began.elapsed() < SOON);
        std::thread::yield_now();
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "again too soon");
    // SAFETY: the session is there.
    assert_eq!(unsafe { rl_session_due(handle) }, 1);
    // SAFETY: the same.
    assert_eq!(unsafe { rl_session_exit(handle) }, INTERRUPTED);
    // SAFETY: the same.
    assert_eq!(unsafe { rl_session_due(handle) }, 0);
    let after = next(handle);
    assert_eq!((after.kind, after.round.of_fault()), (2, (1, 5)));
    // SAFETY: it is not used behind this.
    assert_eq!(unsafe { rl_session_close(handle) }, OK);
}

#[test]
fn what_is_no_argument_is_told() {
    // SAFETY: null is what is tested.
    let none = unsafe { [rl_session_enter(null_mut()), rl_session_register(null(), 2, 0, null_mut())] };
    assert_eq!(none, [code("RL_E_ARGUMENT"); 2]);
    // SAFETY: it ends with 0, and is there until the next failure of this thread.
    let text = unsafe { CStr::from_ptr(rl_last_error()) };
    assert_eq!(text.to_str().unwrap(), "a place for the session and known flags are needed");
    let (session, _agent) = plain();
    let handle = held(session);
    // SAFETY: the session is there.
    let early = unsafe { [rl_session_enter(handle), rl_session_exit(handle), rl_session_returned(handle)] };
    assert_eq!(early, [code("RL_E_ORDER"); 3]);
    // SAFETY: the same.
    let wrong = unsafe { [rl_session_leave(handle, 9, null(), 0), rl_session_signal_thread(handle, 1, 99, 0)] };
    assert_eq!(wrong, [code("RL_E_ARGUMENT"); 2]);
    // SAFETY: the same.
    assert_eq!(unsafe { rl_session_sockets_add(handle, -1) }, code("RL_E_SYSTEM"));
    // SAFETY: it is not used behind this.
    assert_eq!(unsafe { rl_session_close(handle) }, OK);
    assert_eq!(super::error::guarded(|| panic!("inside")), code("RL_E_PANIC"));
}

unsafe extern "C" fn asks(_: *const rl_round, _: u32, value: *mut c_char, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: they may be called at any time.
    let is_early = unsafe { rl_interrupted() == 0 && rl_ping() != OK } && is_running();
    // SAFETY: there is room, as the header says.
    unsafe { value.write(0x78) };
    c_int::from(!is_early)
}

unsafe extern "C" fn works(_: *const rl_round, _: *mut c_void) -> c_int {
    // SAFETY: it may be called at any time.
    unsafe { rl_ping() }
}

/// Runs with one key.
fn run_with(key: KeyFunction) -> c_int {
    let terms = [rl_pair::of("keys", "1")];
    let options = rl_options { terms: terms.as_ptr(), terms_count: 1, flags: 1 };
    let hooks = rl_hooks {
        initialize: None,
        abort: None,
        finalize: None,
        health_check: None,
        completion: None,
        terminate: None,
        key: Some(key),
    };
    // SAFETY: all of it is there.
    unsafe { rl_run(Some(works), &raw const hooks, null_mut(), &raw const options) }
}

/// Before the session is there, in the same thread.
#[test]
fn a_key_may_ask_whether_there_is_a_round() {
    let _turn = crate::session::tests::turn();
    assert_eq!(run_with(asks), OK);
    assert!(!is_running());
}

unsafe extern "C" fn has_none(_: *const rl_round, _: u32, _: *mut c_char, _: usize, _: *mut c_void) -> c_int {
    5
}

#[test]
fn a_key_that_has_no_value_is_told_as_that() {
    let _turn = crate::session::tests::turn();
    let told = run_with(has_none);
    assert_eq!(told, code("RL_E_ARGUMENT"));
    // SAFETY: it ends with 0, and is there until the next failure of this thread.
    let text = unsafe { CStr::from_ptr(rl_last_error()) };
    assert_eq!(text.to_str().unwrap(), "a key of the policy: key 0 has no value: its function has returned 5");
}

#[test]
fn an_ended_session_can_be_asked_until_it_is_closed_and_ends_no_later_one() {
    let (session, agent) = plain();
    let first = held(session);
    // SAFETY: the session is there.
    let ended = unsafe { [rl_session_end(first), rl_session_end(first), rl_session_ping(first)] };
    assert_eq!(ended, [OK; 3]);
    // SAFETY: the same.
    assert_eq!(unsafe { rl_session_due(first) }, 0);
    drop(agent);
    let (session, mut agent) = plain();
    let second = held(session);
    // SAFETY: it is not used behind this.
    assert_eq!(unsafe { rl_session_close(first) }, OK);
    agent.begins(0, Some(1));
    assert_eq!(next(second).kind, 1);
    // SAFETY: it is not used behind this.
    assert_eq!(unsafe { rl_session_close(second) }, OK);
}

/// What plays gloo calls, as its own code would.
pub(super) mod gloo {
    use crate::ffi::error::Failure;
    use crate::ffi::gloo::rl_gloo;
    use crate::ffi::{Connect, Wait, hold};
    use std::ffi::c_void;
    use std::ptr::null_mut;

    /// What a call was handed.
    pub(in crate::ffi) fn seen<'a, T>(this: *mut c_void) -> &'a T {
        // SAFETY: the test hands in nothing but leaked buffers of this type.
        unsafe { &*this.cast::<T>() }
    }

    pub(in crate::ffi) fn held(given: &rl_gloo) -> Result<(), Failure> {
        // SAFETY: its places are those of a leaked table; one that is odd is refused before it is looked at.
        unsafe { hold(given) }
    }

    /// The function that is in a place of the table now.
    pub(in crate::ffi) fn now_at<T: Copy>(place: *mut *mut c_void) -> T {
        assert_eq!(size_of::<T>(), size_of::<*mut c_void>());
        // SAFETY: the place is a leaked table's, and holds a function of this kind, before and after it was replaced.
        unsafe { place.cast::<T>().read() }
    }

    pub(in crate::ffi) fn wait(function: Wait, this: *mut c_void, timeout: i64) -> bool {
        // SAFETY: as gloo calls it: `this` is what its functions expect, and no rank is asked for.
        unsafe { function(this, null_mut(), timeout) }
    }

    pub(in crate::ffi) fn connect(function: Connect, this: *mut c_void) {
        // SAFETY: as gloo calls it; no address is looked at.
        unsafe { function(this, std::ptr::null()) }
    }
}
