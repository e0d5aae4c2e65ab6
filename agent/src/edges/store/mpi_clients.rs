//! Numbers of the clients that are machines of MPI: the highest ones, which no connection gets.

use rlaunch_base::id::{ClientId, WorldId};

/// The client that the machine of MPI of the first world is.
const OF_MPI: ClientId = ClientId::new(u32::MAX);
/// Machines of MPI of so many other worlds have the numbers below that, and as many below those, with which they ask the first world's
/// namespace.
const MOST_MPI: u32 = 1 << 20;

/// The client that the machine of MPI of a world is.
pub(in crate::edges) const fn of_mpi(world: WorldId) -> ClientId {
    ClientId::new(OF_MPI.get().saturating_sub(world.get() % MOST_MPI))
}

/// The same in the namespace of the first world.
pub(super) const fn of_mpi_in_first(world: WorldId) -> ClientId {
    match world.get() {
        0 => OF_MPI,
        world => ClientId::new(OF_MPI.get() - MOST_MPI - world % MOST_MPI),
    }
}

/// The world of a client that is a machine of MPI.
pub(super) const fn world_of_mpi(client: ClientId) -> Option<WorldId> {
    let below = OF_MPI.get() - client.get();
    if below < 2 * MOST_MPI { Some(WorldId::new(below % MOST_MPI)) } else { None }
}
