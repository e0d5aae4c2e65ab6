//! Commands of the user's that run at each restart and at the job's end (`--on-restart`, `--on-exit`): their order, their variables, and
//! their time limit.
//!
//! They run beside the job, one after the other: no round and no restart waits for them, and how one ends changes nothing about the
//! job. Where restarts follow each other faster than a command ends, some wait and the rest are counted. At the job's end those that
//! wait have one time limit together, and the last command has one of its own.

#![allow(clippy::wildcard_enum_match_arm, reason = "a reader of facts names those that it cares about")]

mod hook_context;

pub use hook_context::{Vars, concerns};

use crate::events::Record;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hook_context::{Call, Facts};
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::Machine;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::patience::Patience;
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::place::Placement;

/// Restarts that may wait for the command that runs.
const WAITING: usize = 8;
/// From SIGTERM to SIGKILL.
const GRACE: Span = Span::from_secs(2);
/// How long a killed one may take to be gone.
const GONE: Span = Span::from_secs(1);

/// The user's choice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// `--on-restart`
    pub on_restart: Option<OsBytes>,
    /// `--on-exit`
    pub on_exit: Option<OsBytes>,
    /// How long one may take.
    pub within: Span,
}

impl Wanted {
    /// The default time limit.
    pub const WITHIN: Span = Span::from_secs(30);

    /// Whether there is any.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.on_restart.is_some() || self.on_exit.is_some()
    }
}

/// Which command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// The one of a restart.
    Restart,
    /// The one of the end.
    Exit,
}

/// An event of the hooks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookEvent {
    /// Something of the job that [`concerns`] them.
    Record(Box<Record>),
    /// The command that was started has ended.
    Ended(Status),
    /// The command could not be started: errno.
    Unstarted(i32),
    /// The user wants rlaunch to end.
    Signal,
}

/// An action for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookAction {
    /// Start this one; answered by `Ended` or `Unstarted`.
    Start {
        /// Which.
        on: On,
        /// For a shell.
        command: OsBytes,
        /// The variables to add to its environment.
        vars: Vars,
    },
    /// Signal it and all that it has started: SIGTERM, or SIGKILL.
    End {
        /// SIGKILL.
        hard: bool,
    },
    /// Wait for it no more: the kernel does not end it.
    Leave,
    /// Print this for the user.
    Say(HookNote),
}

/// A report for the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookNote {
    /// A command cannot be started: errno.
    Unstarted(On, i32),
    /// A command has failed.
    Failed(On, Status),
    /// A command took longer than its limit.
    Late(On, Span),
    /// A command cannot be ended.
    Stuck(On),
    /// Number of restarts for which the command did not run.
    Skipped(u32),
}

/// The commands of a job.
#[derive(Debug)]
pub struct Hooks {
    wanted: Wanted,
    facts: Facts,
    state: State,
    waiting: VecDeque<Call>,
    /// Restarts since the last one for which a command ran.
    skipped: u32,
    /// The job has ended.
    over: bool,
    /// Then: what those that still wait may take, together.
    rest: Patience,
    exit: Option<Call>,
    actions: VecDeque<HookAction>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    /// A command runs.
    Runs(On, Patience),
    /// A command was sent SIGTERM.
    Asked(On, Patience),
    /// A command was killed.
    Killed(On, Patience),
}

impl Hooks {
    /// Creates the hooks of a job with this placement, on hosts of these names.
    #[must_use]
    pub fn new(wanted: Wanted, placement: Arc<Placement>, hosts: Vec<String>) -> Self {
        let rest = Patience::new(Mono::default(), wanted.within);
        Self {
            wanted,
            facts: Facts::new(placement, hosts),
            state: State::Idle,
            waiting: VecDeque::new(),
            skipped: 0,
            over: false,
            rest,
            exit: None,
            actions: VecDeque::new(),
        }
    }

    /// Ranks run there from now on.
    pub fn place(&mut self, placement: Arc<Placement>) {
        self.facts.place(placement);
    }

    /// A host has become known.
    pub fn know(&mut self, node: NodeId, name: &str) {
        self.facts.know(node, name);
    }

    /// Whether the job has ended and no command runs or will.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over && self.state == State::Idle && self.waiting.is_empty() && self.exit.is_none()
    }

    fn on_record(&mut self, now: Mono, record: &Record) {
        match self.facts.on_record(record) {
            Some(call) if call.on == On::Exit => {
                self.over = true;
                self.rest = Patience::new(now, self.wanted.within);
                self.exit = Some(call).filter(|_| self.wanted.on_exit.is_some());
            }
            Some(_) if self.wanted.on_restart.is_none() => {}
            Some(_) if self.waiting.len() >= WAITING => self.skipped = self.skipped.saturating_add(1),
            Some(call) => self.waiting.push_back(call),
            None => {}
        }
    }

    /// Drops the waiting commands.
    fn skip_all(&mut self) {
        let waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        self.skipped = self.skipped.saturating_add(waiting);
        self.waiting.clear();
    }

    /// Starts what is next, if nothing runs.
    fn next(&mut self, now: Mono) {
        if self.state != State::Idle {
            return;
        }
        if self.over && !self.waiting.is_empty() && self.rest.is_out(now) {
            self.skip_all();
        }
        if self.waiting.is_empty() && self.over {
            self.report_skipped();
        }
        let call = match self.waiting.pop_front() {
            Some(call) => Some(call),
            None => self.exit.take_if(|_| self.over),
        };
        let Some(Call { on, mut vars }) = call else { return };
        let (command, within) = match on {
            On::Restart if self.over => (&self.wanted.on_restart, self.rest),
            On::Restart => (&self.wanted.on_restart, Patience::new(now, self.wanted.within)),
            On::Exit => (&self.wanted.on_exit, Patience::new(now, self.wanted.within)),
        };
        let Some(command) = command.clone() else { return };
        if on == On::Restart {
            vars.push(("RLAUNCH_HOOK_SKIPPED", hook_context::number(self.skipped)));
            self.report_skipped();
        }
        self.state = State::Runs(on, within);
        self.actions.push_back(HookAction::Start { on, command, vars });
    }

    fn report_skipped(&mut self) {
        if self.skipped > 0 {
            let skipped = core::mem::take(&mut self.skipped);
            self.say(HookNote::Skipped(skipped));
        }
    }

    fn say(&mut self, note: HookNote) {
        self.actions.push_back(HookAction::Say(note));
    }

    fn ask(&mut self, now: Mono, on: On) {
        self.state = State::Asked(on, Patience::new(now, GRACE));
        self.actions.push_back(HookAction::End { hard: false });
    }

    fn kill(&mut self, now: Mono, on: On) {
        self.state = State::Killed(on, Patience::new(now, GONE));
        self.actions.push_back(HookAction::End { hard: true });
    }

    /// The user does not want to wait for what the job has left to be run.
    fn signal(&mut self, now: Mono) {
        if !self.over {
            return;
        }
        self.skip_all();
        match self.state {
            State::Idle | State::Killed(..) => {}
            State::Runs(on, _) => self.ask(now, on),
            State::Asked(on, _) => self.kill(now, on),
        }
    }
}

impl Machine for Hooks {
    type Event = HookEvent;
    type Action = HookAction;

    fn handle(&mut self, now: Mono, event: HookEvent) {
        match (self.state, event) {
            (_, HookEvent::Record(record)) => self.on_record(now, &record),
            (_, HookEvent::Signal) => self.signal(now),
            // No command runs that could end.
            (State::Idle, HookEvent::Ended(_) | HookEvent::Unstarted(_)) => {}
            (State::Runs(on, _), HookEvent::Ended(status)) => {
                self.state = State::Idle;
                if !status.is_success() {
                    self.say(HookNote::Failed(on, status));
                }
            }
            (State::Runs(on, _) | State::Asked(on, _) | State::Killed(on, _), HookEvent::Unstarted(errno)) => {
                self.state = State::Idle;
                self.say(HookNote::Unstarted(on, errno));
            }
            // How it ended says nothing: we have ended it.
            (State::Asked(..) | State::Killed(..), HookEvent::Ended(_)) => self.state = State::Idle,
        }
        self.next(now);
    }

    fn handle_timeout(&mut self, now: Mono) {
        match &mut self.state {
            State::Idle => {}
            State::Runs(on, patience) => {
                let (on, out) = (*on, patience.is_out(now));
                if out {
                    self.say(HookNote::Late(on, self.wanted.within));
                    self.ask(now, on);
                }
            }
            State::Asked(on, patience) => {
                let (on, out) = (*on, patience.is_out(now));
                if out {
                    self.kill(now, on);
                }
            }
            State::Killed(on, patience) => {
                let (on, out) = (*on, patience.is_out(now));
                if out {
                    self.state = State::Idle;
                    self.actions.push_back(HookAction::Leave);
                    self.say(HookNote::Stuck(on));
                }
            }
        }
        if self.over && !self.waiting.is_empty() && self.rest.is_out(now) {
            self.skip_all();
        }
        self.next(now);
    }

    fn poll_action(&mut self) -> Option<HookAction> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match &self.state {
            State::Idle => None,
            State::Runs(_, patience) | State::Asked(_, patience) | State::Killed(_, patience) => {
                Some(patience.deadline())
            }
        }
    }
}

#[cfg(test)]
mod tests;
