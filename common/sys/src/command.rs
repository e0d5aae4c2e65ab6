//! A command of the user's that runs beside a job: a shell runs it, with nothing to read, and an environment of its own. Its output is
//! one stream.

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
    child::only_main()?;
    let mut words = Strings::default();
    for word in [b"/bin/sh", &b"-c"[..], command] {
        words.push(word);
    }
    let null = crate::fd::dev_null()?;
    let (output, theirs) = crate::fd::pipe()?;
    crate::fd::set_nonblocking(&output)?;
    let streams = [null.as_raw_fd(), theirs.as_raw_fd(), theirs.as_raw_fd()];
    let given = Given { streams, directory: None, environment: Some(environment), adopts: true };
    Ok(Command { child: child::begin(&words, &given, Stand::Apart, ssh_reaper, origin)?, output })
}
