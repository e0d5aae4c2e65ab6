//! Files of /dev/shm that the guardian removes if the agent is killed.

use rlaunch_core::os_bytes::OsBytes;
use rlaunch_sys::guardian::{ShmFiles, TempFiles};
use std::collections::BTreeMap;

/// Whether a path is that of a segment of Open MPI: its host, user, job and rank follow.
fn is_segment(path: &[u8]) -> bool {
    [&b"/dev/shm/sm_segment."[..], b"/dev/shm/vader_segment."].iter().any(|start| path.starts_with(start))
}

/// The noted files, and the slots of the guardian's table.
#[derive(Debug)]
pub(super) struct NotedFiles {
    files: TempFiles,
    table: ShmFiles,
    has_clients: bool,
    /// The slot of each path, and how many users it has.
    slots: BTreeMap<Vec<u8>, (usize, u32)>,
    free: Vec<usize>,
    /// The first slot that was never used.
    next: usize,
}

impl NotedFiles {
    pub(super) const fn new(files: TempFiles) -> Self {
        Self { files, table: files.shm(), has_clients: false, slots: BTreeMap::new(), free: Vec::new(), next: 0 }
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

    /// Notes a file. If the table is full, the file stays when the agent is killed.
    pub(super) fn note(&mut self, path: &[u8]) {
        if !ShmFiles::takes(path) {
            return;
        }
        if let Some((_, users)) = self.slots.get_mut(path) {
            *users = users.saturating_add(1);
            return;
        }
        let Some(slot) = self.free.pop().or_else(|| (self.next < ShmFiles::MOST).then_some(self.next)) else { return };
        self.next = self.next.max(slot + 1);
        if self.table.note(slot, path) {
            self.slots.insert(path.to_vec(), (slot, 1));
        }
    }

    /// Notes all files of the job that are named like one of Open MPI. Another rank may be killed before it asks for the removal of its own.
    pub(super) fn note_alike(&mut self, path: &[u8]) {
        let Some(at) = path.iter().rposition(|byte| *byte == b'.').filter(|_| is_segment(path)) else { return };
        let alike = [path.get(..=at).unwrap_or_default(), b"*"].concat();
        if !self.slots.contains_key(&alike) {
            self.note(&alike);
        }
    }

    /// A file is gone.
    pub(super) fn forget(&mut self, path: &[u8]) {
        let Some((slot, users)) = self.slots.get_mut(path) else { return };
        *users = users.saturating_sub(1);
        if *users == 0 {
            self.table.clear(*slot);
            self.free.push(*slot);
            self.slots.remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted() -> NotedFiles {
        NotedFiles::new(TempFiles::new().unwrap())
    }

    #[test]
    fn file_of_two_ranks_is_noted_until_both_are_gone() {
        let mut noted = noted();
        let [shared, other] = [&b"/dev/shm/shared"[..], b"/dev/shm/other"];
        noted.note(shared);
        noted.note(shared);
        noted.forget(shared);
        assert_eq!(noted.slots.get(shared), Some(&(0, 1)));
        noted.note(other);
        noted.forget(shared);
        noted.forget(shared);
        assert_eq!(noted.slots.keys().collect::<Vec<_>>(), [other]);
        noted.note(shared);
        assert_eq!(noted.slots.get(shared), Some(&(0, 1)), "its slot was free");
    }

    #[test]
    fn files_of_other_ranks_are_noted_with_a_segment_of_open_mpi() {
        let mut noted = noted();
        for path in [&b"/dev/shm/sm_segment.host.0.7.1"[..], b"/dev/shm/sm_segment.host.0.7.2", b"/dev/shm/a.1"] {
            noted.note_alike(path);
        }
        assert_eq!(noted.slots.keys().collect::<Vec<_>>(), [b"/dev/shm/sm_segment.host.0.7.*"]);
        noted.note(b"/tmp/a");
        assert_eq!(noted.slots.len(), 1, "the guardian looks at shared memory only");
    }
}
