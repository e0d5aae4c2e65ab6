//! SIGKILL for everything in the sessions of ranks.

use super::part::{Base, Part};
use super::watch::Source;
use rlaunch_base::id::ProcId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Context;

/// Ranks whose sessions are killed. All that have ended since one look at /proc share the next one, on the `proc` thread.
#[derive(Debug, Default)]
pub(super) struct SessionKills {
    wanted: BTreeSet<ProcId>,
    under_way: BTreeSet<ProcId>,
    /// Ranks to be reaped after that: a zombie keeps the number of its session.
    to_reap: BTreeSet<ProcId>,
    /// Deferred ranks whose sessions were killed.
    over: BTreeSet<ProcId>,
}

impl SessionKills {
    /// The ranks of the next look; `None`: one is under way, or none is needed.
    fn next(&self) -> Option<&BTreeSet<ProcId>> {
        (self.under_way.is_empty() && !self.wanted.is_empty()).then_some(&self.wanted)
    }

    fn begin(&mut self) {
        self.under_way = std::mem::take(&mut self.wanted);
    }

    /// Ranks that were deferred and can be reaped now.
    pub(super) fn take_over(&mut self) -> BTreeSet<ProcId> {
        std::mem::take(&mut self.over)
    }

    fn search(&mut self, base: &mut Base) {
        let Base { ranks, proc_searches, watch, .. } = base;
        let Some(procs) = self.next() else { return };
        let leader = |proc: &ProcId| ranks.get(*proc).map(|rank| (rank.pid, Arc::clone(&rank.pidfd)));
        let leaders = procs.iter().filter_map(leader).collect();
        proc_searches.kill_sessions(leaders, |bell| watch.add(bell, Source::ProcSearches));
        self.begin();
    }

    /// Records that the search has finished. Returns the ranks that can be reaped now.
    fn end(&mut self) -> BTreeSet<ProcId> {
        self.under_way.clear();
        self.to_reap.extract_if(.., |proc| !self.wanted.contains(proc)).collect()
    }

    /// Whether a rank is reaped only after its session was killed.
    pub(super) fn defers(&mut self, proc: ProcId) -> bool {
        let is_awaited = self.wanted.contains(&proc) || self.under_way.contains(&proc);
        if is_awaited {
            self.to_reap.insert(proc);
        }
        is_awaited
    }
}

impl Part for SessionKills {
    type Action = Vec<ProcId>;

    fn perform(&mut self, base: &mut Base, procs: Vec<ProcId>) {
        self.wanted.extend(procs);
        self.search(base);
    }

    fn poll(&mut self, base: &mut Base, _cx: &mut Context<'_>) {
        if base.proc_searches.take_killed_sessions() {
            let over = self.end();
            self.over.extend(over);
        }
        self.search(base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procs(all: impl IntoIterator<Item = u32>) -> BTreeSet<ProcId> {
        all.into_iter().map(ProcId::new).collect()
    }

    #[test]
    fn ranks_that_end_during_a_look_share_the_next_and_are_reaped_after_it() {
        let mut searches = SessionKills::default();
        assert!(!searches.defers(ProcId::new(0)), "none is searched for");
        searches.wanted.extend(procs([0]));
        assert_eq!(searches.next(), Some(&procs([0])));
        searches.begin();
        for n in 1..100 {
            searches.wanted.insert(ProcId::new(n));
            assert_eq!(searches.next(), None);
        }
        assert!((0..100).all(|n| searches.defers(ProcId::new(n)) && searches.defers(ProcId::new(n))));
        assert_eq!(searches.end(), procs([0]));
        assert_eq!(searches.next(), Some(&procs(1..100)), "one look for all");
        searches.begin();
        assert_eq!((searches.end(), searches.next()), (procs(1..100), None));
        assert!(!searches.defers(ProcId::new(1)));
    }
}
