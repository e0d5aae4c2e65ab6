//! The events of a round, until all ranks are ready for the next.

use super::membership::{Host, MemberState};
use super::remark::Remark;
use super::{CallEnd, Phase, Restart, RestartAction, RoundNote, RoundsEnd};
use alloc::string::ToString;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, ProcId, Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::rank_assign::Mode;
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_protocol::wire::round::{Enrolled, RoundDown};

/// Most ranks that are named if they are ended after a call.
const MAX_NAMED: u32 = 3;

impl Restart {
    /// A rank, or its agent, says that something is wrong.
    pub(super) fn fault(&mut self, now: Mono, round: Round, fault: Fault, at: Mono) {
        let Some(member) = self.membership.members.get(fault.initial.index()) else { return };
        let (part, is_lost) = (member.state, fault.kind.is_loss());
        if is_lost
            && self.phase == Phase::CallEnded(CallEnd::Done)
            && part == MemberState::Active
            && round == self.round
        {
            self.exited_between_calls.get_or_insert((fault.initial, fault.kind.to_string()));
        }
        if matches!(fault.kind, FaultKind::Overdue(_)) && (!self.is_open() || part != MemberState::Active) {
            self.report_overdue(&fault);
        }
        // A rank that has left may not have registered for this call yet, and will not.
        let leaves = part == MemberState::Absent
            && round == self.round
            && matches!(fault.kind, FaultKind::Left(_) | FaultKind::Ended(_) | FaultKind::Overdue(_));
        if self.phase == Phase::Gathering && is_lost && (part == MemberState::Joining || leaves) {
            self.on_exit_while_gathering(fault.initial, &fault.kind.to_string());
        }
        if !self.is_open() {
            return;
        }
        let Some(member) = self.membership.members.get(fault.initial.index()) else { return };
        if fault.kind.is_loss() {
            // The loss counts in the next round, too.
            if round <= self.round && round >= member.first_round {
                let may_respawn = match fault.kind {
                    FaultKind::Ended(_) | FaultKind::Overdue(_) | FaultKind::HostLost => true,
                    FaultKind::Left(_)
                    | FaultKind::Exception
                    | FaultKind::Hang
                    | FaultKind::Warned
                    | FaultKind::Joined => false,
                };
                if self.take_out(fault, at, may_respawn, false) {
                    self.react(now);
                }
            }
        } else if round == self.round && member.state == MemberState::Active {
            self.record(fault, at);
            self.react(now);
        }
    }

    /// Reports a rank that is ended although no round ends by it, but not many times.
    fn report_overdue(&mut self, fault: &Fault) {
        self.overdue = self.overdue.saturating_add(1);
        match self.overdue {
            1..=MAX_NAMED => self.remark(Remark::Ended { initial: fault.initial, reason: fault.text.clone() }),
            n if n == MAX_NAMED + 1 => self.remark(Remark::MoreEnded),
            _ => {}
        }
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, now: Mono, initial: Rank, proc: ProcId, status: Status, at: Mono) {
        let Some(member) = self.membership.members.get(initial.index()) else { return };
        let its = member.proc == Some(proc);
        match self.phase {
            Phase::Gathering if its || member.proc.is_none() => {
                self.on_exit_while_gathering(initial, &status.to_string())
            }
            Phase::Running | Phase::Waiting(_) | Phase::Draining { .. } if its => {
                let fault = Fault { initial, kind: FaultKind::Ended(status), text: OsBytes::default() };
                if self.take_out(fault, at, true, false) {
                    self.react(now);
                }
            }
            Phase::CallEnded(CallEnd::Done) if its && member.state == MemberState::Active => {
                self.exited_between_calls.get_or_insert((initial, status.to_string()));
            }
            Phase::Gathering
            | Phase::Running
            | Phase::Waiting(_)
            | Phase::Draining { .. }
            | Phase::CallEnded(CallEnd::Done) => self.on_failed_start(now, initial, proc, status),
            Phase::CallEnded(_) => {}
        }
    }

    /// Whether the others cannot do without a rank.
    fn works(&self, initial: Rank) -> bool {
        let member = self.membership.members.get(initial.index()).filter(|member| member.state == MemberState::Active);
        let returned =
            member.and_then(|member| self.membership.hosts.get(&member.node)).is_none_or(|host| host.returned);
        !returned
            && self.world.members().get(initial.index()).is_some_and(|world_member| world_member.mode == Mode::Active)
    }

    /// Takes a rank out of the round. Returns whether the others need a round for that, if they do not already for another loss.
    fn take_out(&mut self, fault: Fault, at: Mono, may_respawn: bool, together: bool) -> bool {
        let initial = fault.initial;
        let works = together || self.works(initial);
        let world_member = self.world.members().get(initial.index()).copied().unwrap_or_default();
        let calm = match self.phase {
            Phase::Running | Phase::Draining { urgent: false } => true,
            Phase::Draining { urgent: true } | Phase::Waiting(_) | Phase::Gathering | Phase::CallEnded(_) => false,
        };
        let Some(member) = self.membership.members.get_mut(initial.index()) else { return false };
        match member.state {
            MemberState::Active => {
                let idle = world_member.mode == Mode::Inactive;
                member.state = MemberState::Failed { may_respawn };
                let hasty = !calm || works;
                if hasty {
                    self.record(fault, at);
                } else {
                    member.state = MemberState::Failed { may_respawn: may_respawn && !idle };
                    self.note(RoundNote::NoRoundNeeded { fault });
                    if idle && may_respawn {
                        self.respawn(at, initial);
                    }
                }
                hasty
            }
            // The rank has registered, and was in no round of this call yet.
            MemberState::Joining if world_member.rank.is_some() && !calm => {
                member.state = MemberState::Failed { may_respawn };
                // The call is of those who were there before. The loss of a rank before it came back is known.
                if !member.faulted {
                    self.record(fault, at);
                }
                false
            }
            MemberState::Joining => {
                // One of a reserve has its place in the world until it is numbered anew.
                member.state = if world_member.rank.is_some() {
                    MemberState::Failed { may_respawn: false }
                } else {
                    MemberState::Absent
                };
                self.on_lost_before_round(&fault);
                if may_respawn {
                    self.respawn(at, initial);
                }
                false
            }
            MemberState::Failed { .. } | MemberState::Absent | MemberState::Left => false,
        }
    }

    /// A fault that ends this round, or belongs to what does.
    fn record(&mut self, fault: Fault, at: Mono) {
        // An exception after the first fault is often only the loss of that rank.
        let consequence = self.faults.real().is_some() || self.faults.is_consequence(fault.kind);
        let own = is_own(fault.kind) && (fault.kind.is_loss() || !consequence);
        if let Some(member) = self.membership.members.get_mut(fault.initial.index()) {
            if own && !member.fault_counted {
                (member.fault_counted, member.faults) = (true, member.faults.saturating_add(1));
            }
            if member.faulted && !fault.kind.is_loss() {
                return;
            }
            member.faulted = true;
        }
        let excused = self.faults.victim();
        self.faults.add(fault, at);
        let victim = self.faults.victim().filter(|_| excused.is_none());
        let member = victim.and_then(|victim| self.membership.members.get_mut(victim.index()));
        if let Some(member) = member.filter(|member| member.fault_counted && member.state == MemberState::Active) {
            // The fault was counted before that was known.
            (member.fault_counted, member.faults) = (false, member.faults.saturating_sub(1));
        }
    }

    /// There is a fault: ranks are interrupted, unless they are already, or more faults are waited for.
    fn react(&mut self, now: Mono) {
        match self.phase {
            Phase::Running if self.setup.fault_window == Span::ZERO => self.interrupt(now, true),
            Phase::Running => {
                let window = self.setup.fault_window;
                self.phase = Phase::Waiting(now + window);
                if let Some(Fault { initial, kind, .. }) = self.faults.fault_for_ranks().cloned() {
                    self.remark(Remark::FaultWindow { initial, kind, window });
                }
            }
            Phase::Draining { urgent: false } => self.make_urgent(),
            Phase::Draining { urgent: true } | Phase::Waiting(_) | Phase::Gathering | Phase::CallEnded(_) => {}
        }
    }

    /// All ranks leave their function.
    pub(super) fn interrupt(&mut self, now: Mono, urgent: bool) {
        self.faults.decide(now);
        self.phase = Phase::Draining { urgent };
        self.awaited.end();
        self.awaited.begin(now);
        self.awaited_hosts = 0;
        // On a suspected host no rank may be left that could answer, but a rank may still be in the function.
        let awaited = |host: &Host| !host.lost && (host.suspected || self.membership.has_work(host));
        let working = self.membership.hosts.iter().filter(|(_, host)| awaited(host));
        let nodes: Vec<NodeId> = working.map(|(node, _)| *node).collect();
        for node in nodes {
            self.send_interrupt(node, urgent);
        }
        self.begin_when_drained(now);
    }

    /// A host is to have its ranks leave their function, and to say when they have.
    pub(super) fn send_interrupt(&mut self, node: NodeId, urgent: bool) {
        let Some(host) = self.membership.hosts.get_mut(&node).filter(|host| !host.interrupt_sent && !host.answered)
        else {
            return;
        };
        host.interrupt_sent = true;
        self.awaited_hosts += 1;
        let msg = self.interrupt_message(urgent);
        self.send(node, msg);
    }

    fn interrupt_message(&self, urgent: bool) -> RoundDown {
        let first = self.faults.fault_for_ranks().cloned();
        let placeholder = Fault { initial: Rank::new(0), kind: FaultKind::Joined, text: OsBytes::default() };
        let within = (!urgent).then_some(self.setup.yield_within);
        RoundDown::Interrupt { round: self.round, fault: first.unwrap_or(placeholder), within }
    }

    /// Turns a planned interruption into an urgent one.
    fn make_urgent(&mut self) {
        self.phase = Phase::Draining { urgent: true };
        let msg = self.interrupt_message(true);
        for (node, _) in
            self.membership.hosts.iter().filter(|(_, host)| !host.lost && host.interrupt_sent && !host.answered)
        {
            self.out.push_back(RestartAction::Send { node: *node, msg: msg.clone() });
        }
    }

    /// Ranks of a host are out of their function.
    pub(super) fn ready(&mut self, node: NodeId, round: Round, ranks: Vec<Enrolled>, pinged: bool) {
        if !self.awaits(node, round) {
            return;
        }
        if pinged {
            self.progress.record_progress();
        }
        for Enrolled { initial, proc, keys } in ranks {
            if let Some(member) = self.membership.members.get_mut(initial.index())
                && (member.node, member.proc, member.state) == (node, Some(proc), MemberState::Active)
            {
                (member.ready, member.keys) = (true, keys.into_vec());
            }
        }
    }

    /// Records that a host has no other rank that will be ready.
    pub(super) fn answered(&mut self, now: Mono, node: NodeId, round: Round, port: u16) {
        if !self.awaits(node, round) {
            return;
        }
        let Some(host) = self.membership.hosts.get_mut(&node) else { return };
        host.answered = true;
        host.port = port;
        if host.interrupt_sent {
            self.awaited_hosts = self.awaited_hosts.saturating_sub(1);
        }
        let unready = |rank: &&Rank| {
            self.membership
                .members
                .get(rank.index())
                .is_some_and(|member| member.state == MemberState::Active && !member.ready)
        };
        let not_ready: Vec<Rank> = self
            .membership
            .hosts
            .get(&node)
            .into_iter()
            .flat_map(|host| host.ranks.iter().filter(unready))
            .copied()
            .collect();
        let mut hasty = false;
        for initial in not_ready {
            // How is not known yet.
            let fault = Fault { initial, kind: FaultKind::Ended(Status::Lost), text: OsBytes::default() };
            hasty |= self.take_out(fault, now, true, false);
        }
        if hasty {
            self.react(now);
        }
        self.begin_when_drained(now);
    }

    /// Whether a host's answer is awaited, or will be as soon as the window for more faults has passed.
    fn awaits(&self, node: NodeId, round: Round) -> bool {
        let open = match self.phase {
            Phase::Waiting(_) | Phase::Draining { .. } => round == self.round,
            Phase::Gathering | Phase::Running | Phase::CallEnded(_) => false,
        };
        open && self.membership.hosts.get(&node).is_some_and(|host| !host.lost && !host.suspected && !host.answered)
    }

    /// Begins the next round if no host is waited for any more.
    pub(super) fn begin_when_drained(&mut self, now: Mono) {
        match self.phase {
            Phase::Draining { .. } if self.awaited_hosts == 0 => self.assign(now),
            Phase::Draining { .. } | Phase::Gathering | Phase::Running | Phase::Waiting(_) | Phase::CallEnded(_) => {}
        }
    }

    /// The function has returned on all active ranks of a host.
    pub(super) fn on_returned(&mut self, node: NodeId, round: Round) {
        // A rank that leaves has to run again, even if it finished meanwhile: it is about to be interrupted, or is ready already.
        let counts = match self.phase {
            Phase::Running => round == self.round,
            Phase::Gathering | Phase::Waiting(_) | Phase::Draining { .. } | Phase::CallEnded(_) => false,
        };
        let Some(host) = self.membership.hosts.get_mut(&node) else { return };
        if !counts || host.lost || host.returned || host.active == 0 {
            return;
        }
        host.returned = true;
        self.unreturned = self.unreturned.saturating_sub(1);
        if self.unreturned == 0 {
            self.notify_all(&RoundDown::Finish { call: self.call, round });
            self.end_call(CallEnd::Done);
            self.act(RestartAction::Closed(RoundsEnd::Done));
        }
    }

    /// A rank whose function has returned has waited for the others long enough. Those hosts where it runs still know who is late.
    pub(super) fn on_waiting_alone(&mut self, node: NodeId, round: Round, initial: Rank) {
        if self.phase != Phase::Running || round != self.round || self.late == Some(round) {
            return;
        }
        self.late = Some(round);
        let late = |other: NodeId, host: &Host| {
            other != node && !host.lost && !host.suspected && !host.returned && host.active > 0
        };
        for (other, _) in self.membership.hosts.iter().filter(|(other, host)| late(**other, host)) {
            let msg = RoundDown::Late { round, after: initial };
            self.out.push_back(RestartAction::Send { node: *other, msg });
        }
    }

    /// A host sends no heartbeats: other ranks leave their function, but do not begin it again before its ranks have surely ended.
    pub(super) fn on_host_suspected(&mut self, now: Mono, node: NodeId, at: Mono) {
        let Some(host) = self.membership.hosts.get(&node).filter(|host| !host.lost && !host.suspected) else { return };
        if !self.is_open() || !self.membership.has_work(host) {
            return;
        }
        let hasty = self.lose_all(&host.ranks.clone(), at);
        let Some(host) = self.membership.hosts.get_mut(&node) else { return };
        if matches!(self.phase, Phase::Draining { .. }) && (host.answered || !host.interrupt_sent) {
            host.interrupt_sent = true;
            self.awaited_hosts += 1;
        }
        (host.suspected, host.answered) = (true, false);
        if hasty {
            self.react(now);
        }
    }

    /// The ranks of a host. Those in reserve are lost with the others: all of it is one fault.
    fn lose_all(&mut self, ranks: &[Rank], at: Mono) -> bool {
        let together = ranks.iter().any(|initial| self.works(*initial));
        let mut hasty = false;
        for initial in ranks {
            let fault = Fault { initial: *initial, kind: FaultKind::HostLost, text: OsBytes::default() };
            hasty |= self.take_out(fault, at, true, together);
        }
        hasty
    }

    /// A host is lost.
    pub(super) fn on_host_lost(&mut self, now: Mono, node: NodeId) {
        let Some(host) = self.membership.hosts.get_mut(&node).filter(|host| !host.lost) else { return };
        host.lost = true;
        if host.interrupt_sent && !host.answered {
            self.awaited_hosts = self.awaited_hosts.saturating_sub(1);
        }
        let ranks = host.ranks.clone();
        match self.phase {
            Phase::Gathering => {
                // Without a rank of this call the others are refused. Ranks that an earlier call has lost are only absent again.
                let known = ranks.iter().copied().find(|initial| self.is_known(*initial));
                for initial in known.map_or(ranks, |initial| Vec::from([initial])) {
                    self.on_exit_while_gathering(initial, "its host is lost");
                }
            }
            Phase::Running | Phase::Waiting(_) | Phase::Draining { .. } => {
                let hasty = self.lose_all(&ranks, now);
                self.move_to_other_hosts(node);
                if hasty {
                    self.react(now);
                }
                self.begin_when_drained(now);
            }
            Phase::CallEnded(_) => {}
        }
    }

    /// Ranks are about to be taken away: the others continue without them, from where they can.
    pub(super) fn warned(&mut self, now: Mono, ranks: &RankSet) {
        let mut warned = Vec::new();
        for (first, last) in ranks.ranges() {
            let all = self.membership.members.iter_mut().zip((0..).map(Rank::new));
            let some = all.skip(first as usize).take((last - first) as usize + 1);
            warned.extend(some.filter(|(member, _)| !member.warned).map(|(member, initial)| {
                member.warned = true;
                initial
            }));
        }
        self.warn(now, &warned);
    }

    /// Begins a planned round if some of them work, and others can do so without them.
    pub(super) fn warn(&mut self, now: Mono, warned: &[Rank]) {
        if !self.is_open()
            || !self.membership.members.iter().any(|member| member.state == MemberState::Active && !member.warned)
        {
            return;
        }
        let running = self.phase == Phase::Running;
        let finishing = running && self.membership.hosts.values().any(|host| host.returned);
        let fault = |initial: Rank| Fault { initial, kind: FaultKind::Warned, text: OsBytes::default() };
        let here = |rank: &&Rank| self.membership.state_of(**rank) == Some(MemberState::Active);
        let works = |rank: &Rank| {
            self.world.members().get(rank.index()).is_some_and(|world_member| world_member.mode == Mode::Active)
        };
        let (active, idle): (Vec<Rank>, Vec<Rank>) = warned.iter().filter(here).partition(|rank| works(rank));
        if running && (active.is_empty() || finishing) {
            for initial in idle {
                self.note(RoundNote::NoRoundNeeded { fault: fault(initial) });
            }
            return;
        }
        for initial in active.into_iter().chain(idle) {
            self.faults.add(fault(initial), now);
        }
        if running {
            self.interrupt(now, false);
        }
    }
}

/// Whether the rank itself is the cause of such a fault.
const fn is_own(kind: FaultKind) -> bool {
    match kind {
        FaultKind::Exception | FaultKind::Hang | FaultKind::Ended(_) | FaultKind::Overdue(_) | FaultKind::Left(_) => {
            true
        }
        FaultKind::HostLost | FaultKind::Warned | FaultKind::Joined => false,
    }
}
