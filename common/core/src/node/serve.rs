//! The `TCPStore` of a job, where the agent of its first host holds it: from when this node has to, and what is worth a word about
//! who asks it.

use super::{Cx, Ground, NodeAction};
use crate::machine::earliest;
use crate::os_bytes::OsBytes;
use crate::time::{Mono, Span};
use crate::wire::to_node::{Meeting, Start};
use crate::wire::to_root::ToRoot;
use alloc::format;

/// A program that has not asked by then will not: importing torch takes seconds, from a busy file system perhaps tens of them.
const UNUSED: Span = Span::from_secs(60);
/// Strangers are told of once in so long: there may be thousands.
const PAUSE: Span = Span::from_secs(10);

/// What is known of it.
#[derive(Default)]
pub(super) struct Serve {
    meeting: Option<Meeting>,
    ranks: u32,
    /// The port that this node has chosen; 0: another has.
    chosen: Option<u16>,
    at: OsBytes,
    /// When it is worth a word that nobody has asked.
    unused_at: Option<Mono>,
    /// Strangers that the launcher was not told of, and where the last came from.
    refused: u32,
    from: OsBytes,
    /// The launcher knows of one from an address that no host has.
    foreign: bool,
    /// Until when it is not told of more.
    pause: Option<Mono>,
}

impl Serve {
    pub(super) fn on_begun(&mut self, start: &Start) {
        self.meeting.clone_from(&start.meeting);
        self.ranks = start.local_size;
    }

    pub(super) fn on_met(&mut self, cx: &mut Cx<'_>, meeting: &Meeting) {
        self.meeting = Some(meeting.clone());
        self.begin(cx);
    }

    pub(super) fn on_ready(&mut self, cx: &mut Cx<'_>, ground: &Ground) {
        self.chosen = Some(ground.hello.master_port);
        self.begin(cx);
    }

    /// The ground is laid for other ranks: this port was chosen for them; 0: none.
    pub(super) const fn on_renewed(&mut self, port: u16) {
        if port > 0 {
            self.chosen = Some(port);
        }
    }

    /// Before the first rank, which may ask at once.
    fn begin(&mut self, cx: &mut Cx<'_>) {
        let (Some(meeting), Some(chosen)) = (&self.meeting, self.chosen) else { return };
        cx.act(NodeAction::Space { here: meeting.node_index == 0, generation: meeting.restart });
        if meeting.agent_store && meeting.node_index == 0 {
            let port = meeting.port.unwrap_or(chosen);
            self.at = OsBytes::from(format!("{}:{port}", meeting.addr));
            self.unused_at = Some(cx.now + UNUSED);
            let (addr, ranks) = (meeting.addr.clone(), self.ranks);
            cx.act(NodeAction::Serve { addr, port, guard: meeting.guard, ranks });
        }
    }

    pub(super) fn on_used(&mut self) {
        self.unused_at = None;
    }

    pub(super) fn on_refused(&mut self, cx: &mut Cx<'_>, from: OsBytes, count: u32, foreign: Option<OsBytes>) {
        if let Some(from) = foreign.filter(|_| !core::mem::replace(&mut self.foreign, true)) {
            cx.act(NodeAction::ToRoot(ToRoot::StoreForeign { from }));
        }
        self.refused = self.refused.saturating_add(count);
        self.from = from;
        if self.pause.is_none() {
            self.tell_refused(cx);
        }
    }

    fn tell_refused(&mut self, cx: &mut Cx<'_>) {
        self.pause = (self.refused > 0).then(|| cx.now + PAUSE);
        if self.refused > 0 {
            let (from, count) = (self.from.clone(), core::mem::take(&mut self.refused));
            cx.act(NodeAction::ToRoot(ToRoot::StoreRefused { from, count }));
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.unused_at.is_some_and(|at| at <= cx.now) {
            self.unused_at = None;
            cx.act(NodeAction::ToRoot(ToRoot::StoreUnused { at: self.at.clone() }));
        }
        if self.pause.is_some_and(|until| until <= cx.now) {
            self.tell_refused(cx);
        }
    }

    /// The end has begun: nobody has to be told any more.
    pub(super) fn on_ending(&mut self, cx: &mut Cx<'_>) {
        self.unused_at = None;
        self.tell_refused(cx);
        self.pause = None;
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        earliest(self.unused_at, self.pause)
    }
}
