//! The thread that waits for the agent, and has rounds left on its order.
//!
//! The thread sleeps until the agent sends a message that this thread has to read ([`ear`]) or its bell rings. It wakes by itself only
//! for timed steps: progress to be reported, a signal to be repeated, a planned interrupt whose time has expired.

use super::inbox_reader;
use super::inner::{Inner, Leaving, Phase, Shared};
use crate::call_guard;
use crate::kernel::Signals;
use crate::state::{Cause, State};
use rlaunch_base::id::Round;
use rlaunch_protocol::wire::frozen::client::client_round::ClientMessage;
use rlaunch_sys_client::{gloo, signal_thread};
use std::ffi::c_void;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The call when a round is to be left, before the training thread is notified.
pub(crate) type OnAbort = Box<dyn Fn(&State, &Cause) + Send>;

/// How long the training thread may take to come out before it is signalled once more: first so long, then twice as long, and so on.
const AGAIN: Duration = Duration::from_secs(1);

/// The program's interpreter has run something since this was last looked at. One for the process: the interpreter's call cannot
/// distinguish sessions, and may come late.
static GOT_ON: AtomicBool = AtomicBool::new(false);
/// Whether the request was made, and is not done.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn got_on(_: *mut c_void) -> i32 {
    GOT_ON.store(true, Ordering::Release);
    ASKED.store(false, Ordering::Release);
    0
}

/// The state that only this thread has.
pub(super) struct Monitor {
    interval: Duration,
    on_abort: Option<OnAbort>,
    /// The signal mask of the registering thread: hooks run with it.
    signals: Signals,
    /// The time of the next report of pings.
    report_at: Option<Instant>,
    /// The next signal, and the pause after it.
    signal: Option<(Instant, Duration)>,
}

impl Monitor {
    pub(super) fn new(interval: Duration, on_abort: Option<OnAbort>) -> Self {
        Self { interval, on_abort, signals: Signals::here(), report_at: None, signal: None }
    }

    pub(super) fn run(mut self, shared: &Shared) {
        call_guard::this_thread_is_free();
        while let Some(within) = self.act(shared) {
            let (rung, readable) = shared.watch.wait(within);
            if rung {
                shared.bell.clear();
            }
            if readable && shared.lock().take_ear() {
                inbox_reader::read(shared);
            }
        }
    }

    /// Takes the steps that are due. Returns how long to sleep then (`Some(None)`: until something happens); `None`: the session is closed.
    fn act(&mut self, shared: &Shared) -> Option<Option<Duration>> {
        let mut inner = shared.lock();
        loop {
            if inner.closed {
                return None;
            }
            let now = Instant::now();
            if inner.pending_is_due(Some(now)) {
                inner.take_pending();
            }
            shared.note(&inner);
            inner = match inner.leaving {
                Leaving::Decided if inner.atomic.is_empty() => self.begin(shared, inner),
                Leaving::Begun if inner.aborted => self.pass(shared, inner),
                Leaving::No | Leaving::Decided | Leaving::Begun | Leaving::Passed => {
                    let times = [
                        inner.pending_here().and_then(|pending| pending.at),
                        self.signal(&inner, now),
                        self.pings(shared, &inner, now),
                        self.auto(shared, &mut inner, now),
                    ];
                    shared.hand_over(&mut inner);
                    let first = times.into_iter().flatten().min();
                    return Some(first.map(|at| at.saturating_duration_since(now)));
                }
            };
        }
    }

    /// Ends what the function may be blocked in, and has hooks run.
    fn begin<'a>(&self, shared: &'a Shared, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        inner.leaving = Leaving::Begun;
        shared.note(&inner);
        if let Some(state) = inner.state.as_ref().filter(|_| inner.planned) {
            // From the ping on nothing makes progress: hooks run, and the function is left, for which there are limits of their own.
            send(shared, &ClientMessage::Section(Round::new(state.number), None));
        }
        inner.token.begin();
        let sockets = std::mem::take(&mut inner.sockets);
        let seen = inner.state.clone().zip(inner.cause.clone());
        let inside = inner.phase == Phase::Inside;
        // Under the lock: the function cannot be left between, after which waits may begin again.
        call_guard::end(inside);
        drop(inner);
        for known in sockets {
            let _gone = known.shut_down();
        }
        gloo::end();
        shared.notify(shared.lock());
        if let (Some((state, cause)), Some(on_abort)) = (seen, &self.on_abort) {
            self.signals.restored(|| on_abort(&state, &cause));
        }
        let mut inner = shared.lock();
        inner.aborted |= !inner.foreign;
        inner
    }

    /// Notifies all threads.
    fn pass<'a>(&mut self, shared: &'a Shared, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        inner.leaving = Leaving::Passed;
        shared.note(&inner);
        // A thread that is woken below may be ready at once, and reads the next messages.
        shared.hand_over(&mut inner);
        let token = inner.token.clone();
        self.signal = inner.aim.map(|aim| (Instant::now() + aim.delay, AGAIN));
        shared.notify(inner);
        token.pass();
        shared.lock()
    }

    /// Signals the training thread, if it is time; when next.
    fn signal(&mut self, inner: &Inner, now: Instant) -> Option<Instant> {
        let (at, pause) = self.signal?;
        let (Some(aim), Phase::Inside, Leaving::Passed) = (inner.aim, inner.phase, inner.leaving) else {
            self.signal = None;
            return None;
        };
        if at > now {
            return Some(at);
        }
        signal_thread(aim.tid, aim.signo);
        self.signal = Some((now + pause, pause.saturating_mul(2)));
        self.signal.map(|(at, _)| at)
    }

    /// Reports pings, at most once in an interval. Returns when to look again. After an interval without a ping there is no look until
    /// the bell rings.
    fn pings(&mut self, shared: &Shared, inner: &Inner, now: Instant) -> Option<Instant> {
        if !shared.looking.load(Ordering::Acquire) {
            return None;
        }
        if let Some(at) = self.report_at.filter(|at| *at > now) {
            return Some(at);
        }
        self.report_at = None;
        if !shared.has_unsent_pings() {
            shared.looking.store(false, Ordering::SeqCst);
            // A ping between the two lines has not rung.
            if !shared.has_unsent_pings() || shared.looking.swap(true, Ordering::SeqCst) {
                return None;
            }
        }
        shared.sent_pings.store(shared.pings.load(Ordering::Acquire), Ordering::Release);
        if let Some(round) = round_of(inner) {
            shared.has_reported_ping.store(true, Ordering::Release);
            send(shared, &ClientMessage::Alive(round, true));
        }
        let at = now + self.interval;
        self.report_at = Some(at);
        Some(at)
    }

    /// Has the interpreter note that it runs, and reports that it has run. Returns when to do so next.
    fn auto(&self, shared: &Shared, inner: &mut Inner, now: Instant) -> Option<Instant> {
        let (Some(add), Phase::Inside, Leaving::No) = (inner.auto, inner.phase, inner.leaving) else { return None };
        if let Some(at) = inner.auto_at.filter(|at| *at > now) {
            return Some(at);
        }
        // The first time in a round too: from then on its silence counts, even if it never gets anywhere.
        if (GOT_ON.swap(false, Ordering::AcqRel) || inner.auto_at.is_none())
            && let Some(round) = round_of(inner)
        {
            send(shared, &ClientMessage::Alive(round, false));
        }
        if !ASKED.swap(true, Ordering::AcqRel) && add(got_on, std::ptr::null_mut()) != 0 {
            // Its queue is full; another time.
            ASKED.store(false, Ordering::Release);
        }
        // Counted from when the function began: Python before 3.13 has to be woken between two times, and counts in the same way.
        let at = inner.auto_at.unwrap_or(now) + self.interval;
        inner.auto_at = Some(if at > now { at } else { now + self.interval });
        inner.auto_at
    }
}

fn round_of(inner: &Inner) -> Option<Round> {
    let here = inner.phase.is_in_round() && inner.leaving == Leaving::No;
    inner.state.as_ref().filter(|_| here && inner.alone.is_none()).map(|state| Round::new(state.number))
}

/// Without an agent the reader finds out soon.
fn send(shared: &Shared, said: &ClientMessage) {
    drop(shared.say(said));
}
