//! Events that the agent's machine has got. Its actions are judged by them.

use crate::host::Host;
use crate::world::World;
use rlaunch_base::signal::Signal;
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::wire::to_node::ToNode;

impl Host {
    /// The scheduler sends its last signal, or has sent it.
    fn scheduler_ends(&mut self, now: u64) {
        self.agent.scheduler_ends.get_or_insert(now);
        self.kernel.ended_by_us.get_or_insert(now);
    }
}

impl World {
    /// Records the event that the machine is about to get.
    pub(super) fn learns(&mut self, event: &NodeEvent) {
        let (agent, now, in_step) = (&mut self.host.agent, self.now, self.plan.scheduler.is_some());
        match event {
            NodeEvent::FromRoot(ToNode::SchedulerEnds { .. }) => self.host.scheduler_ends(now),
            // A warning, which the launcher answers.
            NodeEvent::Signal { sig, .. } if in_step || *sig == Signal::TERM => {}
            NodeEvent::FromRoot(ToNode::Clear { .. }) => (agent.clearing, agent.must_ask) = (true, true),
            NodeEvent::FromRoot(ToNode::Again(_)) if !agent.ending => {
                (agent.clearing, agent.failed, agent.must_ask, agent.was_ending) = (false, false, false, false);
            }
            // A sweep has ended it.
            NodeEvent::InitLost if agent.clearing && agent.init_swept => {}
            NodeEvent::FromRoot(ToNode::End { .. } | ToNode::Kill) | NodeEvent::InitLost | NodeEvent::GuardianLost => {
                (agent.ending, agent.must_ask) = (true, true)
            }
            NodeEvent::SpawnFailed { proc, .. } => agent.failed |= !agent.unneeded.contains(proc),
            // In a step the scheduler may be about to signal the ranks, which have a moment for that.
            NodeEvent::EdgeLost if in_step && self.host.remote && !agent.running.is_empty() => agent.mute = true,
            NodeEvent::EdgeLost | NodeEvent::Signal { .. } => {
                (agent.ending, agent.must_ask, agent.mute) = (true, true, true);
            }
            NodeEvent::Spawned { proc, at, .. } => {
                if !agent.ended.contains(proc) {
                    agent.running.insert(*proc, *at);
                }
            }
            NodeEvent::Exited { proc, .. } => {
                agent.running.remove(proc);
                // Maybe before it is known to have started.
                agent.ended.insert(*proc);
            }
            NodeEvent::Examined { proc, .. } => {
                agent.looking.remove(proc);
            }
            NodeEvent::FromRoot(_)
            | NodeEvent::Probed { .. }
            | NodeEvent::Unserved { .. }
            | NodeEvent::StoreUsed
            | NodeEvent::RanksMeasured { .. }
            | NodeEvent::SessionBegun { .. }
            | NodeEvent::SessionMessage { .. }
            | NodeEvent::SessionLost { .. }
            | NodeEvent::PortReserved { .. }
            | NodeEvent::DevicesReleased { .. }
            | NodeEvent::DevicesFreed(_)
            | NodeEvent::DevicesEnding
            | NodeEvent::DevicesExamined
            | NodeEvent::StoreRefused { .. }
            | NodeEvent::StoreLimit { .. }
            | NodeEvent::Beat(_)
            | NodeEvent::Checked { .. }
            | NodeEvent::Warned(_)
            | NodeEvent::SandboxReady(_)
            | NodeEvent::Renewed { .. }
            | NodeEvent::Refused(_)
            | NodeEvent::Withheld { .. }
            | NodeEvent::StreamEnd { .. }
            | NodeEvent::News(_)
            | NodeEvent::FileLost { .. }
            | NodeEvent::InputFailed { .. }
            | NodeEvent::Ordered(_)
            | NodeEvent::WorldReserved { .. }
            | NodeEvent::Left { .. } => {}
        }
    }

    /// When the order came to end ranks for the scheduler. `None`: there is none, or ranks end for another reason.
    pub(crate) fn ends_for_scheduler(&self) -> Option<u64> {
        let agent = &self.host.agent;
        let other = agent.ending || agent.clearing || agent.failed || agent.mute;
        agent.scheduler_ends.filter(|_| !other)
    }
}
