//! A pool's socket: the wire between a pool and its clients, which are jobs and the commands of `rlaunch pool`.
//!
//! Version 1. A frame is its length, 32 bits, little endian, and a message as postcard writes it: the number of its kind, and its fields.
//! Both ends begin with `hello`. A pool answers a kind that it does not know with `unsupported`.
//!
//! ```text
//! to a pool
//!  0 hello        any      the lowest and the highest version that this end speaks
//!  1 want         job      hosts are wanted; the connection is the job's hold on them
//!  2 status       command  the hosts and the jobs are asked for
//!  3 drain        command  these hosts get no new job, and leave the pool once they are empty
//!  4 remove       command  these hosts leave the pool; refused while one of them has a job
//!  5 add          command  lines of a hostfile
//!  6 down         command  the pool ends
//!  7 warned       job      one of its hosts is about to be taken away
//!  8 slices       any      the slices are asked for
//!  9 ends within  job      before `want`: the longest time that the job takes to end after SIGTERM
//! from a pool
//!  0 hello        the same
//!  1 queued       the job waits; the number of jobs before it
//!  2 granted      the hosts of the job
//!  3 busy         the jobs that have the hosts
//!  4 refused      the reason
//!  5 report       the hosts and the jobs
//!  6 done         the command was performed
//!  7 unsupported  the kind of a message is not known
//!  8 slices       the numbers of slices that jobs take, and the slices
//! ```

mod reply;
#[cfg(test)]
mod tests;

pub use reply::{Granted, GrantedHost, Holder, HostReport, HostWord, PoolReply, Refusal, Report, SliceReport, Slices};

use super::fields::Malformed;
use crate::wire::codec::{append, set_length};
use alloc::vec::Vec;
use rlaunch_base::capped::unreserved;
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use serde::{Deserialize, Serialize};

/// The version of this description.
pub const VERSION: u32 = 1;
/// Length of a header.
pub const HEADER: usize = 4;
/// Longest message to a pool.
pub const MAX_REQUEST: usize = 1 << 20;
/// Longest message of a pool: 65,536 hosts of 256 bytes each.
pub const MAX_REPLY: usize = 16 << 20;

/// The length of the message after a header.
///
/// # Errors
/// The message is longer than the limit.
pub fn body_len(header: [u8; HEADER], limit: usize) -> Result<usize, Malformed> {
    usize::try_from(u32::from_le_bytes(header)).ok().filter(|len| *len <= limit).ok_or(Malformed)
}

fn to_frame(message: &impl Serialize) -> Vec<u8> {
    let mut frame = append(Vec::from([0; HEADER]), message);
    set_length(&mut frame);
    frame
}

/// The message of a whole frame, and the bytes after it.
fn open<'a, M: Deserialize<'a>>(frame: &'a [u8], limit: usize) -> Result<(M, &'a [u8]), Malformed> {
    let (header, body) = frame.split_first_chunk::<HEADER>().ok_or(Malformed)?;
    if body_len(*header, limit)? != body.len() {
        return Err(Malformed);
    }
    postcard::take_from_bytes(body).map_err(|_| Malformed)
}

/// The number of hosts that a job needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Need {
    /// All that can be used.
    All,
    /// A number of hosts.
    Hosts(u32),
    /// As many hosts as have a number of slots.
    Ranks(u32),
    /// The hosts of whole slices; the valid numbers of slices.
    Slices(#[serde(deserialize_with = "unreserved")] Vec<u32>),
}

/// The hosts that a job wants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Want {
    /// The job.
    pub job: JobId,
    /// The number of hosts.
    pub need: Need,
    /// How long it waits for them; `None`: without an end; zero: not at all.
    pub wait: Option<Span>,
    /// The jobs that have them are ended.
    pub evict: bool,
    /// The user's command, for messages.
    pub command: OsBytes,
}

/// A message to a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PoolRequest {
    /// The first message.
    Hello {
        /// The lowest version that is spoken.
        min: u32,
        /// The highest one.
        max: u32,
    },
    /// A job wants hosts.
    Want(Want),
    /// A report is wanted.
    Status,
    /// Hosts get no new job, and leave once they are empty.
    Drain(#[serde(deserialize_with = "unreserved")] Vec<OsBytes>),
    /// Hosts without a job leave.
    Remove(#[serde(deserialize_with = "unreserved")] Vec<OsBytes>),
    /// Hosts join: lines of a hostfile.
    Add(OsBytes),
    /// The pool ends.
    Down {
        /// Jobs get no time to end.
        is_now: bool,
    },
    /// A host of the job is about to be taken away.
    Warned(OsBytes),
    /// The slices are asked for.
    Slices,
    /// The longest time that the job takes to end after SIGTERM.
    EndsWithin(Span),
    /// A kind of a later version.
    #[serde(other)]
    Unknown,
}

impl PoolRequest {
    /// Its frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        to_frame(self)
    }

    /// The message of a whole frame.
    ///
    /// # Errors
    /// The frame is cut, too long, or no request.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        match open(frame, MAX_REQUEST)? {
            (request, []) => Ok(request),
            // A later kind has fields that are not known here.
            (Self::Unknown, _) => Ok(Self::Unknown),
            _ => Err(Malformed),
        }
    }
}

/// The version that both ends speak.
#[must_use]
pub fn common_version(min: u32, max: u32) -> Option<u32> {
    (min <= VERSION && VERSION <= max).then_some(VERSION)
}
