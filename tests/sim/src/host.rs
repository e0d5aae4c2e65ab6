//! The hosts of a job: each with its agent, its guardian, its processes, its edge and its clock. Something happens on one of
//! them at a time.

use crate::agent::Agent;
use crate::guardian::Guardian;
use crate::kernel::Kernel;
use crate::link::Link;
use crate::site::{Reach, Site};
use crate::world::{Ev, World};
use rlaunch_base::id::NodeId;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::job::JobEvent;
use rlaunch_plan::bootstrap::{HostFailure, StepEvent};

/// A millionth.
const MILLION: i128 = 1_000_000;

/// A host's clock: when it began, and by how many millionths it is faster than the launcher's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Clock {
    pub(crate) offset: u64,
    pub(crate) ppm: i64,
}

impl Clock {
    /// The reading of the clock at a moment.
    pub(crate) fn reads(self, time: u64) -> Mono {
        let passed = i128::from(time) * (MILLION + i128::from(self.ppm)) / MILLION;
        Mono::from_nanos(self.offset.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// The first moment at which it shows this or more.
    pub(crate) fn when(self, at: Mono) -> u64 {
        let passed = i128::from(at.nanos().saturating_sub(self.offset));
        let mut time = u64::try_from(passed * MILLION / (MILLION + i128::from(self.ppm))).unwrap_or(u64::MAX / 2);
        while self.reads(time) < at && time < u64::MAX / 2 {
            time += 1;
        }
        time
    }
}

/// A host.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) agent: Agent,
    pub(crate) guardian: Guardian,
    pub(crate) kernel: Kernel,
    pub(crate) link: Link,
    pub(crate) clock: Clock,
    /// Guardian and agent are there, or were.
    pub(crate) begun: bool,
    /// Whether it lost its power.
    pub(crate) gone: bool,
    /// The scheduler has killed the step there.
    pub(crate) killed: bool,
    /// Whether it is not the launcher's own.
    pub(crate) remote: bool,
    /// The launcher has tried to reach it.
    pub(crate) tried: bool,
    /// When it has to be ready, and what it has for that in all.
    by: (u64, u64),
}

impl Host {
    /// The launcher's own, and only one.
    pub(crate) fn only() -> Self {
        Self { begun: true, ..Self::default() }
    }

    pub(crate) fn of(site: &Site) -> Self {
        let Site { local, clock, .. } = *site;
        Self { clock, begun: local, remote: !local, link: Link::of(site), ..Self::default() }
    }

    /// Whether its processes are not for us to end: it has no power, or cannot be reached, and is lost.
    pub(crate) fn is_none_of_ours(&self) -> bool {
        self.gone || !self.begun
    }

    /// When its agent wants to be called.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.agent.deadline().filter(|_| self.begun).map(|at| self.clock.when(at))
    }
}

impl World {
    pub(crate) fn count(&self) -> usize {
        self.away.len()
    }

    /// A host by its index.
    pub(crate) fn host(&self, node: usize) -> &Host {
        if node == self.node { &self.host } else { &self.away[node] }
    }
    /// Moves the next events to that host.
    pub(crate) fn go(&mut self, node: usize) {
        if node != self.node {
            std::mem::swap(&mut self.host, &mut self.away[self.node]);
            std::mem::swap(&mut self.host, &mut self.away[node]);
            self.node = node;
        }
    }

    /// Does something there, and comes back.
    pub(crate) fn on<R>(&mut self, node: NodeId, act: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.node;
        self.go(node.index());
        let result = act(self);
        self.go(before);
        result
    }

    /// The present host.
    pub(crate) fn id(&self) -> NodeId {
        NodeId::new(u32::try_from(self.node).unwrap_or(u32::MAX))
    }

    /// The reading of this host's clock.
    pub(crate) fn here(&self) -> Mono {
        self.host.clock.reads(self.now)
    }

    /// Whether this is a run of several hosts.
    pub(crate) fn several(&self) -> bool {
        !self.plan.sites.is_empty()
    }

    pub(crate) fn site(&self) -> Option<&Site> {
        self.plan.sites.get(self.node)
    }

    /// The launcher has a host reached.
    pub(crate) fn connects(&mut self) {
        let Some(Site { reach, deadline, .. }) = self.site().cloned() else { return };
        self.check_is_known();
        let reach = if self.is_sliced() {
            self.is_reached_again();
            self.reaches(reach)
        } else {
            reach
        };
        let (after, outcome) = match reach {
            Reach::Fails(after) => (after, Ev::Unreached),
            Reach::Up(after) => (after, Ev::Begins),
        };
        self.at(self.now + after, outcome);
        if self.is_in_step() {
            // The step has the time for all hosts.
            self.wanted.push(self.id());
            if let Reach::Fails(after) = reach {
                self.dials_after_all(after);
            }
            return;
        }
        self.host.by = (self.now + deadline, deadline);
        self.at(self.now + deadline, Ev::Unreached);
    }

    /// Its guardian begins, and forks the agent.
    pub(crate) fn begins(&mut self) {
        if self.host.gone {
            return;
        }
        self.note("host", || "its guardian begins".to_owned());
        self.host.begun = true;
        let until = self.here() + self.plan.spec.settings.hosts.lease;
        self.guardian_leased(until);
        if self.host.link.is_shut() {
            self.soon(Ev::AgentEdgeEnds);
            self.soon(Ev::LifelineEnds);
        }
        if self.is_in_step() { self.dials() } else { self.travel_out(Ev::Up) }
    }

    /// Notifies the launcher that the host is reached.
    pub(crate) fn is_up(&mut self) {
        let (at, limit) = self.host.by;
        self.is_up_by((Mono::from_nanos(at), Span::from_nanos(limit)));
    }

    pub(crate) fn is_up_by(&mut self, (at, limit): (Mono, Span)) {
        let adopted = self.host.link.adopt();
        // A step has no agent of a host that was given up.
        self.check(adopted || !self.is_in_step(), || "a host comes up that was given up".to_owned());
        if adopted {
            self.send_to_agent(crate::link::credit(self.plan.window));
            let node = self.id();
            self.notify_job(JobEvent::EdgeUp { node });
            self.notify_job(JobEvent::ReadyBy { node, at, limit });
            self.step_delivers();
        }
    }

    /// The attempt failed, or took too long.
    pub(crate) fn unreached(&mut self) {
        if self.host.link.give_up() {
            let node = self.id();
            self.close_to_agent();
            self.notify_step(StepEvent::Cancel(node));
            self.notify_job(JobEvent::HostFailed { node, why: HostFailure::default() });
        }
    }

    /// An agent without any message yet counts as none.
    pub(crate) fn gives_up(&mut self) {
        if self.host.link.give_up() {
            let node = self.id();
            self.close_to_agent();
            self.notify_step(StepEvent::Cancel(node));
            self.at(self.now, Ev::ToJob(JobEvent::HostFailed { node, why: HostFailure::default() }));
        }
    }

    /// The power fails: all processes are gone at once, and no message comes any more.
    pub(crate) fn host_is_lost(&mut self) {
        if self.host.remote {
            self.host.gone = true;
            self.host.agent.vanish();
            self.host.guardian.vanish();
            self.host.kernel.vanish();
        }
    }

    /// Its ssh is killed.
    pub(crate) fn edge_killed(&mut self) {
        if self.host.remote && self.host.begun && !self.host.link.is_dead() {
            // Events under way are lost.
            self.cancel(|ev| matches!(ev, Ev::AtLauncher(..) | Ev::Up | Ev::Shake(_) | Ev::LauncherEdgeEnds));
            self.host.link.die();
            self.soon(if self.host.link.is_live() { Ev::LauncherEdgeEnds } else { Ev::Unreached });
            self.close_to_agent();
        }
    }
}
