//! Jobs with worlds: a program that leads, groups with tied ranks, and worlds that ranks ask for while the job runs.
//!
//! The job ends with the code of the program that leads. Its other ranks then get TERM, the grace, and KILL. Each order of a rank has one
//! answer, and the failure of a world that its rank tolerates, or has ended, is none of the job.

use crate::agent::{Arrival, port_of};
use crate::generations;
use crate::host::Host;
use crate::plan::{EVER, MS, Plan, Script, script};
use crate::rng::Rng;
use crate::site::{self, Reach};
use crate::ways::OPEN;
use crate::world::{Ev, World};
use rlaunch_base::id::{AppIndex, ClientId, NodeId, ProcId, Rank, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_core::events::Cause;
use rlaunch_core::node::{ExecSpec, NodeEvent};
use rlaunch_plan::place::{Placement, World as Group};
use rlaunch_protocol::settings::OnFailure;
use rlaunch_protocol::wire::frozen::client::Reply;
use rlaunch_protocol::wire::frozen::client::order::{Order, Program, Request, Spawned};
use rlaunch_protocol::wire::order::{Asker, RankOrder};
use rlaunch_protocol::wire::to_root::SpawnStep;

/// Number of the random stream, distinct from those of other jobs.
const STREAM: u64 = 0x776f_726c_6473_0000;
/// A rank that was killed is known to have ended after this time.
const KILLED_BY: u64 = 1000 * MS;

/// An order of a rank: when, and for what.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    at: u64,
    by: ProcId,
    request: Request,
    /// The world is ended so long after the answer.
    ends: Option<u64>,
    /// The order has reached the agent.
    is_made: bool,
    /// The answer: a world, or a refusal.
    answer: Option<Option<WorldId>>,
    /// When its end was ordered.
    ended: Option<u64>,
}

/// The orders of a job, and the time of its end.
#[derive(Default, Debug)]
pub(crate) struct Orders {
    is_used: bool,
    all: Vec<Asked>,
    /// When the job began to end.
    ending_at: Option<u64>,
}

/// A job on several hosts, or on the launcher's own alone.
pub(crate) fn plan(seed: u64) -> (Plan, Orders) {
    let rng = &mut Rng::new(seed ^ STREAM);
    let mut plan = site::plan(rng);
    let world = plan.ranks.len() as u64;
    let first = rng.between(1, world);
    group(rng, &mut plan, first);
    if rng.chance(50) {
        generations::alone(&mut plan);
        placed(&mut plan, first);
    }
    plan.spec.min_hosts = None;
    plan.sites.iter_mut().for_each(|site| site.nets = OPEN);
    let lead = rng.chance(70).then(|| u32::from(first < world && rng.chance(50)));
    plan.spec.lead = lead.map(AppIndex::new);
    if lead.is_some() {
        plan.spec.settings.ending.on_failure = OnFailure::Kill;
    }
    for (script, placed) in plan.ranks.iter_mut().zip(&plan.spec.placement.ranks) {
        // Such a rank ends with the job only.
        if lead.is_some_and(|lead| placed.app.get() != lead) && rng.chance(40) {
            script.runs = EVER;
        }
    }
    let orders = orders(rng, &mut plan, lead.is_some());
    if rng.chance(10) {
        plan.no_start = Some((u32::try_from(rng.below(plan.ranks.len() as u64)).unwrap_or(0), SpawnStep::Exec));
    }
    (plan, orders)
}

/// The second program is a group of its own, or of one world with the first.
fn group(rng: &mut Rng, plan: &mut Plan, first: u64) {
    placed(plan, first);
    let second = plan.ranks.len() as u64 - first;
    if second == 0 || rng.chance(20) {
        return;
    }
    let tied = if second.is_multiple_of(2) && rng.chance(50) { 2 } else { 0 };
    let group = Group { tied, agent_store: rng.chance(50), ..Group::named("gen".into()) };
    plan.spec.apps[1].base.role.world = group.clone();
    plan.spec.placement.worlds.add_program(Group::default());
    plan.spec.placement.worlds.add_program(group);
}

/// Gives this number of ranks to the first program.
fn placed(plan: &mut Plan, first: u64) {
    let all = plan.ranks.len() as u64;
    plan.spec.apps[0].procs = u32::try_from(first).unwrap_or(1);
    plan.spec.apps[1].procs = u32::try_from(all - first).unwrap_or(0);
    for (placed, rank) in plan.spec.placement.ranks.iter_mut().zip(0..) {
        placed.app = AppIndex::new(u32::from(rank >= first));
    }
}

fn orders(rng: &mut Rng, plan: &mut Plan, is_led: bool) -> Orders {
    let world = plan.ranks.len() as u64;
    // Refused orders get no ranks, so the ranks of an order are not known before.
    let bound = rng.chance(50);
    let count = if rng.chance(20) { 0 } else { rng.between(1, 4) };
    let mut all = Vec::new();
    for _ in 0..count {
        let ranks = rng.between(1, 4);
        let program =
            Program { ranks: u32::try_from(ranks).unwrap_or(1), argv: vec!["rank".into()], ..Program::default() };
        let request = Request {
            programs: vec![program],
            group: if rng.chance(50) { "w".into() } else { OsBytes::default() },
            share: if rng.chance(20) { "gen".into() } else { OsBytes::default() },
            tied: if rng.chance(20) { 2 } else { 0 },
            tolerant: rng.chance(60),
            bound,
            origin: OsBytes::default(),
        };
        let by = ProcId::new(u32::try_from(rng.below(world)).unwrap_or(0));
        let ends = rng.chance(40).then(|| rng.micros(1, 3_000_000));
        let at = rng.micros(1, 3_000_000);
        all.push(Asked { at, by, request, ends, is_made: false, answer: None, ended: None });
        for _ in 0..ranks {
            let fails = rng.chance(40);
            let mut script = calm(rng, fails);
            if (is_led || bound) && rng.chance(40) {
                script.runs = EVER;
            }
            plan.ranks.push(script);
        }
    }
    Orders { is_used: true, all, ending_at: None }
}

fn calm(rng: &mut Rng, fails: bool) -> Script {
    let mut script = Script { stuck: None, ..script(rng, fails, 2) };
    script.kids.iter_mut().for_each(|kid| kid.stuck = false);
    script
}

impl Orders {
    /// When each of them is made, and where its rank runs.
    pub(crate) fn times(&self, placement: &Placement) -> Vec<(u64, NodeId, usize)> {
        let of = |(number, asked): (usize, &Asked)| {
            let node = placement.node_of(Rank::new(asked.by.get()))?;
            Some((asked.at, node, number))
        };
        self.all.iter().enumerate().filter_map(of).collect()
    }
}

impl World {
    /// Whether the job has worlds.
    pub(crate) const fn has_worlds(&self) -> bool {
        self.orders.is_used
    }

    /// A rank asks for a world.
    pub(crate) fn asks(&mut self, number: usize) {
        let asked = &mut self.orders.all[number];
        let (by, words) = (asked.by, Order::Spawn(asked.request.clone()).write());
        if self.host.kernel.is_running(by) && !self.host.agent.has_exited() {
            asked.is_made = true;
            self.orders_reach_agent(number, by, 1, &words);
        }
    }

    /// A rank has a world ended.
    pub(crate) fn asks_end(&mut self, number: usize) {
        let asked = &self.orders.all[number];
        let (by, Some(Some(world))) = (asked.by, asked.answer) else { return };
        let words = Order::EndWorld(world, None).write();
        if self.host.kernel.is_running(by) && !self.host.agent.has_exited() {
            self.orders_reach_agent(number, by, 2, &words);
        }
    }

    fn orders_reach_agent(&mut self, number: usize, by: ProcId, seq: u64, words: &[u8]) {
        let (placement, rank) = (self.placement(), Rank::new(by.get()));
        let asker = Asker { client: ClientId::new(u32::try_from(number).unwrap_or(0)), seq };
        let (world, rank) = (placement.world_of(rank), Some(placement.in_world(rank)));
        let order = RankOrder { asker, world, rank, words: words.into() };
        self.arrive(Arrival::Event(Box::new(NodeEvent::Ordered(Box::new(order)))));
    }

    /// The answer to an order.
    pub(crate) fn answered(&mut self, asker: Asker, reply: &[u8]) {
        let number = self.orders.all.iter().zip(0..).position(|(_, n)| ClientId::new(n) == asker.client);
        let Some(number) = number else { return self.fail(format!("{asker:?} has not asked")) };
        let reply = Reply::parse(reply);
        let is_refused = matches!(&reply, Ok(Reply::Refused(refused)) if !refused.text.is_empty());
        if asker.seq == 2 {
            let is_done = matches!(reply, Ok(Reply::Done));
            self.check(is_done || is_refused, || "the order to end a world has another answer".to_owned());
            if is_done {
                self.orders.all[number].ended = Some(self.now);
                let grace = self.plan.spec.settings.ending.grace.nanos() * 102 / 100;
                let latest = self.now + grace + 2 * self.plan.wire.1 * 1000 + KILLED_BY;
                self.at(latest, Ev::IsWorldOver(number));
            }
            return;
        }
        let once = self.orders.all[number].is_made && self.orders.all[number].answer.is_none();
        self.check(once, || format!("order {number} is answered twice, or was not made"));
        let started = match &reply {
            Ok(Reply::Value(Some(value))) => Spawned::parse(value).ok(),
            _ => None,
        };
        self.check(started.is_some() || is_refused, || format!("order {number} has another answer"));
        if let Some(started) = &started {
            self.check_started(number, started);
        }
        let asked = &mut self.orders.all[number];
        asked.answer = Some(started.map(|started| started.world));
        if let Some(after) = asked.ends {
            self.at(self.now + after, Ev::AsksEnd(number));
        }
    }

    /// All ranks of a world were started before its order is answered.
    fn check_started(&mut self, number: usize, started: &Spawned) {
        let placement = self.placement();
        let ranks: u32 = self.orders.all[number].request.programs.iter().map(|program| program.ranks).sum();
        let members: Vec<Rank> = placement.members(started.world).collect();
        let names = placement.worlds.group(started.world) == started.group.as_slice();
        let is_whole = members.len() == ranks as usize && started.hosts.len() == members.len() && names;
        let missing: Vec<Rank> = members.into_iter().filter(|rank| !self.was_started(*rank)).collect();
        self.check(is_whole && missing.is_empty(), || format!("order {number} is done, but not started: {missing:?}"));
    }

    fn host_of(&self, rank: Rank) -> Option<&Host> {
        self.placement().node_of(rank).map(|node| self.host(node.index()))
    }

    fn was_started(&self, rank: Rank) -> bool {
        self.host_of(rank).is_some_and(|host| host.kernel.was_started(ProcId::new(rank.get())))
    }

    fn runs(&self, rank: Rank) -> bool {
        self.host_of(rank).is_some_and(|host| host.kernel.is_running(ProcId::new(rank.get())))
    }

    /// When a rank failed.
    fn failed_at(&self, rank: Rank) -> Option<u64> {
        let died = self.host_of(rank)?.kernel.failed_before(EVER);
        died.into_iter().find(|(_, proc)| proc.get() == rank.get()).map(|(at, _)| at)
    }

    /// A world whose end was ordered has ended after the grace, if nothing is wrong with its hosts.
    pub(crate) fn is_world_over(&mut self, number: usize) {
        let Some(Some(world)) = self.orders.all[number].answer else { return };
        let left: Vec<Rank> = self.placement().members(world).filter(|rank| self.runs(*rank)).collect();
        self.check(!self.is_untroubled() || left.is_empty(), || format!("{left:?} of {world} run after their grace"));
    }

    /// Whether the job has no faults but those of its ranks.
    fn is_untroubled(&self) -> bool {
        let plan = &self.plan;
        let is_well = |site: &site::Site| {
            let is_calm = site.faults.is_empty() && site.spells.is_empty() && !site.bare;
            is_calm && matches!(site.reach, Reach::Up(_)) && site.is_swift()
        };
        plan.sites.iter().all(is_well)
            && plan.faults.is_empty()
            && plan.stops.is_empty()
            && plan.spec.settings.ending.timeout.is_none()
    }

    /// The job begins to end.
    pub(crate) fn worlds_end(&mut self) {
        let now = self.now;
        self.orders.ending_at.get_or_insert(now);
    }

    /// Everything is killed: after the end of the program that leads, ranks that run have had the grace.
    pub(crate) fn check_grace(&mut self) {
        let by_lead = matches!(self.truth.began, Some(Cause::Lead { .. })) && self.is_untroubled();
        let Some(began) = self.orders.ending_at.filter(|_| by_lead) else { return };
        let least = self.plan.spec.settings.ending.grace.nanos() / 100 * 98;
        let (had, running) = (self.now - began, self.host.kernel.running());
        self.check(running == 0 || had >= least, || {
            format!("{running} ranks are killed {} after the end", Span::from_nanos(had))
        });
    }

    /// The placement, with the ranks of another world.
    pub(crate) fn placed_with_world(&mut self, placement: &Placement) {
        let before = &self.placement().ranks;
        let is_kept = |(rank, placed)| placement.ranks.get(Rank::index(rank)) == Some(placed);
        let kept = before.with_ranks().all(is_kept) && placement.ranks.len() > before.len();
        self.check(kept, || "ranks change their places for a new world".to_owned());
    }

    /// Processes of the sessions of ranks are killed: a session is known as long as its rank was not reaped.
    pub(crate) fn kills_sessions(&mut self, procs: Vec<ProcId>) {
        for proc in procs {
            let unreaped = self.host.kernel.is_unreaped(proc);
            self.check(unreaped, || format!("the session of {proc} may belong to another process by now"));
            self.signal_group(proc, rlaunch_base::signal::Signal::KILL);
        }
    }

    /// Checks that a rank is where its world has it, and has the variables of it.
    pub(crate) fn check_world_rank(&mut self, proc: ProcId, exec: &ExecSpec) {
        let (placement, rank) = (self.placement(), Rank::new(proc.get()));
        let world = placement.world_of(rank);
        let (own, only) = (placement.in_world(rank), placement.only(world));
        let Some(placed) = only.ranks.get(own.index()).filter(|placed| placed.node == self.id()) else {
            return self.fail(format!("{proc} is not of this host"));
        };
        let head = only.ranks.first().map_or(0, |placed| placed.node.index());
        let port = port_of(head).saturating_add(u16::try_from(world.get()).unwrap_or(0));
        let mut expected = vec![
            format!("RANK={own}"),
            format!("WORLD_SIZE={}", only.ranks.len()),
            format!("LOCAL_RANK={}", placed.local_rank),
            format!("MASTER_PORT={port}"),
        ];
        let facts = placement.worlds.get(world).cloned().unwrap_or_default();
        if !facts.group.is_empty() {
            expected.push(format!("RLAUNCH_GROUP={}", facts.group));
        }
        if let Some(at) = own.get().checked_div(facts.tied) {
            expected.push(format!("RLAUNCH_TIED_GROUP={at}"));
            expected.push(format!("RLAUNCH_TIED_RANK={}", own.get() % facts.tied));
            expected.push(format!("RLAUNCH_TIED_SIZE={}", facts.tied));
        }
        for var in expected {
            let has = exec.shared.iter().chain(exec.vars.iter()).any(|entry| entry == var.as_bytes());
            self.check(has, || format!("{proc} has no {var}"));
        }
    }

    fn is_of_lead(&self, rank: Rank) -> bool {
        let placed = self.placement().ranks.get(rank.index());
        placed.is_some_and(|placed| self.plan.spec.lead == Some(placed.app))
    }

    /// The order for the world of a rank.
    fn order_of(&self, rank: Rank) -> Option<&Asked> {
        let world = self.placement().world_of(rank);
        self.orders.all.iter().find(|asked| asked.answer == Some(Some(world)))
    }

    /// Whether the failure of a rank may have been none of the job.
    fn may_be_excused(&self, rank: Rank) -> bool {
        let has_no_asker = |asked: &Asked| asked.request.bound && !self.runs(Rank::new(asked.by.get()));
        let is_one = |asked: &Asked| asked.request.tolerant || asked.ended.is_some() || has_no_asker(asked);
        // A world that was refused after all has no number here: what had started of it is killed.
        let is_refused = rank.index() >= self.plan.spec.placement.ranks.len() && self.order_of(rank).is_none();
        is_refused || self.order_of(rank).is_some_and(is_one)
    }

    /// Whether the failure of a rank was none of the job: its world tolerates it, or was ended before.
    fn is_excused(&self, rank: Rank) -> bool {
        let ended = |asked: &Asked| asked.ended.zip(self.failed_at(rank)).is_some_and(|(ended, failed)| ended < failed);
        self.order_of(rank).is_some_and(|asked| asked.request.tolerant || ended(asked))
    }

    /// Checks that the job ended like its leading program, or by a failure that counts.
    pub(crate) fn check_worlds_finish(&mut self, cause: &Cause) {
        let is_led = self.plan.spec.lead.is_some();
        let all: Vec<Rank> = self.placement().ranks.with_ranks().map(|(rank, _)| rank).collect();
        let lead: Vec<Rank> = all.iter().copied().filter(|rank| self.is_of_lead(*rank)).collect();
        let ending = self.orders.ending_at.unwrap_or(EVER);
        let failed = |world: &Self, rank: &Rank| world.failed_at(*rank).is_some_and(|at| at < ending);
        let lead_failed = lead.iter().any(|rank| failed(self, rank));
        match cause {
            Cause::Lead { rank } => {
                let right = lead.contains(rank) && !lead_failed && lead.iter().all(|rank| !self.runs(*rank));
                self.check(right, || "the program that leads has not finished well".to_owned());
            }
            Cause::Rank { rank, .. } => {
                let counts = if is_led { lead.contains(rank) } else { !self.is_excused(*rank) };
                self.check(counts, || format!("the job ends by rank {rank}, which is not its business"));
            }
            Cause::Success => {
                let missed = |rank: &&Rank| failed(self, rank) && !self.may_be_excused(**rank);
                let missed = all.iter().filter(missed).find(|rank| !is_led || lead.contains(rank));
                let missed = missed.copied();
                let unanswered = self.orders.all.iter().position(|asked| asked.is_made && asked.answer.is_none());
                let calm = self.is_untroubled();
                self.check(missed.is_none(), || format!("a success, and {missed:?} has failed"));
                self.check(!calm || unanswered.is_none(), || format!("order {unanswered:?} has no answer"));
            }
            _ => {}
        }
        let is_orderly = matches!(cause, Cause::Lead { .. } | Cause::Success | Cause::Rank { .. });
        if is_led && is_orderly && self.is_untroubled() {
            self.check_lead_end(cause, ending, lead_failed);
        }
    }

    /// Nothing but the program that leads has ended the job: its code counts, and the others are gone soon after the grace.
    fn check_lead_end(&mut self, cause: &Cause, ending: u64, lead_failed: bool) {
        let by_rank = matches!(cause, Cause::Rank { .. });
        self.check(by_rank == lead_failed, || format!("{cause:?}, and the lead failed: {lead_failed}"));
        let long = self.now - ending.min(self.now);
        let most = self.plan.spec.settings.ending.grace.nanos() * 102 / 100 + 12_000 * MS + self.plan.drain();
        self.check(long <= most, || format!("the end takes {}", Span::from_nanos(long)));
    }
}
