//! Rounds in words: one line for each, and what the closing report has to say of them.

use super::Tone;
use super::report::Block;
use super::{launch, phrases, remark};
use rlaunch_base::id::{Rank, Round};
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_core::report::{Behind, Report, RoundLine};
use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::wire::to_root::{SpawnError, SpawnStep};
use rlaunch_restart::{AWAITED, EndReason, RoundNote, Step};

/// Most characters that a line repeats of what a rank has said.
const WORDS: usize = 160;

/// The least verbose tone in which a note is printed.
pub(crate) fn least(note: &RoundNote) -> Tone {
    match note {
        // That there are rounds is no news where nothing has happened.
        RoundNote::Began { faults, discarded, .. } if faults.is_empty() && discarded.is_empty() => Tone::Verbose,
        RoundNote::Began { .. } | RoundNote::NoRoundNeeded { .. } => Tone::Normal,
        RoundNote::Respawned { .. } | RoundNote::Remark(_) => Tone::Normal,
        RoundNote::Awaited { .. } => Tone::Normal,
        RoundNote::Refused { .. } => Tone::Quiet,
    }
}

/// A note about rounds. `host`: that of the rank that it is about first; empty: there is only one.
pub(crate) fn line(generation: u32, host: &OsBytes, note: &RoundNote, tone: Tone) -> String {
    match note {
        RoundNote::Began { round, faults, world_size, active_world_size, discarded, reserve: _, phases } => {
            let home = ranks_of(discarded);
            began(generation, *round, (faults, host), (*world_size, *active_world_size), &home, *phases, tone)
        }
        RoundNote::NoRoundNeeded { fault } => format!("{}; no restart is needed", fault_of(fault, host)),
        RoundNote::Respawned { round, initial, pid } => {
            format!("{}: rank {initial} is started again{} (pid {pid})", name(generation, *round), on(host))
        }
        RoundNote::Awaited { round, step, ranks } => awaited(generation, *round, *step, &ranks_of(ranks), host),
        RoundNote::Refused { text } => format!("no restart within processes: {}", Visible(text)),
        RoundNote::Remark(remark) => remark::line(remark),
    }
}

/// No other round is possible after this one.
pub(crate) fn given_up(generation: u32, round: Option<Round>, reason: &EndReason) -> String {
    let round = round.map_or_else(String::new, |round| format!(" after {}", name(generation, round)));
    format!("no further restart{round}: {}", Visible(reason.to_string().as_bytes()))
}

/// Line about awaited ranks: the missing step, and what to try.
fn awaited(generation: u32, round: Option<Round>, step: Step, ranks: &[Rank], host: &OsBytes) -> String {
    let (who, has) = (format!("{}{}", phrases::ranks(ranks), on(host)), if ranks.len() == 1 { "has" } else { "have" });
    let name = name(generation, round.unwrap_or(Round::new(0)));
    match step {
        Step::Register => format!(
            "{name}: the other ranks wait for {who}, which {has} not registered within {AWAITED}\n  try     call the wrapped function on every rank"
        ),
        Step::Yield => format!(
            "{name}: a planned restart waits for {who}, which {has} not pinged within {AWAITED}\n  try     ping between steps, or a shorter --yield-within"
        ),
        Step::Leave => {
            format!("{name}: the next restart waits for {who}, which {has} not left the function within {AWAITED}")
        }
    }
}

fn on(host: &OsBytes) -> String {
    if host.is_empty() { String::new() } else { format!(" on {}", Visible(host)) }
}

/// Another process of a rank could not be started.
pub(crate) fn unable(initial: Rank, host: &OsBytes, error: &SpawnError) -> String {
    let why = match error.step {
        SpawnStep::Gpus => "the host has too few GPUs for one more rank".into(),
        SpawnStep::Devices => format!("another process holds {}", Visible(&error.path)),
        SpawnStep::Exec | SpawnStep::ChangeDir => {
            format!("{} {}: {}", launch::step(error.step), Visible(&error.path), phrases::errno(error.errno))
        }
        _ => format!("{}: {}", launch::step(error.step), phrases::errno(error.errno)),
    };
    format!("rank {initial} could not be started again{}: {why}", on(host))
}

/// `restart 1`; after all ranks have been started again: `restart 1 of start 2`. The first round of a start has no number of its own.
fn name(generation: u32, round: Round) -> String {
    let start = u64::from(generation) + 1;
    match (generation, round.get()) {
        (0, 0) => "start".to_owned(),
        (0, _) => format!("restart {round}"),
        (_, 0) => format!("start {start}"),
        (_, _) => format!("restart {round} of start {start}"),
    }
}

fn began(
    generation: u32,
    round: Round,
    (faults, host): (&[Fault], &OsBytes),
    sizes: (u32, u32),
    home: &[Rank],
    phases: [Span; 3],
    tone: Tone,
) -> String {
    let name = name(generation, round);
    let home = if home.is_empty() { String::new() } else { format!("; {} discarded", phrases::ranks(home)) };
    let Some((first, more)) = Fault::first_of(faults) else {
        return format!("{name}: working with {}{home}", world(sizes));
    };
    let more = and_more(first, more - overdue(first, faults).count());
    let (lost, ended, back) = (lost(first, faults), ended(first, faults), back(first, faults));
    let [decided, out, assigned] = phases;
    let took = fine(decided + out + assigned);
    let phases = if tone >= Tone::Verbose {
        format!(" (decided in {}, all out in {}, assigned in {})", fine(decided), fine(out), fine(assigned))
    } else {
        String::new()
    };
    format!(
        "{name}: {}{more}; continuing with {} after {took}{lost}{ended}{back}{home}{phases}",
        fault_of(first, host),
        world(sizes),
    )
}

fn ranks_of(set: &RankSet) -> Vec<Rank> {
    set.ranges().flat_map(|(first, last)| first..=last).map(Rank::new).collect()
}

/// Ranks that do not continue, where the first fault does not show that and no other text does.
fn lost(first: &Fault, faults: &[Fault]) -> String {
    let named = Some(first.initial).filter(|_| first.kind.is_loss());
    let shown: RankSet = overdue(first, faults).map(|fault| fault.initial).chain(named).collect();
    let ranks = ranks_of(&Fault::lost_of(faults).without(&shown));
    if ranks.is_empty() {
        return String::new();
    }
    let too = if named.is_some() { " either" } else { "" };
    format!("; {} cannot continue{too}", phrases::ranks(&ranks))
}

/// Ranks that did not leave a round, though it was not named after that.
fn overdue<'a>(first: &'a Fault, faults: &'a [Fault]) -> impl Iterator<Item = &'a Fault> {
    faults.iter().filter(move |fault| matches!(fault.kind, FaultKind::Overdue(_)) && *fault != first)
}

/// A rank that was ended so that the others could continue, and the reason: the text of the first of them.
fn ended(first: &Fault, faults: &[Fault]) -> String {
    let ranks: Vec<Rank> = overdue(first, faults).map(|fault| fault.initial).collect();
    let Some(fault) = overdue(first, faults).next() else { return String::new() };
    let were = if ranks.len() == 1 { "was" } else { "were" };
    format!("; {} {were} killed ({})", phrases::ranks(&ranks), Visible(&fault.text))
}

/// Ranks that have come back in a round that is named after a failure.
fn back(first: &Fault, faults: &[Fault]) -> String {
    let joined = faults.iter().filter(|fault| fault.kind == FaultKind::Joined && !first.kind.is_planned());
    let ranks: Vec<Rank> = joined.map(|fault| fault.initial).collect();
    match ranks.len() {
        0 => String::new(),
        1 => format!("; {} has rejoined", phrases::ranks(&ranks)),
        _ => format!("; {} have rejoined", phrases::ranks(&ranks)),
    }
}

/// How many are alike besides.
fn and_more(first: &Fault, more: usize) -> String {
    let what = if first.kind.is_planned() { "more rank" } else { "more fault" };
    if more == 0 { String::new() } else { format!(" and {}", phrases::count(more as u64, what)) }
}

/// A span as exact as rounds are short.
fn fine(span: Span) -> String {
    let tenths = span.nanos() / 100_000;
    if tenths < 100 { format!("{}.{} ms", tenths / 10, tenths % 10) } else { span.to_string() }
}

/// `7 ranks`, `7 ranks (6 active)`
fn world((all, active): (u32, u32)) -> String {
    let ranks = phrases::count(all.into(), "rank");
    if active == all { ranks } else { format!("{ranks} ({active} active)") }
}

/// `rank 3 on node1: SIGKILL`
fn fault_of(fault: &Fault, host: &OsBytes) -> String {
    let on = if host.is_empty() { String::new() } else { format!(" on {host}") };
    format!("rank {}{on} {}", fault.initial, how(fault))
}

/// The fault of a rank, and its text.
fn how(fault: &Fault) -> String {
    let what = match fault.kind {
        FaultKind::Exception => "failed".to_owned(),
        FaultKind::Hang => "makes no progress".into(),
        FaultKind::Ended(Status::Lost) => "has disconnected".into(),
        FaultKind::Ended(status @ Status::Signaled { .. }) => format!("was killed ({status})"),
        FaultKind::Ended(status @ Status::Exited(_)) => format!("exited ({status})"),
        FaultKind::Overdue(status) => format!("did not leave the function and was killed ({status})"),
        FaultKind::Left(Leave::BaseException) => "left".into(),
        FaultKind::Left(Leave::Abort) => "asked for no restart".into(),
        FaultKind::Left(Leave::Unhealthy) => "is not healthy".into(),
        FaultKind::HostLost => "was lost with its host".into(),
        FaultKind::Warned => "is about to be preempted".into(),
        FaultKind::Joined => "has rejoined".into(),
    };
    let text = Visible(fault.text.split(|b| *b == b'\n').next().unwrap_or_default()).to_string();
    match text.char_indices().nth(WORDS) {
        _ if text.is_empty() => what,
        Some((cut, _)) => format!("{what} ({}...)", text.get(..cut).unwrap_or_default()),
        None => format!("{what} ({text})"),
    }
}

/// The lines of the closing report about rounds.
pub(crate) fn fields(block: &mut Block, report: &Report) {
    let rounds = &report.rounds;
    if rounds.count > 0 || !rounds.lost.is_empty() {
        let mut parts = vec![format!("{} within the processes", rounds.count)];
        let behind = report.left_behind();
        for (how, what) in
            [(Behind::Lost, "failed"), (Behind::Again, "failed, and started again"), (Behind::Discarded, "discarded")]
        {
            let ranks: Vec<Rank> = behind.iter().filter(|(_, of)| *of == how).map(|(rank, _)| *rank).collect();
            if !ranks.is_empty() {
                parts.push(format!("{} {what}", phrases::ranks(&ranks)));
            }
        }
        block.field("restarts", &parts.join("; "));
    }
    for RoundLine { round, fault, sizes, took } in &rounds.last {
        let why = match fault {
            Some((first, more)) => fault_of(first, &OsBytes::default()) + &and_more(first, *more),
            None => "planned".into(),
        };
        block.field("restart", &format!("{round}: {why}; continued with {} after {}", world(*sizes), fine(*took)));
    }
    if let Some((fault, reason)) = &rounds.given_up {
        let reason = reason.to_string();
        block.field("gave up", &format!("{}: {}", fault_of(fault, &OsBytes::default()), Visible(reason.as_bytes())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::log_view::LogView;
    use crate::view::notices::By;
    use rlaunch_base::id::NodeId;
    use rlaunch_base::signal::Signal;
    use rlaunch_base::time::WallNs;
    use rlaunch_core::events::{Record, Tried, What};
    use rlaunch_restart::RoundsEnd;

    fn fault(rank: u32, kind: FaultKind, text: &str) -> Fault {
        Fault { initial: Rank::new(rank), kind, text: text.into() }
    }

    fn round(round: u32, faults: Vec<Fault>, sizes: (u32, u32), home: &[u32]) -> Record {
        let note = RoundNote::Began {
            round: Round::new(round),
            faults,
            world_size: sizes.0,
            active_world_size: sizes.1,
            discarded: home.iter().copied().map(Rank::new).collect::<RankSet>(),
            reserve: RankSet::new(),
            phases: [Span::from_nanos(200_000), Span::from_millis(3), Span::ZERO],
        };
        record(1, None, What::Round { node: None, note: Box::new(note) })
    }

    fn record(generation: u32, round: Option<u32>, what: What) -> Record {
        Record { t: Span::ZERO, wall: WallNs(0), generation, round: round.map(Round::new), what }
    }

    fn said(record: &Record, tone: Tone) -> Option<String> {
        let names = ["node0", "node1"].map(str::to_owned);
        let text = LogView::new(names, tone, true).text(record, By::Sender);
        Some(text).filter(|text| !text.is_empty())
    }

    #[test]
    fn line_names_failed_rank_and_remaining_ranks() {
        let kill = FaultKind::Ended(Status::Signaled { sig: Signal::KILL, core: false });
        let first = round(1, vec![fault(3, kill, "")], (7, 7), &[]);
        assert_eq!(
            said(&first, Tone::Normal).unwrap(),
            "rlaunch: restart 1 of start 2: rank 3 was killed (SIGKILL); continuing with 7 ranks after 3.2 ms\n"
        );
        let two = vec![fault(0, FaultKind::Exception, "ValueError: \x1b[2J\nmore"), fault(1, kill, "")];
        let second = round(2, two, (5, 4), &[6]);
        assert_eq!(
            said(&second, Tone::Normal).unwrap(),
            "rlaunch: restart 2 of start 2: rank 0 failed (ValueError: \\u{1b}[2J) and 1 more fault; continuing with 5 ranks \
             (4 active) after 3.2 ms; rank 1 cannot continue; rank 6 discarded\n"
        );
        assert_eq!(said(&second, Tone::Quiet), None);
        let phases = " (decided in 0.2 ms, all out in 3.0 ms, assigned in 0.0 ms)\n";
        assert!(said(&second, Tone::Verbose).unwrap().ends_with(phases), "{second:?}");
        let late = |rank| {
            let term = Status::Signaled { sig: Signal::TERM, core: false };
            fault(rank, FaultKind::Overdue(term), "it has not come out of its function within 3s")
        };
        let faults = vec![fault(0, FaultKind::Hang, ""), late(0), late(2), fault(1, kill, "")];
        let line = said(&round(3, faults, (5, 5), &[]), Tone::Normal).unwrap();
        let wanted = "rlaunch: restart 3 of start 2: rank 0 makes no progress and 1 more fault; continuing with 5 ranks after 3.2 ms; \
             rank 1 cannot continue; ranks 0,2 were killed (it has not come out of its function within 3s)\n";
        assert_eq!(line, wanted);
        let joined = |rank| fault(rank, FaultKind::Joined, "");
        let third = said(&round(3, vec![joined(2), fault(3, kill, ""), joined(4)], (6, 6), &[]), Tone::Normal).unwrap();
        let wanted = "rlaunch: restart 3 of start 2: rank 3 was killed (SIGKILL); continuing with 6 ranks after 3.2 ms; ranks 2,4 have rejoined\n";
        assert_eq!(third, wanted);
        let fourth = said(&round(4, vec![joined(2), joined(4)], (6, 6), &[]), Tone::Normal).unwrap();
        assert!(
            fourth.ends_with(": rank 2 has rejoined and 1 more rank; continuing with 6 ranks after 3.2 ms\n"),
            "{fourth}"
        );
    }

    #[test]
    fn lost_ranks_are_named_if_several_failed() {
        let kill = FaultKind::Ended(Status::Signaled { sig: Signal::KILL, core: false });
        let line = |faults| {
            let line = said(&round(1, faults, (5, 5), &[]), Tone::Normal).unwrap();
            line.trim_end().strip_prefix("rlaunch: restart 1 of start 2: ").unwrap().replace(" after 3.2 ms", "")
        };
        let thrown = |rank| fault(rank, FaultKind::Exception, "");
        assert_eq!(line(vec![thrown(0), thrown(1)]), "rank 0 failed and 1 more fault; continuing with 5 ranks");
        assert_eq!(
            line(vec![fault(2, kill, ""), thrown(1)]),
            "rank 2 was killed (SIGKILL) and 1 more fault; continuing with 5 ranks"
        );
        assert_eq!(
            line(vec![thrown(0), fault(0, kill, "")]),
            "rank 0 failed and 1 more fault; continuing with 5 ranks; rank 0 cannot continue"
        );
        let host = |rank| fault(rank, FaultKind::HostLost, "");
        assert_eq!(
            line(vec![host(2), thrown(0), host(4), host(3)]),
            "rank 2 was lost with its host and 3 more faults; continuing with 5 ranks; ranks 3,4 cannot continue either"
        );
        let many = line((0..40).map(|n| host(n * 2)).collect());
        assert!(many.ends_with("; ranks 2,4,6,8,10,12,14,16,18,20,22,24 and 27 more cannot continue either"), "{many}");
    }

    #[test]
    fn the_first_round_is_no_news() {
        let first = round(0, vec![], (8, 8), &[]);
        assert_eq!(said(&first, Tone::Normal), None);
        assert_eq!(said(&first, Tone::Verbose).unwrap(), "rlaunch: start 2: working with 8 ranks\n");
        let home = round(0, vec![], (4, 4), &[4, 5]);
        assert_eq!(said(&home, Tone::Normal).unwrap(), "rlaunch: start 2: working with 4 ranks; ranks 4,5 discarded\n");
        assert_eq!(said(&home, Tone::Quiet), None);
    }

    #[test]
    fn end_of_rounds_is_reported() {
        let fault = fault(2, FaultKind::Hang, "");
        let over = What::RoundsOver(Box::new(RoundsEnd::Impossible { fault, reason: EndReason::NoHealthyRank }));
        assert_eq!(
            said(&record(0, Some(4), over), Tone::Quiet).unwrap(),
            "rlaunch: no further restart after restart 4: no healthy rank is left\n"
        );
        let node1 = Some(NodeId::new(1));
        let again = |node| {
            let note = Box::new(RoundNote::Respawned { round: Round::new(4), initial: Rank::new(2), pid: 77 });
            record(0, None, What::Round { node, note })
        };
        assert_eq!(said(&again(None), Tone::Normal).unwrap(), "rlaunch: restart 4: rank 2 is started again (pid 77)\n");
        let elsewhere = said(&again(node1), Tone::Normal).unwrap();
        assert_eq!(elsewhere, "rlaunch: restart 4: rank 2 is started again on node1 (pid 77)\n");
        let awaited = |step, ranks: &[u32], node| {
            let ranks = ranks.iter().copied().map(Rank::new).collect();
            let note = Box::new(RoundNote::Awaited { round: Some(Round::new(4)), step, ranks });
            said(&record(0, None, What::Round { node, note }), Tone::Normal).unwrap()
        };
        let line = awaited(Step::Leave, &[2], node1);
        let wanted = "rlaunch: restart 4: the next restart waits for rank 2 on node1, which has not left the function within 10.0s\n";
        assert_eq!(line, wanted);
        let line = awaited(Step::Yield, &[2, 3], None);
        let wanted =
            "rlaunch: restart 4: a planned restart waits for ranks 2,3, which have not pinged within 10.0s\n  try     ";
        assert!(line.starts_with(wanted), "{line}");
        let line = awaited(Step::Register, &[2], None);
        assert!(
            line.contains("the other ranks wait for rank 2, which has not registered within 10.0s\n  try     "),
            "{line}"
        );
        let unable = |step, path: &str| {
            let found = rlaunch_protocol::wire::to_root::Found::Nothing;
            let error = SpawnError { step, errno: 2, path: OsBytes::from(path), found };
            let tried = Tried::Again { several_hosts: true };
            let failed = What::RankFailed { rank: Rank::new(2), node: NodeId::new(1), error, tried };
            said(&record(0, None, failed), Tone::Quiet).unwrap()
        };
        let start = "rlaunch: rank 2 could not be started again on node1: ";
        let of = [
            (SpawnStep::Exec, "./a b"),
            (SpawnStep::Pipes, ""),
            (SpawnStep::Gpus, ""),
            (SpawnStep::Devices, "/dev/vfio/0"),
        ]
        .map(|(step, path)| unable(step, path));
        assert_eq!(
            of.map(|said| said.strip_prefix(start).map(str::to_owned).unwrap_or(said)),
            [
                "its program ./a b: no such file or directory\n",
                "pipes for its output: no such file or directory\n",
                "the host has too few GPUs for one more rank\n",
                "another process holds /dev/vfio/0\n"
            ]
        );
        let note = Box::new(RoundNote::Refused { text: "no healthy rank is left".into() });
        let refused = record(0, None, What::Round { node: None, note });
        assert!(said(&refused, Tone::Quiet).unwrap().starts_with("rlaunch: no restart within processes: "));
    }
}
