//! Requests that may have to wait: whether this one has to, and for what.

use super::pending::Awaited;
use super::{Answer, Namespace, Outcome, Refusal, Revision, Ticket};
use crate::rank_set::RankSet;
use crate::time::Span;
use alloc::collections::BTreeSet;
use bytes::Bytes;

/// What a request waits for, or its answer.
pub(super) enum Wait {
    Over(Answer),
    For(Awaited),
}

impl Wait {
    pub(super) fn within(self, within: Option<Span>) -> Outcome {
        match self {
            Self::Over(answer) => Outcome::Now(answer),
            Self::For(awaited) => Outcome::Later(awaited, within),
        }
    }
}

impl Namespace {
    pub(super) fn wait(&mut self, keys: &[&[u8]]) -> Result<Wait, Refusal> {
        keys.iter().try_for_each(|key| self.account.key_fits(key))?;
        let missing = keys.iter().filter(|key| !self.exists(key));
        let missing: BTreeSet<Bytes> = missing.map(|key| Bytes::copy_from_slice(key)).collect();
        Ok(if missing.is_empty() { Wait::Over(Answer::Done) } else { Wait::For(Awaited::Keys(missing)) })
    }

    pub(super) fn take(&mut self, key: &[u8]) -> Result<Wait, Refusal> {
        self.account.key_fits(key)?;
        Ok(match self.queues.pop(&mut self.account, key) {
            Some(item) => Wait::Over(Answer::Value(Some(item))),
            None => Wait::For(Awaited::Item(Bytes::copy_from_slice(key))),
        })
    }

    pub(super) fn watch(&mut self, key: &[u8], since: Option<Revision>) -> Result<Wait, Refusal> {
        self.account.key_fits(key)?;
        let (at, value) = self.kv.state(key);
        Ok(if since.is_none_or(|since| since == at) {
            Wait::For(Awaited::Change(Bytes::copy_from_slice(key)))
        } else {
            Wait::Over(Answer::Changed { at, value })
        })
    }

    pub(super) fn gather(&mut self, ticket: Ticket, key: &[u8], until: i64) -> Result<Wait, Refusal> {
        // What is refused must not count.
        if self.kv.count(key)?.saturating_add(1) < until {
            self.may_wait(ticket)?;
        }
        let count = self.add(key, 1)?;
        self.is_gathered(key, count);
        Ok(if count >= until {
            Wait::Over(Answer::Done)
        } else {
            Wait::For(Awaited::Count(Bytes::copy_from_slice(key), until))
        })
    }

    pub(super) fn fence(&mut self, ticket: Ticket, name: &[u8], all: &RankSet, who: &RankSet) -> Result<Wait, Refusal> {
        if !self.fences.completes(name, all, who) {
            self.may_wait(ticket)?;
        }
        Ok(if self.arrive(name, all, who)? {
            Wait::Over(Answer::Done)
        } else {
            Wait::For(Awaited::Fence(Bytes::copy_from_slice(name)))
        })
    }
}
