//! Lines on the stderr of srun about tasks that have exited (Slurm 22.05). A host on which srun cannot start our binary is known by them.

use crate::hostlist::{self, Alone};
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// Most bytes of a line that is not complete.
const LONGEST: usize = 64 << 10;

/// The exit of the task of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskExit {
    /// The host.
    pub host: String,
    /// The exit code.
    pub code: u8,
}

/// Finds lines about exits.
#[derive(Debug, Default)]
pub struct TaskExits {
    /// The begin of the next line.
    rest: Vec<u8>,
}

impl TaskExits {
    /// More bytes of stderr; returns the exits that their lines name.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<TaskExit> {
        self.rest.extend_from_slice(bytes);
        let end = memchr::memrchr(b'\n', &self.rest).map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        if self.rest.len() > LONGEST {
            self.rest.clear();
        }
        let lines = whole.split(|byte| *byte == b'\n').filter_map(|line| core::str::from_utf8(line).ok());
        lines.filter_map(exits).flatten().collect()
    }
}

/// The exits that a line names: `srun: error: node[1-2]: tasks 1-2: Exited with exit code 2`.
fn exits(line: &str) -> Option<Vec<TaskExit>> {
    let (hosts, rest) = line.strip_prefix("srun: error: ")?.split_once(": task")?;
    let code: u8 = rest.split_once(": Exited with exit code ")?.1.trim().parse().ok()?;
    let hosts = hostlist::lists([("srun", hosts.as_bytes())], &mut Alone).ok()?;
    Some(hosts.into_iter().map(|entry| TaskExit { host: entry.host.name.to_string(), code }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINES: &str = "srun: cluster configuration lacks support for cpu binding\n\
                         srun: error: node0: task 0: Exited with exit code 2\n\
                         slurmstepd-node0: error: execve(): /run/x/f: No such file or directory\n\
                         srun: error: node3: task 9: Killed\n\
                         srun: error: node[1-2,4]: tasks 1-3: Exited with exit code 126\n";

    fn of(text: &str, cut: usize) -> Vec<TaskExit> {
        let mut lines = TaskExits::default();
        text.as_bytes().chunks(cut).flat_map(|piece| lines.push(piece)).collect()
    }

    #[test]
    fn lines_are_found_however_they_are_cut() {
        let exit = |(host, code): (&str, u8)| TaskExit { host: host.to_string(), code };
        let expected = [("node0", 2), ("node1", 126), ("node2", 126), ("node4", 126)].map(exit);
        for cut in [1, 7, 4096] {
            assert_eq!(of(LINES, cut), expected, "{cut}");
        }
        assert_eq!(of(LINES.trim_end(), 4096).len(), 1, "a line without its end is not read");
    }

    proptest! {
        #[test]
        fn never_panics(hosts in "[a-z0-9\\[\\],-]{0,20}", code in "[0-9a-z]{0,5}", cut in 1usize..50) {
            of(&alloc::format!("srun: error: {hosts}: task 1: Exited with exit code {code}\n"), cut);
        }
    }
}
