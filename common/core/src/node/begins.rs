//! Beginnings on this host: of the job, of a generation after the end of the one before, and of a world besides the first one.

use super::generation_change::Between;
use super::{Cx, Notice, Parts};
use alloc::sync::Arc;
use rlaunch_base::signal::Signal;
use rlaunch_protocol::wire::to_node::{Start, WorldStart};

impl Parts {
    /// The launcher's first message has come.
    pub(super) fn begins(&mut self, cx: &mut Cx<'_>, start: Arc<Start>) {
        let ends = self.host_signals.on_begun(cx, &start);
        self.leftovers.on_begun(&start);
        self.lease.on_begun(cx, &start);
        self.serve.on_begun(&start);
        self.warnings.on_begun(cx, &start);
        self.step_end.on_begun(cx, &start);
        self.rounds.on_begun(&start);
        self.procs.on_begun(start);
        if ends {
            self.lost.on_no_contact(cx);
        }
    }

    /// Passes on messages of the change between two generations.
    pub(super) fn between(&mut self, cx: &mut Cx<'_>, between: Between) {
        match between {
            Between::Clear(sig, grace) => self.grace.on_clear(cx, sig, grace),
            Between::Clearing(sig) => {
                self.rounds.on_ending(cx);
                self.serve.on_ending(cx);
                self.host_signals.on_sent(sig);
                self.postmortem.on_ending(sig);
                self.procs.on_ending(cx, sig);
                self.leftovers.on_clearing(cx);
            }
            Between::TearDown => {
                self.postmortem.on_ending(Signal::KILL);
                self.procs.on_ending(cx, Signal::KILL);
                // After the census, as with `Destroyed`.
                cx.notify(Notice::Between(Between::TornDown));
            }
            Between::TornDown => self.leftovers.on_tear_down(cx),
            Between::Cleared(left, named) => {
                self.grace.on_cleared();
                self.generations.on_cleared(cx, left, named);
            }
            Between::Renewing => self.leftovers.on_renewing(),
            Between::Renewed(port) => {
                self.lost.on_renewed();
                self.serve.on_renewed(port);
                self.procs.on_renewed(port);
                self.generations.on_renewed(cx, port);
                self.leftovers.on_set_up_ended(cx);
            }
            Between::Again(rendezvous) => {
                self.grace.on_next_generation();
                self.host_signals.on_next_generation();
                self.postmortem.on_next_generation();
                self.leftovers.on_next_generation();
                self.rounds.on_next_generation(&rendezvous);
                self.serve.on_met(cx, &rendezvous);
                self.procs.on_next_generation(rendezvous);
            }
        }
    }

    /// A world besides the first one begins.
    pub(super) fn world_begins(&mut self, cx: &mut Cx<'_>, start: WorldStart) {
        self.rounds.on_world();
        self.serve.on_world(cx, &start);
        self.procs.on_world(cx, start);
    }
}
