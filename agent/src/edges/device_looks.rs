//! Device files of processes that have ended: which looks are due, and which one is under way.
//!
//! A look reads all of /proc. So there is one at a time, on the `files` thread, and all processes that wait by then share the next one.

use rlaunch_core::id::ProcId;
use rlaunch_core::time::Mono;
use std::collections::BTreeMap;

/// The looks of one agent.
#[derive(Default)]
pub(super) struct DeviceLooks {
    /// When the wait of each process ends without an answer.
    awaited: BTreeMap<ProcId, Mono>,
    /// Sessions that the next look is for, by the process that has led them.
    next: BTreeMap<ProcId, u32>,
    /// Processes of the look that is under way.
    under_way: Option<Vec<ProcId>>,
    /// Whether a process of the session holds a device file.
    answers: Vec<(ProcId, bool)>,
}

impl DeviceLooks {
    /// Another session is to be looked at.
    pub(super) fn add(&mut self, proc: ProcId, session: u32, until: Mono) {
        self.awaited.insert(proc, until);
        self.next.insert(proc, session);
    }

    /// The devices of a process count as held: the thread does not answer.
    pub(super) fn count_as_held(&mut self, proc: ProcId) {
        self.answers.push((proc, true));
    }

    /// The sessions for the next look, which begins. `None`: none is due, or one is under way.
    pub(super) fn begin(&mut self) -> Option<BTreeMap<ProcId, u32>> {
        if self.under_way.is_some() || self.next.is_empty() {
            return None;
        }
        let sessions = std::mem::take(&mut self.next);
        self.under_way = Some(sessions.keys().copied().collect());
        Some(sessions)
    }

    /// The look is over. Answers that are not awaited any more are dropped.
    pub(super) fn end(&mut self, answers: impl IntoIterator<Item = (ProcId, bool)>) {
        self.under_way = None;
        let awaited = answers.into_iter().filter(|(proc, _)| self.awaited.remove(proc).is_some());
        self.answers.extend(awaited);
    }

    /// The look could not begin: its devices count as held, and the node machine looks again.
    pub(super) fn refuse(&mut self) {
        let refused = self.under_way.take().into_iter().flatten();
        self.end(refused.map(|proc| (proc, true)));
    }

    /// Devices count as held where no answer came in time.
    pub(super) fn expire(&mut self, now: Mono) {
        let Self { awaited, next, answers, .. } = self;
        awaited.retain(|proc, until| {
            let waits = *until > now;
            if !waits {
                next.remove(proc);
                answers.push((*proc, true));
            }
            waits
        });
    }

    /// The answers, each once.
    pub(super) fn take(&mut self) -> Vec<(ProcId, bool)> {
        std::mem::take(&mut self.answers)
    }

    /// When a wait ends without an answer.
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.awaited.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Mono {
        Mono::from_nanos(nanos)
    }

    #[test]
    fn processes_share_the_next_look_while_one_is_under_way() {
        let mut looks = DeviceLooks::default();
        let [a, b, c] = [1, 2, 3].map(ProcId::new);
        looks.add(a, 11, at(5));
        assert_eq!(looks.begin(), Some(BTreeMap::from([(a, 11)])));
        looks.add(b, 12, at(6));
        looks.add(c, 13, at(7));
        assert_eq!((looks.begin(), looks.deadline()), (None, Some(at(5))));
        looks.end([(a, false)]);
        assert_eq!(looks.take(), [(a, false)]);
        assert_eq!(looks.begin(), Some(BTreeMap::from([(b, 12), (c, 13)])));
        looks.refuse();
        assert_eq!((looks.take(), looks.deadline()), (vec![(b, true), (c, true)], None));
    }

    #[test]
    fn session_is_not_looked_at_when_its_wait_has_expired() {
        let mut looks = DeviceLooks::default();
        let [a, b] = [1, 2].map(ProcId::new);
        looks.add(a, 11, at(5));
        looks.begin();
        looks.add(b, 12, at(6));
        looks.expire(at(6));
        assert_eq!(looks.take(), [(a, true), (b, true)]);
        looks.end([(a, false)]);
        assert_eq!((looks.take(), looks.begin()), (Vec::new(), None), "an answer that comes too late is dropped");
    }
}
