//! The services of a host for a world besides the first one, and its listener for MPI libraries.

use alloc::boxed::Box;
use rlaunch_base::id::WorldId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_mpi::Layout;
use rlaunch_protocol::master_store::Guard;

/// The service of a host for a world besides the first one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorldPlan {
    /// Which.
    pub world: WorldId,
    /// The number of its namespace.
    pub namespace: u32,
    /// Whether its namespace lives here.
    pub here: bool,
    /// Hold its `TCPStore` there; `None`: not here, or rank 0 holds it.
    pub store: Option<TcpStorePlan>,
    /// The layout for MPI libraries; `None`: they are not served.
    pub mpi: Option<Box<Layout>>,
}

/// A `TCPStore`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpStorePlan {
    /// A numeric address of this host.
    pub addr: OsBytes,
    /// MASTER_PORT.
    pub port: u16,
    /// The clients that it serves.
    pub guard: Guard,
    /// How many ranks this host has, which need descriptors too.
    pub ranks: u32,
}
