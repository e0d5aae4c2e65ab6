//! A pool's socket: the wire between a pool and its clients, which are jobs and the commands of `rlaunch pool`.
//!
//! Version 1. All numbers are little endian. A frame is a header of 8 bytes and a body:
//!
//! ```text
//! kind u8 | zero u8 u8 u8 | length of the body u32
//! ```
//!
//! A text stands after its length in 32 bits, and a list after its number of entries in 32 bits. Both ends begin with `hello`. A pool
//! answers a kind that it does not know with `unsupported`.
//!
//! ```text
//!  1 hello        both     the lowest and the highest version that this end speaks
//!  2 want         job      hosts are wanted; the connection is the job's hold on them
//!  3 status       command  the hosts and the jobs are asked for
//!  4 drain        command  these hosts get no new job, and leave the pool once they are empty
//!  5 remove       command  these hosts leave the pool; refused while one of them has a job
//!  6 add          command  lines of a hostfile
//!  7 down         command  the pool ends
//!  8 warned       job      one of its hosts is about to be taken away
//!  9 slices       any      the slices are asked for
//! 10 ends within  job      before `want`: the longest time that the job takes to end after SIGTERM
//! 32 queued       pool     the job waits; the number of jobs before it
//! 33 granted      pool     the hosts of the job
//! 34 busy         pool     the jobs that have the hosts
//! 35 refused      pool     the reason
//! 36 report       pool     the hosts and the jobs
//! 37 done         pool     the command was performed
//! 38 unsupported  pool     the kind that is not known
//! 39 slices       pool     the numbers of slices that jobs take, and the slices
//! ```

mod reply;
#[cfg(test)]
mod tests;

pub use reply::{Granted, GrantedHost, Holder, HostReport, HostWord, PoolReply, Refusal, Report, SliceReport, Slices};

use super::fields::{Body, Fields, Malformed};
use crate::id::JobId;
use crate::os_bytes::OsBytes;
use crate::pool::Need;
use crate::time::Span;
use alloc::vec::Vec;

/// The version of this description.
pub const VERSION: u32 = 1;
/// Length of a header.
pub const HEADER: usize = 8;
/// Longest body of a request.
pub const MAX_REQUEST: usize = 1 << 20;
/// Longest body of an answer: 65,536 hosts of 256 bytes each.
pub const MAX_REPLY: usize = 16 << 20;

/// The length of the body after a header.
///
/// # Errors
/// The bytes are no header, or the body is longer than the limit.
pub fn body_len(header: &[u8; HEADER], limit: usize) -> Result<usize, Malformed> {
    let mut fields = Fields(header);
    let (_kind, zeros) = (fields.byte()?, [fields.byte()?, fields.byte()?, fields.byte()?]);
    let len = usize::try_from(fields.word()?).map_err(|_| Malformed)?;
    if zeros == [0; 3] && len <= limit { Ok(len) } else { Err(Malformed) }
}

/// A frame with this body.
fn frame(kind: u8, body: &Body) -> Vec<u8> {
    let mut all = Body::default();
    all.byte(kind).byte(0).byte(0).byte(0).bytes(&body.0);
    all.0
}

/// A whole frame: its kind and its body.
fn open(frame: &[u8], limit: usize) -> Result<(u8, Fields<'_>), Malformed> {
    let (header, body) = frame.split_first_chunk::<HEADER>().ok_or(Malformed)?;
    if body_len(header, limit)? != body.len() {
        return Err(Malformed);
    }
    Ok((header.first().copied().unwrap_or_default(), Fields(body)))
}

/// The hosts that a job wants.
#[derive(Clone, PartialEq, Eq, Debug)]
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
#[derive(Clone, PartialEq, Eq, Debug)]
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
    Drain(Vec<OsBytes>),
    /// Hosts without a job leave.
    Remove(Vec<OsBytes>),
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
    Unknown(u8),
}

impl PoolRequest {
    /// Its frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        let mut body = Body::default();
        let kind = match self {
            Self::Hello { min, max } => {
                body.word(*min).word(*max);
                1
            }
            Self::Want(want) => {
                want.write(&mut body);
                2
            }
            Self::Status => 3,
            Self::Drain(hosts) => {
                write_names(&mut body, hosts);
                4
            }
            Self::Remove(hosts) => {
                write_names(&mut body, hosts);
                5
            }
            Self::Add(lines) => {
                body.bytes(lines);
                6
            }
            Self::Down { is_now } => {
                body.byte(u8::from(*is_now));
                7
            }
            Self::Warned(host) => {
                body.bytes(host);
                8
            }
            Self::Slices => 9,
            Self::EndsWithin(within) => {
                body.long(within.nanos());
                10
            }
            Self::Unknown(kind) => *kind,
        };
        frame(kind, &body)
    }

    /// The message of a whole frame.
    ///
    /// # Errors
    /// The frame is cut, too long, or no request.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut fields) = open(frame, MAX_REQUEST)?;
        let request = match kind {
            1 => Self::Hello { min: fields.word()?, max: fields.word()? },
            2 => Self::Want(Want::read(&mut fields)?),
            3 => Self::Status,
            4 => Self::Drain(fields.list(|fields| fields.bytes().map(OsBytes::from))?),
            5 => Self::Remove(fields.list(|fields| fields.bytes().map(OsBytes::from))?),
            6 => Self::Add(fields.bytes()?.into()),
            7 => Self::Down { is_now: fields.flag()? },
            8 => Self::Warned(fields.bytes()?.into()),
            9 => Self::Slices,
            10 => Self::EndsWithin(Span::from_nanos(fields.long()?)),
            // The body of a later kind has no shape that is known here.
            other => return Ok(Self::Unknown(other)),
        };
        fields.end()?;
        Ok(request)
    }
}

fn write_names(body: &mut Body, names: &[OsBytes]) {
    let names: Vec<&[u8]> = names.iter().map(OsBytes::as_slice).collect();
    body.list(&names);
}

fn read_job(fields: &mut Fields<'_>) -> Result<JobId, Malformed> {
    let mut id = [0; 16];
    for byte in &mut id {
        *byte = fields.byte()?;
    }
    Ok(JobId(id))
}

fn write_job(body: &mut Body, job: JobId) {
    for byte in job.0 {
        body.byte(byte);
    }
}

impl Want {
    fn write(&self, body: &mut Body) {
        write_job(body, self.job);
        match &self.need {
            Need::All => {
                body.byte(0);
            }
            Need::Hosts(count) => {
                body.byte(1).word(*count);
            }
            Need::Ranks(count) => {
                body.byte(2).word(*count);
            }
            Need::Slices(sizes) => {
                body.byte(3).count(sizes.len());
                for size in sizes {
                    body.word(*size);
                }
            }
        }
        body.within(self.wait).byte(u8::from(self.evict)).bytes(&self.command);
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let job = read_job(fields)?;
        let need = match fields.byte()? {
            0 => Need::All,
            1 => Need::Hosts(fields.word()?),
            2 => Need::Ranks(fields.word()?),
            3 => Need::Slices(fields.list(Fields::word)?),
            _ => return Err(Malformed),
        };
        Ok(Self { job, need, wait: fields.within()?, evict: fields.flag()?, command: fields.bytes()?.into() })
    }
}

/// The version that both ends speak.
#[must_use]
pub fn common_version(min: u32, max: u32) -> Option<u32> {
    (min <= VERSION && VERSION <= max).then_some(VERSION)
}
