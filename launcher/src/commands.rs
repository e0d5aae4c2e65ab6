//! Commands of this machine that look up groups of hosts.

use crate::cli::{LARGEST, why};
use crate::serve::devices::hosts_of_slice;
use rlaunch_base::os_bytes::Visible;
use rlaunch_plan::hostlist::groups::Commands;
use rlaunch_sys::helper_command::{Answer, HelperCommands, Limits};
use rlaunch_sys::origin::Origin;
use rlaunch_sys::pidfd::How;
use rlaunch_sys::signals;
use std::cell::RefCell;
use std::io;
use std::time::Duration;

/// The limits of a command. A scheduler that is asked for its hosts may have to be waited for.
const LIMITS: Limits = Limits { time: Duration::from_secs(30), bytes: 16 << 20 };
const _: () = assert!(LIMITS.bytes as u64 == LARGEST, "as a hostfile");

pub(crate) struct LocalCommands<'a> {
    origin: &'a Origin,
    helper_commands: RefCell<Option<HelperCommands<'a>>>,
}

impl<'a> LocalCommands<'a> {
    pub(crate) const fn new(origin: &'a Origin) -> Self {
        Self { origin, helper_commands: RefCell::new(None) }
    }

    /// Lets go of what commands needed.
    pub(crate) fn end(self) {
        if let Some(helper_commands) = self.helper_commands.into_inner() {
            helper_commands.end();
        }
    }

    fn answer(&self, command: &str, directory: &str) -> io::Result<Answer> {
        let mut helper_commands = self.helper_commands.borrow_mut();
        let helper_commands = match helper_commands.take() {
            Some(ready) => helper_commands.insert(ready),
            None => helper_commands.insert(HelperCommands::new(self.origin)?),
        };
        helper_commands.run(command.as_bytes(), directory.as_bytes(), LIMITS)
    }
}

impl Commands for LocalCommands<'_> {
    fn slice(&self) -> Vec<String> {
        self.origin.interruptibly(hosts_of_slice)
    }

    fn run(&self, command: &str, directory: &str) -> Result<Vec<u8>, String> {
        match self.answer(command, directory) {
            Ok(Answer::Ended { how: How::Code(0), output, .. }) => Ok(output),
            Ok(Answer::Ended { how: How::Code(code), complaints, .. }) => {
                Err(format!("exited with {code}{}", last_words(&complaints)))
            }
            Ok(Answer::Ended { how: How::Signal { number, .. }, complaints, .. }) => {
                Err(format!("was ended by signal {number}{}", last_words(&complaints)))
            }
            Ok(Answer::Late) => Err(format!("did not end within {} s", LIMITS.time.as_secs())),
            Ok(Answer::TooMuch) => Err("printed more than 16 MiB".into()),
            Ok(Answer::Signal(signal)) => {
                signals::die_of(signal);
                // As process 1 there is no dying of it.
                rlaunch_sys::origin::exit_now(signal.saturating_add(128))
            }
            Err(error) => Err(format!("cannot be run in {directory}: {}", why(&error))),
        }
    }
}

/// The last line that says something.
fn last_words(complaints: &[u8]) -> String {
    let line = complaints.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).rfind(|line| !line.is_empty());
    line.map_or_else(String::new, |line| format!(": {}", Visible(line)))
}
