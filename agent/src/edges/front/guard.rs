//! Who may speak to a store that asks nobody for a name: processes of the job, as the kernel tells them.

use rlaunch_core::front::tcpstore::Peer;
use rlaunch_sys::facts::host;
use rlaunch_sys::holders::{Holders, Process};
use rlaunch_sys::sock_diag::SockDiag;
use std::io;
use std::net::SocketAddr;

/// Looks it up.
#[derive(Debug)]
pub(in crate::edges) struct Guard {
    diag: SockDiag,
    holders: Holders,
    /// The agent: all of the job on this host is below it.
    above: i32,
    /// Whose ranks run; root can be anybody.
    user: u32,
}

impl Guard {
    /// # Errors
    /// The kernel cannot be asked.
    pub(super) fn new() -> io::Result<Self> {
        let above = i32::try_from(std::process::id()).unwrap_or(0);
        Ok(Self { diag: SockDiag::open()?, holders: Holders::default(), above, user: host::user().0 })
    }

    /// Which process of the job has made each connection from these addresses of this host to `own`; `None`: none has, or it has
    /// closed it already.
    pub(super) fn judge(&mut self, own: SocketAddr, from: &[SocketAddr]) -> Vec<Option<Peer>> {
        let mut owner = |from: &SocketAddr| {
            // What cannot be found out is refused.
            let owner = self.diag.owner(*from, own).unwrap_or_else(|error| {
                tracing::warn!(%error, "the kernel does not tell whose a connection is");
                None
            });
            owner.filter(|owner| self.user == 0 || owner.uid == self.user).map(|owner| owner.inode)
        };
        let inodes: Vec<Option<u32>> = from.iter().map(&mut owner).collect();
        let known: Vec<u32> = inodes.iter().copied().flatten().collect();
        let mut found = self.holders.find(self.above, &known).into_iter();
        inodes.iter().map(|inode| inode.and_then(|_| found.next().flatten()).map(peer)).collect()
    }
}

/// A process as a number: that of its pid, and of its start as much as tells it from one before.
fn peer(process: Process) -> Peer {
    Peer(u64::from(process.pid.unsigned_abs()) << 32 | process.started & u64::from(u32::MAX))
}
