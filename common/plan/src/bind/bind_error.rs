//! Why ranks cannot be bound as asked for.

use crate::topology::Level;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::ToString as _;
use rlaunch_base::cpu_set::CpuSet;
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// Ranks that cannot be bound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum BindError {
    /// `-c 9` on 8 cores.
    #[error("{ranks} rank{} with {each} {unit}{} each {} not fit: {has} may be used", plural(*ranks), plural(*each), if *ranks == 1 { "does" } else { "do" }, unit = name(*unit))]
    TooFewCores {
        /// Cores of each rank.
        each: u32,
        /// Ranks of the host.
        ranks: u32,
        /// Cores that may be used.
        has: u32,
        /// The kind of unit that was counted.
        unit: Level,
    },
    /// `-c 1 a : -c 9 b` on 8 cores.
    #[error("{ranks} ranks with {cores} {}s in all do not fit: {has} may be used", name(*unit))]
    TooFewInAll {
        /// Cores of all ranks together.
        cores: u32,
        /// Ranks of the host.
        ranks: u32,
        /// Cores that may be used.
        has: u32,
        /// The kind of unit that was counted.
        unit: Level,
    },
    /// A core or a package that the host does not have.
    #[error("there is no {} {number}: the host has {count}, counted from 0", name(*level))]
    NoSuch {
        /// Its kind.
        level: Level,
        /// Its number.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// A CPU that does not exist, or does not run.
    #[error("CPU {number} is offline or does not exist: the host has CPUs {online}")]
    Offline {
        /// Its number.
        number: u32,
        /// CPUs that run.
        online: OsBytes,
    },
    /// A unit that the host has, and that this process may not use.
    #[error("{} {number} may not be used: allowed are CPUs {allowed}", name(*level))]
    NotAllowed {
        /// Its kind.
        level: Level,
        /// Its number.
        number: u32,
        /// CPUs that may be used.
        allowed: OsBytes,
    },
}

impl BindError {
    pub(super) fn not_allowed(level: Level, number: u32, allowed: &CpuSet) -> Self {
        Self::NotAllowed { level, number, allowed: allowed.to_string().into() }
    }

    pub(super) fn offline(number: u32, online: &CpuSet) -> Self {
        Self::Offline { number, online: online.to_string().into() }
    }
}

impl Hint for BindError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::TooFewCores { each, ranks, has, .. } => {
                let cores = has.checked_div(*ranks).filter(|cores| *cores > 0);
                match (cores, each <= has) {
                    (Some(cores), true) => format!("--cpus-per-rank {cores}, or fewer ranks on each host").into(),
                    (Some(cores), false) => format!("--cpus-per-rank {cores}").into(),
                    (None, true) => "fewer ranks on each host, or leave --cpus-per-rank out".into(),
                    (None, false) => "leave --cpus-per-rank out".into(),
                }
            }
            Self::TooFewInAll { .. } => "smaller numbers after --cpus-per-rank, or fewer ranks on each host".into(),
            Self::NoSuch { .. } | Self::Offline { .. } | Self::NotAllowed { .. } => {
                "rlaunch map --report-bindings   shows the CPUs of this host's ranks".into()
            }
        })
    }
}

/// The name of a unit in messages.
fn name(level: Level) -> &'static str {
    match level {
        Level::Hwthread => "CPU",
        Level::Package | Level::Numa | Level::L3 | Level::Core => level.word(),
    }
}

fn plural(n: u32) -> &'static str {
    if n == 1 { "" } else { "s" }
}
