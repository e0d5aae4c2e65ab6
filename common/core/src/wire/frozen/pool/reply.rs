//! The messages of a pool.

use super::super::fields::{Body, Fields, Malformed};
use super::{MAX_REPLY, frame, open, read_job, write_job};
use crate::id::JobId;
use crate::os_bytes::OsBytes;
use crate::time::Span;
use alloc::vec::Vec;

/// A job that has hosts of the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The job.
    pub job: JobId,
    /// The process of its launcher.
    pub pid: u32,
    /// The user's command.
    pub command: OsBytes,
    /// How long it has had its hosts.
    pub age: Span,
    /// The number of its hosts.
    pub hosts: u32,
    /// The pool has asked the job to end.
    pub is_ending: bool,
}

/// A host that a job gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantedHost {
    /// Its line of a hostfile.
    pub line: OsBytes,
    /// The facts that its agent reported; empty: not known.
    pub facts: OsBytes,
    /// The control socket of its open connection; empty: it has none, and a job logs in by itself.
    pub control: OsBytes,
}

/// The hosts of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The job.
    pub job: JobId,
    /// Its hosts, in slot order.
    pub hosts: Vec<GrantedHost>,
    /// Hosts that were left out: lost, warned or being drained.
    pub left_out: Vec<OsBytes>,
}

/// Why a pool does not do what was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Fewer hosts than that can be used.
    TooFew {
        /// Hosts, or slices, that can be used.
        usable: u32,
        /// All its hosts.
        hosts: u32,
    },
    /// No valid number is asked for.
    BadNumber,
    /// Its hosts form no slices.
    NoSlices,
    /// The pool is about to end.
    Ending,
    /// As many jobs wait as may.
    QueueFull,
    /// No host of the pool has this name.
    NoHost(OsBytes),
    /// A job has this host.
    HasJob(OsBytes),
    /// The host is in the pool already.
    HasHost(OsBytes),
    /// The lines of a hostfile cannot be understood.
    Lines(OsBytes),
    /// The client has other rights than the pool: how they differ.
    Rights(OsBytes),
    /// The pool speaks none of these versions.
    Version(u32),
    /// Fewer slices than that are there, or can be used.
    TooFewSlices {
        /// The smallest number that is asked for.
        wanted: u32,
        /// Slices that can be used.
        usable: u32,
        /// All its slices.
        slices: u32,
    },
    /// Neither a host nor a slice of the pool has this name.
    NoMember {
        /// The name.
        name: OsBytes,
        /// The names of its hosts, as one text.
        hosts: OsBytes,
        /// The names of its slices, as one text; empty: it has none.
        slices: OsBytes,
    },
    /// A reason of a later version.
    Other(u8),
}

/// The state of a host, as a report has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostWord {
    /// The pool dials the host.
    Reaching,
    /// A job can have it.
    Free,
    /// A job has it.
    Held,
    /// The job has ended, and processes of it may be left.
    Emptying,
    /// The host leaves the pool: no new job can have it.
    Draining,
    /// Its connection has ended, or cannot be made.
    Lost,
    /// The host has a warning: its cloud is about to take it away.
    Warned,
    /// A slice: hosts of it have left the pool.
    Incomplete,
    /// A state of a later version.
    Other(u8),
}

impl HostWord {
    const ALL: [Self; 8] = [
        Self::Reaching,
        Self::Free,
        Self::Held,
        Self::Emptying,
        Self::Draining,
        Self::Lost,
        Self::Warned,
        Self::Incomplete,
    ];

    const fn raw(self) -> u8 {
        match self {
            Self::Reaching => 0,
            Self::Free => 1,
            Self::Held => 2,
            Self::Emptying => 3,
            Self::Draining => 4,
            Self::Lost => 5,
            Self::Warned => 6,
            Self::Incomplete => 7,
            Self::Other(raw) => raw,
        }
    }

    fn from_raw(raw: u8) -> Self {
        Self::ALL.into_iter().find(|word| word.raw() == raw).unwrap_or(Self::Other(raw))
    }

    /// The word for people and programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reaching => "reaching",
            Self::Free => "free",
            Self::Held => "held",
            Self::Emptying => "emptying",
            Self::Draining => "draining",
            Self::Lost => "lost",
            Self::Warned => "warned",
            Self::Incomplete => "incomplete",
            Self::Other(_) => "unknown",
        }
    }
}

/// A host in a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostReport {
    /// Its name.
    pub name: OsBytes,
    /// Its slice; empty: none.
    pub slice: OsBytes,
    /// Its state.
    pub state: HostWord,
    /// Its job, while it has one or is not empty.
    pub job: Option<JobId>,
    /// Why it is lost, or the login that jobs make there.
    pub note: OsBytes,
}

/// The state of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Its process.
    pub pid: u32,
    /// How long it has been up.
    pub age: Span,
    /// Its hosts, in slot order.
    pub hosts: Vec<HostReport>,
    /// The jobs that have hosts.
    pub jobs: Vec<Holder>,
    /// The number of jobs that wait.
    pub waiting: u32,
}

/// A slice of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SliceReport {
    /// Its slot: its place in the order of the hostfile.
    pub slot: u32,
    /// Its name.
    pub name: OsBytes,
    /// The state that keeps it from jobs the longest, of those of its hosts.
    pub state: HostWord,
}

/// The slices of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slices {
    /// The numbers of slices for jobs that name none; empty: such jobs get hosts.
    pub sizes: Vec<u32>,
    /// The slices, in slot order.
    pub slices: Vec<SliceReport>,
}

/// A message of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolReply {
    /// The first message.
    Hello {
        /// The lowest version that is spoken.
        min: u32,
        /// The highest one.
        max: u32,
    },
    /// The job waits for its hosts.
    Queued {
        /// The number of jobs before it.
        before: u32,
        /// The jobs that have hosts.
        holders: Vec<Holder>,
    },
    /// The hosts of the job.
    Granted(Granted),
    /// Other jobs have the hosts.
    Busy {
        /// These.
        holders: Vec<Holder>,
        /// The number of jobs that wait.
        waiting: u32,
    },
    /// Not done.
    Refused(Refusal),
    /// The state of the pool.
    Report(Report),
    /// Done.
    Done,
    /// The pool does not know this kind of message.
    Unsupported(u8),
    /// Its slices.
    Slices(Slices),
    /// A kind of a later version.
    Unknown(u8),
}

impl PoolReply {
    /// Its frame.
    #[must_use]
    pub fn to_frame(&self) -> Vec<u8> {
        let mut body = Body::default();
        let kind = match self {
            Self::Hello { min, max } => {
                body.word(*min).word(*max);
                1
            }
            Self::Queued { before, holders } => {
                body.word(*before);
                write_holders(&mut body, holders);
                32
            }
            Self::Granted(granted) => {
                granted.write(&mut body);
                33
            }
            Self::Busy { holders, waiting } => {
                body.word(*waiting);
                write_holders(&mut body, holders);
                34
            }
            Self::Refused(refusal) => {
                refusal.write(&mut body);
                35
            }
            Self::Report(report) => {
                report.write(&mut body);
                36
            }
            Self::Done => 37,
            Self::Unsupported(kind) => {
                body.byte(*kind);
                38
            }
            Self::Slices(slices) => {
                slices.write(&mut body);
                39
            }
            Self::Unknown(kind) => *kind,
        };
        frame(kind, &body)
    }

    /// The message of a whole frame.
    ///
    /// # Errors
    /// The frame is cut, too long, or no reply.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut fields) = open(frame, MAX_REPLY)?;
        let reply = match kind {
            1 => Self::Hello { min: fields.word()?, max: fields.word()? },
            32 => Self::Queued { before: fields.word()?, holders: fields.list(Holder::read)? },
            33 => Self::Granted(Granted::read(&mut fields)?),
            34 => Self::Busy { waiting: fields.word()?, holders: fields.list(Holder::read)? },
            // A reason of a later version may have more behind it.
            35 => return Ok(Self::Refused(Refusal::read(&mut fields)?)),
            36 => Self::Report(Report::read(&mut fields)?),
            37 => Self::Done,
            38 => Self::Unsupported(fields.byte()?),
            39 => Self::Slices(Slices::read(&mut fields)?),
            other => return Ok(Self::Unknown(other)),
        };
        fields.end()?;
        Ok(reply)
    }
}

fn write_holders(body: &mut Body, holders: &[Holder]) {
    body.count(holders.len());
    for holder in holders {
        write_job(body, holder.job);
        body.word(holder.pid).bytes(&holder.command).long(holder.age.nanos());
        body.word(holder.hosts).byte(u8::from(holder.is_ending));
    }
}

impl Holder {
    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            job: read_job(fields)?,
            pid: fields.word()?,
            command: fields.bytes()?.into(),
            age: Span::from_nanos(fields.long()?),
            hosts: fields.word()?,
            is_ending: fields.flag()?,
        })
    }
}

impl Granted {
    fn write(&self, body: &mut Body) {
        write_job(body, self.job);
        body.count(self.hosts.len());
        for host in &self.hosts {
            body.bytes(&host.line).bytes(&host.facts).bytes(&host.control);
        }
        super::write_names(body, &self.left_out);
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let host = |fields: &mut Fields<'_>| {
            let (line, facts, control) = (fields.bytes()?.into(), fields.bytes()?.into(), fields.bytes()?.into());
            Ok(GrantedHost { line, facts, control })
        };
        Ok(Self {
            job: read_job(fields)?,
            hosts: fields.list(host)?,
            left_out: fields.list(|fields| fields.bytes().map(OsBytes::from))?,
        })
    }
}

impl Refusal {
    fn write(&self, body: &mut Body) {
        match self {
            Self::TooFew { usable, hosts } => body.byte(0).word(*usable).word(*hosts),
            Self::BadNumber => body.byte(1),
            Self::NoSlices => body.byte(2),
            Self::Ending => body.byte(3),
            Self::QueueFull => body.byte(4),
            Self::NoHost(host) => body.byte(5).bytes(host),
            Self::HasJob(host) => body.byte(6).bytes(host),
            Self::HasHost(host) => body.byte(7).bytes(host),
            Self::Lines(why) => body.byte(8).bytes(why),
            Self::Version(version) => body.byte(9).word(*version),
            Self::TooFewSlices { wanted, usable, slices } => body.byte(10).word(*wanted).word(*usable).word(*slices),
            Self::NoMember { name, hosts, slices } => body.byte(11).bytes(name).bytes(hosts).bytes(slices),
            Self::Rights(why) => body.byte(12).bytes(why),
            Self::Other(raw) => body.byte(*raw),
        };
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        Ok(match fields.byte()? {
            0 => Self::TooFew { usable: fields.word()?, hosts: fields.word()? },
            1 => Self::BadNumber,
            2 => Self::NoSlices,
            3 => Self::Ending,
            4 => Self::QueueFull,
            5 => Self::NoHost(fields.bytes()?.into()),
            6 => Self::HasJob(fields.bytes()?.into()),
            7 => Self::HasHost(fields.bytes()?.into()),
            8 => Self::Lines(fields.bytes()?.into()),
            9 => Self::Version(fields.word()?),
            10 => Self::TooFewSlices { wanted: fields.word()?, usable: fields.word()?, slices: fields.word()? },
            11 => {
                let (name, hosts, slices) = (fields.bytes()?.into(), fields.bytes()?.into(), fields.bytes()?.into());
                Self::NoMember { name, hosts, slices }
            }
            12 => Self::Rights(fields.bytes()?.into()),
            other => Self::Other(other),
        })
    }
}

impl Report {
    fn write(&self, body: &mut Body) {
        body.word(self.pid).long(self.age.nanos()).count(self.hosts.len());
        for host in &self.hosts {
            body.bytes(&host.name).bytes(&host.slice).byte(host.state.raw()).byte(u8::from(host.job.is_some()));
            if let Some(job) = host.job {
                write_job(body, job);
            }
            body.bytes(&host.note);
        }
        write_holders(body, &self.jobs);
        body.word(self.waiting);
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let host = |fields: &mut Fields<'_>| {
            Ok(HostReport {
                name: fields.bytes()?.into(),
                slice: fields.bytes()?.into(),
                state: HostWord::from_raw(fields.byte()?),
                job: fields.optional(read_job)?,
                note: fields.bytes()?.into(),
            })
        };
        Ok(Self {
            pid: fields.word()?,
            age: Span::from_nanos(fields.long()?),
            hosts: fields.list(host)?,
            jobs: fields.list(Holder::read)?,
            waiting: fields.word()?,
        })
    }
}

impl Slices {
    fn write(&self, body: &mut Body) {
        body.count(self.sizes.len());
        for size in &self.sizes {
            body.word(*size);
        }
        body.count(self.slices.len());
        for slice in &self.slices {
            body.word(slice.slot).bytes(&slice.name).byte(slice.state.raw());
        }
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let slice = |fields: &mut Fields<'_>| {
            let (slot, name) = (fields.word()?, fields.bytes()?.into());
            Ok(SliceReport { slot, name, state: HostWord::from_raw(fields.byte()?) })
        };
        Ok(Self { sizes: fields.list(Fields::word)?, slices: fields.list(slice)? })
    }
}
