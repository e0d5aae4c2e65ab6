//! Entries to the parsers of this crate, for `tests/fuzz` only: they read text that others have written.

use super::cgroup_memory;
use super::core_file::{self, Crash};

/// /proc/self/cgroup and /proc/self/mountinfo.
pub fn memory_cgroups(groups: &[u8], mounts: &[u8]) {
    let _found = cgroup_memory::candidates(groups, mounts);
}

/// A file of counters, and the name of one.
pub fn counter(text: &[u8], name: &[u8]) {
    let _found = cgroup_memory::field(text, name);
}

/// The kernel's pattern, and the name of a file where it leads.
pub fn core_file(pattern: &[u8], name: &[u8]) {
    let crash = Crash {
        pid: 4711,
        inside: Some(12),
        signal: 11,
        wdir: b"/nowhere",
        exe: b"./train",
        uid: 0,
        gid: 0,
        started: 1,
        ended: 2,
    };
    for uses_pid in [false, true] {
        let pieces = core_file::expand(pattern, uses_pid, &crash, b"host");
        if let Some((_, pieces)) = pieces.and_then(|pieces| core_file::split(&pieces)) {
            let _fits = core_file::matches(name, &pieces);
        }
    }
}

/// /proc/PID/stat and /proc/PID/status.
pub fn process(text: &[u8]) {
    let _name = crate::children::comm_and_state(text);
    let _pid = core_file::innermost(text);
}
