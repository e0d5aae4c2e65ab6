//! The state of each node while a job comes up. With each host's answer it is asked whether it was the last, so nodes that are waited
//! for, and those that cannot be had, are counted as they change.

use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_protocol::wire::to_root::{Hello, NodeRefusal};

/// The state of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Its agent is being started.
    Connecting,
    /// The job was sent to it.
    Waiting,
    /// Its hello has arrived.
    Up(Hello),
    /// Its ranks can be started.
    Ready(Hello),
    /// The node cannot do as ordered.
    Refused(NodeRefusal),
    /// Its agent could not be started.
    Failed,
    /// Its agent was started, and it or another part of ours was lost; the others may be enough.
    Lost,
}

/// The meaning of that state for the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing<'a> {
    /// Whether the node can be had is not yet known.
    Open,
    /// The node can be had.
    Ready(&'a Hello),
    /// The node cannot be had, for this reason.
    Refused(&'a NodeRefusal),
    /// The node cannot be had.
    Gone,
}

impl State {
    pub(super) const fn standing(&self) -> Standing<'_> {
        match self {
            Self::Connecting | Self::Waiting | Self::Up(_) => Standing::Open,
            Self::Ready(hello) => Standing::Ready(hello),
            Self::Refused(why) => Standing::Refused(why),
            Self::Failed | Self::Lost => Standing::Gone,
        }
    }

    /// Whether the job was sent to it, and it can still be had.
    pub(super) const fn is_notified(&self) -> bool {
        matches!(self, Self::Waiting | Self::Up(_) | Self::Ready(_))
    }

    /// Whether it cannot be had.
    pub(super) const fn is_missing(&self) -> bool {
        matches!(self.standing(), Standing::Refused(_) | Standing::Gone)
    }

    const fn is_open(&self) -> bool {
        matches!(self.standing(), Standing::Open)
    }
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Roster {
    nodes: Vec<State>,
    open: usize,
    missing: usize,
}

impl Roster {
    pub(super) fn new(nodes: Vec<State>) -> Self {
        let count = |is: fn(&State) -> bool| nodes.iter().filter(|state| is(state)).count();
        let (open, missing) = (count(State::is_open), count(State::is_missing));
        Self { nodes, open, missing }
    }

    pub(super) const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// How many have still to say whether they can be had.
    pub(super) const fn open(&self) -> usize {
        self.open
    }

    /// How many cannot be had.
    pub(super) const fn missing(&self) -> usize {
        self.missing
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&State> {
        self.nodes.get(node.index())
    }

    /// Its hello, whether it is ready or not.
    pub(super) fn hello(&self, node: NodeId) -> Option<&Hello> {
        match self.get(node)? {
            State::Up(hello) | State::Ready(hello) => Some(hello),
            State::Connecting | State::Waiting | State::Refused(_) | State::Failed | State::Lost => None,
        }
    }

    pub(super) fn set(&mut self, node: NodeId, state: State) {
        let Some(slot) = self.nodes.get_mut(node.index()) else { return };
        self.open += usize::from(state.is_open());
        self.missing += usize::from(state.is_missing());
        let before = core::mem::replace(slot, state);
        self.open -= usize::from(before.is_open());
        self.missing -= usize::from(before.is_missing());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &State)> {
        (0..).map(NodeId::new).zip(&self.nodes)
    }

    /// Nodes that cannot be had.
    pub(super) fn list_missing(&self) -> Vec<NodeId> {
        self.iter().filter(|(_, state)| state.is_missing()).map(|(node, _)| node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rlaunch_protocol::settings::Tier;

    fn states() -> impl Strategy<Value = State> {
        let hello = Hello::of(Tier::T3);
        prop_oneof![
            Just(State::Connecting),
            Just(State::Waiting),
            Just(State::Up(hello.clone())),
            Just(State::Ready(hello)),
            Just(State::Refused(NodeRefusal::Protocol)),
            Just(State::Failed),
            Just(State::Lost),
        ]
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_look_at_all(
            begin in proptest::collection::vec(states(), 0..9),
            changes in proptest::collection::vec((0u32..10, states()), 0..60),
        ) {
            let mut roster = Roster::new(begin);
            for (node, state) in changes {
                roster.set(NodeId::new(node), state);
                let count = |is: fn(&State) -> bool| roster.nodes.iter().filter(|state| is(state)).count();
                prop_assert_eq!((roster.open(), roster.missing()), (count(State::is_open), count(State::is_missing)));
                prop_assert_eq!(roster.list_missing().len(), roster.missing());
            }
        }
    }
}
