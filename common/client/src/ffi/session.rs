//! Sessions, for C: one function for each of [`Session`]'s.
#![forbid(unsafe_code)]
#![expect(non_camel_case_types, reason = "they are named as in the header")]

use super::ffi_error::{Failure, guarded};
use super::given::Given;
use super::types::{rl_bytes, rl_fault_info, rl_next, rl_pair, rl_round, text, time};
use crate::session::{AddPending, Aim, Next, Options, Session};
use crate::state::Leave;
use rlaunch_protocol::wire::frozen::client::client_round::Dismissal;
use rlaunch_sys_client::gloo::{self, rl_gloo};
use std::ffi::{CString, c_char, c_int};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Handle<'a> = Given<'a, (*mut rl_session,)>;
type Seen<'a> = Given<'a, (*const rl_session,)>;
type Bytes<'a> = Given<'a, (*const c_char, usize)>;
type Shared = Result<Arc<rl_session>, Failure>;
type Variable = (CString, Option<CString>);

/// A session, as C holds it: a share of it, so that who waits in it has one of its own.
pub struct rl_session {
    session: Session,
    /// Whether it was ended: a later session of this process is not ended by that.
    has_ended: AtomicBool,
    /// The variables of the round that was taken last.
    env: Mutex<Vec<Variable>>,
}

impl rl_session {
    /// For C to hold.
    pub(super) fn held(session: Session) -> Arc<Self> {
        Arc::new(Self { session, has_ended: AtomicBool::new(false), env: Mutex::default() })
    }

    fn end(&self) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            self.session.close();
        }
    }

    fn env(&self) -> MutexGuard<'_, Vec<Variable>> {
        self.env.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a call about a session.
fn with(session: Shared, body: impl FnOnce(&rl_session) -> Result<(), Failure>) -> c_int {
    guarded(|| body(&*session?))
}

/// A call about a session that is no more than that.
fn plain(session: Shared, call: impl FnOnce(&Session) -> Result<(), crate::Error>) -> c_int {
    with(session, |handle| Ok(call(&handle.session)?))
}

pub(super) fn rl_session_register(
    terms: Given<'_, (*const rl_pair, usize)>,
    flags: u32,
    session: Given<'_, (*mut *mut rl_session,)>,
) -> c_int {
    guarded(|| {
        if session.is_null() || flags > 1 {
            return Err(Failure::argument("a place for the session and known flags are needed"));
        }
        let terms = terms.pairs()?;
        let opened = Session::register(&terms, Options { foreign: flags & 1 != 0, on_abort: None })?;
        session.give_share(rl_session::held(opened))
    })
}

pub(super) fn rl_session_next(session: Handle<'_>, next: Given<'_, (*mut rl_next,)>) -> c_int {
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
        next.give(found)
    };
    with(session.share(), call)
}

pub(super) fn rl_session_env_count(session: Seen<'_>) -> usize {
    let mut count = 0;
    let call = |handle: &rl_session| {
        count = handle.env().len();
        Ok(())
    };
    let _none = with(session.share(), call);
    count
}

pub(super) fn rl_session_env(
    session: Seen<'_>,
    index: usize,
    name: Given<'_, (*mut *const c_char,)>,
    value: Given<'_, (*mut *const c_char,)>,
) -> c_int {
    let call = |handle: &rl_session| {
        let env = handle.env();
        let (key, text) = env.get(index).ok_or_else(|| Failure::argument("the round has fewer variables than that"))?;
        // They stay where they are until the list is replaced.
        name.give_text(Some(key))?;
        value.give_text(text.as_deref())
    };
    with(session.share(), call)
}

pub(super) fn rl_session_enter(session: Handle<'_>) -> c_int {
    plain(session.share(), Session::enter)
}

pub(super) fn rl_session_exit(session: Handle<'_>) -> c_int {
    plain(session.share(), Session::exit)
}

pub(super) fn rl_session_fault(session: Handle<'_>, text: Bytes<'_>) -> c_int {
    let call = |handle: &rl_session| {
        let text = text.bytes()?;
        Ok(handle.session.fault(text)?)
    };
    with(session.share(), call)
}

pub(super) fn rl_session_returned(session: Handle<'_>) -> c_int {
    plain(session.share(), Session::returned)
}

pub(super) fn rl_session_ready(session: Handle<'_>, keys: Given<'_, (*const rl_bytes, usize)>) -> c_int {
    let call = |handle: &rl_session| {
        let keys = keys.many()?;
        Ok(handle.session.ready(keys.into_iter().map(Into::into).collect())?)
    };
    with(session.share(), call)
}

pub(super) fn rl_session_leave(session: Handle<'_>, why: c_int, text: Bytes<'_>) -> c_int {
    let call = |handle: &rl_session| {
        let why = match why {
            0 => Leave::BaseException,
            1 => Leave::Abort,
            2 => Leave::Unhealthy,
            _ => return Err(Failure::argument(format!("{why} is no reason to leave"))),
        };
        let text = text.bytes()?;
        Ok(handle.session.leave(why, text)?)
    };
    with(session.share(), call)
}

pub(super) fn rl_session_end(session: Handle<'_>) -> c_int {
    let call = |handle: &rl_session| {
        handle.end();
        Ok(())
    };
    with(session.share(), call)
}

pub(super) fn rl_session_close(session: Handle<'_>) -> c_int {
    guarded(|| {
        session.take().ok_or_else(|| Failure::argument("a session is needed, and NULL was given"))?.end();
        Ok(())
    })
}

pub(super) fn rl_session_wait_interrupt(session: Handle<'_>, fault: Given<'_, (*mut rl_fault_info,)>) -> c_int {
    let call = |handle: &rl_session| {
        let cause = handle.session.wait_interrupt()?;
        fault.give(rl_fault_info::of_cause(&cause))
    };
    with(session.share(), call)
}

pub(super) fn rl_session_aborted(session: Handle<'_>) -> c_int {
    plain(session.share(), Session::aborted)
}

pub(super) fn rl_session_wait_aborted(session: Handle<'_>) -> c_int {
    plain(session.share(), Session::wait_aborted)
}

pub(super) fn rl_session_foreign_abort(session: Handle<'_>, on: c_int) -> c_int {
    plain(session.share(), |session| session.foreign_abort(on != 0))
}

pub(super) fn rl_session_due(session: Seen<'_>) -> c_int {
    c_int::from(session.share().is_ok_and(|handle| handle.session.due()))
}

pub(super) fn rl_session_interrupted(session: Seen<'_>) -> c_int {
    c_int::from(session.share().is_ok_and(|handle| handle.session.interrupted()))
}

pub(super) fn rl_session_interrupt_fd(session: Handle<'_>, fd: Given<'_, (*mut c_int,)>) -> c_int {
    let call = |handle: &rl_session| {
        let token = handle.session.token()?;
        let bell = token.fd().map_err(crate::Error::from)?;
        fd.give(bell.as_raw_fd())
    };
    with(session.share(), call)
}

pub(super) fn rl_session_signal_thread(session: Handle<'_>, tid: i32, signo: c_int, delay: i64) -> c_int {
    let call = |handle: &rl_session| {
        let delay = time(delay).unwrap_or(Duration::MAX).min(Duration::from_secs(86_400));
        // Without a thread no signal is sent, whichever it is.
        if tid < 0 || tid != 0 && !(1..=64).contains(&signo) {
            return Err(Failure::argument("a thread and a signal are needed"));
        }
        Ok(handle.session.signal_thread((tid != 0).then_some(Aim { tid, signo, delay }))?)
    };
    with(session.share(), call)
}

pub(super) fn rl_session_auto_progress(session: Handle<'_>, add: Option<AddPending>) -> c_int {
    plain(session.share(), |session| session.auto_progress(add))
}

pub(super) fn rl_session_ping(session: Handle<'_>) -> c_int {
    plain(session.share(), Session::ping)
}

pub(super) fn rl_session_section(session: Handle<'_>, limit: i64) -> c_int {
    plain(session.share(), |session| session.section(time(limit)))
}

pub(super) fn rl_session_hooks(session: Handle<'_>, run: c_int) -> c_int {
    plain(session.share(), |session| session.hooks(run != 0))
}

pub(super) fn rl_session_atomic_begin(session: Handle<'_>) -> c_int {
    plain(session.share(), Session::atomic_begin)
}

pub(super) fn rl_session_atomic_end(session: Handle<'_>) -> c_int {
    plain(session.share(), Session::atomic_end)
}

pub(super) fn rl_session_sockets_add(session: Handle<'_>, fd: c_int) -> c_int {
    plain(session.share(), |session| session.add_socket(fd))
}

pub(super) fn rl_session_sockets_remove(session: Handle<'_>, fd: c_int) -> c_int {
    plain(session.share(), |session| session.remove_socket(fd))
}

pub(super) fn rl_session_sockets_shutdown(session: Handle<'_>, count: Given<'_, (*mut usize,)>) -> c_int {
    let call = |handle: &rl_session| {
        let ended = handle.session.shut_down_sockets()?;
        if count.is_null() { Ok(()) } else { count.give(ended) }
    };
    with(session.share(), call)
}

pub(super) fn rl_session_gloo(session: Handle<'_>, gloo: Given<'_, (*const rl_gloo,)>) -> c_int {
    let call = |_: &rl_session| {
        gloo.hold()?;
        gloo::arm();
        Ok(())
    };
    with(session.share(), call)
}
