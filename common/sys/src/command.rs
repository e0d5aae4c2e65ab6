//! Commands of the user's that run beside a job: a shell runs them, with nothing to read. The output of a command of the launcher's is one
//! stream, and it has an environment of its own. A command of an agent has no output, and the agent's environment.

use crate::child::{self, Child, Given, Stand};
use crate::origin::Origin;
use crate::spawn::Strings;
use crate::ssh_reaper::SshReaper;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// A running command.
#[derive(Debug)]
pub struct Command {
    /// The shell.
    pub child: Child,
    /// Its output, stdout and stderr: it never waits for us.
    pub output: OwnedFd,
}

/// Starts one, in a session of its own, so that it and what it starts can be ended. If we are killed the reaper ends it.
///
/// # Errors
/// No process or descriptor can be had, there is no shell, or another thread than the main one calls.
pub fn start(command: &[u8], environment: &Strings, ssh_reaper: &SshReaper, origin: &Origin) -> io::Result<Command> {
    run(command, Some(environment), ssh_reaper, origin)
}

/// Starts one in the present environment. Its output is its stdout; its stderr is dropped.
///
/// # Errors
/// As of [`start`].
pub fn start_apart(command: &[u8], ssh_reaper: &SshReaper, origin: &Origin) -> io::Result<Command> {
    run(command, None, ssh_reaper, origin)
}

/// Starts a command of the launcher. The output has its stderr if the command has an environment of its own.
fn run(command: &[u8], environment: Option<&Strings>, ssh_reaper: &SshReaper, origin: &Origin) -> io::Result<Command> {
    child::only_main()?;
    let mut words = Strings::default();
    for word in [b"/bin/sh", &b"-c"[..], command] {
        words.push(word);
    }
    let null = crate::fd::dev_null()?;
    let (output, child_output) = crate::fd::pipe()?;
    crate::fd::set_nonblocking(&output)?;
    let stderr = if environment.is_some() { &child_output } else { &null };
    let streams = [null.as_raw_fd(), child_output.as_raw_fd(), stderr.as_raw_fd()];
    let given = Given { streams, directory: None, environment, adopts: true, ends_by: libc::SIGTERM };
    Ok(Command { child: child::begin(&words, &given, Stand::Apart, Some(ssh_reaper), origin)?, output })
}

/// Starts a command of an agent, in a session of its own. The kernel kills it with the calling thread, so that must be a permanent one.
///
/// # Errors
/// No process or descriptor can be had, or there is no shell.
pub fn start_silent(command: &[u8], origin: &Origin) -> io::Result<Child> {
    let mut words = Strings::default();
    for word in [b"/bin/sh", &b"-c"[..], command] {
        words.push(word);
    }
    let null = crate::fd::dev_null()?;
    let streams = [null.as_raw_fd(); 3];
    let given = Given { streams, directory: None, environment: None, adopts: false, ends_by: libc::SIGKILL };
    child::begin(&words, &given, Stand::Apart, None, origin)
}
