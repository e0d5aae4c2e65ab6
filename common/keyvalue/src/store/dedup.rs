//! Requests that come twice: each is done once, and answered as often as it comes.
//!
//! A connection that breaks leaves its client in doubt whether a request was done. The client asks again over the next one, under the same
//! number. Each request names the answers that the client has: those need not be kept.

use super::quota::Quota;
use super::store_limits::Limits;
use super::{Absent, Answer, Refusal, Seq, Ticket};
use alloc::collections::BTreeMap;
use bytes::Bytes;
use rlaunch_base::id::ClientId;

/// Most answers that are kept for a client that does not say that it has them.
pub(super) const MOST_KEPT: usize = 1024;

/// The knowledge about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The request is new.
    New,
    /// The request still waits.
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
        account.release(Limits::PER_REQUEST + answer.map_or(0, weight));
        if let Some(value) = answer.and_then(value_of) {
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
            account.hold(weight(answer));
            if let Some(value) = value_of(answer) {
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

/// The value in an answer, if it is one of those that are kept. Other answers may hold the value too.
fn value_of(answer: &Answer) -> Option<&Bytes> {
    match answer {
        Answer::Value(value) | Answer::Compared { now: value, .. } | Answer::Changed { value, .. } => value.as_ref(),
        Answer::Done | Answer::Missing | Answer::Values(_) | Answer::Number(_) | Answer::Keys(_) => None,
        Answer::Refused(_) => None,
    }
}

/// How many bytes an answer holds beside itself and its value.
fn weight(answer: &Answer) -> usize {
    match answer {
        Answer::Refused(refusal) => weight_of_refusal(refusal),
        Answer::Values(values) => values.iter().flatten().map(Bytes::len).sum(),
        Answer::Keys(keys) => keys.iter().map(Bytes::len).sum(),
        Answer::Done | Answer::Missing | Answer::Value(_) | Answer::Number(_) => 0,
        Answer::Compared { .. } | Answer::Changed { .. } => 0,
    }
}

fn weight_of_refusal(refusal: &Refusal) -> usize {
    match refusal {
        Refusal::LongValue { key, .. }
        | Refusal::ManyKeys { key, .. }
        | Refusal::Full { key, .. }
        | Refusal::FullOfWaits { key, .. }
        | Refusal::NoNumber { key }
        | Refusal::Reserved { key }
        | Refusal::Overflow { key } => key.as_slice().len(),
        Refusal::OtherFence { name, open, asked } => {
            name.as_slice().len() + Limits::of_ranks(open) + Limits::of_ranks(asked)
        }
        Refusal::NoParticipant { name, who } => name.as_slice().len() + Limits::of_ranks(who),
        Refusal::TimedOut { missing, .. } => weight_of_absent(missing),
        Refusal::LongKey { .. } | Refusal::ManyWaiting { .. } | Refusal::FullOfAnswers { .. } => 0,
        Refusal::ManyKept { .. } | Refusal::LongAnswer { .. } | Refusal::Behind { .. } | Refusal::Unread { .. } => 0,
        Refusal::Gone | Refusal::Stale => 0,
    }
}

fn weight_of_absent(absent: &Absent) -> usize {
    match absent {
        Absent::Keys(first, _) => first.iter().map(|key| key.as_slice().len()).sum(),
        Absent::Item(key) | Absent::Change(key) | Absent::Count { key, .. } => key.as_slice().len(),
        Absent::Ranks { name, missing } => name.as_slice().len() + Limits::of_ranks(missing),
    }
}
