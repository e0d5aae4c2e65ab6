//! The reports to the launcher, and their times: once for all ranks of this node, except for faults.

use super::{Cx, LocalMember, LocalState, Rounds, State};
use crate::node::{NodeAction, TcpStoreAction};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::rank_fault::{Fault, FaultKind, TEXT};
use rlaunch_protocol::wire::round::{Enrolled, RoundUp, batches};
use rlaunch_protocol::wire::to_root::ToRoot;

pub(super) fn report_to_launcher(cx: &mut Cx<'_>, up: RoundUp) {
    cx.act(NodeAction::ToRoot(ToRoot::Round(up)));
}

impl Rounds {
    /// Reports terms that are refused: once, as all ranks get the same answer.
    pub(super) fn report_refused(&mut self, cx: &mut Cx<'_>, why: &str) {
        if !core::mem::replace(&mut self.refused, true) {
            report_to_launcher(cx, RoundUp::Refused { text: OsBytes::from(why) });
        }
    }

    /// Reports to the launcher what all ranks of this node have reached together, once the last of them has.
    pub(super) fn report_progress(&mut self, cx: &mut Cx<'_>) {
        match self.state {
            State::Gathering => self.report_joined(cx),
            State::Running { returned } => {
                self.report_joined(cx);
                if !returned {
                    self.report_returned(cx);
                }
            }
            State::Interrupting => {
                self.report_joined(cx);
                if !self.members.values().any(|member| member.part.is_awaited()) {
                    self.leave(cx);
                }
            }
            State::Reserving | State::Waiting => self.report_joined(cx),
            State::Over | State::Off => {}
        }
        self.observe_awaited(cx.now);
    }

    /// Reports ranks that have registered: all of them at first, then each new one. The launcher compares what they ask for.
    fn report_joined(&mut self, cx: &mut Cx<'_>) {
        let call = self.call;
        if self.sent_terms.is_none() && (!self.complete || self.members.values().any(|member| member.is_missing(call)))
        {
            return;
        }
        let (mut new, mut warned): (BTreeMap<OsBytes, Vec<Enrolled>>, Vec<Rank>) = Default::default();
        for member in
            self.members.values_mut().filter(|member| member.part == LocalState::Joined && !member.is_reported)
        {
            member.is_reported = true;
            new.entry(member.terms.clone()).or_default().push(member.enrolled());
            warned.extend(self.warned.then(|| member.initial()));
        }
        for (terms, ranks) in new {
            for ranks in batches(ranks) {
                let is_known = self.sent_terms.replace(terms.clone()) == Some(terms.clone());
                let terms = if is_known { OsBytes::default() } else { terms.clone() };
                report_to_launcher(cx, RoundUp::Joined { call, ranks, terms });
            }
        }
        for initial in warned {
            self.report_fault(cx, initial, FaultKind::Warned, &OsBytes::default());
        }
    }

    /// Something is wrong with a rank.
    pub(super) fn report_fault(&self, cx: &mut Cx<'_>, initial: Rank, kind: FaultKind, text: &OsBytes) {
        let text = OsBytes::from(text.get(..TEXT).unwrap_or(text));
        let at = cx.now.host_time();
        report_to_launcher(cx, RoundUp::Fault { round: self.round, fault: Fault { initial, kind, text }, at });
    }

    /// The function of a rank has returned, and whose has not is not known here.
    pub(super) fn report_alone(&self, cx: &mut Cx<'_>, initial: Rank) {
        report_to_launcher(cx, RoundUp::Alone { round: self.round, initial });
    }

    /// The host is about to be taken away: the others are to continue without its ranks, from where they can.
    pub(in crate::node) fn on_warned(&mut self, cx: &mut Cx<'_>) {
        self.warned = true;
        if matches!(self.state, State::Over | State::Off) {
            return;
        }
        // Of the others the launcher knows nothing yet.
        let known = self.members.values().filter(|member| member.lives && member.part.is_in() && member.is_reported);
        for initial in known.map(LocalMember::initial) {
            self.report_fault(cx, initial, FaultKind::Warned, &OsBytes::default());
        }
    }

    /// The function has returned wherever it was, if it has.
    fn report_returned(&mut self, cx: &mut Cx<'_>) {
        let count = |part: fn(LocalState) -> bool| self.members.values().filter(|member| part(member.part)).count();
        let open = count(|part| {
            matches!(part, LocalState::Working | LocalState::Ready | LocalState::Lost(_) | LocalState::Ending)
        });
        let returned = count(|part| part == LocalState::Returned);
        if open == 0 && returned > 0 {
            self.state = State::Running { returned: true };
            let ranks = u32::try_from(returned).unwrap_or(u32::MAX);
            report_to_launcher(cx, RoundUp::Returned { round: self.round, ranks });
        }
    }

    /// All are out of their function.
    fn leave(&mut self, cx: &mut Cx<'_>) {
        // After a call that is done, the ranks that have registered for the next call wait.
        let meets = |member: &LocalMember| matches!(member.part, LocalState::Ready | LocalState::Joined);
        // A rank that was started again may be the only one here, and the next rank 0; perhaps it is yet to come.
        if self.can_start_more || self.members.values().any(meets) {
            self.state = State::Reserving;
            let listen = self.at.clone().filter(|_| self.agent_store);
            cx.act(NodeAction::TcpStores(TcpStoreAction::ReservePort { listen }));
        } else {
            self.report_ready(cx);
        }
    }

    /// Reports ranks that are ready for another round. Ranks that have ended meanwhile are reported as always.
    pub(super) fn report_ready(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Waiting;
        let ready = || self.members.values().filter(|member| member.part == LocalState::Ready);
        let (round, port) = (self.round, self.port);
        let pinged = self.members.values().any(|member| member.pinged);
        let mut parts = batches(ready().map(LocalMember::enrolled).collect());
        let end = parts.pop().unwrap_or_default();
        for ranks in parts {
            report_to_launcher(cx, RoundUp::Ready { round, ranks, last: false, port, pinged });
        }
        report_to_launcher(cx, RoundUp::Ready { round, ranks: end, last: true, port, pinged });
    }
}
