//! The guardian: what it says on the lifeline, its end, and what we ask of it.

use rlaunch_core::job::GuardianEnd;
use rlaunch_protocol::wire::to_root::Leftover;
use rlaunch_sys::children::Named;
use rlaunch_sys::guardian::{Lifeline, Record, Word};
use rlaunch_sys::{pidfd, signals};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// The guardian, and the agent as far as it is in its keeping.
pub(super) struct Guardian {
    state: State,
    agent: Option<OwnedFd>,
    /// The agent was to be roused before we had it.
    rouse: bool,
}

enum State {
    Watched(AsyncFd<Lifeline>),
    Ended,
}

impl Guardian {
    pub(super) fn new(lifeline: Lifeline) -> io::Result<Self> {
        Ok(Self { state: State::Watched(rlaunch_net::ready::readable(lifeline)?), agent: None, rouse: false })
    }

    /// Takes in what it says; how it has ended, once.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<GuardianEnd> {
        while let State::Watched(lifeline) = &mut self.state {
            let Poll::Ready(Ok(mut guard)) = lifeline.poll_read_ready_mut(cx) else { return None };
            let end = match guard.try_io(|lifeline| lifeline.get_mut().hear()) {
                Err(_would_block) => continue,
                Ok(Ok(Word::Agent(agent))) => {
                    self.agent = Some(agent);
                    if self.rouse {
                        self.wake();
                    }
                    continue;
                }
                Ok(Ok(Word::Record(record))) => end_of(&record),
                Ok(Ok(Word::End) | Err(_)) => GuardianEnd::Silent,
            };
            self.state = State::Ended;
            return Some(end);
        }
        None
    }

    /// Continues a stopped agent. A running one does not notice, and one that is gone cannot be mistaken.
    pub(super) fn wake(&mut self) {
        match &self.agent {
            Some(agent) => {
                let _gone = pidfd::signal(agent, signals::CONT);
            }
            None => self.rouse = true,
        }
    }

    /// Waits for the guardian's end, after the end of the job.
    pub(super) fn part(self) {
        if let State::Watched(lifeline) = self.state {
            lifeline.into_inner().part();
        }
    }

    /// Has everything ended without the agent. The record comes back on the same stream.
    pub(super) fn sever(&self) {
        match &self.state {
            State::Watched(lifeline) => lifeline.get_ref().shut(),
            State::Ended => {}
        }
    }
}

fn end_of(record: &Record) -> GuardianEnd {
    let leftover = |named: &Named| Leftover::padded(named.pid.cast_unsigned(), &named.comm, &named.wchan);
    GuardianEnd::Record { left: record.left, named: record.named.iter().map(leftover).collect() }
}
