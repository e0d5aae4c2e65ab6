//! The rules of a job, each with a node that follows a script.

mod chaos;
mod endings;
mod enough;
mod fewer;
mod generations;
mod harness;
mod hosts;
mod interrupts;
mod kill_watchdog;
mod limits;
mod losses;
mod master_addr;
mod path;
mod probing;
mod respawn;
mod restart_unused;
mod root_cause;
mod rounds;
mod shrink_rule;
mod silence;
mod slurm;
mod startup_deadline;

use super::*;
use crate::events::{Answer, Cause, JobNews, Lost, RanksState, SinkEnd, Tried, What};
use crate::exit::Ending;
use crate::id::{NodeId, ProcId, Rank, Std, StreamId};
use crate::report::Became;
use crate::signal::Signal;
use crate::spec::OnFailure;
use crate::status::Status;
use crate::time::Span;
use crate::wire::to_node::{SPAWN_BATCH, ToNode};
use crate::wire::to_root::{Facts, Found, Leftover, NodeRefusal, SpawnError, SpawnStep, ToRoot};
use alloc::vec;
use alloc::vec::Vec;
use harness::{NODE, Script, crash, exit, killed, spec};
