//! The memory cgroup that a process is in, its limits, and how often the kernel killed for them (cgroups(7)).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How far below its limit a cgroup can be when an allocation fails: more than the largest one that the kernel kills for,
/// 8 pages of at most 64 KiB.
const NEAR: u64 = 1 << 20;

/// Which of the two interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    One,
    Two,
}

/// A memory cgroup, and those around it as far up as is visible from here.
#[derive(Debug)]
pub(super) struct Group {
    version: Version,
    /// The cgroup and its ancestors, innermost first.
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    dir: PathBuf,
    /// [`ooms`] when we first looked.
    ooms: Option<u64>,
}

impl Group {
    /// The memory cgroup of the calling process, if one is mounted that counts kills (Linux 4.13).
    pub(super) fn own() -> Option<Self> {
        let groups = fs::read("/proc/self/cgroup").ok()?;
        let mounts = fs::read("/proc/self/mountinfo").ok()?;
        let groups = candidates(&groups, &mounts);
        groups
            .into_iter()
            .map(|(version, dir, top)| Self::at(version, &dir, &top))
            .find(|group| group.kills().is_some())
    }

    /// The cgroup `dir`, and those that hold it up to `top`.
    pub(super) fn at(version: Version, dir: &Path, top: &Path) -> Self {
        let above = dir.ancestors().take_while(|level| level.starts_with(top));
        let levels = above.map(|level| Level { dir: level.to_owned(), ooms: ooms(version, level) });
        Self { version, levels: levels.collect() }
    }

    /// Which directory it is.
    #[cfg(test)]
    pub(super) fn place(self) -> (Version, PathBuf) {
        (self.version, self.levels[0].dir.clone())
    }

    /// How many of its processes the kernel has killed for lack of memory, its own limit's or the host's.
    pub(super) fn kills(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        field(&fs::read(self.levels.first()?.dir.join(file)).ok()?, b"oom_kill")
    }

    /// Whether its counter speaks for whatever the ranks did. Version 2 counts what is below too; version 1 does not, and
    /// a rank may have made a cgroup of its own below: a directory has a link for each directory in it.
    pub(super) fn is_conclusive(&self) -> bool {
        match (self.version, self.levels.first()) {
            (_, None) => false,
            (Version::Two, Some(_)) => true,
            (Version::One, Some(own)) => fs::metadata(&own.dir).is_ok_and(|meta| meta.nlink() <= 2),
        }
    }

    /// The limit that was met since we first looked: of the nearest cgroup with one. 0: none, so that it was the host that was full. A
    /// limit that we cannot see, outside of our container, counts as the host.
    pub(super) fn limit_met(&self) -> u64 {
        self.levels.iter().find_map(|level| limit_met(self.version, level)).unwrap_or(0)
    }
}

/// How often a version 2 cgroup's own limit left the kernel no choice but to kill (Linux 5.2; `memory.events` counts those
/// below too).
fn ooms(version: Version, dir: &Path) -> Option<u64> {
    match version {
        Version::One => None,
        Version::Two => field(&fs::read(dir.join("memory.events.local")).ok()?, b"oom"),
    }
}

/// The limit in bytes, if there is one that can have been met since a first look at [`ooms`].
fn limit_met(version: Version, level: &Level) -> Option<u64> {
    let read = |file: &str| number(&level.dir.join(file));
    // Version 1 shows "none" as the largest number of pages, in bytes.
    let limited = |file: &str| read(file).filter(|limit| *limit < 1 << 62);
    match version {
        Version::One => {
            // Only its peak shows whether a limit was ever met: memory.failcnt does not change since Linux 6.13 or so.
            let met = |limit: &u64, peak: &str| read(peak).is_none_or(|peak| peak.saturating_add(NEAR) > *limit);
            let memory = limited("memory.limit_in_bytes").filter(|limit| met(limit, "memory.max_usage_in_bytes"));
            // Memory and swap together.
            let both =
                limited("memory.memsw.limit_in_bytes").filter(|limit| met(limit, "memory.memsw.max_usage_in_bytes"));
            memory.into_iter().chain(both).min()
        }
        Version::Two => {
            let rose = level.ooms.is_none() || level.ooms != ooms(version, &level.dir);
            rose.then(|| limited("memory.max")).flatten()
        }
    }
}

/// A file that holds one number; "max" is none.
fn number(path: &Path) -> Option<u64> {
    digits(fs::read(path).ok()?.trim_ascii())
}

/// `name 12` on a line of its own.
pub(super) fn field(text: &[u8], name: &[u8]) -> Option<u64> {
    text.split(|b| *b == b'\n').find_map(|line| digits(line.strip_prefix(name)?.strip_prefix(b" ")?))
}

fn digits(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The possible places of the cgroup: version, directory, and the mount point above it. Version 1 first: where the controller is mounted
/// there, version 2 does not have it.
pub(super) fn candidates(groups: &[u8], mounts: &[u8]) -> Vec<(Version, PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for version in [Version::One, Version::Two] {
        let Some(path) = groups.split(|b| *b == b'\n').find_map(|line| member(line, version)) else { continue };
        for line in mounts.split(|b| *b == b'\n') {
            let Some((root, point)) = mount(line, version) else { continue };
            // A mount can show a part of the tree only: the container's, with the path still that of the host.
            let Ok(below) = Path::new(std::ffi::OsStr::from_bytes(path)).strip_prefix(&root) else { continue };
            let dir = if below.as_os_str().is_empty() { point.clone() } else { point.join(below) };
            found.push((version, dir, point));
        }
    }
    found
}

/// The path in a line of /proc/self/cgroup: `0::/path` or `4:cpu,memory:/path`.
fn member(line: &[u8], version: Version) -> Option<&[u8]> {
    let mut parts = line.splitn(3, |b| *b == b':');
    let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let is_it = match version {
        Version::One => has(controllers, b"memory"),
        Version::Two => id == b"0" && controllers.is_empty(),
    };
    is_it.then_some(path)
}

/// Root and mount point in a line of /proc/self/mountinfo, if it is the hierarchy with the memory controller:
/// `35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory` (`proc_pid_mountinfo(5)`).
fn mount(line: &[u8], version: Version) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.split(|b| *b == b' ');
    let (root, point) = (fields.nth(3)?, fields.next()?);
    let mut tail = fields.skip_while(|f| *f != b"-").skip(1);
    let (kind, _source, options) = (tail.next()?, tail.next()?, tail.next()?);
    let is_it = match version {
        Version::One => kind == b"cgroup" && has(options, b"memory"),
        Version::Two => kind == b"cgroup2",
    };
    is_it.then(|| (unescape(root), unescape(point)))
}

fn has(list: &[u8], name: &[u8]) -> bool {
    list.split(|b| *b == b',').any(|item| item == name)
}

/// mountinfo writes space, tab, newline and backslash as `\040` and the like.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let octal = (*byte == b'\\').then(|| after.get(..3)).flatten();
        let code = octal.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok());
        out.push(code.unwrap_or(*byte));
        rest = if code.is_some() { after.get(3..).unwrap_or(&[]) } else { after };
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(groups: &str, mounts: &str) -> Vec<(Version, String, String)> {
        let text = |p: PathBuf| p.to_string_lossy().into_owned();
        let found = candidates(groups.as_bytes(), mounts.as_bytes());
        found.into_iter().map(|(version, dir, top)| (version, text(dir), text(top))).collect()
    }

    #[test]
    fn finds_version_two() {
        let mounts = "23 22 0:5 / /sys rw - sysfs sysfs rw\n\
                      31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let at = |s: &str| s.to_owned();
        assert_eq!(
            places("0::/user.slice/a.scope\n", mounts),
            [(Version::Two, at("/sys/fs/cgroup/user.slice/a.scope"), at("/sys/fs/cgroup"))]
        );
        assert_eq!(places("0::/\n", mounts), [(Version::Two, at("/sys/fs/cgroup"), at("/sys/fs/cgroup"))]);
    }

    #[test]
    fn finds_version_one_before_an_empty_version_two() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = places("5:memory:/a/b\n1:cpu:/\n0::/\n", mounts);
        assert_eq!(found[0], (Version::One, "/sys/fs/cgroup/memory/a/b".into(), "/sys/fs/cgroup/memory".into()));
        assert_eq!(found[1].1, "/sys/fs/cgroup/unified");
    }

    #[test]
    fn a_mount_may_show_only_a_part() {
        let mounts = "35 31 0:32 /docker/x /sys/fs/cgroup/memory\\040here ro - cgroup cgroup rw,memory\n";
        let point = "/sys/fs/cgroup/memory here".to_owned();
        assert_eq!(places("4:memory:/docker/x\n", mounts), [(Version::One, point.clone(), point.clone())]);
        assert_eq!(places("4:memory:/docker/x/y\n", mounts), [(Version::One, format!("{point}/y"), point)]);
        assert_eq!(places("4:memory:/docker/xy\n", mounts), []);
        assert_eq!(places("", ""), []);
    }

    #[test]
    fn names_are_whole() {
        assert_eq!(field(b"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", b"oom_kill"), Some(7));
        assert_eq!(field(b"low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n", b"oom"), Some(2));
        assert_eq!(field(b"oom_kill x\n", b"oom_kill"), None);
        assert!(!has(b"rw,memory2", b"memory"));
    }

    #[test]
    fn unescapes_only_what_is_escaped() {
        assert_eq!(unescape(b"/a\\040b\\134c\\9"), Path::new("/a b\\c\\9"));
        assert_eq!(unescape(b"\\04"), Path::new("\\04"));
    }
}
