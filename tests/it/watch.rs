//! Observations of a running case: its output, its event log and its end, gathered by threads and waited for by the test.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A case that shows nothing new for so long hangs. An import of torch from a slow disk has taken half a minute.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// A case that is still busy then does so for ever.
pub(crate) const LONGEST: Duration = Duration::from_secs(900);

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    Code(i32),
    Signal(Signal),
}

impl Exit {
    pub(crate) fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

/// Everything seen so far.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) events: Vec<Value>,
    /// The incomplete line of the event log.
    pub(crate) rest: Vec<u8>,
    /// The end, and when.
    pub(crate) exit: Option<(Exit, Instant)>,
    open: u32,
}

impl Seen {
    /// All readers have met their end.
    pub(crate) fn is_closed(&self) -> bool {
        self.open == 0
    }
    pub(crate) fn named<'a>(&'a self, ev: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |e| e["ev"] == ev)
    }
    fn take_events(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let unreadable =
                |e| json!({"ev": "unreadable", "why": format!("{e}"), "line": String::from_utf8_lossy(&line)});
            self.events.push(serde_json::from_slice(&line).unwrap_or_else(unreadable));
        }
    }
}

/// The destination of a reader.
#[derive(Clone, Copy)]
pub(crate) enum Into {
    Out,
    Err,
    Events,
}

/// Observations, shared between the test and the threads that look.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<(Mutex<Seen>, Condvar)>);

impl Watch {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn change(&self, what: impl FnOnce(&mut Seen)) {
        what(&mut self.seen());
        self.0.1.notify_all();
    }

    /// Reads to the end, in a thread.
    pub(crate) fn read(&self, mut from: impl Read + Send + 'static, to: Into) {
        self.seen().open += 1;
        let watch = self.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                watch.change(|seen| match to {
                    Into::Out => seen.out.extend_from_slice(&buffer[..n]),
                    Into::Err => seen.err.extend_from_slice(&buffer[..n]),
                    Into::Events => seen.take_events(&buffer[..n]),
                });
            }
            watch.change(|seen| seen.open -= 1);
        });
    }

    /// Notes the end of a child in a thread, and leaves it to be reaped: its number cannot be another's meanwhile.
    pub(crate) fn wait_for(&self, pid: Pid) {
        let watch = self.clone();
        std::thread::spawn(move || {
            let exit = loop {
                match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                    Ok(WaitStatus::Exited(_, code)) => break Exit::Code(code),
                    Ok(WaitStatus::Signaled(_, sig, _)) => break Exit::Signal(sig),
                    Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                    Err(e) => panic!("waitid {pid}: {e}"),
                }
            };
            watch.change(|seen| seen.exit = Some((exit, Instant::now())));
        });
    }

    /// Waits until `what` is there; `None` if nothing new came for [`IDLE`].
    pub(crate) fn until<T>(&self, mut what: impl FnMut(&Seen) -> Option<T>) -> Option<T> {
        let start = Instant::now();
        let mut seen = self.seen();
        loop {
            if let Some(found) = what(&seen) {
                return Some(found);
            }
            let (next, timeout) = self.0.1.wait_timeout(seen, IDLE).unwrap();
            seen = next;
            if timeout.timed_out() || start.elapsed() > LONGEST {
                return what(&seen);
            }
        }
    }
}

/// The reading end of a named pipe that may never be opened for writing: waits for bytes without a clock.
pub(crate) struct Fifo(pub(crate) File);

impl Read for Fifo {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            // Hangs up only after a first writer came and left.
            poll(&mut fds, PollTimeout::NONE)?;
            match self.0.read(buffer) {
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {}
                done => return done,
            }
        }
    }
}
