//! Lines of srun on stderr about tasks of a step that have exited.

use crate::hostlist::{self, Alone};
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// Most bytes of a line that is not complete.
const LONGEST: usize = 64 << 10;

/// A host, and the exit code of its task.
pub type TaskExit = (String, u8);

/// Finds lines about tasks that have exited.
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
        whole
            .split(|byte| *byte == b'\n')
            .filter_map(|line| exits(core::str::from_utf8(line).ok()?))
            .flatten()
            .collect()
    }
}

/// The exits that a line names: `srun: error: node[1-2]: tasks 1-2: Exited with exit code 2` (Slurm 22.05).
fn exits(line: &str) -> Option<Vec<TaskExit>> {
    let (hosts, rest) = line.strip_prefix("srun: error: ")?.split_once(": task")?;
    let (_, code) = rest.split_once(": Exited with exit code ")?;
    let code: u8 = code.trim().parse().ok()?;
    let hosts = hostlist::lists([("srun", hosts.as_bytes())], &mut Alone).ok()?;
    Some(hosts.into_iter().map(|entry| (entry.host.name.to_string(), code)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINES: &str = "srun: cluster configuration lacks support for cpu binding\n\
                         srun: error: node0: task 0: Exited with exit code 2\n\
                         slurmstepd-node0: error: execve(): /run/x/f: No such file or directory\n\
                         srun: error: node[1-2,4]: tasks 1-3: Exited with exit code 126\n\
                         srun: error: node3: task 9: Killed\n";

    fn of(text: &str, cut: usize) -> Vec<TaskExit> {
        let mut exits = TaskExits::default();
        text.as_bytes().chunks(cut).flat_map(|piece| exits.push(piece)).collect()
    }

    #[test]
    fn exits_are_found_by_host_however_the_lines_are_cut() {
        let expected =
            [("node0", 2), ("node1", 126), ("node2", 126), ("node4", 126)].map(|(host, code)| (host.to_string(), code));
        for cut in [1, 7, 4096] {
            assert_eq!(of(LINES, cut), expected, "{cut}");
        }
    }

    #[test]
    fn a_line_without_its_end_is_not_read() {
        assert_eq!(of(LINES.trim_end().strip_suffix(": Killed").unwrap(), 4096).len(), 4);
        assert_eq!(of("srun: error: n1: task 0: Exited with exit code 1", 9), []);
    }

    proptest! {
        #[test]
        fn never_panics(hosts in "[a-z0-9\\[\\],-]{0,20}", code in "[0-9a-z]{0,5}", cut in 1usize..50) {
            of(&alloc::format!("srun: error: {hosts}: task 1: Exited with exit code {code}\n"), cut);
        }
    }
}
