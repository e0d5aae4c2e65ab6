//! A function that is run again, for C: [`Restart`] with pointers for hooks.
#![forbid(unsafe_code)]

use super::ffi_error::{Failure, guarded};
use super::given::{Called, Given};
use super::types::{rl_pair, rl_round, time};
use super::{Function, KeyFunction};
use crate::hooks::BoxError;
use crate::restart::Closes;
use crate::round::Round;
use crate::session::Session;
use crate::{Error, Interrupted, Restart, State};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_restart::terms::Terms;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::rc::Rc;
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

type Hooks<'a> = Given<'a, (Option<Function>, *const rl_hooks, *mut c_void)>;

/// The hooks of a program at the begin and end of a round.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_hooks {
    pub(super) initialize: Option<Function>,
    pub(super) abort: Option<Function>,
    pub(super) finalize: Option<Function>,
    pub(super) health_check: Option<Function>,
    pub(super) completion: Option<Function>,
    pub(super) terminate: Option<Function>,
    pub(super) key: Option<KeyFunction>,
}

/// How it is run.
#[repr(C)]
pub struct rl_options {
    pub(super) terms: *const rl_pair,
    pub(super) terms_count: usize,
    pub(super) flags: u32,
}

fn hook(function: Called<Function>) -> impl Fn(&State) -> Result<(), BoxError> + Send + 'static {
    move |state| match function.call(state) {
        0 => Ok(()),
        code => Err(format!("it has returned {code}").into()),
    }
}

fn key(function: Rc<Called<KeyFunction>>, index: u32) -> impl Fn(&State) -> Result<String, BoxError> + 'static {
    move |state| {
        let mut value: Vec<c_char> = vec![0; KEY];
        let code = function.call(state, index, &mut value);
        let bytes: Vec<u8> = value.iter().flat_map(|c| c.to_ne_bytes()).take_while(|b| *b != 0).collect();
        if code != 0 || bytes.len() >= KEY {
            return Err(format!("key {index} has no value: its function has returned {code}").into());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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

pub(super) fn rl_run(hooks: Hooks<'_>, options: Given<'_, (*const rl_options,)>) -> c_int {
    guarded(|| {
        let function = hooks.function().ok_or_else(|| Failure::argument("a function is needed, and NULL was given"))?;
        let (restart, keys) = match options.terms()? {
            Some((flags, terms)) => with_options(flags, terms)?,
            None => (Restart::builder(), 0),
        };
        let mut restart = with_hooks(restart, &hooks, keys);
        if CALLED.swap(true, Ordering::AcqRel) {
            return Err(Error::Order("rl_run has been called, and has not returned").into());
        }
        let _ends = Ends;
        let session = restart.open()?;
        *RUNNING.write().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        let _closes = Closes(&session);
        let body = |round: &Round| {
            ENDS.store(false, Ordering::Release);
            match function.call(round.state()) {
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

fn with_options(flags: u32, terms: Vec<(OsBytes, OsBytes)>) -> Result<(Restart<'static>, u32), Failure> {
    if flags > 1 {
        return Err(Failure::argument("known flags are needed"));
    }
    let mut restart = Restart::builder();
    let mut keys = 0;
    for (name, value) in terms {
        let (name, value) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(&value));
        if name == "keys" {
            // Checked before a hook is made for each key.
            keys = Terms::of([(name.as_bytes(), value.as_bytes())]).map_err(Error::from)?.keys;
        }
        restart.set_term(&name, &value);
    }
    Ok((if flags & 1 == 0 { restart } else { restart.keep_environment() }, keys))
}

fn with_hooks(mut restart: Restart<'static>, hooks: &Hooks<'_>, keys: u32) -> Restart<'static> {
    if let Some(initialize) = hooks.hook(|hooks| hooks.initialize) {
        restart = restart.initialize(hook(initialize));
    }
    if let Some(abort) = hooks.hook(|hooks| hooks.abort) {
        restart = restart.abort(hook(abort));
    }
    if let Some(finalize) = hooks.hook(|hooks| hooks.finalize) {
        restart = restart.finalize(hook(finalize));
    }
    if let Some(health_check) = hooks.hook(|hooks| hooks.health_check) {
        restart = restart.health_check(hook(health_check));
    }
    if let Some(completion) = hooks.hook(|hooks| hooks.completion) {
        restart = restart.completion(hook(completion));
    }
    if let Some(terminate) = hooks.hook(|hooks| hooks.terminate) {
        restart = restart.terminate(hook(terminate));
    }
    if let Some(function) = hooks.hook(|hooks| hooks.key).map(Rc::new) {
        restart = (0..keys).fold(restart, |restart, index| restart.key(key(Rc::clone(&function), index)));
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

pub(super) fn rl_state(round: Given<'_, (*mut rl_round,)>) -> c_int {
    about_running(|session| {
        let state = session.state()?;
        round.give(rl_round::of(&state))
    })
}

/// Whether the round has ended.
pub(super) fn rl_interrupted() -> c_int {
    let running = RUNNING.read().unwrap_or_else(PoisonError::into_inner);
    c_int::from(running.as_ref().is_some_and(Session::interrupted))
}

/// Waits for that.
pub(super) fn rl_wait(timeout: i64) -> c_int {
    about_running(|session| {
        let timeout = time(timeout).unwrap_or(Duration::MAX);
        if session.token()?.wait(timeout) {
            return Err(Error::from(Interrupted).into());
        }
        Err(Error::TimedOut { within: timeout, missing: "the round has not ended".to_owned() }.into())
    })
}

pub(super) fn rl_interrupt_fd(fd: Given<'_, (*mut c_int,)>) -> c_int {
    about_running(|session| {
        let token = session.token()?;
        let bell = token.fd().map_err(Error::from)?;
        fd.give(bell.as_raw_fd())
    })
}

/// The rank has made progress.
pub(super) fn rl_ping() -> c_int {
    about_running(|session| Ok(session.ping()?))
}

/// Begins a section in which the rank may be silent; 0 ends the last one.
pub(super) fn rl_section(limit: i64) -> c_int {
    about_running(|session| match limit {
        0 => Ok(session.section_end(None)?),
        limit => Ok(session.section_begin(time(limit)).map(|_number| ())?),
    })
}

/// Begins a section in which the calling thread is not interrupted.
pub(super) fn rl_atomic_begin() -> c_int {
    about_running(|session| Ok(session.atomic_begin()?))
}

/// The rank may be interrupted again.
pub(super) fn rl_atomic_end() -> c_int {
    about_running(|session| Ok(session.atomic_end()?))
}

pub(super) fn rl_fault(text: Given<'_, (*const c_char,)>) -> c_int {
    about_running(|session| {
        let text = text.text()?;
        Ok(session.fault(text.to_bytes())?)
    })
}

/// The process ends with what the function returns.
pub(super) fn rl_end() -> c_int {
    about_running(|_| {
        ENDS.store(true, Ordering::Release);
        Ok(())
    })
}
