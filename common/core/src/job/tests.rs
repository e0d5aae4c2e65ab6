//! The rules of a job, each with a node that follows a script.

mod harness;

use super::*;
use crate::events::{Answer, Cause, Lost, What};
use crate::exit::Ending;
use crate::id::{ProcId, Rank, Std, StreamId};
use crate::report::{Became, Sentence};
use crate::signal::Signal;
use crate::spec::OnFailure;
use crate::status::Status;
use crate::time::Span;
use crate::wire::to_node::{SPAWN_BATCH, ToNode};
use crate::wire::to_root::{Facts, Leftover, Refusal, SpawnError, SpawnStep};
use alloc::vec;
use alloc::vec::Vec;
use harness::{Script, crash, exit, killed, spec};

/// The ways in which a job ends.
mod endings;
/// What the user's signals do.
mod interrupts;
/// Loss of agent, guardian and init.
mod losses;
/// Start-up, output and the closing steps.
mod path;
/// Which rank was first.
mod verdicts;
