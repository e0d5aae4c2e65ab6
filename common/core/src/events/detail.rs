//! Details of events. Lines of the log lack some of them, which are for the view alone: a reader of the log finds the same in other
//! lines.

use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use serde::Serialize;

/// The effect of a signal to rlaunch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The signal was passed on to the ranks and the job continues.
    Forwarded,
    /// The signal began the ending.
    Ended,
    /// The signal was noted because an ending was under way.
    #[serde(rename = "ended")]
    Noted {
        /// Until SIGKILL; `None`: it was sent.
        #[serde(skip)]
        kill_in: Option<Span>,
    },
    /// The signal came after the last rank had ended, while its output was still being written.
    #[serde(rename = "ended")]
    Unwritten {
        /// After this, what is not written is dropped.
        #[serde(skip)]
        patience: Span,
    },
    /// The signal ended the grace.
    Killed,
    /// The signal made rlaunch leave without waiting.
    Left,
    /// The signal has no effect, or was the echo of the one before.
    Ignored,
}

/// State of the ranks when the ending begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RanksState {
    /// The ranks run.
    Running,
    /// No rank was started.
    NotStarted {
        /// The hosts that were waited for.
        awaited: Vec<NodeId>,
    },
    /// The ranks of one generation have exited, and no others were started.
    Between,
    /// All ranks have exited, and none would have been started again.
    Exited,
}

/// The process of a rank that could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried {
    /// The first process of the rank in its generation.
    First,
    /// Another process, after one of the rank had ended.
    Again {
        /// Ranks run on several hosts.
        several_hosts: bool,
    },
}

/// Why one of rlaunch's own stdin, stdout and stderr is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SinkEnd {
    /// The reader of the output has closed it, or its terminal has hung up.
    Unread {
        /// The job ends because of that. It may have been ending.
        ends_job: bool,
    },
    /// The terminal of the output has hung up, and the job continues without it.
    HungUp,
    /// The output cannot be written.
    WriteFailed,
    /// The input could not be read to its end.
    ReadFailed,
    /// The input cannot be passed on to the rank that reads it.
    Undelivered,
}

/// The ranks of the next generation, where hosts were lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fewer {
    /// All hosts that are lost by now.
    pub without: Vec<NodeId>,
    /// Ranks that are left.
    pub ranks: u32,
}

/// Slices on which ranks start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SlicesTaken {
    /// Their names, in the order of their numbers in the job.
    pub slices: Vec<OsBytes>,
    /// Slices that are up and have no ranks.
    pub spares: Vec<OsBytes>,
    /// The number of spare slices that the user has asked for.
    #[serde(skip)]
    pub wanted_spares: u32,
    /// All ranks now.
    pub world_size: u32,
    /// The processes of each program.
    pub procs: Vec<u32>,
    /// Whether the slices differ from those of the start before, or at first from the first ones of the hostfile.
    #[serde(skip)]
    pub is_news: bool,
}
