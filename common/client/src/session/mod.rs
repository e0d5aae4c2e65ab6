//! A process's part in rounds, step by step: what [`crate::Restart`] and the faces of other languages stand on.
//!
//! A thread, the *training thread*, goes through the rounds. Another one, of this library, waits for the agent, and has the round left on
//! its order ([`monitor`]). Both share [`inner::Inner`], under one lock.
//!
//! A forked child has a copy of all this and no second thread. A child has no part in the session: every call first checks the process.

mod alone;
mod inbox_reader;
mod inner;
mod monitor;
mod open;
#[cfg(test)]
pub(crate) mod tests;

use crate::kernel::Known;
use crate::state::{Cause, Leave, State};
use crate::token::Token;
use crate::{Error, Interrupted, call_guard};
use alone::Alone;
pub(crate) use inner::{AddPending, Aim};
use inner::{Inner, Leaving, Phase, Shared};
pub(crate) use open::Options;
use rlaunch_base::id::Round;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_protocol::rank_fault::{FaultKind, TEXT};
use rlaunch_protocol::wire::frozen::client::client_round::{ClientMessage, Dismissal};
use rlaunch_sys_client::gloo;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

/// The next step of the training thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Begin this round, with these variables.
    Begin(State, Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// Clean up, and be ready for another one: this one has ended.
    Interrupt(State, Cause),
    /// Return: the work is done.
    Finish,
    /// Return: it takes no part any more.
    Dismissed(Dismissal, String),
}

/// A thread's hold on the session of a process.
#[derive(Clone, Debug)]
pub(crate) struct Session(Arc<Shared>);

impl Session {
    /// Waits for what comes next.
    pub(crate) fn next(&self) -> Result<Next, Error> {
        let mut inner = self.here()?;
        loop {
            if inner.phase == Phase::Inside {
                return Err(Error::Order("the function has to be left before the next round is waited for"));
            }
            let pause = inner.alone.as_ref().map_or(Duration::ZERO, Alone::pause);
            if pause > Duration::ZERO && !inner.closed {
                inner = self.0.wait_at_most(inner, pause);
                continue;
            }
            if let Some(next) = inner.next()? {
                self.0.hand_over(&mut inner);
                if inner.pending.is_some() {
                    // The round may have been interrupted before it was taken.
                    self.0.bell.ring();
                }
                return Ok(next);
            }
            inner = self.0.wait_changed(inner);
        }
    }

    /// The training thread enters the function of the round.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        let mut inner = self.here()?;
        if !matches!(inner.phase, Phase::Begun | Phase::Outside) || inner.returned {
            return Err(Error::Order("there is no round whose function could be entered"));
        }
        if inner.leaving != Leaving::No {
            return Err(Interrupted.into());
        }
        inner.phase = Phase::Inside;
        gloo::over();
        inner.auto_at = None;
        // Pings of the round before are none of this one.
        self.0.sent_pings.store(self.0.pings.load(Ordering::SeqCst), Ordering::Release);
        self.0.has_reported_ping.store(false, Ordering::Release);
        self.0.note(&inner);
        if inner.auto.is_some() {
            self.0.bell.ring();
        }
        Ok(())
    }

    /// Records that the round was left.
    pub(crate) fn exit(&self) -> Result<(), Error> {
        let mut inner = self.here()?;
        if inner.phase != Phase::Inside {
            return Err(Error::Order("the function was not entered"));
        }
        inner.phase = Phase::Outside;
        // Sections that the function has not ended end with it: they could not be ended otherwise.
        let own = thread::current().id();
        inner.atomic.retain(|thread| *thread != own);
        self.0.note(&inner);
        call_guard::open();
        if self.0.has_unsent_pings()
            && !self.0.has_reported_ping.load(Ordering::Acquire)
            && let Some(state) = inner.state.as_ref().filter(|_| inner.alone.is_none())
        {
            // A ping counts however soon its round has ended. The loss of the agent is noticed by the next step.
            self.0.sent_pings.store(self.0.pings.load(Ordering::SeqCst), Ordering::Release);
            drop(self.0.say(&ClientMessage::Alive(Round::new(state.number), true)));
        }
        if inner.pending.is_some() || inner.leaving == Leaving::Decided {
            // It waited for a ping, or for an end, and none will come.
            self.0.bell.ring();
        }
        inner.still_in().map_err(Error::from)
    }

    /// The function has failed.
    pub(crate) fn fault(&self, text: &[u8]) -> Result<(), Error> {
        let mut inner = self.here()?;
        let state = inner.state.clone().ok_or(Error::Order("there is no round that could fail"))?;
        inner.still_in()?;
        if inner.returned {
            return Err(Error::Order("the function has returned in this round"));
        }
        let fault = inner.own_fault(FaultKind::Exception, cut(text));
        self.0.say(&ClientMessage::Fault(Round::new(state.number), fault.text.clone()))?;
        inner.decide(Cause::Fault(fault));
        drop(inner);
        self.0.bell.ring();
        Ok(())
    }

    /// The function has returned.
    pub(crate) fn returned(&self) -> Result<(), Error> {
        let mut inner = self.here()?;
        inner.still_in()?;
        let (Some(state), Phase::Begun | Phase::Outside, false) = (&inner.state, inner.phase, inner.returned) else {
            return Err(Error::Order("there is no function that could have returned"));
        };
        let round = Round::new(state.number);
        (inner.returned, inner.phase) = (true, Phase::Outside);
        let inner = &mut *inner;
        match &mut inner.alone {
            Some(alone) => alone.returned(&mut inner.inbox),
            None => self.0.say(&ClientMessage::Returned(round))?,
        }
        Ok(())
    }

    /// Cleaned up and healthy.
    pub(crate) fn ready(&self, keys: Vec<OsBytes>) -> Result<(), Error> {
        self.wait_aborted()?;
        let mut inner = self.here()?;
        let (Some(state), Phase::Begun | Phase::Outside) = (inner.state.clone(), inner.phase) else {
            return Err(Error::Order("there is no round that was left"));
        };
        inner.phase = Phase::Idle;
        let inner = &mut *inner;
        match &mut inner.alone {
            Some(alone) => alone.ready(&state, inner.cause.as_ref(), &mut inner.inbox),
            // The next step reports a session that has ended.
            None => drop(self.0.say(&ClientMessage::Ready(Round::new(state.number), keys))),
        }
        Ok(())
    }

    /// Leaves the restart group.
    pub(crate) fn leave(&self, why: Leave, text: &[u8]) -> Result<(), Error> {
        let mut inner = self.here()?;
        if inner.phase == Phase::Over {
            return Err(Error::Order("the session is over"));
        }
        let fault = inner.own_fault(FaultKind::Left(why), cut(text));
        self.0.say(&ClientMessage::Leave(why, fault.text.clone()))?;
        inner.decide(Cause::Fault(fault));
        inner.phase = Phase::Over;
        self.0.note(&inner);
        call_guard::open();
        drop(inner);
        self.0.bell.ring();
        Ok(())
    }

    /// Ends the session: all who wait for it come out.
    pub(crate) fn close(&self) {
        let Ok(mut inner) = self.here() else { return };
        inner.closed = true;
        inner.phase = Phase::Over;
        self.0.note(&inner);
        self.0.notify(inner);
        call_guard::takes_no_part();
        gloo::disarm();
        self.0.hang_up();
        self.0.bell.ring();
    }

    /// Waits until a round is to be left that this call has not yet returned.
    pub(crate) fn wait_interrupt(&self) -> Result<Cause, Error> {
        let mut inner = self.here()?;
        call_guard::this_thread_is_free();
        loop {
            if inner.closed {
                return Err(over());
            }
            if matches!(inner.leaving, Leaving::Begun | Leaving::Passed)
                && !std::mem::replace(&mut inner.is_interrupt_reported, true)
                && let Some(cause) = &inner.cause
            {
                return Ok(cause.clone());
            }
            inner = self.0.wait(inner);
        }
    }

    /// Records that the abort is done.
    pub(crate) fn aborted(&self) -> Result<(), Error> {
        self.here()?.aborted = true;
        self.0.bell.ring();
        Ok(())
    }

    /// Whether that is waited for. Of a round that is being left already it changes nothing.
    pub(crate) fn foreign_abort(&self, on: bool) -> Result<(), Error> {
        self.here()?.foreign = on;
        Ok(())
    }

    /// Waits for that, and for the notification of all other parts.
    pub(crate) fn wait_aborted(&self) -> Result<(), Error> {
        let mut inner = self.here()?;
        if inner.leaving == Leaving::No {
            return Err(Error::Order("the round has not ended"));
        }
        while inner.leaving != Leaving::Passed {
            if inner.closed {
                return Err(over());
            }
            inner = self.0.wait(inner);
        }
        Ok(())
    }

    /// The present round.
    pub(crate) fn state(&self) -> Result<State, Error> {
        self.here()?.state.clone().ok_or(Error::Order("there is no round"))
    }

    /// Why the round is to be left, if it is.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.here().ok()?.cause.clone()
    }

    /// Whether the training thread is to leave the function at this moment. Waits for nothing.
    pub(crate) fn due(&self) -> bool {
        self.0.is(inner::INSIDE | inner::PASSED) && self.0.is_here()
    }

    /// Whether the round is to be left. Waits for nothing.
    pub(crate) fn interrupted(&self) -> bool {
        self.0.is(inner::BEGUN) && self.0.is_here()
    }

    /// The end of the present round.
    pub(crate) fn token(&self) -> Result<Token, Error> {
        Ok(self.here()?.token.clone())
    }

    /// Sets the thread to be signalled, the signal, and the delay after the notification of the others.
    pub(crate) fn signal_thread(&self, aim: Option<Aim>) -> Result<(), Error> {
        self.here()?.aim = aim;
        self.0.bell.ring();
        Ok(())
    }

    /// How it is noticed by itself whether the process makes progress.
    pub(crate) fn auto_progress(&self, add: Option<AddPending>) -> Result<(), Error> {
        let mut inner = self.here()?;
        (inner.auto, inner.auto_at) = (add, None);
        self.0.bell.ring();
        Ok(())
    }

    /// The process has made progress, and can be interrupted here.
    pub(crate) fn ping(&self) -> Result<(), Error> {
        if !self.0.is_here() {
            return Err(Error::Forked);
        }
        if self.0.is(inner::BEGUN) {
            return Err(Interrupted.into());
        }
        // In one order for both threads, as in `Monitor::pings`: either the count is seen there, or here that no thread looks.
        self.0.pings.fetch_add(1, Ordering::SeqCst);
        if !self.0.looking.swap(true, Ordering::SeqCst) {
            self.0.bell.ring();
        }
        if !self.0.is(inner::PLANNED) {
            return Ok(());
        }
        let mut inner = self.here()?;
        if inner.is_atomic(thread::current().id()) || !inner.pending_is_due(None) {
            return Ok(());
        }
        inner.take_pending();
        drop(inner);
        self.0.bell.ring();
        Err(Interrupted.into())
    }

    /// For so long it may be silent (`None`: for ever); zero: its own limits again.
    pub(crate) fn section(&self, limit: Option<Duration>) -> Result<(), Error> {
        let inner = self.here()?;
        let state = inner.state.as_ref().ok_or(Error::Order("there is no round"))?;
        // A section that ends while the round is left does not begin to count again.
        if inner.alone.is_some() || (inner.leaving != Leaving::No && inner.phase != Phase::Over) {
            return Ok(());
        }
        self.0.say(&ClientMessage::Section(Round::new(state.number), limit.map(span)))
    }

    /// Hooks run where nothing else is looked at, or have come to their end.
    pub(crate) fn hooks(&self, run: bool) -> Result<(), Error> {
        let inner = self.here()?;
        let round = inner.state.as_ref().map_or(0, |state| state.number);
        self.0.say(&ClientMessage::Hooks(Round::new(round), run))
    }

    /// The same until [`Session::section_end`], by the number that comes back; then what held before holds again.
    pub(crate) fn section_begin(&self, limit: Option<Duration>) -> Result<u64, Error> {
        // Zero would be its own limits.
        let limit = limit.map(|limit| limit.max(Duration::from_millis(1)));
        let mut inner = self.here()?;
        let number = inner.next_section;
        inner.next_section += 1;
        inner.sections.push((number, limit));
        drop(inner);
        self.section(limit)?;
        Ok(number)
    }

    /// Ends a section; `None`: the last one. Sections that a round has left open end with it.
    pub(crate) fn section_end(&self, number: Option<u64>) -> Result<(), Error> {
        let mut inner = self.here()?;
        let last = inner.sections.last().map(|(last, _)| *last);
        let Some(number) = number.or(last) else { return Ok(()) };
        inner.sections.retain(|(other, _)| *other != number);
        let now = inner.sections.last().map_or(Some(Duration::ZERO), |(_, limit)| *limit);
        drop(inner);
        if last == Some(number) { self.section(now) } else { Ok(()) }
    }

    /// Begins an atomic section: this thread is not interrupted until as many sections have ended as it has begun.
    pub(crate) fn atomic_begin(&self) -> Result<(), Error> {
        let mut inner = self.here()?;
        let own = thread::current().id();
        if inner.leaving != Leaving::No && !inner.is_atomic(own) {
            return Err(Interrupted.into());
        }
        inner.atomic.push(own);
        Ok(())
    }

    /// Ends the last atomic section of this thread.
    pub(crate) fn atomic_end(&self) -> Result<(), Error> {
        let mut inner = self.here()?;
        let own = thread::current().id();
        let at = inner.atomic.iter().rposition(|thread| *thread == own);
        let at = at.ok_or(Error::Order("this thread has begun nothing that is atomic"))?;
        inner.atomic.swap_remove(at);
        if inner.atomic.is_empty() && inner.leaving == Leaving::Decided {
            self.0.bell.ring();
        }
        Ok(())
    }

    /// A socket that ends with the round.
    pub(crate) fn add_socket(&self, fd: RawFd) -> Result<(), Error> {
        let mut inner = self.here()?;
        let known = Known::new(fd)?;
        if matches!(inner.leaving, Leaving::Begun | Leaving::Passed) {
            let _gone = known.shut_down();
        } else {
            inner.sockets.retain(|other| other.fd != fd);
            inner.sockets.push(known);
        }
        Ok(())
    }

    /// Forgets a socket.
    pub(crate) fn remove_socket(&self, fd: RawFd) -> Result<(), Error> {
        self.here()?.sockets.retain(|known| known.fd != fd);
        Ok(())
    }

    /// Ends them now; how many there were.
    pub(crate) fn shut_down_sockets(&self) -> Result<usize, Error> {
        let sockets = std::mem::take(&mut self.here()?.sockets);
        Ok(sockets.into_iter().filter(|known| known.shut_down()).count())
    }

    /// Returns the shared state, if this is the process that has registered.
    fn here(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        if self.0.is_here() { Ok(self.0.lock()) } else { Err(Error::Forked) }
    }
}

fn over() -> Error {
    Error::Closed("the session is over".to_owned())
}

/// A text of a fault, not longer than one may be, and not within a character.
fn cut(text: &[u8]) -> OsBytes {
    let is_within = |at: usize| text.get(at).is_some_and(|b| b & 0xc0 == 0x80);
    let mut len = text.len().min(TEXT);
    while len > 0 && is_within(len) {
        len -= 1;
    }
    OsBytes::from(text.get(..len).unwrap_or_default())
}

fn span(time: Duration) -> Span {
    Span::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
