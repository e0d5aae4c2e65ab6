//! Query by a command: ssh for its way to a host, scontrol for the settings of a cluster. The command ends after a few milliseconds.

use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_sys::child::{self, Stand, Started};
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::fd;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::spawn::Strings;
use rlaunch_sys::ssh_reaper::SshReaper;
use std::io;
use std::os::fd::AsRawFd as _;

/// How long the answer may take: a configuration may run commands of its own.
const PATIENCE: Span = Span::from_secs(5);
/// Far more than either prints; and less than its socket holds, so that it need not be read before its end.
const MOST: usize = 64 << 10;

/// A command that runs.
#[derive(Debug)]
pub(super) struct Query {
    node: NodeId,
    command: Started,
    /// When it is ended, if it does not end by itself.
    until: Option<Mono>,
}

impl Query {
    /// Starts it. Its end is reported under `token`.
    pub(super) fn start(
        (node, token): (NodeId, u64),
        words: &[OsBytes],
        ssh_reaper: &SshReaper,
        origin: &Origin,
        set: &ReadySet,
        now: Mono,
    ) -> io::Result<Self> {
        let words: Strings = words.iter().map(OsBytes::as_slice).collect();
        let command = child::start(&words, None, Stand::Apart, ssh_reaper, origin)?;
        let watched = fd::set_nonblocking(&command.stream).and_then(|()| set.add(&command.child.pidfd, token));
        if let Err(error) = watched {
            command.child.end(true);
            return Err(error);
        }
        Ok(Self { node, command, until: Some(now + PATIENCE) })
    }

    /// Which host it is about.
    pub(super) const fn node(&self) -> NodeId {
        self.node
    }

    /// When [`Self::pass`] wants to be called.
    pub(super) const fn deadline(&self) -> Option<Mono> {
        self.until
    }

    /// Ends it if it takes too long.
    pub(super) fn pass(&mut self, now: Mono) {
        if self.until.is_some_and(|until| until <= now) {
            self.until = None;
            self.command.child.end(true);
        }
    }

    /// Stdout of the command, once the command has ended; may be empty.
    pub(super) fn answer(mut self, set: &ReadySet) -> Vec<u8> {
        set.remove(&self.command.child.pidfd);
        let _how = self.command.child.ended();
        let mut said = Vec::new();
        while said.len() < MOST && fd::read_onto(self.command.stream.as_raw_fd(), &mut said, MOST).is_ok_and(|n| n > 0)
        {
        }
        said
    }
}
