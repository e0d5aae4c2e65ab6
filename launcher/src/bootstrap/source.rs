//! Our own bytes: what is sent to hosts that do not have them. Held open from the start, so that an upgrade of the file on
//! disk changes nothing for a job that runs.

use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::bootstrap::hash::Hasher;
use rlaunch_plan::bootstrap::sum::Summer;
use rlaunch_plan::bootstrap::{Hash, Sums};
use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// The mode bits by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// The running binary.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    /// Its length.
    pub(crate) len: u64,
    sums: OnceCell<Sums>,
    ends: OnceCell<Hash>,
    /// Its path, if it still exists.
    pub(crate) path: Option<OsBytes>,
}

/// The file that we were started from, also after it was renamed or removed.
pub(crate) fn open() -> io::Result<File> {
    File::open("/proc/self/exe")
}

/// Gives all bytes of a file, in parts.
fn read(file: &File, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut at, mut chunk) = (0, vec![0; 64 << 10]);
    loop {
        match file.read_at(&mut chunk, at)? {
            0 => return Ok(()),
            n => {
                take(chunk.get(..n).unwrap_or_default());
                at += u64::try_from(n).unwrap_or(0);
            }
        }
    }
}

/// The hash of the length of a file, and of 64 KiB at either end. Another build has another: the build ID that linkers write lies in
/// the first page. A file that was cut off, or whose end was not written, has another, too.
pub(crate) fn hash_of_ends(file: &File) -> io::Result<Hash> {
    let len = file.metadata()?.len();
    let (mut hasher, mut chunk) = (Hasher::default(), vec![0; 64 << 10]);
    hasher.update(&len.to_le_bytes());
    for at in [0, len.saturating_sub(chunk.len() as u64)] {
        let n = file.read_at(&mut chunk, at)?;
        hasher.update(chunk.get(..n).unwrap_or_default());
    }
    Ok(hasher.finish())
}

/// The hash of a file.
pub(crate) fn hash(file: &File) -> io::Result<Hash> {
    let mut hasher = Hasher::default();
    read(file, |part| hasher.update(part))?;
    Ok(hasher.finish())
}

impl Source {
    /// Opens it.
    pub(crate) fn new() -> io::Result<Self> {
        let file = open()?;
        let meta = file.metadata()?;
        let same = |path: &std::path::PathBuf| {
            std::fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (meta.dev(), meta.ino()))
        };
        let path = std::fs::read_link("/proc/self/exe").ok().filter(same);
        let path = path.map(|path| OsBytes::from(path.as_os_str().as_bytes()));
        Ok(Self { len: meta.len(), sums: OnceCell::new(), ends: OnceCell::new(), path, file })
    }

    /// Its sums. Milliseconds pass when this is called first.
    pub(crate) fn sums(&self) -> Sums {
        *self.sums.get_or_init(|| {
            let (mut hasher, mut summer) = (Hasher::default(), Summer::default());
            let read = read(&self.file, |part| {
                hasher.update(part);
                summer.update(part);
            });
            if let Err(error) = read {
                // No host has a binary with these sums, so the job ends with an error for each of them.
                tracing::error!(%error, "our own binary cannot be read");
            }
            Sums { hash: hasher.finish(), sum: summer.finish(), ends: self.ends() }
        })
    }

    /// The hash of its ends, which takes no time to speak of.
    pub(crate) fn ends(&self) -> Hash {
        *self.ends.get_or_init(|| {
            hash_of_ends(&self.file).unwrap_or_else(|error| {
                tracing::error!(%error, "our own binary cannot be read");
                Hash([0; 32])
            })
        })
    }

    /// Its path, if only root and this user can put a file there: here, and on all hosts on which the same directories are root's. A
    /// directory that others can write, as `/tmp`, may have another user's file on another host.
    pub(crate) fn guarded_path(&self) -> Option<&OsBytes> {
        let path = self.path.as_ref()?;
        let user = std::fs::metadata("/proc/self").ok()?.uid();
        let is_guarded = |path: &Path| {
            let meta = std::fs::metadata(path).ok();
            meta.is_some_and(|meta| [0, user].contains(&meta.uid()) && meta.mode() & OTHERS_WRITE == 0)
        };
        Path::new(OsStr::from_bytes(path)).ancestors().all(is_guarded).then_some(path)
    }

    /// Some of its bytes.
    pub(crate) fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_page_has_the_build_id_so_the_ends_name_a_build() {
        let mut page = [0; 4096];
        open().unwrap().read_exact_at(&mut page, 0).unwrap();
        // An ELF note: length of the name, length of the ID, type NT_GNU_BUILD_ID, name (elf(5)).
        let note = [4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0];
        assert!(page.windows(note.len()).any(|window| window == note));
    }

    #[test]
    fn path_that_other_users_can_write_is_not_guarded() {
        let own = Source::new().unwrap();
        let with = |path: &str| Source { path: Some(path.into()), ..Source::new().unwrap() };
        assert!(with("/proc/self/status").guarded_path().is_some());
        assert!(with(&format!("/tmp/{}", std::process::id())).guarded_path().is_none(), "a directory for all");
        assert!(with("/proc/no/such/file").guarded_path().is_none());
        assert!(Source { path: None, ..own }.guarded_path().is_none(), "a binary that was removed");
    }

    #[test]
    fn ends_differ_when_length_or_either_end_does() {
        let path = std::env::temp_dir().join(format!("rlaunch-ends.{}", std::process::id()));
        let ends = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            hash_of_ends(&File::open(&path).unwrap()).unwrap()
        };
        let bytes = vec![7; 200 << 10];
        let last = bytes.len() - 1;
        let with = |at: usize| {
            let mut other = bytes.clone();
            other[at] = 8;
            other
        };
        let all = [ends(&bytes), ends(&bytes[1..]), ends(&with(0)), ends(&with(last)), ends(&[]), ends(&[7])];
        std::fs::remove_file(&path).unwrap();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
