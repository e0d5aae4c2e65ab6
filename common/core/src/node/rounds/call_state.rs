//! Calls that follow one another in the same processes: `restart::calls`, as a node sees them.
//!
//! A process registers anew for each, with a session of its own; what is still said in the one before is nothing then. A discarded rank,
//! or one that has left, is in none of them. A process that was started late is calls behind the others: its own are done before they
//! begin.

use super::{LocalState, Rounds, State};
use crate::node::{Cx, NodeAction, SessionAction};
use alloc::boxed::Box;
use rlaunch_base::id::{Rank, Round, SessionId};
use rlaunch_protocol::wire::frozen::client::client_round::{Heard, Said};

impl Rounds {
    /// A round, as programs count: from the first of their call.
    pub(super) const fn in_call(&self, round: Round) -> Round {
        Round::new(round.get().saturating_sub(self.first.get()))
    }

    /// The work of this call is done on all ranks.
    pub(super) fn finish(&mut self, cx: &mut Cx<'_>, round: Round) {
        let heard = Heard::Finish(self.in_call(round));
        for member in self.members.values_mut().filter(|member| member.part.is_in()) {
            let session = member.session.take();
            session.iter().for_each(|session| {
                self.sessions.remove(session);
                cx.act(NodeAction::Sessions(SessionAction::Send { session: *session, heard: Box::new(heard.clone()) }));
            });
            match (member.part, session) {
                // The watch finds out and reports whether its process continues without a session.
                (LocalState::Lost(_), _) | (_, None) => {}
                // Nobody takes back that one is ended.
                (LocalState::Ending, _) => {}
                (_, Some(session)) => {
                    member.watch.done();
                    (member.part, member.told, member.took_part) = (LocalState::Absent, false, true);
                    member.calls = member.calls.saturating_add(1);
                    self.closing.insert(session, (member.initial(), member.proc()));
                }
            }
        }
        self.call = self.call.saturating_add(1);
        self.state = State::Gathering;
        self.told = None;
        self.parts.clear();
        self.use_port(cx, false);
    }

    /// A session of a call that is done says something: of its hooks, which are to come to an end, unless the next call has begun.
    pub(super) fn closes(&mut self, cx: &Cx<'_>, session: SessionId, said: &Said) {
        let Some(member) = self.closing.get(&session).and_then(|(rank, proc)| {
            let member = self.members.get_mut(rank)?;
            (member.proc() == *proc && member.part == LocalState::Absent).then_some(member)
        }) else {
            return;
        };
        match said {
            Said::Hooks(_, run) if self.state != State::Off => member.watch.hooks(cx.now, *run),
            Said::Section(_, span) => member.watch.section(cx.now, *span),
            Said::Register(_) | Said::Fault(..) | Said::Ready(..) | Said::Returned(_) => {}
            Said::Leave(..) | Said::Alive(..) | Said::Hooks(..) => {}
        }
        self.soonest.mind(&member.watch, &self.limits);
    }

    /// Records the end of a session.
    pub(super) fn has_closed(&mut self, session: SessionId) {
        let Some((rank, proc)) = self.closing.remove(&session) else { return };
        if let Some(member) = self.members.get_mut(&rank)
            && (member.proc(), member.part) == (proc, LocalState::Absent)
            && !member.watch.is_ending()
        {
            member.watch.rest();
        }
    }

    /// Whether a rank's process comes for a call that is done.
    pub(super) fn is_behind(&self, rank: Rank) -> bool {
        self.members.get(&rank).is_some_and(|member| member.calls < self.call)
    }

    /// That call is over for it.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>, session: SessionId, rank: Rank) {
        let Some(member) = self.members.get_mut(&rank) else { return };
        member.calls = member.calls.saturating_add(1);
        self.closing.insert(session, (rank, member.proc()));
        cx.act(NodeAction::Sessions(SessionAction::Send { session, heard: Box::new(Heard::Finish(Round::new(0))) }));
    }
}
