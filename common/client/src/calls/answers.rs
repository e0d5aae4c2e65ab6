//! Answers to one call of several workers, which are taken together.

use super::{Calls, Event, Frame};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rlaunch_protocol::wire::frozen::calls::Kind;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

/// How long answers that have come wait for the others. Another thread may wait for one of them.
pub(super) const MOMENT: Duration = Duration::from_millis(1);

impl Calls {
    /// Waits until so many workers have returned from a call, or until anything else has come. `last` is the worker that was
    /// called last, if it has not answered.
    pub(crate) fn await_answers(
        &self,
        call: u64,
        wanted: usize,
        last: u32,
        within: Option<Duration>,
    ) -> io::Result<()> {
        let is_enough =
            |inbox: &VecDeque<Event>| inbox.len() >= wanted.max(1) || inbox.iter().any(|event| !is_return(event, call));
        let is_short = within.is_some_and(|within| within <= MOMENT);
        if wanted > 1 && !is_short && self.await_last(call, last, is_enough) == Err(Errno::EINTR) {
            return Ok(());
        }
        self.await_events(within, is_enough)
    }

    /// Waits a moment for the worker that was called last. Else the first answers would each wake this thread.
    fn await_last(&self, call: u64, last: u32, is_enough: impl Fn(&VecDeque<Event>) -> bool) -> nix::Result<()> {
        let stream = {
            let inner = self.inner();
            let has_answered =
                |event: &Event| is_return(event, call) && matches!(event, Event::Frame(peer, _) if *peer == last);
            match inner.peers.get(last as usize) {
                Some(Some(peer)) if !is_enough(&inner.inbox) && !inner.inbox.iter().any(has_answered) => {
                    Arc::clone(&peer.stream)
                }
                _ => return Ok(()),
            }
        };
        let timeout = PollTimeout::try_from(MOMENT).unwrap_or(PollTimeout::ZERO);
        poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], timeout).map(|_| ())
    }

    /// Takes frames, in their order, as long as they are accepted and nothing else came before.
    pub(crate) fn take_frames(&self, mut accept: impl FnMut(&Frame) -> bool) -> Vec<(u32, Frame)> {
        let mut inner = self.inner();
        let mut taken = Vec::with_capacity(inner.inbox.len());
        let mut is_accepted = |event: &mut Event| matches!(event, Event::Frame(_, frame) if accept(frame));
        while let Some(Event::Frame(peer, frame)) = inner.inbox.pop_front_if(&mut is_accepted) {
            taken.push((peer, frame));
        }
        taken
    }

    /// Whether an event has come that was not taken.
    pub(crate) fn has_event(&self) -> bool {
        !self.inner().inbox.is_empty()
    }
}

fn is_return(event: &Event, call: u64) -> bool {
    matches!(event, Event::Frame(_, frame) if frame.header.kind == Kind::Return && frame.header.call == call)
}
