//! The knowledge of a process about its part in a round.

use rlaunch_base::id::Rank;
pub use rlaunch_plan::rank_assign::Mode;
pub use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::wire::frozen::client::client_round::Begin;

/// A process in a round, as it was at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// The number of the round, 0 first.
    pub number: u32,
    /// The role of the process in it.
    pub mode: Mode,
    /// Its number among the healthy processes.
    pub rank: u32,
    /// How many these are.
    pub world_size: u32,
    /// Its number among those that work; `None`: it waits in reserve.
    pub active_rank: Option<u32>,
    /// How many these are.
    pub active_world_size: u32,
    /// The number that it keeps.
    pub initial_rank: u32,
    /// How many processes there were first.
    pub initial_world_size: u32,
    /// The fault that ended the round before. For hooks that run after the end of a round, and for the keys of policies: the fault that
    /// ended this one.
    pub fault: Option<Fault>,
}

impl State {
    pub(crate) fn of(begin: &Begin) -> Self {
        Self {
            number: begin.round.get(),
            mode: begin.mode(),
            rank: begin.rank.get(),
            world_size: begin.world_size,
            active_rank: begin.active_rank.map(Rank::get),
            active_world_size: begin.active_world_size,
            initial_rank: begin.initial_rank.get(),
            initial_world_size: begin.initial_world_size,
            fault: begin.fault.clone(),
        }
    }
}

/// Why a round is to be left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A rank has failed, or the round was planned.
    Fault(Fault),
    /// There are no rounds any more, for this reason.
    Over(String),
}

impl Cause {
    /// The fault, where it is one.
    pub(crate) const fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Fault(fault) => Some(fault),
            Self::Over(_) => None,
        }
    }
}
