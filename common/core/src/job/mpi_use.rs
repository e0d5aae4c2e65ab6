//! Whether the ranks of an MPI program were connected: without that each of them is a program of its own, and the result is wrong.

use crate::events::{Cause, JobNews, What};
use crate::os_bytes::OsBytes;
use crate::spec::JobSpec;
use crate::status::Status;
use crate::wire::node_news::NodeNews;

/// Codes of a shell that has started no program.
const NOT_STARTED: [u8; 2] = [126, 127];

/// The use of MPI by the ranks of a job.
#[derive(Debug)]
pub(super) struct MpiUse {
    /// The MPI library that a program needs; empty: none.
    library: OsBytes,
    is_served: bool,
    is_used: bool,
}

impl MpiUse {
    pub(super) fn new(spec: &JobSpec) -> Self {
        Self { library: spec.mpi_library.clone(), is_served: spec.mpi, is_used: false }
    }

    pub(super) const fn on_news(&mut self, news: &NodeNews) {
        if matches!(news, NodeNews::MpiUsed { .. }) {
            self.is_used = true;
        }
    }

    /// The fact that no rank was connected, where that is not the consequence of another failure.
    pub(super) fn report(&self, cause: &Cause, ranks: u32) -> Option<What> {
        let has_run = match cause {
            Cause::Success | Cause::Lead { .. } => true,
            Cause::Rank { status: Status::Exited(code), .. } => !NOT_STARTED.contains(code),
            Cause::Rank { .. }
            | Cause::Spawn { .. }
            | Cause::Refused { .. }
            | Cause::Unreachable { .. }
            | Cause::Signal(_)
            | Cause::Scheduler { .. }
            | Cause::Timeout(_)
            | Cause::ReaderClosed(_)
            | Cause::Lost { .. }
            | Cause::Preempted { .. }
            | Cause::TooFewSlices { .. } => false,
        };
        let is_apart = has_run && ranks > 1 && !self.library.is_empty() && !self.is_used;
        let library = self.library.clone();
        is_apart.then_some(What::News(JobNews::MpiApart { ranks, library, is_served: self.is_served }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{JobId, Rank};
    use crate::place::Placement;
    use crate::signal::Signal;
    use crate::wire::node_news::MpiWire;
    use alloc::vec::Vec;

    fn spec(library: &str) -> JobSpec {
        JobSpec {
            mpi_library: library.into(),
            mpi: true,
            ..JobSpec::of(JobId([1; 16]), Vec::new(), Placement::here("here", [4]))
        }
    }

    #[test]
    fn ranks_that_no_library_connected_are_reported() {
        let unused = MpiUse::new(&spec("libmpi.so.12"));
        let library = "libmpi.so.12".into();
        let expected = Some(What::News(JobNews::MpiApart { ranks: 4, library, is_served: true }));
        let failed = |status| Cause::Rank { rank: Rank::new(0), status };
        assert_eq!(unused.report(&Cause::Success, 4), expected);
        assert_eq!(unused.report(&failed(Status::Exited(3)), 4), expected);
        for cause in [
            failed(Status::Exited(127)),
            failed(Status::Signaled { sig: Signal::KILL, core: false }),
            Cause::Signal(Signal::INT),
        ] {
            assert_eq!(unused.report(&cause, 4), None, "{cause:?}");
        }
        assert_eq!(unused.report(&Cause::Success, 1), None);
        assert_eq!(MpiUse::new(&spec("")).report(&Cause::Success, 4), None);
        let mut used = unused;
        used.on_news(&NodeNews::MpiUsed { wire: MpiWire::Pmix });
        assert_eq!(used.report(&Cause::Success, 4), None);
    }
}
