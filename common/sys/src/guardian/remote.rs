//! The guardian of a remote host: the process that a shell there became. The stream to the launcher is edge and lifeline in one.

use super::lease::{self, LeaseLine};
use super::{Fork, Post, Report, TempFiles, become_agent, close_others, fork, run, stand_apart};
use crate::fd;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::time::Duration;

/// An agent that was split off on a remote host.
#[derive(Debug)]
pub struct Remote {
    /// From the launcher.
    pub input: OwnedFd,
    /// To the launcher.
    pub output: OwnedFd,
    /// The guardian, our parent.
    pub guardian: OwnedFd,
    /// The line for new deadlines.
    pub lease: LeaseLine,
    /// The path that the guardian removes, too.
    pub temp_files: TempFiles,
    /// Why the guardian or the agent is no subreaper (prctl(2)): an errno.
    pub no_subreaper: Option<i32>,
}

/// The stream of a remote host to the launcher.
#[derive(Debug)]
pub enum Streams {
    /// stdin and stdout, as ssh and srun give them. If they are sealed, with the seal for the guardian's last words.
    Stdio(Option<LastWordsSeal>),
    /// A TCP socket, with the seal for the guardian's last words.
    Socket(OwnedFd, LastWordsSeal),
}

/// How a guardian proves that its last words are its own. It cannot seal them as its agent seals frames.
#[derive(Clone, Copy)]
pub struct LastWordsSeal {
    /// The key, which the launcher has too.
    pub key: [u8; 32],
    /// The tag of some bytes under a key. It must not allocate.
    pub tag: fn(&[u8; 32], &[u8]) -> [u8; 32],
}

impl fmt::Debug for LastWordsSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastWordsSeal(..)")
    }
}

/// Time that the agent waits for its guardian's hello, which takes no time: the guardian may be stopped.
const HELLO: Duration = Duration::from_secs(1);

/// Becomes the guardian, and forks the agent, in which alone this returns. Both hold the abstract unix name `rlaunch-job-NAME`: a pool
/// sees by it that something of a job is left. `hello` is written to the stream as soon as there
/// is an agent, and before it has anything to say; `lease` is the first deadline. Called before any thread exists and before anything big is allocated.
///
/// # Errors
/// No process or descriptor can be had.
pub fn split_remote(
    streams: &Streams,
    (node, name): (u32, &str),
    hello: &[u8],
    lease: Option<u64>,
) -> io::Result<Remote> {
    let (from, to, seal) = match streams {
        Streams::Stdio(seal) => (0, 1, *seal),
        Streams::Socket(socket, seal) => (socket.as_raw_fd(), socket.as_raw_fd(), Some(*seal)),
    };
    // Inherited from sshd and the login shell, or from slurmstepd.
    close_others([from.max(2), from.max(2)]);
    let no_subreaper = stand_apart();
    let (line, watch) = lease::pair(lease)?;
    // A host that allows no such names is in no pool.
    let claim = crate::job_parts::hold(name).ok();
    // Before the agent exists, which might find us dead and our number another process's. SAFETY: getpid cannot fail.
    let guardian = crate::pidfd::open(unsafe { libc::getpid() })?;
    // And all that may fail: behind `hello` a refusal would be taken for the agent's first message.
    let (input, output) = (fd::half(from)?, fd::half(to)?);
    let (said, saying) = fd::pipe()?;
    let temp_files = TempFiles::new()?;
    match fork()? {
        Fork::Child => {
            drop((watch, saying));
            let no_subreaper = become_agent().or(no_subreaper);
            // The name is the agent's for as long as it lives.
            let _claim = claim.map(OwnedFd::into_raw_fd);
            // Bytes of an agent before `hello`, as of one that has to refuse at once, are noise to the launcher. This is its end.
            let _hello = fd::read_exactly(said.as_raw_fd(), &mut [0], HELLO);
            Ok(Remote { input, output, guardian, lease: line, temp_files, no_subreaper })
        }
        Fork::Parent(agent) => {
            drop((line, guardian, input, output, said));
            // Complaints are the agent's; ssh would wait for any holder of the stream.
            let _without = fd::release_stdio(&[2]);
            let mut rest = hello;
            while let Ok(n @ 1..) = fd::write(to, rest) {
                rest = &rest[n..];
            }
            drop(saying);
            if matches!(streams, Streams::Socket(..)) {
                // The carrier has done its work: its streams have no reader.
                run::let_go_of_stdio();
            }
            let post = Post {
                lifeline: from,
                report: Report::Frame { fd: to, node, seal },
                lease: Some(watch),
                temp_files: Some(temp_files),
            };
            run::run(agent, &post)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of a process on its stdin and stdout, one socket, if it can have so many descriptors and uses none for stderr. Its
    /// agent says something at once.
    fn said_with(limit: u64, hello: &[u8], agent: &[u8]) -> Vec<u8> {
        let (parent_end, child_end) = fd::socket_pair().unwrap();
        // SAFETY: the child allocates no more than glibc's fork allows, and exits.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            for number in [0, 1] {
                // SAFETY: descriptor numbers, of which this process owns neither.
                unsafe { libc::dup2(child_end.as_raw_fd(), number) };
            }
            // SAFETY: it has no owner here.
            unsafe { libc::close(2) };
            let most = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: `most` is a valid limit.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most) };
            let code = u8::from(split_remote(&Streams::Stdio(None), (0, "test-0"), hello, None).is_err());
            fd::write(1, if code == 0 { agent } else { b"REFUSED" }).unwrap_or_default();
            crate::origin::exit_now(code);
        }
        drop(child_end);
        let (mut said, mut buf) = (Vec::new(), [0; 64]);
        while let Ok(n @ 1..) = fd::read(parent_end.as_raw_fd(), &mut buf) {
            said.extend_from_slice(&buf[..n]);
        }
        // SAFETY: our own child; a null status is allowed.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        said
    }

    /// The launcher took the refusal after it for a malformed message.
    #[test]
    fn refusal_comes_without_hello() {
        let said: Vec<_> = (3..16).map(|limit| said_with(limit, b"UP", b"")).collect();
        assert!(said.iter().all(|said| said == b"UP" || said == b"REFUSED"), "{said:?}");
        assert_eq!(said.first().zip(said.last()), Some((&b"REFUSED".to_vec(), &b"UP".to_vec())));
    }

    /// The refusal was taken for the output of a login, and the host for one whose agent had crashed.
    #[test]
    fn immediate_refusal_waits_for_hello() {
        // More than is written at once.
        let hello = [b'U'; 1 << 20];
        let said = said_with(64, &hello, b"REFUSED");
        assert!(
            said.starts_with(&hello) && said.ends_with(b"REFUSED"),
            "{:?}",
            said.windows(2).position(|w| w == b"UR")
        );
    }
}
