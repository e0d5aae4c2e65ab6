//! Remarks about rounds in words: a line each, and one with the way out where there is one.

use rlaunch_base::backoff::QUICK;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::rank_set::RankSet;
use rlaunch_restart::detect::UNKILLABLE;
use rlaunch_restart::remark::{FaultLimit, Override, Remark, Unused};
use rlaunch_restart::terms::shown;

/// The way out where one rank fails again and again.
const TRY_FAULTS: &str = "\n  try     --max-rank-faults, to continue without it";

pub(crate) fn line(remark: &Remark) -> String {
    match remark {
        Remark::Overrides { options } => {
            let options: Vec<String> = options.iter().map(wins).collect();
            format!("the command line wins: {}", options.join(", "))
        }
        Remark::OptionsUnused { options, when, ranks } => unused(options, *when, *ranks),
        Remark::FaultWindow { initial, kind, window } => {
            format!("initial rank {initial} ({kind}): more faults within {window} join this restart (--fault-window)")
        }
        Remark::Ended { initial, reason } => format!("initial rank {initial} is killed: {}", Visible(reason)),
        Remark::MoreEnded => "more ranks are killed for the same reason".to_owned(),
        Remark::Paused { pause } => {
            format!("the last restarts failed within {QUICK} each: the next one begins in {pause} (--give-up-after)")
        }
        Remark::Repeats { initial, rounds } => {
            format!("initial rank {initial} has caused the last {rounds} restarts{TRY_FAULTS}")
        }
        Remark::Excluded { initial, faults, limit } => {
            format!("initial rank {initial} is excluded after {}", fault_note(*faults, *limit))
        }
        Remark::NotRestarted { initial, faults, limit } => {
            format!("initial rank {initial} is not started again after {}", fault_note(*faults, *limit))
        }
        Remark::StartsFailed { initial, tries } => format!(
            "initial rank {initial} is not started again: its last {tries} processes failed to start or exited within {QUICK}"
        ),
        Remark::StartDelayed { initial, exits, pause } => format!(
            "the last {exits} processes of initial rank {initial} exited within {QUICK} each: the next one starts in {pause}{TRY_FAULTS}"
        ),
        Remark::ExitedEarly { initial, status } => {
            format!("the new process of initial rank {initial} exited ({status}) before it registered")
        }
        Remark::FailedEarly { initial, kind } => {
            format!("the new process of initial rank {initial} failed ({kind}) before its first round")
        }
        Remark::RegisteredLate { initial, within } => format!(
            "the new process of initial rank {initial} has not registered within {within} (--respawn-timeout) and is killed\n  \
             try     a longer --respawn-timeout, or no wait for other ranks before the wrapped function"
        ),
        Remark::Stuck { initial, host } => stuck(*initial, host),
        Remark::NoRoom { ranks, hosts, lacks_gpus } => no_room(ranks, hosts, *lacks_gpus),
        Remark::WaitsForRound { initial } => {
            format!("initial rank {initial} has rejoined and waits for the next restart")
        }
        Remark::Unusable { ranks, reason } => {
            let (rank, wait) = if ranks.len() == 1 { ("rank", "waits") } else { ("ranks", "wait") };
            format!("initial {rank} {ranks} {wait} for other ranks to join or fail: {}", Visible(reason))
        }
        Remark::Unchanged { reason } => {
            format!("all ranks continue as before after the planned restart: {}", Visible(reason))
        }
        Remark::KeepsWarned { reason } => {
            format!("ranks that are about to be preempted continue until then: without them {}", Visible(reason))
        }
        Remark::Misplaced(misplaced) => misplaced.to_string(),
        Remark::NoPort { host } => {
            format!("{} has no free port for the rendezvous of this round: MASTER_PORT is 0", Visible(host))
        }
    }
}

fn stuck(initial: Rank, host: &OsBytes) -> String {
    let on = if host.is_empty() { String::new() } else { format!(" on {}", Visible(host)) };
    format!(
        "the process of initial rank {initial}{on} still exists {UNKILLABLE} after SIGKILL; the others continue without it\n  \
         try     a look at its devices and file systems: one of them does not answer"
    )
}

fn wins(option: &Override) -> String {
    match option {
        Override::Policy { option, program } => {
            let program = program.as_ref().map_or_else(|| "another one".to_owned(), |own| shown(own));
            format!("the policy {} (the program: {program})", Visible(option))
        }
        Override::Limit { name, option, program } => format!("--{name} {option} (the program: {program})"),
    }
}

fn unused(options: &OsBytes, when: Unused, ranks: u32) -> String {
    let when = match when {
        Unused::Exited(rank) => format!("rank {rank} has exited and no rank has registered with the rlaunch client"),
        Unused::Within(within) => format!("no rank has registered with the rlaunch client within {within}"),
    };
    let ranks = match ranks {
        1 => "the rank is active".to_owned(),
        ranks => format!("all {ranks} ranks are active"),
    };
    format!(
        "{} without effect: {when}; {ranks}\n  try     wrap the training function (docs/guides/resilient-training.md)",
        Visible(options)
    )
}

/// Faults of a rank, and the limit on them where it was set.
fn fault_note(faults: u32, FaultLimit { most, is_option }: FaultLimit) -> String {
    let times = if faults == 1 { "1 fault".to_owned() } else { format!("{faults} faults") };
    let limit = if is_option { "--max-rank-faults" } else { "the program's max_rank_faults" };
    format!("{times} of its own ({limit} {most})")
}

fn no_room(ranks: &RankSet, hosts: &OsBytes, lacks_gpus: bool) -> String {
    let (rank, are) = if ranks.len() == 1 { ("rank", "is") } else { ("ranks", "are") };
    let what = if lacks_gpus { "a free slot, and GPUs for it" } else { "a free slot" };
    format!(
        "initial {rank} {ranks} of {} {are} not started again: no remaining host has {what}\n  try     more hosts for --spare-hosts, or more slots",
        Visible(hosts)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::id::Rank;
    use rlaunch_base::time::Span;

    #[test]
    fn limits_are_named_with_the_place_where_set() {
        let excluded = |faults, is_option| {
            let limit = FaultLimit { most: 2, is_option };
            line(&Remark::Excluded { initial: Rank::new(3), faults, limit })
        };
        assert_eq!(excluded(1, true), "initial rank 3 is excluded after 1 fault of its own (--max-rank-faults 2)");
        let program = "initial rank 3 is excluded after 3 faults of its own (the program's max_rank_faults 2)";
        assert_eq!(excluded(3, false), program);
    }

    #[test]
    fn options_that_win_are_listed_with_settings_of_the_program() {
        let options = vec![
            Override::Policy { option: "all,shift".into(), program: Some("all,fill".into()) },
            Override::Policy { option: "tree".into(), program: None },
            Override::Limit { name: "min-world", option: 2, program: 3 },
        ];
        let wanted = "the command line wins: the policy all,shift (the program: all,fill), the policy tree (the program: another one), --min-world 2 (the program: 3)";
        assert_eq!(line(&Remark::Overrides { options }), wanted);
    }

    #[test]
    fn unused_options_are_named_with_the_reason() {
        let unused = |when, ranks| line(&Remark::OptionsUnused { options: "--spares 1".into(), when, ranks });
        assert_eq!(
            unused(Unused::Exited(Rank::new(1)), 3),
            "--spares 1 without effect: rank 1 has exited and no rank has registered with the rlaunch client; all 3 ranks are active\n  \
             try     wrap the training function (docs/guides/resilient-training.md)"
        );
        let late = unused(Unused::Within(Span::from_secs(60)), 1);
        assert!(
            late.starts_with("--spares 1 without effect: no rank has registered with the rlaunch client within"),
            "{late}"
        );
        assert!(late.contains("; the rank is active"), "{late}");
    }

    #[test]
    fn ranks_without_room_are_listed() {
        let ranks = |ranks: &[u32]| ranks.iter().copied().map(Rank::new).collect();
        let one = line(&Remark::NoRoom { ranks: ranks(&[2]), hosts: "b".into(), lacks_gpus: false });
        assert!(
            one.starts_with("initial rank 2 of b is not started again: no remaining host has a free slot"),
            "{one}"
        );
        let two = line(&Remark::NoRoom { ranks: ranks(&[2, 3]), hosts: "b".into(), lacks_gpus: true });
        assert!(two.contains("ranks 2-3 of b are not started again") && two.contains("and GPUs for it"), "{two}");
        let new = line(&Remark::Unusable { ranks: ranks(&[1]), reason: "no group is whole".into() });
        assert_eq!(new, "initial rank 1 waits for other ranks to join or fail: no group is whole");
    }
}
