//! The guardian of a remote host: the process that sshd's shell became. Its stdin is edge and lifeline in one.

use super::lease::{self, LeaseLine};
use super::{Fork, Post, Report, become_agent, fork, run, stand_apart};
use crate::fd;
use std::io;
use std::os::fd::OwnedFd;

/// An agent that was split off on a remote host.
#[derive(Debug)]
pub struct Remote {
    /// From the launcher.
    pub input: OwnedFd,
    /// To the launcher.
    pub output: OwnedFd,
    /// The guardian, our parent.
    pub guardian: OwnedFd,
    /// Where new deadlines are told.
    pub lease: LeaseLine,
}

/// Becomes the guardian, and forks the agent, in which alone this returns. `hello` is written to stdout as soon as there
/// is an agent; `lease` is the first deadline. Called before any thread exists and before anything big is allocated.
///
/// # Errors
/// No process or descriptor can be had.
pub fn split_remote(node: u32, hello: &[u8], lease: Option<u64>) -> io::Result<Remote> {
    // SAFETY: what is closed is used by nobody in this process: inherited from sshd and the login shell.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    stand_apart();
    let (line, watch) = lease::pair(lease)?;
    // Before the agent exists, which might find us dead and our number somebody else's.
    // SAFETY: getpid cannot fail.
    let guardian = crate::pidfd::open(unsafe { libc::getpid() })?;
    match fork()? {
        Fork::Child => {
            drop(watch);
            become_agent();
            Ok(Remote { input: fd::half(0)?, output: fd::half(1)?, guardian, lease: line })
        }
        Fork::Parent(agent) => {
            drop((line, guardian));
            // Complaints are the agent's; ssh would wait for whoever holds the stream.
            let _without = fd::release_stdio(&[2]);
            let mut rest = hello;
            while let Ok(n @ 1..) = fd::write(1, rest) {
                rest = &rest[n..];
            }
            let post = Post { lifeline: 0, report: Report::Frame { fd: 1, node }, lease: Some(watch) };
            run::run(agent, &post)
        }
    }
}
