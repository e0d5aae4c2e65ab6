//! Facts that several sub-machines of a job need, kept once. Sub-machines read them, and only the router changes them.

use super::hosts::Hosts;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::{NodeId, ProcId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::hostlist::{Chips, Host};
use rlaunch_plan::place::{Placement, Processes};
use rlaunch_protocol::spec::JobSpec;

/// How long before the scheduler's SIGKILL ranks must have ended. Ranks that the scheduler kills have no last words, and rlaunch has no
/// report.
const BEFORE_SCHEDULER: Span = Span::from_secs(2);

/// The facts of a job.
#[derive(Debug)]
pub(super) struct JobFacts {
    /// The hosts of the job.
    pub(super) hosts: Hosts,
    placement: Arc<Placement>,
    /// The ranks of all hosts, before any was left out.
    whole: Arc<Placement>,
    /// How often all ranks have been started again.
    generation: u32,
    /// The time of ranks after the scheduler's warning; `None`: unknown.
    scheduler_grace: Option<Span>,
}

impl JobFacts {
    pub(super) fn new(spec: &JobSpec) -> Self {
        let processes = Processes::of_ranks(spec.placement.ranks.len());
        let placement = Arc::new(Placement { processes, ..spec.placement.clone() });
        let whole = Arc::clone(&placement);
        Self { hosts: Hosts::new(&spec.placement), placement, whole, generation: 0, scheduler_grace: None }
    }

    /// The hosts of the ranks, and their processes.
    pub(super) const fn placement(&self) -> &Arc<Placement> {
        &self.placement
    }

    /// Ranks run there from now on.
    pub(super) fn place(&mut self, placement: Arc<Placement>) {
        self.placement = placement;
    }

    /// The ranks of all hosts, whether the job uses them or not.
    pub(super) fn whole(&self) -> &Placement {
        &self.whole
    }

    /// The ranks of these hosts, in this order.
    pub(super) fn place_on(&self, hosts: &[NodeId]) -> Placement {
        let processes = self.placement.processes.renumbered();
        Placement { processes, ..self.whole.of_hosts(hosts) }
    }

    /// Whether a host has ranks now.
    pub(super) fn is_used(&self, node: NodeId) -> bool {
        self.placement.nodes.get(node.index()).is_some_and(|node| node.ranks > 0)
    }

    /// The chips of these hosts. The words of a hostfile go before them.
    pub(super) fn add_chips(&mut self, chips: Vec<(NodeId, Chips)>) {
        let placement = Arc::make_mut(&mut self.placement);
        for (node, chips) in chips {
            if let Some(node) = placement.nodes.get_mut(node.index()) {
                node.chips.get_or_insert(chips);
            }
        }
    }

    /// The name and the chips of a host that has become known.
    pub(super) fn name(&mut self, node: NodeId, host: &Host, chips: &Chips) {
        for placement in [&mut self.whole, &mut self.placement] {
            if let Some(known) = Arc::make_mut(placement).nodes.get_mut(node.index()) {
                (known.host, known.chips) = (host.clone(), Some(chips.clone()));
            }
        }
    }

    /// The scheduler kills the processes of a job so long after its warning.
    pub(super) fn note_kill_wait(&mut self, span: Span) {
        self.scheduler_grace = Some(Span::from_nanos(span.nanos().saturating_sub(BEFORE_SCHEDULER.nanos())));
    }

    /// The time of ranks after the scheduler's warning; `None`: unknown.
    pub(super) const fn scheduler_grace(&self) -> Option<Span> {
        self.scheduler_grace
    }

    /// How often all ranks have been started again.
    pub(super) const fn generation(&self) -> u32 {
        self.generation
    }

    /// All ranks are started again, where they were or elsewhere. Rank 0's process has the number `first`.
    pub(super) fn begin_generation(&mut self, generation: u32, elsewhere: Option<Arc<Placement>>, first: ProcId) {
        self.generation = generation;
        self.hosts.begin_generation();
        if let Some(placement) = elsewhere {
            self.placement = placement;
        }
        let placement = Arc::make_mut(&mut self.placement);
        placement.processes.begin(first, placement.ranks.len());
    }

    /// Another process of a rank is started.
    pub(super) fn add_process(&mut self, proc: ProcId, rank: Rank) {
        Arc::make_mut(&mut self.placement).processes.add(proc, rank);
    }

    /// The user's name for a host.
    pub(super) fn host_name(&self, node: NodeId) -> OsBytes {
        self.placement.nodes.get(node.index()).map(|node| OsBytes::from(node.host.name.as_str())).unwrap_or_default()
    }

    /// Ranks run on other hosts than the launcher's own. Such a host may be lost for a while before that is known.
    pub(super) fn has_other_hosts(&self) -> bool {
        self.placement.used().any(|node| !self.hosts.is_local(node))
    }

    /// The group of a rank and its number there; `None`: its world has no name.
    pub(super) fn group_of(&self, rank: Rank) -> Option<(OsBytes, Rank)> {
        let group = self.placement.worlds.group(self.placement.world_of(rank));
        (!group.is_empty()).then(|| (OsBytes::from(group), self.placement.in_world(rank)))
    }

    /// The node for which a process was requested.
    pub(super) fn node_of_process(&self, proc: ProcId) -> Option<NodeId> {
        self.placement.node_of(self.placement.rank_of(proc)?)
    }
}
