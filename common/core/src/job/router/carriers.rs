//! Consequences of what carriers report.

use super::super::notice::Notice;
use super::super::{Parts, Step};
use crate::events::{CloseReason, JobNews, Obstacle, What};
use rlaunch_base::id::NodeId;
use rlaunch_plan::bootstrap::{CarrierEvent, CarrierKind, CarrierNews, HostFailure};

impl Parts {
    pub(super) fn carrier_event(&mut self, step: &mut Step<'_>, event: CarrierEvent) {
        match event {
            CarrierEvent::Failed { node, failure } => self.host_failed(step, node, HostFailure::from(&*failure)),
            CarrierEvent::KillWait(span) => step.facts.note_kill_wait(span),
            CarrierEvent::News(news) => {
                if let CarrierNews::SrunEnded { nodes, end, .. } = &news {
                    let why = CloseReason::Carrier(CarrierKind::Srun, *end);
                    self.root_cause.srun_ends.on_ended(step.now, nodes.iter().copied(), why);
                }
                step.notify(Notice::Log(What::News(JobNews::Carrier(news))));
            }
        }
    }

    /// No agent could be started on a host.
    pub(super) fn host_failed(&mut self, step: &mut Step<'_>, node: NodeId, why: HostFailure) {
        let is_news = self.note_obstacle(node, Obstacle::Failed(why.clone()));
        self.bringup.failed(&mut step.cx(), node, Some(why).filter(|_| is_news));
        self.node_ends.host_failed(&mut step.cx(), node);
        self.redial_later(step, node);
    }
}
