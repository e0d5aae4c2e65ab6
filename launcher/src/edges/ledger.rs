//! What the writers have done with the output of ranks, as the machine thread hears of it: it is woken only when that
//! makes a grant of credit due, not for every write.

use rlaunch_sys::doorbell::Doorbell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One account for all writers whose bytes come out of the same window; clones share it.
#[derive(Clone)]
pub(super) struct Ledger {
    account: Arc<Account>,
    bell: Doorbell,
}

struct Account {
    /// Cost of what was written or dropped and not taken yet.
    done: AtomicU64,
    /// How much of it is worth waking somebody for.
    wanted: AtomicU64,
}

impl Ledger {
    pub(super) fn new(bell: Doorbell) -> Self {
        Self { account: Arc::new(Account { done: AtomicU64::new(0), wanted: AtomicU64::new(u64::MAX) }), bell }
    }

    pub(super) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// So much is done. A writer that reaches what is wanted rings.
    // The order of the two accesses here and in `want` is what makes one of the two sides see the other's: SeqCst.
    pub(super) fn add(&self, cost: u64) {
        let before = self.account.done.fetch_add(cost, Ordering::SeqCst);
        let wanted = self.account.wanted.load(Ordering::SeqCst);
        if before < wanted && wanted <= before.saturating_add(cost) {
            self.bell.ring();
        }
    }

    /// The same by whoever looks at the ledger anyway.
    pub(super) fn add_silently(&self, cost: u64) {
        self.account.done.fetch_add(cost, Ordering::SeqCst);
    }

    /// What was done since the last call.
    pub(super) fn take(&self) -> u64 {
        self.account.done.swap(0, Ordering::SeqCst)
    }

    /// From now on `cost` is worth a ring. True if so much has been done meanwhile: then nobody rings.
    pub(super) fn want(&self, cost: u64) -> bool {
        self.account.wanted.store(cost, Ordering::SeqCst);
        self.account.done.load(Ordering::SeqCst) >= cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_once_where_what_is_wanted_is_reached() {
        let bell = Doorbell::new().unwrap();
        let ledger = Ledger::new(bell.clone());
        let rung = || {
            let rung = rlaunch_sys::fd::readable_now(&bell);
            bell.clear();
            rung
        };
        ledger.add(1_000);
        assert!(!rung(), "nothing was wanted");
        assert!(ledger.want(1_000), "it is done already");
        assert_eq!(ledger.take(), 1_000);
        assert!(!ledger.want(100));
        ledger.add(99);
        assert!(!rung(), "too little");
        ledger.add(1);
        assert!(rung(), "enough");
        ledger.add(500);
        assert!(!rung(), "it has been told");
        assert_eq!((ledger.take(), ledger.take()), (600, 0));
        ledger.add(150);
        assert!(rung(), "enough again, in one piece");
        ledger.take();
        ledger.add_silently(100);
        assert!(!rung() && ledger.want(100), "whoever looks anyway is not woken");
    }
}
