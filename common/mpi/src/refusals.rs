//! Requests that the store has refused: processes that depend on one get an error or lose their connection, and the user reads the cause.

use super::fences::Waiter;
use super::pmi1::Generation;
use super::pmix::{Looking, status_message};
use super::remote::Pending;
use super::{Action, Broken, Mpi, Session};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_protocol::wire::frozen::client::{Code, Refused};
use rlaunch_protocol::wire::pmi1::Reply;
use rlaunch_protocol::wire::pmix::status;

/// Processes that have put something for other hosts.
#[derive(Debug)]
pub(super) enum Source {
    /// Processes in a program of PMI-1.
    Program(Generation),
    /// Processes of some ranks, by PMIx.
    Ranks(RankSet),
}

impl Broken {
    /// The consequence of a refused request: why processes that depend on it fail. `None`: the store has ended with the ranks, so nothing
    /// follows.
    fn of_refusal(Refused { code, text, hint, .. }: &Refused<'_>) -> Option<Self> {
        if *code == Code::Gone {
            return None;
        }
        let mut why = String::from_utf8_lossy(text).into_owned();
        if !hint.is_empty() {
            why.push_str("\n  try     ");
            why.push_str(&String::from_utf8_lossy(hint));
        }
        Some(Self::Store(why))
    }
}

impl Session {
    /// The rank that it speaks for.
    pub(super) const fn rank(&self) -> Option<Rank> {
        match self {
            Self::Lines(session) => session.rank(),
            Self::Messages(session) => session.rank(),
            Self::New(_) | Self::Broken => None,
        }
    }

    fn has_put(&self, source: &Source) -> bool {
        match (self, source) {
            (Self::Lines(session), Source::Program(generation)) => session.is_in(*generation),
            (Self::Messages(session), Source::Ranks(ranks)) => session.rank().is_some_and(|rank| ranks.contains(rank)),
            (Self::New(_) | Self::Lines(_) | Self::Messages(_) | Self::Broken, _) => false,
        }
    }
}

impl Mpi {
    /// The store has refused a request. Returns false if the code of the request answers a refusal itself.
    ///
    /// Other hosts wait for the ranks of a barrier or meeting, and for what ranks have put. A library may ignore the error. The connection
    /// of such a rank ends, so that the rank fails, and the job with it.
    pub(super) fn handle_refusal(&mut self, pending: &Pending, refused: &Refused<'_>) -> bool {
        let error = |waiter: &Waiter| (waiter.client, status_message(*waiter, status::OUT_OF_RESOURCE));
        let (processes, has_others): (Vec<(ClientId, Vec<u8>)>, bool) = match pending {
            Pending::Barrier(met) => {
                let error = Reply::Refused { command: "barrier_out", why: "refused_by_the_store" };
                (met.waiters.iter().map(|waiter| (waiter.client, error.write())).collect(), true)
            }
            Pending::Meeting(met) => (met.waiters.iter().map(error).collect(), true),
            Pending::Put(source) => {
                let sources = self.sessions.iter().filter(|(_, session)| session.has_put(source));
                (sources.map(|(client, _)| (client, Vec::new())).collect(), true)
            }
            Pending::Committed(wanted) | Pending::Data(Looking::One(wanted)) => {
                (Vec::from([error(&wanted.waiter)]), false)
            }
            Pending::Quiet | Pending::Keys(_) | Pending::Data(Looking::Host(_)) | Pending::Came(..) => return false,
            Pending::OfWorld(_) | Pending::Name(..) | Pending::Published(..) | Pending::Lookup(_) => return false,
            Pending::Spawn(_) | Pending::Help(_) => return false,
        };
        let Some(why) = Broken::of_refusal(refused) else { return true };
        for (client, bytes) in processes {
            let Some(rank) = self.sessions.get(client).and_then(Session::rank) else { continue };
            self.report(rank, &why);
            if !bytes.is_empty() {
                self.out.push_back(Action::Write { client, bytes });
            }
            if has_others {
                self.break_off(client, why.clone());
            }
        }
        true
    }

    /// Shows the user the cause of a failure, which may be the same for many ranks: once.
    pub(super) fn report(&mut self, rank: Rank, why: &Broken) {
        if !core::mem::replace(&mut self.is_reported, true) {
            self.out.push_back(Action::Log { rank, text: format!("rlaunch: {why}").into_bytes(), help: None });
        }
    }
}
