//! The end of an agent: by itself, where nothing may be left open, or killed.

use super::Arrival;
use crate::plan::MS;
use crate::world::{Ev, World};
use rlaunch_base::machine::Machine as _;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_core::node::{NodeEvent, SignalledPart};

impl World {
    /// The node's own records agree.
    pub(super) fn check_node(&mut self) {
        let records = self.host.agent.node.check();
        self.check(records.is_ok(), || format!("the node's records do not agree: {records:?}"));
    }

    pub(crate) fn agent_asked(&mut self) {
        self.arrive(Arrival::Event(Box::new(NodeEvent::Signal { sig: Signal::TERM, to: SignalledPart::Agent })));
    }

    /// After a success a holder of a stream has 2 s, of time in which it could run.
    pub(super) fn check_linger(&mut self) {
        let waits = !self.several()
            && !self.host.agent.ending
            && !self.host.agent.failed
            && !self.host.agent.sweeping
            && !self.host.agent.streams.is_empty();
        let success = self.host.kernel.failed_before(self.now).is_empty();
        if waits && success && self.host.agent.swept_at.replace(self.now).is_none() {
            let held = self.still.host_awake(self.now) + 250 * MS * self.still.gaps();
            let enough = self.host.kernel.last_rank.is_some_and(|at| held >= at + 2000 * MS);
            self.check(enough, || "those who hold a stream are ended too soon".to_owned());
        }
    }

    pub(super) fn agent_finishes(&mut self, code: u8) {
        if code == 0 {
            let clean = self.host.agent.done == Some(0)
                && self.host.kernel.alive_count() == 0
                && self.host.kernel.unreaped() == 0;
            self.check(clean, || "a clean end that is not clean".to_owned());
            let ended = self.host.agent.streams.is_empty();
            self.check(ended, || "a stream is still open".to_owned());
        }
        let answered = self.host.agent.examined.is_subset(&self.host.agent.reaped) || code != 0;
        self.check(answered, || "an examination was for nothing".to_owned());
        self.agent_is_gone(Some(code));
    }

    fn agent_is_gone(&mut self, code: Option<u8>) {
        self.host.agent.over = Some(code);
        // Elsewhere the guardian holds the edge open, for its last words.
        if !self.host.remote || self.host.guardian.has_exited() {
            self.close_to_launcher();
        }
        self.parent_of_init_is_gone();
        self.soon(Ev::GuardianWakes);
        // Later events must have no effect.
        let here = self.here();
        self.host.agent.node.handle(here, NodeEvent::EdgeLost);
        self.host.agent.node.handle_timeout(here + Span::from_secs(100));
        if code.is_some() {
            let silent = self.host.agent.node.poll_action().is_none() && self.host.agent.node.poll_timeout().is_none();
            self.check(silent, || "the node continues after Finish".to_owned());
        }
    }

    pub(crate) fn agent_killed(&mut self) {
        if !self.host.agent.has_exited() {
            if self.rng.chance(50) {
                // Bytes that it had not written yet are lost.
                let from = self.now.saturating_sub(MS / 10);
                self.cancel(|ev| matches!(ev, Ev::AtLauncher(sent, _) if *sent > from));
            }
            self.agent_is_gone(None);
        }
    }
}
