//! The decision which rank continues under which number, and the messages that carry it to every host.

use super::end_reason::EndReason;
use super::membership::{Member, MemberState, PolicyKeys};
use super::remark::{FaultLimit, Remark};
use super::round_limits::{check_rounds, check_world};
use super::{CallEnd, Phase, Restart, RestartAction, RoundNote, RoundsEnd};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{NodeId, Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::allocation::StepLayout;
use rlaunch_plan::rank_assign::{self, Mode, Outcome, World, WorldMember};
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_protocol::wire::round::{BATCH, RoundDown, RoundMember, RoundRendezvous};

/// The shortest pause before a round that is reported.
const SHOWN_PAUSE: Span = Span::from_secs(1);

/// Ranks that were taken out, and the reason.
#[derive(Default)]
struct Parted {
    /// Dead: a process may be started for them again.
    dead: Vec<Rank>,
    /// Not wanted by the policy.
    discarded: RankSet,
}

/// Hosts that have active ranks, in the order of their first one.
struct Rendezvous {
    /// That of active rank 0.
    home: Option<NodeId>,
    /// The index of each.
    index: BTreeMap<NodeId, u32>,
    /// The same in Slurm's words, with the active ranks of each.
    slurm: Option<StepLayout>,
}

impl Restart {
    /// All are out of their function, or lost: the next round begins, or none ever again. Between rounds without progress there is a pause.
    pub(super) fn assign(&mut self, now: Mono) {
        let is_first_of_call = self.unplanned_rounds == 0;
        let may_begin = if self.resume_at.is_some() { Ok(()) } else { self.end_round(now) };
        if may_begin.is_ok() && self.resume_at.is_some_and(|at| now < at) {
            return;
        }
        match may_begin.and_then(|()| self.decide(now, is_first_of_call)) {
            Ok(outcome) => self.begin(now, is_first_of_call, &outcome),
            // After an earlier call a rank may have been lost meanwhile: that loss is the failure then.
            Err(reason) if is_first_of_call && self.faults.real().is_none() => self.refuse_all(reason.to_string()),
            Err(reason) => self.give_up(reason),
        }
    }

    /// Decides whether another round may follow, and when.
    fn end_round(&mut self, now: Mono) -> Result<(), EndReason> {
        let (silent, barrier) =
            self.terms().map_or_else(Default::default, |terms| (terms.soft_timeout, terms.barrier_timeout));
        let mut pause = Span::ZERO;
        if let Some((fault, at)) = self.faults.real().or(self.faults.first()) {
            pause = self.progress.ends(fault, at, silent, self.setup.give_up_after)?;
        }
        if self.faults.real().is_some() {
            check_rounds(&self.limits, self.unplanned_rounds, &self.setup.limits)?;
        }
        // Ranks do not wait for longer than the barrier.
        pause = pause.min(Span::from_nanos(barrier.nanos() / 2));
        self.resume_at = Some(now + pause);
        if pause >= SHOWN_PAUSE {
            self.remark(Remark::Paused { pause });
        }
        Ok(())
    }

    fn decide(&mut self, now: Mono, is_first_of_call: bool) -> Result<Outcome, EndReason> {
        if self.progress.has_progressed() {
            // Not those that come now.
            self.membership.members.iter_mut().for_each(|member| member.has_progressed |= member.entered_at.is_some());
        }
        let is_first_of_job = self.is_first_round_of_job();
        let newcomers = if is_first_of_call || is_first_of_job { Vec::new() } else { self.newcomers() };
        let planned = !is_first_of_call && self.faults.real().is_none();
        let before = (planned || !newcomers.is_empty()).then(|| self.world.clone());
        self.take_in(now, is_first_of_call);
        self.report_excluded_ranks();
        match (self.number_all(is_first_of_job), before) {
            (Err(why), Some(before)) if newcomers.is_empty() => Ok(self.keep_world(before, &why)),
            (Err(why), Some(before)) => {
                self.world.clone_from(&before);
                self.defer_newcomers(&newcomers, &why);
                match self.number_all(is_first_of_job) {
                    Err(why) if planned => Ok(self.keep_world(before, &why)),
                    outcome => outcome,
                }
            }
            (outcome, _) => outcome,
        }
    }

    /// Keeps the present ranks after a planned round. No rank has failed, so a policy that cannot continue from here is no reason to end.
    /// A lost rank that the others did not need keeps its place until a round has to begin.
    fn keep_world(&mut self, before: World, why: &EndReason) -> Outcome {
        self.world = before;
        self.remark(Remark::Unchanged { reason: OsBytes::from(why.to_string()) });
        Outcome::default()
    }

    /// Processes that would make the world larger than it is.
    fn newcomers(&self) -> Vec<Rank> {
        let both = self.membership.members.iter().zip(self.world.members()).zip((0..).map(Rank::new));
        let new = both
            .filter(|((member, world_member), _)| member.state == MemberState::Joining && world_member.rank.is_none());
        new.map(|(_, initial)| initial).collect()
    }

    /// Sets newcomers aside with whom no rank could work. The policy gets them again with the next newcomer, or after the next loss.
    fn defer_newcomers(&mut self, newcomers: &[Rank], why: &EndReason) {
        for initial in newcomers {
            if let Some(member) = self.membership.members.get_mut(initial.index()) {
                (member.state, member.entered_at) = (MemberState::Joining, None);
            }
        }
        self.faults.come_not(newcomers, false);
        let ranks: RankSet = newcomers.iter().copied().collect();
        self.remark(Remark::Unusable { ranks, reason: OsBytes::from(why.to_string()) });
    }

    /// Numbers all ranks. Ranks that are about to be taken away continue if no other rank could.
    fn number_all(&mut self, is_first_of_job: bool) -> Result<Outcome, EndReason> {
        let drained = !is_first_of_job
            && self.membership.members.iter().any(|member| member.warned && member.state == MemberState::Active);
        let before = drained.then(|| self.world.clone());
        let lost = if is_first_of_job { Vec::new() } else { self.lost(true) };
        match (self.number(&lost), before) {
            (Err(why), Some(before)) => {
                // Ranks that are about to be taken away are still there.
                self.world = before;
                self.remark(Remark::KeepsWarned { reason: OsBytes::from(why.to_string()) });
                let lost = self.lost(false);
                self.number(&lost)
            }
            (outcome, _) => outcome,
        }
    }

    /// Asks the policy, and whether that may be.
    fn number(&mut self, lost: &[Rank]) -> Result<Outcome, EndReason> {
        let keys = PolicyKeys { membership: &self.membership, known: &self.setup.known, asked: &self.asked };
        let outcome = rank_assign::assign(&self.policy, &mut self.world, lost, &keys).map_err(EndReason::Assign)?;
        let (healthy, active) = self.sizes();
        if healthy == 0 {
            let members = self.membership.members.iter();
            return Err(match members.filter(|member| member.state == MemberState::Active).count() {
                0 => EndReason::NoHealthyRank,
                healthy => EndReason::AllDiscarded { policy: Box::new(self.policy.clone()), healthy },
            });
        }
        check_world(&self.limits, healthy, active, &self.setup.limits)?;
        if active == 0 {
            return Err(EndReason::NoneActive { policy: Box::new(self.policy.clone()), healthy });
        }
        Ok(outcome)
    }

    fn sizes(&self) -> (u32, u32) {
        let healthy = self.world.size();
        (healthy, self.world.active_size().unwrap_or(healthy))
    }

    /// Healthy ranks that are not active.
    fn reserve(&self) -> RankSet {
        let all = self.world.members().iter().zip((0..).map(Rank::new));
        all.filter(|(member, _)| member.mode == Mode::Inactive).map(|(_, rank)| rank).collect()
    }

    /// Processes that have registered are in. One whose rank is in the world still takes its place there.
    fn take_in(&mut self, now: Mono, is_first_of_call: bool) {
        let named = self.faults.on_registered();
        for (member, initial) in self.membership.members.iter_mut().zip((0..).map(Rank::new)) {
            if member.state != MemberState::Joining {
                continue;
            }
            let here =
                self.world.members().get(initial.index()).is_some_and(|world_member| world_member.rank.is_some());
            if here || self.world.join(initial).is_ok() {
                (member.state, member.entered_at) = (MemberState::Active, Some(now));
                if !is_first_of_call && named != Some(initial) {
                    self.faults.add(Fault { initial, kind: FaultKind::Joined, text: OsBytes::default() }, now);
                }
            }
        }
    }

    /// Ranks that are taken out now, by their current numbers. With `drain`, also ranks that are about to be taken away.
    pub(super) fn lost(&self, drain: bool) -> Vec<Rank> {
        // If all ranks are about to be taken away, some rank has to continue.
        let drain =
            drain && self.membership.members.iter().any(|member| member.state == MemberState::Active && !member.warned);
        let both = self.membership.members.iter().zip(self.world.members());
        let out = both.filter(|(member, _)| match member.state {
            MemberState::Failed { .. } => true,
            MemberState::Active => self.too_often(member) || (drain && member.warned),
            MemberState::Absent | MemberState::Joining | MemberState::Left => false,
        });
        out.filter_map(|(_, world_member)| world_member.rank).collect()
    }

    /// Whether a rank has had its last fault.
    fn too_often(&self, member: &Member) -> bool {
        member.fault_counted && self.limits.max_rank_faults.is_some_and(|most| member.faults > most)
    }

    /// Reports ranks that are taken out because they have had too many faults.
    fn report_excluded_ranks(&mut self) {
        let most = self.limits.max_rank_faults.unwrap_or_default();
        for initial in self.list_ranks(|member| member.state == MemberState::Active && self.too_often(member)) {
            let faults = self.membership.members.get(initial.index()).map_or(0, |member| member.faults);
            let limit = self.fault_limit(most);
            self.remark(Remark::Excluded { initial, faults, limit });
        }
    }

    /// The limit on the faults of a rank, and where it was set.
    pub(super) const fn fault_limit(&self, most: u32) -> FaultLimit {
        FaultLimit { most, is_option: self.setup.limits.max_rank_faults.is_some() }
    }

    /// Reports a rank that may be the cause of round after round.
    fn report_repeated_fault(&mut self) {
        let Some((fault, _)) = self.faults.real().filter(|_| self.limits.max_rank_faults.is_none()) else { return };
        let initial = fault.initial;
        if let Some(rounds) = self.progress.record_repetition(fault) {
            self.remark(Remark::Repeats { initial, rounds });
        }
    }

    /// A round begins.
    fn begin(&mut self, now: Mono, is_first_of_call: bool, outcome: &Outcome) {
        let phases = self.faults.phases(now);
        let planned = !is_first_of_call && self.faults.real().is_none();
        self.report_repeated_fault();
        let trouble = core::mem::take(&mut self.faults);
        let is_first_of_job = self.is_first_round_of_job();
        if !is_first_of_job {
            self.round = Round::new(self.round.get().saturating_add(1));
        }
        if is_first_of_call {
            self.first_round_of_call = self.round;
            self.act(RestartAction::Opened);
        }
        self.unplanned_rounds = self.unplanned_rounds.saturating_add(u32::from(!planned));
        (self.phase, self.resume_at) = (Phase::Running, None);
        self.awaited.end();
        // For the program the first round of a call has none before it.
        let why = trouble.fault_for_ranks().filter(|_| !is_first_of_call).cloned();
        let parted = self.push(is_first_of_job, why, outcome);
        let faults = trouble.into_faults();
        self.progress.begins(now);
        if let Some(misplaced) = outcome.misplaced {
            self.remark(Remark::Misplaced(misplaced));
        }
        let (world_size, active_world_size) = self.sizes();
        let (round, discarded, reserve) = (self.round, parted.discarded, self.reserve());
        self.note(RoundNote::Began { round, faults, world_size, active_world_size, discarded, reserve, phases });
        parted.dead.into_iter().for_each(|initial| self.respawn(now, initial));
        // After another round they were left out, or the others cannot do without them.
        if is_first_of_job {
            let warned: Vec<Rank> = self.list_ranks(|member| member.warned);
            self.warn(now, &warned);
        }
    }

    fn list_ranks(&self, is: impl Fn(&Member) -> bool) -> Vec<Rank> {
        self.membership
            .members
            .iter()
            .zip((0..).map(Rank::new))
            .filter(|(member, _)| is(member))
            .map(|(_, rank)| rank)
            .collect()
    }

    /// Sends each host the round, and the parts of its ranks in it.
    fn push(&mut self, is_first_of_job: bool, fault: Option<Fault>, outcome: &Outcome) -> Parted {
        let rendezvous = self.rendezvous();
        let place = self.place(is_first_of_job, fault, &rendezvous);
        let holder = self.holder(is_first_of_job, &rendezvous);
        if !is_first_of_job && place.port == 0 {
            self.report_no_port(holder);
        }
        self.namespace = self.namespace.saturating_add(1);
        let mut parted = Parted::default();
        outcome.discarded.iter().for_each(|rank| parted.discarded.insert(*rank));
        self.unreturned = rendezvous.index.len();
        let round = self.round;
        for (node, host) in self.membership.hosts.iter_mut() {
            let (mut members, mut active) = (Vec::with_capacity(host.ranks.len()), 0);
            for initial in &host.ranks {
                let world_member = self.world.members().get(initial.index()).copied().unwrap_or_default();
                let Some(member) = self.membership.members.get_mut(initial.index()) else { continue };
                (member.ready, member.faulted, member.fault_counted) = (false, false, false);
                match member.state {
                    MemberState::Active => {
                        active += u32::from(world_member.active_rank.is_some());
                        member.state =
                            if world_member.rank.is_some() { MemberState::Active } else { MemberState::Left };
                        members.push(round_member(*initial, world_member));
                    }
                    // All continue as before.
                    MemberState::Failed { .. } if world_member.rank.is_some() => {}
                    MemberState::Failed { may_respawn } => {
                        member.state = if may_respawn { MemberState::Absent } else { MemberState::Left };
                        if may_respawn {
                            parted.dead.push(*initial);
                        }
                    }
                    MemberState::Absent | MemberState::Joining | MemberState::Left => {}
                }
            }
            (host.interrupt_sent, host.answered, host.returned) = (false, false, false);
            (host.port, host.active) = (0, active);
            if host.lost {
                continue;
            }
            let here = Some(*node) == holder;
            let place = RoundRendezvous { here, node_index: rendezvous.index.get(node).copied(), ..place.clone() };
            let mut parts = Capped::<_, BATCH>::chunks(members);
            let end = parts.pop().unwrap_or_default();
            for (members, last) in parts.into_iter().map(|part| (part, false)).chain([(end, true)]) {
                let msg = RoundDown::Begin { round, place: place.clone(), members, last };
                self.out.push_back(RestartAction::Send { node: *node, msg });
            }
        }
        parted
    }

    /// Reports that the host of rank 0 had no free port: a program that meets there by the port alone will fail.
    fn report_no_port(&mut self, holder: Option<NodeId>) {
        let Some(host) = holder.and_then(|node| self.membership.hosts.get(&node)) else { return };
        let host = OsBytes::from(host.site.name.as_str());
        self.remark(Remark::NoPort { host });
    }

    fn rendezvous(&self) -> Rendezvous {
        let (_, active) = self.sizes();
        let mut by_active = Vec::new();
        by_active.resize(active as usize, None);
        for (world_member, member) in self.world.members().iter().zip(&self.membership.members) {
            if let Some(place) = world_member.active_rank.and_then(|rank| by_active.get_mut(rank.index())) {
                *place = Some(member.node);
            }
        }
        let mut index = BTreeMap::new();
        for node in by_active.iter().flatten() {
            let next = u32::try_from(index.len()).unwrap_or(u32::MAX);
            index.entry(*node).or_insert(next);
        }
        let slurm = self.setup.in_slurm.then(|| self.layout(&by_active, &index));
        Rendezvous { home: by_active.first().copied().flatten(), index, slurm }
    }

    /// The hosts with these indices and the number of active ranks of each.
    fn layout(&self, by_active: &[Option<NodeId>], index: &BTreeMap<NodeId, u32>) -> StepLayout {
        let mut hosts = vec![("", 0_u32); index.len()];
        for node in by_active.iter().flatten() {
            if let Some((name, ranks)) = index.get(node).and_then(|at| hosts.get_mut(*at as usize)) {
                *name = self.membership.hosts.get(node).map_or("", |host| host.site.name.as_str());
                *ranks = ranks.saturating_add(1);
            }
        }
        StepLayout::new(hosts)
    }

    /// The host that holds the round's store. Before the first round only one has a port for it, where any host can.
    fn holder(&self, is_first_of_job: bool, rendezvous: &Rendezvous) -> Option<NodeId> {
        if is_first_of_job && self.setup.agent_store { Some(self.setup.rendezvous.0) } else { rendezvous.home }
    }

    fn place(&self, is_first_of_job: bool, fault: Option<Fault>, rendezvous: &Rendezvous) -> RoundRendezvous {
        let host = self.holder(is_first_of_job, rendezvous).and_then(|node| self.membership.hosts.get(&node));
        let (world_size, active_world_size) = self.sizes();
        RoundRendezvous {
            addr: host.map(|host| host.site.addr.clone()).unwrap_or_default(),
            first: self.first_round_of_call,
            port: if is_first_of_job { self.setup.rendezvous.1 } else { host.map_or(0, |host| host.port) },
            here: false,
            namespace: self.namespace,
            world_size,
            active_world_size,
            initial_world_size: u32::try_from(self.setup.ranks.len()).unwrap_or(u32::MAX),
            nodes: u32::try_from(rendezvous.index.len()).unwrap_or(u32::MAX),
            node_index: None,
            fault,
            slurm: rendezvous.slurm.clone(),
        }
    }

    /// Ends the rounds for a reason that rules out another one.
    fn give_up(&mut self, reason: EndReason) {
        let text = OsBytes::from(reason.to_string());
        self.notify_all(&RoundDown::GiveUp { text: text.clone() });
        let first = self.faults.fault_for_ranks().cloned();
        self.end_call(CallEnd::Refused(text));
        // Always a fault: a planned round that cannot be assigned keeps the world instead.
        if let Some(fault) = first {
            self.act(RestartAction::Closed(RoundsEnd::Impossible { fault, reason }));
        }
    }
}

fn round_member(initial: Rank, world_member: WorldMember) -> RoundMember {
    RoundMember {
        initial,
        rank: world_member.rank,
        active: world_member.active_rank.filter(|_| world_member.rank.is_some()),
    }
}
