//! Whether the other hosts are still there.
//!
//! A node lives on its lease: for so long after the reading of its own clock that we repeated last. We heard of that reading
//! after the node made it, so once the same time, and what its clock may be slower by, has passed for us without another
//! word, the node has surely ended its ranks: only then it is called lost. Delays of messages do not matter to this.

use super::clock::Offset;
use super::deadlines::Deadlines;
use super::notice::Notice;
use super::{Cx, JobAction};
use crate::id::NodeId;
use crate::os_bytes::OsBytes;
use crate::place::Node;
use crate::report::Sentence;
use crate::spec::JobSpec;
use crate::time::{Mono, Span};
use crate::wire::beat::Beat;
use alloc::vec;
use alloc::vec::Vec;

/// What the scheduling of a guardian and the end of its ranks may take; more with long leases.
const MARGIN: Span = Span::from_secs(2);
/// A node's clock may be slower than ours by one part in this many.
const DRIFT: u64 = 100;

/// What was heard of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    /// It needs no lease, has none yet, or has ended.
    Nothing,
    /// It is lost then.
    Until(Mono),
}

/// The leases.
#[derive(Debug)]
pub(super) struct Lease {
    /// From a node's last word to its loss.
    patience: Span,
    nodes: Vec<(Heard, Option<Offset>)>,
    due: Deadlines,
    /// By node, those that have a lease.
    hosts: Vec<Option<OsBytes>>,
}

impl Lease {
    pub(super) fn new(spec: &JobSpec) -> Self {
        let lease = spec.lease.nanos();
        let margin = MARGIN.nanos().max(lease / 5);
        let patience = Span::from_nanos(lease.saturating_add(lease / DRIFT).saturating_add(margin));
        let host = |node: &Node| (!node.local).then(|| OsBytes::from(node.host.name.as_str()));
        let hosts: Vec<Option<OsBytes>> = spec.placement.nodes.iter().map(host).collect();
        Self { patience, nodes: vec![(Heard::Nothing, None); hosts.len()], due: Deadlines::new(hosts.len()), hosts }
    }

    pub(super) fn edge_up(&mut self, cx: &Cx<'_>, node: NodeId) {
        if self.host(node).is_some() {
            self.heard(node, Heard::Until(cx.now + self.patience));
        }
    }

    pub(super) fn beat(&mut self, cx: &mut Cx<'_>, node: NodeId, beat: Beat) {
        let Some((Heard::Until(_), best)) = self.nodes.get_mut(node.index()) else { return };
        let now = cx.now.nanos();
        // Our own reading, sent there and back. A reading from the future is somebody's mistake.
        if let Some(trip) = now.checked_sub(beat.echo).filter(|_| beat.echo > 0) {
            let offset = Offset { theirs: beat.own, ours: now - trip / 2, error: Span::from_nanos(trip.div_ceil(2)) };
            // The shortest trip knows best, until the clocks may have drifted further than it was exact.
            let drift = |old: &Offset| Span::from_nanos((now.saturating_sub(old.ours)) / DRIFT + old.error.nanos());
            if best.as_ref().is_none_or(|old| offset.error <= drift(old)) {
                *best = Some(offset);
                cx.tell(Notice::Offset(node, offset));
            }
        }
        cx.act(JobAction::Beat { node, beat: Beat { own: now, echo: beat.own } });
        self.heard(node, Heard::Until(cx.now + self.patience));
    }

    /// Nobody can end a node from here any more: the user is told until when it does so by itself.
    pub(super) fn severed(&self, cx: &mut Cx<'_>, node: NodeId) {
        if let (Some((Heard::Until(at), _)), Some(host)) = (self.nodes.get(node.index()), self.host(node)) {
            cx.act(JobAction::Say(Sentence::Awaited { host: host.clone(), within: at.since(cx.now) }));
        }
    }

    fn host(&self, node: NodeId) -> Option<&OsBytes> {
        self.hosts.get(node.index()).and_then(Option::as_ref)
    }

    /// A node that has told what is left, or will not, is not waited for.
    pub(super) fn node_over(&mut self, node: NodeId) {
        self.heard(node, Heard::Nothing);
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        while let Some(node) = self.due.pop(cx.now) {
            self.heard(node, Heard::Nothing);
            cx.act(JobAction::CloseEdge { node });
            cx.tell(Notice::Unheard(node));
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.next()
    }

    fn heard(&mut self, node: NodeId, heard: Heard) {
        let Some((known, _)) = self.nodes.get_mut(node.index()) else { return };
        *known = heard;
        self.due.set(
            node,
            match heard {
                Heard::Nothing => None,
                Heard::Until(at) => Some(at),
            },
        );
    }
}
