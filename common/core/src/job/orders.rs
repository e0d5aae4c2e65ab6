//! What each node is told to do: the job, its programs, its ranks.

use super::{Cx, JobAction, Setting};
use crate::hostlist::fold;
use crate::id::{AppIndex, NodeId, ProcId, Rank};
use crate::os_bytes::OsBytes;
use crate::spec::{AppBase, JobSpec, StdinPlan};
use crate::time::Span;
use crate::travel::Travel;
use crate::wire::capped::Capped;
use crate::wire::codec;
use crate::wire::to_node::{APP_PART, Delta, Meeting, SPAWN_BATCH, Start, ToNode};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

/// How long descendants of a successful job's ranks may go on writing.
const LINGER: Span = Span::from_secs(2);
/// MASTER_ADDR of a job that has one host.
pub(super) const LOOPBACK: &str = "127.0.0.1";

/// The orders.
#[derive(Debug)]
pub(super) struct Orders {
    spec: Arc<JobSpec>,
    trace: OsBytes,
    travel: Travel,
    interface: OsBytes,
    pinned_port: Option<u16>,
}

impl Orders {
    pub(super) fn new(spec: Arc<JobSpec>, setting: &Setting) -> Self {
        let Setting { trace, travel, interface, .. } = setting.clone();
        Self { trace, travel, interface, pinned_port: pinned_port(&spec), spec }
    }

    /// The launcher's own host is the only one.
    pub(super) fn is_sole(&self) -> bool {
        self.spec.placement.is_here()
    }

    pub(super) const fn pinned_port(&self) -> Option<u16> {
        self.pinned_port
    }

    pub(super) const fn chooses_port(&self) -> bool {
        self.pinned_port.is_none()
    }

    pub(super) fn node_of(&self, rank: Rank) -> NodeId {
        self.spec.placement.seats.get(rank.index()).map_or(NodeId::new(0), |seat| seat.node)
    }

    /// `--interface` was given.
    pub(super) fn names_interface(&self) -> bool {
        !self.interface.is_empty()
    }

    /// The node is the launcher's own host.
    pub(super) fn is_local(&self, node: NodeId) -> bool {
        self.spec.placement.nodes.get(node.index()).is_some_and(|node| node.local)
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
        let meets = !sole && node == self.node_of(Rank::new(0));
        let of_node = placement.seats.iter().filter(|seat| seat.node == node);
        let apps: BTreeSet<AppIndex> = of_node.map(|seat| seat.app).collect();
        let start = Start {
            job: self.spec.job,
            contain: self.spec.contain,
            world_size: self.spec.world_size(),
            nodes: len(&placement.nodes),
            node_index: node.get(),
            local_size: placement.nodes.get(node.index()).map_or(0, |node| node.ranks),
            label: self.spec.label.clone(),
            meeting: sole.then(|| Meeting { addr: LOOPBACK.into(), port: self.pinned_port }),
            choose_port: self.chooses_port() && (sole || meets),
            find: meets.then(|| self.interface.clone()),
            travel: Some(self.travel.clone()).filter(|_| !local),
            sole,
            apps: apps.iter().fold(0, |sum, _| sum.saturating_add(1)),
            lease: Some(self.spec.lease).filter(|_| !local),
            linger: LINGER,
            trace: self.trace.clone(),
        };
        cx.act(JobAction::Send { node, msg: ToNode::Start(start) });
        for (app, index) in programs.iter().zip((0..).map(AppIndex::new)) {
            if apps.contains(&index) {
                send_app(cx, node, index, &app.base);
            }
        }
    }

    /// The ranks of a node. A process gets the number of its first rank.
    pub(super) fn ranks(&self, cx: &mut Cx<'_>, node: NodeId) {
        let seats = self.spec.placement.seats.iter().zip(0..).filter(|(seat, _)| seat.node == node);
        let deltas = seats.map(|(seat, n)| Delta {
            proc: ProcId::new(n),
            app: seat.app,
            rank: Rank::new(n),
            local_rank: seat.local_rank,
            stdin: n == 0 && self.spec.stdin == StdinPlan::Rank0,
        });
        let mut batches = Capped::<Delta, SPAWN_BATCH>::chunks(deltas).into_iter().peekable();
        if batches.peek().is_none() {
            cx.act(JobAction::Send { node, msg: ToNode::Spawn { procs: Capped::default(), last: true } });
        }
        while let Some(procs) = batches.next() {
            cx.act(JobAction::Send { node, msg: ToNode::Spawn { procs, last: batches.peek().is_none() } });
        }
    }
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

/// The port that the user set by `-x MASTER_PORT=N` for the program of rank 0. What is no port is the program's business: its
/// ranks see it unchanged, and we choose one for whoever asks us.
fn pinned_port(spec: &JobSpec) -> Option<u16> {
    let base = &spec.apps.iter().find(|app| app.procs > 0)?.base;
    if !base.pinned.contains(b"MASTER_PORT") {
        return None;
    }
    let value = base.env.iter().filter_map(|var| var.strip_prefix(b"MASTER_PORT=")).last()?;
    core::str::from_utf8(value).ok()?.parse().ok().filter(|port| *port != 0)
}
