//! Time as an input: machines never read a clock.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// `CLOCK_BOOTTIME` of this host in nanoseconds. Never crosses the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Mono(u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Span(u64);

/// `CLOCK_BOOTTIME` of the host that sent it, in nanoseconds: comparable with another host's only through an offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct HostTime(pub u64);

/// Wall-clock nanoseconds since 1970, for display and events only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct WallNs(pub u64);

impl Mono {
    /// A reading of the clock.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }
    /// Nanoseconds since boot.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }
    /// The same instant, as another host gets it.
    #[must_use]
    pub const fn host_time(self) -> HostTime {
        HostTime(self.0)
    }
    /// How long after `earlier` this is; zero where it is before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// From nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }
    /// From milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }
    /// From seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }
    /// In nanoseconds.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }
    /// The same length for the standard library.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
    /// The time doubled so often, up to a longest time.
    #[must_use]
    pub fn doubled(self, times: u32, longest: Self) -> Self {
        Self(self.0.saturating_mul(1_u64.checked_shl(times).unwrap_or(u64::MAX))).min(longest)
    }
    /// In whole milliseconds, rounded down.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 / 1_000_000
    }
}

impl Add<Span> for Mono {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }
}

impl Sub<Span> for Mono {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Display for Span {
    /// For people: `6 ms`, `0.2s`, `12.4s`, `1h02m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.millis();
        let secs = ms / 1000;
        if ms < 100 {
            write!(f, "{ms} ms")
        } else if secs < 100 {
            write!(f, "{secs}.{}s", (ms % 1000) / 100)
        } else if secs < 6000 {
            write!(f, "{}m{:02}s", secs / 60, secs % 60)
        } else {
            write!(f, "{}h{:02}m", secs / 3600, (secs % 3600) / 60)
        }
    }
}
