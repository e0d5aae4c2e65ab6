//! Time in which the launcher, or the whole host, ran nothing although the clock continued: SIGSTOP, a freezer, a suspended host.
//!
//! It is drawn from a stream of its own, and only for runs that ask for it: a seed's job and its other faults are the same
//! with and without.

use crate::plan::MS;
use crate::rng::Rng;
use crate::world::{Ev, World};
use rlaunch_base::time::{Mono, Span};

/// Number of the random stream, distinct from that of the job itself.
const STREAM: u64 = 0x7374_696c_6c00_0000;

/// A suspension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    suspended: Suspended,
    long: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Suspended {
    /// The launcher with all of its threads; all others continue.
    Launcher,
    /// Everything, ranks and wires too.
    Host,
}

/// The suspensions, and their costs.
#[derive(Default, Debug)]
pub(crate) struct Still {
    pauses: Vec<(u64, Pause)>,
    /// The order in which the launcher reads its sources when it continues.
    order: u64,
    /// Events that came while the launcher was suspended.
    held: Vec<(usize, Ev)>,
    since: u64,
    host: u64,
    launcher: u64,
    gaps: u64,
}

impl Still {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ STREAM);
        let pauses = (0..rng.between(1, 3)).map(|_| {
            let suspended = if rng.chance(50) { Suspended::Launcher } else { Suspended::Host };
            let long = if rng.chance(20) { rng.between(1, 3600) * 1000 * MS } else { rng.micros(1, 8_000_000) };
            (rng.micros(1, 8_000_000), Pause { suspended, long })
        });
        Self { pauses: pauses.collect(), order: rng.below(6), ..Self::default() }
    }

    /// A launcher that is stopped then, for so long.
    pub(crate) fn of(stops: &[(u64, u64)]) -> Self {
        let stop = |(at, long): &(u64, u64)| (*at, Pause { suspended: Suspended::Launcher, long: *long });
        Self { pauses: stops.iter().map(stop).collect(), ..Self::default() }
    }

    pub(crate) fn pauses(&self) -> Vec<(u64, Pause)> {
        self.pauses.clone()
    }

    /// Time for which everything was suspended.
    pub(crate) const fn host_stood(&self) -> u64 {
        self.host + self.launcher
    }

    /// How long all of them may take.
    pub(crate) fn planned(&self) -> u64 {
        self.pauses.iter().map(|(_, pause)| pause.long).sum()
    }

    /// How often the launcher's time has had a gap by now, at most.
    pub(crate) const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// The reading of a clock that stops with the host.
    pub(crate) const fn host_awake(&self, now: u64) -> u64 {
        now - self.host
    }

    /// The reading of the launcher's own clock if it stopped with the launcher.
    pub(crate) fn awake(&self, now: Mono) -> Span {
        now.since(Mono::from_nanos(self.host_stood()))
    }
}

/// The source at which the launcher gets an event: each source keeps its own order.
const fn source(ev: &Ev) -> u64 {
    match ev {
        Ev::Fault(_) => 0,
        Ev::AtLauncher(..) | Ev::LauncherEdgeEnds | Ev::Up => 1,
        _ => 2,
    }
}

impl World {
    pub(crate) fn pause(&mut self, pause: Pause) {
        self.note("fault", || format!("{pause:?}"));
        match pause.suspended {
            Suspended::Launcher => self.launcher_stands(pause.long),
            Suspended::Host => {
                self.still.host += pause.long;
                self.still.gaps += 1;
                // A launcher that stands anyway does not stand twice.
                self.still.since += pause.long;
                self.postpone(pause.long);
                self.host.link.postpone(pause.long);
                self.host.guardian.postpone(pause.long);
                self.host.agent.postpone(pause.long);
                // Now it is so much later, and nothing has happened but that.
                self.now += pause.long;
            }
        }
    }

    fn launcher_stands(&mut self, long: u64) {
        if !self.launcher.has_exited() && !self.launcher.stands {
            self.launcher.stands = true;
            self.still.since = self.now;
            self.at(self.now + long, Ev::Resume);
        }
    }

    /// Keeps the launcher's next events, if it is suspended.
    pub(crate) fn launcher_holds(&mut self, ev: Ev) -> Option<Ev> {
        if !self.launcher.stands || !ev.is_launchers() {
            return Some(ev);
        }
        // The kernel keeps one signal of each number.
        let known = |held: &(usize, Ev)| matches!((&held.1, &ev), (Ev::Fault(a), Ev::Fault(b)) if a == b);
        if !self.still.held.iter().any(known) {
            self.still.held.push((self.node, ev));
        }
        None
    }

    /// Messages that have arrived come first, all of them, and then the deadlines that are due.
    pub(crate) fn launcher_resumes(&mut self) {
        if self.launcher.has_exited() {
            return;
        }
        self.note("launcher", || "continues".to_owned());
        self.launcher.stands = false;
        self.still.launcher += self.now - self.still.since;
        self.still.gaps += 1;
        self.step_stood_still(self.now - self.still.since);
        let mut held = std::mem::take(&mut self.still.held);
        let order = self.still.order;
        held.sort_by_key(|(_, ev)| match order {
            0 => 0,
            order => (source(ev) * (1 + order % 2) + order / 2) % 3,
        });
        for (node, ev) in held {
            self.go(node);
            self.happen(ev);
        }
        if self.launcher.deadline().is_some_and(|at| at <= self.mono()) {
            self.job_timeout();
        }
    }
}
