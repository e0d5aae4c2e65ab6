//! Structures of the header, and what they are made from.
#![forbid(unsafe_code)]

use crate::state::{Cause, Fault, FaultKind, Leave, Mode, State};
use rlaunch_base::status::Status;
use std::ffi::c_char;
use std::time::Duration;

/// Room for a text with its end: `rank_fault::TEXT`, and a little more.
const TEXT: usize = 2052;

/// A name and its value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_pair {
    pub(super) name: *const c_char,
    pub(super) name_len: usize,
    pub(super) value: *const c_char,
    pub(super) value_len: usize,
}

#[cfg(test)]
impl rl_pair {
    pub(super) const fn of(name: &'static str, value: &'static str) -> Self {
        Self { name: name.as_ptr().cast(), name_len: name.len(), value: value.as_ptr().cast(), value_len: value.len() }
    }
}

/// Bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_bytes {
    pub(super) data: *const c_char,
    pub(super) len: usize,
}

/// How a rank came to need another round.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_fault_info {
    kind: u32,
    initial_rank: u32,
    code: i32,
    signal: i32,
    text: [c_char; TEXT],
}

/// A round, as one process sees it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_round {
    number: u32,
    mode: u32,
    rank: u32,
    world_size: u32,
    active_rank: u32,
    active_world_size: u32,
    initial_rank: u32,
    initial_world_size: u32,
    fault: rl_fault_info,
}

/// The next step of the training thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rl_next {
    pub(super) kind: u32,
    pub(super) round: rl_round,
    pub(super) text: [c_char; TEXT],
}

impl rl_fault_info {
    fn of(fault: Option<&Fault>) -> Self {
        let Some(fault) = fault else {
            return Self { kind: 0, initial_rank: 0, code: -1, signal: -1, text: [0; TEXT] };
        };
        let (kind, code, signal) = match fault.kind {
            FaultKind::Exception => (1, -1, -1),
            FaultKind::Hang => (2, -1, -1),
            FaultKind::Ended(status) => with_status(3, status),
            FaultKind::Overdue(status) => with_status(4, status),
            FaultKind::Left(Leave::BaseException) => (5, 0, -1),
            FaultKind::Left(Leave::Abort) => (5, 1, -1),
            FaultKind::Left(Leave::Unhealthy) => (5, 2, -1),
            FaultKind::HostLost => (6, -1, -1),
            FaultKind::Warned => (7, -1, -1),
            FaultKind::Joined => (8, -1, -1),
        };
        Self { kind, initial_rank: fault.initial.get(), code, signal, text: text(&fault.text) }
    }

    pub(super) fn of_cause(cause: &Cause) -> Self {
        match cause {
            Cause::Fault(fault) => Self::of(Some(fault)),
            Cause::Over(why) => Self { kind: 9, text: text(why.as_bytes()), ..Self::of(None) },
        }
    }
}

fn with_status(kind: u32, status: Status) -> (u32, i32, i32) {
    match status {
        Status::Exited(code) => (kind, i32::from(code), -1),
        Status::Signaled { sig, .. } => (kind, -1, i32::from(sig.get())),
        Status::Lost => (kind, -1, -1),
    }
}

impl rl_round {
    pub(super) fn of(state: &State) -> Self {
        Self {
            number: state.number,
            mode: match state.mode {
                Mode::Initialized => 0,
                Mode::Active => 1,
                Mode::Inactive => 2,
                Mode::Terminated => 3,
            },
            rank: state.rank,
            world_size: state.world_size,
            active_rank: state.active_rank.unwrap_or(u32::MAX),
            active_world_size: state.active_world_size,
            initial_rank: state.initial_rank,
            initial_world_size: state.initial_world_size,
            fault: rl_fault_info::of(state.fault.as_ref()),
        }
    }

    /// The same, after its end.
    pub(super) fn ended(state: &State, cause: &Cause) -> Self {
        Self { fault: rl_fault_info::of_cause(cause), ..Self::of(state) }
    }

    /// Kind and rank.
    #[cfg(test)]
    pub(super) const fn of_fault(&self) -> (u32, u32) {
        (self.fault.kind, self.fault.initial_rank)
    }

    pub(super) const fn none() -> Self {
        let fault = rl_fault_info { kind: 0, initial_rank: 0, code: -1, signal: -1, text: [0; TEXT] };
        Self {
            number: 0,
            mode: 0,
            rank: 0,
            world_size: 0,
            active_rank: u32::MAX,
            active_world_size: 0,
            initial_rank: 0,
            initial_world_size: 0,
            fault,
        }
    }
}

/// A text with its end, cut where there is no room for it; not within a character. Bytes that would end it are left out.
pub(super) fn text(bytes: &[u8]) -> [c_char; TEXT] {
    let lossy = String::from_utf8_lossy(bytes);
    let mut all = [0; TEXT];
    let mut len = lossy.len().min(TEXT - 1);
    while !lossy.is_char_boundary(len) {
        len -= 1;
    }
    let shown = lossy.as_bytes().iter().take(len).filter(|b| **b != 0);
    all.iter_mut().zip(shown).for_each(|(to, from)| *to = c_char::from_ne_bytes([*from]));
    all
}

/// A time of the header: milliseconds, below 0 without end.
pub(super) fn time(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}
