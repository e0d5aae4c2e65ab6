//! Texts for the user that the last messages of a rank have.

use super::MpiListener;
use crate::clock::now;
use crate::edges::part::Base;
use rlaunch_base::id::{Std, StreamId};

impl MpiListener {
    /// The stderr of a rank has ended. Its last messages may have texts for the user, which are put there: then there is more to read.
    pub(in crate::edges) fn has_last_words(&mut self, base: &mut Base, id: StreamId) -> bool {
        if id.std() != Std::Err || self.connections.is_empty() {
            return false;
        }
        let ranks = &mut base.ranks;
        self.look(ranks);
        if let Some((world, rank)) = ranks.rank_of(id.proc())
            && let Some(of) = self.worlds.get_mut(&world)
        {
            of.machine.show_last(now(), rank);
            self.perform_of(world, ranks);
        }
        ranks.stream_mut(id.proc(), id.std()).is_some_and(|stream| rlaunch_sys::fd::unread(&stream.fd) > 0)
    }
}
