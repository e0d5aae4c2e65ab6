//! Requests that come twice: each is done once, and answered as often as it comes.
//!
//! A connection that breaks leaves its client in doubt whether a request was done. It asks again over the next one, under the
//! same number, and tells with each request which answers it has: those need not be kept.

use super::ask::Answer;
use super::quota::Quota;
use super::refusal::Refusal;
use super::store_limits::Limits;
use super::{Seq, Ticket};
use crate::id::ClientId;
use alloc::collections::BTreeMap;
use bytes::Bytes;

/// Most answers that are kept for a client that does not say that it has them.
pub(super) const MOST_KEPT: usize = 1024;

/// The knowledge about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The request is new.
    New,
    /// It still waits.
    Open,
    /// Its answer, or the reason why there is none.
    Said(Answer),
}

#[derive(Debug, Default)]
struct Client {
    /// Up to here it has its answers.
    has: Seq,
    /// Answers, and requests that still wait (`None`), after that number.
    answers: BTreeMap<Seq, Option<Answer>>,
}

/// The values in answers that are kept. Many answers can share a value: all watchers of a key got the same one. It is charged once, as it
/// is there once.
#[derive(Debug, Default)]
struct Values {
    /// By where they are, and how long: how many answers hold it.
    at: BTreeMap<(usize, usize), usize>,
}

impl Values {
    fn take(&mut self, account: &mut Quota, value: &Bytes) {
        let holders = self.at.entry(place(value)).or_insert(0);
        *holders += 1;
        if *holders == 1 {
            account.hold(value.len());
        }
    }

    fn give_back(&mut self, account: &mut Quota, value: &Bytes) {
        let Some(holders) = self.at.get_mut(&place(value)) else { return };
        *holders -= 1;
        if *holders == 0 {
            self.at.remove(&place(value));
            account.release(value.len());
        }
    }

    /// An answer, or that there is none yet, is kept no more.
    fn forget(&mut self, account: &mut Quota, answer: Option<&Answer>) {
        account.release(Limits::PER_REQUEST + answer.map_or(0, Answer::weight));
        if let Some(value) = answer.and_then(Answer::value) {
            self.give_back(account, value);
        }
    }
}

fn place(value: &Bytes) -> (usize, usize) {
    (value.as_ptr().addr(), value.len())
}

/// The requests of clients that may ask again.
#[derive(Debug, Default)]
pub(super) struct Dedup {
    of: BTreeMap<ClientId, Client>,
    values: Values,
}

impl Dedup {
    /// Looks up a request; a new one is open from now on. The client has its answers up to `has`. A request that gives room back is taken
    /// even if there is no room: else nothing could be deleted from a full namespace.
    pub(super) fn look(&mut self, account: &mut Quota, ticket: Ticket, has: Seq, makes_room: bool) -> Known {
        let Self { of, values } = self;
        let client = of.entry(ticket.client).or_default();
        if has > client.has {
            client.has = has;
            let behind = client.answers.split_off(&Seq(has.0.saturating_add(1)));
            let had = core::mem::replace(&mut client.answers, behind);
            had.into_values().for_each(|answer| values.forget(account, answer.as_ref()));
        }
        if ticket.seq <= client.has {
            return Known::Said(Answer::Refused(Refusal::Stale));
        }
        let refused = match client.answers.get(&ticket.seq) {
            Some(Some(answer)) => return Known::Said(answer.clone()),
            Some(None) => return Known::Open,
            None if client.answers.len() >= MOST_KEPT => Refusal::ManyKept { most: MOST_KEPT },
            None if !makes_room && !account.fits(Limits::PER_REQUEST) => {
                let (used, most) = account.used();
                Refusal::FullOfAnswers { used, most }
            }
            None => {
                account.hold(Limits::PER_REQUEST);
                client.answers.insert(ticket.seq, None);
                return Known::New;
            }
        };
        Known::Said(Answer::Refused(refused))
    }

    /// A request was answered. A change that is done stays done: its answer is kept even if that goes above the limit; the next request
    /// is refused then.
    pub(super) fn answered(&mut self, account: &mut Quota, ticket: Ticket, answer: &Answer) {
        let client = self.of.get_mut(&ticket.client);
        if let Some(open) = client.and_then(|client| client.answers.get_mut(&ticket.seq)) {
            account.hold(answer.weight());
            if let Some(value) = answer.value() {
                self.values.take(account, value);
            }
            *open = Some(answer.clone());
        }
    }

    /// A client will not ask again.
    pub(super) fn forget(&mut self, account: &mut Quota, client: ClientId) {
        let answers = self.of.remove(&client).map(|client| client.answers).unwrap_or_default();
        answers.into_values().for_each(|answer| self.values.forget(account, answer.as_ref()));
    }
}
