//! Our own bytes: what is sent to hosts that do not have them. Held open from the start, so that an upgrade of the file on
//! disk changes nothing for a job that runs.

use rlaunch_core::bootstrap::hash::Hasher;
use rlaunch_core::bootstrap::sum::Summer;
use rlaunch_core::bootstrap::{Hash, Sum};
use rlaunch_core::os_bytes::OsBytes;
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
    /// Its hash.
    pub(crate) hash: Hash,
    /// Its checksum.
    pub(crate) sum: Sum,
    /// Its path, if it still exists.
    pub(crate) path: Option<OsBytes>,
}

/// The file that we were started from, also after it was renamed or removed.
pub(crate) fn open() -> io::Result<File> {
    File::open("/proc/self/exe")
}

/// The hash and the checksum of a file.
pub(crate) fn read(file: &File) -> io::Result<(Hash, Sum)> {
    let (mut hasher, mut summer, mut at) = (Hasher::default(), Summer::default(), 0);
    let mut chunk = vec![0; 64 << 10];
    loop {
        match file.read_at(&mut chunk, at)? {
            0 => return Ok((hasher.finish(), summer.finish())),
            n => {
                let read = chunk.get(..n).unwrap_or_default();
                hasher.update(read);
                summer.update(read);
                at += u64::try_from(n).unwrap_or(0);
            }
        }
    }
}

impl Source {
    /// Opens and hashes it.
    pub(crate) fn new() -> io::Result<Self> {
        let file = open()?;
        let meta = file.metadata()?;
        let same = |path: &std::path::PathBuf| {
            std::fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (meta.dev(), meta.ino()))
        };
        let path = std::fs::read_link("/proc/self/exe").ok().filter(same);
        let path = path.map(|path| OsBytes::from(path.as_os_str().as_bytes()));
        let (hash, sum) = read(&file)?;
        Ok(Self { len: meta.len(), hash, sum, path, file })
    }

    /// Some of its bytes.
    pub(crate) fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }
}
