//! Processes that register: the first ones, of which all have to be there, and those that come later.

use super::end_reason::limit_name;
use super::membership::{MemberState, PolicyKeys};
use super::remark::{Override, Remark};
use super::terms::{Difference, POLICY, Terms, shown};
use super::{CallEnd, Phase, Restart, RoundNote, asked};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::error::hinted;
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_plan::rank_assign::{self, Policy, Source};
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_protocol::wire::round::{BATCH, Enrolled, KEYS, RoundDown};

/// Under which terms the ranks have registered.
#[derive(Debug)]
pub(super) struct Agreed {
    /// The first rank.
    rank: Rank,
    /// The text that arrived, to recognise it at once.
    text: OsBytes,
    pub(super) terms: Terms,
}

impl Restart {
    /// The program's terms, once the first ranks have registered.
    #[must_use]
    pub fn terms(&self) -> Option<&Terms> {
        self.agreed.as_ref().map(|agreed| &agreed.terms)
    }

    /// Processes of a node have registered.
    pub(super) fn on_registered(&mut self, now: Mono, node: NodeId, call: u32, ranks: Vec<Enrolled>, terms: &OsBytes) {
        if self.membership.hosts.get(&node).is_none_or(|host| host.lost || host.suspected) {
            return;
        }
        if self.is_done(call) {
            return self.send(node, RoundDown::Finish { call, round: self.round });
        }
        match self.phase.clone() {
            Phase::Gathering => self.on_first_registration(now, node, ranks, terms),
            Phase::Running | Phase::Waiting(_) | Phase::Draining { .. } => {
                self.on_late_registration(now, node, ranks, terms)
            }
            Phase::CallEnded(CallEnd::Done) => {
                self.next_call(now);
                self.on_first_registration(now, node, ranks, terms);
            }
            Phase::CallEnded(CallEnd::Refused(text)) => self.refuse(node, ranks.iter().map(|one| one.initial), &text),
            Phase::CallEnded(CallEnd::Off) => {}
        }
    }

    fn refuse(&mut self, node: NodeId, ranks: impl Iterator<Item = Rank>, text: &OsBytes) {
        for ranks in Capped::<_, BATCH>::chunks(ranks) {
            self.send(node, RoundDown::Refuse { ranks, text: text.clone() });
        }
    }

    /// Refuses all ranks, those that have registered and those that register later.
    pub(super) fn refuse_all(&mut self, text: String) {
        let text = OsBytes::from(text);
        // If the first assignment fails, ranks are active already.
        let registered =
            |rank: &Rank| matches!(self.membership.state_of(*rank), Some(MemberState::Joining | MemberState::Active));
        let here = self.membership.hosts.iter().filter(|(_, host)| !host.lost && host.ranks.iter().any(registered));
        let nodes: Vec<NodeId> = here.map(|(node, _)| *node).collect();
        let any = !nodes.is_empty();
        for node in nodes {
            self.send(node, RoundDown::Refuse { ranks: Capped::default(), text: text.clone() });
        }
        if any {
            self.note(RoundNote::Refused { text: text.clone() });
        }
        self.end_call(CallEnd::Refused(text));
    }

    /// Before the first round.
    fn on_first_registration(&mut self, now: Mono, node: NodeId, ranks: Vec<Enrolled>, terms: &OsBytes) {
        let current_terms = self.last_terms(node, terms);
        let agrees = match ranks.first() {
            Some(first) => self.agree(first.initial, &current_terms),
            None => Ok(()),
        };
        let own = self.own_keys(&current_terms);
        for Enrolled { initial, proc, keys } in ranks {
            self.membership.move_to_node(initial, node);
            let Some(member) = self.membership.members.get_mut(initial.index()) else { continue };
            if member.state == MemberState::Absent || (member.state == MemberState::Left && member.proc != Some(proc)) {
                if member.proc != Some(proc) {
                    (member.first_round, member.warned) = (self.round, false);
                }
                (member.state, member.proc, member.keys) = (MemberState::Joining, Some(proc), keys_of(keys, &own));
                // A rank that an earlier call has lost may be here again, but no call waits for it.
                let known =
                    self.world.members().get(initial.index()).is_some_and(|world_member| world_member.rank.is_some());
                self.missing = self.missing.saturating_sub(usize::from(known));
                self.on_joined(initial);
            }
        }
        match (agrees, self.exited_between_calls.take()) {
            (Err(text), _) => self.refuse_all(text),
            (Ok(()), Some((initial, how))) => self.on_early_exit(initial, &how),
            (Ok(()), None) if self.missing == 0 => self.gathered(now),
            (Ok(()), None) => self.awaited.begin(now),
        }
    }

    /// Whether these terms are those of all others; the first ones decide.
    fn agree(&mut self, rank: Rank, text: &OsBytes) -> Result<(), String> {
        let Some(agreed) = &self.agreed else {
            let terms = read(text).map_err(|text| format!("rank {rank} cannot take part: {text}"))?;
            self.merge_terms(&terms)?;
            self.agreed = Some(Agreed { rank, text: text.clone(), terms });
            return Ok(());
        };
        // A host that has never sent terms asks for nothing.
        if text.is_empty() || agreed.text == *text {
            return Ok(());
        }
        let terms = read(text).map_err(|text| format!("rank {rank} cannot take part: {text}"))?;
        match agreed.terms.differs(&terms) {
            None => Ok(()),
            Some(Difference { name, one, other }) => Err(format!(
                "all ranks have to ask for the same, and {name} is {} for rank {} and {} for rank {rank}",
                shown(one.as_bytes()),
                agreed.rank,
                shown(other.as_bytes()),
            )),
        }
    }

    /// The terms of these processes: a host does not repeat its last terms, whether they were taken or refused.
    fn last_terms(&mut self, node: NodeId, terms: &OsBytes) -> OsBytes {
        let Some(host) = self.membership.hosts.get_mut(&node) else { return terms.clone() };
        if !terms.is_empty() {
            host.last_terms = terms.clone();
        }
        host.last_terms.clone()
    }

    /// Values that processes have sent for their keys together with their terms.
    fn own_keys(&self, text: &OsBytes) -> Vec<OsBytes> {
        if self.asked.is_empty() {
            Vec::new()
        } else {
            Terms::parse(text).map_or_else(|_| Vec::new(), |terms| terms.own)
        }
    }

    /// Merges the terms of the command line and the program.
    fn merge_terms(&mut self, terms: &Terms) -> Result<(), String> {
        let own = terms.policy.as_deref();
        let policy = match &self.setup.policy {
            Some(policy) => policy.clone(),
            None => (self.setup.read_policy)(own.unwrap_or(POLICY))
                .map_err(|text| format!("the policy that the program asks for cannot be: {text}"))?,
        };
        policy.check().map_err(|error| hinted(&error))?;
        if self.setup.policy.is_none() {
            self.asked = asked(&policy);
            let scripts = self.asked.iter().filter(|source| matches!(source, Source::Script(_))).count();
            if scripts > terms.keys as usize {
                return Err(format!(
                    "the policy {policy} asks each process for {scripts} of its own keys, and it tells {} (the term keys)",
                    terms.keys
                ));
            }
        }
        self.limits = self.setup.limits.or(terms.limits);
        let world = self.world.size();
        let ours = self.setup.limits;
        for (name, least, ours) in [
            ("min-world", self.limits.min_world, ours.min_world),
            ("min-active", self.limits.min_active, ours.min_active),
        ] {
            if let Some(least) = least.filter(|least| *least > world) {
                return Err(format!(
                    "{} {least} is more than the job has: {world} ranks",
                    limit_name(name, ours.is_some())
                ));
            }
        }
        self.report_overridden_terms(own, &policy, terms);
        self.policy = policy;
        Ok(())
    }

    /// Reports once which options of the command line override the program's terms.
    fn report_overridden_terms(&mut self, own: Option<&str>, policy: &Policy, terms: &Terms) {
        let (command_line, program_terms) = (self.setup.limits, terms.limits);
        let mut options: Vec<Override> = Vec::new();
        let own = own.filter(|_| self.setup.policy.is_some());
        options.extend(own.and_then(|own| self.other_policy(own, policy)));
        for (name, option, program) in [
            ("max-rounds", command_line.max_rounds, program_terms.max_rounds),
            ("min-world", command_line.min_world, program_terms.min_world),
            ("min-active", command_line.min_active, program_terms.min_active),
            ("max-rank-faults", command_line.max_rank_faults, program_terms.max_rank_faults),
        ] {
            if let (Some(option), Some(program)) = (option, program)
                && option != program
            {
                options.push(Override::Limit { name, option, program });
            }
        }
        if !options.is_empty() {
            self.remark(Remark::Overrides { options });
        }
    }

    /// The policy of the command line, if the program has asked for another one. The default is what a client says whose program asks
    /// for nothing.
    fn other_policy(&self, own: &str, policy: &Policy) -> Option<Override> {
        let option = OsBytes::from(policy.to_string());
        let program = match (self.setup.read_policy)(own) {
            Ok(own) if own == *policy || Ok(&own) == rank_assign::parse::policy(POLICY).as_ref() => return None,
            Ok(own) if own.to_string() == policy.to_string() => None,
            Ok(own) => Some(OsBytes::from(own.to_string())),
            Err(_) => Some(OsBytes::from(own)),
        };
        Some(Override::Policy { option, program })
    }

    /// After the first round has begun: processes of ranks that were lost.
    fn on_late_registration(&mut self, now: Mono, node: NodeId, ranks: Vec<Enrolled>, terms: &OsBytes) {
        let all: Vec<Rank> = ranks.iter().map(|one| one.initial).collect();
        let Some(first) = all.first().copied() else { return };
        let current_terms = self.last_terms(node, terms);
        if let Err(text) = self.agree(first, &current_terms) {
            let text = OsBytes::from(text);
            self.refuse(node, all.into_iter(), &text);
            self.note(RoundNote::Refused { text });
            return;
        }
        let round = self.round;
        let own = self.own_keys(&current_terms);
        let mut came = None;
        for Enrolled { initial, proc, keys } in ranks {
            let why = match self.membership.members.get(initial.index()).map(|member| (member.state, member.proc)) {
                None => Some("there is no such rank in this job"),
                Some((MemberState::Active | MemberState::Joining, _)) => {
                    Some("another process of this rank takes part")
                }
                Some((MemberState::Left, own)) if own == Some(proc) => Some("it was discarded, or it has left"),
                Some((MemberState::Left | MemberState::Absent | MemberState::Failed { .. }, _)) => None,
            };
            if let Some(why) = why {
                let text = OsBytes::from(format!("initial rank {initial} is not taken: {why}"));
                self.refuse(node, core::iter::once(initial), &text);
                self.note(RoundNote::Refused { text });
                continue;
            }
            self.membership.move_to_node(initial, node);
            if let Some(member) = self.membership.members.get_mut(initial.index()) {
                (member.state, member.proc, member.keys) = (MemberState::Joining, Some(proc), keys_of(keys, &own));
                (member.first_round, member.warned, member.joined_at) = (round, false, Some(now));
                came.get_or_insert(initial);
                self.on_joined(initial);
            }
        }
        if let Some(initial) = came {
            self.queue_newcomer(now, node, initial);
        }
    }

    /// Lets new processes wait for a round: one of their own, or any.
    fn queue_newcomer(&mut self, now: Mono, node: NodeId, initial: Rank) {
        match self.phase {
            Phase::Running => self.plan_round_for(now, initial),
            // Its host may hold the next round's rendezvous, and has not been asked for a port.
            Phase::Draining { urgent } => self.send_interrupt(node, urgent),
            Phase::Waiting(_) | Phase::Gathering | Phase::CallEnded(_) => {}
        }
    }

    /// Plans a round for processes that have come. They wait instead if the work is almost done, or if no more ranks would work.
    fn plan_round_for(&mut self, now: Mono, initial: Rank) {
        if self.membership.hosts.values().any(|host| host.returned) {
            return;
        }
        if !self.would_add_active_ranks() {
            return self.remark(Remark::WaitsForRound { initial });
        }
        self.faults.add(Fault { initial, kind: FaultKind::Joined, text: OsBytes::default() }, now);
        self.interrupt(now, false);
    }

    /// Whether more would work in a round of all who have registered. A rank that would only wait in a new round can wait until the next
    /// one as well.
    pub(super) fn would_add_active_ranks(&self) -> bool {
        if self.membership.members.iter().any(|member| member.state == MemberState::Active && member.warned) {
            // The new rank takes the place of one that is about to be taken away.
            return true;
        }
        let mut world = self.world.clone();
        let now = world.active_size().unwrap_or(world.size());
        for (member, initial) in self.membership.members.iter().zip((0..).map(Rank::new)) {
            let is_new = world.members().get(initial.index()).is_some_and(|world_member| world_member.rank.is_none());
            // A policy that cannot use it reports that in the real assignment.
            if member.state == MemberState::Joining && is_new && world.join(initial).is_err() {
                return true;
            }
        }
        let lost = self.lost(true);
        let keys = PolicyKeys { membership: &self.membership, known: &self.setup.known, asked: &self.asked };
        let assigned = rank_assign::assign(&self.policy, &mut world, &lost, &keys);
        assigned.is_err() || world.active_size().unwrap_or(world.size()) > now
    }

    /// A rank has ended, or has left, while others register. A rank that an earlier call has lost is not missed.
    pub(super) fn on_exit_while_gathering(&mut self, initial: Rank, how: &str) {
        if self.is_known(initial) {
            return self.on_early_exit(initial, how);
        }
        if let Some(member) =
            self.membership.members.get_mut(initial.index()).filter(|member| member.state == MemberState::Joining)
        {
            member.state = MemberState::Absent;
        }
    }

    /// Whether the present call waits for a rank: no earlier call has lost it.
    pub(super) fn is_known(&self, initial: Rank) -> bool {
        self.world.members().get(initial.index()).is_some_and(|world_member| world_member.rank.is_some())
    }

    /// A rank has ended before all have registered.
    fn on_early_exit(&mut self, initial: Rank, how: &str) {
        let text = if self.call == 0 {
            format!("rank {initial} has ended ({how}) before it took part: the first round needs all ranks")
        } else {
            format!("rank {initial} has ended ({how}) between two calls: the next one needs all that the last had left")
        };
        self.refuse_all(text);
    }
}

fn keys_of(said: Capped<OsBytes, KEYS>, own: &[OsBytes]) -> Vec<OsBytes> {
    if said.is_empty() { own.to_vec() } else { said.into_vec() }
}

fn read(text: &OsBytes) -> Result<Terms, String> {
    Terms::parse(text).map_err(|error| hinted(&error))
}
