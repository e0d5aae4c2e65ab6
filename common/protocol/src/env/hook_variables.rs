//! Variables for the commands of `--on-restart` and `--on-exit`; `rlaunch_core::hooks` gives the values.

use super::{Contract, Role, Var, lookup};

const fn var(name: &'static str, doc: &'static str) -> Var {
    Var::new(name, Role::ForHooks, doc)
}

pub(super) const CONTRACT: Contract = Contract {
    title: "Commands at a restart and at the end",
    about: "The commands of `--on-restart` and `--on-exit` get these variables and `RLAUNCH_JOB_ID` ([resilient \
            training](../guides/resilient-training.md)). The rest of their environment is that of `rlaunch`, without options \
            for this one job.",
    vars: &[
        var("RLAUNCH_HOOK", "`restart` or `exit`."),
        var("RLAUNCH_HOOK_ACTIVE", "Active ranks now, or at the end."),
        var(
            "RLAUNCH_HOOK_EXIT_CODE",
            "At the end: exit code of rlaunch; 128 + the signal if rlaunch dies of a signal.",
        ),
        var("RLAUNCH_HOOK_GENERATION", "Number of restarts of all ranks so far (`--max-restarts`)."),
        var(
            "RLAUNCH_HOOK_HOSTS",
            "Hosts of RLAUNCH_HOOK_RANKS with commas between them. At the end also a host that was lost or \
             refused.",
        ),
        var(
            "RLAUNCH_HOOK_KIND",
            "At a restart: kind of the first [fault](events.md#faults), as `hang`, or `grown` (more slices). At the end: kind of the \
             [cause](events.md#causes), as `rank`.",
        ),
        var("RLAUNCH_HOOK_LEFT", "At the end: number of processes of the job that remain; empty if unknown."),
        var("RLAUNCH_HOOK_LEVEL", "At a restart: `round` (same processes) or `generation` (new processes)."),
        var(
            "RLAUNCH_HOOK_RANKS",
            "Initial ranks of the first fault and of all losses, as `3,7-9`; may be empty at the end.",
        ),
        var("RLAUNCH_HOOK_ROUND", "The round that has begun, or in which the job ended; empty without rounds."),
        var("RLAUNCH_HOOK_SKIPPED", "At a restart: number of earlier restarts without a command of their own."),
        var(
            "RLAUNCH_HOOK_TEXT",
            "Error text of the rank or the kernel, as `ValueError: …` or `SIGKILL`; may be empty.",
        ),
        var("RLAUNCH_HOOK_WORLD", "Healthy ranks now, or at the end."),
        var("RLAUNCH_HOOK_WORLD_BEFORE", "At a restart: healthy ranks before it."),
    ],
    families: &[],
};

/// The caller's environment for a command.
pub fn of_command<'a>(caller: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    caller.filter(|entry| {
        let name = entry.split(|b| *b == b'=').next().unwrap_or_default();
        !(name.starts_with(b"RLAUNCH_") && lookup(name).is_some_and(|var| var.role.hides_callers()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_command_is_of_the_caller_and_not_of_the_job() {
        let caller: [&[u8]; 5] = [b"RANK=3", b"RLAUNCH_N=4", b"RLAUNCH_GRACE=2s", b"SLURM_PROCID=1", b"RLAUNCH_HOOK=x"];
        let left: Vec<&[u8]> = of_command(caller.into_iter()).collect();
        assert_eq!(left, [&b"RANK=3"[..], b"RLAUNCH_GRACE=2s", b"SLURM_PROCID=1"]);
    }
}
