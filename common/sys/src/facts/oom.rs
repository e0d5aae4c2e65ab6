//! Whether the kernel killed a rank for lack of memory. It leaves no mark on the process, only counters that rise before
//! the victim is killed.

use super::cgroup_memory::{Group, field};
use std::fs;

/// Watches the kernel's counters of such kills from one moment on.
///
/// The counters are about a cgroup, not about a process. Each kill explains the end of one rank, the one that is examined first. If the
/// kernel killed one and another process killed another, it is a guess which of them it was. Therefore ask only about ranks that SIGKILL
/// ended and that we did not kill. A helper process of a rank counts as well: with one that was killed unnoticed before, a later SIGKILL
/// from elsewhere is taken for the kernel's.
///
/// Version 2 counts kills in the cgroups that ranks made below ours, version 1 does not. With version 1, and where no memory cgroup can be
/// seen, the counter of the whole host decides. That counter includes kills of other users' processes, and a limit that was met by a
/// cgroup below ours is not reported.
#[derive(Debug, Default)]
pub struct OomWatch {
    base: Option<Baseline>,
}

#[derive(Debug)]
struct Baseline {
    group: Option<Group>,
    group_kills: Counter,
    host_kills: Counter,
}

impl OomWatch {
    /// Watches nothing yet, and costs nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { base: None }
    }

    /// Begins to watch the memory cgroup that the calling process is in, and with it its ranks; a dozen small files are
    /// read. To be called once the ranks are started, as this is of no use to the launch. A rank that was killed before is
    /// not reported.
    pub fn baseline(&mut self) {
        self.begin(Group::own());
    }

    fn begin(&mut self, group: Option<Group>) {
        let group_kills = Counter::from(group.as_ref().and_then(Group::kills));
        self.base = Some(Baseline { group, group_kills, host_kills: Counter::from(host_kills()) });
    }

    /// Whether there was a kill that no earlier call returned, and the limit in bytes; `Some(0)`: no limit, the host was full. `None`
    /// before [`Self::baseline`].
    pub fn killed_since(&mut self) -> Option<u64> {
        let base = self.base.as_mut()?;
        if let Some(group) = &base.group {
            if base.group_kills.take(group.kills()) {
                // The host's counter has counted this kill too.
                base.host_kills.skip();
                return Some(group.limit_met());
            }
            if group.is_conclusive() {
                return None;
            }
        }
        base.host_kills.take(host_kills()).then_some(0)
    }
}

/// The part of a rising number that was reported.
#[derive(Clone, Copy, Debug)]
struct Counter(Option<u64>);

impl Counter {
    const fn from(now: Option<u64>) -> Self {
        Self(now)
    }

    /// Returns whether there is one more, and counts it as reported.
    fn take(&mut self, now: Option<u64>) -> bool {
        let rose = matches!((self.0, now), (Some(reported), Some(now)) if now > reported);
        if rose {
            self.skip();
        }
        rose
    }

    fn skip(&mut self) {
        self.0 = self.0.map(|reported| reported.saturating_add(1));
    }
}

/// Kills on the whole host, whatever for (Linux 4.13).
fn host_kills() -> Option<u64> {
    field(&fs::read("/proc/vmstat").ok()?, b"oom_kill")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a process that is to be killed, not a rank")]

    use super::super::cgroup_memory::Version;
    use super::*;
    use crate::facts::core_file::tests::Temp;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const MIB: u64 = 1 << 20;

    fn watching(group: Group) -> OomWatch {
        let mut watch = OomWatch::new();
        watch.begin(Some(group));
        watch
    }

    /// A directory that looks like a version 2 cgroup.
    fn write(dir: &Path, kills: u32, hits: u32, max: &str) {
        fs::create_dir_all(dir).unwrap();
        let events = |oom| format!("low 0\nhigh 0\nmax 3\noom {oom}\noom_kill {kills}\noom_group_kill 0\n");
        fs::write(dir.join("memory.events"), events(99)).unwrap();
        fs::write(dir.join("memory.events.local"), events(hits)).unwrap();
        fs::write(dir.join("memory.max"), format!("{max}\n")).unwrap();
    }

    #[test]
    fn each_kill_is_reported_once() {
        let temp = Temp::new();
        write(&temp.0, 5, 1, "1048576");
        let mut watch = watching(Group::at(Version::Two, &temp.0, &temp.0));
        assert_eq!(watch.killed_since(), None);
        write(&temp.0, 7, 2, "1048576");
        assert_eq!(watch.killed_since(), Some(MIB));
        assert_eq!(watch.killed_since(), Some(MIB));
        assert_eq!(watch.killed_since(), None);
    }

    #[test]
    fn the_limit_is_that_of_the_level_that_was_full() {
        let temp = Temp::new();
        let (slice, scope) = (temp.0.join("slice"), temp.0.join("slice/scope"));
        write(&temp.0, 0, 0, "max");
        write(&slice, 0, 0, "2097152");
        write(&scope, 0, 0, "1048576");
        let group = || Group::at(Version::Two, &scope, &temp.0);

        let mut watch = watching(group());
        write(&scope, 1, 0, "1048576");
        write(&slice, 1, 1, "2097152");
        assert_eq!(watch.killed_since(), Some(2 * MIB), "the slice was full, its scope was not");

        let mut watch = watching(group());
        write(&scope, 2, 0, "1048576");
        assert_eq!(watch.killed_since(), Some(0), "no limit was met: the host was full");

        let mut watch = watching(group());
        write(&scope, 3, 1, "max");
        assert_eq!(watch.killed_since(), Some(0), "no limit");
    }

    #[test]
    fn version_one_goes_by_the_peak() {
        let temp = Temp::new();
        let own = temp.0.join("own");
        fs::create_dir(&own).unwrap();
        let put = |dir: &Path, file: &str, n: u64| fs::write(dir.join(file), format!("{n}\n")).unwrap();
        let kills = |n| fs::write(own.join("memory.oom_control"), format!("under_oom 0\noom_kill {n}\n")).unwrap();
        kills(0);
        put(&temp.0, "memory.limit_in_bytes", 64 * MIB);
        put(&temp.0, "memory.max_usage_in_bytes", 64 * MIB - 4096);
        put(&own, "memory.limit_in_bytes", 32 * MIB);
        put(&own, "memory.max_usage_in_bytes", 8 * MIB);

        let mut watch = watching(Group::at(Version::One, &own, &temp.0));
        kills(1);
        assert_eq!(watch.killed_since(), Some(64 * MIB), "its own limit was never near");
        put(&own, "memory.memsw.limit_in_bytes", 48 * MIB);
        put(&own, "memory.memsw.max_usage_in_bytes", 48 * MIB);
        kills(3);
        assert_eq!(watch.killed_since(), Some(48 * MIB), "memory and swap together");
        put(&temp.0, "memory.limit_in_bytes", 9_223_372_036_854_771_712);
        put(&own, "memory.memsw.limit_in_bytes", 9_223_372_036_854_771_712);
        assert_eq!(watch.killed_since(), Some(0), "the host was full");
    }

    #[test]
    fn nothing_is_reported_without_a_baseline() {
        assert_eq!(OomWatch::new().killed_since(), None);
        let mut watch = OomWatch::new();
        watch.baseline();
        assert!(!Counter::from(None).take(Some(3)));
    }

    #[test]
    fn removed_group_reports_nothing() {
        let temp = Temp::new();
        write(&temp.0, 5, 1, "1048576");
        let mut watch = watching(Group::at(Version::Two, &temp.0, &temp.0));
        fs::remove_file(temp.0.join("memory.events")).unwrap();
        assert_eq!(watch.killed_since(), None);
    }

    /// A real cgroup, removed when it goes.
    struct Real(Version, PathBuf);

    impl Drop for Real {
        fn drop(&mut self) {
            for _ in 0..100 {
                if fs::remove_dir(&self.1).is_ok() {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            println!("{} could not be removed", self.1.display());
        }
    }

    impl Real {
        /// A cgroup with a limit of 8 MiB, beside ours or below.
        fn new(name: &str) -> Result<Self, String> {
            let (version, own) = Group::own().map(Group::place).ok_or("no memory cgroup")?;
            let dir = own.join(format!("{name}-{}", std::process::id()));
            fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            let real = Self(version, dir);
            let (limit, swap) = match version {
                Version::One => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
                Version::Two => ("memory.max", "memory.swap.max"),
            };
            fs::write(real.1.join(limit), "8388608").map_err(|e| format!("{limit}: {e}"))?;
            if real.1.join(swap).exists() {
                let most = if version == Version::One { "8388608" } else { "0" };
                fs::write(real.1.join(swap), most).map_err(|e| format!("{swap}: {e}"))?;
            }
            Ok(real)
        }

        /// Runs a shell in it, and says which signal ended that.
        fn run(&self, script: &str) -> Option<i32> {
            let procs = self.1.join("cgroup.procs");
            let mut shell = Command::new("sh");
            shell.args(["-c", "echo $$ > \"$0\" && eval \"$1\""]).arg(&procs).arg(script);
            shell.process_group(0).status().unwrap().signal()
        }
    }

    /// Keeps all of what it reads in memory: there is no end of line.
    const EAT: &str = "exec tail /dev/zero";

    #[test]
    fn real_kill_is_reported() {
        let real = match Real::new("rlaunch-oom") {
            Ok(real) => real,
            Err(why) => return println!("absent: {why}"),
        };
        let mut watch = watching(Group::at(real.0, &real.1, real.1.parent().unwrap()));
        assert_eq!(real.run("exit 0"), None);
        assert_eq!(watch.killed_since(), None);
        assert_eq!(real.run(EAT), Some(libc::SIGKILL));
        assert_eq!(watch.killed_since(), Some(8 * MIB));
        assert_eq!(watch.killed_since(), None);
        assert_eq!(real.run("kill -KILL $$"), Some(libc::SIGKILL));
        assert_eq!(watch.killed_since(), None, "the kernel had nothing to do with it");
    }

    /// The watch of the cgroup around it sees the kill: by its own counter in version 2, by the host's in version 1.
    #[test]
    fn real_kill_in_a_cgroup_below_is_reported() {
        let real = match Real::new("rlaunch-oom-below") {
            Ok(real) => real,
            Err(why) => return println!("absent: {why}"),
        };
        let mut watch = OomWatch::new();
        watch.baseline();
        assert_eq!(real.run(EAT), Some(libc::SIGKILL));
        assert_eq!(watch.killed_since(), Some(0));
    }
}
