//! When to look at which node: one deadline a node, and the next of them at hand without a look at all.

use crate::id::NodeId;
use crate::time::{Mono, Span};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Deadlines of nodes.
#[derive(Debug)]
pub struct Deadlines {
    of: Vec<Option<Mono>>,
    due: BTreeSet<(Mono, NodeId)>,
}

impl Deadlines {
    /// None yet.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self { of: vec![None; nodes], due: BTreeSet::new() }
    }

    /// Sets or removes a node's deadline.
    pub fn set(&mut self, node: NodeId, at: Option<Mono>) {
        let Some(known) = self.of.get_mut(node.index()).filter(|known| **known != at) else { return };
        if let Some(old) = core::mem::replace(known, at) {
            self.due.remove(&(old, node));
        }
        if let Some(at) = at {
            self.due.insert((at, node));
        }
    }

    /// All are later by this.
    pub fn postpone(&mut self, span: Span) {
        for (at, node) in core::mem::take(&mut self.due) {
            self.set(node, Some(at + span));
        }
    }

    /// The next deadline.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A node whose deadline has come; it has none any more.
    #[must_use]
    pub fn pop(&mut self, now: Mono) -> Option<NodeId> {
        let (_, node) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.set(node, None);
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_is_known_and_each_comes_once() {
        let (a, b) = (NodeId::new(0), NodeId::new(1));
        let at = Mono::from_nanos;
        let mut deadlines = Deadlines::new(2);
        assert_eq!(deadlines.next(), None);
        deadlines.set(a, Some(at(9)));
        deadlines.set(b, Some(at(5)));
        deadlines.set(NodeId::new(2), Some(at(1)));
        assert_eq!(deadlines.next(), Some(at(5)));
        deadlines.set(b, Some(at(20)));
        assert_eq!((deadlines.pop(at(8)), deadlines.pop(at(9)), deadlines.pop(at(9))), (None, Some(a), None));
        deadlines.set(a, Some(at(21)));
        deadlines.postpone(Span::from_nanos(3));
        assert_eq!((deadlines.next(), deadlines.pop(at(23)), deadlines.next()), (Some(at(23)), Some(b), Some(at(24))));
        deadlines.set(a, None);
        assert_eq!((deadlines.next(), deadlines.pop(at(99))), (None, None));
    }
}
