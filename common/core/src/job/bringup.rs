//! From nothing to a node that starts its ranks: what it is sent first, and what it answers.
//!
//! Everything is sent at once, without waiting for `Hello`: the answer would cost a round trip before the first rank, and a
//! node that refuses drops the rest.

use super::notice::Notice;
use super::{Cx, JobAction, NODE, Setting};
use crate::events::{Cause, What};
use crate::id::{AppIndex, NodeId, ProcId, Rank};
use crate::os_bytes::OsBytes;
use crate::report::Sentence;
use crate::spec::{AppBase, JobSpec, StdinPlan};
use crate::time::Span;
use crate::wire::capped::Capped;
use crate::wire::codec;
use crate::wire::to_node::{APP_PART, Delta, SPAWN_BATCH, Start, ToNode};
use crate::wire::to_root::{Hello, Refusal};
use alloc::vec::Vec;

/// How long descendants of a successful job's ranks may go on writing.
const LINGER: Span = Span::from_secs(2);

/// What is known of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing yet.
    Waiting,
    /// It has introduced itself.
    Up,
    /// It cannot do what was asked for.
    Refused,
}

/// The bring-up of the node.
#[derive(Debug)]
pub(super) struct Bringup {
    state: State,
    /// The node has to choose the port: then it matters whether it could reserve it.
    chooses_port: bool,
}

impl Bringup {
    pub(super) fn new(spec: &JobSpec) -> Self {
        Self { state: State::Waiting, chooses_port: pinned_port(spec).is_none() }
    }

    pub(super) fn start(&mut self, cx: &mut Cx<'_>, spec: &JobSpec, setting: &Setting) {
        let world_size = spec.world_size();
        send(
            cx,
            ToNode::Start(Start {
                job: spec.job,
                contain: spec.contain,
                world_size,
                nodes: 1,
                node_index: 0,
                local_size: world_size,
                label: spec.label.clone(),
                master_addr: OsBytes::from("127.0.0.1"),
                master_port: pinned_port(spec),
                sole: true,
                linger: LINGER,
                trace: setting.trace.clone(),
            }),
        );
        for (app, index) in spec.apps.iter().zip((0..).map(AppIndex::new)) {
            send_app(cx, index, &app.base);
        }
        let mut batches = Capped::<Delta, SPAWN_BATCH>::chunks(deltas(spec, NODE)).into_iter().peekable();
        if batches.peek().is_none() {
            send(cx, ToNode::Spawn { procs: Capped::default(), last: true });
        }
        while let Some(procs) = batches.next() {
            send(cx, ToNode::Spawn { procs, last: batches.peek().is_none() });
        }
    }

    pub(super) fn hello(&mut self, cx: &mut Cx<'_>, node: NodeId, hello: Hello) {
        match self.state {
            State::Waiting => {}
            // Said twice, or after a refusal: it changes nothing.
            State::Up | State::Refused => return,
        }
        self.state = State::Up;
        if self.chooses_port && hello.master_port != 0 && !hello.port_reserved {
            cx.act(JobAction::Say(Sentence::PortUnreserved { port: hello.master_port }));
        }
        if !hello.note.is_empty() && !hello.usual {
            cx.act(JobAction::Say(Sentence::Tier { tier: hello.tier, note: hello.note.clone() }));
        }
        cx.tell(Notice::Log(What::HostReady { node, hello }));
    }

    /// A refusal may come after `Hello` too: the node ran into it later, and rolls back.
    pub(super) fn refused(&mut self, cx: &mut Cx<'_>, node: NodeId, why: Refusal) {
        match self.state {
            State::Waiting | State::Up => {}
            State::Refused => return,
        }
        self.state = State::Refused;
        cx.tell(Notice::Log(What::HostRefused { node, why: why.clone() }));
        cx.tell(Notice::End(Cause::Refused { node, why }));
    }
}

fn send(cx: &mut Cx<'_>, msg: ToNode) {
    cx.act(JobAction::Send { node: NODE, msg });
}

/// A program, in parts that never keep other messages waiting.
fn send_app(cx: &mut Cx<'_>, app: AppIndex, base: &AppBase) {
    let bytes = codec::encode(base);
    let mut parts = bytes.chunks(APP_PART).peekable();
    while let Some(part) = parts.next() {
        send(cx, ToNode::App { app, last: parts.peek().is_none(), part: part.into() });
    }
}

/// The ranks of a node, by their places. A process gets the number of its first rank.
fn deltas(spec: &JobSpec, node: NodeId) -> Vec<Delta> {
    let ranks = spec.placement.seats.iter().zip(0..).filter(|(seat, _)| seat.node == node);
    ranks
        .map(|(seat, n)| Delta {
            proc: ProcId::new(n),
            app: seat.app,
            rank: Rank::new(n),
            local_rank: seat.local_rank,
            stdin: n == 0 && spec.stdin == StdinPlan::Rank0,
        })
        .collect()
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
