//! Files that the libraries of ranks leave: removed when the ranks are gone, by the agent or by its guardian.

use super::noted_files::NotedFiles;
use super::{Edges, MpiListener};
use rlaunch_core::id::{ProcId, Rank, WorldId};

impl MpiListener {
    /// A file is to be removed when the rank is gone, or all ranks of the host. The guardian does so if we cannot.
    pub(super) fn clean_up(&mut self, world: WorldId, rank: Option<Rank>, path: &[u8]) {
        let Some(world) = self.worlds.get_mut(&world) else { return };
        if world.outcomes.clean_up(rank, path) {
            self.noted.note(path);
            self.noted.note_alike(path);
        }
        if let Some(old) = world.outcomes.oldest_shared() {
            remove_file(&mut self.noted, &old);
        }
    }
}

/// A rank is gone: files that its library has left are removed.
pub(in crate::edges) fn reaped(edges: &mut Edges, proc: ProcId) {
    let Edges { mpi: Some(listener), ranks, .. } = edges else { return };
    let Some((number, rank)) = ranks.rank_of(proc) else { return };
    let MpiListener { worlds, noted, .. } = &mut **listener;
    let Some(world) = worlds.get_mut(&number) else { return };
    world.outcomes.files_of(rank).iter().for_each(|path| remove_file(noted, path));
    if ranks.is_last_of_world(number, proc) {
        world.outcomes.take_shared().iter().for_each(|path| remove_file(noted, path));
    }
}

fn remove_file(noted: &mut NotedFiles, path: &[u8]) {
    if let Err(error) = rlaunch_sys::leftover_file::remove(path) {
        tracing::debug!(%error, "{} stays", String::from_utf8_lossy(path));
    }
    noted.forget(path);
}
