//! Ranks of a host that have come to a fence: the owner learns of them at once.

use super::{Cache, Due, Flight, Place, Waiter};
use crate::store::{Ask, Seq, Ticket};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};

/// How long those who have come wait for the others of their host, and how long at most: it doubles, so that a fence at which ranks
/// come one by one costs the owner few messages.
const FIRST: Span = Span::from_millis(20);
const LONGEST: Span = Span::from_secs(1);

#[derive(Debug)]
struct Gathering {
    all: RankSet,
    /// The ranks of this host that take part.
    expected: RankSet,
    here: RankSet,
    /// The ranks that the owner knows of.
    notified: RankSet,
    waiters: Vec<Waiter>,
    flight: Option<Seq>,
    pause: Span,
    /// When a `Due::Notify` stands.
    notify_at: Option<Mono>,
}

/// The waiting ranks, by the name of the fence.
#[derive(Debug, Default)]
pub(super) struct Fences(BTreeMap<Bytes, Gathering>);

impl Cache {
    /// Whether it is done here; errors are reported by the owner.
    pub(super) fn fence(
        &mut self,
        now: Mono,
        ticket: Ticket,
        name: &[u8],
        (all, who): (&RankSet, &RankSet),
        within: Option<Span>,
    ) -> bool {
        if !all.covers(who) || self.fences.0.get(name).is_some_and(|fence| fence.all != *all) {
            return false;
        }
        let name = Bytes::copy_from_slice(name);
        let waiter = Waiter::new(now, ticket, within);
        self.due.extend(waiter.due(Due::Fence, &name));
        self.opened(ticket, Place::Fence(name.clone()));
        let ranks = &self.ranks;
        let fence = self.fences.0.entry(name.clone()).or_insert_with(|| Gathering {
            all: all.clone(),
            expected: all.without(&all.without(ranks)),
            here: RankSet::new(),
            notified: RankSet::new(),
            waiters: Vec::new(),
            flight: None,
            pause: FIRST,
            notify_at: None,
        });
        fence.here.extend(who);
        fence.waiters.push(waiter);
        if fence.here.covers(&fence.expected) {
            self.notify_owner(&name);
        } else if fence.notify_at.is_none() {
            let at = now + fence.pause;
            fence.notify_at = Some(at);
            fence.pause = Span::from_nanos(fence.pause.nanos().saturating_mul(2).min(LONGEST.nanos()));
            self.due.insert((at, Due::Notify(name)));
        }
        true
    }

    /// Sends the owner the ranks that are here and that it does not know of.
    pub(super) fn notify_owner(&mut self, name: &Bytes) {
        let Some(fence) = self.fences.0.get_mut(name) else { return };
        if let Some(at) = fence.notify_at.take() {
            self.due.remove(&(at, Due::Notify(name.clone())));
        }
        let new = fence.here.without(&fence.notified);
        if fence.flight.is_some() && new.is_empty() {
            return;
        }
        fence.notified = fence.here.clone();
        let (all, here, is_asked) = (fence.all.clone(), fence.here.clone(), fence.flight.is_some());
        if is_asked {
            self.fly(&Ask::Arrive { name, all: &all, who: &new }, Flight::Quiet);
            return;
        }
        let ask = Ask::Fence { name, all: &all, who: &here, within: None };
        let flight = self.fly(&ask, Flight::Fence(name.clone()));
        if let Some(fence) = self.fences.0.get_mut(name) {
            fence.flight = Some(flight);
        }
    }

    /// Handles the owner's answer: all ranks have come, or there is an error.
    pub(super) fn fence_over(&mut self, name: &Bytes, reply: &Bytes) {
        let Some(fence) = self.fences.0.remove(name) else { return };
        if let Some(at) = fence.notify_at {
            self.due.remove(&(at, Due::Notify(name.clone())));
        }
        for waiter in fence.waiters {
            if let Some(due) = waiter.due(Due::Fence, name) {
                self.due.remove(&due);
            }
            self.pass(waiter.ticket, reply.clone());
        }
    }

    /// Handles the timeout of a waiter: the owner knows which ranks are missing. The query names no ranks, as the fence may be complete by
    /// now and the next of its name open. Then the waiter receives the owner's answer to the fence before the answer to this query.
    pub(super) fn fence_late(&mut self, name: &Bytes, ticket: Ticket) {
        self.notify_owner(name);
        let Some(fence) = self.fences.0.get(name) else { return };
        let Some(waiter) = fence.waiters.iter().find(|waiter| waiter.ticket == ticket) else { return };
        let (all, within) = (fence.all.clone(), waiter.limit.map_or(Span::ZERO, |(within, _)| within));
        let ask = Ask::Fence { name, all: &all, who: &RankSet::new(), within: Some(Span::ZERO) };
        self.fly(&ask, Flight::Missing(name.clone(), ticket, within));
    }

    /// Handles the owner's list of missing ranks; it is empty if the waiter was answered meanwhile, or is gone.
    pub(super) fn fence_missed(&mut self, name: &Bytes, ticket: Ticket, words: Bytes) {
        if self.is_open(ticket) {
            self.leave_fence(name, ticket);
            self.pass(ticket, words);
        }
    }

    /// Removes a waiter. That he has come is not taken back.
    pub(super) fn leave_fence(&mut self, name: &Bytes, ticket: Ticket) {
        let Some(fence) = self.fences.0.get_mut(name) else { return };
        let Some(at) = fence.waiters.iter().position(|waiter| waiter.ticket == ticket) else { return };
        if let Some(due) = fence.waiters.swap_remove(at).due(Due::Fence, name) {
            self.due.remove(&due);
        }
        self.disband(name);
    }

    /// Removes a fence without waiters: the owner learns which ranks had come, and need not answer.
    fn disband(&mut self, name: &Bytes) {
        let Some(fence) = self.fences.0.get(name).filter(|fence| fence.waiters.is_empty()) else { return };
        let (all, new, flight) = (fence.all.clone(), fence.here.without(&fence.notified), fence.flight);
        let notify_at = fence.notify_at;
        self.fences.0.remove(name);
        if let Some(at) = notify_at {
            self.due.remove(&(at, Due::Notify(name.clone())));
        }
        if !new.is_empty() {
            self.fly(&Ask::Arrive { name, all: &all, who: &new }, Flight::Quiet);
        }
        flight.into_iter().for_each(|seq| self.cancel(seq));
    }
}
