//! Signals that a scheduler sends to the processes of its step: SIGTERM ends the job, SIGTSTP and SIGCONT suspend and resume it, and others
//! reach each rank once.

use super::Cx;
use super::notice::Notice;
use crate::events::{Cause, JobNews, What};
use alloc::collections::{BTreeMap, BTreeSet};
use rlaunch_base::id::NodeId;
use rlaunch_base::signal::Signal;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::to_node::ToNode;

/// The signals that hosts have reported.
#[derive(Debug)]
pub(super) struct SchedulerSignals {
    scheduler: Option<Scheduler>,
    /// How often each host has reported a signal.
    received: BTreeMap<(Signal, NodeId), u32>,
    /// How often the job has got a signal. A scheduler signals all hosts, so the first host that reports one more speaks for all.
    counted: BTreeMap<Signal, u32>,
    /// Hosts that the scheduler has suspended, or is about to.
    suspended: BTreeSet<NodeId>,
}

impl SchedulerSignals {
    pub(super) fn new(spec: &JobSpec) -> Self {
        Self {
            scheduler: spec.settings.hosts.scheduler,
            received: BTreeMap::new(),
            counted: BTreeMap::new(),
            suspended: BTreeSet::new(),
        }
    }

    /// The scheduler in whose step the agents run.
    pub(super) const fn scheduler(&self) -> Option<Scheduler> {
        self.scheduler
    }

    /// A host has reported a signal. `to_ranks`: the scheduler has sent it to ranks as well.
    pub(super) fn on(&mut self, cx: &mut Cx<'_>, node: NodeId, sig: Signal, to_ranks: bool) {
        let Some(scheduler) = self.scheduler else { return };
        if sig == Signal::TSTP && self.suspended.insert(node) {
            cx.notify(Notice::HostSuspended { node, is_over: false });
        } else if sig == Signal::CONT {
            // Slurm sends it before other signals as well.
            if !self.suspended.remove(&node) {
                return;
            }
            cx.notify(Notice::HostSuspended { node, is_over: true });
        }
        let received = self.received.entry((sig, node)).or_default();
        *received = received.saturating_add(1);
        let counted = self.counted.entry(sig).or_default();
        if *received <= *counted {
            return;
        }
        *counted = *received;
        cx.notify(Notice::Log(What::News(JobNews::SchedulerSignal { scheduler, sig, node })));
        if matches!(sig, Signal::TSTP | Signal::CONT) {
            return;
        }
        // A rank that it has ended explains nothing, also if the job ends for another reason already.
        cx.notify(Notice::Forwarded(sig));
        if sig == Signal::TERM {
            return cx.notify(Notice::End(Cause::Scheduler { scheduler, sig }));
        }
        if !to_ranks {
            cx.notify(Notice::Broadcast(ToNode::Signal { sig }));
        }
    }
}
