//! Effects of MPI on the end of a rank: the code of `MPI_Abort`.

use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::status::Status;
use rlaunch_base::time::{Mono, Span};
use std::collections::BTreeMap;

/// How long a rank that has called `MPI_Abort` may take to exit by itself.
const PATIENCE: Span = Span::from_secs(1);
/// The code of a rank that exits with 0 in the middle of MPI.
const UNFINISHED: u8 = 1;

/// The ends of ranks that MPI knows more about.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    aborts: BTreeMap<Rank, u8>,
    /// Processes that have to be gone by then.
    due: Vec<(Mono, ProcId)>,
}

impl Outcomes {
    /// A rank has called `MPI_Abort`: it runs as these processes.
    pub(super) fn abort(&mut self, rank: Rank, code: i32, procs: Vec<ProcId>, now: Mono) {
        // As exit does; a job that was aborted has not succeeded.
        let code = u8::try_from(code & 0xff).ok().filter(|code| *code > 0).unwrap_or(UNFINISHED);
        self.aborts.entry(rank).or_insert(code);
        self.due.extend(procs.into_iter().map(|proc| (now + PATIENCE, proc)));
    }

    /// Whether a rank has called `MPI_Abort`.
    pub(super) fn has_aborted(&self, rank: Rank) -> bool {
        self.aborts.contains_key(&rank)
    }

    /// The end of a rank, whose process has ended in this way.
    pub(super) fn end(&self, rank: Rank, status: Status, is_inside: bool) -> Status {
        match (self.aborts.get(&rank), status) {
            (Some(code), Status::Exited(_) | Status::Signaled { .. }) => Status::Exited(*code),
            (None, Status::Exited(0)) if is_inside => Status::Exited(UNFINISHED),
            (_, status) => status,
        }
    }

    /// Processes whose time to exit by themselves has expired.
    pub(super) fn overdue(&mut self, now: Mono) -> Vec<ProcId> {
        let due = |(at, _): &mut (Mono, ProcId)| *at <= now;
        self.due.extract_if(.., due).map(|(_, proc)| proc).collect()
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.due.iter().map(|(at, _)| *at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::signal::Signal;

    #[test]
    fn end_of_rank_has_the_code_of_its_abort() {
        let (rank, other) = (Rank::new(3), Rank::new(2));
        let mut outcomes = Outcomes::default();
        outcomes.abort(rank, 7, vec![ProcId::new(5)], Mono::from_nanos(1));
        outcomes.abort(rank, 9, Vec::new(), Mono::from_nanos(1));
        let killed = Status::Signaled { sig: Signal::KILL, core: false };
        for status in [Status::Exited(0), Status::Exited(7), killed] {
            assert_eq!(outcomes.end(rank, status, true), Status::Exited(7));
        }
        assert_eq!(outcomes.end(rank, Status::Lost, true), Status::Lost);
        assert_eq!(outcomes.end(other, killed, true), killed);
        assert_eq!(outcomes.end(other, Status::Exited(0), false), Status::Exited(0));
        assert_eq!(outcomes.end(other, Status::Exited(0), true), Status::Exited(1));
        let due = outcomes.deadline().unwrap();
        assert_eq!(outcomes.overdue(Mono::from_nanos(2)), []);
        assert_eq!(outcomes.overdue(due), [ProcId::new(5)]);
        assert_eq!(outcomes.deadline(), None);
    }

    #[test]
    fn abort_with_code_0_is_a_failure() {
        let mut outcomes = Outcomes::default();
        outcomes.abort(Rank::new(0), 256, Vec::new(), Mono::from_nanos(1));
        assert_eq!(outcomes.end(Rank::new(0), Status::Exited(0), false), Status::Exited(1));
    }
}
