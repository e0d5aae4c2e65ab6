//! Agents on other hosts: which of them the machine wants, and what the bootstrap says of them.

use super::now;
use crate::bootstrap::{Bootstrap, BootstrapEvent, Setting};
use crate::view::phrases;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::job::JobEvent;
use rlaunch_plan::bootstrap::{CarrierKind, HostFailure, Target};
use rlaunch_sys::origin::Origin;
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// Hosts to be reached.
pub(super) struct Remote {
    /// By node; `None`: the launcher's own host.
    plans: Vec<Option<Target>>,
    /// The errno if the kernel has refused it; 0 where all hosts are this one.
    bootstrap: Result<Box<Bootstrap>, i32>,
    /// How long a host may take to be ready; `None`: no other is waited for.
    pub(super) limit: Option<Span>,
}

impl Remote {
    /// Within a runtime.
    pub(super) fn new(plans: Vec<Option<Target>>, setting: Setting, origin: Origin) -> Self {
        let limit = Some(setting.limit);
        let bootstrap = Bootstrap::new(setting, origin, plans.len());
        let bootstrap = bootstrap.map(Box::new).map_err(|error| error.raw_os_error().unwrap_or(0));
        Self { plans, bootstrap, limit }
    }

    /// No other host.
    pub(super) const fn none() -> Self {
        Self { plans: Vec::new(), bootstrap: Err(0), limit: None }
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
        match &mut self.bootstrap {
            Ok(bootstrap) => {
                let jitter = rlaunch_sys::random::bytes().map_or(0, u64::from_ne_bytes);
                bootstrap.connect(node, plan, jitter);
            }
            Err(errno) => {
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
        if let Ok(bootstrap) = &mut self.bootstrap {
            bootstrap.cancel(now(), node);
        }
        let why = HostFailure { why: "given up: the job ends".into(), ..Default::default() };
        events.push_back(JobEvent::HostFailed { node, why });
    }

    /// Whether a carrier runs.
    pub(super) fn has_carriers(&self) -> bool {
        self.bootstrap.as_ref().is_ok_and(|bootstrap| bootstrap.has_carriers())
    }

    /// Their time to end by themselves after the job.
    pub(super) const fn carrier_patience(&self) -> Span {
        match &self.bootstrap {
            Ok(bootstrap) => bootstrap.carrier_patience(),
            Err(_) => Span::ZERO,
        }
    }

    pub(super) fn end_carriers(&self, hard: bool) {
        if let Ok(bootstrap) = &self.bootstrap {
            bootstrap.end_carriers(hard);
        }
    }

    /// No other host is wanted any more.
    pub(super) fn dismiss(&mut self) {
        if let Ok(bootstrap) = &mut self.bootstrap {
            bootstrap.dismiss();
        }
    }

    /// When `poll` wants to be called next, at the latest.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.bootstrap.as_ref().ok()?.deadline()
    }

    /// The process of its own here that keeps the edge of a host, if there is one. The end of that explains more than the end of the edge.
    pub(super) fn keeper(&self, node: NodeId) -> Option<CarrierKind> {
        self.bootstrap.as_ref().ok()?.keeper(node)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BootstrapEvent> {
        match &mut self.bootstrap {
            Ok(bootstrap) => bootstrap.poll(cx, now()),
            Err(_) => Poll::Pending,
        }
    }
}
