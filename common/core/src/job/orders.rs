//! The orders for each node: the job, its programs, its ranks.

use super::host_leases::patience;
use super::{Cx, JobAction, Setting};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, LocalRank, NodeId, ProcId, Rank, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;
use rlaunch_plan::allocation::{HostStep, StepLayout, task_ids};
use rlaunch_plan::hostlist::{Chips, Host, fold};
use rlaunch_plan::place::Placement;
use rlaunch_plan::tpu::{TpuFacts, TpuHost};
use rlaunch_protocol::master_store::Holder;
use rlaunch_protocol::settings::{Settings, StdinPlan};
use rlaunch_protocol::spec::{AppBase, JobSpec};
use rlaunch_protocol::travel::Travel;
use rlaunch_protocol::wire::codec;
use rlaunch_protocol::wire::probe::Key;
use rlaunch_protocol::wire::to_node::{
    APP_PART, Delta, Find, HostRanks, MpiWorld, PortPlan, Rendezvous, SPAWN_BATCH, Start, ToNode, WorldRank, WorldStart,
};

/// MASTER_ADDR of a job that has one host.
pub(super) const LOOPBACK: &str = "127.0.0.1";

/// The part of each TPU host in the slices of the job.
pub(super) type Slices = BTreeMap<NodeId, TpuHost>;

/// The orders.
#[derive(Clone, Debug)]
pub(super) struct Orders {
    spec: Arc<JobSpec>,
    /// Hosts of which one will have rank 0.
    heads: BTreeSet<NodeId>,
    /// By node, the programs that have ranks there.
    apps: Vec<BTreeSet<AppIndex>>,
    travel: Travel,
    /// The secret by which rank 0's host proves its identity.
    secret: Key,
    pinned_port: Option<u16>,
    pinned_addr: Option<OsBytes>,
    in_slurm: bool,
}

impl Orders {
    pub(super) fn new(spec: Arc<JobSpec>, setting: &Setting) -> Self {
        let Setting { travel, secret, .. } = setting.clone();
        let asked = spec.placement.nodes.len();
        let heads = match &spec.slices {
            // Any slice may come to be the first.
            Some(plan) => plan.slots.iter().filter_map(|slot| slot.hosts.first().copied()).collect(),
            None => spec.placement.heads(asked.saturating_sub(least(&spec))),
        };
        let mut apps = vec![BTreeSet::new(); asked];
        for placed in &spec.placement.ranks {
            if let Some(own) = apps.get_mut(placed.node.index()) {
                own.insert(placed.app);
            }
        }
        let (pinned_port, pinned_addr) = (pinned_port(&spec), pinned_addr(&spec));
        let in_slurm = spec.is_in_slurm();
        Self { travel, secret, pinned_port, pinned_addr, in_slurm, heads, apps, spec }
    }

    /// The name and the chips of a host that has become known.
    pub(super) fn name(&mut self, node: NodeId, host: &Host, chips: &Chips) {
        if let Some(known) = Arc::make_mut(&mut self.spec).placement.nodes.get_mut(node.index()) {
            (known.host, known.chips) = (host.clone(), Some(chips.clone()));
        }
    }

    /// Fewest hosts that are enough.
    pub(super) fn least(&self) -> usize {
        least(&self.spec)
    }

    /// Whether other hosts have to find rank 0's host at an address that was not given.
    pub(super) fn probes(&self, placement: &Placement) -> bool {
        !is_together(placement) && self.pinned_addr.is_none()
    }

    /// The launcher's own host is the only one.
    pub(super) fn is_sole(&self) -> bool {
        self.spec.placement.is_here()
    }

    /// The part that is to hold the store.
    pub(super) fn holder(&self) -> Holder {
        self.spec.settings.store.holder
    }

    pub(super) const fn pinned_port(&self) -> Option<u16> {
        self.pinned_port
    }

    pub(super) const fn pinned_addr(&self) -> Option<&OsBytes> {
        self.pinned_addr.as_ref()
    }

    /// Whether all ranks may be started again.
    pub(super) fn may_restart(&self) -> bool {
        self.spec.may_restart()
    }

    /// Whether ranks may be started again.
    pub(super) fn starts_again(&self) -> bool {
        self.may_restart() || self.spec.rounds.respawn
    }

    /// Sends a program to a host of a running job.
    pub(super) fn send_program(&self, cx: &mut Cx<'_>, node: NodeId, app: AppIndex, base: &AppBase) {
        send_app(cx, node, app, base);
    }

    /// Whether the job has several worlds from its start.
    fn has_worlds(&self) -> bool {
        !self.spec.placement.worlds.is_one() || self.spec.placement.worlds.has_groups()
    }

    /// Whether processes may be started after others have ended. Then the only node, too, waits for the order to finish.
    pub(super) fn can_start_more(&self) -> bool {
        self.starts_again() || self.has_worlds() || self.spec.lead.is_some()
    }

    /// Time that a round may wait for suspected hosts, and for more faults.
    fn awaits(&self) -> Span {
        let others = if self.spec.placement.nodes.iter().all(|node| node.local) {
            Span::ZERO
        } else {
            patience(self.spec.settings.hosts.lease)
        };
        others + self.spec.rounds.fault_window
    }

    /// The rendezvous of the only node.
    pub(super) fn alone(&self, placement: &Placement) -> Rendezvous {
        let addr = self.pinned_addr.clone().unwrap_or_else(|| LOOPBACK.into());
        self.rendezvous(placement, addr, self.pinned_port)
    }

    pub(super) const fn chooses_port(&self) -> bool {
        self.pinned_port.is_none()
    }

    /// MASTER_PORT on the host of rank 0.
    pub(super) fn port_plan(&self) -> PortPlan {
        self.pinned_port.map_or(PortPlan::Choose, PortPlan::Claim)
    }

    /// `--interface`; empty: not given.
    pub(super) fn interface(&self) -> &OsBytes {
        &self.spec.settings.hosts.interface
    }

    /// The node is the launcher's own host.
    pub(super) fn is_local(&self, node: NodeId) -> bool {
        self.spec.placement.nodes.get(node.index()).is_some_and(|node| node.local)
    }

    /// Whether a name is that of another host of the job than this one.
    pub(super) fn is_other_host(&self, name: &[u8], node: NodeId) -> bool {
        let nodes = &self.spec.placement.nodes;
        let is_named =
            |at: usize| nodes.get(at).is_some_and(|node| node.host.name.as_bytes().eq_ignore_ascii_case(name));
        !is_named(node.index()) && (0..nodes.len()).any(is_named)
    }

    /// Their names, in short.
    pub(super) fn folded(&self, nodes: &[NodeId]) -> OsBytes {
        let known = nodes.iter().filter_map(|node| self.spec.placement.nodes.get(node.index()));
        OsBytes::from(fold(known.map(|node| node.host.name.as_str())))
    }

    /// The job, and the programs that have ranks on this node.
    pub(super) fn begin(&self, cx: &mut Cx<'_>, node: NodeId) {
        let JobSpec { placement, apps: programs, .. } = &*self.spec;
        let sole = self.is_sole();
        let local = self.is_local(node);
        let meets = !sole && self.heads.contains(&node);
        let Some(apps) = self.apps.get(node.index()) else { return };
        let bind = self.spec.settings.bind.of_ranks(&self.spec.rank_cpus, placement.ranks_of(node));
        let start = Start {
            job: self.spec.job,
            settings: Box::new(Settings { bind, ..self.spec.settings.clone() }),
            nodes: len(&placement.nodes),
            // A host that has no ranks yet has some later.
            local_size: match self.has_worlds() {
                true => placement.slots_used(node),
                false => placement.nodes.get(node.index()).map_or(0, |node| node.ranks),
            }
            .max(1),
            rendezvous: sole.then(|| self.alone(cx.facts.placement())),
            port: if sole || meets { self.port_plan() } else { PortPlan::None },
            find: meets.then(|| Find { probe_key: self.probes(placement).then(|| self.secret.of(node)) }),
            addresses: !sole && (self.spec.settings.store.holder.is_agent() || self.pinned_addr.is_some()),
            travel: (!local).then(|| Box::new(self.travel.clone())),
            sole,
            has_lease: !local,
            can_start_more: self.can_start_more(),
            apps: apps.iter().fold(0, |sum, _| sum.saturating_add(1)),
            chips: self.chips(node),
            has_worlds: self.has_worlds(),
            awaits: self.awaits(),
            scheduler_grace: cx.facts.scheduler_grace(),
        };
        cx.act(JobAction::Send { node, msg: ToNode::Start(start) });
        for (app, index) in programs.iter().zip((0..).map(AppIndex::new)) {
            if apps.contains(&index) {
                send_app(cx, node, index, &app.base);
            }
        }
    }

    /// The words of the hostfile about the chips of a node.
    fn chips(&self, node: NodeId) -> Option<Box<TpuFacts>> {
        let chips = self.spec.placement.nodes.get(node.index()).and_then(|node| node.chips.as_ref());
        chips.map(|chips| Box::new(TpuFacts::of_words(chips)))
    }

    /// Whether hosts look at devices before ranks are started.
    pub(super) fn prepares_devices(&self) -> bool {
        self.spec.settings.devices.is_active()
    }

    /// `--allow-partial`
    pub(super) fn allows_partial(&self) -> bool {
        self.spec.settings.devices.allow_partial
    }

    /// The rendezvous for all nodes, as the first host is sent it.
    pub(super) fn rendezvous(&self, placement: &Placement, addr: OsBytes, port: Option<u16>) -> Rendezvous {
        let is_one = placement.worlds.is_one();
        let world = placement.only(WorldId::new(0));
        let rendezvous = self.rendezvous_of(&world, addr, port);
        let first = world.nodes.get(world.head().index()).map(|node| node.ranks);
        Rendezvous { ranks_here: first.filter(|_| !is_one), ..rendezvous }
    }

    /// The rendezvous of a world, which is all that there is of the job in `placement`.
    pub(super) fn rendezvous_of(&self, placement: &Placement, addr: OsBytes, port: Option<u16>) -> Rendezvous {
        let nodes = placement.used().fold(0_u32, |sum, _| sum.saturating_add(1));
        let agent_store = self.spec.settings.store.holder.is_agent();
        Rendezvous {
            addr,
            port,
            world_size: placement.world_size(),
            nodes,
            node_index: 0,
            agent_store,
            restart: 0,
            namespace: 0,
            slurm: self.slurm(placement).map(Box::new),
            tpu: None,
            mpi: self.mpi_world(placement).map(Box::new),
            ranks_here: None,
        }
    }

    /// The ranks of all hosts, for MPI libraries. A host finds out by itself that it is the only one and has a single program.
    fn mpi_world(&self, placement: &Placement) -> Option<MpiWorld> {
        if !self.spec.settings.mpi.served || is_together(placement) && self.spec.apps.len() == 1 {
            return None;
        }
        Some(Self::mpi_layout(placement, OsBytes::default()))
    }

    /// The ranks of all hosts of a world, which an MPI library may have started.
    pub(super) fn mpi_layout(placement: &Placement, origin: OsBytes) -> MpiWorld {
        let by_node = placement.by_node();
        let host = |node: NodeId| {
            let name = placement.nodes.get(node.index()).map_or("", |node| node.host.name.as_str());
            let mut ranks = RankSet::new();
            by_node.get(node.index()).into_iter().flatten().for_each(|rank| ranks.insert(*rank));
            HostRanks::new(name.into(), &ranks)
        };
        let mut apps: BTreeMap<AppIndex, u32> = BTreeMap::new();
        placement.ranks.iter().for_each(|placed| *apps.entry(placed.app).or_default() += 1);
        MpiWorld { apps: apps.into_values().collect(), hosts: placement.used().map(host).collect(), origin }
    }

    /// The job in Slurm's words, as the first host is sent it.
    fn slurm(&self, placement: &Placement) -> Option<HostStep> {
        let used = || placement.used().filter_map(|node| placement.nodes.get(node.index()));
        let layout = || StepLayout::new(used().map(|node| (node.host.name.as_str(), node.ranks)));
        let first = placement.ranks.first().map(|rank| rank.node);
        let own = || {
            let own = placement.ranks.with_ranks().filter(|(_, placed)| Some(placed.node) == first);
            own.map(|(rank, _)| rank.get())
        };
        self.in_slurm.then(|| HostStep { layout: layout(), task_ids: task_ids(own()) })
    }

    /// The same rendezvous of those who are left.
    pub(super) fn rendezvous_of_next_generation(&self, placement: &Placement, rendezvous: Rendezvous) -> Rendezvous {
        let Rendezvous { world_size, nodes, slurm, mpi, .. } =
            self.rendezvous(placement, rendezvous.addr.clone(), rendezvous.port);
        Rendezvous { world_size, nodes, slurm, mpi, ..rendezvous }
    }

    /// Sends each node the rendezvous, its index among the nodes, and its ranks. The process of rank 0 has this number. Some nodes have
    /// had ranks before.
    pub(super) fn send_rendezvous(
        &self,
        cx: &mut Cx<'_>,
        (placement, rendezvous): (&Placement, &Rendezvous),
        first: u32,
        slices: &Slices,
        is_new: impl Fn(NodeId) -> bool,
    ) {
        let hosts = hosts_of(placement, WorldId::new(0));
        for node in placement.used() {
            let host = hosts.get(&node);
            let own = match host {
                Some(host) => of_host(rendezvous, host, slices.get(&node)),
                // A host that has ranks of other worlds only.
                None => of_no_rank(rendezvous),
            };
            let msg = if is_new(node) { ToNode::Rendezvous(own) } else { ToNode::Again(own) };
            cx.act(JobAction::Send { node, msg });
            self.ranks(cx, placement, node, first, host.map_or(&[][..], |host| host.ranks.as_slice()));
        }
    }

    /// Has a host start the ranks of a world besides the first one.
    pub(super) fn send_world(&self, cx: &mut Cx<'_>, start: &WorldStart, first: ProcId) {
        let placement = Arc::clone(cx.facts.placement());
        for (node, host) in hosts_of(&placement, start.world) {
            let rendezvous = of_host(&start.rendezvous, &host, None);
            let start = WorldStart { rendezvous, ..start.clone() };
            cx.act(JobAction::Send { node, msg: ToNode::World(Box::new(start)) });
            self.ranks(cx, &placement, node, first.get(), &host.ranks);
        }
    }

    /// The ranks of the only node.
    pub(super) fn all_ranks(&self, cx: &mut Cx<'_>) {
        let placement = cx.facts.placement();
        let ranks: Vec<Rank> = placement.members(WorldId::new(0)).collect();
        self.ranks(cx, placement, NodeId::new(0), 0, &ranks);
    }

    /// Another process of a rank.
    pub(super) fn one(&self, cx: &mut Cx<'_>, node: NodeId, rank: Rank, proc: ProcId) {
        let placement = cx.facts.placement();
        let local_rank = placement.ranks.get(rank.index()).map(|placed| placed.local_rank);
        let delta = local_rank.and_then(|local_rank| self.delta(placement, rank, local_rank, proc));
        // Input has gone to the first process.
        let delta = delta.map(|delta| Delta { stdin: StdinPlan::None, ..delta });
        for procs in Capped::<Delta, SPAWN_BATCH>::chunks(delta) {
            spawn(cx, placement, node, procs, true);
        }
    }

    /// `local_rank`: among the ranks of its world on its host.
    fn delta(&self, placement: &Placement, rank: Rank, local_rank: LocalRank, proc: ProcId) -> Option<Delta> {
        let placed = placement.ranks.get(rank.index())?;
        let (share, n) = (placement.share(placed.app), rank.get());
        Some(Delta {
            proc,
            app: placed.app,
            rank,
            local_rank: placed.local_rank,
            app_rank: n.saturating_sub(share.first.get()),
            app_size: share.size,
            // Ranks of programs that are started later have no input.
            stdin: if n < self.spec.placement.world_size() {
                self.spec.settings.output.stdin.of(rank)
            } else {
                StdinPlan::None
            },
            world_rank: WorldRank {
                world: placement.worlds.of_app(placed.app),
                rank: placement.in_world(rank),
                local_rank,
            },
        })
    }

    /// The ranks of a node. The process of rank 0 gets the number `first`, the others follow.
    fn ranks(&self, cx: &mut Cx<'_>, placement: &Placement, node: NodeId, first: u32, ranks: &[Rank]) {
        let is_one = placement.worlds.is_one();
        let delta = |(rank, among): (&Rank, u32)| {
            let placed = placement.ranks.get(rank.index())?;
            let local_rank = if is_one { placed.local_rank } else { LocalRank::new(among) };
            self.delta(placement, *rank, local_rank, ProcId::new(first.saturating_add(rank.get())))
        };
        let deltas = ranks.iter().zip(0..).filter_map(delta);
        let mut batches = Capped::<Delta, SPAWN_BATCH>::chunks(deltas).into_iter().peekable();
        if batches.peek().is_none() {
            spawn(cx, placement, node, Capped::default(), true);
        }
        while let Some(procs) = batches.next() {
            spawn(cx, placement, node, procs, batches.peek().is_none());
        }
    }
}

/// A host of a world.
#[derive(Debug)]
struct WorldHost {
    /// Its index among the hosts of the world.
    index: u32,
    /// The ranks of the world there, by their numbers in the job.
    ranks: Vec<Rank>,
    /// The same in the world, where that is another.
    numbers: Option<Vec<Rank>>,
}

/// The rendezvous of the first world for a host that has none of its ranks.
pub(super) fn of_no_rank(rendezvous: &Rendezvous) -> Rendezvous {
    Rendezvous { node_index: u32::MAX, ranks_here: Some(0), ..rendezvous.clone() }
}

/// The hosts of a world.
fn hosts_of(placement: &Placement, world: WorldId) -> BTreeMap<NodeId, WorldHost> {
    let mut hosts: BTreeMap<NodeId, WorldHost> = BTreeMap::new();
    let is_one = placement.worlds.is_one();
    for (rank, number) in placement.members(world).zip((0..).map(Rank::new)) {
        let Some(node) = placement.node_of(rank) else { continue };
        let numbers = if is_one { None } else { Some(Vec::new()) };
        let host = hosts.entry(node).or_insert_with(|| WorldHost { index: 0, ranks: Vec::new(), numbers });
        host.ranks.push(rank);
        host.numbers.iter_mut().for_each(|numbers| numbers.push(number));
    }
    let mut index = 0;
    for node in placement.used() {
        if let Some(host) = hosts.get_mut(&node) {
            host.index = index;
            index = index.saturating_add(1);
        }
    }
    hosts
}

/// The rendezvous as this host of its world is sent it.
fn of_host(rendezvous: &Rendezvous, host: &WorldHost, tpu: Option<&TpuHost>) -> Rendezvous {
    let tpu = tpu.cloned().map(Box::new);
    let numbers = host.numbers.as_deref();
    let ranks_here = numbers.map(len);
    let mut own = Rendezvous { node_index: host.index, tpu, ranks_here, ..rendezvous.clone() };
    if let Some(step) = &mut own.slurm {
        step.task_ids = task_ids(numbers.unwrap_or(&host.ranks).iter().map(|rank| rank.get()));
    }
    own
}

/// All ranks are on one host.
pub(super) fn is_together(placement: &Placement) -> bool {
    placement.used().nth(1).is_none()
}

fn spawn(cx: &mut Cx<'_>, placement: &Placement, node: NodeId, procs: Capped<Delta, SPAWN_BATCH>, last: bool) {
    let local_size = placement.nodes.get(node.index()).map_or(0, |node| node.ranks);
    cx.act(JobAction::Send { node, msg: ToNode::Spawn { procs, last, local_size } });
}

fn least(spec: &JobSpec) -> usize {
    let asked = spec.placement.nodes.len();
    spec.min_hosts.map_or(asked, |least| asked.min(least as usize))
}

fn len<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

/// A program, in parts that never keep other messages waiting.
fn send_app(cx: &mut Cx<'_>, node: NodeId, app: AppIndex, base: &AppBase) {
    let bytes = codec::encode(base);
    let mut parts = bytes.chunks(APP_PART).peekable();
    while let Some(part) = parts.next() {
        let msg = ToNode::App { app, last: parts.peek().is_none(), part: part.into() };
        cx.act(JobAction::Send { node, msg });
    }
}

/// The port that the user chose for the program of rank 0. A value that is no port concerns only the program: its ranks see it unchanged,
/// and the node chooses a port for programs that use ours.
fn pinned_port(spec: &JobSpec) -> Option<u16> {
    let value = first(spec)?.pinned(b"MASTER_PORT")?;
    core::str::from_utf8(value).ok()?.parse().ok().filter(|port| *port != 0)
}

/// The same of the address.
fn pinned_addr(spec: &JobSpec) -> Option<OsBytes> {
    first(spec)?.pinned(b"MASTER_ADDR").map(OsBytes::from)
}

/// The program of rank 0.
fn first(spec: &JobSpec) -> Option<&AppBase> {
    spec.apps.iter().find(|app| app.procs > 0).map(|app| &app.base)
}
