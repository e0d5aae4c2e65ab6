//! The facts about the job that the restart machine gets when the first processes register.

use super::{Phase, Rounds};
use crate::job::bringup::Bringup;
use crate::job::facts::JobFacts;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::Machine as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_plan::place::{Placement, RankPlacement};
use rlaunch_plan::rank_assign::Source;
use rlaunch_protocol::env::value;
use rlaunch_restart::{Restart, Setup, Site, asked};

/// The rendezvous of the ranks of this generation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Met {
    /// MASTER_PORT.
    port: u16,
    /// An agent holds the TCPStore there.
    agent_store: bool,
    /// By which address each host is found by the others.
    addrs: BTreeMap<NodeId, OsBytes>,
}

impl Met {
    /// As it was found out when the hosts were got ready.
    fn of(bringup: &Bringup, placement: &Placement) -> Self {
        let Some(rendezvous) = bringup.rendezvous() else { return Self::default() };
        let used: Vec<NodeId> = placement.used().collect();
        let head = placement.ranks.first().map(|placed| placed.node);
        let addrs = used.iter().map(|node| {
            (*node, if Some(*node) == head { rendezvous.addr.clone() } else { bringup.address(placement, *node) })
        });
        let chosen = head.and_then(|head| bringup.known(head)).map_or(0, |hello| hello.master_port);
        Self { port: rendezvous.port.unwrap_or(chosen), agent_store: rendezvous.agent_store, addrs: addrs.collect() }
    }
}

impl Rounds {
    /// Makes the machine of this generation, if there is none.
    pub(super) fn begin(&mut self, now: Mono, facts: &JobFacts, bringup: &Bringup) {
        let Phase::Unused { early } = &mut self.now.phase else { return };
        let early = early.take();
        let mut machine = Box::new(Restart::new(self.setup(facts.placement(), Met::of(bringup, facts.placement()))));
        if let Some(early) = early {
            machine.handle(now, early);
        }
        self.now.phase = Phase::Used(machine);
    }

    fn setup(&self, placement: &Placement, met: Met) -> Setup {
        let rounds = &self.spec.rounds;
        let ranks: Vec<NodeId> = placement.ranks.iter().map(|placed| placed.node).collect();
        let site = |node: NodeId| {
            let name = placement.nodes.get(node.index()).map(|node| node.host.name.clone()).unwrap_or_default();
            (node, Site { name, addr: met.addrs.get(&node).cloned().unwrap_or_default() })
        };
        Setup {
            nodes: placement.used().map(site).collect(),
            rendezvous: (ranks.first().copied().unwrap_or(NodeId::new(0)), met.port),
            agent_store: met.agent_store,
            in_slurm: self.spec.is_in_slurm(),
            namespace: self.namespace.saturating_add(1),
            policy: rounds.policy.clone(),
            read_policy: self.read.0,
            known: self.known(placement),
            limits: rounds.limits,
            fault_window: rounds.fault_window,
            yield_within: rounds.yield_within,
            give_up_after: self.spec.settings.restarts.give_up_after,
            respawn: rounds.respawn,
            respawn_timeout: rounds.respawn_timeout,
            ranks,
        }
    }

    /// Variables that the policy of the command line asks for: the program cannot be asked, as it does not know of them. And the slices of
    /// TPU hosts, for each policy.
    fn known(&self, placement: &Placement) -> Vec<(Source, Vec<Option<String>>)> {
        let asked = self.spec.rounds.policy.as_ref().map(asked).unwrap_or_default();
        let app = self.spec.apps.first();
        let value = |name: &str| {
            let value = value(&app?.base.env, name.as_bytes())?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        let known = asked.into_iter().filter_map(|source| match &source {
            Source::Env(name) => {
                let all = vec![value(name); placement.ranks.len()];
                Some((source, all))
            }
            Source::Slice | Source::Host | Source::Rack | Source::Numa | Source::Script(_) => None,
        });
        let slice = |placed: &RankPlacement| placement.slice(placed.node).map(String::from);
        let slices: Vec<Option<String>> = placement.ranks.iter().map(slice).collect();
        let slices = slices.iter().any(Option::is_some).then_some((Source::Slice, slices));
        known.chain(slices).collect()
    }
}
