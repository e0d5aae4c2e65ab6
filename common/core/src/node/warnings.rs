//! The warning that this host is about to be taken away. It is reported once, whatever the number of its sources.

use super::{Cx, NodeAction};
use crate::os_bytes::OsBytes;
use crate::warnings::WarningSource;
use crate::wire::to_node::Start;
use crate::wire::to_root::ToRoot;

#[derive(Default)]
pub(super) struct Warnings {
    is_warned: bool,
}

impl Warnings {
    /// The job begins.
    pub(super) fn on_begun(&self, cx: &mut Cx<'_>, start: &Start) {
        if !start.preempt_probe.is_empty() {
            cx.act(NodeAction::WatchPreemption { command: OsBytes::clone(&start.preempt_probe) });
        }
    }

    /// A source warns. Returns whether it is the first.
    pub(super) fn on_warned(&mut self, cx: &mut Cx<'_>, source: WarningSource) -> bool {
        if core::mem::replace(&mut self.is_warned, true) {
            return false;
        }
        cx.act(NodeAction::ToRoot(ToRoot::Warned(source)));
        true
    }
}
