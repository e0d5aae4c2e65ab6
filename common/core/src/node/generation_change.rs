//! The generations of a job's ranks on this node: one is ended, and everything that it has left, before the launcher has the next one
//! started.
//!
//! The change between two generations. The same sub-machines sweep as at the end of a job. Then the sandbox is set up anew, because a PID
//! namespace ends with its processes.

use super::{Cx, NodeAction, Notice};
use alloc::vec::Vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_protocol::wire::to_node::{PortPlan, Rendezvous};
use rlaunch_protocol::wire::to_root::{Leftover, NAMED, ToRoot};

/// A message between the sub-machines about it.
pub(super) enum Between {
    /// generations: all ranks are to end, by this signal, and in so long; others may follow.
    Clear(Signal, Span),
    /// grace: ranks get this signal; none is started meanwhile.
    Clearing(Signal),
    /// grace: they have had their time.
    TearDown,
    /// router: the sub-machines know that the ranks have had their time.
    TornDown,
    /// leftovers: nothing is left of them but so much, which cannot be ended.
    Cleared(u32, Vec<Leftover>),
    /// generations: the sandbox is being set up for others.
    Renewing,
    /// router: the sandbox is set up, with this port of this node's choice; 0: none.
    Renewed(u16),
    /// generations: another generation begins with this rendezvous.
    Again(Rendezvous),
}

#[derive(Default)]
pub(super) struct Generations {
    state: State,
    /// Treatment of MASTER_PORT.
    port: PortPlan,
}

#[derive(Default)]
enum State {
    /// Ranks run, or will.
    #[default]
    Running,
    /// The ranks are being ended.
    Clearing,
    /// Nothing runs; the sandbox is being set up for those to come.
    Renewing,
    /// The launcher knows that nothing runs.
    Waiting,
    /// The node ends.
    Off,
}

impl Generations {
    /// The launcher wants this generation to end.
    pub(super) fn on_clear(&mut self, cx: &mut Cx<'_>, sig: Signal, grace: Span, port: PortPlan) {
        match self.state {
            State::Running => {
                (self.state, self.port) = (State::Clearing, port);
                cx.notify(Notice::Between(Between::Clear(sig, grace)));
            }
            State::Clearing | State::Renewing | State::Waiting => cx.notify(Notice::Violation),
            State::Off => {}
        }
    }

    /// Nothing runs any more, but what cannot be ended.
    pub(super) fn on_cleared(&mut self, cx: &mut Cx<'_>, left: u32, named: Vec<Leftover>) {
        match self.state {
            State::Clearing if left == 0 => {
                self.state = State::Renewing;
                cx.notify(Notice::Between(Between::Renewing));
                cx.act(NodeAction::Renew { port: self.port });
            }
            State::Clearing => {
                self.state = State::Waiting;
                let named = Capped::<_, NAMED>::chunks(named.into_iter().take(NAMED)).pop().unwrap_or_default();
                cx.act(NodeAction::ToRoot(ToRoot::Cleared { left, named, port: 0 }));
            }
            State::Running | State::Renewing | State::Waiting | State::Off => {}
        }
    }

    /// The sandbox is set up.
    pub(super) fn on_renewed(&mut self, cx: &mut Cx<'_>, port: u16) {
        match self.state {
            State::Renewing => {
                self.state = State::Waiting;
                cx.act(NodeAction::ToRoot(ToRoot::Cleared { left: 0, named: Capped::default(), port }));
            }
            State::Running | State::Clearing | State::Waiting | State::Off => {}
        }
    }

    /// Whether what cannot be had is the sandbox of the ranks to come.
    pub(super) const fn is_renewing(&self) -> bool {
        matches!(self.state, State::Renewing)
    }

    /// Ranks will follow.
    pub(super) fn on_next_generation(&mut self, cx: &mut Cx<'_>, rendezvous: Rendezvous) {
        match self.state {
            State::Waiting => {
                self.state = State::Running;
                cx.notify(Notice::Between(Between::Again(rendezvous)));
            }
            State::Running | State::Clearing | State::Renewing => cx.notify(Notice::Violation),
            State::Off => {}
        }
    }

    /// The node ends, whatever was continuing.
    pub(super) fn on_ending(&mut self) {
        self.state = State::Off;
    }
}
