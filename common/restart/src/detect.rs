//! Detection of a rank that hangs in a round, and the steps that follow.
//!
//! A client says that its program makes progress: by itself, or because the program does (`ping`). A rank that is silent for longer than the
//! soft limit hangs, and is interrupted with the others. A rank that does not leave its function, or does not reach the next one, by a
//! hard limit is ended: SIGTERM, then SIGKILL after the grace. A process that the kernel cannot end even so is not waited for. No rank is
//! watched while silence is expected: in reserve, and after its function has returned. After the return it waits for the others for a
//! limited time; then the round counts as one in which a rank does not finish. Hooks that run there, or when no round follows, are to
//! come to their end by the hard limit.
//!
//! The agent's clock counts on while a host sleeps. So a hard limit has not expired directly after a soft one: a rank that was only
//! asleep is interrupted and lives.

use super::terms::Terms;
use rlaunch_base::machine::earliest;
use rlaunch_base::time::{Mono, Span};

/// From SIGKILL until a process that still exists is one that the kernel cannot end (state D of proc_pid_stat(5): a driver or a file
/// system that does not answer). The end of a large process takes its time, too.
pub const UNKILLABLE: Span = Span::from_secs(10);

/// How long a rank may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HangLimits {
    /// Silent for longer: it hangs.
    pub soft: Span,
    /// Silent for longer, or longer in its function after the interrupt: it is ended.
    pub hard: Span,
    /// Time for which a rank may be ready without the next round, once no other rank may still be leaving. After it the rank is ended.
    pub barrier: Span,
    /// Its function has returned for longer, and that of others has not: the round ends.
    pub completion: Span,
    /// From SIGTERM to SIGKILL.
    pub grace: Span,
    /// Time to wait after that for hosts without heartbeats, and for more faults.
    pub others: Span,
}

impl Default for HangLimits {
    fn default() -> Self {
        let secs = Span::from_secs;
        Self {
            soft: secs(60),
            hard: secs(90),
            barrier: secs(120),
            completion: secs(120),
            grace: secs(5),
            others: Span::ZERO,
        }
    }
}

impl From<&Terms> for HangLimits {
    fn from(terms: &Terms) -> Self {
        Self {
            soft: terms.soft_timeout,
            hard: terms.hard_timeout,
            barrier: terms.barrier_timeout,
            completion: terms.completion_timeout,
            grace: terms.termination_grace,
            others: Span::ZERO,
        }
    }
}

impl HangLimits {
    /// The last moment at which one that is to be out by then is waited for.
    fn latest_end(&self, by: Mono) -> Mono {
        by + (self.grace + UNKILLABLE).max(self.others)
    }

    /// From the interrupt of one that hangs to its end.
    const fn rest(&self) -> Span {
        Span::from_nanos(self.hard.nanos().saturating_sub(self.soft.nanos()))
    }
}

/// The step that is due for a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// The rank hangs: the launcher has to know. Once in a round.
    Hang,
    /// Its function has returned, and it has waited for the others long enough: the launcher has to know. Once in a round.
    Alone,
    /// The rank is to be sent SIGTERM.
    Terminate,
    /// The rank is to be killed.
    Kill,
    /// The rank cannot be killed.
    Stuck,
}

/// The watch of one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watch(State);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// The rank may be silent.
    #[default]
    Off,
    Running(Running),
    /// Its function has returned at that time.
    Returned {
        since: Mono,
    },
    /// The rank has to leave its function by the first time. A rank that hung has until the second time if it makes progress after all.
    /// Until a ping of it, if that is waited for, its silence counts as before.
    Leaving {
        by: Mono,
        else_by: Mono,
        running: Option<Running>,
    },
    /// The rank is out of its function. From then on it waits for no rank that may be late.
    Waiting {
        since: Mono,
    },
    /// Hooks run since then where no function does, and may take as long as a section says in place of the hard limit.
    Hooks {
        since: Mono,
        section: Option<Option<Span>>,
    },
    /// SIGTERM is on its way.
    Ending {
        until: Mono,
    },
    /// SIGKILL is.
    Killed {
        until: Mono,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Running {
    /// Time of the last progress. A rank without any message in a round, and without its library's own watch, may be silent.
    last_progress: Option<Mono>,
    /// Time of the last progress that the program reported itself. After one in a round, silence of that kind counts.
    pinged: Option<Mono>,
    /// The limit that the rank has asked for in place of its soft limit, or `None` for no limit, and the time of the request.
    section: Option<(Mono, Option<Span>)>,
    /// The time at which it was reported as hanging.
    hang_reported: Option<Mono>,
    /// Since when hooks run in place of the function. They are to make progress although it may be silent.
    hooks: Option<Mono>,
}

impl Running {
    const NEW: Self = Self { last_progress: None, pinged: None, section: None, hang_reported: None, hooks: None };

    const fn alive(&mut self, now: Mono, pinged: bool) {
        self.last_progress = Some(now);
        if pinged {
            self.pinged = Some(now);
        }
    }

    fn section(&mut self, now: Mono, span: Option<Span>) {
        self.last_progress = self.last_progress.map(|_| now);
        self.pinged = self.pinged.map(|_| now);
        self.hooks = self.hooks.map(|_| now);
        self.section = (span != Some(Span::ZERO)).then_some((now, span));
    }

    fn silent_since(&self) -> Option<Mono> {
        earliest(self.pinged, self.last_progress.or(self.hooks))
    }

    fn hangs_at(&self, limits: &HangLimits) -> Option<Mono> {
        match (self.section, self.silent_since()) {
            (None, silent) => Some(silent? + limits.soft),
            (Some((since, most)), silent) => Some(silent.map_or(since, |silent| silent.max(since)) + most?),
        }
    }

    /// `None`: it does not hang, or has made progress since.
    fn overdue_at(&self, limits: &HangLimits) -> Option<Mono> {
        let (hung, reported) = (self.hangs_at(limits)?, self.hang_reported?);
        Some((hung + limits.rest()).max(reported + limits.rest()))
    }
}

impl Watch {
    /// A round begins, and it is to work.
    pub const fn begin(&mut self) {
        self.0 = State::Running(Running::NEW);
    }

    /// Its function has returned: it waits for the others.
    pub const fn returned(&mut self, now: Mono) {
        if !self.is_ending() {
            self.0 = State::Returned { since: now };
        }
    }

    /// Nothing is expected of it: it waits in reserve, or is gone.
    pub const fn rest(&mut self) {
        self.0 = State::Off;
    }

    /// No round follows: nothing is expected of it any more, but that hooks which run come to their end.
    pub const fn done(&mut self) {
        if !matches!(self.0, State::Hooks { .. }) {
            self.0 = State::Off;
        }
    }

    /// Records progress of the rank, by its own ping or by its library.
    pub fn alive(&mut self, now: Mono, pinged: bool) {
        match &mut self.0 {
            State::Running(running) => running.alive(now, pinged),
            State::Leaving { by, else_by, running } => {
                *by = *else_by;
                running.iter_mut().for_each(|running| running.alive(now, pinged));
            }
            State::Off
            | State::Returned { .. }
            | State::Waiting { .. }
            | State::Ending { .. }
            | State::Killed { .. } => {}
            State::Hooks { .. } => {}
        }
    }

    /// From now on it may be silent for so long, `None`: for ever; a span of zero: as long as before. A section does not count as
    /// progress of a rank that has not pinged.
    pub fn section(&mut self, now: Mono, span: Option<Span>) {
        match &mut self.0 {
            State::Running(running) | State::Leaving { running: Some(running), .. } => running.section(now, span),
            State::Off | State::Returned { .. } | State::Leaving { running: None, .. } => self.alive(now, false),
            State::Hooks { since, section } => (*since, *section) = (now, (span != Some(Span::ZERO)).then_some(span)),
            State::Waiting { .. } | State::Ending { .. } | State::Killed { .. } => {}
        }
    }

    /// Hooks of it begin to run, or have come to their end.
    pub const fn hooks(&mut self, now: Mono, run: bool) {
        match (&mut self.0, run) {
            (State::Running(running), true) => running.hooks = Some(now),
            (State::Running(running), false) => running.hooks = None,
            (State::Off, true) => self.0 = State::Hooks { since: now, section: None },
            (State::Hooks { .. }, false) => self.0 = State::Off,
            (State::Off | State::Hooks { .. }, _) => {}
            (
                State::Returned { .. }
                | State::Leaving { .. }
                | State::Waiting { .. }
                | State::Ending { .. }
                | State::Killed { .. },
                _,
            ) => {}
        }
    }

    /// Begins the time within which the rank has to leave its function, or has begun to.
    pub fn leave(&mut self, now: Mono, within: Span, limits: &HangLimits) {
        let else_by = now + within + limits.hard;
        match self.0 {
            State::Running(running) => {
                let by = running.overdue_at(limits).map_or(else_by, |by| by.min(else_by));
                let running = (within > Span::ZERO && running.hang_reported.is_none()).then_some(running);
                self.0 = State::Leaving { by, else_by, running };
            }
            // A planned round that has become an urgent one, or one that had begun to leave by itself: no time is added.
            State::Leaving { by, else_by: before, running } => {
                let running = running.filter(|_| within > Span::ZERO);
                self.0 = State::Leaving { by: by.min(else_by), else_by: before.min(else_by), running };
            }
            State::Off | State::Returned { .. } | State::Hooks { .. } => {
                self.0 = State::Leaving { by: else_by, else_by, running: None };
            }
            State::Waiting { .. } | State::Ending { .. } | State::Killed { .. } => {}
        }
    }

    /// Records that the rank is out of its function. Others may take as long as it might have.
    pub fn ready(&mut self, now: Mono, limits: &HangLimits) {
        let since = match self.0 {
            State::Leaving { else_by, .. } => limits.latest_end(else_by).max(now),
            _ if self.is_ending() => return,
            State::Off | State::Running(_) | State::Returned { .. } | State::Waiting { .. } => now,
            State::Hooks { .. } | State::Ending { .. } | State::Killed { .. } => now,
        };
        self.0 = State::Waiting { since };
    }

    /// Others begin to leave, and may take so long before they have to.
    pub fn others_leave(&mut self, now: Mono, within: Span, limits: &HangLimits) {
        if let State::Waiting { since } = &mut self.0 {
            *since = limits.latest_end(now + within + limits.hard).max(*since);
        }
    }

    /// SIGTERM is on its way.
    pub fn ends(&mut self, now: Mono, limits: &HangLimits) {
        if !self.is_ending() {
            self.0 = State::Ending { until: now + limits.grace };
        }
    }

    /// SIGKILL is.
    pub fn dies(&mut self, now: Mono) {
        self.0 = State::Killed { until: now + UNKILLABLE };
    }

    /// Its host has slept so long: what it had left to do it has still. A silent rank is reported all the same, and has time to leave.
    pub fn slept(&mut self, so_long: Span) {
        match &mut self.0 {
            State::Leaving { by, else_by, .. } => (*by, *else_by) = (*by + so_long, *else_by + so_long),
            State::Returned { since } | State::Waiting { since } | State::Hooks { since, .. } => {
                *since = *since + so_long
            }
            State::Off | State::Running(_) | State::Ending { .. } | State::Killed { .. } => {}
        }
    }

    /// Whether it is being ended.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        matches!(self.0, State::Ending { .. } | State::Killed { .. })
    }

    /// How long a section of it may take, if it is in one.
    #[must_use]
    pub const fn section_limit(&self) -> Option<Span> {
        match self.0 {
            State::Running(Running { section: Some((_, most)), .. }) => most,
            State::Leaving { running: Some(Running { section: Some((_, most)), .. }), .. } => most,
            State::Hooks { section: Some(most), .. } => most,
            State::Running(_) | State::Leaving { .. } | State::Hooks { section: None, .. } => None,
            State::Off
            | State::Returned { .. }
            | State::Waiting { .. }
            | State::Ending { .. }
            | State::Killed { .. } => None,
        }
    }

    /// Returns the step that is due. To be asked until there is nothing.
    pub fn due(&mut self, now: Mono, limits: &HangLimits) -> Option<Due> {
        if self.deadline(limits).is_none_or(|at| now < at) {
            return None;
        }
        match &mut self.0 {
            State::Running(running) if running.hang_reported.is_none() => {
                running.hang_reported = Some(now);
                Some(Due::Hang)
            }
            State::Leaving { by, running, .. } if now < *by => {
                *running = None;
                Some(Due::Hang)
            }
            State::Returned { .. } => {
                self.0 = State::Off;
                Some(Due::Alone)
            }
            State::Running(_) | State::Leaving { .. } | State::Waiting { .. } | State::Hooks { .. } => {
                self.ends(now, limits);
                Some(Due::Terminate)
            }
            State::Ending { .. } => {
                self.dies(now);
                Some(Due::Kill)
            }
            State::Killed { .. } => {
                self.0 = State::Off;
                Some(Due::Stuck)
            }
            State::Off => None,
        }
    }

    /// Returns the time of the next step, if no message arrives before.
    #[must_use]
    pub fn deadline(&self, limits: &HangLimits) -> Option<Mono> {
        match &self.0 {
            State::Off => None,
            State::Running(running) if running.hang_reported.is_none() => running.hangs_at(limits),
            State::Running(running) => running.overdue_at(limits),
            State::Returned { since } => Some(*since + limits.completion),
            State::Leaving { by, running, .. } => {
                earliest(Some(*by), running.and_then(|running| running.hangs_at(limits)))
            }
            State::Waiting { since } => Some(*since + limits.barrier),
            State::Hooks { since, section } => Some(*since + section.unwrap_or(Some(limits.hard))?),
            State::Ending { until } | State::Killed { until } => Some(*until),
        }
    }
}

/// When the first of several has to be looked at. A rank that sends messages has more time than before. That is found out when the time
/// comes, so a message costs no more than itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Soonest(Option<Mono>);

impl Soonest {
    /// Takes in a rank that may have to be looked at sooner.
    pub fn mind(&mut self, watch: &Watch, limits: &HangLimits) {
        self.0 = earliest(self.0, watch.deadline(limits));
    }

    /// Whether it is time to look at all; then each of those that stay is to be minded again.
    pub fn is_over(&mut self, now: Mono) -> bool {
        self.0.take_if(|at| *at <= now).is_some()
    }

    /// When.
    #[must_use]
    pub const fn deadline(&self) -> Option<Mono> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const LIMITS: HangLimits = HangLimits {
        soft: Span::from_secs(60),
        hard: Span::from_secs(90),
        barrier: Span::from_secs(120),
        completion: Span::from_secs(100),
        grace: Span::from_secs(5),
        others: Span::ZERO,
    };

    fn at(secs: u64) -> Mono {
        Mono::from_nanos(0) + Span::from_secs(secs)
    }

    /// All steps that become due of a rank without messages: step and time.
    fn end(mut watch: Watch) -> Vec<(Due, u64)> {
        let mut all = Vec::new();
        while let Some(when) = watch.deadline(&LIMITS) {
            assert_eq!(watch.due(Mono::from_nanos(when.nanos() - 1), &LIMITS), None, "not before its time");
            let due = watch.due(when, &LIMITS).expect("at its time");
            all.push((due, when.nanos() / 1_000_000_000));
        }
        all
    }

    fn running() -> Watch {
        let mut watch = Watch::default();
        watch.begin();
        watch.alive(at(100), false);
        watch
    }

    #[test]
    fn rank_in_planned_leave_may_be_silent() {
        let mut watch = running();
        watch.leave(at(110), Span::from_secs(30), &LIMITS);
        assert_eq!(
            end(watch),
            [(Due::Hang, 160), (Due::Terminate, 230), (Due::Kill, 235), (Due::Stuck, 245)],
            "it has not begun to"
        );
        // As a client says it where it takes the interrupt.
        watch.section(at(120), None);
        assert_eq!(end(watch), [(Due::Terminate, 230), (Due::Kill, 235), (Due::Stuck, 245)]);
    }

    #[test]
    fn silent_rank_is_reported_then_ended() {
        assert_eq!(end(running()), [(Due::Hang, 160), (Due::Terminate, 190), (Due::Kill, 195), (Due::Stuck, 205)]);
        let mut watch = running();
        watch.alive(at(150), false);
        assert_eq!(end(watch), [(Due::Hang, 210), (Due::Terminate, 240), (Due::Kill, 245), (Due::Stuck, 255)]);
        assert_eq!(end(Watch::default()), []);
    }

    #[test]
    fn rank_without_pings_may_be_silent() {
        let mut watch = Watch::default();
        watch.begin();
        assert_eq!(end(watch), []);
        watch.section(at(100), Some(Span::from_secs(7)));
        assert_eq!(end(watch)[0], (Due::Hang, 107), "unless it has asked for a limit");
        watch.section(at(105), Some(Span::ZERO));
        assert_eq!(end(watch), [], "which it has ended");
        watch.section(at(110), Some(Span::from_secs(7)));
        watch.alive(at(112), true);
        assert_eq!(end(watch)[0], (Due::Hang, 119), "it has got on in it");
    }

    #[test]
    fn pinging_rank_has_to_ping_again() {
        let mut watch = running();
        watch.alive(at(110), true);
        watch.alive(at(150), false);
        assert_eq!(end(watch)[0], (Due::Hang, 170), "its main thread runs, its steps do not");
        watch.alive(at(160), true);
        assert_eq!(end(watch)[0], (Due::Hang, 220));
    }

    #[test]
    fn sections_have_their_own_limits() {
        let mut watch = running();
        watch.alive(at(100), true);
        watch.section(at(110), Some(Span::from_secs(300)));
        assert_eq!(end(watch), [(Due::Hang, 410), (Due::Terminate, 440), (Due::Kill, 445), (Due::Stuck, 455)]);
        watch.section(at(120), None);
        assert_eq!(end(watch), [], "for ever");
        watch.section(at(900), Some(Span::ZERO));
        assert_eq!(end(watch)[0], (Due::Hang, 960), "its own again, from where it ends");
    }

    #[test]
    fn interrupted_rank_has_the_hard_timeout_to_leave() {
        let mut watch = running();
        watch.section(at(110), None);
        watch.leave(at(150), Span::ZERO, &LIMITS);
        assert_eq!(end(watch), [(Due::Terminate, 240), (Due::Kill, 245), (Due::Stuck, 255)], "in a section too");
        let mut planned = running();
        planned.leave(at(150), Span::from_secs(30), &LIMITS);
        assert_eq!(
            end(planned)[..2],
            [(Due::Hang, 160), (Due::Terminate, 270)],
            "its silence counts while its ping is waited for"
        );
        planned.alive(at(152), false);
        assert_eq!(end(planned)[..2], [(Due::Hang, 212), (Due::Terminate, 270)]);
        let mut silent = planned;
        silent.section(at(153), None);
        assert_eq!(end(silent)[0], (Due::Terminate, 270), "unless it has asked for silence");
        planned.leave(at(155), Span::ZERO, &LIMITS);
        assert_eq!(end(planned)[0], (Due::Terminate, 245), "a planned round has become an urgent one");
    }

    #[test]
    fn hanging_rank_has_less_time_without_progress() {
        let mut watch = running();
        assert_eq!(watch.due(at(160), &LIMITS), Some(Due::Hang));
        watch.leave(at(161), Span::ZERO, &LIMITS);
        assert_eq!(end(watch)[0], (Due::Terminate, 190));
        watch.alive(at(170), false);
        assert_eq!(end(watch)[0], (Due::Terminate, 251));
    }

    #[test]
    fn a_host_that_slept_ends_nobody_who_only_slept() {
        let mut watch = running();
        assert_eq!(watch.due(at(4000), &LIMITS), Some(Due::Hang));
        assert_eq!(watch.due(at(4000), &LIMITS), None, "it has its time to leave");
        assert_eq!(end(watch), [(Due::Terminate, 4030), (Due::Kill, 4035), (Due::Stuck, 4045)]);
    }

    #[test]
    fn ready_rank_waits_until_barrier_timeout() {
        let mut watch = running();
        watch.leave(at(150), Span::ZERO, &LIMITS);
        watch.ready(at(151), &LIMITS);
        // Others may leave until 240, are killed by 245, and given up by 255.
        assert_eq!(end(watch), [(Due::Terminate, 375), (Due::Kill, 380), (Due::Stuck, 390)]);
        watch.others_leave(at(200), Span::from_secs(60), &LIMITS);
        assert_eq!(end(watch)[0], (Due::Terminate, 485));
        watch.rest();
        assert_eq!(end(watch), []);
    }

    #[test]
    fn returned_rank_waits_until_completion_timeout() {
        let mut watch = running();
        watch.returned(at(110));
        watch.alive(at(150), true);
        assert_eq!(end(watch), [(Due::Alone, 210)], "and is not ended for it");
        assert_eq!(watch.due(at(210), &LIMITS), Some(Due::Alone));
        watch.leave(at(211), Span::ZERO, &LIMITS);
        assert_eq!(end(watch)[0], (Due::Terminate, 301));
    }

    #[test]
    fn an_end_that_has_begun_is_not_taken_back() {
        let mut watch = running();
        watch.leave(at(150), Span::ZERO, &LIMITS);
        assert_eq!(watch.due(at(240), &LIMITS), Some(Due::Terminate));
        watch.ready(at(241), &LIMITS);
        watch.alive(at(242), true);
        assert!(watch.is_ending());
        assert_eq!(end(watch), [(Due::Kill, 245), (Due::Stuck, 255)]);
    }

    #[test]
    fn hooks_come_to_their_end_where_nothing_else_is_looked_at() {
        let mut watch = Watch::default();
        watch.hooks(at(100), true);
        watch.alive(at(150), true);
        assert_eq!(
            end(watch),
            [(Due::Terminate, 190), (Due::Kill, 195), (Due::Stuck, 205)],
            "a word of it changes nothing"
        );
        watch.section(at(160), Some(Span::from_secs(1000)));
        assert_eq!(end(watch)[0], (Due::Terminate, 1160));
        watch.section(at(170), None);
        assert_eq!(end(watch), []);
        watch.section(at(180), Some(Span::ZERO));
        assert_eq!(end(watch)[0], (Due::Terminate, 270));
        let mut left = watch;
        left.leave(at(200), Span::ZERO, &LIMITS);
        left.hooks(at(201), true);
        assert_eq!(end(left)[0], (Due::Terminate, 290));
        watch.hooks(at(190), false);
        assert_eq!(end(watch), []);
    }

    /// As of a program whose library does not look by itself whether it makes progress.
    #[test]
    fn hooks_in_place_of_the_function_are_to_get_on() {
        let mut watch = Watch::default();
        watch.begin();
        assert_eq!(end(watch), []);
        watch.hooks(at(100), true);
        assert_eq!(end(watch)[0], (Due::Hang, 160));
        watch.section(at(110), Some(Span::from_secs(10)));
        watch.section(at(115), Some(Span::ZERO));
        assert_eq!(end(watch)[0], (Due::Hang, 175));
        watch.hooks(at(120), false);
        assert_eq!(end(watch), [], "the function may be silent");
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin,
        Alive(bool),
        Section(Option<u8>),
        Hooks(bool),
        Leave(u8),
        Ready,
        OthersLeave(u8),
        Returned,
        Rest,
        Look,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Begin),
            any::<bool>().prop_map(Step::Alive),
            any::<Option<u8>>().prop_map(Step::Section),
            any::<bool>().prop_map(Step::Hooks),
            any::<u8>().prop_map(Step::Leave),
            Just(Step::Ready),
            any::<u8>().prop_map(Step::OthersLeave),
            Just(Step::Returned),
            Just(Step::Rest),
            Just(Step::Look),
        ]
    }

    proptest! {
        /// For every history: no step is due before its deadline, some step is due at it, steps come in their order, and a look at the
        /// right time misses no rank.
        #[test]
        fn deadlines_are_kept(steps in proptest::collection::vec((step(), 0u64..70), 0..60)) {
            let (mut watch, mut soonest, mut now, mut last) = (Watch::default(), Soonest::default(), at(1), None);
            for (step, pause) in steps {
                let due_at = watch.deadline(&LIMITS);
                now = now + Span::from_secs(pause);
                let due = watch.due(now, &LIMITS);
                prop_assert_eq!(due.is_some(), due_at.is_some_and(|at| at <= now));
                match due {
                    Some(Due::Hang) => prop_assert_ne!(last, Some(Due::Hang), "once in a round"),
                    Some(Due::Kill) => prop_assert_eq!(last, Some(Due::Terminate)),
                    Some(Due::Stuck) => prop_assert_eq!(last, Some(Due::Kill)),
                    Some(Due::Alone | Due::Terminate) | None => {}
                }
                last = due.or(last);
                match step {
                    Step::Begin if !watch.is_ending() => {
                        watch.begin();
                        last = None;
                    }
                    Step::Begin | Step::Look => {}
                    Step::Alive(pinged) => watch.alive(now, pinged),
                    Step::Section(span) => watch.section(now, span.map(|secs| Span::from_secs(secs.into()))),
                    Step::Hooks(run) => watch.hooks(now, run),
                    Step::Leave(within) => watch.leave(now, Span::from_secs(within.into()), &LIMITS),
                    Step::Ready => watch.ready(now, &LIMITS),
                    Step::OthersLeave(within) => watch.others_leave(now, Span::from_secs(within.into()), &LIMITS),
                    Step::Returned => watch.returned(now),
                    Step::Rest if !watch.is_ending() => watch.rest(),
                    Step::Rest => {}
                }
                soonest.mind(&watch, &LIMITS);
                prop_assert!(watch.deadline(&LIMITS).is_none_or(|at| soonest.deadline().is_some_and(|look| look <= at)));
                if soonest.is_over(now) {
                    soonest.mind(&watch, &LIMITS);
                }
            }
        }
    }
}
