//! Those of a host who wait for a key: one asker to the home.

use super::{Due, Flight, Relay, Waiter};
use crate::id::ClientId;
use crate::os_bytes::OsBytes;
use crate::store::{Absent, Ask, Refusal, Seq, Ticket};
use crate::time::{Mono, Span};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

#[derive(Debug)]
struct Waiting {
    flight: Seq,
    /// For whom the home was asked.
    asked: Vec<Waiter>,
    /// Who came later: that the key was there then does not say that it still is.
    later: Vec<Waiter>,
}

/// Who waits, by key.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<Bytes, Waiting>);

impl Waits {
    pub(super) fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        let all = self.0.into_values().flat_map(|waiting| waiting.asked.into_iter().chain(waiting.later));
        all.map(|waiter| waiter.ticket)
    }
}

impl Relay {
    /// Whether it is done here: several keys at once are the home's business.
    pub(super) fn wait(&mut self, now: Mono, ticket: Ticket, keys: &[&[u8]], within: Option<Span>) -> bool {
        if keys.iter().all(|key| self.kept.contains_key(*key)) {
            self.answer(ticket, &crate::store::Answer::Done);
            return true;
        }
        let [key] = keys else { return false };
        let (waiter, key) = (Waiter::new(now, ticket, within), Bytes::copy_from_slice(key));
        self.due.extend(waiter.due(Due::Wait, &key));
        match self.waits.0.get_mut(&key) {
            Some(waiting) => waiting.later.push(waiter),
            None => self.wait_for(key, vec![waiter]),
        }
        true
    }

    fn wait_for(&mut self, key: Bytes, asked: Vec<Waiter>) {
        let flight = self.fly(&Ask::Wait { keys: &[&key], within: None }, Flight::Wait(key.clone()));
        self.waits.0.insert(key, Waiting { flight, asked, later: Vec::new() });
    }

    /// The home says that it is there, or why nobody can wait for it.
    pub(super) fn wait_over(&mut self, key: &Bytes, told: &Bytes) {
        let Some(Waiting { asked, later, .. }) = self.waits.0.remove(key) else { return };
        for waiter in asked {
            waiter.due(Due::Wait, key).iter().for_each(|due| {
                self.due.remove(due);
            });
            self.pass(waiter.ticket, told.clone());
        }
        if !later.is_empty() {
            self.wait_for(key.clone(), later);
        }
    }

    /// Somebody's time is over.
    pub(super) fn waited_enough(&mut self, key: &Bytes, ticket: Ticket) {
        let late = self.leave_wait(key, |waiter| waiter.ticket == ticket);
        for (within, _) in late.into_iter().filter_map(|waiter| waiter.limit) {
            let missing = Absent::Keys(vec![OsBytes::new(key.to_vec())], 1);
            self.refuse(ticket, Refusal::TimedOut { within, missing });
        }
    }

    /// A client does not wait any more.
    pub(super) fn leave_waits(&mut self, client: ClientId) {
        let keys: Vec<Bytes> = self.waits.0.keys().cloned().collect();
        for key in keys {
            self.leave_wait(&key, |waiter| waiter.ticket.client == client);
        }
    }

    /// Some do not wait any more; who they are. Where nobody is left the home need not answer.
    fn leave_wait(&mut self, key: &Bytes, who: impl Fn(&Waiter) -> bool) -> Vec<Waiter> {
        let Some(waiting) = self.waits.0.get_mut(key) else { return Vec::new() };
        let mut left: Vec<Waiter> = waiting.asked.extract_if(.., |waiter| who(waiter)).collect();
        left.extend(waiting.later.extract_if(.., |waiter| who(waiter)));
        let (flight, is_over) = (waiting.flight, waiting.asked.is_empty() && waiting.later.is_empty());
        for due in left.iter().filter_map(|waiter| waiter.due(Due::Wait, key)) {
            self.due.remove(&due);
        }
        if is_over {
            self.waits.0.remove(key);
            self.cancel(flight);
        }
        left
    }
}
