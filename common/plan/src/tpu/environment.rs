//! The part of a host in the slices of a job: from it the variables of its ranks are made.

use super::bounds::Bounds;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use rlaunch_base::id::LocalRank;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// The first port at which the processes of a slice find each other (torch_xla, `_internal/tpu.py`).
const FIRST_PORT: u32 = 8476;

/// A host of a slice, as its ranks have to know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TpuHost {
    /// The name of the slice.
    pub slice: OsBytes,
    /// Its number among the slices of the job.
    pub slice_number: u32,
    /// Slices of the job.
    pub slices: u32,
    /// Address and port of the coordinator of several slices; empty: there is one slice.
    pub coordinator: OsBytes,
    /// The number of the host in the slice.
    pub worker: u32,
    /// The addresses of the hosts of the slice, with commas between them.
    pub addresses: OsBytes,
    /// Chips of the host; 0: unknown.
    pub chips: u32,
    /// Ranks of the host.
    pub ranks: u32,
    /// The shape of the chips of a rank; `None`: a rank has all of them.
    pub part: Option<Bounds>,
    /// The shape of the ranks of the slice; `None`: libtpu finds it.
    pub processes: Option<Bounds>,
    /// `v4-16`; empty: unknown.
    pub accelerator_type: OsBytes,
    /// There is no metadata server that a library may ask.
    pub skips_metadata: bool,
}

/// The chips of one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankChips {
    /// The number of its process in the slice.
    pub worker: u32,
    /// The port of the rank and the chips that it sees; `None`: the rank is alone on its host.
    pub own: Option<(u32, String)>,
}

impl TpuHost {
    /// The addresses of the processes of the slice, if a host has several.
    #[must_use]
    pub fn process_addresses(&self) -> Option<String> {
        self.part?;
        let of_host = |address: &[u8]| {
            let address = String::from_utf8_lossy(address);
            let ports = FIRST_PORT..FIRST_PORT.saturating_add(self.ranks);
            ports.map(|port| format!("{address}:{port}")).collect::<Vec<_>>()
        };
        Some(self.addresses.split(|b| *b == b',').flat_map(of_host).collect::<Vec<_>>().join(","))
    }

    /// The chips of a rank of this host.
    #[must_use]
    pub fn rank(&self, local_rank: LocalRank) -> RankChips {
        let local = local_rank.get();
        let own = self.part.map(|part| {
            let each = part.count();
            let first = local.saturating_mul(each);
            let chips: Vec<String> = (first..first.saturating_add(each)).map(|chip| chip.to_string()).collect();
            (FIRST_PORT.saturating_add(local), chips.join(","))
        });
        RankChips { worker: self.worker.saturating_mul(self.ranks).saturating_add(local), own }
    }
}

impl TpuHost {
    /// A host of which all variables are set, for tests.
    pub fn example() -> Self {
        Self {
            slice: "a".into(),
            slice_number: 1,
            slices: 2,
            coordinator: "10.0.1.1:8081".into(),
            worker: 1,
            addresses: "10.0.2.1,10.0.2.2".into(),
            chips: 4,
            ranks: 4,
            part: Some(Bounds::ONE),
            processes: Bounds::parse("2,2,2"),
            accelerator_type: "v4-16".into(),
            skips_metadata: true,
        }
    }
}
