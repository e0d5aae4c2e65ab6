//! The reader of the agent's messages: one of two threads at a time.
//!
//! In a round it is the thread of this library, which can have it left whatever the training thread does. Where the process is out of one,
//! nothing that comes needs that: the training thread reads by itself while it waits for what is next, so a round begins with one
//! thread woken and not with two.

use super::inner::{Inner, Leaving, Pending, Phase, Shared};
use crate::kernel::wait_readable;
use crate::state::Cause;
use rlaunch_protocol::wire::frozen::client::client_round::{AgentMessage, Dismissal, Unread};
use rlaunch_protocol::wire::frozen::client::{Code, FromAgent, Reply, frame_len};
use std::io::Read as _;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

/// The holder of the reader's role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InboxReader {
    /// The role is free.
    Free,
    /// The thread of this library, once something has come.
    Watching,
    /// That thread, which reads.
    Monitor,
    /// The training thread, which reads.
    Training,
}

impl Inner {
    /// Something has come: whether the thread of this library is to read it.
    pub(super) fn take_ear(&mut self) -> bool {
        let has = self.ear == InboxReader::Watching;
        if has {
            self.ear = InboxReader::Monitor;
        }
        has
    }
}

impl Shared {
    /// Gives the ear to who is to have it, unless the training thread reads. For the thread of this library, when it does not read, and
    /// for the training thread.
    pub(super) fn hand_over(&self, inner: &mut Inner) {
        let Some(socket) = &self.socket else { return };
        // A socket that has ended could be read for ever.
        let is_watched = inner.over.is_none() && inner.phase != Phase::Idle && inner.leaving != Leaving::Passed;
        match (inner.ear, is_watched) {
            (InboxReader::Free | InboxReader::Monitor, true) => {
                inner.ear = InboxReader::Watching;
                self.watch.socket(socket, true);
            }
            (InboxReader::Watching, false) => {
                inner.ear = InboxReader::Free;
                self.watch.socket(socket, false);
            }
            // The socket was reported once, and is not again.
            (InboxReader::Monitor, false) => inner.ear = InboxReader::Free,
            (InboxReader::Free, false) | (InboxReader::Watching, true) | (InboxReader::Training, _) => {}
        }
    }

    /// The training thread waits until something has changed: for what another one does, or for the agent.
    pub(super) fn wait_changed<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        let Some(socket) = self.socket.as_deref().filter(|_| inner.ear == InboxReader::Free) else {
            return self.wait(inner);
        };
        inner.ear = InboxReader::Training;
        drop(inner);
        wait_readable(socket);
        read(self);
        let mut inner = self.lock();
        inner.ear = InboxReader::Free;
        if inner.leaving == Leaving::Decided {
            // The hooks are the other thread's.
            self.bell.ring();
        }
        inner
    }
}

/// Reads messages that are there, or waits for one, and handles them. For who has the ear.
pub(super) fn read(shared: &Shared) {
    let Some(mut socket) = shared.socket.as_deref() else { return };
    let mut came = shared.came.lock().unwrap_or_else(PoisonError::into_inner);
    // A round begins by less than this, mostly.
    let mut chunk = [0; 4 << 10];
    match socket.read(&mut chunk) {
        Ok(0) => return closes(shared, ""),
        Ok(len) => came.extend_from_slice(chunk.get(..len).unwrap_or_default()),
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return,
        Err(error) => return end(shared, &format!("the session has failed: {error}")),
    }
    loop {
        let len = match frame_len(&came) {
            Ok(Some(len)) if len <= came.len() => len,
            Ok(_) => return,
            Err(_) => return end(shared, "the agent says what this version does not understand"),
        };
        let frame = came.get(..len).unwrap_or_default();
        match AgentMessage::parse(frame) {
            Ok(message) => receive(shared, message),
            // Messages of a later agent; or of any agent: its last words, and its refusal of a newer version.
            Err(Unread::Kind(_)) => match FromAgent::parse(frame) {
                Ok(FromAgent::Bye(why)) => return closes(shared, &String::from_utf8_lossy(why)),
                Ok(FromAgent::Answer(_, Reply::Refused(refused))) if refused.code == Code::Unsupported => {
                    too_old(shared)
                }
                Ok(FromAgent::Answer(..)) | Err(_) => {}
            },
            Err(Unread::Malformed(_)) => {
                return end(shared, "the agent says what this version does not understand");
            }
        }
        came.drain(..len);
    }
}

fn receive(shared: &Shared, message: AgentMessage) {
    let mut inner = shared.lock();
    match message {
        AgentMessage::Interrupt(round, fault, within) => {
            let later = inner.state.as_ref().is_none_or(|state| round.get() > state.number);
            let here =
                inner.phase.is_in_round() && inner.state.as_ref().is_some_and(|state| state.number == round.get());
            if later || (here && inner.leaving == Leaving::No) {
                let at = within.and_then(|within| Instant::now().checked_add(within.duration()));
                inner.pending = Some(Pending { round, fault, at });
            }
        }
        AgentMessage::Begin(_) | AgentMessage::Finish(_) => inner.inbox.push_back(message),
        AgentMessage::Dismissed(why, ref text) => {
            inner.decide(Cause::Over(String::from_utf8_lossy(text).into_owned()));
            inner.inbox.push_back(AgentMessage::Dismissed(why, text.clone()));
        }
        AgentMessage::Unsupported(_) => {}
    }
    shared.notify(inner);
}

/// Handles an agent that knows nothing of rounds.
fn too_old(shared: &Shared) {
    let text = "this job's rlaunch is of a version that does not restart functions";
    receive(shared, AgentMessage::Dismissed(Dismissal::Refused, text.into()));
}

/// The agent has closed it, and says why, or does not.
fn closes(shared: &Shared, why: &str) {
    let colon = if why.is_empty() { "" } else { ": " };
    over(shared, why, format!("the agent has closed the session{colon}{why}"));
}

/// Nothing that could be understood will come any more.
fn end(shared: &Shared, why: &str) {
    over(shared, why, why.to_owned());
}

/// `why` follows the report that it is closed; `text` is the whole message.
fn over(shared: &Shared, why: &str, text: String) {
    let mut inner = shared.lock();
    inner.over.get_or_insert_with(|| why.to_owned());
    inner.decide(Cause::Over(text));
    shared.notify(inner);
}
