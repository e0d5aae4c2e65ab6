//! A carrier: the process here that brings an agent to another host and holds its edge. Today it is the user's own `ssh`.

use core::fmt;

/// How a carrier ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CarrierEnd {
    /// It exited with this code.
    Code(u8),
    /// A signal ended it.
    Signal(u8),
}

impl fmt::Display for CarrierEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => write!(f, "signal {number}"),
        }
    }
}
