//! Files of /dev/shm that the libraries of ranks make: removed when the ranks of their world are gone, by the agent or by its guardian.

use super::MpiListener;
use crate::edges::rank_table::Ranks;
use rlaunch_base::id::{ProcId, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_sys::guardian::{ShmFiles, TempFiles, remove_shm};
use std::collections::{BTreeMap, VecDeque};

/// Most names of a world. The oldest are those of programs that all ranks have left.
const MOST_FILES: usize = 128;

/// A file, by its user and its name; and its slot in the guardian's table, if it has one.
type Noted = (u32, String, Option<usize>);

/// The noted files, and the slots of the guardian's table.
#[derive(Debug)]
pub(super) struct NotedFiles {
    files: TempFiles,
    table: ShmFiles,
    has_clients: bool,
    noted: BTreeMap<WorldId, VecDeque<Noted>>,
    free: Vec<usize>,
    /// The first slot that was never used.
    next: usize,
}

impl NotedFiles {
    pub(super) const fn new(files: TempFiles) -> Self {
        Self { files, table: files.shm(), has_clients: false, noted: BTreeMap::new(), free: Vec::new(), next: 0 }
    }

    /// A process has connected: its library may make files whose names cannot be known, and a directory for others.
    pub(super) fn expect_others(&mut self) {
        self.table.expect_others();
        if !std::mem::replace(&mut self.has_clients, true)
            && let Err(error) = self.files.make_library_dir()
        {
            tracing::debug!(%error, "no directory for MPI libraries");
        }
    }

    /// The directory of a world; empty: there is none.
    pub(super) fn dir_of(&self, world: &str) -> OsBytes {
        use std::os::unix::ffi::OsStringExt as _;
        let dir = self.files.library_dir().map(|dir| dir.join(world));
        dir.map(|dir| OsBytes::new(dir.into_os_string().into_vec())).unwrap_or_default()
    }

    /// Notes files of a user, as ranks of a world make them. If the table is full, they stay when the agent is killed.
    pub(super) fn note(&mut self, world: WorldId, user: u32, names: [String; 2]) {
        let noted = self.noted.entry(world).or_default();
        for name in names {
            if noted.iter().any(|(of, known, _)| (*of, known) == (user, &name)) {
                continue;
            }
            let slot = self.free.pop().unwrap_or(self.next);
            self.next = self.next.max(slot + 1).min(ShmFiles::MOST);
            let is_noted = self.table.note(slot, user, &name);
            noted.push_back((user, name, is_noted.then_some(slot)));
        }
        while noted.len() > MOST_FILES {
            self.free.extend(noted.pop_front().and_then(|file| remove(self.table, &file)));
        }
    }

    /// All ranks of a world are gone.
    pub(super) fn end_world(&mut self, world: WorldId) {
        for file in self.noted.remove(&world).unwrap_or_default() {
            self.free.extend(remove(self.table, &file));
        }
    }
}

impl MpiListener {
    /// A rank is gone: after the last one of its world, files that their libraries have left are removed.
    pub(in crate::edges) fn reaped(&mut self, ranks: &Ranks, proc: ProcId) {
        if let Some((world, _)) = ranks.rank_of(proc).filter(|(world, _)| ranks.is_last_of_world(*world, proc)) {
            self.noted.end_world(world);
        }
    }
}

/// Removes a file. Returns its slot, which is free.
fn remove(table: ShmFiles, (user, name, slot): &Noted) -> Option<usize> {
    remove_shm(*user, name.as_bytes());
    slot.inspect(|slot| table.clear(*slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: WorldId = WorldId::new(7);

    fn noted() -> NotedFiles {
        NotedFiles::new(TempFiles::new().unwrap())
    }

    fn names(number: usize) -> [String; 2] {
        ["a", "b"].map(|kind| format!("rlaunch-noted-{}-{kind}{number}", std::process::id()))
    }

    #[test]
    fn files_are_removed_and_forgotten_with_their_world() {
        let (mut noted, user) = (noted(), rlaunch_sys::facts::host::user().0);
        let path = |name: &str| std::path::Path::new("/dev/shm").join(name);
        for name in names(0).iter().chain(&names(1)) {
            std::fs::write(path(name), "x").unwrap();
        }
        noted.note(WORLD, user, names(0));
        noted.note(WORLD, user, names(0));
        noted.note(WorldId::new(8), user, names(1));
        assert_eq!(noted.next, 4, "a file is noted once");
        noted.end_world(WORLD);
        assert!(!names(0).iter().any(|name| path(name).exists()), "they are gone");
        assert!(names(1).iter().all(|name| path(name).exists()), "they are of another world");
        assert_eq!((noted.noted.len(), noted.free.len()), (1, 2));
        noted.note(WORLD, user + 1, names(1));
        assert_eq!(noted.next, 4, "the slots were free");
        noted.end_world(WORLD);
        assert!(names(1).iter().all(|name| path(name).exists()), "they are of another user");
        noted.end_world(WorldId::new(8));
        assert!(noted.noted.is_empty() && !names(1).iter().any(|name| path(name).exists()));
    }

    #[test]
    fn oldest_files_of_a_world_are_given_up_when_there_are_many() {
        // Other numbers than in the test above, which may run at the same time.
        let mut noted = noted();
        for number in 1000..2000 {
            noted.note(WORLD, 0, names(number));
        }
        let [oldest, _] = names(2000 - MOST_FILES / 2);
        assert_eq!((noted.next, noted.noted[&WORLD].len(), &noted.noted[&WORLD][0].1), (130, MOST_FILES, &oldest));
    }
}
