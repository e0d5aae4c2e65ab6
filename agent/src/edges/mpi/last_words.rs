//! Texts for the user that the last messages of a rank have.

use crate::clock::now;
use crate::edges::Edges;
use rlaunch_core::id::{Std, StreamId};

/// The stderr of a rank has ended. Its last messages may have texts for the user, which are put there: then there is more to read.
pub(in crate::edges) fn has_last_words(edges: &mut Edges, id: StreamId) -> bool {
    let Edges { mpi: Some(listener), ranks, .. } = edges else { return false };
    if id.std() != Std::Err || listener.connections.is_empty() {
        return false;
    }
    listener.look(ranks);
    if let Some((world, rank)) = ranks.rank_of(id.proc())
        && let Some(of) = listener.worlds.get_mut(&world)
    {
        of.machine.show_last(now(), rank);
        listener.perform_of(world, ranks);
    }
    ranks.stream_mut(id.proc(), id.std()).is_some_and(|stream| rlaunch_sys::fd::unread(&stream.fd) > 0)
}
