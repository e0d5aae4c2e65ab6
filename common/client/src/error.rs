//! Why something did not work.

use rlaunch_protocol::wire::frozen::client::{Code, MAX_FRAME, Refused, VERSION};
use rlaunch_restart::terms::TermsError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why the store was not asked, or has not done it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program does not run below rlaunch, or its environment was cleared.
    #[error(
        "RLAUNCH_SOCKET is not set: this process runs outside rlaunch, or its agent found no directory for a socket"
    )]
    NoJob,
    /// The same, and it is one of several ranks: alone it would do the work of all of them, as each of the others would.
    #[error(
        "RLAUNCH_SOCKET is missing in a job of {0} ranks: removed (env -i, sudo), or no directory for the socket (try: keep the environment, or set TMPDIR on this host)"
    )]
    NoSocket(u32),
    /// A variable that rlaunch sets was changed.
    #[error("{name}={value:?} (environment) is no number: rlaunch sets it, and somebody has changed it")]
    Variable {
        /// Which.
        name: &'static str,
        /// The present value.
        value: String,
    },
    /// The agent cannot be reached.
    #[error("cannot connect to the agent at {}: {source}", path.display())]
    Connect {
        /// The path of its socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The socket belongs to another user than this process and root.
    #[error("the socket {} belongs to user {user}: the job has ended, or this process has changed its user", path.display())]
    ForeignSocket {
        /// The path of the socket.
        path: PathBuf,
        /// The user.
        user: u32,
    },
    /// The connection has ended, with the agent or by its word.
    #[error("the agent has closed the connection{}", if .0.is_empty() { String::new() } else { format!(": {}", .0) })]
    Closed(String),
    /// The connection has failed.
    #[error("the connection to the agent has failed: {0}")]
    Io(#[from] io::Error),
    /// The agent says what this version does not understand.
    #[error("the agent says what this version does not understand")]
    Malformed,
    /// The agent speaks another version only.
    #[error("the agent speaks version {0} of the protocol, and this client version {VERSION}")]
    Version(u32),
    /// The process is in no worker group.
    #[error("RLAUNCH_GROUP is not set: this process is in no worker group (start it with rlaunch --group NAME)")]
    NoGroup,
    /// A worker of a group cannot be called.
    #[error("cannot connect to rank {rank} of group {group} on {host}: {source}")]
    Worker {
        /// Name of the group.
        group: String,
        /// Rank in the group.
        rank: u32,
        /// Its host.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// More than a message can hold.
    #[error("{0} bytes are more than a message can hold ({most}); a value takes at most 512 KiB (try: several keys)", most = MAX_FRAME)]
    TooLong(usize),
    /// The condition did not come true in time.
    #[error("after {within:?}: {missing}")]
    TimedOut {
        /// How long it was waited for.
        within: Duration,
        /// The missing part.
        missing: String,
    },
    /// The round has ended meanwhile.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A forked child has no part in the session.
    #[error("this is a forked child: only the process that has registered speaks for its rank")]
    Forked,
    /// The terms of rounds do not go together, or are none.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// A function that is asked for a key of the policy has none for this process.
    #[error("a key of the policy: {0}")]
    Key(String),
    /// Not at this moment.
    #[error("{0}")]
    Order(&'static str),
    /// The agent is of an older version than this program, by its own answer.
    #[error("the agent of this job is older than this program, and cannot do what it asks: {0}")]
    Unsupported(String),
    /// The store has not done it.
    #[error("{text}{}", if hint.is_empty() { String::new() } else { format!(" ({hint})") })]
    Refused {
        /// The kind.
        code: Code,
        /// Why.
        text: String,
        /// The advice; may be empty.
        hint: String,
    },
}

/// The round has ended: the function is to be left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the round has ended: the function is to be left")]
pub struct Interrupted;

impl From<Refused<'_>> for Error {
    fn from(refused: Refused<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match (refused.code, refused.within) {
            (Code::TimedOut, Some(within)) => Self::TimedOut { within: within.duration(), missing: text(refused.text) },
            (Code::Unsupported, _) => Self::Unsupported(text(refused.text)),
            (code, _) => Self::Refused { code, text: text(refused.text), hint: text(refused.hint) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_protocol::wire::frozen::client::{ClientFrame, Reply};

    #[test]
    fn older_agent_is_distinguished_from_one_that_refuses() {
        let Ok(ClientFrame::Unknown(unknown)) = ClientFrame::parse(b"\x0b\0\0\0\x01\x01\0\0\0\0\0\0\0\0\x63") else {
            panic!()
        };
        let reply = unknown.reply();
        let Ok(Reply::Refused(refused)) = Reply::parse(&reply) else { panic!("{reply:?}") };
        assert_eq!(
            Error::from(refused).to_string(),
            "the agent of this job is older than this program, and cannot do what it asks: this version does not know the operation 99"
        );
    }
}
