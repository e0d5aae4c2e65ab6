//! The store: keys, queues, counts and fences that ranks meet by.
//!
//! A [`Namespace`] is the whole of it for one purpose: the job's own, or one generation's rendezvous. It lives in one place, so that its
//! answers are those of one thing that does one request after another. Other code decides which process carries the requests there, over
//! which wire, and whether a stranger gets that far. Here a request is done, answered later, or refused.
//!
//! It is driven as machines are, but for one thing: a request is borrowed ([`Ask`]), since a copy of what is only looked up would
//! cost more than looking it up.

pub mod buffers;
pub mod cache;
mod fences;
mod kv;
mod notify;
pub mod owner;
mod queues;
mod quota;
mod store_limits;
mod table;
#[cfg(test)]
mod tests;
pub mod transit;
mod waiters;
mod waits;

pub use rlaunch_protocol::wire::frozen::client::{Absent, Answer, Ask, Expected, Refusal, Revision};
pub use rlaunch_protocol::wire::store::{Seq, Ticket};
pub use store_limits::Limits;
pub use table::Table;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;
use fences::Fences;
use kv::Kv;
use queues::Queues;
use quota::Quota;
use rlaunch_base::id::ClientId;
use rlaunch_base::time::{Mono, Span};
use waiters::{Awaited, Waiters};

/// An action for the owner of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send an answer to a client.
    Answer {
        /// Which of its requests.
        ticket: Ticket,
        /// The outcome.
        answer: Answer,
    },
}

/// The immediate outcome of a request.
#[derive(Debug)]
enum Outcome<'a> {
    /// The request is answered.
    Now(Answer),
    /// The request waits, for at most this time.
    Later(Awaited<'a>, Option<Span>),
}

/// Keys, queues, counts and fences of one purpose.
#[derive(Debug)]
pub struct Namespace {
    account: Quota,
    kv: Kv,
    queues: Queues,
    fences: Fences,
    pending: Waiters,
    is_closed: bool,
    out: VecDeque<Action>,
}

impl Namespace {
    /// Creates an empty namespace.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            account: Quota::new(limits),
            kv: Kv::default(),
            queues: Queues::default(),
            fences: Fences::default(),
            pending: Waiters::default(),
            is_closed: false,
            out: VecDeque::new(),
        }
    }

    /// The keys that begin like this.
    pub(crate) fn keys(&self, prefix: &[u8]) -> Vec<Bytes> {
        self.kv.list(prefix, None, usize::MAX)
    }

    /// Takes a request.
    pub fn ask(&mut self, now: Mono, ticket: Ticket, ask: Ask<'_>) {
        if self.is_closed {
            return self.answer(ticket, Answer::Refused(Refusal::Gone));
        }
        let notified = self.queues.notified(ticket.client);
        let comes_for_it = notified.is_none_or(|keys| keys.iter().any(|key| ask.asks_for_item(key)));
        match self.perform(ticket, ask) {
            Ok(Outcome::Now(answer)) => self.answer(ticket, answer),
            Ok(Outcome::Later(awaited, within)) => {
                let within = within.map(|within| (within, now + within));
                self.pending.add(&mut self.account, ticket, &awaited, within);
            }
            Err(refusal) => self.answer(ticket, Answer::Refused(refusal)),
        }
        if !comes_for_it {
            self.pass_on(ticket.client);
        }
    }

    /// Notifies another client if this one was notified of items in queues and does not fetch them.
    pub fn pass_on(&mut self, client: ClientId) {
        self.queues.left_by(&mut self.account, client).iter().for_each(|key| self.is_pushed(key));
    }

    /// Returns a value to the holder of the namespace.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.kv.get(key)
    }

    /// Charges the bytes that a listener holds for a client: `before` becomes `now`. False: the quota has no room for them.
    #[must_use]
    pub fn hold(&mut self, before: usize, now: usize) -> bool {
        let fits = now <= before || self.account.fits(now.saturating_sub(before));
        if fits {
            self.account.resize(before, now);
        }
        fits
    }

    /// Bytes in use, and the limit.
    #[must_use]
    pub const fn used(&self) -> (usize, usize) {
        self.account.used()
    }

    /// Whether some ranks have come to this fence, and not all.
    pub(super) fn is_fence_open(&self, name: &[u8]) -> bool {
        self.fences.is_open(name)
    }

    /// A client wants no answer any more. Whether it had waited.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        self.pending.remove_ticket(&mut self.account, ticket).is_some()
    }

    /// Removes a client that is gone: its waits go, its data stays.
    pub fn gone(&mut self, client: ClientId) {
        self.pending.remove_client(&mut self.account, client);
        self.pass_on(client);
    }

    /// Ends the namespace: all waiting requests and all later ones get that as their answer.
    pub fn close(&mut self) {
        self.is_closed = true;
        while let Some(place) = self.pending.any() {
            let Some(waiting) = self.pending.remove(&mut self.account, place) else { break };
            self.answer(waiting.ticket, Answer::Refused(Refusal::Gone));
        }
        let limits = *self.account.limits();
        *self = Self { is_closed: true, out: core::mem::take(&mut self.out), ..Self::new(limits) };
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        while let Some(place) = self.pending.overdue(now) {
            let missing = self.missing(place);
            let Some(waiting) = self.pending.remove(&mut self.account, place) else { break };
            let within = waiting.within.map_or(Span::ZERO, |(within, _)| within);
            self.answer(waiting.ticket, Answer::Refused(Refusal::TimedOut { within, missing }));
        }
    }

    /// The next thing to do.
    #[must_use]
    pub fn poll_action(&mut self) -> Option<Action> {
        self.out.pop_front()
    }

    /// When `handle_timeout` wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.pending.next_due()
    }

    fn perform<'a>(&mut self, ticket: Ticket, ask: Ask<'a>) -> Result<Outcome<'a>, Refusal> {
        let account = &mut self.account;
        Ok(Outcome::Now(match ask {
            Ask::Get(key) => Answer::Value(self.kv.get(key)),
            Ask::GetAll(keys) => Answer::Values(keys.iter().map(|key| self.kv.get(key)).collect()),
            Ask::Set(key, value) => {
                self.kv.set(account, key, value)?;
                self.is_set(key);
                Answer::Done
            }
            Ask::SetAll(pairs) => {
                self.kv.set_all(account, pairs)?;
                pairs.iter().for_each(|(key, _)| self.is_set(key));
                Answer::Done
            }
            Ask::Add(key, by) => Answer::Number(self.add(key, by)?),
            Ask::Append(key, more) => {
                let len = self.kv.append(account, key, more)?;
                self.is_set(key);
                number(len)
            }
            Ask::CompareSet { key, expected, desired } => {
                let set = self.kv.compare_set(account, key, expected, desired)?;
                if set {
                    self.is_set(key);
                }
                Answer::Compared { set, now: self.kv.get(key) }
            }
            Ask::Delete(key) => number(usize::from(self.delete(key))),
            Ask::Check(keys) => self.check(keys),
            Ask::Count => number(self.kv.len()),
            Ask::List { prefix, after, most } => Answer::Keys(self.kv.list(prefix, after, most)),
            Ask::Push(key, item) => {
                self.queues.push(account, key, item)?;
                self.is_pushed(key);
                Answer::Done
            }
            Ask::Pop(key) => Answer::Value(self.queues.pop(account, key)),
            Ask::Len(key) => number(self.queues.len(key)),
            Ask::Arrive { name, all, who } => {
                self.arrive(name, all, who)?;
                Answer::Done
            }
            Ask::Wait { keys, within } => return Ok(self.wait(ticket, keys)?.within(within)),
            Ask::Take { key, within } => return Ok(self.take(ticket, key)?.within(within)),
            Ask::Watch { key, since, within } => return Ok(self.watch(ticket, key, since)?.within(within)),
            Ask::Gather { key, until, within } => return Ok(self.gather(ticket, key, until)?.within(within)),
            Ask::Fence { name, all, who, within } => return Ok(self.fence(ticket, name, all, who)?.within(within)),
        }))
    }

    fn add(&mut self, key: &[u8], by: i64) -> Result<i64, Refusal> {
        let sum = self.kv.add(&mut self.account, key, by)?;
        self.is_set(key);
        Ok(sum)
    }

    /// Whether there was a value or a queue.
    fn delete(&mut self, key: &[u8]) -> bool {
        let value = self.kv.delete(&mut self.account, key);
        if value {
            self.is_changed(key);
        }
        let queue = self.queues.delete(&mut self.account, key);
        value || queue
    }

    fn check(&self, keys: &[&[u8]]) -> Answer {
        if keys.iter().all(|key| self.exists(key)) { Answer::Done } else { Answer::Missing }
    }

    fn exists(&self, key: &[u8]) -> bool {
        self.kv.holds(key) || self.queues.holds(key)
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.out.push_back(Action::Answer { ticket, answer });
    }
}

/// A number in the form that clients get: 64 bits with a sign, as on torch's wire.
fn number(count: usize) -> Answer {
    Answer::Number(i64::try_from(count).unwrap_or(i64::MAX))
}
