//! Clients of a host that wait for a key: one request to the owner.

use super::{Cache, Due, Flight, Place, Waiter};
use crate::store::{Absent, Ask, Refusal, Seq, Ticket};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};

#[derive(Debug)]
struct Waiting {
    flight: Seq,
    /// For whom the owner was asked.
    asked: Vec<Waiter>,
    /// Clients that came later: the key was there then, and may be gone now.
    later: Vec<Waiter>,
}

/// The waiters, by key.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<Bytes, Waiting>);

impl Cache {
    /// Whether it is done here: several keys at once are the owner's business.
    pub(super) fn wait(&mut self, now: Mono, ticket: Ticket, keys: &[&[u8]], within: Option<Span>) -> bool {
        if keys.iter().all(|key| self.kept.contains_key(*key)) {
            self.answer(ticket, &crate::store::Answer::Done);
            return true;
        }
        let [key] = keys else { return false };
        let (waiter, key) = (Waiter::new(now, ticket, within), Bytes::copy_from_slice(key));
        self.due.extend(waiter.due(Due::Wait, &key));
        self.opened(ticket, Place::Wait(key.clone()));
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

    /// Handles the owner's answer: the key is there, or the reason why no client can wait for it.
    pub(super) fn wait_over(&mut self, key: &Bytes, reply: &Bytes) {
        let Some(Waiting { asked, later, .. }) = self.waits.0.remove(key) else { return };
        for waiter in asked {
            waiter.due(Due::Wait, key).iter().for_each(|due| {
                self.due.remove(due);
            });
            self.pass(waiter.ticket, reply.clone());
        }
        if !later.is_empty() {
            self.wait_for(key.clone(), later);
        }
    }

    /// Handles the timeout of a waiter.
    pub(super) fn waited_enough(&mut self, key: &Bytes, ticket: Ticket) {
        let late = self.leave_wait(key, ticket);
        if let Some((within, _)) = late.and_then(|waiter| waiter.limit) {
            let missing = Absent::Keys(vec![OsBytes::new(key.to_vec())], 1);
            self.refuse(ticket, Refusal::TimedOut { within, missing });
        }
    }

    /// Removes and returns a waiter. If none remains the owner need not answer.
    pub(super) fn leave_wait(&mut self, key: &Bytes, ticket: Ticket) -> Option<Waiter> {
        let waiting = self.waits.0.get_mut(key)?;
        let of = |all: &mut Vec<Waiter>| all.iter().position(|waiter| waiter.ticket == ticket).map(|at| all.remove(at));
        let left = of(&mut waiting.asked).or_else(|| of(&mut waiting.later));
        let (flight, is_over) = (waiting.flight, waiting.asked.is_empty() && waiting.later.is_empty());
        if let Some(due) = left.and_then(|waiter| waiter.due(Due::Wait, key)) {
            self.due.remove(&due);
        }
        if is_over {
            self.waits.0.remove(key);
            self.cancel(flight);
        }
        left
    }
}
