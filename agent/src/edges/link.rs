//! The stream to the launcher.

use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_net::seal::Seal;
use rlaunch_net::{Connection, Early};
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_protocol::wire::to_root::{NodeRefusal, ToRoot};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long the launcher may take to accept the last words of an agent without a runtime.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The carrier of the stream to the launcher.
#[derive(Debug)]
pub enum Edge {
    /// A socket.
    Socket(OwnedFd),
    /// The pipes of sshd or srun, on another machine.
    Halves {
        /// From the launcher.
        input: OwnedFd,
        /// To the launcher.
        output: OwnedFd,
    },
    /// A sealed edge: its messages are encrypted after the handshake.
    Sealed(Box<Self>, Box<Seal>),
}

impl Edge {
    /// The same edge, with this seal.
    #[must_use]
    pub fn sealed(self, seal: Option<Box<Seal>>) -> Self {
        match seal {
            Some(seal) => Self::Sealed(Box::new(self), seal),
            None => self,
        }
    }

    pub(crate) fn early(self) -> Early<ToNode> {
        match self {
            Self::Socket(fd) => Early::new(fd),
            Self::Halves { input, output } => Early::from_halves(input, output),
            Self::Sealed(edge, seal) => edge.early().sealed(*seal),
        }
    }
}

/// The stream to the launcher; `None`: it has ended.
pub(super) type Link = Option<Connection<ToNode>>;

/// Why an agent cannot continue: it would look like a crash otherwise.
pub(crate) fn last_word(node: NodeId, link: &mut Early<ToNode>, step: &str, error: &io::Error) {
    let _overflow = link.send(node, &refusal(step, error));
    match link.flush_within(LAST_WORDS) {
        Ok(true) => {}
        Ok(false) => tracing::warn!("the launcher does not take our last words"),
        Err(error) => tracing::debug!(%error, "the edge to the launcher cannot be written"),
    }
}

/// A step that has failed, without which an agent cannot continue.
pub(super) fn refusal(step: &str, error: &io::Error) -> ToRoot {
    let errno = error.raw_os_error().unwrap_or(0);
    ToRoot::Refused(NodeRefusal::Resource { errno, step: OsBytes::from(step) })
}
