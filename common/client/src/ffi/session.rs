//! Sessions, for C: one function for each of [`Session`]'s.
#![expect(non_camel_case_types, reason = "they are named as in the header")]

use super::error::{ARGUMENT, Failure, guarded};
use super::gloo::{self, rl_gloo};
use super::types::{bytes, give, many, pairs, rl_bytes, rl_fault_info, rl_next, rl_pair, rl_round, text, time};
use crate::session::{AddPending, Aim, Next, Options, Session};
use crate::state::Leave;
use rlaunch_core::wire::frozen::client::round::Dismissal;
use std::ffi::{CString, c_char, c_int};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Variable = (CString, Option<CString>);

/// A session, as C holds it: a share of it, so that who waits in it has one of its own.
pub struct rl_session {
    session: Session,
    /// Of the round that was taken last.
    env: Mutex<Vec<Variable>>,
}

impl rl_session {
    /// For C to hold.
    pub(super) fn held(session: Session) -> *mut Self {
        Arc::into_raw(Arc::new(Self { session, env: Mutex::default() })).cast_mut()
    }

    fn env(&self) -> MutexGuard<'_, Vec<Variable>> {
        self.env.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A share of a caller's session.
///
/// # Safety
/// It is null, or came from `rl_session_register` and was not closed.
unsafe fn share(session: *const rl_session) -> Result<Arc<rl_session>, Failure> {
    if session.is_null() {
        return Err(Failure::argument("a session is needed, and NULL was given"));
    }
    // SAFETY: it came from `Arc::into_raw`, and the caller's share is still there.
    unsafe { Arc::increment_strong_count(session) };
    // SAFETY: the share that was added above.
    Ok(unsafe { Arc::from_raw(session) })
}

/// Runs a call about a session.
///
/// # Safety
/// As [`share`].
unsafe fn with(session: *const rl_session, body: impl FnOnce(&rl_session) -> Result<(), Failure>) -> c_int {
    guarded(|| {
        // SAFETY: as the caller says.
        let session = unsafe { share(session) }?;
        body(&session)
    })
}

/// A call about a session that is no more than that.
///
/// # Safety
/// As [`share`].
unsafe fn plain(session: *const rl_session, call: impl FnOnce(&Session) -> Result<(), crate::Error>) -> c_int {
    // SAFETY: as the caller says.
    unsafe { with(session, |handle| Ok(call(&handle.session)?)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_register(
    terms: *const rl_pair,
    count: usize,
    flags: u32,
    session: *mut *mut rl_session,
) -> c_int {
    guarded(|| {
        if session.is_null() || flags > 1 {
            return Err(Failure::argument("a place for the session and known flags are needed"));
        }
        // SAFETY: as the caller says.
        let terms = unsafe { pairs(terms, count) }?;
        let opened = Session::register(&terms, Options { foreign: flags & 1 != 0, on_abort: None })?;
        // SAFETY: as the caller says.
        unsafe { give(session, rl_session::held(opened)) }
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_next(session: *mut rl_session, next: *mut rl_next) -> c_int {
    let call = |handle: &rl_session| {
        if next.is_null() {
            return Err(Failure::argument("a place for what is next is needed, and NULL was given"));
        }
        let mut found = rl_next { kind: 0, round: rl_round::none(), text: text(b"") };
        match handle.session.next()? {
            Next::Begin(state, env) => {
                (found.kind, found.round) = (1, rl_round::of(&state));
                let plain = |(name, value): (Vec<u8>, Option<Vec<u8>>)| -> Option<Variable> {
                    Some((CString::new(name).ok()?, value.map(CString::new).transpose().ok()?))
                };
                *handle.env() = env.into_iter().filter_map(plain).collect();
            }
            Next::Interrupt(state, cause) => (found.kind, found.round) = (2, rl_round::ended(&state, &cause)),
            Next::Finish => found.kind = 3,
            Next::Dismissed(why, sentence) => {
                found.kind = match why {
                    Dismissal::Discarded => 4,
                    Dismissal::GivenUp => 5,
                    Dismissal::Refused => 6,
                };
                found.text = text(sentence.as_bytes());
            }
        }
        // SAFETY: as the caller says.
        unsafe { give(next, found) }
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_env_count(session: *const rl_session) -> usize {
    let mut count = 0;
    let call = |handle: &rl_session| {
        count = handle.env().len();
        Ok(())
    };
    // SAFETY: as the caller says.
    let _none = unsafe { with(session, call) };
    count
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_env(
    session: *const rl_session,
    index: usize,
    name: *mut *const c_char,
    value: *mut *const c_char,
) -> c_int {
    let call = |handle: &rl_session| {
        let env = handle.env();
        let (key, text) = env.get(index).ok_or_else(|| Failure::argument("the round has fewer variables than that"))?;
        // SAFETY: as the caller says. The strings stay where they are until the list is replaced.
        unsafe { give(name, key.as_ptr()) }?;
        // SAFETY: the same.
        unsafe { give(value, text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr())) }
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_enter(session: *mut rl_session) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, Session::enter) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_exit(session: *mut rl_session) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, Session::exit) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_fault(session: *mut rl_session, text: *const c_char, len: usize) -> c_int {
    let call = |handle: &rl_session| {
        // SAFETY: as the caller says.
        let text = unsafe { bytes(text, len) }?;
        Ok(handle.session.fault(text)?)
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_returned(session: *mut rl_session) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, Session::returned) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_ready(session: *mut rl_session, keys: *const rl_bytes, count: usize) -> c_int {
    let call = |handle: &rl_session| {
        // SAFETY: as the caller says.
        let keys = unsafe { many(keys, count) }?;
        Ok(handle.session.ready(keys.into_iter().map(Into::into).collect())?)
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_leave(
    session: *mut rl_session,
    why: c_int,
    text: *const c_char,
    len: usize,
) -> c_int {
    let call = |handle: &rl_session| {
        let why = match why {
            0 => Leave::BaseException,
            1 => Leave::Abort,
            2 => Leave::Unhealthy,
            _ => return Err(Failure::argument(format!("{why} is no reason to leave"))),
        };
        // SAFETY: as the caller says.
        let text = unsafe { bytes(text, len) }?;
        Ok(handle.session.leave(why, text)?)
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_close(session: *mut rl_session) -> c_int {
    if session.is_null() {
        return ARGUMENT;
    }
    guarded(|| {
        // SAFETY: the caller's share, which it does not use any more.
        let handle = unsafe { Arc::from_raw(session) };
        handle.session.close();
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_wait_interrupt(session: *mut rl_session, fault: *mut rl_fault_info) -> c_int {
    let call = |handle: &rl_session| {
        let cause = handle.session.wait_interrupt()?;
        // SAFETY: as the caller says.
        unsafe { give(fault, rl_fault_info::of_cause(&cause)) }
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_aborted(session: *mut rl_session) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, Session::aborted) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_foreign_abort(session: *mut rl_session, on: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, |session| session.foreign_abort(on != 0)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_wait_aborted(session: *mut rl_session) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, Session::wait_aborted) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_due(session: *const rl_session) -> c_int {
    // SAFETY: as the caller says.
    c_int::from(unsafe { share(session) }.is_ok_and(|handle| handle.session.due()))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_interrupted(session: *const rl_session) -> c_int {
    // SAFETY: as the caller says.
    c_int::from(unsafe { share(session) }.is_ok_and(|handle| handle.session.interrupted()))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_interrupt_fd(session: *mut rl_session, fd: *mut c_int) -> c_int {
    let call = |handle: &rl_session| {
        let token = handle.session.token()?;
        let bell = token.fd().map_err(crate::Error::from)?;
        // SAFETY: as the caller says.
        unsafe { give(fd, bell.as_raw_fd()) }
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_signal_thread(
    session: *mut rl_session,
    tid: i32,
    signo: c_int,
    delay: i64,
) -> c_int {
    let call = |handle: &rl_session| {
        let delay = time(delay).unwrap_or(Duration::MAX).min(Duration::from_secs(86_400));
        if tid < 0 || !(1..=64).contains(&signo) {
            return Err(Failure::argument("a thread and a signal are needed"));
        }
        Ok(handle.session.signal_thread((tid != 0).then_some(Aim { tid, signo, delay }))?)
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_auto_progress(session: *mut rl_session, add: Option<AddPending>) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, |session| session.auto_progress(add)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_ping(session: *mut rl_session) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, Session::ping) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_section(session: *mut rl_session, limit: i64) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, |session| session.section(time(limit))) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_atomic_begin(session: *mut rl_session) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, Session::atomic_begin) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_atomic_end(session: *mut rl_session) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, Session::atomic_end) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_sockets_add(session: *mut rl_session, fd: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, |session| session.add_socket(fd)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_sockets_remove(session: *mut rl_session, fd: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { plain(session, |session| session.remove_socket(fd)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_sockets_shutdown(session: *mut rl_session, count: *mut usize) -> c_int {
    let call = |handle: &rl_session| {
        let ended = handle.session.shut_down_sockets()?;
        // SAFETY: as the caller says.
        if count.is_null() { Ok(()) } else { unsafe { give(count, ended) } }
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_session_gloo(session: *mut rl_session, gloo: *const rl_gloo) -> c_int {
    let call = |_: &rl_session| {
        // SAFETY: as the caller says.
        let given =
            unsafe { gloo.as_ref() }.ok_or_else(|| Failure::argument("what gloo has is needed, and NULL was given"))?;
        // SAFETY: the same.
        unsafe { gloo::arm(given) }
    };
    // SAFETY: as the caller says.
    unsafe { with(session, call) }
}
