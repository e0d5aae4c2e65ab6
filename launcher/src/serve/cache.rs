//! The directory that an agent was started from, if that is a cache. Every version of rlaunch leaves a binary there, and old binaries have
//! to be removed. An agent that has just arrived does so, which happens once for each version and host.
//!
//! The time of modification of a binary is the time when it was last of use: agents refresh it. A binary that runs on this host is never
//! removed. A binary that runs on another host, which shares the directory, was refreshed when it was started there.

use rlaunch_plan::bootstrap::Hash;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Number of binaries that are always kept.
const KEPT: usize = 4;
/// Time without use after which a binary is removed.
const OLD: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time after which a half-written binary, of a host that lost power, is removed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// A refresh that is younger than this is not repeated.
const FRESH: Duration = Duration::from_secs(24 * 3600);
/// Entries that are looked at.
const LOOKED_AT: usize = 512;
/// Files that are removed at a time.
const REMOVED: usize = 16;

fn age(meta: &Metadata, now: SystemTime) -> Duration {
    meta.modified().ok().and_then(|then| now.duration_since(then).ok()).unwrap_or_default()
}

/// Notes that this binary is of use.
pub(super) fn refresh(own: &File) {
    let now = SystemTime::now();
    if own.metadata().is_ok_and(|meta| age(&meta, now) > FRESH) {
        // If this is refused, the binary looks older than it is, and is sent again one day.
        let _refused = own.set_modified(now);
    }
}

/// Removes what is old in a directory that only we can write. The next agent tries again to remove what is left.
pub(super) fn prune(dir: &Path) {
    let (now, mut binaries, mut doomed) = (SystemTime::now(), Vec::new(), Vec::new());
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.take(LOOKED_AT).flatten() {
        let name = entry.file_name();
        // For a link, the metadata of the link itself.
        let Ok(meta) = entry.metadata() else { continue };
        match kind(name.as_encoded_bytes()) {
            Some(Kind::Binary) if meta.is_file() => binaries.push((age(&meta, now), meta.ino(), entry.path())),
            Some(Kind::Unfinished) if meta.is_file() && age(&meta, now) > ABANDONED => doomed.push(entry.path()),
            Some(Kind::Binary | Kind::Unfinished) | None => {}
        }
    }
    binaries.sort();
    let old = binaries.into_iter().skip(KEPT).filter(|(age, _, _)| *age > OLD).map(|(_, _, path)| path);
    doomed.extend(old.filter(|path| !is_running(path)));
    for path in doomed.into_iter().take(REMOVED) {
        let _next_time = fs::remove_file(path);
    }
}

enum Kind {
    Binary,
    Unfinished,
}

/// `agent-HASH`, or `.agent-HASH.NODE.PID` while it arrives.
fn kind(name: &[u8]) -> Option<Kind> {
    if let Some(rest) = name.strip_prefix(b".agent-") {
        let at = rest.iter().position(|b| *b == b'.')?;
        return Hash::parse(rest.get(..at)?).map(|_| Kind::Unfinished);
    }
    Hash::parse(name.strip_prefix(b"agent-")?).map(|_| Kind::Binary)
}

/// The kernel refuses to write to what is being executed (ETXTBSY, open(2)).
fn is_running(path: &PathBuf) -> bool {
    File::options().write(true).open(path).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(dir: &Path, name: &str, days: u64) -> PathBuf {
        let path = dir.join(name);
        let file = File::create(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(days * 24 * 3600)).unwrap();
        path
    }

    fn scratch(name: &str) -> PathBuf {
        // On the file system of this program, which gets a second name there.
        let dir = std::env::current_exe().unwrap().with_file_name(format!("rlaunch-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn newest_binaries_and_running_binaries_are_kept() {
        let dir = scratch("prune");
        let name = |n: u8| format!("agent-{}", Hash([n; 32]));
        let young: Vec<_> = (0..3).map(|n| make(&dir, &name(n), 1)).collect();
        let last = make(&dir, &name(3), 40);
        let middle = make(&dir, &name(4), 20);
        let old: Vec<_> = (5..8).map(|n| make(&dir, &name(n), 50)).collect();
        let foreign: Vec<_> = ["agent-x", "notes", ".agent-1.0.7"].map(|name| make(&dir, name, 90)).into();
        let unfinished = make(&dir, &format!(".{}.0.77", name(9)), 2);
        let arriving = make(&dir, &format!(".{}.0.78", name(9)), 0);
        let link = dir.join(name(10));
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        // This very program, under a name of its own.
        let running = dir.join(name(11));
        fs::hard_link(std::env::current_exe().unwrap(), &running).unwrap();
        let modified = running.metadata().unwrap().modified().unwrap();
        File::open(&running).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        prune(&dir);
        File::open(&running).unwrap().set_modified(modified).unwrap();
        let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
        assert!(young.iter().chain(&foreign).chain([&middle, &arriving, &link, &running]).all(exists));
        assert!(!old.iter().chain([&last, &unfinished]).any(exists));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_binary_that_is_of_use_stays_young() {
        let dir = scratch("refresh");
        let path = make(&dir, "agent", 40);
        refresh(&File::open(&path).unwrap());
        assert!(age(&path.metadata().unwrap(), SystemTime::now()) < FRESH);
        fs::remove_dir_all(&dir).unwrap();
    }
}
