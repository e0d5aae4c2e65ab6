//! The loss of what a job cannot continue without: the launcher, the guardian, init, or the agent itself.
//!
//! After each of these losses everything here is killed at once. The losses differ in the parties that can still be notified.

use super::{Cx, NodeAction, Notice};
use rlaunch_protocol::wire::to_root::ToRoot;

#[derive(Default)]
pub(super) struct Lost {
    unheard: bool,
    guardian: bool,
    init: bool,
    sweeping: bool,
}

impl Lost {
    /// The launcher is gone, or the agent was asked to end and must look like it: the ranks that it kills now are no
    /// failures of their own.
    pub(super) fn on_no_contact(&mut self, cx: &mut Cx<'_>) {
        if !self.unheard {
            self.unheard = true;
            cx.notify(Notice::LauncherLost);
            cx.notify(Notice::Destroy);
        }
    }

    pub(super) fn on_guardian(&mut self, cx: &mut Cx<'_>) {
        if !self.guardian {
            self.guardian = true;
            cx.act(NodeAction::ToRoot(ToRoot::GuardianLost));
            cx.notify(Notice::Orphaned);
            cx.notify(Notice::Destroy);
        }
    }

    /// Init ends when the agent sweeps: that is no loss. Otherwise the kernel kills the remaining processes, and the agent helps.
    pub(super) fn on_init(&mut self, cx: &mut Cx<'_>) {
        if !self.init && !self.sweeping {
            self.init = true;
            cx.act(NodeAction::ToRoot(ToRoot::InitLost));
            cx.notify(Notice::Destroy);
        }
    }

    /// There is another init.
    pub(super) const fn on_renewed(&mut self) {
        self.sweeping = false;
    }

    pub(super) fn on_sweeping(&mut self) {
        self.sweeping = true;
    }
}
