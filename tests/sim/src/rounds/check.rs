//! Properties of every run.

use super::World;
use super::client::{Client, Place};
use super::host::id;
use super::plan::Fault;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{LocalRank, ProcId, Rank, Round};
use rlaunch_base::status::Status;
use rlaunch_core::events::{Cause, What};
use rlaunch_protocol::rank_fault::FaultKind;
use rlaunch_protocol::wire::frozen::client::client_round::Begin;
use rlaunch_protocol::wire::round::RoundUp;
use rlaunch_protocol::wire::to_root::ToRoot;
use rlaunch_restart::{RoundNote, RoundsEnd};
use std::collections::{BTreeMap, BTreeSet};

/// The knowledge about a round.
#[derive(Default, Debug)]
struct Seen {
    sizes: (u32, u32),
    at: (String, String),
    ranks: BTreeSet<Rank>,
    active: BTreeSet<Rank>,
}

/// The events so far, for the end.
#[derive(Default, Debug)]
pub(super) struct Truth {
    /// By generation, call, and the number in that.
    rounds: BTreeMap<(u32, u32, Round), Seen>,
    generation: u32,
    over: Option<RoundsEnd>,
    /// Whose rounds are.
    calls: u32,
    /// Codes of processes whose call had ended well, and that came to another end.
    late: BTreeSet<u8>,
    /// Ranks that could not know yet that it had.
    unknowing: BTreeSet<u8>,
    pub(super) host_lost: bool,
    pub(super) interrupted: bool,
    /// Whether no rank of this generation may take part.
    refused: bool,
    cause: Option<Cause>,
}

impl World {
    /// A process begins a round.
    pub(super) fn check_begin(&mut self, proc: ProcId, begin: &Begin) {
        let Some(client) = self.procs.get(&proc) else { return };
        let (generation, call, before) = (client.generation, client.calls, client.round);
        let is_new = client.place == Place::Registered && client.calls == 0;
        let waited = if is_new { self.now - client.since } else { 0 };
        let (round, rank) = (begin.round, client.rank);
        self.check(begin.initial_rank == rank, || format!("{proc} is taken for rank {}", begin.initial_rank));
        self.check(before.is_none_or(|before| before < round), || format!("{proc}: round {round} after {before:?}"));
        self.check_waited(proc, waited);
        let mut lagging: Vec<ProcId> = Vec::new();
        for (other, client) in &self.procs {
            let before = |own: Round| (client.calls, own) < (call, round);
            let older = client.generation == generation && client.round.is_some_and(before);
            if client.is_inside() && older {
                lagging.push(*other);
            }
        }
        self.check(lagging.is_empty(), || format!("{lagging:?} are still in their function when round {round} begins"));
        let var = |name: &str| {
            let found = begin.env.iter().find(|(own, _)| **own == *name.as_bytes());
            found.and_then(|(_, value)| value.as_ref()).map(|value| value.to_string()).unwrap_or_default()
        };
        let at = (var("MASTER_ADDR"), var("MASTER_PORT"));
        let sizes = (begin.world_size, begin.active_world_size);
        let seen =
            self.truth.rounds.entry((generation, call, round)).or_insert_with(|| Seen { sizes, ..Seen::default() });
        let mut wrong = Vec::new();
        if seen.sizes != sizes || begin.rank.get() >= sizes.0 || !seen.ranks.insert(begin.rank) {
            wrong.push(format!("rank {} of {sizes:?}", begin.rank));
        }
        if let Some(active) = begin.active_rank {
            if active.get() >= sizes.1 || !seen.active.insert(active) {
                wrong.push(format!("active rank {active} of {sizes:?}"));
            }
            if seen.at.1.is_empty() {
                seen.at = at.clone();
            }
            if seen.at != at || at.1.is_empty() || at.1 == "0" {
                wrong.push(format!("it meets at {at:?}, others at {:?}", seen.at));
            }
        }
        self.check(wrong.is_empty(), || format!("{proc} in round {round}: {}", wrong.join(", ")));
        let limits = self.plan.spec.rounds.limits;
        let is_planned = self.plan.spec.rounds.respawn
            || self.plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::Warned(_)));
        let small = limits.min_world.is_some_and(|least| least > sizes.0)
            || limits.min_active.is_some_and(|least| least > sizes.1)
            // Planned rounds do not count.
            || !is_planned && limits.max_rounds.is_some_and(|most| most <= round.get());
        self.check(!small, || format!("round {round} of {sizes:?} is against {limits:?}"));
    }

    /// Only who is in the function of a round can hang there.
    pub(super) fn check_hang(&mut self, msg: Option<&ToRoot>) {
        let Some(ToRoot::Round(RoundUp::Fault { round, fault, .. })) = msg else { return };
        if fault.kind != FaultKind::Hang {
            return;
        }
        // Where each call counts anew the numbers are not the launcher's.
        let of_round =
            |client: &&Client| client.calls == 0 && client.rank == fault.initial && client.round == Some(*round);
        // The report of the rank may be on its way.
        let reported_until = self.now.saturating_sub(2 * 1000 * self.plan.local);
        let is_out = |client: &Client| client.place == Place::Outside && client.since < reported_until;
        let own = self.procs.values().filter(of_round).find(|client| client.lives());
        let holds = !own.is_some_and(is_out);
        self.check(holds, || format!("rank {} is out of the function of round {round}: {fault:?}", fault.initial));
    }

    /// A rank is about to be started on this host.
    pub(super) fn check_room(&mut self, host: usize, rank: Rank, local_rank: LocalRank) {
        let member = self.members.ranks[rank.index()];
        self.check((member.node, member.local_rank) == (id(host), local_rank), || {
            format!("rank {rank} is started on host {host} as {local_rank}, and the launcher takes it for {member:?}")
        });
        let there: Vec<LocalRank> =
            self.procs.values().filter(|one| one.host == host && one.lives()).map(|one| one.local_rank).collect();
        self.check(!there.contains(&local_rank), || format!("two are local rank {local_rank} on host {host}"));
        let slots = self.plan.spec.placement.nodes[host].slots as usize;
        self.check(there.len() < slots, || format!("rank {rank} is one more than the {slots} slots of host {host}"));
    }

    /// A process that cannot be ended on a lost host cannot be waited for.
    pub(super) fn runs(&self, one: &Client) -> bool {
        one.lives() && !(one.is_stuck && self.hosts[one.host].gone)
    }

    /// No two generations ever run at once.
    pub(super) fn check_generation(&mut self, generation: u32) {
        let older = self.procs.values().filter(|one| self.runs(one) && one.generation < generation).count();
        self.check(older == 0, || format!("{older} processes of older generations run"));
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, proc: ProcId, status: Status) {
        let Some(client) = self.procs.get(&proc) else { return };
        match client.place {
            _ if status.is_success() || client.is_stuck => false,
            Place::Done => self.truth.late.insert(status.exit_code()),
            // Between two calls; the effect of ranks that were killed there is not checked.
            Place::Before | Place::Registered if client.calls > 0 && matches!(status, Status::Exited(_)) => {
                let codes = if client.took_part { &mut self.truth.late } else { &mut self.truth.unknowing };
                codes.insert(status.exit_code())
            }
            Place::Reserve | Place::Returned => self.truth.unknowing.insert(status.exit_code()),
            _ => false,
        };
    }

    /// The launcher writes something down.
    pub(super) fn logged(&mut self, generation: u32, what: What) {
        if generation > self.truth.generation {
            (self.truth.generation, self.truth.over, self.truth.refused) = (generation, None, false);
            self.truth.calls = 0;
            self.truth.late.clear();
        }
        match what {
            What::RoundsOver(given) => {
                let before = self.truth.over.replace(*given);
                self.truth.calls += 1;
                let follows = before.as_ref().is_none_or(|before| *before == RoundsEnd::Done)
                    && self.truth.calls <= self.plan.calls;
                self.check(follows, || format!("rounds of a call are over behind {before:?}"));
            }
            What::Round { note, .. } => self.truth.refused |= matches!(*note, RoundNote::Refused { .. }),
            What::JobEnd { cause, .. } => self.truth.cause = Some(cause),
            _ => {}
        }
    }

    /// The job has ended like this.
    pub(super) fn check_end(&mut self, ending: Ending) {
        let may_live = |client: &Client| !client.lives() || client.is_stuck;
        let living: Vec<ProcId> =
            self.procs.iter().filter(|(_, client)| !may_live(client)).map(|(proc, _)| *proc).collect();
        // A host that is cut off ends by itself, and the launcher waits for that.
        self.check(living.is_empty(), || format!("the job has ended, and {living:?} live"));
        let cause = self.truth.cause.clone();
        match (&self.truth.over, &cause) {
            _ if self.truth.interrupted => {}
            // A rank that may not take part exits as it likes.
            (None | Some(RoundsEnd::Done), Some(Cause::Success | Cause::Rank { .. })) if self.truth.refused => {}
            (Some(RoundsEnd::Done), Some(Cause::Success)) => {
                let late = self.truth.late.clone();
                self.check(late.is_empty(), || format!("it succeeds, and codes {late:?} came after the work"));
                let inside: Vec<ProcId> = self.unfinished();
                self.check(inside.is_empty(), || format!("it succeeds, and {inside:?} had not returned"));
            }
            (Some(RoundsEnd::Done), Some(Cause::Lost { .. })) if self.truth.host_lost => {}
            (Some(RoundsEnd::Done), Some(Cause::Rank { status, .. })) => {
                let (late, code) = (self.truth.late.clone(), status.exit_code());
                let unknowing = self.truth.unknowing.contains(&code);
                self.check(unknowing || late.contains(&code), || format!("{cause:?} after the work, of {late:?}"));
            }
            // While all ranks are being ended, to be started again.
            (Some(RoundsEnd::Impossible { .. }), Some(Cause::Lost { .. }))
                if self.truth.host_lost && self.plan.spec.settings.restarts.most > 0 => {}
            (Some(RoundsEnd::Impossible { fault, .. }), Some(Cause::Lost { .. })) => {
                let kind = fault.kind;
                // A process whose function was left has not ended yet, and a host may be lost before that.
                let right = kind == FaultKind::HostLost || (self.truth.host_lost && matches!(kind, FaultKind::Left(_)));
                self.check(right, || format!("{kind:?} comes to {cause:?}"));
            }
            (Some(RoundsEnd::Impossible { fault, .. }), Some(Cause::Rank { rank, status })) => {
                let (kind, initial, rank, status) = (fault.kind, fault.initial, *rank, *status);
                let own = match kind {
                    FaultKind::Ended(own) if !own.is_success() && own != Status::Lost => own == status,
                    // A rank that is overdue may end by itself before the signal comes.
                    _ => !status.is_success(),
                };
                let right = rank == initial && own && kind != FaultKind::HostLost;
                self.check(right, || format!("{kind:?} of rank {initial} comes to {cause:?}"));
            }
            // Before a rank has registered, after the work, or when no round could continue without the host.
            (_, Some(Cause::Preempted { .. }))
                if self.plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::Warned(_))) => {}
            // Before the first round, or after the last.
            (None, Some(Cause::Rank { .. } | Cause::Lost { .. } | Cause::Unreachable { .. })) => {}
            (over, cause) => {
                let text = format!("{over:?} comes to {cause:?}");
                self.fail(text);
            }
        }
        let code = cause.as_ref().map(|cause| cause.exit(false));
        self.check(code == Some(ending), || format!("{cause:?} ends as {ending:?}"));
    }

    /// Processes of the last round whose call has not come to its good end.
    fn unfinished(&self) -> Vec<ProcId> {
        let generation = self.truth.generation;
        let of_generation = self.truth.rounds.keys().filter(|(own, ..)| *own == generation);
        let last = of_generation.map(|(_, call, round)| (*call, Some(*round))).max();
        let is_of_last =
            |client: &Client| client.generation == generation && Some((client.calls, client.round)) == last;
        let of_last = self.procs.iter().filter(|(_, client)| is_of_last(client));
        let active = of_last.filter(|(_, client)| {
            !matches!(client.place, Place::Done | Place::Reserve | Place::Dismissed | Place::Left)
        });
        // A rank that had returned may be lost before all have.
        active.filter(|(_, client)| client.place != Place::Returned).map(|(proc, _)| *proc).collect()
    }
}
