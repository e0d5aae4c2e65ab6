//! The hooks of a program at the begin and end of a round.

use crate::caught::caught;
use crate::state::State;

/// An error of the program's.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Hook<'a> = Box<dyn Fn(&State) -> Result<(), BoxError> + 'a>;
/// A hook that runs on the other thread.
pub(crate) type AbortHook = Box<dyn Fn(&State) -> Result<(), BoxError> + Send>;
type AnyHook<'a> = &'a dyn Fn(&State) -> Result<(), BoxError>;

#[derive(Default)]
pub(crate) struct Hooks<'a> {
    pub(crate) initialize: Vec<Hook<'a>>,
    pub(crate) abort: Vec<AbortHook>,
    pub(crate) finalize: Vec<Hook<'a>>,
    pub(crate) health_check: Vec<Hook<'a>>,
    pub(crate) completion: Vec<Hook<'a>>,
    pub(crate) terminate: Vec<Hook<'a>>,
}

impl Hooks<'_> {
    /// Runs hooks that have to succeed, up to the first that does not.
    pub(crate) fn all(name: &str, state: &State, hooks: &[Hook<'_>]) -> Result<(), BoxError> {
        hooks.iter().try_for_each(|hook| one(name, state, &**hook))
    }

    /// Runs all of them, and reports what goes wrong.
    pub(crate) fn report<'h>(name: &str, state: &State, hooks: impl Iterator<Item = AnyHook<'h>>) {
        for error in hooks.filter_map(|hook| one(name, state, hook).err()) {
            let State { initial_rank, number, .. } = state;
            eprintln!("rlaunch: initial rank {initial_rank}, round {number}: {error}");
        }
    }
}

fn one(name: &str, state: &State, hook: AnyHook<'_>) -> Result<(), BoxError> {
    let failed = |text: &dyn std::fmt::Display| format!("the {name} hook has failed: {text}").into();
    match caught(|| hook(state)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failed(&error)),
        Err(panic) => Err(failed(&panic)),
    }
}
