//! Answers on stdout and messages on stderr, outside of a job.

use crate::bootstrap::descriptors::TooFewDescriptors;
use crate::cli::CliError;
use crate::colour;
use crate::directory::{NoDirectory, NoFiles};
use crate::view::phrases;
use rlaunch_base::errno::EPIPE;
use rlaunch_base::error::Hint as _;
use rlaunch_base::exit;
use rlaunch_base::signal::Signal;
use rlaunch_sys::fd;
use std::borrow::Cow;
use std::io;

/// A command line that cannot be understood.
pub(crate) fn refuse(error: &CliError) -> u8 {
    say(&error.render());
    error.exit_code()
}

/// Something of rlaunch's own cannot be had.
pub(crate) fn broken(error: &anyhow::Error) -> u8 {
    let links = error.chain().map(|link| {
        // The system's own words begin like a sentence, and a number says nothing to a user that they do not.
        link.downcast_ref::<io::Error>().map_or_else(|| link.to_string(), phrases::shortage)
    });
    let text = links.collect::<Vec<_>>().join(": ");
    let errno = error.root_cause().downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    let own = error.downcast_ref::<TooFewDescriptors>().and_then(|error| error.hint());
    let own = own.or_else(|| error.downcast_ref::<NoDirectory>().and_then(|error| error.hint()));
    let own = own.or_else(|| error.downcast_ref::<NoFiles>().and_then(|error| error.hint()));
    let hint = own.or_else(|| errno.and_then(phrases::way_out).map(Cow::from));
    let hint = hint.map(|hint| format!("\n  try     {hint}")).unwrap_or_default();
    fail(&format!("{text}{hint}"))
}

/// Prints an error; returns the exit code.
pub(crate) fn fail(what: &str) -> u8 {
    say(&format!("error: {what}\n"));
    exit::LAUNCH
}

/// Writes the answer to stdout; returns the exit code. A reader that left ends us as it ends a job, and every other tool. An answer that
/// was not written is no success.
pub(crate) fn answer(text: &[u8]) -> u8 {
    let Err(error) = write_all(1, text) else { return 0 };
    let errno = error.raw_os_error().unwrap_or(0);
    if errno == EPIPE {
        rlaunch_sys::signals::die_of(Signal::PIPE.get());
        return Signal::PIPE.exit_code();
    }
    say(&format!("error: cannot write to stdout: {}\n", phrases::errno(errno)));
    exit::UNWRITTEN
}

/// Prints a message.
pub(crate) fn say(text: &str) {
    // If stderr is closed, the exit code has to do.
    let text = colour::painted(phrases::short_lines(text.to_owned()), 2);
    let _closed = write_all(2, text.as_bytes());
}

fn write_all(to: i32, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match fd::write(to, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process that shares it has made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => fd::wait_writable(to),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
