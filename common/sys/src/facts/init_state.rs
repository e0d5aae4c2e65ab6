//! Whether process 1 reaps those that are left to it. In many a container it is a program that does not.
//!
//! To wait for guardian and agent costs half a millisecond, a fifth of the shortest job: only where they would stay as zombies.

/// Whether process 1 can know that a process was left to it: it catches or blocks SIGCHLD (bits of `/proc/1/status`, proc(5)), or ignores
/// it, so that the kernel reaps (wait(2)). A process that only waits for children of its own, with none of these, leaves zombies.
#[must_use]
pub fn reaps() -> bool {
    std::fs::read_to_string("/proc/1/status").is_ok_and(|status| minds_children(&status))
}

fn minds_children(status: &str) -> bool {
    let bit = 1u64 << (libc::SIGCHLD - 1);
    status.lines().filter_map(|line| line.split_once(":\t")).any(|(name, set)| {
        matches!(name, "SigBlk" | "SigIgn" | "SigCgt") && u64::from_str_radix(set, 16).is_ok_and(|set| set & bit != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaping_init_is_known_by_its_signals() {
        let status = |blocked, ignored, caught| {
            format!("Name:\tx\nShdPnd:\t0000000000010000\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n")
        };
        let (none, other, chld) = ("0000000000000000", "fffffffe7ffeffff", "0000000000010000");
        assert!(!minds_children(&status(none, none, none)), "sleep");
        assert!(!minds_children(&status(none, other, other)));
        for of in 0..3 {
            let [blocked, ignored, caught] = [0, 1, 2].map(|at| if at == of { chld } else { none });
            assert!(minds_children(&status(blocked, ignored, caught)));
        }
        assert!(!minds_children("SigCgt:\tmany\n"));
    }
}
