//! The progress of the writers with the output of ranks. The machine thread is woken only when that makes a grant of credit due, not for
//! every write.

use rlaunch_base::id::NodeId;
use rlaunch_sys::doorbell::Doorbell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An account a node, for all writers of its output; clones share them.
#[derive(Clone)]
pub(super) struct Ledger {
    accounts: Arc<[Account]>,
    /// Nodes whose grant is due.
    due: Arc<Mutex<Vec<NodeId>>>,
    bell: Doorbell,
}

struct Account {
    /// Cost of what was written or dropped and not taken yet.
    done: AtomicU64,
    /// How much of it is worth a grant.
    wanted: AtomicU64,
}

impl Ledger {
    pub(super) fn new(bell: Doorbell, nodes: usize) -> Self {
        let account = |_| Account { done: AtomicU64::new(0), wanted: AtomicU64::new(u64::MAX) };
        Self { accounts: (0..nodes).map(account).collect(), due: Arc::default(), bell }
    }

    pub(super) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Adds written bytes. A writer that reaches what is wanted rings.
    pub(super) fn add(&self, node: NodeId, cost: u64) {
        if self.add_silently(node, cost) {
            self.bell.ring();
        }
    }

    /// The same on the side that looks at due accounts.
    // The order of the two accesses here and in `want` is what makes one of the two sides see the other's: SeqCst.
    pub(super) fn add_silently(&self, node: NodeId, cost: u64) -> bool {
        let Some(account) = self.accounts.get(node.index()) else { return false };
        let before = account.done.fetch_add(cost, Ordering::SeqCst);
        let wanted = account.wanted.load(Ordering::SeqCst);
        let reached = before < wanted && wanted <= before.saturating_add(cost);
        if reached {
            self.due.lock().unwrap_or_else(PoisonError::into_inner).push(node);
        }
        reached
    }

    /// Nodes that have reached what was wanted of them.
    pub(super) fn take_due(&self) -> Vec<NodeId> {
        std::mem::take(&mut self.due.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the bytes that were written since the last call.
    pub(super) fn take(&self, node: NodeId) -> u64 {
        self.accounts.get(node.index()).map_or(0, |account| account.done.swap(0, Ordering::SeqCst))
    }

    /// From now on `cost` makes a grant due. True if the bytes were written meanwhile: then no bell rings.
    pub(super) fn want(&self, node: NodeId, cost: u64) -> bool {
        let Some(account) = self.accounts.get(node.index()) else { return false };
        account.wanted.store(cost, Ordering::SeqCst);
        account.done.load(Ordering::SeqCst) >= cost
    }
}

/// Costs by node. Output that is written together comes from few nodes, mostly from one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally(Vec<(NodeId, u64)>);

impl Tally {
    pub(super) fn add(&mut self, node: NodeId, cost: u64) {
        match self.0.iter_mut().rev().find(|(known, _)| *known == node) {
            Some((_, sum)) => *sum += cost,
            None if cost > 0 => self.0.push((node, cost)),
            None => {}
        }
    }

    /// Takes out what is there, at most `cost`.
    pub(super) fn spend(&mut self, node: NodeId, cost: u64) -> u64 {
        let Some((_, sum)) = self.0.iter_mut().find(|(known, _)| *known == node) else { return 0 };
        let cost = cost.min(*sum);
        *sum -= cost;
        cost
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.0.iter().copied().filter(|(_, cost)| *cost > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bell_rings_once_at_the_wanted_amount() {
        let bell = Doorbell::new().unwrap();
        let node = NodeId::new(1);
        let ledger = Ledger::new(bell.clone(), 2);
        let rung = || {
            let rung = rlaunch_sys::fd::readable_now(&bell);
            bell.clear();
            rung
        };
        ledger.add(node, 1_000);
        assert!(!rung(), "nothing was wanted");
        assert!(ledger.want(node, 1_000), "it is done already");
        assert_eq!(ledger.take(node), 1_000);
        assert!(!ledger.want(node, 100));
        ledger.add(node, 99);
        ledger.add(NodeId::new(0), 1_000);
        assert!(!rung() && ledger.take_due().is_empty(), "too little, or of a node that nothing is wanted of");
        ledger.add(node, 1);
        assert!(rung(), "enough");
        ledger.add(node, 500);
        assert!(!rung(), "the bell has rung before");
        assert_eq!((ledger.take_due(), ledger.take(node), ledger.take(node)), (vec![node], 600, 0));
        ledger.add(node, 150);
        assert!(rung(), "enough again, in one piece");
        ledger.take(node);
        ledger.add_silently(node, 100);
        assert!(!rung() && ledger.want(node, 100), "a silent addition rings no bell");
        assert_eq!(ledger.take_due(), [node, node]);
    }

    #[test]
    fn a_tally_gives_back_no_more_than_was_put_in() {
        let (a, b) = (NodeId::new(0), NodeId::new(1));
        let mut tally = Tally::default();
        for (node, cost) in [(a, 5), (b, 7), (a, 1), (b, 0)] {
            tally.add(node, cost);
        }
        assert_eq!(tally.iter().collect::<Vec<_>>(), [(a, 6), (b, 7)]);
        assert_eq!((tally.spend(b, 4), tally.spend(b, 4), tally.spend(b, 1)), (4, 3, 0));
        assert_eq!(tally.iter().collect::<Vec<_>>(), [(a, 6)]);
        tally.clear();
        assert_eq!(tally.spend(a, 1), 0);
    }
}
