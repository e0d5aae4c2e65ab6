//! Facts of features that have a line.

use super::*;

/// Lines of facts that agents report.
pub(super) fn of_hosts() -> Vec<What> {
    vec![
        node_news(NodeNews::Store(StoreNews::Limit { met: Met::at(Limit::Keys, b"", 9, 8), count: 1 })),
        node_news(NodeNews::FileFailed { errno: 28, path: "/logs".into() }),
        node_news(NodeNews::Devices(DeviceNews::Held(holder()))),
        node_news(NodeNews::Binding(BindingNews::RankBound {
            rank: RANK,
            bound: true,
            cpus: "0-3".into(),
            cores: "0-3".into(),
            numa: "0".into(),
        })),
    ]
}

/// Lines about slices.
pub(super) fn of_slices(within: Span) -> Vec<What> {
    vec![
        slices(true),
        What::News(JobNews::Slices(SliceNews::Awaited { wanted: 4, up: 3, within })),
        What::News(JobNews::Slices(SliceNews::Missing {
            slice: "b".into(),
            node: NODE,
            why: Box::new(Obstacle::Awaited),
        })),
    ]
}

/// Lines about hosts that `--discover` has found.
pub(super) fn of_discovery() -> impl Iterator<Item = What> {
    let ignored = [
        Ignored::Hosts { has: 3, of: 2 },
        Ignored::Chips { has: 8, of: 4 },
        Ignored::Name,
        Ignored::NoSlot { most: 20 },
    ];
    let faults = [
        DiscoverFault::Late,
        DiscoverFault::TooMuch,
        DiscoverFault::Unstarted { errno: 2 },
        DiscoverFault::Failed(Status::Exited(3)),
        DiscoverFault::NoList { text: "--discover: no host".into() },
    ];
    let ignored = ignored.map(|why| JobNews::Slices(SliceNews::Ignored { slice: "f".into(), why }));
    ignored.into_iter().chain(faults.map(|why| JobNews::Slices(SliceNews::DiscoverFailed { why }))).map(What::News)
}

/// Lines about MPI.
pub(super) fn of_mpi() -> [What; 3] {
    [
        node_news(NodeNews::Mpi(MpiNews::Unfinished { rank: Rank::new(1), pid: 4711 })),
        What::News(JobNews::MpiApart { ranks: 4, library: "libmpi.so.40".into(), is_served: true }),
        What::News(JobNews::MpiApart { ranks: 4, library: "mpi4py".into(), is_served: false }),
    ]
}
