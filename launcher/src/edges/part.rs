//! The parts of the launcher's edges that the job's log, hosts and end concern, and nothing else.

use super::discover::Discover;
use super::hook_runner::Hooks;
use super::log::Log;
use super::pool::Pool;
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::earliest_of;
use rlaunch_base::time::Mono;
use rlaunch_core::events::Record;
use rlaunch_core::job::JobEvent;
use rlaunch_plan::place::Placement;
use std::sync::Arc;
use std::task::Context;

/// A concern of the edges with its own state. A part uses no other part.
pub(super) trait Part {
    /// Receives a record of the job's log.
    fn receive(&mut self, _record: &Record) {}

    /// Ranks have other places.
    fn place(&mut self, _placement: &Arc<Placement>) {}

    /// A host has become known.
    fn know(&mut self, _node: NodeId, _name: &str) {}

    /// Does all that can be done now, and has the task woken for more. Nothing waits here.
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outcome);

    /// When [`Self::poll`] is due at the latest.
    fn deadline(&self) -> Option<Mono> {
        None
    }

    /// The job has ended.
    fn stop(&mut self) {}

    /// A signal, after the job's end.
    fn signal(&mut self) {}

    /// Whether rlaunch may exit, once the job has ended.
    fn is_over(&self) -> bool {
        true
    }
}

/// Outcomes of one look at all parts.
#[derive(Default)]
pub(super) struct Outcome {
    /// For the machine.
    pub(super) events: Vec<JobEvent>,
    /// Lines for the user.
    pub(super) lines: String,
}

/// A part that not every job has.
impl<P: Part> Part for Option<P> {
    fn receive(&mut self, record: &Record) {
        self.iter_mut().for_each(|part| part.receive(record));
    }

    fn place(&mut self, placement: &Arc<Placement>) {
        self.iter_mut().for_each(|part| part.place(placement));
    }

    fn know(&mut self, node: NodeId, name: &str) {
        self.iter_mut().for_each(|part| part.know(node, name));
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outcome) {
        self.iter_mut().for_each(|part| part.poll(cx, out));
    }

    fn deadline(&self) -> Option<Mono> {
        self.as_ref().and_then(P::deadline)
    }

    fn stop(&mut self) {
        self.iter_mut().for_each(P::stop);
    }

    fn signal(&mut self) {
        self.iter_mut().for_each(P::signal);
    }

    fn is_over(&self) -> bool {
        self.as_ref().is_none_or(P::is_over)
    }
}

/// The list of parts, in the order in which they are polled.
macro_rules! parts {
    ($($(#[$doc:meta])* $field:ident: $part:ty,)*) => {
        /// All parts.
        pub(super) struct Parts {
            $($(#[$doc])* pub(super) $field: $part,)*
        }

        impl Part for Parts {
            fn receive(&mut self, record: &Record) {
                $(self.$field.receive(record);)*
            }

            fn place(&mut self, placement: &Arc<Placement>) {
                $(self.$field.place(placement);)*
            }

            fn know(&mut self, node: NodeId, name: &str) {
                $(self.$field.know(node, name);)*
            }

            fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outcome) {
                $(self.$field.poll(cx, out);)*
            }

            fn deadline(&self) -> Option<Mono> {
                earliest_of([$(self.$field.deadline(),)*])
            }

            fn stop(&mut self) {
                $(self.$field.stop();)*
            }

            fn signal(&mut self) {
                $(self.$field.signal();)*
            }

            fn is_over(&self) -> bool {
                true $(&& self.$field.is_over())*
            }
        }
    };
}

parts! {
    /// The event log.
    log: Option<Log>,
    /// Commands at restarts and at the end.
    hooks: Hooks,
    /// The command that lists hosts.
    discover: Discover,
    /// The pool of the job's hosts.
    pool: Pool,
}
