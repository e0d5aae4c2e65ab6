//! A function that is run again, for C: [`Restart`] with pointers for hooks.

use super::error::{Failure, guarded};
use super::types::{give, pairs, rl_pair, rl_round, time};
use crate::hooks::BoxError;
use crate::restart::Closes;
use crate::round::Round;
use crate::session::Session;
use crate::{Error, Interrupted, Restart, State};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// The present call of `rl_run`, once it has a session.
static RUNNING: RwLock<Option<Session>> = RwLock::new(None);
/// There is a call. No lock: functions of the caller's run before it has a session, and may ask whether there is one.
static CALLED: AtomicBool = AtomicBool::new(false);
/// `rl_end` was called in this round.
static ENDS: AtomicBool = AtomicBool::new(false);
/// Longest value of a key.
const KEY: usize = 4096;

type Function = unsafe extern "C" fn(round: *const rl_round, user: *mut c_void) -> c_int;
type KeyFunction = unsafe extern "C" fn(*const rl_round, u32, *mut c_char, usize, *mut c_void) -> c_int;

/// What a program has done at the edges of a round.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_hooks {
    initialize: Option<Function>,
    abort: Option<Function>,
    finalize: Option<Function>,
    health_check: Option<Function>,
    completion: Option<Function>,
    terminate: Option<Function>,
    key: Option<KeyFunction>,
}

/// How it is run.
#[repr(C)]
pub struct rl_options {
    terms: *const rl_pair,
    terms_count: usize,
    flags: u32,
}

/// The caller's pointer, as it goes to its functions.
#[derive(Clone, Copy)]
struct User(*mut c_void);

// SAFETY: nothing is done with it here; the header says on which threads hooks run.
unsafe impl Send for User {}

impl User {
    fn call(self, function: Function, state: &State) -> c_int {
        let round = rl_round::of(state);
        // SAFETY: a function of the caller's, with what the header says that it gets.
        unsafe { function(&raw const round, self.0) }
    }

    fn hook(self, function: Function) -> impl Fn(&State) -> Result<(), BoxError> + Send + 'static {
        move |state| match self.call(function, state) {
            0 => Ok(()),
            code => Err(format!("it has returned {code}").into()),
        }
    }

    fn key(self, function: KeyFunction, index: u32) -> impl Fn(&State) -> String + 'static {
        move |state| {
            let round = rl_round::of(state);
            let mut value: Vec<c_char> = vec![0; KEY];
            // SAFETY: a function of the caller's, with what the header says that it gets.
            let code = unsafe { function(&raw const round, index, value.as_mut_ptr(), KEY, self.0) };
            let bytes: Vec<u8> = value.iter().map(|c| c.cast_unsigned()).take_while(|b| *b != 0).collect();
            // Panics of the program's functions are caught where they are called; this is one.
            assert!(code == 0 && bytes.len() < KEY, "key {index} has no value: its function has returned {code}");
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}

pub(super) fn is_running() -> bool {
    CALLED.load(Ordering::Acquire)
}

struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        *RUNNING.write().unwrap_or_else(PoisonError::into_inner) = None;
        CALLED.store(false, Ordering::Release);
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_run(
    function: Option<Function>,
    hooks: *const rl_hooks,
    user: *mut c_void,
    options: *const rl_options,
) -> c_int {
    guarded(|| {
        let function = function.ok_or_else(|| Failure::argument("a function is needed, and NULL was given"))?;
        // SAFETY: as the caller says.
        let options = unsafe { options.as_ref() };
        // SAFETY: as the caller says.
        let hooks = unsafe { hooks.as_ref() };
        let (mut restart, keys) = match options {
            // SAFETY: as the caller says.
            Some(options) => unsafe { with_options(options) }?,
            None => (Restart::builder(), 0),
        };
        let user = User(user);
        if let Some(hooks) = hooks {
            restart = with_hooks(restart, hooks, keys, user);
        }
        if CALLED.swap(true, Ordering::AcqRel) {
            return Err(Error::Order("rl_run has been called, and has not returned").into());
        }
        let _ends = Ends;
        let session = restart.open()?;
        *RUNNING.write().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        let _closes = Closes(&session);
        let body = |round: &Round| {
            ENDS.store(false, Ordering::Release);
            match user.call(function, round.state()) {
                0 => Ok(()),
                code => {
                    if ENDS.load(Ordering::Acquire) {
                        round.end();
                    }
                    Err(format!("the function has returned {code}"))
                }
            }
        };
        restart.rounds(&session, body)?;
        Ok(())
    })
}

/// # Safety
/// The terms are as many as they say.
unsafe fn with_options(options: &rl_options) -> Result<(Restart<'static>, u32), Failure> {
    if options.flags > 1 {
        return Err(Failure::argument("known flags are needed"));
    }
    // SAFETY: as the caller says.
    let terms = unsafe { pairs(options.terms, options.terms_count) }?;
    let mut restart = Restart::builder();
    let mut keys = 0;
    for (name, value) in terms {
        let (name, value) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&value));
        if name == "keys" {
            keys = value.parse().map_err(|_| Failure::argument(format!("keys={value} is no number")))?;
        }
        restart.set_term(&name, &value);
    }
    Ok((if options.flags & 1 == 0 { restart } else { restart.keep_environment() }, keys))
}

fn with_hooks(mut restart: Restart<'static>, hooks: &rl_hooks, keys: u32, user: User) -> Restart<'static> {
    if let Some(initialize) = hooks.initialize {
        restart = restart.initialize(user.hook(initialize));
    }
    if let Some(abort) = hooks.abort {
        restart = restart.abort(user.hook(abort));
    }
    if let Some(finalize) = hooks.finalize {
        restart = restart.finalize(user.hook(finalize));
    }
    if let Some(health_check) = hooks.health_check {
        restart = restart.health_check(user.hook(health_check));
    }
    if let Some(completion) = hooks.completion {
        restart = restart.completion(user.hook(completion));
    }
    if let Some(terminate) = hooks.terminate {
        restart = restart.terminate(user.hook(terminate));
    }
    if let Some(key) = hooks.key {
        restart = (0..keys).fold(restart, |restart, index| restart.key(user.key(key, index)));
    }
    restart
}

fn running() -> Result<Session, Failure> {
    let running = RUNNING.read().unwrap_or_else(PoisonError::into_inner);
    running.clone().ok_or_else(|| Error::Order("rl_run is not running").into())
}

fn about_running(call: impl FnOnce(&Session) -> Result<(), Failure>) -> c_int {
    guarded(|| call(&running()?))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_state(round: *mut rl_round) -> c_int {
    about_running(|session| {
        let state = session.state()?;
        // SAFETY: as the caller says.
        unsafe { give(round, rl_round::of(&state)) }
    })
}

/// Whether the round has ended.
#[unsafe(no_mangle)]
pub extern "C" fn rl_interrupted() -> c_int {
    let running = RUNNING.read().unwrap_or_else(PoisonError::into_inner);
    c_int::from(running.as_ref().is_some_and(Session::interrupted))
}

/// Waits for that.
#[unsafe(no_mangle)]
pub extern "C" fn rl_wait(timeout: i64) -> c_int {
    about_running(|session| {
        let timeout = time(timeout).unwrap_or(Duration::MAX);
        if session.token()?.wait(timeout) {
            return Err(Error::from(Interrupted).into());
        }
        Err(Error::TimedOut { within: timeout, missing: "the round has not ended".to_owned() }.into())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_interrupt_fd(fd: *mut c_int) -> c_int {
    about_running(|session| {
        let token = session.token()?;
        let bell = token.fd().map_err(Error::from)?;
        // SAFETY: as the caller says.
        unsafe { give(fd, bell.as_raw_fd()) }
    })
}

/// It has got on.
#[unsafe(no_mangle)]
pub extern "C" fn rl_ping() -> c_int {
    about_running(|session| Ok(session.ping()?))
}

/// It may be silent; 0: what was begun last is over.
#[unsafe(no_mangle)]
pub extern "C" fn rl_section(limit: i64) -> c_int {
    about_running(|session| match limit {
        0 => Ok(session.section_end(None)?),
        limit => Ok(session.section_begin(time(limit)).map(|_number| ())?),
    })
}

/// This thread is not interrupted.
#[unsafe(no_mangle)]
pub extern "C" fn rl_atomic_begin() -> c_int {
    about_running(|session| Ok(session.atomic_begin()?))
}

/// It may be again.
#[unsafe(no_mangle)]
pub extern "C" fn rl_atomic_end() -> c_int {
    about_running(|session| Ok(session.atomic_end()?))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_fault(text: *const c_char) -> c_int {
    about_running(|session| {
        if text.is_null() {
            return Err(Failure::argument("a reason is needed, and NULL was given"));
        }
        // SAFETY: as the caller says.
        let text = unsafe { CStr::from_ptr(text) };
        Ok(session.fault(text.to_bytes())?)
    })
}

/// The process ends with what the function returns.
#[unsafe(no_mangle)]
pub extern "C" fn rl_end() -> c_int {
    about_running(|_| {
        ENDS.store(true, Ordering::Release);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::error::OK;
    use super::*;
    use std::ptr::null_mut;

    unsafe extern "C" fn asks(_: *const rl_round, _: u32, value: *mut c_char, _: usize, _: *mut c_void) -> c_int {
        let is_early = rl_interrupted() == 0 && rl_ping() != OK && is_running();
        // SAFETY: there is room, as the header says.
        unsafe { value.write(0x78) };
        c_int::from(!is_early)
    }

    unsafe extern "C" fn works(_: *const rl_round, _: *mut c_void) -> c_int {
        rl_ping()
    }

    /// Before the session is there, in the same thread.
    #[test]
    fn a_key_may_ask_whether_there_is_a_round() {
        let _turn = crate::session::tests::turn();
        let terms = [rl_pair::of("keys", "1")];
        let options = rl_options { terms: terms.as_ptr(), terms_count: 1, flags: 1 };
        let hooks = rl_hooks {
            initialize: None,
            abort: None,
            finalize: None,
            health_check: None,
            completion: None,
            terminate: None,
            key: Some(asks),
        };
        // SAFETY: all of it is there.
        assert_eq!(unsafe { rl_run(Some(works), &raw const hooks, null_mut(), &raw const options) }, OK);
        assert!(!is_running());
    }
}
