//! Signals by number and name, as Linux numbers them (signal(7), x86 and arm).

use core::fmt;
use serde::{Deserialize, Serialize, Serializer};

/// A signal number, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(try_from = "u8")]
pub struct Signal(u8);

const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

impl Signal {
    /// Terminal closed.
    pub const HUP: Self = Self(1);
    /// Ctrl-C.
    pub const INT: Self = Self(2);
    /// Ctrl-\.
    pub const QUIT: Self = Self(3);
    /// Cannot be caught.
    pub const KILL: Self = Self(9);
    /// The user's.
    pub const USR1: Self = Self(10);
    /// A crash.
    pub const SEGV: Self = Self(11);
    /// The user's.
    pub const USR2: Self = Self(12);
    /// Go on.
    pub const CONT: Self = Self(18);
    /// SIGTSTP.
    pub const TSTP: Self = Self(20);
    /// A write without a reader.
    pub const PIPE: Self = Self(13);
    /// Please end.
    pub const TERM: Self = Self(15);

    /// A signal by its number, where there is one.
    #[must_use]
    pub const fn new(raw: u8) -> Option<Self> {
        if raw >= 1 && raw <= 64 { Some(Self(raw)) } else { None }
    }
    /// Its number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
    /// The exit code that shells give a process it ended: 128 + number.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        128 + self.0
    }
}

impl TryFrom<u8> for Signal {
    type Error = &'static str;
    fn try_from(raw: u8) -> Result<Self, Self::Error> {
        Self::new(raw).ok_or("signals are numbered 1 to 64")
    }
}

/// Its name for people, and under `signal` in the event log; its number on a wire.
impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_newtype_struct("signal", &alloc::format!("{self}"))
        } else {
            serializer.serialize_newtype_struct("Signal", &self.0)
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(usize::from(self.0) - 1) {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}
