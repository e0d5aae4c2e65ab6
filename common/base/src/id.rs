//! Newtypes for everything that is counted, so that a rank can never be passed where a node is meant.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub struct $name(u32);

        impl $name {
            /// Wraps a number.
            #[must_use]
            pub const fn new(raw: u32) -> Self { Self(raw) }
            /// The number itself.
            #[must_use]
            pub const fn get(self) -> u32 { self.0 }
            /// The number as an index into a vector.
            #[must_use]
            pub const fn index(self) -> usize { self.0 as usize }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    )*};
}

id! {
    /// A host in a job.
    NodeId,
    /// A program of an MPMD command line.
    AppIndex,
    /// An OS process of one incarnation of a rank; never reused within a job.
    ProcId,
    /// A role in the job, 0 to world size - 1.
    Rank,
    /// A rank's index among the ranks of its node.
    LocalRank,
    /// A program, or a connection, that asks the store; never reused within a job.
    ClientId,
    /// The connection of a process that takes part in rounds; never reused by an agent.
    SessionId,
    /// A connection to a pool; never reused by it.
    HoldId,
    /// A world: ranks with numbers, a rendezvous and a namespace of their own. 0 is the world of the first program.
    WorldId,
    /// An execution of the restarted function by all active ranks; 0 first.
    Round,
}

impl NodeId {
    /// The launcher's address in a frame header.
    pub const ROOT: Self = Self(u32::MAX);
}

/// One of the three standard streams of a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename = "stream")]
pub enum Std {
    /// Descriptor 0.
    #[serde(rename = "stdin")]
    In,
    /// Descriptor 1.
    #[serde(rename = "stdout")]
    Out,
    /// Descriptor 2.
    #[serde(rename = "stderr")]
    Err,
}

/// A byte stream on the data lane: a process and one of its three standard streams, as `4 * proc + descriptor`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StreamId(u32);

impl StreamId {
    /// The stream `std` of `proc`.
    #[must_use]
    pub const fn of(proc: ProcId, std: Std) -> Self {
        let low = match std {
            Std::In => 0,
            Std::Out => 1,
            Std::Err => 2,
        };
        Self((proc.get() << 2) | low)
    }

    /// From a frame header; `None` where the number names no stream.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        if raw & 3 == 3 { None } else { Some(Self(raw)) }
    }

    /// The number in a frame header.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The process the stream belongs to.
    #[must_use]
    pub const fn proc(self) -> ProcId {
        ProcId::new(self.0 >> 2)
    }

    /// Which of its streams this is.
    #[must_use]
    pub const fn std(self) -> Std {
        match self.0 & 3 {
            0 => Std::In,
            1 => Std::Out,
            _ => Std::Err,
        }
    }
}

/// A job's name: 128 random bits, printed as hex. Unique, not secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct JobId(pub [u8; 16]);

impl JobId {
    /// The first eight hex digits, for people.
    #[must_use]
    pub fn short(&self) -> alloc::string::String {
        alloc::format!("{:02x}{:02x}{:02x}{:02x}", self.0[0], self.0[1], self.0[2], self.0[3])
    }

    /// The name of a world for MPI libraries: that of the job, and of the start of its ranks.
    #[must_use]
    pub fn world_name(&self, namespace: u32) -> alloc::string::String {
        alloc::format!("rl-{self}-{namespace}")
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
