//! Lines on the stderr of srun about its step: tasks that have exited, and the end of the step by Slurm (Slurm 22.05).

use crate::hostlist::{self, Alone};
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use serde::Serialize;

/// Most bytes of a line that is not complete.
const LONGEST: usize = 64 << 10;

/// The meaning of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepLine {
    /// The task of a host has exited with this code.
    Exited(String, u8),
    /// The task of a host was killed.
    Killed(String),
    /// Slurm ends all tasks of the step.
    Cancelled(StepEndReason),
}

/// Why Slurm ends a step, as srun prints it. slurmctld need not be there for that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEndReason {
    /// No reason is named: `scancel`, or srun was sent a signal.
    Cancelled,
    /// The time limit of the job.
    TimeLimit,
    /// A node of the job has failed.
    NodeFailure,
    /// The job returns to the queue.
    Requeue,
    /// A job of more weight takes the nodes.
    Preemption,
}

impl StepEndReason {
    /// The reason in a line that ends with `DUE TO JOB REQUEUE ***` or the like.
    fn of(line: &str) -> Self {
        let due = line.split_once(" DUE TO ").map_or("", |(_, due)| due);
        let known = [
            ("TIME LIMIT", Self::TimeLimit),
            ("NODE FAILURE", Self::NodeFailure),
            ("JOB REQUEUE", Self::Requeue),
            ("PREEMPTION", Self::Preemption),
        ];
        known.iter().find(|(words, _)| due.starts_with(words)).map_or(Self::Cancelled, |(_, reason)| *reason)
    }
}

/// Finds lines that have a meaning.
#[derive(Debug, Default)]
pub struct StepLines {
    /// The begin of the next line.
    rest: Vec<u8>,
}

impl StepLines {
    /// More bytes of stderr; returns the meaning of their lines.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<StepLine> {
        self.rest.extend_from_slice(bytes);
        let end = memchr::memrchr(b'\n', &self.rest).map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        if self.rest.len() > LONGEST {
            self.rest.clear();
        }
        let lines = whole.split(|byte| *byte == b'\n').filter_map(|line| core::str::from_utf8(line).ok());
        lines.flat_map(meaning).collect()
    }
}

fn meaning(line: &str) -> Vec<StepLine> {
    if is_cancelled(line) {
        [StepLine::Cancelled(StepEndReason::of(line))].into()
    } else {
        exits(line).unwrap_or_default()
    }
}

/// Whether a line is `slurmstepd-node0: error: *** STEP 2.0 ON node0 CANCELLED AT 2026-11-26T22:18:12 ***`, which one host of a step prints;
/// or the same about `JOB 2`.
fn is_cancelled(line: &str) -> bool {
    line.starts_with("slurmstepd")
        && [": *** STEP ", ": *** JOB "].iter().any(|begin| line.contains(begin))
        && line.contains(" CANCELLED AT ")
}

/// The end of the only task of an srun, by the last words of srun, which are lines in one.
#[must_use]
pub fn only_task_end(words: &[u8]) -> Option<StepLine> {
    let lines = words.split(|byte| *byte == b';').filter_map(|line| core::str::from_utf8(line).ok());
    let meanings: Vec<StepLine> = lines.flat_map(|line| meaning(line.trim())).collect();
    let cancelled = meanings.iter().find(|line| matches!(line, StepLine::Cancelled(_)));
    cancelled.or_else(|| meanings.last()).cloned()
}

/// The ends of tasks that a line names: `srun: error: node[1-2]: tasks 1-2: Exited with exit code 2`, or `: Killed`.
fn exits(line: &str) -> Option<Vec<StepLine>> {
    let (hosts, rest) = line.strip_prefix("srun: error: ")?.split_once(": task")?;
    let code: Option<u8> = match rest.split_once(": Exited with exit code ") {
        Some((_, code)) => Some(code.trim().parse().ok()?),
        None => rest.trim_end().ends_with(": Killed").then_some(None)?,
    };
    let hosts = hostlist::lists([("srun", hosts.as_bytes())], &mut Alone).ok()?;
    let end = |host: String| match code {
        Some(code) => StepLine::Exited(host, code),
        None => StepLine::Killed(host),
    };
    Some(hosts.into_iter().map(|entry| end(entry.host.name.to_string())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINES: &str = "srun: cluster configuration lacks support for cpu binding\n\
                         srun: error: node0: task 0: Exited with exit code 2\n\
                         slurmstepd-node0: error: execve(): /run/x/f: No such file or directory\n\
                         srun: error: node[1-2,4]: tasks 1-3: Exited with exit code 126\n\
                         slurmstepd-node1: error: *** STEP 2.0 ON node1 CANCELLED AT 2026-11-26T22:18:12 ***\n\
                         srun: error: node3: task 9: Killed\n";

    fn of(text: &str, cut: usize) -> Vec<StepLine> {
        let mut lines = StepLines::default();
        text.as_bytes().chunks(cut).flat_map(|piece| lines.push(piece)).collect()
    }

    #[test]
    fn end_of_a_step_or_job_by_slurm_is_known() {
        let by = "slurmstepd: error: *** JOB 7 ON node0 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***";
        assert!(is_cancelled(by));
        for (due, reason) in [
            ("", StepEndReason::Cancelled),
            (" DUE TO TIME LIMIT", StepEndReason::TimeLimit),
            (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", StepEndReason::NodeFailure),
            (" DUE TO JOB REQUEUE", StepEndReason::Requeue),
            (" DUE TO PREEMPTION", StepEndReason::Preemption),
            (" DUE TO WEATHER", StepEndReason::Cancelled),
        ] {
            let line =
                alloc::format!("slurmstepd-n1: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-26T22:18:12{due} ***");
            assert_eq!(meaning(&line), [StepLine::Cancelled(reason)], "{line}");
        }
        for other in [&by[12..], "slurmstepd: error: *** STEP 7.0 ON n0 FAILED (non-zero exit code) ***", ""] {
            assert!(!is_cancelled(other), "{other}");
        }
    }

    #[test]
    fn lines_are_found_however_they_are_cut() {
        let exited = |(host, code): (&str, u8)| StepLine::Exited(host.to_string(), code);
        let expected = [("node0", 2), ("node1", 126), ("node2", 126), ("node4", 126)].map(exited);
        let expected: Vec<StepLine> = expected
            .into_iter()
            .chain([StepLine::Cancelled(StepEndReason::Cancelled), StepLine::Killed("node3".to_string())])
            .collect();
        for cut in [1, 7, 4096] {
            assert_eq!(of(LINES, cut), expected, "{cut}");
        }
    }

    #[test]
    fn end_of_the_only_task_is_in_the_last_words_of_srun() {
        let killed = "srun: error: node3: task 0: Killed";
        let cancelled = "slurmstepd-node1: error: *** STEP 2.0 ON node1 CANCELLED AT 2026-11-26T22:18:12 ***";
        for (words, expected) in [
            (killed.to_string(), Some(StepLine::Killed("node3".to_string()))),
            (alloc::format!("a line; {killed}"), Some(StepLine::Killed("node3".to_string()))),
            (alloc::format!("{cancelled}; {killed}"), Some(StepLine::Cancelled(StepEndReason::Cancelled))),
            (alloc::format!("{killed}; {cancelled}"), Some(StepLine::Cancelled(StepEndReason::Cancelled))),
            ("srun: error: Node failure on node3".to_string(), None),
            (String::new(), None),
        ] {
            assert_eq!(only_task_end(words.as_bytes()), expected, "{words}");
        }
    }

    #[test]
    fn a_line_without_its_end_is_not_read() {
        assert_eq!(of(LINES.trim_end().strip_suffix(": Killed").unwrap(), 4096).len(), 5);
        assert_eq!(of("srun: error: n1: task 0: Exited with exit code 1", 9), []);
    }

    proptest! {
        #[test]
        fn never_panics(hosts in "[a-z0-9\\[\\],-]{0,20}", code in "[0-9a-z]{0,5}", cut in 1usize..50) {
            of(&alloc::format!("srun: error: {hosts}: task 1: Exited with exit code {code}\n"), cut);
        }
    }
}
