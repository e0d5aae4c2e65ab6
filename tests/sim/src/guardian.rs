//! The guardian: ends what is there when the launcher or the agent is gone, and counts.

use crate::agent::Arrival;
use crate::plan::MS;
use crate::world::{Ev, World};
use rlaunch_core::id::NodeId;
use rlaunch_core::job::{GuardianEnd, JobEvent};
use rlaunch_core::node::NodeEvent;
use rlaunch_core::spec::Tier;

#[derive(Default)]
pub(crate) struct Guardian {
    state: State,
    killed: bool,
    /// The launcher has shut the lifeline.
    severed: bool,
}

#[derive(Default, Clone, Copy)]
enum State {
    #[default]
    Watching,
    /// Until then at most.
    Working(u64),
    Over,
}

impl Guardian {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Its patience is counted in time in which it could work.
    pub(crate) fn postpone(&mut self, by: u64) {
        if let State::Working(until) = &mut self.state {
            *until += by;
        }
    }

    pub(crate) fn was_killed(&self) -> bool {
        self.killed
    }
}

impl World {
    pub(crate) fn guardian_wakes(&mut self) {
        if !matches!(self.guardian.state, State::Watching) {
            return;
        }
        if self.agent.exit_code() == Some(0) {
            self.guardian.state = State::Over;
            self.guardian_ends(GuardianEnd::Silent);
        } else if self.agent.is_over() || self.launcher.is_over() || self.guardian.severed {
            self.note("guardian", || "ends what is there".to_owned());
            self.guardian.state = State::Working(self.now + 2000 * MS);
            self.soon(Ev::GuardianWorks);
        }
    }

    pub(crate) fn guardian_works(&mut self) {
        let State::Working(until) = self.guardian.state else { return };
        self.agent_killed();
        self.kill_everything();
        let left = self.kernel.alive_count();
        if left == 0 || until <= self.now {
            self.note("guardian", || format!("counts {left}"));
            self.guardian.state = State::Over;
            let mut named = self.kernel.named();
            named.truncate(16);
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            self.guardian_ends(GuardianEnd::Record { left, named });
        } else {
            self.at(self.now + MS, Ev::GuardianWorks);
        }
    }

    /// The launcher hears of it, maybe before all that the agent has said.
    fn guardian_ends(&mut self, end: GuardianEnd) {
        self.soon(Ev::ToJob(JobEvent::GuardianEnded { node: NodeId::new(0), end }));
    }

    pub(crate) fn guardian_severs(&mut self) {
        self.guardian.severed = true;
        self.soon(Ev::GuardianWakes);
    }

    pub(crate) fn guardian_killed(&mut self) {
        // One that is at work has killed the agent: without a namespace nobody promises what becomes of the rest then.
        let last = matches!(self.guardian.state, State::Working(_)) && self.plan.tier == Tier::T3;
        if !self.guardian.is_over() && !last {
            self.guardian.state = State::Over;
            self.guardian.killed = true;
            self.soon(Ev::Arrives(Arrival::Event(NodeEvent::GuardianLost)));
            self.guardian_ends(GuardianEnd::Silent);
        }
    }
}
