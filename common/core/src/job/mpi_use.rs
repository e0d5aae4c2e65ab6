//! Whether the ranks of an MPI program were connected: without that each of them is a program of its own, and the result is wrong.

use crate::events::{Cause, JobNews, What};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::node_news::{MpiNews, NodeNews};

/// The use of MPI by the ranks of a job.
#[derive(Debug)]
pub(super) struct MpiUse {
    /// The MPI library that a rank has loaded or, where the agents do not look, that a program needs; empty: none.
    library: OsBytes,
    is_served: bool,
    is_used: bool,
}

impl MpiUse {
    pub(super) fn new(spec: &JobSpec) -> Self {
        let library = if spec.settings.mpi.served { OsBytes::default() } else { spec.settings.mpi.library.clone() };
        Self { library, is_served: spec.settings.mpi.served, is_used: false }
    }

    pub(super) fn on_news(&mut self, news: &NodeNews) {
        self.is_used |= matches!(news, NodeNews::Mpi(MpiNews::Used { .. }));
        if let NodeNews::Mpi(MpiNews::Loaded { library }) = news {
            self.library = library.clone();
        }
    }

    /// The fact that no rank was connected. A rank that fails may have failed before `MPI_Init`.
    pub(super) fn report(&self, cause: &Cause, placement: &Placement) -> Option<What> {
        let size = |world| u32::try_from(placement.members(world).count()).unwrap_or(u32::MAX);
        // Agents look at ranks of the first world only.
        let looked_at = placement.worlds.ids().take(if self.is_served { 1 } else { usize::MAX });
        let ranks = looked_at.map(size).max().unwrap_or(0);
        let has_run = matches!(cause, Cause::Success | Cause::Lead { .. });
        let is_apart = has_run && ranks > 1 && !self.library.is_empty() && !self.is_used;
        let library = self.library.clone();
        is_apart.then_some(What::News(JobNews::MpiApart { ranks, library, is_served: self.is_served }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use rlaunch_base::id::{JobId, Rank};
    use rlaunch_base::signal::Signal;
    use rlaunch_base::status::Status;
    use rlaunch_protocol::wire::node_news::MpiWire;

    fn spec(library: &str, mpi: bool) -> JobSpec {
        let placement = Placement::here("here", [4]);
        JobSpec::of(JobId([1; 16]), Vec::new(), placement).with(|settings| {
            settings.mpi.library = library.into();
            settings.mpi.served = mpi;
        })
    }

    #[test]
    fn ranks_that_have_loaded_a_library_and_are_not_connected_are_reported() {
        let [one, four] = [1, 4].map(|ranks| Placement::here("here", [ranks]));
        let mut unused = MpiUse::new(&spec("mpi4py", true));
        assert_eq!(unused.report(&Cause::Success, &four), None, "no rank has loaded a library");
        unused.on_news(&NodeNews::Mpi(MpiNews::Loaded { library: "libmpi.so.12".into() }));
        let apart = |library: &str, is_served| {
            Some(What::News(JobNews::MpiApart { ranks: 4, library: library.into(), is_served }))
        };
        assert_eq!(unused.report(&Cause::Success, &four), apart("libmpi.so.12", true));
        assert_eq!(unused.report(&Cause::Success, &one), None);
        for status in [Status::Exited(2), Status::Signaled { sig: Signal::KILL, core: false }] {
            assert_eq!(unused.report(&Cause::Rank { rank: Rank::new(0), status }, &four), None, "{status:?}");
        }
        assert_eq!(unused.report(&Cause::Signal(Signal::INT), &four), None);
        unused.on_news(&NodeNews::Mpi(MpiNews::Used { wire: MpiWire::Pmix }));
        assert_eq!(unused.report(&Cause::Success, &four), None);
        assert_eq!(MpiUse::new(&spec("mpi4py", false)).report(&Cause::Success, &four), apart("mpi4py", false));
    }
}
