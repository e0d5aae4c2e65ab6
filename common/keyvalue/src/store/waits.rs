//! Requests that may have to wait: whether this one has to, and for what.

use super::store_limits::Limits;
use super::waiters::{Awaited, Kind};
use super::{Answer, Namespace, Outcome, Refusal, Revision, Ticket};
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;

/// The condition of a request, or its answer.
pub(super) enum Wait<'a> {
    Over(Answer),
    For(Awaited<'a>),
}

impl<'a> Wait<'a> {
    pub(super) fn within(self, within: Option<Span>) -> Outcome<'a> {
        match self {
            Self::Over(answer) => Outcome::Now(answer),
            Self::For(awaited) => Outcome::Later(awaited, within),
        }
    }
}

impl Namespace {
    pub(super) fn wait<'a>(&mut self, ticket: Ticket, keys: &[&'a [u8]]) -> Result<Wait<'a>, Refusal> {
        keys.iter().try_for_each(|key| self.account.key_fits(key))?;
        let mut keys: Vec<&[u8]> = keys.iter().copied().filter(|key| !self.exists(key)).collect();
        if keys.is_empty() {
            return Ok(Wait::Over(Answer::Done));
        }
        keys.sort_unstable();
        keys.dedup();
        self.may_wait(ticket, Awaited { kind: Kind::Set, keys, until: 0 }, 0)
    }

    pub(super) fn take<'a>(&mut self, ticket: Ticket, key: &'a [u8]) -> Result<Wait<'a>, Refusal> {
        self.account.key_fits(key)?;
        match self.queues.pop(&mut self.account, key) {
            Some(item) => Ok(Wait::Over(Answer::Value(Some(item)))),
            None => self.may_wait(ticket, Awaited::one(Kind::Item, key), 0),
        }
    }

    pub(super) fn watch<'a>(
        &mut self,
        ticket: Ticket,
        key: &'a [u8],
        since: Option<Revision>,
    ) -> Result<Wait<'a>, Refusal> {
        self.account.key_fits(key)?;
        let (at, value) = self.kv.state(key);
        if since.is_none_or(|since| since == at) {
            self.may_wait(ticket, Awaited::one(Kind::Change, key), 0)
        } else {
            Ok(Wait::Over(Answer::Changed { at, value }))
        }
    }

    pub(super) fn gather<'a>(&mut self, ticket: Ticket, key: &'a [u8], until: i64) -> Result<Wait<'a>, Refusal> {
        // A refused request must not count.
        let wait = if self.kv.count(key)?.saturating_add(1) < until {
            let own = Limits::PER_ITEM + key.len() + Limits::NUMBER;
            self.may_wait(ticket, Awaited { kind: Kind::Count, keys: [key].into(), until }, own)?
        } else {
            Wait::Over(Answer::Done)
        };
        let count = self.add(key, 1)?;
        self.is_gathered(key, count);
        Ok(wait)
    }

    pub(super) fn fence<'a>(
        &mut self,
        ticket: Ticket,
        name: &'a [u8],
        all: &RankSet,
        who: &RankSet,
    ) -> Result<Wait<'a>, Refusal> {
        let wait = if self.fences.completes(name, all, who) {
            Wait::Over(Answer::Done)
        } else {
            let own = Limits::PER_ITEM + name.len() + Limits::of_ranks(all) + Limits::of_ranks(who);
            self.may_wait(ticket, Awaited::one(Kind::Fence, name), own)?
        };
        self.arrive(name, all, who)?;
        Ok(wait)
    }

    /// Whether one more may wait, beside what it does itself and is charged for. One request waits once.
    fn may_wait<'a>(&self, ticket: Ticket, awaited: Awaited<'a>, own: usize) -> Result<Wait<'a>, Refusal> {
        let most = self.account.limits().waiting;
        if self.pending.len() >= most || self.pending.waits(ticket) {
            return Err(Refusal::ManyWaiting { most });
        }
        if !self.account.fits(self.pending.cost(&awaited).saturating_add(own)) {
            let (used, most) = self.account.used();
            let key = OsBytes::new(awaited.keys.first().map(|key| key.to_vec()).unwrap_or_default());
            return Err(Refusal::FullOfWaits { key, more: awaited.keys.len().saturating_sub(1), used, most });
        }
        Ok(Wait::For(awaited))
    }
}
