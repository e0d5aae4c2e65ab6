//! The devices of this host before ranks are started: a look at first, and the end of holders once the job can start.

use super::{Cx, NodeAction};
use crate::node::DeviceAction;
use rlaunch_base::id::JobId;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::guard::devices::{DevicePlan, DeviceStep};
use rlaunch_protocol::wire::to_node::Start;
use rlaunch_protocol::wire::to_root::{NodeRefusal, ToRoot};

/// How long the search for holders of devices may take. A file system or a process that does not answer would hold the start for ever.
const SEARCH: Span = Span::from_secs(30);
/// How long holders may take to exit after SIGKILL.
const KILLED: Span = Span::from_secs(30);

#[derive(Default)]
pub(super) struct DeviceSteps {
    /// `None`: the job uses no such devices.
    order: Option<Order>,
    state: State,
}

/// The preparation, as `Start` orders it.
struct Order {
    plan: DevicePlan,
    job: JobId,
    grace: Span,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// The devices are free, as far as they were looked at.
    #[default]
    Idle,
    /// A step is under way, until then at most.
    Busy {
        until: Mono,
        /// The launcher waits for an answer.
        is_ordered: bool,
    },
    /// Holders have to be ended.
    Held,
}

impl DeviceSteps {
    /// The first look, which takes place while the host gets ready.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>, start: &Start) {
        let plan = start.settings.devices.clone();
        self.order = plan.is_active().then_some(Order { plan, job: start.job, grace: start.settings.ending.grace });
        self.act(cx, DeviceStep::Look, false);
    }

    /// The launcher orders a step. Returns whether the step makes sense.
    pub(super) fn on_order(&mut self, cx: &mut Cx<'_>, step: DeviceStep) -> bool {
        !self.is_busy() && self.act(cx, step, true)
    }

    /// Ends holders on the only host of a job.
    pub(super) fn free(&mut self, cx: &mut Cx<'_>) {
        self.act(cx, DeviceStep::Free, false);
    }

    fn act(&mut self, cx: &mut Cx<'_>, step: DeviceStep, is_ordered: bool) -> bool {
        let Some(Order { plan, job, grace }) = &self.order else { return false };
        self.state = State::Busy { until: cx.now + SEARCH, is_ordered };
        cx.act(NodeAction::Devices(DeviceAction::Free { plan: plan.clone(), job: *job, grace: *grace, step }));
        true
    }

    /// A step has ended: the devices are free, or there are holders that have to be ended. Returns whether the launcher had ordered it.
    pub(super) fn on_done(&mut self, cx: &mut Cx<'_>, held: bool) -> bool {
        let is_ordered = matches!(self.state, State::Busy { is_ordered: true, .. });
        if is_ordered {
            cx.act(NodeAction::ToRoot(ToRoot::Devices { held }));
        }
        self.state = if held { State::Held } else { State::Idle };
        is_ordered
    }

    /// Holders are being ended. Another search follows.
    pub(super) fn on_ending(&mut self, now: Mono) {
        if let (State::Busy { until, .. }, Some(Order { grace, .. })) = (&mut self.state, &self.order) {
            *until = now + *grace + KILLED + SEARCH;
        }
    }

    /// Gives up a step that takes too long.
    pub(super) fn on_timeout(&mut self, now: Mono) -> Option<NodeRefusal> {
        self.deadline().filter(|until| *until <= now)?;
        self.state = State::Idle;
        Some(NodeRefusal::DevicesUnknown { limit: SEARCH })
    }

    pub(super) const fn deadline(&self) -> Option<Mono> {
        if let State::Busy { until, .. } = self.state { Some(until) } else { None }
    }

    pub(super) const fn is_busy(&self) -> bool {
        matches!(self.state, State::Busy { .. })
    }

    pub(super) const fn is_held(&self) -> bool {
        matches!(self.state, State::Held)
    }
}
