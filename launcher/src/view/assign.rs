//! The effect of losses under a policy: `rlaunch assign`, for people and for programs.

use super::phrases;
use rlaunch_base::id::Rank;
use rlaunch_plan::rank_assign::{Mode, Policy, WorldMember};
use serde_json::json;

/// Up to so many ranks each has a line.
const FEW: usize = 64;

/// The fate of the ranks.
#[derive(Debug)]
pub(crate) struct RankFates {
    /// The whole policy.
    pub(crate) policy: Policy,
    /// The host of each initial rank, where hosts are known.
    pub(crate) hosts: Vec<Option<String>>,
    /// A note.
    pub(crate) note: Option<String>,
    /// The first is the start.
    pub(crate) rounds: Vec<Round>,
}

/// A round, all by initial rank and in their order.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) lost: Vec<Rank>,
    pub(crate) joined: Vec<Rank>,
    pub(crate) discarded: Vec<Rank>,
    pub(crate) size: u32,
    pub(crate) active: u32,
    pub(crate) members: Vec<WorldMember>,
}

/// A line for each round, then one for each rank.
pub(crate) fn text(fates: &RankFates, all: bool) -> String {
    let mut text = format!("{}\n\n{}", fates.policy, columns(&rounds(fates)));
    if let Some(note) = &fates.note {
        text.push_str(&format!("note: {note}\n"));
    }
    if fates.rounds.last().is_some_and(|round| round.size == 0) {
        text.push_str("note: no rank is left; a job ends here\n");
    }
    let members = fates.hosts.len();
    if members > FEW && !all {
        text.push_str(&format!("{} have a line each with --all-ranks\n", phrases::count(members as u64, "rank")));
        return text;
    }
    text.push('\n');
    text.push_str(&columns(&ranks(fates)));
    if fates.rounds.iter().flat_map(|round| &round.members).any(|member| member.rank != member.active_rank) {
        text.push_str(
            "\nIn brackets: the number among all healthy ranks, where it is not RANK. --lose means that one.\n",
        );
    }
    text
}

/// A line.
pub(crate) fn json(fates: &RankFates) -> String {
    let numbers = |ranks: &[Rank]| ranks.iter().map(|rank| rank.get()).collect::<Vec<_>>();
    let of = |round: &Round, number: fn(&WorldMember) -> Option<Rank>| {
        round.members.iter().map(|member| number(member).map(Rank::get)).collect::<Vec<_>>()
    };
    let to_json = |round: &Round| {
        json!({
            "lost": numbers(&round.lost),
            "joined": numbers(&round.joined),
            "discarded": numbers(&round.discarded),
            "world_size": round.size,
            "active_world_size": round.active,
            "rank": of(round, |member| member.rank),
            "active_rank": of(round, |member| member.active_rank),
        })
    };
    let rounds: Vec<_> = fates.rounds.iter().map(to_json).collect();
    format!("{}\n", json!({ "policy": fates.policy.to_string(), "rounds": rounds, "note": fates.note }))
}

fn rounds(fates: &RankFates) -> Vec<Vec<String>> {
    let titles = ["round", "lost", "back", "discarded", "healthy", "active", "reserve"];
    let line = |(at, round): (usize, &Round)| {
        let lists = [&round.lost, &round.joined, &round.discarded].map(|ranks| phrases::some(ranks));
        let counts = [round.size, round.active, round.size.saturating_sub(round.active)].map(|count| count.to_string());
        [at.to_string()].into_iter().chain(lists).chain(counts).collect()
    };
    let lines = fates.rounds.iter().enumerate().map(line);
    [titles.map(str::to_owned).to_vec()].into_iter().chain(lines).collect()
}

fn ranks(fates: &RankFates) -> Vec<Vec<String>> {
    let hosts = fates.hosts.iter().any(Option::is_some);
    let titles = (0..fates.rounds.len()).map(|at| format!("round {at}"));
    let titles = ["initial rank".to_owned()].into_iter().chain(hosts.then(|| "host".to_owned())).chain(titles);
    let line = |(initial, host): (usize, &Option<String>)| {
        let host = hosts.then(|| host.clone().unwrap_or_else(|| "?".into()));
        let cells = (0..fates.rounds.len()).map(|at| cell(fates, at, initial));
        [initial.to_string()].into_iter().chain(host).chain(cells).collect()
    };
    [titles.collect()].into_iter().chain(fates.hosts.iter().enumerate().map(line)).collect()
}

/// A rank in a round.
fn cell(fates: &RankFates, at: usize, initial: usize) -> String {
    let Some(round) = fates.rounds.get(at) else { return String::new() };
    let is = |ranks: &[Rank]| ranks.binary_search_by_key(&initial, |rank| rank.index()).is_ok();
    let Some(member) = round.members.get(initial) else { return "-".into() };
    let number = |rank: Option<Rank>| rank.map_or_else(|| "?".into(), |rank| rank.to_string());
    match member.mode {
        Mode::Active if member.active_rank == member.rank => number(member.rank),
        Mode::Active => format!("{} ({})", number(member.active_rank), number(member.rank)),
        Mode::Inactive => format!("reserve ({})", number(member.rank)),
        Mode::Initialized => "?".into(),
        Mode::Terminated if is(&round.discarded) => "discarded".into(),
        Mode::Terminated if is(&round.lost) => "lost".into(),
        Mode::Terminated => "-".into(),
    }
}

/// Lines in columns that are as wide as their widest word.
fn columns(lines: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        widths.resize(widths.len().max(line.len()), 0);
        for (width, word) in widths.iter_mut().zip(line) {
            *width = (*width).max(word.chars().count());
        }
    }
    let padded = |line: &Vec<String>| {
        let words: Vec<String> = line.iter().zip(&widths).map(|(word, width)| format!("{word:width$}")).collect();
        words.join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(padded).collect()
}
