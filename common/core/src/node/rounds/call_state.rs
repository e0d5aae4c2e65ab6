//! Calls that follow one another in the same processes: `restart::calls`, as a node sees them.
//!
//! A process registers anew for each call, with a session of its own. Later messages of the session before are ignored. A discarded rank,
//! or a rank that has left, is in none of them. A process that was started late has done fewer calls than the others: the calls that it
//! missed are done before they begin.

use super::{LocalState, Rounds, State};
use crate::node::{Cx, NodeAction, SessionAction};
use alloc::boxed::Box;
use rlaunch_base::id::{Rank, Round, SessionId};
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, ClientMessage};

impl Rounds {
    /// A round, as programs count: from the first of their call.
    pub(super) const fn in_call(&self, round: Round) -> Round {
        Round::new(round.get().saturating_sub(self.first.get()))
    }

    /// The work of this call is done on all ranks.
    pub(super) fn finish(&mut self, cx: &mut Cx<'_>, round: Round) {
        let order = AgentMessage::Finish(self.in_call(round));
        for member in self.members.values_mut().filter(|member| member.part.is_in()) {
            let session = member.session.take();
            session.iter().for_each(|session| {
                self.sessions.remove(session);
                cx.act(NodeAction::Sessions(SessionAction::Send {
                    session: *session,
                    message: Box::new(order.clone()),
                }));
            });
            match (member.part, session) {
                // The watch finds out and reports whether its process continues without a session.
                (LocalState::Lost(_), _) | (_, None) => {}
                // The order to end a process is not taken back.
                (LocalState::Ending, _) => {}
                (_, Some(session)) => {
                    member.watch.done();
                    (member.part, member.is_reported, member.took_part) = (LocalState::Absent, false, true);
                    member.calls = member.calls.saturating_add(1);
                    self.closing.insert(session, (member.initial(), member.proc()));
                }
            }
        }
        self.call = self.call.saturating_add(1);
        self.state = State::Gathering;
        self.sent_terms = None;
        self.parts.clear();
        self.use_port(cx, false);
    }

    /// A session of a call that is done says something: of its hooks, which are to come to an end, unless the next call has begun.
    pub(super) fn closes(&mut self, cx: &Cx<'_>, session: SessionId, said: &ClientMessage) {
        let Some(member) = self.closing.get(&session).and_then(|(rank, proc)| {
            let member = self.members.get_mut(rank)?;
            (member.proc() == *proc && member.part == LocalState::Absent).then_some(member)
        }) else {
            return;
        };
        match said {
            ClientMessage::Hooks(_, run) if self.state != State::Off => member.watch.hooks(cx.now, *run),
            ClientMessage::Section(_, span) => member.watch.section(cx.now, *span),
            ClientMessage::Register(_)
            | ClientMessage::Fault(..)
            | ClientMessage::Ready(..)
            | ClientMessage::Returned(_) => {}
            ClientMessage::Leave(..) | ClientMessage::Alive(..) | ClientMessage::Hooks(..) => {}
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

    /// Ends a call that is done for a process that comes late to it.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>, session: SessionId, rank: Rank) {
        let Some(member) = self.members.get_mut(&rank) else { return };
        member.calls = member.calls.saturating_add(1);
        self.closing.insert(session, (rank, member.proc()));
        cx.act(NodeAction::Sessions(SessionAction::Send {
            session,
            message: Box::new(AgentMessage::Finish(Round::new(0))),
        }));
    }
}
