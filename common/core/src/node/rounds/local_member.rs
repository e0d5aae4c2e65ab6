//! A rank of this node, in rounds.

use rlaunch_base::capped::Capped;
use rlaunch_base::id::{ProcId, Rank, SessionId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::round::{Enrolled, KEYS};
use rlaunch_protocol::wire::to_node::Delta;
use rlaunch_restart::detect::Watch;

pub(super) struct LocalMember {
    pub(super) delta: Delta,
    /// Its process has not ended.
    pub(super) lives: bool,
    pub(super) session: Option<SessionId>,
    pub(super) part: LocalState,
    /// Its terms, as lines.
    pub(super) terms: OsBytes,
    /// Whether the launcher knows that the rank has registered.
    pub(super) is_reported: bool,
    /// How many calls of its process are done.
    pub(super) calls: u32,
    /// Whether it has been in a round with the others.
    pub(super) took_part: bool,
    /// Its keys.
    pub(super) keys: Capped<OsBytes, KEYS>,
    pub(super) watch: Watch,
    /// The launcher knows that its function has failed in this round.
    pub(super) failed: bool,
    /// Whether it has pinged in this round.
    pub(super) pinged: bool,
    /// Its number among those that worked in its last round, and how many these were.
    pub(super) is: Option<(Option<Rank>, u32)>,
}

/// The state of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LocalState {
    /// Not registered.
    Absent,
    /// Registered, and waits for its first round.
    Joined,
    /// In its function.
    Working,
    /// In reserve, waits until it is needed.
    Reserve,
    /// Its function has returned.
    Returned,
    /// Out of its function, and waits for the next round.
    Ready,
    /// Its session has ended: so has its process, mostly, and that will be seen by then.
    Lost(Mono),
    /// Ordered to end, because it did not leave its function.
    Ending,
    /// Takes no more part.
    Out,
}

impl LocalState {
    /// Whether it takes part: its end concerns rounds.
    pub(super) const fn is_in(self) -> bool {
        match self {
            Self::Joined | Self::Working | Self::Reserve | Self::Returned | Self::Ready => true,
            Self::Lost(_) | Self::Ending => true,
            Self::Absent | Self::Out => false,
        }
    }

    /// Whether it was in a round and is not out of it: all ranks wait for it.
    pub(super) const fn is_awaited(self) -> bool {
        match self {
            Self::Working | Self::Reserve | Self::Returned | Self::Lost(_) | Self::Ending => true,
            Self::Absent | Self::Joined | Self::Ready | Self::Out => false,
        }
    }

    /// Whether it can get an interrupt.
    pub(super) const fn is_interrupted(self) -> bool {
        match self {
            Self::Working | Self::Reserve | Self::Returned => true,
            Self::Absent | Self::Joined | Self::Ready | Self::Lost(_) | Self::Ending | Self::Out => false,
        }
    }
}

impl LocalMember {
    pub(super) fn new(delta: Delta) -> Self {
        Self {
            delta,
            lives: true,
            session: None,
            part: LocalState::Absent,
            terms: OsBytes::default(),
            is_reported: false,
            calls: 0,
            took_part: false,
            keys: Capped::default(),
            watch: Watch::default(),
            failed: false,
            pinged: false,
            is: None,
        }
    }

    pub(super) const fn initial(&self) -> Rank {
        self.delta.rank
    }

    pub(super) const fn proc(&self) -> ProcId {
        self.delta.proc
    }

    pub(super) fn enrolled(&self) -> Enrolled {
        Enrolled { initial: self.initial(), proc: self.proc(), keys: self.keys.clone() }
    }

    /// Whether its process has not registered for this call, and may.
    pub(super) fn is_missing(&self, call: u32) -> bool {
        match self.part {
            LocalState::Absent | LocalState::Lost(_) => self.lives && self.calls == call,
            LocalState::Joined | LocalState::Working | LocalState::Reserve | LocalState::Returned => false,
            LocalState::Ready | LocalState::Ending | LocalState::Out => false,
        }
    }

    /// Takes it out of all rounds.
    pub(super) const fn put_out(&mut self) {
        self.part = LocalState::Out;
        self.watch.rest();
    }
}
