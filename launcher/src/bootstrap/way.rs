//! The ssh that is asked which way it would take to a host. It connects nowhere, and has ended a few milliseconds later.

use super::ssh::{Part, token};
use rlaunch_core::bootstrap::Way;
use rlaunch_core::id::NodeId;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::time::{Mono, Span};
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
/// Far more than ssh says; and less than its socket holds, so that it need not be read before its end.
const MOST: usize = 64 << 10;

/// A question.
#[derive(Debug)]
pub(super) struct Asking {
    node: NodeId,
    ssh: Started,
    /// When it is ended, if it does not end by itself.
    until: Option<Mono>,
}

impl Asking {
    pub(super) fn start(
        node: NodeId,
        words: &[OsBytes],
        ssh_reaper: &SshReaper,
        origin: &Origin,
        set: &ReadySet,
        now: Mono,
    ) -> io::Result<Self> {
        let words: Strings = words.iter().map(OsBytes::as_slice).collect();
        let ssh = child::start(&words, Stand::Apart, ssh_reaper, origin)?;
        let watched =
            fd::set_nonblocking(&ssh.stream).and_then(|()| set.add(&ssh.child.pidfd, token(node, Part::Told)));
        if let Err(error) = watched {
            ssh.child.end(true);
            return Err(error);
        }
        Ok(Self { node, ssh, until: Some(now + PATIENCE) })
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
            self.ssh.child.end(true);
        }
    }

    /// The answer, once it has ended. Without one no host has to wait: ssh itself will report the error.
    pub(super) fn answer(mut self, set: &ReadySet) -> Way {
        set.remove(&self.ssh.child.pidfd);
        let _how = self.ssh.child.ended();
        let mut said = Vec::new();
        while said.len() < MOST && fd::read_onto(self.ssh.stream.as_raw_fd(), &mut said, MOST).is_ok_and(|n| n > 0) {}
        Way::parse(&said)
    }
}
