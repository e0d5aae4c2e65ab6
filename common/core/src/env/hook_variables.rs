//! Variables for the commands of `--on-restart` and `--on-exit`; `core::hooks` gives the values.

use super::{Anew, Contract, Role, Var, lookup};

const fn var(name: &'static str, doc: &'static str) -> Var {
    Var { name, role: Role::Told, doc, anew: Anew::Never }
}

pub(super) const CONTRACT: Contract = Contract {
    title: "Commands at a restart and at the end",
    about: "What the commands of `--on-restart` and `--on-exit` are told ([rounds.md](rounds.md#commands)), besides RLAUNCH_JOB_ID. They have the \
            rest of the environment in which `rlaunch` was started, without what describes this one job: an `rlaunch` that they start \
            is another one.",
    vars: &[
        var("RLAUNCH_HOOK", "`restart` or `exit`."),
        var("RLAUNCH_HOOK_ACTIVE", "Ranks that work: now, or at the end."),
        var("RLAUNCH_HOOK_EXIT_CODE", "At the end: that of rlaunch, 128 and the number where it dies of a signal."),
        var("RLAUNCH_HOOK_GENERATION", "How often all ranks have been started again (`--max-restarts`)."),
        var(
            "RLAUNCH_HOOK_HOSTS",
            "The hosts of RLAUNCH_HOOK_RANKS, separated by commas; at the end also one that was lost or refused.",
        ),
        var(
            "RLAUNCH_HOOK_KIND",
            "Why: at a restart that of the first fault, at the end that of the job's cause, as in [events.md](events.md): `exception`, \
             `hang`, `ended`, …; `success`, `rank`, `signal`, ….",
        ),
        var("RLAUNCH_HOOK_LEFT", "At the end: processes of the job that are left; empty where nobody could count."),
        var("RLAUNCH_HOOK_LEVEL", "At a restart: `round` (in the same processes) or `generation` (other ones)."),
        var(
            "RLAUNCH_HOOK_RANKS",
            "The ranks that it is about, by their initial number: that of the first fault, and those that are lost: `3,7-9`; may be empty at the end.",
        ),
        var("RLAUNCH_HOOK_ROUND", "The round that has begun, or in which the job ended; empty where there is none."),
        var("RLAUNCH_HOOK_SKIPPED", "At a restart: others before it that no command was run for."),
        var(
            "RLAUNCH_HOOK_TEXT",
            "More about it, as the rank or the kernel says it: `ValueError: …`, `SIGKILL`; may be empty.",
        ),
        var("RLAUNCH_HOOK_WORLD", "Healthy ranks: now, or at the end."),
        var("RLAUNCH_HOOK_WORLD_BEFORE", "At a restart: those before it."),
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
