//! The spawn thread: the parent of every rank, for as long as the agent lives. Where all ranks are started again another one follows,
//! once nothing is left of those of the first: a thread has one PID namespace for its children, and never another.
//!
//! The thread registers new descriptors in two readiness sets itself, so no other thread has to wake for a launch until bytes or an exit
//! exist.

use super::clone::{Failure, Step, Workspace, never_ran, numbers, pipe, pipes_failed};
use super::prepare::PreparedExec;
use super::slots::Slots;
use crate::doorbell::Doorbell;
use crate::epoll::ReadySet;
use crate::init::Newborn;
use crate::ns::{self, Init, NsError};
use crate::origin::Origin;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// Most requests under way; the node machine asks for fewer.
const ROOM: usize = 256;

/// A rank that runs.
#[derive(Debug)]
pub struct Launched {
    /// The agent's number for it.
    pub proc: u32,
    /// Its process id on the host.
    pub pid: i32,
    /// The process.
    pub pidfd: OwnedFd,
    /// `CLOCK_BOOTTIME` when it was started.
    pub at: u64,
    /// Our end of its stdin, where it has one.
    pub stdin: Option<OwnedFd>,
    /// Our end of its stdout.
    pub stdout: OwnedFd,
    /// Our end of its stderr.
    pub stderr: OwnedFd,
}

/// The outcome of a request.
#[derive(Debug)]
pub enum Outcome {
    /// A rank runs. It is in both sets.
    Launched(Box<Launched>),
    /// The rank could not be started.
    Failed {
        /// Which.
        proc: u32,
        /// Why.
        failure: Box<Failure>,
    },
    /// The rank was not started any more: another one that was needed could not be, or it is not wanted now.
    Withheld {
        /// Which.
        proc: u32,
    },
    /// The PID namespace that was asked for.
    Namespace(Box<Result<Init, NsError>>),
}

enum Request {
    Namespace,
    Retire,
    Exec { proc: u32, exec: PreparedExec },
}

/// The way to the spawn thread and back.
#[derive(Debug)]
pub struct SpawnPort {
    requests: SyncSender<Request>,
    outcomes: Receiver<Outcome>,
    bell: Doorbell,
    withhold: Arc<AtomicBool>,
    destroying: Arc<AtomicBool>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Namespace => f.write_str("Namespace"),
            Self::Retire => f.write_str("Retire"),
            Self::Exec { proc, .. } => write!(f, "Exec({proc})"),
        }
    }
}

/// The token of a rank's stdout (1) or stderr (2) in the set of streams.
#[must_use]
pub const fn stream_token(proc: u32, descriptor: u32) -> u64 {
    ((proc as u64) << 2) | descriptor as u64
}

impl SpawnPort {
    /// Starts the thread. `exits` gets a rank's pidfd under its number, `streams` its two pipes under [`stream_token`].
    ///
    /// # Errors
    /// No thread or descriptor can be had.
    pub fn start(origin: Origin, exits: Arc<ReadySet>, streams: Arc<ReadySet>) -> io::Result<Self> {
        let (requests, inbox) = sync_channel(ROOM);
        let (outbox, outcomes) = sync_channel(2 * ROOM);
        let bell = Doorbell::new()?;
        let slots = Slots::new()?;
        let withhold = Arc::new(AtomicBool::new(false));
        let destroying = Arc::new(AtomicBool::new(false));
        let worker = Worker {
            origin,
            exits,
            streams,
            slots,
            outbox,
            bell: bell.clone(),
            withhold: Arc::clone(&withhold),
            destroying: Arc::clone(&destroying),
            newborn: None,
        };
        let thread = crate::thread::start("spawn", move || worker.run(&inbox))?;
        // On our CPU it would wait until we sleep. We have as much to do as it has.
        origin.start_thread_elsewhere(&thread);
        Ok(Self { requests, outcomes, bell, withhold, destroying })
    }

    /// Asks for a PID namespace for all later ranks.
    ///
    /// # Errors
    /// The thread has too much to do, or is gone.
    pub fn namespace(&self) -> Result<(), Full> {
        self.requests.try_send(Request::Namespace).map_err(|_| Full)
    }

    /// Asks for a rank.
    ///
    /// # Errors
    /// The thread has too much to do, or is gone.
    pub fn submit(&self, proc: u32, exec: PreparedExec) -> Result<(), Full> {
        self.requests.try_send(Request::Exec { proc, exec }).map_err(|_| Full)
    }

    /// Lets the thread end, which has no child any more: what dies with its parent would die with it.
    pub fn retire(self) {
        // A full queue belongs to a thread that is gone already.
        let _full = self.requests.try_send(Request::Retire);
    }

    /// Starts nothing of what it was asked for and has not begun: that is answered by [`Outcome::Withheld`].
    pub fn withhold(&self) {
        self.withhold.store(true, Ordering::SeqCst);
    }

    /// Everything is about to be killed: who is killed before the exec was never started.
    pub fn destroying(&self) {
        self.destroying.store(true, Ordering::SeqCst);
        self.withhold();
    }

    /// The outcomes of requests, without waiting.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome> + '_ {
        self.outcomes.try_iter()
    }

    /// The next outcome; waits for it. `None` if the thread is gone.
    #[must_use]
    pub fn wait(&self) -> Option<Outcome> {
        self.outcomes.recv().ok()
    }

    /// Rings at the end of a batch and at a failure.
    #[must_use]
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }
}

/// The spawn thread takes no more requests.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the spawn thread takes no more requests")]
pub struct Full;

struct Worker {
    origin: Origin,
    exits: Arc<ReadySet>,
    streams: Arc<ReadySet>,
    slots: Slots,
    outbox: SyncSender<Outcome>,
    bell: Doorbell,
    withhold: Arc<AtomicBool>,
    destroying: Arc<AtomicBool>,
    /// The init of a PID namespace that no rank is in yet.
    newborn: Option<Newborn>,
}

impl Worker {
    fn run(mut self, inbox: &Receiver<Request>) {
        let mut workspace = Workspace::new();
        let mut is_restored = false;
        while let Some(request) = self.next(inbox) {
            if !core::mem::replace(&mut is_restored, true) {
                self.origin.restore_cpus();
            }
            let (outcome, urgent) = match request {
                Request::Retire => return,
                Request::Namespace => {
                    let init = ns::enter().map(|(init, newborn)| {
                        self.newborn = newborn;
                        init
                    });
                    (Outcome::Namespace(Box::new(init)), true)
                }
                Request::Exec { proc, .. } if self.withhold.load(Ordering::SeqCst) => {
                    (Outcome::Withheld { proc }, false)
                }
                Request::Exec { proc, exec } => match self.launch(&mut workspace, proc, &exec) {
                    Ok(()) => continue,
                    Err(failure) => {
                        if exec.needed {
                            // The job ends with this: ranks that are requested already, up to a whole queue, would only be ended.
                            self.withhold.store(true, Ordering::SeqCst);
                        }
                        (Outcome::Failed { proc, failure: Box::new(failure) }, true)
                    }
                },
            };
            if self.outbox.send(outcome).is_err() {
                break;
            }
            if urgent {
                self.bell.ring();
            }
        }
        // The agent is gone: so is this process in a moment. Ranks must not lose their parent before.
        loop {
            std::thread::park();
        }
    }

    /// The next request; rings the bell before it waits for one.
    fn next(&self, inbox: &Receiver<Request>) -> Option<Request> {
        match inbox.try_recv() {
            Ok(request) => Some(request),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                self.bell.ring();
                inbox.recv().ok()
            }
        }
    }

    fn launch(&mut self, workspace: &mut Workspace, proc: u32, exec: &PreparedExec) -> Result<(), Failure> {
        let (stdout, their_stdout) = pipe()?;
        let (stderr, their_stderr) = pipe()?;
        let (their_stdin, stdin) = if exec.stdin {
            let (read, write) = pipe()?;
            crate::fd::set_nonblocking(&write).map_err(|e| pipes_failed(&e))?;
            (Some(read), Some(write))
        } else {
            (None, None)
        };
        let stdio = numbers([their_stdin.as_ref().unwrap_or(self.slots.null()), &their_stdout, &their_stderr]);
        let watch = |fd, n| self.streams.add(fd, stream_token(proc, n)).map_err(|e| pipes_failed(&e));
        watch(&stdout, 1)?;
        watch(&stderr, 2).inspect_err(|_| self.streams.remove(&stdout))?;
        let unwatch = |_: &Failure| {
            self.streams.remove(&stdout);
            self.streams.remove(&stderr);
        };
        let at = crate::clock::boottime();
        let newborn = self.newborn.take();
        newborn.iter().for_each(|init| init.wait());
        let near = self.slots.bring(stdio).map_err(|e| pipes_failed(&e)).inspect_err(unwatch)?;
        let started = workspace.start(exec, &self.origin, near.stdio, newborn.is_some());
        drop(near);
        let (pid, pidfd) = started.inspect_err(unwatch)?;
        if self.destroying.load(Ordering::SeqCst) && never_ran(pid) {
            crate::pidfd::reap(&pidfd);
            let failure = Failure::of(Step::Clone, libc::EINTR);
            return Err(failure).inspect_err(unwatch);
        }
        if let Err(e) = self.exits.add(&pidfd, u64::from(proc)) {
            let _killed = crate::pidfd::signal(&pidfd, libc::SIGKILL);
            crate::pidfd::reap(&pidfd);
            return Err(pipes_failed(&e)).inspect_err(unwatch);
        }
        let launched = Launched { proc, pid, pidfd, at, stdin, stdout, stderr };
        if self.outbox.send(Outcome::Launched(Box::new(launched))).is_err() {
            // The machine thread is gone, and with it the agent in a moment.
            self.bell.ring();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare::{PreparedApp, Strings};
    use super::*;

    fn port() -> SpawnPort {
        let set = || Arc::new(ReadySet::new().unwrap());
        SpawnPort::start(crate::origin::capture().unwrap(), set(), set()).unwrap()
    }

    fn exec(program: &str, needed: bool) -> PreparedExec {
        let app = Arc::new(PreparedApp::new([program.as_bytes()], [], None));
        PreparedExec {
            app,
            vars: Strings::default(),
            stdin: false,
            cpus: Box::default(),
            memory: None,
            has_session: true,
            needed,
        }
    }

    /// The outcome of `/bin/true` after a program that cannot be started.
    fn behind(needed: bool) -> Outcome {
        let port = port();
        port.submit(0, exec("/no/such/program", needed)).unwrap();
        port.submit(1, exec("/bin/true", true)).unwrap();
        assert!(matches!(port.wait(), Some(Outcome::Failed { proc: 0, .. })));
        port.wait().unwrap()
    }

    #[test]
    fn behind_what_is_needed_and_cannot_be_started_nothing_is() {
        assert!(matches!(behind(true), Outcome::Withheld { proc: 1 }));
        let Outcome::Launched(launched) = behind(false) else { panic!("it was to be started") };
        crate::fd::wait_readable(std::os::fd::AsRawFd::as_raw_fd(&launched.pidfd));
        crate::pidfd::reap(&launched.pidfd);
    }
}
