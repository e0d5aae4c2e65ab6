//! The descriptors of an edge: one socket on this machine, two halves where sshd is between.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// The open files behind an edge.
#[derive(Debug)]
pub(crate) struct Halves {
    input: File,
    /// `None`: it is the same socket.
    output: Option<File>,
}

impl Halves {
    pub(crate) fn socket(socket: impl Into<OwnedFd>) -> Self {
        Self { input: File::from(socket.into()), output: None }
    }

    pub(crate) fn two(input: OwnedFd, output: OwnedFd) -> Self {
        Self { input: input.into(), output: Some(output.into()) }
    }

    pub(crate) const fn input(&self) -> &File {
        &self.input
    }

    pub(crate) fn output(&self) -> &File {
        self.output.as_ref().unwrap_or(&self.input)
    }

    /// Returns the write half, if it is not the read half; the read half is dropped.
    pub(crate) fn into_output(self) -> Option<File> {
        self.output
    }

    /// Both of them, for good.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        for half in [Some(&self.input), self.output.as_ref()].into_iter().flatten() {
            let mut flags = OFlag::from_bits_retain(fcntl(half, FcntlArg::F_GETFL)?);
            if !flags.contains(OFlag::O_NONBLOCK) {
                flags.insert(OFlag::O_NONBLOCK);
                fcntl(half, FcntlArg::F_SETFL(flags))?;
            }
        }
        Ok(())
    }
}
