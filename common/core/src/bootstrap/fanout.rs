//! How many hosts are being reached at a time. sshd drops connections when too many log in at once (MaxStartups), and a jump
//! host takes the logins of all hosts behind it.

use crate::id::NodeId;
use crate::os_bytes::OsBytes;
use alloc::collections::{BTreeMap, VecDeque};

/// At a time, in all.
pub const DIRECT: usize = 64;
/// At a time, behind one jump host.
pub const JUMPED: usize = 8;

/// Who may start now. A place is held from the start until the host has answered or was given up.
#[derive(Clone, Debug)]
pub struct Fanout {
    waiting: VecDeque<NodeId>,
    jumps: BTreeMap<NodeId, OsBytes>,
    under_way: BTreeMap<NodeId, Option<OsBytes>>,
    most: usize,
}

impl Default for Fanout {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), jumps: BTreeMap::new(), under_way: BTreeMap::new(), most: DIRECT }
    }
}

impl Fanout {
    /// One at a time: ssh may ask for a password.
    #[must_use]
    pub fn one_by_one() -> Self {
        Self { most: 1, ..Self::default() }
    }

    /// A host that waits for its turn; `jump` is what all hosts behind the same jump host have in common.
    pub fn push(&mut self, node: NodeId, jump: Option<OsBytes>) {
        if let Some(jump) = jump {
            self.jumps.insert(node, jump);
        }
        self.waiting.push_back(node);
    }

    /// Whose turn it is, if anybody's. In the order in which they came, except that nobody waits for a jump host that he
    /// does not need.
    pub fn pop(&mut self) -> Option<NodeId> {
        if self.under_way.len() >= self.most {
            return None;
        }
        let at = self.waiting.iter().position(|node| self.has_room(*node))?;
        let node = self.waiting.remove(at)?;
        self.under_way.insert(node, self.jumps.remove(&node));
        Some(node)
    }

    fn has_room(&self, node: NodeId) -> bool {
        let Some(jump) = self.jumps.get(&node) else { return true };
        self.under_way.values().filter(|other| other.as_ref() == Some(jump)).count() < JUMPED
    }

    /// This host has answered, or was given up.
    pub fn done(&mut self, node: NodeId) {
        self.under_way.remove(&node);
        self.jumps.remove(&node);
        self.waiting.retain(|other| *other != node);
    }

    /// Nobody waits and nobody is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn sixty_four_at_a_time() {
        let mut fanout = Fanout::default();
        (0..100).for_each(|n| fanout.push(NodeId::new(n), None));
        let first: Vec<_> = core::iter::from_fn(|| fanout.pop()).collect();
        assert_eq!(first, (0..64).map(NodeId::new).collect::<Vec<_>>());
        fanout.done(NodeId::new(17));
        assert_eq!((fanout.pop(), fanout.pop()), (Some(NodeId::new(64)), None));
    }

    #[test]
    fn eight_behind_a_jump_and_nobody_waits_for_them() {
        let mut fanout = Fanout::default();
        (0..20).for_each(|n| fanout.push(NodeId::new(n), Some("bastion".into())));
        fanout.push(NodeId::new(20), None);
        (21..24).for_each(|n| fanout.push(NodeId::new(n), Some("other".into())));
        let first: Vec<_> = core::iter::from_fn(|| fanout.pop()).map(NodeId::get).collect();
        assert_eq!(first, [0, 1, 2, 3, 4, 5, 6, 7, 20, 21, 22, 23]);
        fanout.done(NodeId::new(3));
        assert_eq!(fanout.pop(), Some(NodeId::new(8)));
    }

    #[test]
    fn one_by_one_with_prompts() {
        let mut fanout = Fanout::one_by_one();
        (0..2).for_each(|n| fanout.push(NodeId::new(n), None));
        assert_eq!((fanout.pop(), fanout.pop()), (Some(NodeId::new(0)), None));
        fanout.done(NodeId::new(0));
        assert_eq!(fanout.pop(), Some(NodeId::new(1)));
    }

    proptest! {
        #[test]
        fn everybody_gets_a_turn_and_no_limit_is_passed(
            jumps in proptest::collection::vec(proptest::option::of(0u8..3), 1..200),
            order in proptest::collection::vec(any::<u16>(), 200),
        ) {
            let mut fanout = Fanout::default();
            for (n, jump) in (0u32..).zip(&jumps) {
                fanout.push(NodeId::new(n), jump.map(|j| OsBytes::new([j].into())));
            }
            let (mut active, mut seen): (Vec<NodeId>, usize) = (Vec::new(), 0);
            let mut order = order.into_iter();
            loop {
                while let Some(node) = fanout.pop() {
                    active.push(node);
                    seen += 1;
                }
                prop_assert!(active.len() <= DIRECT);
                for jump in 0..3 {
                    prop_assert!(active.iter().filter(|n| jumps[n.index()] == Some(jump)).count() <= JUMPED);
                }
                if active.is_empty() {
                    break;
                }
                let at = usize::from(order.next().unwrap_or(0)) % active.len();
                fanout.done(active.swap_remove(at));
            }
            prop_assert!(seen == jumps.len() && fanout.is_idle());
        }
    }
}
