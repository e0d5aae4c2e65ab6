//! Commands of `--on-restart` and `--on-exit`: the edges of `rlaunch_core::hooks`. Their output goes to our stderr, marked.
//!
//! A command starts only when the messages of the performed actions are on their way to the hosts. A round does not wait for this start
//! either.

use super::now;
use super::part::{Outcome, Part};
use crate::view::hook_messages as words;
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::Machine as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Mono;
use rlaunch_core::events::Record;
use rlaunch_core::hooks::{HookAction, HookEvent, Hooks as Machine, On, Vars, Wanted, concerns};
use rlaunch_plan::place::Placement;
use rlaunch_protocol::env::of_command;
use rlaunch_sys::child::Child;
use rlaunch_sys::command::{self, Command};
use rlaunch_sys::detached_descendants::DetachedDescendants;
use rlaunch_sys::fd;
use rlaunch_sys::origin::{self, Origin};
use rlaunch_sys::pidfd::How;
use rlaunch_sys::spawn::Strings;
use rlaunch_sys::ssh_reaper::SshReaper;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// Read at a time.
const CHUNK: usize = 4 << 10;
/// The longest line that is shown as one.
const LINE: usize = 4 << 10;
/// Most bytes of one command that are shown.
const SHOWN: usize = 64 << 10;

pub(super) struct Hooks {
    /// `None`: none was asked for.
    asked: Option<Box<Asked>>,
}

struct Asked {
    machine: Machine,
    origin: Origin,
    /// `None` at the end of the job.
    ssh_reaper: Option<SshReaper>,
    running: Option<Running>,
}

/// A command that runs.
struct Running {
    on: On,
    child: Child,
    /// Its detached descendants, as far as they were to be ended.
    away: DetachedDescendants,
    ended: AsyncFd<OwnedFd>,
    /// Until it ends.
    output: Option<AsyncFd<OwnedFd>>,
    line: Vec<u8>,
    /// Bytes that were shown, or begun to be.
    shown: usize,
}

impl Hooks {
    pub(super) fn new(wanted: &Wanted, placement: &Placement, names: Vec<String>, origin: &Origin) -> io::Result<Self> {
        if !wanted.is_any() {
            return Ok(Self { asked: None });
        }
        let machine = Machine::new(wanted.clone(), Arc::new(placement.clone()), names);
        // All signals are blocked.
        let ssh_reaper = Some(SshReaper::start()?);
        Ok(Self { asked: Some(Box::new(Asked { machine, origin: *origin, ssh_reaper, running: None })) })
    }

    /// Lets go of what they needed.
    pub(super) fn dismiss(&mut self) {
        if let Some(mut ssh_reaper) = self.asked.as_mut().and_then(|asked| asked.ssh_reaper.take()) {
            ssh_reaper.dismiss();
        }
    }
}

impl Part for Hooks {
    fn receive(&mut self, record: &Record) {
        if let Some(asked) = self.asked.as_mut().filter(|_| concerns(&record.what)) {
            asked.machine.handle(now(), HookEvent::Record(Box::new(record.clone())));
        }
    }

    fn place(&mut self, placement: &Arc<Placement>) {
        if let Some(asked) = &mut self.asked {
            asked.machine.place(Arc::clone(placement));
        }
    }

    fn know(&mut self, node: NodeId, name: &str) {
        if let Some(asked) = &mut self.asked {
            asked.machine.know(node, name);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outcome) {
        let Some(asked) = &mut self.asked else { return };
        let said = &mut out.lines;
        asked.machine.handle_timeout(now());
        loop {
            while let Some(action) = asked.machine.poll_action() {
                asked.perform(action, said);
            }
            let Some(status) = asked.running.as_mut().and_then(|running| running.poll(cx, said)) else { return };
            asked.running = None;
            asked.machine.handle(now(), HookEvent::Ended(status));
        }
    }

    fn deadline(&self) -> Option<Mono> {
        self.asked.as_ref()?.machine.poll_timeout()
    }

    fn signal(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.machine.handle(now(), HookEvent::Signal);
        }
    }

    fn is_over(&self) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.machine.is_over())
    }
}

impl Asked {
    fn perform(&mut self, action: HookAction, said: &mut String) {
        match action {
            HookAction::Start { on, command, vars } => match self.start(on, &command, &vars) {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or_default();
                    self.machine.handle(now(), HookEvent::Unstarted(errno));
                }
            },
            HookAction::End { hard } => {
                if let Some(Running { child, away, .. }) = &mut self.running {
                    child.end_all(away, hard);
                }
            }
            HookAction::Leave => self.running = None,
            HookAction::Say(note) => said.push_str(&words::note(note)),
        }
    }

    fn start(&self, on: On, command: &OsBytes, vars: &Vars) -> io::Result<Running> {
        let ssh_reaper = self.ssh_reaper.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let is_set = |entry: &[u8]| {
            let name = entry.split(|b| *b == b'=').next().unwrap_or_default();
            vars.iter().any(|(own, _)| own.as_bytes() == name)
        };
        let mut environment: Strings = of_command(origin::environment()).filter(|entry| !is_set(entry)).collect();
        for (name, value) in vars {
            environment.push(&[name.as_bytes(), b"=", value.as_slice()].concat());
        }
        let Command { child, output } = command::start(command, &environment, ssh_reaper, &self.origin)?;
        match watched(&child, output) {
            Ok((ended, output)) => Ok(Running {
                on,
                child,
                away: DetachedDescendants::default(),
                ended,
                output: Some(output),
                line: Vec::new(),
                shown: 0,
            }),
            Err(error) => {
                child.end(true);
                Err(error)
            }
        }
    }
}

/// The end and the output of a command, as the runtime waits for them.
pub(super) fn watched(child: &Child, output: OwnedFd) -> io::Result<(AsyncFd<OwnedFd>, AsyncFd<OwnedFd>)> {
    let ended = rlaunch_net::ready::readable(child.pidfd.try_clone()?)?;
    Ok((ended, rlaunch_net::ready::readable(output)?))
}

impl Running {
    /// Returns its status, if it has ended; then all of its output is shown.
    fn poll(&mut self, cx: &mut Context<'_>, said: &mut String) -> Option<Status> {
        let has_exited = self.ended.poll_read_ready(cx).is_ready() && fd::readable_now(self.ended.get_ref());
        self.read(cx, said);
        if !has_exited {
            return None;
        }
        // Before the command is reaped: the rest of its group, and detached descendants that were asked to end.
        self.child.end_all(&mut self.away, true);
        let how = self.child.ended()?;
        self.child.outlive_group();
        self.away.outlive();
        self.show_line(said);
        Some(match how {
            How::Code(code) => Status::Exited(code),
            How::Signal { number, core } => Status::Signaled { sig: Signal::new(number).unwrap_or(Signal::KILL), core },
        })
    }

    /// Takes what is there. More than is shown is read, so that the command is not held up, and dropped.
    fn read(&mut self, cx: &mut Context<'_>, said: &mut String) {
        let mut bytes = Vec::new();
        while let Some(output) = &self.output {
            let Poll::Ready(Ok(mut guard)) = output.poll_read_ready(cx) else { return };
            bytes.clear();
            match fd::read_onto(output.get_ref().as_raw_fd(), &mut bytes, CHUNK) {
                Ok(1..) => self.take(&bytes, said),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Ok(0) | Err(_) => {
                    drop(guard);
                    self.output = None;
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8], said: &mut String) {
        for byte in bytes {
            if self.shown >= SHOWN {
                return;
            }
            self.shown += 1;
            if *byte == b'\n' || self.line.len() >= LINE {
                self.show_line(said);
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
            if self.shown == SHOWN {
                self.show_line(said);
                said.push_str(&words::too_much(self.on, SHOWN));
            }
        }
    }

    fn show_line(&mut self, said: &mut String) {
        if !self.line.is_empty() {
            said.push_str(&words::line(self.on, &self.line));
            self.line.clear();
        }
    }
}
