//! Processor time of a process and its descendants: `proc_pid_stat(5)`.

use std::fs;
use std::time::Duration;

/// Most processes that one look goes through.
const MOST: usize = 4096;

/// Processor time of a process, its descendants, and the children that they have reaped. A process that the kernel does not show has none.
#[must_use]
pub fn of(leader: i32) -> Duration {
    let (mut processes, mut ticks, mut looked) = (vec![leader], 0_u64, 0);
    while let Some(process) = processes.pop().filter(|_| looked < MOST) {
        looked += 1;
        ticks = ticks.saturating_add(fs::read(format!("/proc/{process}/stat")).map_or(0, |stat| used(&stat)));
        for thread in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            processes.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    let second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let second = second.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0).unwrap_or(100);
    Duration::from_millis(ticks.saturating_mul(1000) / second)
}

/// `utime`, `stime`, `cutime` and `cstime`: the 12th to 15th field after the name, which may contain anything.
fn used(stat: &[u8]) -> u64 {
    let name = stat.iter().rposition(|b| *b == b')').unwrap_or(0);
    let fields = String::from_utf8_lossy(stat.get(name..).unwrap_or_default()).into_owned();
    let times = fields.split_ascii_whitespace().skip(12).take(4);
    times.filter_map(|field| field.parse::<u64>().ok()).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a process that is looked at, not a rank")]

    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn times_are_read_after_any_name() {
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194560 9 8 7 6 11 22 33 44 20 0 1 0 100";
        assert_eq!(used(stat), 110);
        assert_eq!((used(b""), used(b"7 (a"), used(b"7 (a) S 1")), (0, 0, 0));
    }

    /// A shell that waits for a child of it, which computes.
    #[test]
    fn time_of_descendants_counts() {
        let script = "(while :; do :; done) & read line; kill $!";
        let mut shell = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        while of(pid) < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(of(pid), Duration::ZERO);
    }
}
