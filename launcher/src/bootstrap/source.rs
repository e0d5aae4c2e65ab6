//! Our own bytes: what is sent to hosts that do not have them. Held open from the start, so that an upgrade of the file on
//! disk changes nothing for a job that runs.

use rlaunch_core::bootstrap::hash::Hasher;
use rlaunch_core::bootstrap::sum::Summer;
use rlaunch_core::bootstrap::{Hash, Sums};
use rlaunch_core::os_bytes::OsBytes;
use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// The running binary.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    /// Its length.
    pub(crate) len: u64,
    sums: OnceCell<Sums>,
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
        Ok(Self { len: meta.len(), sums: OnceCell::new(), path, file })
    }

    /// Its hash and checksum. Milliseconds pass when this is called first.
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
            Sums { hash: hasher.finish(), sum: summer.finish() }
        })
    }

    /// Some of its bytes.
    pub(crate) fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }
}
