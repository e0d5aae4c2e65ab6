//! Commands of the user's whose output is wanted: a shell runs them, with nothing to read, for a bounded time. Their descendants end with
//! them, and with us.

use crate::child::{self, Child, Given, Stand};
use crate::epoll::ReadySet;
use crate::origin::Origin;
use crate::pidfd::How;
use crate::signals::SignalFd;
use crate::spawn::Strings;
use crate::ssh_reaper::SshReaper;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// How much of what they complain about is kept: the last of it.
const COMPLAINTS: usize = 4 << 10;
/// The usual size of a pipe: no more is read at a time, because there may be more for ever.
const PIPE: usize = 64 << 10;
/// How long a killed one may take to be gone. A command that the kernel cannot end is left to the reaper.
const GONE: Duration = Duration::from_secs(1);

/// The outcome of a command.
#[derive(PartialEq, Eq, Debug)]
pub enum Answer {
    /// The command ended.
    Ended {
        /// How.
        how: How,
        /// Its output.
        output: Vec<u8>,
        /// The last of what it wrote to stderr.
        complaints: Vec<u8>,
    },
    /// The command took too long, and was killed.
    Late,
    /// The command printed too much, and was killed.
    TooMuch,
    /// A signal that ends us came; it was killed.
    Signal(u8),
}

/// The limits of a command.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time.
    pub time: Duration,
    /// Bytes of output.
    pub bytes: usize,
}

/// Runs commands, one at a time.
#[derive(Debug)]
pub struct HelperCommands<'a> {
    origin: &'a Origin,
    ssh_reaper: SshReaper,
}

impl<'a> HelperCommands<'a> {
    /// Gets ready.
    ///
    /// # Errors
    /// No process, descriptor or memory can be had.
    pub fn new(origin: &'a Origin) -> io::Result<Self> {
        // A signal must not end us before the reaper knows what to do then.
        Ok(Self { origin, ssh_reaper: Origin::uninterrupted(SshReaper::start)? })
    }

    /// Runs a command in a directory, to its end.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(&self, command: &[u8], directory: &[u8], limits: Limits) -> io::Result<Answer> {
        Origin::uninterrupted(|| {
            let mut run = Run::start(self, command, directory)?;
            let answer = run.wait(limits);
            if !matches!(answer, Ok(Answer::Ended { .. })) {
                run.kill();
            }
            answer
        })
    }

    /// Lets go of what they needed.
    pub fn end(mut self) {
        self.ssh_reaper.dismiss();
    }
}

/// A command that runs.
struct Run {
    child: Child,
    signals: SignalFd,
    set: ReadySet,
    output: Stream,
    complaints: Stream,
}

/// Our end of a stream, until it ends; and what has come.
struct Stream {
    from: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl Run {
    fn start(helper_commands: &HelperCommands<'_>, command: &[u8], directory: &[u8]) -> io::Result<Self> {
        let directory = CString::new(directory)?;
        let mut words = Strings::default();
        for word in [b"/bin/sh", &b"-c"[..], command] {
            words.push(word);
        }
        let signals = SignalFd::new(&helper_commands.origin.watched())?;
        let (null, set) = (crate::fd::dev_null()?, ReadySet::new()?);
        let ((output, their_output), (complaints, their_complaints)) = (crate::fd::pipe()?, crate::fd::pipe()?);
        for ours in [&output, &complaints] {
            crate::fd::set_nonblocking(ours)?;
            set.add(ours, 0)?;
        }
        let streams = [null.as_raw_fd(), their_output.as_raw_fd(), their_complaints.as_raw_fd()];
        // The kernel's signal follows the thread, and this one waits for the end.
        let given =
            Given { streams, directory: Some(&directory), environment: None, adopts: false, ends_by: libc::SIGTERM };
        let child =
            child::begin(&words, &given, Stand::Apart, Some(&helper_commands.ssh_reaper), helper_commands.origin)?;
        let mut run = Self { child, signals, set, output: Stream::of(output), complaints: Stream::of(complaints) };
        if let Err(error) = run.set.add(&run.child.pidfd, 0) {
            run.kill();
            return Err(error);
        }
        Ok(run)
    }

    fn wait(&mut self, limits: Limits) -> io::Result<Answer> {
        let until = Instant::now() + limits.time;
        loop {
            // First whether it has ended: then all that it has written is there.
            let over = crate::fd::readable_now(&self.child.pidfd);
            self.output.read(&self.set, limits.bytes.saturating_add(1))?;
            self.complaints.read(&self.set, COMPLAINTS + PIPE)?;
            let complaints = &mut self.complaints.bytes;
            complaints.drain(..complaints.len().saturating_sub(COMPLAINTS));
            if self.output.bytes.len() > limits.bytes {
                return Ok(Answer::TooMuch);
            }
            if over {
                // Before it is reaped: whatever it has left behind in its session.
                self.child.end(true);
                let how = self.child.ended().unwrap_or(How::Code(255));
                let (output, complaints) = (&mut self.output.bytes, &mut self.complaints.bytes);
                return Ok(Answer::Ended {
                    how,
                    output: std::mem::take(output),
                    complaints: std::mem::take(complaints),
                });
            }
            if let Some(signal) = self.signals.next() {
                return Ok(Answer::Signal(signal));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Answer::Late);
            }
            crate::fd::wait_for_any(&[self.set.as_fd(), self.signals.as_fd()], Some(left));
        }
    }

    /// Kills it and what it has started.
    fn kill(&mut self) {
        self.child.end(true);
        let until = Instant::now() + GONE;
        while self.child.ended().is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            crate::fd::wait_for_any(&[self.child.pidfd.as_fd()], Some(left));
        }
    }
}

impl Stream {
    fn of(from: OwnedFd) -> Self {
        Self { from: Some(from), bytes: Vec::new() }
    }

    /// Takes what is there, up to `most` bytes in all.
    fn read(&mut self, set: &ReadySet, most: usize) -> io::Result<()> {
        while let Some(from) = &self.from {
            let room = most.saturating_sub(self.bytes.len()).min(COMPLAINTS);
            match crate::fd::read_onto(from.as_raw_fd(), &mut self.bytes, room) {
                Ok(0) if room > 0 => {
                    set.remove(from);
                    self.from = None;
                }
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { time: Duration::from_secs(60), bytes: 1 << 20 };

    fn run(command: &str, directory: &str, limits: Limits) -> io::Result<Answer> {
        let origin = crate::origin::capture().unwrap();
        let helper_commands = HelperCommands::new(&origin).unwrap();
        let answer = helper_commands.run(command.as_bytes(), directory.as_bytes(), limits);
        helper_commands.end();
        let none = crate::pidfd::next_ended(true).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ECHILD), "{command}: everything is reaped");
        answer
    }

    fn ended(code: u8, output: &str, complaints: &str) -> Answer {
        Answer::Ended { how: How::Code(code), output: output.into(), complaints: complaints.into() }
    }

    #[test]
    fn a_command_and_what_it_says() {
        for (command, expected) in [
            ("echo a b; echo c", ended(0, "a b\nc\n", "")),
            ("echo no >&2; exit 3", ended(3, "", "no\n")),
            ("pwd; cat", ended(0, "/\n", "")),
            ("seq 4 | tail -n1 >/dev/stdout", ended(0, "4\n", "")),
            ("ls /proc/self/fd | wc -l", ended(0, "4\n", "")),
            ("exec >&-; exec 2>&-; exit 4", ended(4, "", "")),
            (
                "kill -9 $$",
                Answer::Ended { how: How::Signal { number: 9, core: false }, output: vec![], complaints: vec![] },
            ),
        ] {
            assert_eq!(run(command, "/", LIMITS).unwrap(), expected, "{command}");
        }
        let Answer::Ended { output, complaints, .. } = run("seq 99999; seq 99999 >&2", "/", LIMITS).unwrap() else {
            panic!("it ends");
        };
        assert!(output.starts_with(b"1\n2\n") && output.ends_with(b"\n99999\n"), "all of it");
        assert!(complaints.ends_with(b"\n99999\n") && complaints.len() == COMPLAINTS, "the last of it");
        assert_eq!(run("true", "/no/such", LIMITS).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    /// The other end of a pipe that only they hold: it ends when the last of them has.
    fn all_end(command: &str, limits: Limits) -> Answer {
        let origin = crate::origin::capture().unwrap();
        let helper_commands = HelperCommands::new(&origin).unwrap();
        let dir = std::env::temp_dir().join(format!("rlaunch-helper-command-{}-{}", std::process::id(), command.len()));
        std::fs::create_dir(&dir).unwrap();
        let fifo = dir.join("held");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let answer = std::thread::scope(|scope| {
            let held = scope.spawn(|| std::fs::read(&fifo).unwrap());
            let directory = dir.to_str().unwrap().as_bytes();
            let answer = helper_commands.run(format!("exec 5>held; {command}").as_bytes(), directory, limits).unwrap();
            helper_commands.end();
            assert_eq!(held.join().unwrap(), b"", "{command}");
            answer
        });
        std::fs::remove_dir_all(dir).unwrap();
        answer
    }

    #[test]
    fn slow_or_noisy_helper_is_killed_with_descendants() {
        let soon = Limits { time: Duration::from_millis(300), ..LIMITS };
        assert_eq!(all_end("trap '' TERM; (trap '' TERM; sleep 600) & sleep 600", soon), Answer::Late);
        assert_eq!(all_end("sleep 600 | yes", Limits { bytes: 5000, ..LIMITS }), Answer::TooMuch);
    }

    #[test]
    fn helper_descendants_end_with_it() {
        assert_eq!(all_end("trap '' TERM; sleep 600 & echo a", LIMITS), ended(0, "a\n", ""));
    }
}
