//! A round, as the function that runs in it sees it.

use crate::session::Session;
use crate::state::{Fault, Mode, State};
use crate::token::Token;
use crate::{Error, Interrupted};
use std::cell::Cell;
use std::time::Duration;

/// The present round. Threads that the function starts may use [`Round::token`], and a reference to [`Round::handle`].
pub struct Round {
    handle: Handle,
    state: State,
    token: Token,
    env: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ends: Cell<bool>,
}

/// The calls of a round that any thread may make.
#[derive(Clone, Debug)]
pub struct Handle {
    session: Session,
}

impl Round {
    pub(crate) fn new(session: &Session, state: State, env: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<Self, Error> {
        let token = session.token()?;
        Ok(Self { handle: Handle { session: session.clone() }, state, token, env, ends: Cell::new(false) })
    }

    /// All that is known of this process in it.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Its number among the healthy processes.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.state.rank
    }

    /// How many these are.
    #[must_use]
    pub const fn world_size(&self) -> u32 {
        self.state.world_size
    }

    /// Its number among those that work: RANK. (A function runs only where there is one.)
    #[must_use]
    pub const fn active_rank(&self) -> Option<u32> {
        self.state.active_rank
    }

    /// How many these are: WORLD_SIZE.
    #[must_use]
    pub const fn active_world_size(&self) -> u32 {
        self.state.active_world_size
    }

    /// The number that the process keeps through all rounds.
    #[must_use]
    pub const fn initial_rank(&self) -> u32 {
        self.state.initial_rank
    }

    /// The number of the round, 0 first.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.state.number
    }

    /// The role of the process in it.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.state.mode
    }

    /// The fault that ended the round before.
    #[must_use]
    pub const fn fault(&self) -> Option<&Fault> {
        self.state.fault.as_ref()
    }

    /// A variable of the round, such as MASTER_PORT: with its value in the environment, but no other code can change it.
    #[must_use]
    pub fn var(&self, name: &str) -> Option<&[u8]> {
        let (_, value) = self.env.iter().find(|(key, _)| key == name.as_bytes())?;
        value.as_deref()
    }

    /// All variables of the round; `None`: it is not set.
    #[must_use]
    pub fn env(&self) -> &[(Vec<u8>, Option<Vec<u8>>)] {
        &self.env
    }

    /// The end of the round, for other threads and for waits.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token.clone()
    }

    /// For other threads.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether the round has ended: the function is to return, with whatever error.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.token.interrupted()
    }

    /// As [`Handle::ping`].
    ///
    /// # Errors
    /// The round has ended.
    pub fn ping(&self) -> Result<(), Interrupted> {
        self.handle.ping()
    }

    /// As [`Handle::atomic`].
    ///
    /// # Errors
    /// The round has ended: nothing was run.
    pub fn atomic<T>(&self, body: impl FnOnce() -> T) -> Result<T, Interrupted> {
        self.handle.atomic(body)
    }

    /// As [`Handle::section`].
    ///
    /// # Errors
    /// The message to the agent fails.
    pub fn section<T>(&self, limit: Option<Duration>, body: impl FnOnce() -> T) -> Result<T, Error> {
        self.handle.section(limit, body)
    }

    /// The error that the function returns now is no restart's business: this process takes no part any more, and the others continue. (With
    /// what a panic says it is the same.)
    pub fn end(&self) {
        self.ends.set(true);
    }

    pub(crate) fn is_to_end(&self) -> bool {
        self.ends.get()
    }
}

impl Handle {
    /// Reports progress. A program that calls this once in a round is taken to hang when it is silent. Planned rounds begin here, so the
    /// call belongs between two steps. It costs some nanoseconds.
    ///
    /// # Errors
    /// The round has ended: the function is to return.
    pub fn ping(&self) -> Result<(), Interrupted> {
        match self.session.ping() {
            Err(Error::Interrupted(interrupted)) => Err(interrupted),
            // A forked child has no part in the session, and is not to be interrupted either.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Runs something that is not to be interrupted: no hook runs and no wait is ended before it has returned.
    ///
    /// # Errors
    /// The round has ended: nothing was run.
    pub fn atomic<T>(&self, body: impl FnOnce() -> T) -> Result<T, Interrupted> {
        struct End<'a>(&'a Session);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                drop(self.0.atomic_end());
            }
        }
        if let Err(Error::Interrupted(interrupted)) = self.session.atomic_begin() {
            return Err(interrupted);
        }
        let _end = End(&self.session);
        Ok(body())
    }

    /// Runs something that may be silent for longer than the limits say; `None`: for ever. Behind one within another the outer one's limit
    /// holds again; of several threads' the last one counts.
    ///
    /// # Errors
    /// The message to the agent fails.
    pub fn section<T>(&self, limit: Option<Duration>, body: impl FnOnce() -> T) -> Result<T, Error> {
        struct End<'a>(&'a Session, u64);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                // Where the agent is gone, that is learnt elsewhere.
                drop(self.0.section_end(Some(self.1)));
            }
        }
        let _end = End(&self.session, self.session.section_begin(limit)?);
        Ok(body())
    }

    /// The function has failed, on whatever thread that is seen: the round ends by it, as by an error of the function's.
    ///
    /// # Errors
    /// The round has ended already, or the function has returned in it.
    pub fn fail(&self, text: &str) -> Result<(), Error> {
        self.session.fault(text.as_bytes())
    }

    /// Whether the round has ended.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.session.interrupted()
    }
}

impl std::fmt::Debug for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Round").field("state", &self.state).field("token", &self.token).finish_non_exhaustive()
    }
}
