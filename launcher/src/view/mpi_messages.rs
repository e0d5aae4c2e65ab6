//! Messages about ranks of MPI programs.

use super::log_view::{Line, Names};
use super::{Tone, phrases};
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_core::report::{RankLine, Report};
use rlaunch_mpi::PATIENCE;
use rlaunch_protocol::wire::node_news::MpiNews;
use std::collections::{BTreeMap, BTreeSet};

/// Facts of which the user knows.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// By file and topic, how many times a help message of Open MPI came again.
    help: BTreeMap<(OsBytes, OsBytes), u32>,
    /// Ranks that ended in the middle of MPI: the number of restarts before, and the group.
    unfinished: BTreeSet<(usize, OsBytes)>,
    /// A rank waits for a name of MPI: those of other ranks are much the same.
    lookup_waits: bool,
}

impl Reported {
    /// Help messages that were sent again: lines before the end of the job.
    pub(super) fn repeated_help(&self, tone: Tone) -> String {
        let shown = self.help.iter().filter(|_| tone >= Tone::Normal);
        shown.map(|((file, topic), count)| help(*count, file, topic)).collect()
    }
}

/// The line of a fact, and the least verbose tone in which it is printed. `None`: only the log has it.
pub(super) fn news(node: NodeId, news: &MpiNews, names: &Names, reported: &mut Reported) -> Option<Line> {
    match news {
        MpiNews::Used { .. } | MpiNews::Loaded { .. } => None,
        MpiNews::Waits { waiting, missing, apart } => {
            Some((Tone::Normal, waits([waiting, missing, apart], |rank| names.has_exited(rank))))
        }
        MpiNews::LookupWaits { rank, name } => {
            let is_first = !std::mem::replace(&mut reported.lookup_waits, true);
            let tone = if is_first { Tone::Normal } else { Tone::Verbose };
            Some((tone, lookup_waits(*rank, name)))
        }
        MpiNews::Unfinished { rank, pid } => {
            let report = names.report();
            let found = unfinished_rank(report, node, *rank, *pid);
            let world = report.in_group(found).map_or(OsBytes::default(), |(group, _)| group.into());
            let is_first = reported.unfinished.insert((report.restarts.len(), world));
            is_first.then(|| (Tone::Quiet, unfinished(report, found)))
        }
        MpiNews::Help { count, file, topic } => {
            let all = reported.help.entry((file.clone(), topic.clone())).or_default();
            *all = all.saturating_add(*count);
            None
        }
    }
}

/// Ranks that wait in `MPI_Init` for ranks that have not come, and those of them that have another library: ranges of all.
fn waits(ranges: [&[(u32, u32)]; 3], has_exited: impl Fn(Rank) -> bool) -> String {
    let [waiting, missing, apart] = ranges.map(RankSet::of);
    let all = missing.ranges().flat_map(|(first, last)| first..=last).map(Rank::new);
    let exited: RankSet = all.filter(|rank| has_exited(*rank)).collect();
    let wait = if waiting.len() == 1 { "waits" } else { "wait" };
    let ended = match exited.len() {
        0 => String::new(),
        1 => format!("; {} has exited", ranks(&exited)),
        _ => format!("; {} have exited", ranks(&exited)),
    };
    let other = if apart.len() == 1 { "uses another" } else { "use another" };
    let (waiting, missing, after) = (ranks(&waiting), ranks(&missing), phrases::wait(PATIENCE));
    if apart.is_empty() {
        return format!(
            "{waiting} {wait} in MPI_Init for {missing} after {after}{ended}\n  try     MPI_Init in every rank, or fewer ranks"
        );
    }
    let apart = ranks(&apart);
    format!(
        "{waiting} {wait} in MPI_Init for {missing} after {after}{ended}; {apart} {other} MPI library\n  \
         try     one MPI library for all ranks"
    )
}

/// A rank has waited long for a name that no rank of the job has published.
fn lookup_waits(rank: Rank, name: &OsBytes) -> String {
    let after = phrases::wait(PATIENCE);
    format!(
        "rank {rank} waits for the port or name {name}: no rank of this job has published it after {after}\n  \
         try     MPICH or Intel MPI, or MPI_Comm_spawn, if another job has it: Open MPI connects no two jobs"
    )
}

/// `rank 3`, `ranks 0-2,5`.
fn ranks(set: &RankSet) -> String {
    if set.len() == 1 { format!("rank {set}") } else { format!("ranks {set}") }
}

/// A rank of the job that has exited with 0 in the middle of MPI. It has this number in its world, and ran on this host as this process.
fn unfinished_rank(report: &Report, node: NodeId, rank: Rank, pid: u32) -> Rank {
    let is_meant = |(found, line): &(Rank, &RankLine)| {
        let number = report.in_group(*found).map_or(*found, |(_, number)| number);
        number == rank && line.node == node && line.started.is_some_and(|(started, _)| started == pid)
    };
    report.ranks.with_ranks().find(is_meant).map_or(rank, |(found, _)| found)
}

/// The line about it.
fn unfinished(report: &Report, found: Rank) -> String {
    let rank = phrases::named_ranks(report, &[found]);
    format!(
        "{rank} exited after MPI_Init and before MPI_Finalize\n  try     MPI_Finalize in every rank; this counts as exit 1"
    )
}

/// Ranks have sent a help message of Open MPI again: a line.
fn help(count: u32, file: &OsBytes, topic: &OsBytes) -> String {
    let times = phrases::count(u64::from(count), "more time");
    format!("rlaunch: Open MPI sent the help message {file} / {topic} {times}\n")
}

/// The ranks of an MPI program were not connected.
pub(super) fn apart(ranks: u32, library: &OsBytes, is_served: bool) -> String {
    match is_served {
        true => format!(
            "the {ranks} ranks were {ranks} programs of one rank each: {library} has not asked rlaunch for the others\n  \
             try     nothing, if the program did not call MPI_Init\n  \
             try     no PMI_* or PMIX_* variables of yours, or another MPI library: docs/guides/mpi.md"
        ),
        false => format!(
            "the {ranks} ranks were {ranks} programs of one rank each: {library} finds no others with --mpi none\n  \
             try     leave --mpi none and RLAUNCH_MPI out"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_named_with_exited_ranks() {
        let text = waits([&[(0, 0)], &[(1, 3)], &[]], |rank| rank.get() == 2);
        let expected = "rank 0 waits in MPI_Init for ranks 1-3 after 30s; rank 2 has exited";
        assert_eq!(text.lines().next(), Some(expected));
        let text = waits([&[(0, 1)], &[(2, 2)], &[]], |_| false);
        assert_eq!(text.lines().next(), Some("ranks 0-1 wait in MPI_Init for rank 2 after 30s"));
        let text = waits([&[(0, 0)], &[(1, 2)], &[]], |_| true);
        assert!(text.contains("; ranks 1-2 have exited\n"), "{text}");
    }

    #[test]
    fn ranks_with_another_library_are_named() {
        let text = waits([&[(0, 0)], &[(1, 2)], &[(2, 2)]], |_| false);
        let expected = "rank 0 waits in MPI_Init for ranks 1-2 after 30s; rank 2 uses another MPI library\n  \
                        try     one MPI library for all ranks";
        assert_eq!(text, expected);
        let text = waits([&[(0, 0)], &[(1, 2)], &[(1, 2)]], |rank| rank.get() == 1);
        assert!(text.contains("; rank 1 has exited; ranks 1-2 use another MPI library\n"), "{text}");
    }
}
