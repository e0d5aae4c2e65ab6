//! The state that the training thread shares with the thread that waits for the agent.

use super::alone::Alone;
use super::inbox_reader::InboxReader;
use super::{Next, over};
use crate::kernel::{Bell, Known, Watch, send_all};
use crate::state::{Cause, State};
use crate::token::Token;
use crate::{Error, Interrupted};
use rlaunch_base::id::{Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Begin, ClientMessage};
use std::collections::VecDeque;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Bits that are looked at without the lock: the training thread is in the function.
pub(super) const INSIDE: u8 = 1;
/// The round is to be left.
pub(super) const BEGUN: u8 = 2;
/// All parts have been notified.
pub(super) const PASSED: u8 = 4;
/// An interrupt waits for a ping.
pub(super) const PLANNED: u8 = 8;

/// `Py_AddPendingCall`, or what is like it.
pub(crate) type AddPending =
    extern "C" fn(call: extern "C" fn(*mut std::ffi::c_void) -> i32, arg: *mut std::ffi::c_void) -> i32;

/// The thread to be signalled, the signal, and the delay after the notification of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Aim {
    pub(crate) tid: i32,
    pub(crate) signo: i32,
    pub(crate) delay: Duration,
}

/// The position of the training thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Ready, and in no round.
    Idle,
    /// A round has begun, and its function was not entered yet.
    Begun,
    /// In a round, and out of its function.
    Outside,
    /// In the function.
    Inside,
    /// There are no rounds any more.
    Over,
}

impl Phase {
    /// Whether the training thread has a round that it could leave.
    pub(super) const fn is_in_round(self) -> bool {
        match self {
            Self::Begun | Self::Outside | Self::Inside => true,
            Self::Idle | Self::Over => false,
        }
    }
}

/// How far the present round has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    /// Not at all.
    No,
    /// The end is decided; an atomic section may still run.
    Decided,
    /// Sockets and waits are ended; hooks run.
    Begun,
    /// All parts have been notified.
    Passed,
}

/// An interrupt that is not decided yet: of a round that was not taken, or until the next ping.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) round: Round,
    pub(super) fault: Fault,
    /// At the latest then; `None`: at once.
    pub(super) at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pid: u32,
    /// Outside rlaunch there is none.
    pub(super) socket: Option<Arc<UnixStream>>,
    pub(super) sending: Mutex<()>,
    pub(super) bell: Bell,
    pub(super) watch: Watch,
    /// The bytes of incomplete frames. For who has the ear.
    pub(super) came: Mutex<Vec<u8>>,
    pub(super) inner: Mutex<Inner>,
    pub(super) changed: Condvar,
    pub(super) bits: AtomicU8,
    pub(super) pings: AtomicU64,
    /// Number of pings that the agent knows of.
    pub(super) sent_pings: AtomicU64,
    /// Whether a ping of this round was reported to the agent.
    pub(super) has_reported_ping: AtomicBool,
    /// The other thread will look at `pings` by itself.
    pub(super) looking: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) phase: Phase,
    pub(super) state: Option<State>,
    pub(super) returned: bool,
    pub(super) leaving: Leaving,
    /// Whether it is left because that was planned: until now its silence was counted.
    pub(super) planned: bool,
    pub(super) cause: Option<Cause>,
    pub(super) pending: Option<Pending>,
    pub(super) ear: InboxReader,
    pub(super) token: Token,
    /// Messages that have come and were not taken.
    pub(super) inbox: VecDeque<AgentMessage>,
    /// Nothing will come any more, for this reason.
    pub(super) over: Option<String>,
    pub(super) closed: bool,
    /// Threads, once for each time that they have begun something atomic.
    pub(super) atomic: Vec<ThreadId>,
    pub(super) sockets: Vec<Known>,
    /// Open sections in which silence is allowed, with their limits: the last of them counts.
    pub(super) sections: Vec<(u64, Option<Duration>)>,
    pub(super) next_section: u64,
    /// How many threads wait until something has changed.
    pub(super) waiting: u32,
    /// Whether the caller reports the abort of a round.
    pub(super) foreign: bool,
    pub(super) is_interrupt_reported: bool,
    pub(super) aborted: bool,
    pub(super) aim: Option<Aim>,
    pub(super) auto: Option<AddPending>,
    pub(super) auto_at: Option<Instant>,
    pub(super) alone: Option<Alone>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }

    pub(super) fn is(&self, bits: u8) -> bool {
        self.bits.load(Ordering::Acquire) & bits == bits
    }

    /// Waits until something has changed.
    pub(super) fn wait<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        inner.waiting += 1;
        let mut inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        inner.waiting -= 1;
        inner
    }

    /// The same, but not for longer than this.
    pub(super) fn wait_at_most<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        most: Duration,
    ) -> MutexGuard<'a, Inner> {
        inner.waiting += 1;
        let (mut inner, _) = self.changed.wait_timeout(inner, most).unwrap_or_else(PoisonError::into_inner);
        inner.waiting -= 1;
        inner
    }

    /// Something has. The kernel has to wake a thread only where one waits.
    pub(super) fn notify(&self, inner: MutexGuard<'_, Inner>) {
        let waiting = inner.waiting > 0;
        drop(inner);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Brings the bits up to date.
    pub(super) fn note(&self, inner: &Inner) {
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        let bits = bit(inner.phase == Phase::Inside, INSIDE)
            | bit(matches!(inner.leaving, Leaving::Begun | Leaving::Passed), BEGUN)
            | bit(inner.leaving == Leaving::Passed, PASSED)
            | bit(inner.pending.is_some(), PLANNED);
        self.bits.store(bits, Ordering::Release);
    }

    pub(super) fn has_unsent_pings(&self) -> bool {
        self.pings.load(Ordering::SeqCst) != self.sent_pings.load(Ordering::Acquire)
    }

    /// Sends a message to the agent, if there is one.
    pub(super) fn say(&self, said: &ClientMessage) -> Result<(), Error> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(send_all(socket, &said.to_frame())?)
    }

    pub(super) fn hang_up(&self) {
        if let Some(socket) = &self.socket {
            // It may be closed already.
            let _closed = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Inner {
    pub(super) fn new(foreign: bool, alone: Option<Alone>) -> Self {
        Self {
            phase: Phase::Idle,
            state: None,
            returned: false,
            leaving: Leaving::No,
            planned: false,
            cause: None,
            pending: None,
            ear: InboxReader::Free,
            token: Token::default(),
            inbox: VecDeque::new(),
            over: None,
            closed: false,
            atomic: Vec::new(),
            sockets: Vec::new(),
            sections: Vec::new(),
            next_section: 0,
            waiting: 0,
            foreign,
            is_interrupt_reported: false,
            aborted: false,
            aim: None,
            auto: None,
            auto_at: None,
            alone,
        }
    }

    pub(super) fn still_in(&self) -> Result<(), Interrupted> {
        if self.leaving == Leaving::No { Ok(()) } else { Err(Interrupted) }
    }

    pub(super) fn is_atomic(&self, thread: ThreadId) -> bool {
        self.atomic.contains(&thread)
    }

    /// The round is to be left. The first reason is it.
    pub(super) fn decide(&mut self, cause: Cause) {
        if self.leaving == Leaving::No {
            (self.leaving, self.cause) = (Leaving::Decided, Some(cause));
        }
    }

    /// Whether an interrupt is about the present round, and it is time for it. A planned interrupt waits for a ping (`now` is `None`), also
    /// before the function was entered: other ranks may have entered it, and wait in it for this one. Behind the function no ping comes.
    pub(super) fn pending_is_due(&self, now: Option<Instant>) -> bool {
        let Some(pending) = self.pending_here() else { return false };
        match (pending.at, now) {
            (Some(at), Some(now)) => self.phase == Phase::Outside || at <= now,
            (None, _) | (_, None) => true,
        }
    }

    /// The interrupt that is about the present round, and not decided yet.
    pub(super) fn pending_here(&self) -> Option<&Pending> {
        let (pending, state) = self.pending.as_ref().zip(self.state.as_ref())?;
        (self.phase.is_in_round() && pending.round.get() == state.number).then_some(pending)
    }

    pub(super) fn take_pending(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.planned = self.leaving == Leaving::No && pending.at.is_some();
            self.decide(Cause::Fault(pending.fault));
        }
    }

    pub(super) fn own_fault(&self, kind: FaultKind, text: OsBytes) -> Fault {
        let initial = Rank::new(self.state.as_ref().map_or(0, |state| state.initial_rank));
        Fault { initial, kind, text }
    }

    /// Returns the next step of the training thread; `None`: nothing yet.
    pub(super) fn next(&mut self) -> Result<Option<Next>, Error> {
        if self.closed || self.phase == Phase::Over {
            return Err(over());
        }
        let ends = |message: &AgentMessage| matches!(message, AgentMessage::Finish(_) | AgentMessage::Dismissed(..));
        if let Some(at) = self.inbox.iter().position(ends) {
            self.phase = Phase::Over;
            return Ok(self.inbox.remove(at).and_then(|last| match last {
                AgentMessage::Finish(_) => Some(Next::Finish),
                AgentMessage::Dismissed(why, text) => {
                    Some(Next::Dismissed(why, String::from_utf8_lossy(&text).into_owned()))
                }
                AgentMessage::Begin(_) | AgentMessage::Interrupt(..) | AgentMessage::Unsupported(_) => None,
            }));
        }
        if let Some(why) = &self.over {
            return Err(Error::Closed(why.clone()));
        }
        if matches!(self.phase, Phase::Begun | Phase::Outside) && self.leaving != Leaving::No {
            let (Leaving::Passed, Some(state), Some(cause)) = (self.leaving, &self.state, &self.cause) else {
                return Ok(None);
            };
            return Ok(Some(Next::Interrupt(state.clone(), cause.clone())));
        }
        Ok(self.inbox.pop_front().and_then(|message| match message {
            AgentMessage::Begin(begin) => Some(self.begin(begin)),
            AgentMessage::Interrupt(..)
            | AgentMessage::Finish(_)
            | AgentMessage::Dismissed(..)
            | AgentMessage::Unsupported(_) => None,
        }))
    }

    fn begin(&mut self, begin: Begin) -> Next {
        let state = State::of(&begin);
        self.phase = Phase::Begun;
        self.returned = false;
        (self.leaving, self.cause) = (Leaving::No, None);
        (self.is_interrupt_reported, self.aborted, self.planned) = (false, false, false);
        self.token = Token::default();
        self.sockets.clear();
        self.sections.clear();
        if self.pending.as_ref().is_some_and(|pending| pending.round < begin.round) {
            self.pending = None;
        }
        self.state = Some(state.clone());
        let plain = |(name, value): (OsBytes, Option<OsBytes>)| (name.into_vec(), value.map(OsBytes::into_vec));
        Next::Begin(state, begin.env.into_iter().map(plain).collect())
    }
}
