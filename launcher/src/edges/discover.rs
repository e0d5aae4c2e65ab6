//! The command of `--discover`: the edges of `rlaunch_plan::discover`. A shell runs it in the launcher's environment, with nothing to read.

use super::hook_runner::watched;
use super::now;
use super::part::{Outcome, Part};
use rlaunch_base::machine::Machine as _;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Mono;
use rlaunch_core::events::{JobNews, SliceNews};
use rlaunch_core::job::JobEvent;
use rlaunch_plan::discover::{DiscoverAction, DiscoverEvent, Discovery, MOST};
use rlaunch_sys::child::Child;
use rlaunch_sys::command::{self, Command};
use rlaunch_sys::detached_descendants::DetachedDescendants;
use rlaunch_sys::fd;
use rlaunch_sys::origin::Origin;
use rlaunch_sys::pidfd::How;
use rlaunch_sys::ssh_reaper::SshReaper;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// Read at a time.
const CHUNK: usize = 16 << 10;

/// The command, if there is one.
pub(super) struct Discover {
    asked: Option<Box<Asked>>,
}

struct Asked {
    command: OsBytes,
    machine: Discovery,
    origin: Origin,
    /// `None` at the end of the job.
    ssh_reaper: Option<SshReaper>,
    running: Option<Running>,
}

/// A command that runs.
struct Running {
    child: Child,
    /// Its detached descendants, as far as they were to be ended.
    away: DetachedDescendants,
    ended: AsyncFd<OwnedFd>,
    /// Until it ends.
    output: Option<AsyncFd<OwnedFd>>,
    bytes: Vec<u8>,
}

impl Discover {
    /// An empty command: there is none.
    pub(super) fn new(command: &OsBytes, origin: &Origin) -> io::Result<Self> {
        if command.is_empty() {
            return Ok(Self { asked: None });
        }
        // All signals are blocked.
        let ssh_reaper = Some(SshReaper::start()?);
        let machine = Discovery::new(now());
        Ok(Self {
            asked: Some(Box::new(Asked {
                command: command.clone(),
                machine,
                origin: *origin,
                ssh_reaper,
                running: None,
            })),
        })
    }
}

impl Part for Discover {
    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Outcome) {
        let Some(asked) = &mut self.asked else { return };
        asked.machine.handle_timeout(now());
        loop {
            out.events.extend(asked.perform());
            let Some(event) = asked.running.as_mut().and_then(|running| running.poll(cx)) else { return };
            if matches!(event, DiscoverEvent::Ended(..)) {
                asked.running = None;
            }
            asked.machine.handle(now(), event);
        }
    }

    fn deadline(&self) -> Option<Mono> {
        self.asked.as_ref()?.machine.poll_timeout()
    }

    /// No other list is wanted.
    fn stop(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.machine.handle(now(), DiscoverEvent::Stop);
            let _nothing = asked.perform();
            asked.running = None;
            if let Some(mut ssh_reaper) = asked.ssh_reaper.take() {
                ssh_reaper.dismiss();
            }
        }
    }
}

impl Asked {
    fn perform(&mut self) -> Vec<JobEvent> {
        let mut found = Vec::new();
        while let Some(action) = self.machine.poll_action() {
            match action {
                DiscoverAction::Start => match self.start() {
                    Ok(running) => self.running = Some(running),
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or_default();
                        self.machine.handle(now(), DiscoverEvent::Unstarted(errno));
                    }
                },
                DiscoverAction::Kill => {
                    if let Some(Running { child, away, output, .. }) = &mut self.running {
                        *output = None;
                        child.end_all(away, true);
                    }
                }
                DiscoverAction::Leave => self.running = None,
                DiscoverAction::Hosts(hosts) => found.push(JobEvent::Discovered(hosts)),
                DiscoverAction::Fault(fault) => {
                    found.push(JobEvent::Found(JobNews::Slices(SliceNews::DiscoverFailed { why: fault })));
                }
            }
        }
        found
    }

    fn start(&self) -> io::Result<Running> {
        let ssh_reaper = self.ssh_reaper.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let Command { child, output } = command::start_apart(&self.command, ssh_reaper, &self.origin)?;
        match watched(&child, output) {
            Ok((ended, output)) => {
                let away = DetachedDescendants::default();
                Ok(Running { child, away, ended, output: Some(output), bytes: Vec::new() })
            }
            Err(error) => {
                child.end(true);
                Err(error)
            }
        }
    }
}

impl Running {
    /// Returns its end, with all that it has printed, or that it prints too much.
    fn poll(&mut self, cx: &mut Context<'_>) -> Option<DiscoverEvent> {
        let has_exited = self.ended.poll_read_ready(cx).is_ready() && fd::readable_now(self.ended.get_ref());
        self.read(cx);
        if self.output.is_some() && self.bytes.len() > MOST {
            self.output = None;
            return Some(DiscoverEvent::TooMuch);
        }
        if !has_exited {
            return None;
        }
        // Before the command is reaped: the rest of its group, and detached descendants that were asked to end.
        self.child.end_all(&mut self.away, true);
        let how = self.child.ended()?;
        self.child.outlive_group();
        self.away.outlive();
        let status = match how {
            How::Code(code) => Status::Exited(code),
            How::Signal { number, core } => Status::Signaled { sig: Signal::new(number).unwrap_or(Signal::KILL), core },
        };
        Some(DiscoverEvent::Ended(status, std::mem::take(&mut self.bytes)))
    }

    fn read(&mut self, cx: &mut Context<'_>) {
        while let Some(output) = &self.output {
            let Poll::Ready(Ok(mut guard)) = output.poll_read_ready(cx) else { return };
            match fd::read_onto(output.get_ref().as_raw_fd(), &mut self.bytes, CHUNK) {
                Ok(1..) if self.bytes.len() > MOST => return,
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Ok(0) | Err(_) => {
                    drop(guard);
                    self.output = None;
                }
            }
        }
    }
}
