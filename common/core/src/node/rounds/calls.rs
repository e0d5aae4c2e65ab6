//! Calls that follow one another in the same processes: `restart::calls`, as a node sees them.
//!
//! A process registers anew for each, with a session of its own; what is still said in the one before is nothing then. Who was sent home, or has
//! left, is in none of them. A process that was started late is calls behind the others: its own are done before they begin.

use super::{Part, Rounds, State};
use crate::id::{Rank, Round, SessionId};
use crate::node::{Cx, NodeAction};
use crate::wire::frozen::client::round::Heard;
use alloc::boxed::Box;

impl Rounds {
    /// A round, as programs count: from the first of their call.
    pub(super) const fn in_call(&self, round: Round) -> Round {
        Round::new(round.get().saturating_sub(self.first.get()))
    }

    /// The work of this call is done on all ranks.
    pub(super) fn finish(&mut self, cx: &mut Cx<'_>, round: Round) {
        let heard = Heard::Finish(self.in_call(round));
        for seat in self.seats.values_mut().filter(|seat| seat.part.is_in()) {
            let session = seat.session.take();
            session.iter().for_each(|session| {
                self.sessions.remove(session);
                cx.act(NodeAction::Tell { session: *session, heard: Box::new(heard.clone()) });
            });
            match (seat.part, session) {
                // Whether its process goes on without a session is found out, and told.
                (Part::Lost(_), _) | (_, None) => {}
                // Nobody takes back that one is ended.
                (Part::Ending, _) => {}
                (_, Some(_)) => {
                    seat.put_out();
                    (seat.part, seat.told) = (Part::Absent, false);
                    seat.calls = seat.calls.saturating_add(1);
                }
            }
        }
        self.call = self.call.saturating_add(1);
        self.state = State::Gathering;
        self.told = None;
        self.parts.clear();
        self.use_port(cx, false);
    }

    /// Whether a rank's process comes for a call that is done.
    pub(super) fn is_behind(&self, rank: Rank) -> bool {
        self.seats.get(&rank).is_some_and(|seat| seat.calls < self.call)
    }

    /// That call is over for it.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>, session: SessionId, rank: Rank) {
        let Some(seat) = self.seats.get_mut(&rank) else { return };
        seat.calls = seat.calls.saturating_add(1);
        cx.act(NodeAction::Tell { session, heard: Box::new(Heard::Finish(Round::new(0))) });
    }
}
