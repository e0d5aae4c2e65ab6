//! Results of C: a number, and what is known beside it.
#![forbid(unsafe_code)]

use crate::caught::caught;
use crate::{Error, RestartError};
use rlaunch_protocol::wire::frozen::client::Code;
use rlaunch_sys_client::HoldError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

/// The numbers of the header, with what they mean.
pub(super) const CODES: &[(&str, c_int, &CStr)] = &[
    ("RL_OK", OK, c"done"),
    ("RL_E_ARGUMENT", ARGUMENT, c"an argument is none"),
    ("RL_E_NO_JOB", NO_JOB, c"the agent of this job of several ranks is nowhere to be found"),
    ("RL_E_CONNECT", CONNECT, c"the agent cannot be reached"),
    ("RL_E_CLOSED", CLOSED, c"the connection or the session has ended"),
    ("RL_E_PROTOCOL", PROTOCOL, c"the agent says what this version does not understand"),
    ("RL_E_TIMEOUT", TIMEOUT, c"it did not come in time"),
    ("RL_E_REFUSED", REFUSED, c"it was refused"),
    ("RL_E_INTERRUPTED", INTERRUPTED, c"the round has ended: the function is to be left"),
    ("RL_E_NOT_FOUND", NOT_FOUND, c"there is no such key"),
    ("RL_E_TOO_LONG", TOO_LONG, c"it is too long"),
    ("RL_E_FORKED", FORKED, c"this is a forked child of the process that has the session"),
    ("RL_E_ORDER", ORDER, c"this is not the moment for it"),
    ("RL_E_SYSTEM", SYSTEM, c"the system does not allow it"),
    ("RL_E_PANIC", PANIC, c"a mistake in the library"),
    ("RL_E_DISCARDED", DISCARDED, c"this process is not needed any more"),
    ("RL_E_GIVEN_UP", GIVEN_UP, c"no further round is possible"),
    ("RL_E_INDEX", INDEX, c"an index is out of range"),
    ("RL_E_LENGTH", LENGTH, c"there are more or fewer values than calls"),
    ("RL_E_LEFT", LEFT, c"this process takes no part in rounds any more"),
];

pub(super) const OK: c_int = 0;
pub(super) const ARGUMENT: c_int = -1;
const NO_JOB: c_int = -2;
const CONNECT: c_int = -3;
const CLOSED: c_int = -4;
const PROTOCOL: c_int = -5;
pub(super) const TIMEOUT: c_int = -6;
const REFUSED: c_int = -7;
pub(super) const INTERRUPTED: c_int = -8;
pub(super) const NOT_FOUND: c_int = -9;
const TOO_LONG: c_int = -10;
const FORKED: c_int = -11;
const ORDER: c_int = -12;
const SYSTEM: c_int = -13;
const PANIC: c_int = -14;
const DISCARDED: c_int = -15;
const GIVEN_UP: c_int = -16;
const LEFT: c_int = -17;
pub(super) const INDEX: c_int = -18;
pub(super) const LENGTH: c_int = -19;

/// Why a call has failed.
#[derive(Debug)]
pub(super) struct Failure {
    code: c_int,
    text: String,
}

impl Failure {
    pub(super) fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(super) fn argument(text: impl Into<String>) -> Self {
        Self::new(ARGUMENT, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::NoJob | Error::NoGroup | Error::NoSocket(_) => NO_JOB,
            Error::Connect { .. } | Error::ForeignSocket { .. } | Error::Worker { .. } => CONNECT,
            Error::Closed(_) => CLOSED,
            Error::Io(_) => SYSTEM,
            Error::Malformed | Error::Unsupported(_) | Error::Version(_) => PROTOCOL,
            Error::TooLong(_) => TOO_LONG,
            Error::TimedOut { .. } | Error::Refused { code: Code::TimedOut, .. } => TIMEOUT,
            Error::Interrupted(_) => INTERRUPTED,
            Error::Forked => FORKED,
            Error::Variable { .. } | Error::Terms(_) | Error::Key(_) => ARGUMENT,
            Error::Order(_) => ORDER,
            Error::Refused { .. } => REFUSED,
        };
        Self::new(code, error.to_string())
    }
}

impl From<HoldError> for Failure {
    fn from(error: HoldError) -> Self {
        match error {
            HoldError::Argument(text) => Self::argument(text),
            HoldError::System(_) => Self::new(SYSTEM, error.to_string()),
        }
    }
}

impl From<RestartError> for Failure {
    fn from(error: RestartError) -> Self {
        let text = error.to_string();
        match error {
            RestartError::Discarded(_) => Self::new(DISCARDED, text),
            RestartError::GivenUp(_) => Self::new(GIVEN_UP, text),
            RestartError::Refused(_) => Self::new(REFUSED, text),
            RestartError::Left { .. } => Self::new(LEFT, text),
            RestartError::Client(error) => error.into(),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call.
pub(super) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match caught(body) {
        Ok(Ok(())) => return OK,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(PANIC, panic),
    };
    let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
    // In a thread that ends already the error is not read.
    let _ended = LAST.try_with(|last| last.replace(text));
    failure.code
}

/// The text of a result.
pub(super) fn rl_error_text(code: c_int) -> *const c_char {
    let known = CODES.iter().find(|(_, known, _)| *known == code);
    known.map_or(c"an unknown result", |(.., text)| text).as_ptr()
}

/// The details of this thread's last failure.
pub(super) fn rl_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Which header this library is of.
pub(super) const fn rl_abi() -> u32 {
    1
}
