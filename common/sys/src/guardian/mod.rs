//! The guardian: a tiny process above the agent that outlives the first process to die and ends the rest.
//!
//! The guardian is single-threaded and allocates nothing. It has no parent-death signal: it must outlive its parent to clean up.

mod lease;
mod lifeline;
mod record;
mod remote;
mod run;
mod shm_files;
mod stale_shm;
mod temp_files;

pub use lease::LeaseLine;
pub use lifeline::{Lifeline, Word};
pub use record::{Record, example_frame};
pub use remote::{LastWordsSeal, Remote, Streams, split_remote};
pub use shm_files::{ShmFiles, remove as remove_shm};
pub use temp_files::TempFiles;

use crate::fd;
use crate::origin::Origin;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

/// Our role after the split.
#[derive(Debug)]
pub enum Role {
    /// Still the process the user started.
    Launcher {
        /// The stream to the agent.
        edge: OwnedFd,
        /// The stream to the guardian.
        lifeline: Lifeline,
        /// The path that agent and guardian remove, if they live.
        temp_files: TempFiles,
    },
    /// The agent, in a session of its own.
    Agent {
        /// The stream to the launcher.
        edge: OwnedFd,
        /// The guardian, our parent.
        guardian: OwnedFd,
        /// The path that the guardian removes, too.
        temp_files: TempFiles,
        /// Why the guardian or the agent is no subreaper (prctl(2)): an errno.
        no_subreaper: Option<i32>,
    },
    /// The guardian, which could not fork the agent and has nothing to guard.
    NoAgent {
        /// The stream to the launcher, in the agent's stead.
        edge: OwnedFd,
        /// The stream to the launcher that ends with this process.
        lifeline: OwnedFd,
        /// Why there is no agent.
        error: io::Error,
    },
}

/// Forks the guardian, which forks the agent. Called before any thread exists, and before anything big is allocated:
/// a child's peak memory starts at its parent's.
///
/// # Errors
/// No process or descriptor can be had.
pub fn split(origin: &Origin) -> io::Result<Role> {
    let (edge, agent_edge) = fd::socket_pair()?;
    let (lifeline, guardian_lifeline) = fd::socket_pair()?;
    let temp_files = TempFiles::new()?;
    match fork()? {
        Fork::Parent(guardian) => {
            origin.start_elsewhere(guardian);
            Ok(Role::Launcher { edge, lifeline: Lifeline::new(lifeline, Some(guardian)), temp_files })
        }
        Fork::Child => {
            close_others([agent_edge.as_raw_fd(), guardian_lifeline.as_raw_fd()]);
            // The launcher's ends were closed by number just now.
            let _closed = (edge.into_raw_fd(), lifeline.into_raw_fd());
            guard(agent_edge, guardian_lifeline, temp_files)
        }
    }
}

/// The last message of a guardian that has started nothing.
pub fn report_nothing_left(lifeline: &OwnedFd) {
    let mut record = [0; record::RECORD];
    record::write(record::Words { left: 0, expired: false, named: &[] }, &mut record);
    // The launcher may be gone.
    let _unread = fd::write(lifeline.as_raw_fd(), &record);
}

/// A subreaper in a session of its own, if it can have one. Why it is none, as an errno.
fn stand_apart() -> Option<i32> {
    // SAFETY: setsid takes nothing. A fresh child is no group leader; sshd's child leads its session already.
    unsafe { libc::setsid() };
    // SAFETY: prctl with PR_SET_CHILD_SUBREAPER takes integers only.
    let rc = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    (rc != 0).then(crate::errno::errno)
}

/// Closes every descriptor above 2 but these: what rlaunch inherited is no business of ours or of the ranks.
pub(crate) fn close_others(keep: [RawFd; 2]) {
    let mut keep = keep.map(RawFd::cast_unsigned);
    keep.sort_unstable();
    let mut from = 3;
    for kept in keep {
        if from < kept {
            // SAFETY: the closed descriptors are not used in this process: inherited, or the launcher's ends.
            unsafe { libc::close_range(from, kept - 1, 0) };
        }
        from = kept + 1;
    }
    // SAFETY: as above.
    unsafe { libc::close_range(from, u32::MAX, 0) };
}

/// The guardian's life. Returns only in the agent.
fn guard(edge: OwnedFd, lifeline: OwnedFd, temp_files: TempFiles) -> io::Result<Role> {
    let no_subreaper = stand_apart();
    // Before the agent exists, which might find us dead and our number another process's. SAFETY: getpid cannot fail.
    let guardian = crate::pidfd::open(unsafe { libc::getpid() })?;
    match fork() {
        Ok(Fork::Child) => {
            let no_subreaper = become_agent().or(no_subreaper);
            // Our copy of the guardian's end must not keep the lifeline from hanging up.
            drop(lifeline);
            Ok(Role::Agent { edge, guardian, temp_files, no_subreaper })
        }
        Ok(Fork::Parent(agent)) => {
            // The agent starts the ranks, so it runs first if it shares our CPU.
            std::thread::yield_now();
            drop((edge, guardian));
            run::let_go_of_stdio();
            run::run(
                agent,
                &Post {
                    lifeline: lifeline.as_raw_fd(),
                    report: Report::Lifeline,
                    lease: None,
                    temp_files: Some(temp_files),
                },
            )
        }
        Err(error) => Ok(Role::NoAgent { edge, lifeline, error }),
    }
}

fn become_agent() -> Option<i32> {
    // SAFETY: the name is a C string of at most 15 characters.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"rlaunch-agent".as_ptr()) };
    stand_apart()
}

/// The things that a guardian watches besides its agent, and the destination of its record.
#[derive(Debug)]
struct Post {
    /// Its end is the launcher's, or the connection's.
    lifeline: RawFd,
    report: Report,
    lease: Option<lease::Watch>,
    temp_files: Option<TempFiles>,
}

/// The destination of the record.
#[derive(Clone, Copy, Debug)]
enum Report {
    /// As it is, onto the lifeline, on which the launcher also gets a descriptor of the agent.
    Lifeline,
    /// As a frame after the agent's last. A stream other than stdout is a TCP socket.
    Frame { fd: RawFd, node: u32, seal: Option<LastWordsSeal> },
}

impl Report {
    const fn is_tcp(self) -> bool {
        matches!(self, Self::Frame { fd: 3.., .. })
    }
}

pub(crate) enum Fork {
    Parent(i32),
    Child,
}

pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the process has a single thread, or the child calls nothing but the kernel (glibc's fork, not the raw call, so
    // that its cached tid stays true).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}
