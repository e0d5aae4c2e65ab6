//! Messages that wait in the launcher for a slow agent: for rank 0's host these are the requests of all others.
//!
//! Each client asks one thing at a time, but there may be as many as there are ranks, and what each of them asks may be a message long.
//! Requests beyond a number of bytes are refused. Other messages always pass: they are short, and an arrival at a fence, or the end of a
//! client, would not be sent again.

use super::cache::ITSELF;
use super::{Answer, Refusal, Ticket};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_protocol::wire::frozen::client::{Words, write_reply};
use rlaunch_protocol::wire::store::Up;

/// Most bytes that wait for an agent when something is asked of it: as many as there may be of messages.
pub const MOST: usize = 64 << 20;

/// Messages that wait for one agent, each with its sender.
#[derive(Debug, Default)]
pub struct Transit {
    waiting: VecDeque<(NodeId, Vec<u8>)>,
    bytes: usize,
}

/// The answer to something that is asked where so many bytes wait already for the host that asks: a host that does not take its answers is
/// given no more of them.
#[must_use]
pub fn refuses_more(waiting: usize, up: &Up<'_>) -> Option<(Ticket, Vec<u8>)> {
    match up {
        Up::Ask(ticket, words) if waiting > MOST && !is_of_fence(*ticket, words) => {
            Some((*ticket, write_reply(&Answer::Refused(Refusal::Unread { waiting }))))
        }
        Up::Ask(..) | Up::Cancel(_) | Up::Gone(_) | Up::Dropped(_) | Up::Lost => None,
    }
}

impl Transit {
    /// How many bytes wait.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The answer to something that is asked of that agent, if there is no room for it any more.
    #[must_use]
    pub fn refuses(&self, up: &Up<'_>) -> Option<(Ticket, Vec<u8>)> {
        match up {
            Up::Ask(ticket, words) if self.bytes.saturating_add(words.len()) > MOST && !is_of_fence(*ticket, words) => {
                let refusal = Refusal::Behind { waiting: self.bytes };
                Some((*ticket, write_reply(&Answer::Refused(refusal))))
            }
            Up::Ask(..) | Up::Cancel(_) | Up::Gone(_) | Up::Dropped(_) | Up::Lost => None,
        }
    }

    /// Adds a message.
    pub fn push(&mut self, of: NodeId, bytes: Vec<u8>) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        self.waiting.push_back((of, bytes));
    }

    /// The first.
    pub fn pop(&mut self) -> Option<(NodeId, Vec<u8>)> {
        let (of, bytes) = self.waiting.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes.len());
        Some((of, bytes))
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Whether this is an arrival at a fence, which a cache sends for all of its host: one message, now and then.
fn is_of_fence(ticket: Ticket, words: &[u8]) -> bool {
    ticket.client == ITSELF && matches!(Words::parse(words), Ok(Words::Fence(..) | Words::Arrive(..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Ask, Seq};
    use alloc::vec;
    use rlaunch_base::id::{ClientId, Rank};
    use rlaunch_base::rank_set::RankSet;
    use rlaunch_protocol::wire::frozen::client::{Code, Refused, Reply};

    const LONG: usize = 512 << 10;

    #[test]
    fn requests_beyond_bound_are_refused_and_notices_pass() {
        let (mut transit, of) = (Transit::default(), NodeId::new(3));
        let ticket = |client| Ticket { client: ClientId::new(client), seq: Seq(7) };
        let set = Words::write(Ask::Set(b"k", &vec![b'v'; LONG]));
        let ask = Up::Ask(ticket(9), &set);
        let mut taken = 0;
        while transit.refuses(&ask).is_none() {
            transit.push(of, set.clone());
            taken += 1;
        }
        assert_eq!(taken, MOST / set.len());
        let (to, words) = transit.refuses(&ask).unwrap();
        let Ok(Reply::Refused(Refused { code, text, hint, .. })) = Reply::parse(&words) else { panic!("{words:?}") };
        assert_eq!((to, code), (ticket(9), Code::Limit));
        let text = alloc::string::String::from_utf8_lossy(text);
        assert!(text.ends_with("bytes wait already for the host on which this space lives"), "{text}");
        assert!(!hint.is_empty());
        transit.push(of, vec![0; LONG]);
        let short = Words::write(Ask::Get(b"k"));
        let all: RankSet = [Rank::new(1)].into_iter().collect();
        let come = Words::write(Ask::Arrive { name: b"f", all: &all, who: &all });
        let fence = Words::write(Ask::Fence { name: b"f", all: &all, who: &all, within: None });
        for (up, passes) in [
            (Up::Ask(ticket(9), &short), false),
            (Up::Ask(Ticket { client: ITSELF, ..ticket(0) }, &short), false),
            (Up::Ask(ticket(9), &come), false),
            (Up::Ask(Ticket { client: ITSELF, ..ticket(0) }, &come), true),
            (Up::Ask(Ticket { client: ITSELF, ..ticket(0) }, &fence), true),
            (Up::Cancel(ticket(9)), true),
            (Up::Gone(ClientId::new(9)), true),
            (Up::Dropped(b"k"), true),
            (Up::Lost, true),
        ] {
            assert_eq!(transit.refuses(&up).is_none(), passes, "{up:?}");
        }
        // There is room again as waiting messages are sent.
        assert_eq!(transit.pop().map(|(of, bytes)| (of, bytes.len())), Some((of, set.len())));
        assert_eq!(transit.pop().map(|(_, bytes)| bytes.len()), Some(set.len()));
        assert_eq!(transit.refuses(&ask), None);
        while transit.pop().is_some() {}
        assert!(transit.is_empty() && transit.bytes == 0);
    }
}
