//! Requests that come twice: each is done once, and answered as often as it comes.
//!
//! A connection that breaks leaves its client in doubt whether a request was done. It asks again over the next one, under the
//! same number, and tells with each request which answers it has: those need not be kept.

use super::ask::Answer;
use super::{Seq, Ticket};
use crate::id::ClientId;
use alloc::collections::BTreeMap;

/// Most answers that are kept for a client that does not say that it has them.
pub(super) const MOST_KEPT: usize = 1024;

/// What is known of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It is new.
    New,
    /// It waits still.
    Open,
    /// It was answered so.
    Answered(Answer),
    /// Its client has had its answer.
    Old,
    /// Too much is kept for its client already.
    Full,
}

#[derive(Debug, Default)]
struct Client {
    /// Up to here it has its answers.
    has: Seq,
    /// Answers, and the requests that still wait (`None`), behind that.
    answers: BTreeMap<Seq, Option<Answer>>,
}

/// The requests of clients that may ask again.
#[derive(Debug, Default)]
pub(super) struct Seen {
    of: BTreeMap<ClientId, Client>,
}

impl Seen {
    /// What is known of a request; a new one is open from now on. The client has its answers up to `has`.
    pub(super) fn look(&mut self, ticket: Ticket, has: Seq) -> Known {
        let client = self.of.entry(ticket.client).or_default();
        if has > client.has {
            client.has = has;
            client.answers = client.answers.split_off(&Seq(has.0.saturating_add(1)));
        }
        if ticket.seq <= client.has {
            return Known::Old;
        }
        match client.answers.get(&ticket.seq) {
            Some(Some(answer)) => Known::Answered(answer.clone()),
            Some(None) => Known::Open,
            None if client.answers.len() >= MOST_KEPT => Known::Full,
            None => {
                client.answers.insert(ticket.seq, None);
                Known::New
            }
        }
    }

    /// A request was answered.
    pub(super) fn answered(&mut self, ticket: Ticket, answer: &Answer) {
        let client = self.of.get_mut(&ticket.client);
        if let Some(open) = client.and_then(|client| client.answers.get_mut(&ticket.seq)) {
            *open = Some(answer.clone());
        }
    }

    /// A client will not ask again.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.of.remove(&client);
    }
}
