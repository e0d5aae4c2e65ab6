//! Groups in the closing report.

use super::Report;
use crate::events::AppLine;
use rlaunch_base::id::Rank;
use rlaunch_base::time::Span;

impl Report {
    /// The program of a rank.
    #[must_use]
    pub fn app(&self, rank: Rank) -> Option<&AppLine> {
        let (first, apps) = self.programs_around(rank);
        let mut end = first.get();
        apps.iter().find(|app| {
            end = end.saturating_add(app.procs);
            rank.get() < end
        })
    }

    /// The programs that were started together with that of a rank, and the first rank of all of them.
    fn programs_around(&self, rank: Rank) -> (Rank, &[AppLine]) {
        match self.spawned.range(..=rank).next_back() {
            Some((first, line)) => (*first, &line.apps),
            None => (Rank::new(0), self.start.as_ref().map_or(&[], |start| &start.apps)),
        }
    }

    /// The group of a rank and its number there; `None`: its world has no name and no other rank has, or it is not known.
    #[must_use]
    pub fn in_group(&self, rank: Rank) -> Option<(&[u8], Rank)> {
        let group = self.app(rank)?.group.as_slice();
        let was_one = self.start.as_ref()?.apps.iter().all(|app| app.group.is_empty());
        if was_one && self.spawned.is_empty() && self.forgotten.ranks == 0 {
            return None;
        }
        let (first, apps) = self.programs_around(rank);
        // All programs without a group form one world.
        let (mut first, mut number) = (first.get(), 0_u32);
        for app in apps {
            let end = first.saturating_add(app.procs);
            if app.group.as_slice() == group {
                let own = rank.get().min(end).saturating_sub(first);
                number = number.saturating_add(own);
            }
            if rank.get() < end {
                break;
            }
            first = end;
        }
        Some((group, Rank::new(number)))
    }

    /// Whether a rank that was ordered to end at this time was so by the end of its group: the job had not begun to end.
    pub(super) fn is_of_group_end(&self, at: Span) -> bool {
        self.began.as_ref().is_none_or(|began| at < began.at) && self.in_group(Rank::new(0)).is_some()
    }
}
