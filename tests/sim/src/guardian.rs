//! The guardian: ends what is there when the launcher or the agent is gone, and counts.

use crate::agent::Arrival;
use crate::plan::MS;
use crate::world::{Ev, World};
use rlaunch_base::time::Mono;
use rlaunch_core::job::{GuardianEnd, JobEvent};
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::settings::Tier;

#[derive(Default)]
pub(crate) struct Guardian {
    state: State,
    killed: bool,
    /// The launcher has shut the lifeline.
    severed: bool,
    /// On another host: until when it lets the job live.
    until: Option<Mono>,
    expired: bool,
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
    pub(crate) fn has_exited(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Its patience is counted in time in which it could work.
    pub(crate) fn postpone(&mut self, by: u64) {
        if let State::Working(until) = &mut self.state {
            *until += by;
        }
    }

    /// Its host is gone.
    pub(crate) fn vanish(&mut self) {
        self.state = State::Over;
    }

    pub(crate) fn has_expired(&self) -> bool {
        self.expired
    }

    pub(crate) fn was_killed(&self) -> bool {
        self.killed
    }
}

impl World {
    pub(crate) fn guardian_wakes(&mut self) {
        if !matches!(self.host.guardian.state, State::Watching) {
            return;
        }
        if self.host.agent.exit_code() == Some(0) {
            self.host.guardian.state = State::Over;
            if self.host.remote {
                self.close_to_launcher();
            } else {
                self.guardian_ends(GuardianEnd::Silent);
            }
            return;
        }
        let alone = !self.host.remote && self.launcher.has_exited();
        let guardian = &self.host.guardian;
        if self.host.agent.has_exited() || alone || guardian.severed || guardian.expired {
            // The guardian reports it where no other event would have made it end everything.
            self.host.guardian.expired &= !self.host.agent.has_exited() && !self.host.guardian.severed;
            self.note("guardian", || "ends what is there".to_owned());
            self.host.guardian.state = State::Working(self.now + 2000 * MS);
            self.soon(Ev::GuardianWorks);
        }
    }

    pub(crate) fn guardian_works(&mut self) {
        let State::Working(until) = self.host.guardian.state else { return };
        self.agent_killed();
        self.kill_everything();
        let left = self.host.kernel.alive_count();
        if left == 0 || until <= self.now {
            self.note("guardian", || format!("counts {left}"));
            self.host.guardian.state = State::Over;
            let mut named = self.host.kernel.named();
            named.truncate(16);
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            if self.host.remote {
                let pids: Vec<u32> = named.iter().map(|leftover| leftover.pid).collect();
                self.send_to_launcher(crate::link::last_words(left, self.host.guardian.expired, &pids));
                self.close_to_launcher();
            } else {
                self.guardian_ends(GuardianEnd::Record { left, named });
            }
        } else {
            self.at(self.now + MS, Ev::GuardianWorks);
        }
    }

    /// Notifies the launcher, maybe before the last messages of the agent.
    fn guardian_ends(&mut self, end: GuardianEnd) {
        self.soon(Ev::ToJob(JobEvent::GuardianEnded { node: self.id(), end }));
    }

    /// The agent passes on a grant: the last word counts.
    pub(crate) fn guardian_leased(&mut self, until: Mono) {
        self.host.guardian.until = Some(until);
        self.at(self.looks_at(until), Ev::LeaseRuns);
    }

    /// When it is scheduled after this deadline.
    fn looks_at(&self, until: Mono) -> u64 {
        let slack = self.site().map_or(0, |site| site.slack);
        self.host.clock.when(until).saturating_add(slack)
    }

    /// Its timer; a renewal that came meanwhile counts, also if it is late to look. It is as late for each deadline anew.
    pub(crate) fn lease_runs(&mut self) {
        let watches = matches!(self.host.guardian.state, State::Watching);
        if watches && self.host.guardian.until.is_some_and(|until| self.looks_at(until) <= self.now) {
            self.host.guardian.expired = true;
            self.guardian_wakes();
        }
    }

    pub(crate) fn guardian_severs(&mut self) {
        self.host.guardian.severed = true;
        self.soon(Ev::GuardianWakes);
    }

    pub(crate) fn guardian_killed(&mut self) {
        // A guardian at work has killed the agent: without a namespace there is no promise about the rest then.
        let last = matches!(self.host.guardian.state, State::Working(_)) && self.plan.tier == Tier::T3;
        if !self.host.guardian.has_exited() && !last {
            self.host.guardian.state = State::Over;
            self.host.guardian.killed = true;
            self.soon(Ev::Arrives(Arrival::Event(Box::new(NodeEvent::GuardianLost))));
            if self.host.remote {
                // sshd's child is gone: it closes the agent's input, and the agent holds the output alone.
                self.soon(Ev::AgentEdgeEnds);
                if self.host.agent.has_exited() {
                    self.close_to_launcher();
                }
            } else {
                self.guardian_ends(GuardianEnd::Silent);
            }
        }
    }
}
