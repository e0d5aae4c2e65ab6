//! The reason why a rank failed. It is looked up while the process still exists, that is before the process is reaped.
//!
//! The exit is reported to the launcher at once, and the reason follows. Ranks that the agent itself ended are many and show nothing new.
//! The exception is a rank that had already written down why it was about to end.

use super::{Cx, Depth, NodeAction, Notice};
use crate::node::ExamineAction;
use alloc::collections::BTreeMap;
use rlaunch_base::id::ProcId;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_protocol::wire::to_root::{Facts, ToRoot};

#[derive(Default)]
pub(super) struct Postmortem {
    /// Signals that we sent to end the ranks, as bits.
    ours: u128,
    launcher_lost: bool,
    pending: BTreeMap<ProcId, Depth>,
}

impl Postmortem {
    pub(super) fn on_ending(&mut self, sig: Signal) {
        self.ours |= 1 << sig.get();
    }

    /// Begins again with the next ranks, which were not signalled.
    pub(super) fn on_next_generation(&mut self) {
        self.ours = 0;
        self.pending.clear();
    }

    pub(super) fn on_launcher_lost(&mut self) {
        self.launcher_lost = true;
    }

    pub(super) fn on_ended(&mut self, cx: &mut Cx<'_>, proc: ProcId, status: Status) {
        if self.launcher_lost || status.is_success() {
            return cx.notify(Notice::Reap(proc));
        }
        let depth = if self.is_ours(status) { Depth::ErrorFile } else { Depth::Full };
        self.pending.insert(proc, depth);
        cx.act(NodeAction::Examine(ExamineAction { proc, status, depth }));
    }

    pub(super) fn on_examined(&mut self, cx: &mut Cx<'_>, proc: ProcId, facts: Facts) {
        let Some(depth) = self.pending.remove(&proc) else { return };
        if depth == Depth::Full || facts != Facts::default() {
            cx.act(NodeAction::ToRoot(ToRoot::Postmortem { proc, facts }));
        }
        cx.notify(Notice::Reap(proc));
    }

    fn is_ours(&self, status: Status) -> bool {
        match status {
            Status::Signaled { sig, .. } => self.ours & (1 << sig.get()) != 0,
            Status::Exited(_) | Status::Lost => false,
        }
    }
}
