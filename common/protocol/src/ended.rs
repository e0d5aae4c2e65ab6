//! How a rank has ended, as the store has it for the programs of the job: the value of a key below `rlaunch/ended/`.
//!
//! Lines `NAME=VALUE`, an empty line, and the last words as they were written. Later versions add names; a reader skips those that it does
//! not know. docs/reference/store.md describes the same for readers.

use crate::wire::to_root::Facts;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;

/// Keys that begin like this are rlaunch's own: no client changes them.
pub const RESERVED: &[u8] = b"rlaunch/";
const PREFIX: &str = "rlaunch/ended/";

/// The way in which a rank has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The rank has exited.
    Exit,
    /// A signal has killed the rank.
    Signal,
    /// The rank could not be started.
    NotStarted,
    /// Its host was lost.
    HostLost,
    /// Nothing more is known.
    Unknown,
}

impl How {
    const ALL: [Self; 5] = [Self::Exit, Self::Signal, Self::NotStarted, Self::HostLost, Self::Unknown];

    const fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::NotStarted => "not_started",
            Self::HostLost => "host_lost",
            Self::Unknown => "unknown",
        }
    }
}

/// How a rank has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The way.
    pub how: How,
    /// Exit code as a shell has it (128 + signal); -1: not known.
    pub code: i32,
    /// Number of the signal; 0: none.
    pub signal: u8,
    /// The rank has left a core dump.
    pub core: bool,
    /// rlaunch had ordered it to end: no failure.
    pub asked: bool,
    /// The kernel has killed it for its memory: the limit in bytes, or 0 where the host was full.
    pub oom: Option<u64>,
    /// The name of its host.
    pub host: OsBytes,
    /// Its process id there; 0: none.
    pub pid: u32,
    /// The message of its error file; may be empty.
    pub error: OsBytes,
    /// The end of its stderr; may be empty.
    pub last_words: OsBytes,
}

impl Ended {
    /// The end of a rank of which nothing but its host is known.
    #[must_use]
    pub fn of(how: How, host: OsBytes) -> Self {
        let (error, last_words) = (OsBytes::default(), OsBytes::default());
        Self { how, code: -1, signal: 0, core: false, asked: false, oom: None, host, pid: 0, error, last_words }
    }

    /// The same with the status of its process.
    #[must_use]
    pub fn with_status(self, status: Status) -> Self {
        let code = i32::from(status.exit_code());
        match status {
            Status::Exited(_) => Self { how: How::Exit, code, ..self },
            Status::Signaled { sig, core } => Self { how: How::Signal, code, signal: sig.get(), core, ..self },
            Status::Lost => Self { how: How::Unknown, code: -1, ..self },
        }
    }

    /// The same with what was found out about a failure.
    #[must_use]
    pub fn with_facts(self, facts: &Facts) -> Self {
        let text = facts.error_file.as_deref().unwrap_or_default();
        let error = first_line(text);
        Self { oom: facts.oom_limit, error, last_words: facts.tail.clone(), ..self }
    }

    /// The status of its process, where it is known.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self.how {
            How::Exit => u8::try_from(self.code).ok().map(Status::Exited),
            How::Signal => Signal::new(self.signal).map(|sig| Status::Signaled { sig, core: self.core }),
            How::NotStarted | How::HostLost | How::Unknown => None,
        }
    }

    /// The value of its key.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let Self { how, code, signal, core, asked, oom, host, pid, error, last_words } = self;
        let oom = oom.map_or_else(|| String::from("-"), |limit| format!("{limit}"));
        let (core, asked) = (u8::from(*core), u8::from(*asked));
        let head =
            format!("how={}\ncode={code}\nsignal={signal}\ncore={core}\nasked={asked}\noom={oom}\nhost=", how.word());
        let rest = format!("\npid={pid}\nerror=");
        [head.as_bytes(), &line(host), rest.as_bytes(), &line(error), b"\n\n", last_words.as_slice()].concat()
    }

    /// From a value; `None`: it is none.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut ended = Self::of(How::Unknown, OsBytes::default());
        let mut rest = value;
        loop {
            let at = memchr::memchr(b'\n', rest)?;
            let (line, after) = (rest.get(..at)?, rest.get(at.checked_add(1)?..)?);
            rest = after;
            if line.is_empty() {
                break;
            }
            let at = memchr::memchr(b'=', line)?;
            ended.take(line.get(..at)?, line.get(at.checked_add(1)?..)?)?;
        }
        ended.last_words = OsBytes::from(rest);
        Some(ended)
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        fn number<T: core::str::FromStr>(value: &[u8]) -> Option<T> {
            core::str::from_utf8(value).ok()?.parse().ok()
        }
        match name {
            b"how" => {
                self.how = How::ALL.into_iter().find(|how| how.word().as_bytes() == value).unwrap_or(How::Unknown)
            }
            b"code" => self.code = number(value)?,
            b"signal" => self.signal = number(value)?,
            b"core" => self.core = value == b"1",
            b"asked" => self.asked = value == b"1",
            b"oom" => self.oom = number(value),
            b"host" => self.host = value.into(),
            b"pid" => self.pid = number(value)?,
            b"error" => self.error = value.into(),
            _ => {}
        }
        Some(())
    }
}

/// The key of a rank: its group (empty: none), and its number in its world.
#[must_use]
pub fn key(group: &[u8], rank: u32) -> Vec<u8> {
    let rank = format!("{rank}");
    let between: &[u8] = if group.is_empty() { b"" } else { b"/" };
    [PREFIX.as_bytes(), group, between, rank.as_bytes()].concat()
}

/// The first line that is not empty.
fn first_line(text: &[u8]) -> OsBytes {
    text.split(|b| *b == b'\n')
        .map(<[u8]>::trim_ascii)
        .find(|line| !line.is_empty())
        .map(OsBytes::from)
        .unwrap_or_default()
}

/// A text without line breaks.
fn line(text: &[u8]) -> Vec<u8> {
    text.iter().map(|b| if *b == b'\n' { b' ' } else { *b }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn killed() -> Ended {
        let status = Status::Signaled { sig: Signal::KILL, core: true };
        Ended {
            pid: 812,
            asked: true,
            oom: Some(0),
            error: "it broke".into(),
            last_words: "Traceback\n\nTypeError\n".into(),
            ..Ended::of(How::Unknown, "node1".into()).with_status(status)
        }
    }

    #[test]
    fn value_is_read_as_it_was_written() {
        let text = "how=signal\ncode=137\nsignal=9\ncore=1\nasked=1\noom=0\nhost=node1\npid=812\nerror=it broke\n\nTraceback\n\nTypeError\n";
        assert_eq!(killed().write(), text.as_bytes());
        assert_eq!(Ended::parse(text.as_bytes()), Some(killed()));
        assert_eq!(killed().status(), Some(Status::Signaled { sig: Signal::KILL, core: true }));
        let plain = Ended::of(How::HostLost, "a\nb".into());
        assert_eq!(Ended::parse(&plain.write()), Some(Ended { host: "a b".into(), ..plain.clone() }));
        assert_eq!(plain.status(), None);
    }

    #[test]
    fn unknown_names_are_skipped_and_broken_values_are_none() {
        let later = b"how=vanished\nnext=7\ncode=3\n\n";
        assert_eq!(Ended::parse(later), Some(Ended { code: 3, ..Ended::of(How::Unknown, "".into()) }));
        for broken in [&b""[..], b"how=exit", b"how=exit\n", b"code=x\n\n", b"code\n\n"] {
            assert_eq!(Ended::parse(broken), None, "{}", OsBytes::from(broken));
        }
    }

    #[test]
    fn key_has_the_group_and_the_rank() {
        assert_eq!((key(b"", 3), key(b"gen", 0)), (b"rlaunch/ended/3".to_vec(), b"rlaunch/ended/gen/0".to_vec()));
    }

    #[test]
    fn facts_of_a_failure_are_added() {
        let facts = Facts { tail: "boom\n".into(), error_file: Some("\n  why \nmore".into()), ..Facts::default() };
        let ended = Ended::of(How::Unknown, "a".into()).with_status(Status::Exited(3)).with_facts(&facts);
        assert_eq!(
            (ended.how, ended.code, ended.error, ended.last_words),
            (How::Exit, 3, "why".into(), "boom\n".into())
        );
    }
}
