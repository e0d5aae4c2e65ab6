//! The command of `--preempt-probe`: a permanent thread runs it, again and again, until it exits with 0.
//!
//! The command is a child of this thread, and the kernel kills it with the agent. While ranks are swept it must not run: the agent counts
//! its children then. It is started again for the next generation.

use crate::edges::part::{Base, Part, PartName};
use rlaunch_base::warnings::{PROBE_LIMIT, PROBE_PAUSE, ProbeEnd, ProbeEnds, WarningSource};
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_sys::child::Child;
use rlaunch_sys::command;
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::pidfd::How;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::Context;
use std::time::{Duration, Instant};

/// Events of the thread in all: a note and a warning.
const ROOM: usize = 2;

/// The command may be started.
const ALLOWED: u8 = 1;
/// The command is being started, or runs.
const RUNNING: u8 = 2;

/// The command, and the way to its thread and back.
#[derive(Default)]
pub(super) struct PreemptProbe {
    /// The command, until its thread is started: a launch does not wait for that.
    command: Option<Vec<u8>>,
    port: Option<Port>,
}

struct Port {
    shared: Shared,
    events: Receiver<NodeEvent>,
    has_event: Doorbell,
}

/// The part of both threads.
#[derive(Clone)]
struct Shared {
    state: Arc<AtomicU8>,
    changed: Doorbell,
}

impl PreemptProbe {
    /// Ends the command, and starts it no more.
    pub(super) fn pause(&self) {
        if let Some(port) = &self.port {
            port.shared.state.fetch_and(!ALLOWED, Ordering::AcqRel);
            port.shared.changed.ring();
        }
    }

    /// Allows the command again.
    pub(super) fn resume(&self) {
        if let Some(port) = &self.port {
            port.shared.state.fetch_or(ALLOWED, Ordering::AcqRel);
            port.shared.changed.ring();
        }
    }

    /// Whether the command may be a child of ours.
    pub(super) fn is_running(&self) -> bool {
        self.port.as_ref().is_some_and(|port| port.shared.has(RUNNING))
    }
}

impl Part for PreemptProbe {
    type Action = Vec<u8>;

    fn perform(&mut self, _base: &mut Base, command: Vec<u8>) {
        self.command = Some(command);
    }

    /// Starts the thread once ranks run.
    fn poll(&mut self, base: &mut Base, _cx: &mut Context<'_>) {
        let Some(command) = self.command.take_if(|_| !base.ranks.is_empty()) else { return };
        let started = Port::start(command, base.origin);
        match started.and_then(|port| base.watch.add_part(&port.has_event, PartName::PreemptProbe).map(|()| port)) {
            Ok(port) => self.port = Some(port),
            Err(error) => tracing::warn!(%error, "no thread for --preempt-probe: the command is not run"),
        }
    }

    fn ready(&mut self, base: &mut Base) {
        if let Some(port) = &self.port {
            port.has_event.clear();
            base.events.extend(port.events.try_iter());
        }
    }
}

impl Port {
    fn start(command: Vec<u8>, origin: Origin) -> io::Result<Self> {
        let (sender, events) = sync_channel(ROOM);
        let (changed, has_event) = (Doorbell::new()?, Doorbell::new()?);
        let shared = Shared { state: Arc::new(AtomicU8::new(ALLOWED)), changed };
        let work = Work {
            command,
            origin,
            shared: shared.clone(),
            events: sender,
            has_event: has_event.clone(),
            pause: PROBE_PAUSE.duration(),
            limit: PROBE_LIMIT.duration(),
        };
        rlaunch_sys::thread::permanent("preempt", move || work.run())?;
        Ok(Self { shared, events, has_event })
    }
}

impl Shared {
    fn has(&self, bit: u8) -> bool {
        self.state.load(Ordering::Acquire) & bit != 0
    }

    /// Marks the command as running, where it may run.
    fn enter(&self) -> bool {
        self.state.compare_exchange(ALLOWED, ALLOWED | RUNNING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn leave(&self) {
        self.state.fetch_and(!RUNNING, Ordering::AcqRel);
    }
}

/// The thread.
struct Work {
    command: Vec<u8>,
    origin: Origin,
    shared: Shared,
    events: SyncSender<NodeEvent>,
    has_event: Doorbell,
    pause: Duration,
    limit: Duration,
}

impl Work {
    /// Runs the command until it warns. Then the thread sleeps for ever: it is a permanent one.
    fn run(&self) {
        let mut ends = ProbeEnds::default();
        loop {
            if !self.shared.enter() {
                rlaunch_sys::fd::wait_for_any(&[self.shared.changed.as_fd()], None);
                self.shared.changed.clear();
                continue;
            }
            let code = self.run_once();
            self.shared.leave();
            let is_paused = !self.shared.has(ALLOWED);
            let end = ends.on_end(code.filter(|_| !is_paused));
            let event = match &end {
                ProbeEnd::Warning => Some(NodeEvent::Warned(WarningSource::Probe)),
                ProbeEnd::Again(note) => note.clone().map(|note| NodeEvent::News(NodeNews::WarningNote(note))),
            };
            if let Some(event) = event {
                let _agent_has_ended = self.events.try_send(event);
            }
            self.has_event.ring();
            match end {
                ProbeEnd::Warning => return,
                ProbeEnd::Again(_) => self.sleep(),
            }
        }
    }

    /// Runs the command once. Returns its exit code; `None`: it was killed, or could not be started.
    fn run_once(&self) -> Option<u8> {
        match command::start_silent(&self.command, &self.origin) {
            Ok(child) => self.wait(child),
            Err(error) => {
                tracing::warn!(%error, "the command of --preempt-probe cannot be started");
                None
            }
        }
    }

    /// Waits for the end of the command, which is killed when its time has expired or it may not run.
    fn wait(&self, mut child: Child) -> Option<u8> {
        let until = Instant::now() + self.limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_due = left.is_zero() || !self.shared.has(ALLOWED);
            let has_ended = rlaunch_sys::fd::readable_now(&child.pidfd);
            if is_due || has_ended {
                // Also processes that the shell has left.
                child.end(true);
            }
            if has_ended {
                return match child.ended() {
                    Some(How::Code(code)) if !is_due => Some(code),
                    Some(How::Code(_) | How::Signal { .. }) | None => None,
                };
            }
            if is_due {
                rlaunch_sys::fd::wait_for_any(&[child.pidfd.as_fd()], None);
                continue;
            }
            rlaunch_sys::fd::wait_for_any(&[child.pidfd.as_fd(), self.shared.changed.as_fd()], Some(left));
            self.shared.changed.clear();
        }
    }

    /// Waits before the next run.
    fn sleep(&self) {
        let until = Instant::now() + self.pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            rlaunch_sys::fd::wait_for_any(&[self.shared.changed.as_fd()], Some(left));
            self.shared.changed.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that runs this command, and the way to it.
    fn start(command: &str, pause: Duration, limit: Duration) -> Port {
        let (sender, events) = sync_channel(ROOM);
        let (changed, has_event) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
        let shared = Shared { state: Arc::new(AtomicU8::new(ALLOWED)), changed };
        let work = Work {
            command: command.into(),
            origin: rlaunch_sys::origin::capture().unwrap(),
            shared: shared.clone(),
            events: sender,
            has_event: has_event.clone(),
            pause,
            limit,
        };
        rlaunch_sys::thread::permanent("preempt", move || work.run()).unwrap();
        Port { shared, events, has_event }
    }

    fn path(name: &str) -> String {
        format!("{}/rlaunch-preempt-{}-{name}", std::env::temp_dir().display(), std::process::id())
    }

    #[test]
    fn command_runs_until_it_exits_with_0_and_is_noted_if_it_cannot_run() {
        let file = path("runs");
        // Its second run warns.
        let command = format!("test -e {file} && exec rm {file}; touch {file}; exec /no/such");
        let port = start(&command, Duration::ZERO, Duration::from_secs(600));
        let events = [port.events.recv().unwrap(), port.events.recv().unwrap()];
        let note = NodeNews::WarningNote(rlaunch_base::warnings::WarningNote::NoProbe(127));
        assert_eq!(events, [NodeEvent::News(note), NodeEvent::Warned(WarningSource::Probe)]);
        assert!(!port.shared.has(RUNNING));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process of a test")]
    fn command_is_killed_with_its_children_after_its_limit_and_in_a_pause() {
        let fifo = path("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        // Two processes hold the pipe. The reader sees its end when both have exited.
        let hold = format!("exec 5>{fifo}; sleep 600 & exec sleep 600");
        let port = start(&hold, Duration::from_secs(600), Duration::from_millis(50));
        assert_eq!(std::fs::read(&fifo).unwrap(), b"", "killed after its limit");
        let paused = start(&hold, Duration::ZERO, Duration::from_secs(600));
        let mut held = std::fs::File::open(&fifo).unwrap();
        paused.shared.state.fetch_and(!ALLOWED, Ordering::AcqRel);
        paused.shared.changed.ring();
        std::io::Read::read_to_end(&mut held, &mut Vec::new()).unwrap();
        rlaunch_sys::fd::wait_for_any(&[paused.has_event.as_fd()], None);
        assert!(!paused.shared.has(RUNNING) && port.events.try_recv().is_err());
        std::fs::remove_file(fifo).unwrap();
    }
}
