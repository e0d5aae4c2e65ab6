//! A function that is run again when a process of the job fails, in the processes that are left.

use crate::caught::caught;
use crate::hooks::{BoxError, Hooks};
use crate::kernel::set_environment;
use crate::round::Round;
use crate::session::{Next, Options, Session};
use crate::state::{Cause, Leave, Mode, State};
use crate::{Error, World};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_protocol::wire::frozen::client::client_round::Dismissal;
use std::time::Duration;

/// Why the function is not run any more, although its work is not done.
#[derive(Debug, thiserror::Error)]
pub enum RestartError {
    /// The policy does not want this process any more; the others continue.
    #[error("this process is not needed any more{}", colon(.0))]
    Discarded(String),
    /// No further round is possible: rlaunch ends the job, or starts all of its processes again.
    #[error("no further round is possible{}", colon(.0))]
    GivenUp(String),
    /// The process cannot take part as it has asked.
    #[error("this process cannot take part in rounds{}", colon(.0))]
    Refused(String),
    /// The process has left; the others continue.
    #[error("this process takes no part in rounds any more: {source}")]
    Left {
        /// In which way.
        why: Leave,
        /// The error of the function, or of a hook that has to succeed.
        source: BoxError,
    },
    /// The agent was lost, or there is none.
    #[error(transparent)]
    Client(#[from] Error),
}

fn colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// How a function is run. Terms that are not set are the defaults of docs/reference/rust.md; all ranks have to ask for the same.
#[must_use]
pub struct Restart<'a> {
    terms: Vec<(OsBytes, OsBytes)>,
    keys: Vec<Key<'a>>,
    hooks: Hooks<'a>,
    keeps_environment: bool,
}

type Key<'a> = Box<dyn Fn(&State) -> Result<String, BoxError> + 'a>;

/// How the function came to an end.
enum Left<T> {
    Returned(T),
    Waits,
    Interrupted,
    Failed(String),
    Ends(Leave, BoxError),
}

impl<'a> Restart<'a> {
    /// With defaults only.
    pub fn builder() -> Self {
        Self { terms: Vec::new(), keys: Vec::new(), hooks: Hooks::default(), keeps_environment: false }
    }

    /// The policy that assigns ranks: `max=8,shift` for one (docs/reference/policies.md). `--assign` on the command line goes first.
    pub fn policy(self, policy: &str) -> Self {
        self.term("policy", policy)
    }

    /// A rank that does not make progress for so long is interrupted.
    pub fn soft_timeout(self, time: Duration) -> Self {
        self.time("soft_timeout", time)
    }

    /// Time after which a rank that has not left its function is ended by its agent. A hook that takes longer is ended, too.
    pub fn hard_timeout(self, time: Duration) -> Self {
        self.time("hard_timeout", time)
    }

    /// How long a rank that is ready waits for the others.
    pub fn barrier_timeout(self, time: Duration) -> Self {
        self.time("barrier_timeout", time)
    }

    /// How long a rank whose function has returned waits for the others.
    pub fn completion_timeout(self, time: Duration) -> Self {
        self.time("completion_timeout", time)
    }

    /// How long a process that is ended has between SIGTERM and SIGKILL.
    pub fn termination_grace(self, time: Duration) -> Self {
        self.time("termination_grace", time)
    }

    /// Interval between reports that a rank makes progress.
    pub fn progress_interval(self, time: Duration) -> Self {
        self.time("progress_interval", time)
    }

    /// At most so many rounds.
    pub fn max_rounds(self, count: u32) -> Self {
        self.term("max_rounds", &count.to_string())
    }

    /// At least so many healthy processes.
    pub fn min_world(self, count: u32) -> Self {
        self.term("min_world", &count.to_string())
    }

    /// At least so many that work.
    pub fn min_active(self, count: u32) -> Self {
        self.term("min_active", &count.to_string())
    }

    /// At most so many faults of one rank's own.
    pub fn max_rank_faults(self, count: u32) -> Self {
        self.term("max_rank_faults", &count.to_string())
    }

    /// A value by which policies group, asked before the first round and whenever the process is ready: in the order in which the policy names those that only a program
    /// knows. With an error the process does not take part, or leaves; the others continue.
    pub fn key(mut self, key: impl Fn(&State) -> Result<String, BoxError> + 'a) -> Self {
        self.keys.push(Box::new(key));
        self
    }

    /// Leaves the environment as it is: what a round changes is only in [`Round::var`]. For programs with threads that read the environment by C's
    /// `getenv`, while it is set between two rounds.
    pub const fn keep_environment(mut self) -> Self {
        self.keeps_environment = true;
        self
    }

    /// Before the function, in each round. An error begins another round.
    pub fn initialize(mut self, hook: impl Fn(&State) -> Result<(), BoxError> + 'a) -> Self {
        self.hooks.initialize.push(Box::new(hook));
        self
    }

    /// A hook that runs when a round ends, before the function is notified, on a thread of this library's: it unblocks calls that block
    /// the function. An error is reported.
    pub fn abort(mut self, hook: impl Fn(&State) -> Result<(), BoxError> + Send + 'static) -> Self {
        self.hooks.abort.push(Box::new(hook));
        self
    }

    /// After the function was left because the round has ended. An error ends this process's part.
    pub fn finalize(mut self, hook: impl Fn(&State) -> Result<(), BoxError> + 'a) -> Self {
        self.hooks.finalize.push(Box::new(hook));
        self
    }

    /// Before the function in each round, and behind `finalize`. An error ends this process's part.
    pub fn health_check(mut self, hook: impl Fn(&State) -> Result<(), BoxError> + 'a) -> Self {
        self.hooks.health_check.push(Box::new(hook));
        self
    }

    /// When the work is done on all processes. An error is reported.
    pub fn completion(mut self, hook: impl Fn(&State) -> Result<(), BoxError> + 'a) -> Self {
        self.hooks.completion.push(Box::new(hook));
        self
    }

    /// When this process takes no part any more although the work is not done. An error is reported.
    pub fn terminate(mut self, hook: impl Fn(&State) -> Result<(), BoxError> + 'a) -> Self {
        self.hooks.terminate.push(Box::new(hook));
        self
    }

    fn time(self, name: &str, time: Duration) -> Self {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.term(name, &format!("{}ms", Span::from_nanos(nanos).millis()))
    }

    /// A term by its name. The last value counts.
    fn term(mut self, name: &str, value: &str) -> Self {
        self.set_term(name, value);
        self
    }

    pub(crate) fn set_term(&mut self, name: &str, value: &str) {
        self.terms.retain(|(other, _)| **other != *name.as_bytes());
        self.terms.push((name.into(), value.into()));
    }

    /// Runs a function on all processes of the job that call this with the same terms, again and again until it has returned on all that work;
    /// its value, or `None` where this process waited in reserve.
    ///
    /// The function learns by its [`Round`] that it is to return early; errors and panics that come from that do not count.
    ///
    /// # Errors
    /// This process takes no part any more, or no round is possible.
    pub fn run<T, E: Into<BoxError>>(
        mut self,
        function: impl FnMut(&Round) -> Result<T, E>,
    ) -> Result<Option<T>, RestartError> {
        let session = self.open()?;
        let _closes = Closes(&session);
        self.rounds(&session, function)
    }

    /// Registers this process under these terms. The session is to be closed.
    pub(crate) fn open(&mut self) -> Result<Session, Error> {
        if !self.keys.is_empty() {
            self.set_term("keys", &self.keys.len().to_string());
            let state = World::quietly()?.state();
            let keys = self.values(&state).map_err(Error::Key)?;
            // For the first round there is no word of being ready.
            for (index, value) in keys.iter().enumerate() {
                self.set_term(&format!("key.{index}"), value);
            }
        }
        let abort = std::mem::take(&mut self.hooks.abort);
        let has_hooks = !abort.is_empty();
        let on_abort = Box::new(move |state: &State, cause: &Cause| {
            Hooks::report("abort", &ended(state, Some(cause), state.mode), abort.iter().map(|hook| hook as _));
        });
        let on_abort = has_hooks.then_some(on_abort as _);
        Session::register(&self.terms, Options { foreign: false, on_abort })
    }

    pub(crate) fn rounds<T, E: Into<BoxError>>(
        &self,
        session: &Session,
        mut function: impl FnMut(&Round) -> Result<T, E>,
    ) -> Result<Option<T>, RestartError> {
        let mut value = None;
        let mut last = None;
        loop {
            match session.next()? {
                Next::Begin(state, env) => {
                    last = Some(state.clone());
                    if !self.keeps_environment {
                        set_environment(&env);
                    }
                    value = self.round(session, state, env, &mut function)?;
                }
                Next::Interrupt(state, cause) => {
                    value = None;
                    self.clean_up(session, &state, &cause)?;
                }
                Next::Finish => {
                    if let Some(state) = last.as_ref().filter(|_| !self.hooks.completion.is_empty()) {
                        // Without an agent the watch has ended.
                        drop(session.hooks(true));
                        Hooks::report("completion", state, self.hooks.completion.iter().map(|hook| hook as _));
                    }
                    return Ok(value);
                }
                Next::Dismissed(why, text) => {
                    if let Some(state) = &last {
                        self.terminate_hooks(session, &ended(state, session.cause().as_ref(), Mode::Terminated));
                    }
                    return Err(match why {
                        Dismissal::Discarded => RestartError::Discarded(text),
                        Dismissal::GivenUp => RestartError::GivenUp(text),
                        Dismissal::Refused => RestartError::Refused(text),
                    });
                }
            }
        }
    }

    /// Runs one round. Returns the function's result, if there is one.
    fn round<T, E: Into<BoxError>>(
        &self,
        session: &Session,
        state: State,
        env: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        function: &mut impl FnMut(&Round) -> Result<T, E>,
    ) -> Result<Option<T>, RestartError> {
        let round = Round::new(session, state, env)?;
        let mut left = match session.enter() {
            Ok(()) => self.inside(session, &round, function),
            Err(Error::Interrupted(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // An end is the program's wish, whatever else happens. But what a health check looks at may have ended with the round, and it is
        // asked again before the next one.
        match session.exit() {
            Err(Error::Interrupted(_)) if !matches!(left, Left::Ends(Leave::Abort, _)) => left = Left::Interrupted,
            Ok(()) | Err(Error::Interrupted(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let said = match left {
            Left::Returned(value) => match session.returned() {
                Ok(()) => return Ok(Some(value)),
                error => error,
            },
            Left::Failed(text) => session.fault(text.as_bytes()),
            // `next` reports it.
            Left::Waits | Left::Interrupted => Ok(()),
            Left::Ends(why, source) => return Err(self.leave(session, round.state(), why, source)),
        };
        match said {
            Ok(()) | Err(Error::Interrupted(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn inside<T, E: Into<BoxError>>(
        &self,
        session: &Session,
        round: &Round,
        function: &mut impl FnMut(&Round) -> Result<T, E>,
    ) -> Left<T> {
        let state = round.state();
        let hooks = !(self.hooks.initialize.is_empty() && self.hooks.health_check.is_empty());
        if hooks {
            // Where the agent is gone, that is read soon.
            drop(session.hooks(true));
        }
        if let Err(error) = Hooks::all("initialize", state, &self.hooks.initialize) {
            return Left::Failed(error.to_string());
        }
        if let Err(error) = Hooks::all("health check", state, &self.hooks.health_check) {
            return Left::Ends(Leave::Unhealthy, error);
        }
        if hooks {
            drop(session.hooks(false));
        }
        if state.mode == Mode::Active { Self::works(round, function) } else { Left::Waits }
    }

    fn works<T, E: Into<BoxError>>(round: &Round, function: &mut impl FnMut(&Round) -> Result<T, E>) -> Left<T> {
        let error = match caught(|| function(round)) {
            Ok(Ok(value)) => return Left::Returned(value),
            Ok(Err(error)) => error.into(),
            Err(panic) => panic.into(),
        };
        if round.is_to_end() { Left::Ends(Leave::Abort, error) } else { Left::Failed(text_of(&*error)) }
    }

    /// After a round has ended, until another one may begin.
    fn clean_up(&self, session: &Session, state: &State, cause: &Cause) -> Result<(), RestartError> {
        session.wait_aborted()?;
        let state = ended(state, Some(cause), state.mode);
        for (name, hooks) in [("finalize", &self.hooks.finalize), ("health check", &self.hooks.health_check)] {
            if let Err(error) = Hooks::all(name, &state, hooks) {
                return Err(self.leave(session, &state, Leave::Unhealthy, error));
            }
        }
        match self.values(&state) {
            Ok(keys) => Ok(session.ready(keys.into_iter().map(Into::into).collect())?),
            Err(text) => Err(self.leave(session, &state, Leave::Unhealthy, Error::Key(text).into())),
        }
    }

    /// Returns the present values of the keys, or the reason why one has none.
    fn values(&self, state: &State) -> Result<Vec<String>, String> {
        let value = |key: &Key<'_>| match caught(|| key(state)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(text_of(&*error)),
            Err(panic) => Err(panic),
        };
        self.keys.iter().map(value).collect()
    }

    fn leave(&self, session: &Session, state: &State, why: Leave, source: BoxError) -> RestartError {
        // If the message fails the agent is gone; the program's own error is more useful than that.
        if session.leave(why, text_of(&*source).as_bytes()).is_ok() {
            drop(session.wait_aborted());
        }
        self.terminate_hooks(session, &ended(state, session.cause().as_ref(), Mode::Terminated));
        RestartError::Left { why, source }
    }

    fn terminate_hooks(&self, session: &Session, state: &State) {
        if self.hooks.terminate.is_empty() {
            return;
        }
        drop(session.hooks(true));
        Hooks::report("terminate", state, self.hooks.terminate.iter().map(|hook| hook as _));
    }
}

/// The state after the end of a round.
fn ended(state: &State, cause: Option<&Cause>, mode: Mode) -> State {
    State { fault: cause.and_then(Cause::fault).cloned(), mode, ..state.clone() }
}

/// An error with what it comes from.
fn text_of(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

pub(crate) struct Closes<'a>(pub(crate) &'a Session);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
