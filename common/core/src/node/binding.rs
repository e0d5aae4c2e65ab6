//! The CPUs of each rank of this host: decided when its processors are known, before the first rank starts.

use super::{Cx, NodeAction, Sandbox};
use alloc::string::ToString as _;
use alloc::vec::Vec;
use rlaunch_base::cpu_set::CpuSet;
use rlaunch_base::id::LocalRank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bind::{Bind, BindError, BindingNews, Bound, Host};
use rlaunch_plan::topology::Level;
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_protocol::wire::to_node::{Delta, Start};
use rlaunch_protocol::wire::to_root::ToRoot;

/// Reports ranks that share CPUs; an error if ranks cannot be bound as asked for.
pub(super) fn check(cx: &mut Cx<'_>, start: &Start, sandbox: &Sandbox) -> Result<(), BindError> {
    let news = |cx: &mut Cx<'_>, news| cx.act(NodeAction::ToRoot(ToRoot::News(news)));
    let Some(processors) = &sandbox.processors else { return Ok(()) };
    let ranks = start.local_size;
    let (online, allowed) = (processors.topology.count_online(), processors.topology.allowed());
    if let (true, true, Some(cpu)) = (ranks > 1 && online > 1, allowed.len() == 1, allowed.iter().next()) {
        news(cx, NodeNews::Binding(BindingNews::OneCpu { ranks, cpu, online }));
    }
    // GPUs change neither errors nor notes.
    if let Some(unbound) = bound(&start.settings.bind, ranks, sandbox, &[])?.unbound {
        news(cx, NodeNews::Binding(BindingNews::NotBound(unbound)));
    }
    Ok(())
}

/// The CPUs of the ranks that are started here, until all start again.
#[derive(Default)]
pub(super) struct Binding {
    bound: Option<Bound>,
}

impl Binding {
    /// The CPUs of a rank; `None`: it is not bound. A rank that has come from another host is never bound. `near` has the CPUs near the
    /// GPUs of each rank.
    pub(super) fn cpus(
        &mut self,
        (start, sandbox): (&Start, &Sandbox),
        local_size: u32,
        rank: LocalRank,
        near: impl FnOnce() -> Vec<CpuSet>,
    ) -> Option<CpuSet> {
        // An error was answered before the first rank: none is started.
        let decide = || bound(&start.settings.bind, local_size, sandbox, &near()).unwrap_or_default();
        self.bound.get_or_insert_with(decide).masks.get(rank.index()).cloned()
    }
}

/// The NUMA node whose memory a rank with these CPUs prefers.
pub(super) fn memory(sandbox: &Sandbox, cpus: Option<&CpuSet>) -> Option<u32> {
    sandbox.processors.as_ref()?.topology.memory_of(cpus?)
}

/// Reports the CPUs of a rank, where that was asked for.
pub(super) fn report(cx: &mut Cx<'_>, start: &Start, sandbox: &Sandbox, delta: Delta, cpus: Option<&CpuSet>) {
    let Some(processors) = sandbox.processors.as_ref().filter(|_| start.settings.bind.report) else { return };
    let topology = &processors.topology;
    let mask = cpus.unwrap_or_else(|| topology.allowed());
    let news = NodeNews::Binding(BindingNews::RankBound {
        rank: delta.rank,
        bound: cpus.is_some(),
        cpus: text(mask),
        cores: text(&topology.numbers_in(Level::Core, mask)),
        numa: text(&topology.numbers_in(Level::Numa, mask)),
    });
    cx.act(NodeAction::ToRoot(ToRoot::News(news)));
}

fn text(set: &CpuSet) -> OsBytes {
    set.to_string().into()
}

fn bound(bind: &Bind, ranks: u32, sandbox: &Sandbox, near: &[CpuSet]) -> Result<Bound, BindError> {
    let Some(processors) = &sandbox.processors else { return Ok(Bound::default()) };
    bind.ranks_of(Host { topology: &processors.topology, ranks, has_quota: processors.has_quota, near })
}
