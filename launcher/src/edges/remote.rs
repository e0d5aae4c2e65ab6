//! Agents on other hosts: which of them the machine wants, and what the bootstrap says of them.

use super::now;
use crate::bootstrap::{Bootstrap, BootstrapEvent, Setting};
use crate::view::phrases;
use rlaunch_core::bootstrap::{CarrierKind, HostFailure, Target};
use rlaunch_core::id::NodeId;
use rlaunch_core::job::JobEvent;
use rlaunch_core::time::{Mono, Span};
use rlaunch_sys::origin::Origin;
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// Hosts to be reached.
pub(super) struct Remote {
    /// By node; `None`: the launcher's own host.
    plans: Vec<Option<Target>>,
    state: State,
}

enum State {
    /// There is no runtime yet. These are wanted.
    Early(Box<Early>),
    Live(Box<Bootstrap>),
    /// All hosts are this one, or the kernel refused us: errno.
    Nothing(i32),
}

struct Early {
    setting: Setting,
    origin: Origin,
    wanted: Vec<NodeId>,
}

impl Remote {
    pub(super) fn new(plans: Vec<Option<Target>>, setting: Setting, origin: Origin) -> Self {
        Self { plans, state: State::Early(Box::new(Early { setting, origin, wanted: Vec::new() })) }
    }

    /// No other host.
    pub(super) const fn none() -> Self {
        Self { plans: Vec::new(), state: State::Nothing(0) }
    }

    /// How long a host may take to be ready, until this goes live; `None`: no other is waited for.
    pub(super) const fn limit(&self) -> Option<Span> {
        match &self.state {
            State::Early(early) => Some(early.setting.limit),
            State::Live(_) | State::Nothing(_) => None,
        }
    }

    /// Under a runtime that was entered.
    pub(super) fn go_live(&mut self, events: &mut VecDeque<JobEvent>) {
        if let State::Early(early) = std::mem::replace(&mut self.state, State::Nothing(0)) {
            let Early { setting, origin, wanted } = *early;
            match Bootstrap::new(setting, origin, self.plans.len()) {
                Ok(bootstrap) => self.state = State::Live(Box::new(bootstrap)),
                Err(error) => self.state = State::Nothing(error.raw_os_error().unwrap_or(0)),
            }
            wanted.into_iter().for_each(|node| self.connect(node, events));
        }
    }

    /// A host is reached in this way from now on.
    pub(super) fn know(&mut self, node: NodeId, target: Target) {
        self.plans.get_mut(node.index()).into_iter().for_each(|plan| *plan = Some(target.clone()));
    }

    pub(super) fn connect(&mut self, node: NodeId, events: &mut VecDeque<JobEvent>) {
        let Some(plan) = self.plans.get(node.index()).cloned().flatten() else {
            // A discovered host with a name that ssh would not take for one.
            let why = HostFailure { why: "its name cannot be reached".into(), ..Default::default() };
            return events.push_back(JobEvent::HostFailed { node, why });
        };
        match &mut self.state {
            State::Early(early) => early.wanted.push(node),
            State::Live(bootstrap) => {
                let jitter = rlaunch_sys::random::bytes().map_or(0, u64::from_ne_bytes);
                bootstrap.connect(node, plan, jitter);
            }
            State::Nothing(errno) => {
                let why = HostFailure {
                    why: format!("cannot get ready to reach it: {}", phrases::errno(*errno)).into(),
                    hint: phrases::way_out(*errno).unwrap_or_default().into(),
                    ..Default::default()
                };
                events.push_back(JobEvent::HostFailed { node, why });
            }
        }
    }

    pub(super) fn give_up(&mut self, node: NodeId, events: &mut VecDeque<JobEvent>) {
        match &mut self.state {
            State::Early(early) => early.wanted.retain(|other| *other != node),
            State::Live(bootstrap) => bootstrap.cancel(now(), node),
            State::Nothing(_) => {}
        }
        let why = HostFailure { why: "given up: the job ends".into(), ..Default::default() };
        events.push_back(JobEvent::HostFailed { node, why });
    }

    /// Whether an ssh or srun runs.
    pub(super) fn has_carriers(&self) -> bool {
        matches!(&self.state, State::Live(bootstrap) if bootstrap.has_carriers())
    }

    /// Their time to end by themselves after the job.
    pub(super) const fn carrier_patience(&self) -> Span {
        match &self.state {
            State::Live(bootstrap) => bootstrap.carrier_patience(),
            State::Early(_) | State::Nothing(_) => Span::ZERO,
        }
    }

    pub(super) fn end_carriers(&self, hard: bool) {
        if let State::Live(bootstrap) = &self.state {
            bootstrap.end_carriers(hard);
        }
    }

    /// No other host is wanted any more.
    pub(super) fn dismiss(&mut self) {
        if let State::Live(bootstrap) = &mut self.state {
            bootstrap.dismiss();
        }
    }

    /// When `poll` wants to be called next, at the latest.
    pub(super) fn deadline(&self) -> Option<Mono> {
        match &self.state {
            State::Live(bootstrap) => bootstrap.deadline(),
            State::Early(_) | State::Nothing(_) => None,
        }
    }

    /// The process of its own here that keeps the edge of a host, if there is one. The end of that explains more than the end of the edge.
    pub(super) fn keeper(&self, node: NodeId) -> Option<CarrierKind> {
        match &self.state {
            State::Live(bootstrap) => bootstrap.keeper(node),
            State::Early(_) | State::Nothing(_) => None,
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BootstrapEvent> {
        match &mut self.state {
            State::Live(bootstrap) => bootstrap.poll(cx, now()),
            State::Early(_) | State::Nothing(_) => Poll::Pending,
        }
    }
}
