//! The launcher's decisions, for the ranks of this node.

use super::{Awaited, LocalMember, LocalState, RoundStart, Rounds, State};
use crate::node::{Cx, NodeAction, Notice, SessionAction, TcpStoreAction};
use alloc::boxed::Box;
use alloc::vec::Vec;
use rlaunch_base::id::Round;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Dismissal};
use rlaunch_protocol::wire::round::{RoundDown, RoundRendezvous};

impl Rounds {
    /// The launcher says something.
    pub(in crate::node) fn on_down(&mut self, cx: &mut Cx<'_>, down: RoundDown) {
        if self.state == State::Off {
            return;
        }
        match down {
            RoundDown::Interrupt { round, fault, within } => match self.state {
                State::Running { .. } | State::Interrupting if round == self.round => {
                    self.interrupt(cx, &AgentMessage::Interrupt(self.in_call(round), fault, within), within);
                }
                // The launcher asks for the port of the next rendezvous: no rank is in a function.
                State::Gathering if self.call > 0 => {
                    self.round = round;
                    self.interrupt(cx, &AgentMessage::Interrupt(round, fault, within), within);
                }
                State::Running { .. } | State::Interrupting => {}
                State::Gathering | State::Reserving | State::Waiting | State::Over | State::Off => {}
            },
            RoundDown::Begin { round, place, members, last } => {
                self.parts.extend(members.into_vec());
                if last {
                    self.begin(cx, round, place);
                }
            }
            RoundDown::Finish { call, round } if call == self.call => self.finish(cx, round),
            // ClientMessage to who came for an earlier one, and known here by now.
            RoundDown::Finish { .. } => {}
            RoundDown::GiveUp { text } => {
                self.state = State::Over;
                self.awaited = Awaited::None;
                self.dismiss(cx, |_| true, &AgentMessage::Dismissed(Dismissal::GivenUp, text));
            }
            RoundDown::End { ranks } => {
                // A rank that had registered when the work was done is on its way out.
                let absent =
                    |member: &&LocalMember| member.lives && member.part == LocalState::Absent && !member.took_part;
                let members = ranks.iter().filter_map(|rank| self.members.get(rank));
                members.filter(absent).for_each(|member| cx.notify(Notice::Unwanted(member.proc())));
            }
            RoundDown::Refuse { ranks, text } => {
                let ranks: RankSet = ranks.iter().copied().collect();
                let order = AgentMessage::Dismissed(Dismissal::Refused, text);
                self.dismiss(cx, |member| ranks.is_empty() || ranks.contains(member.initial()), &order);
                self.report_progress(cx);
            }
            RoundDown::Late { round, after } => {
                if round == self.round && matches!(self.state, State::Running { .. }) {
                    self.report_late(cx, after);
                }
            }
        }
    }

    fn interrupt(&mut self, cx: &mut Cx<'_>, order: &AgentMessage, within: Option<Span>) {
        self.state = State::Interrupting;
        let within = within.unwrap_or(Span::ZERO);
        self.members.values_mut().for_each(|member| member.watch.others_leave(cx.now, within, &self.limits));
        for member in self.members.values_mut().filter(|member| member.part.is_interrupted()) {
            member.watch.leave(cx.now, within, &self.limits);
            self.soonest.mind(&member.watch, &self.limits);
            member.session.iter().for_each(|session| {
                cx.act(NodeAction::Sessions(SessionAction::Send {
                    session: *session,
                    message: Box::new(order.clone()),
                }));
            });
        }
        self.report_progress(cx);
    }

    fn begin(&mut self, cx: &mut Cx<'_>, round: Round, place: RoundRendezvous) {
        (self.round, self.first) = (round, place.first);
        self.state = State::Running { returned: false };
        let is_ours = place.here && place.port == self.port;
        self.use_port(cx, is_ours);
        // Those too that take no part any more: what they have said was of another round.
        self.members.values_mut().for_each(|member| (member.failed, member.pinged) = (false, false));
        self.alone = false;
        let (mut who, mut numbers, mut marked) = (Vec::new(), RankSet::new(), RankSet::new());
        for to in core::mem::take(&mut self.parts) {
            numbers.extend(&to.active.into_iter().collect());
            let Some(member) = self.members.get_mut(&to.initial) else { continue };
            let Some(session) = member.session.filter(|_| member.part.is_in() && member.part != LocalState::Ending)
            else {
                continue;
            };
            member.watch.rest();
            member.part = match (to.rank, to.active) {
                (Some(_), Some(_)) => LocalState::Working,
                (Some(_), None) => LocalState::Reserve,
                (None, _) => LocalState::Out,
            };
            if member.part == LocalState::Working {
                member.watch.begin();
                self.soonest.mind(&member.watch, &self.limits);
            }
            let is = (to.active, place.active_world_size);
            // A call may follow another without a fault and with the same numbers.
            let is_unchanged = member.is.replace(is) == Some(is) && place.fault.is_none();
            who.push((session, member.delta, to));
            if !is_unchanged {
                marked.insert(to.initial);
            }
        }
        cx.notify(Notice::RoundMeets(Box::new(place.clone()), numbers.clone()));
        cx.notify(Notice::RoundBegins(Box::new(RoundStart { round, place, numbers, marked, who })));
        self.report_progress(cx);
    }

    /// Dismisses these ranks, with the reason.
    fn dismiss(&mut self, cx: &mut Cx<'_>, whom: impl Fn(&LocalMember) -> bool, order: &AgentMessage) {
        for member in self.members.values_mut().filter(|member| member.part.is_in() && whom(member)) {
            // The order to end a process is not taken back.
            if member.part != LocalState::Ending {
                member.part = LocalState::Out;
                member.watch.done();
            }
            member.session.iter().for_each(|session| {
                cx.act(NodeAction::Sessions(SessionAction::Send {
                    session: *session,
                    message: Box::new(order.clone()),
                }));
            });
        }
    }

    /// A port is held for the next round; 0: none could be had.
    pub(in crate::node) fn on_port(&mut self, cx: &mut Cx<'_>, port: u16) {
        self.port = port;
        match self.state {
            State::Reserving => self.report_ready(cx),
            State::Gathering | State::Running { .. } | State::Interrupting => self.use_port(cx, false),
            State::Waiting | State::Over | State::Off => self.use_port(cx, false),
        }
    }

    pub(super) fn use_port(&mut self, cx: &mut Cx<'_>, is_used: bool) {
        if core::mem::take(&mut self.port) > 0 {
            cx.act(NodeAction::TcpStores(TcpStoreAction::UsePort(is_used)));
        }
    }
}
