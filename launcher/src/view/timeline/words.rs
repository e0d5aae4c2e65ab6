//! Words for the contents of a log: causes, faults and phases in one line each.

use super::super::phrases::{self, count};
use rlaunch_core::timeline::{Fault, FaultEntry, Finish, HostFact, How, LostWord, Phase, Stretch, Timeline};

/// A moment or length of time: `1.2 ms`, `3.21 s`, `5m03s`, `2h07m`.
pub(crate) fn time(nanos: u64) -> String {
    let (ms, secs) = (nanos / 1_000_000, nanos / 1_000_000_000);
    match secs {
        0 if nanos == 0 => "0".into(),
        0 if ms < 100 => format!("{}.{} ms", ms, nanos / 100_000 % 10),
        0 => format!("{ms} ms"),
        1..100 => format!("{secs}.{:02} s", ms % 1_000 / 10),
        100..6_000 => format!("{}m{:02}s", secs / 60, secs % 60),
        _ => format!("{}h{:02}m", secs / 3_600, secs % 3_600 / 60),
    }
}

/// Name of a host.
pub(crate) fn host(timeline: &Timeline, node: u32) -> String {
    timeline.hosts.get(node as usize).cloned().unwrap_or_else(|| format!("host {node}"))
}

/// Programs of the job as a command line.
pub(crate) fn command(timeline: &Timeline) -> String {
    let words = timeline.programs.iter().map(|program| phrases::command(program.argv.iter().map(String::as_bytes)));
    words.collect::<Vec<_>>().join(" : ")
}

/// `4 ranks on 2 hosts`
pub(crate) fn size(timeline: &Timeline) -> String {
    let hosts = timeline.hosts.len();
    let ranks = count(timeline.world_size.into(), "rank");
    match timeline.hosts.first() {
        Some(host) if hosts == 1 => format!("{ranks} on {host}"),
        _ => format!("{ranks} on {}", count(hosts as u64, "host")),
    }
}

/// `was killed (SIGKILL)`, `failed (exit code 3)`
pub(crate) fn how(how: &How) -> String {
    match how {
        How { signal: Some(signal), .. } => format!("was killed ({signal})"),
        How { code: Some(code), .. } => format!("failed (exit code {code})"),
        How { .. } => "failed".into(),
    }
}

/// The end of a process.
pub(crate) fn finish(finish: &Finish) -> String {
    match finish {
        Finish::Continued => "continued".into(),
        Finish::Success => "exit code 0".into(),
        Finish::Failed(end) => how(end),
        Finish::Stopped(How { signal: Some(signal), .. }) => format!("ended by rlaunch ({signal})"),
        Finish::Stopped(How { code: Some(code), .. }) => format!("ended by rlaunch (exit code {code})"),
        Finish::Stopped(_) => "ended by rlaunch".into(),
        Finish::HostLost => "its host was lost".into(),
        Finish::Unknown => "its end is not in the log".into(),
    }
}

/// The mark of a rank.
pub(crate) fn mark(fault: &Fault) -> String {
    match fault {
        Fault::Failed(end) => how(end),
        Fault::NotStarted { step } => format!("could not be started ({step})"),
        Fault::InRound { kind, text } => in_round(kind, text),
    }
}

fn in_round(kind: &str, text: &str) -> String {
    let what = match kind {
        "exception" => "failed",
        "hang" => "makes no progress",
        "base_exception" => "left",
        "abort" => "asked for no restart",
        "unhealthy" => "is not healthy",
        "host_lost" => "was lost with its host",
        "warned" => "is about to be preempted",
        "joined" => "has rejoined",
        other => other,
    };
    let text = text.lines().next().unwrap_or_default();
    if text.is_empty() { what.to_owned() } else { format!("{what} ({text})") }
}

/// A fault in a round.
fn fault(entry: &FaultEntry) -> String {
    let end = How { code: entry.code, signal: entry.signal.clone() };
    let what = match entry.kind.as_str() {
        "ended" | "overdue" if entry.lost.is_some() => "has disconnected".to_owned(),
        "ended" => how(&end),
        "overdue" => format!("did not leave the function and {}", how(&end)),
        kind => in_round(kind, &entry.text),
    };
    match entry.rank {
        Some(rank) => format!("rank {rank} {what}"),
        None => what,
    }
}

/// Fact about a host, after its name.
pub(crate) fn host_fact(fact: &HostFact) -> String {
    match fact {
        HostFact::Lost(word) => match word.as_str() {
            "unheard" => "was lost: no heartbeat".to_owned(),
            "expired" => "was lost: its lease has expired".to_owned(),
            "starved" => "was lost: rlaunch itself was suspended".to_owned(),
            "warned" => "was taken away".to_owned(),
            "" => "was lost".to_owned(),
            part => format!("was lost: its {part} is gone"),
        },
        HostFact::Refused(why) => format!("cannot run the job ({why})"),
        HostFact::Failed(why) => format!("cannot be reached ({why})"),
        HostFact::Warned(source) => format!("is about to be taken away ({source})"),
    }
}

/// Cause of the job's end.
pub(crate) fn cause(timeline: &Timeline, cause: &FaultEntry) -> String {
    let end = How { code: cause.code, signal: cause.signal.clone() };
    let at = cause.node.map_or_else(|| "a host".into(), |node| host(timeline, node));
    let signal = cause.signal.as_deref().unwrap_or("a signal");
    match cause.kind.as_str() {
        "success" => "success".into(),
        "rank" => format!("rank {} {}", cause.rank.unwrap_or(0), how(&end)),
        "spawn" => format!("rank {} could not be started", cause.rank.unwrap_or(0)),
        "refused" => format!("{at} cannot run the job"),
        "unreachable" => format!("{at} cannot be reached"),
        "signal" => format!("ended by {signal}"),
        "scheduler" => format!("ended by the scheduler ({signal})"),
        "timeout" => "--timeout ran out".into(),
        "reader_closed" => "the reader of the output has closed it".into(),
        "lost" => match &cause.lost {
            Some(LostWord::Host(word)) => format!("{at} {}", host_fact(&HostFact::Lost(word.clone()))),
            Some(LostWord::Rank(_)) | None => format!("{at} was lost"),
        },
        "preempted" => format!("{at} was taken away"),
        _ => "the job ended".into(),
    }
}

/// Name of a phase, for its place in the picture.
pub(crate) fn name(stretch: &Stretch<Phase>) -> String {
    let name = match &stretch.what {
        Phase::Launch => return "launch".into(),
        Phase::Ending { .. } => return "ending".into(),
        Phase::Generation { number, .. } => format!("start {}", number.saturating_add(1)),
        Phase::Round { generation: 0, number, .. } => format!("restart {number}"),
        Phase::Round { generation, number, .. } => {
            format!("restart {number} of start {}", generation.saturating_add(1))
        }
    };
    if stretch.count > 1 { format!("{name} and {} more", stretch.count - 1) } else { name }
}

/// Number of a restart, where its name has no room.
pub(crate) fn number(stretch: &Stretch<Phase>) -> String {
    match &stretch.what {
        Phase::Launch | Phase::Ending { .. } => String::new(),
        Phase::Generation { number, .. } => number.saturating_add(1).to_string(),
        Phase::Round { number, .. } => number.to_string(),
    }
}

/// The course of a phase in a line.
pub(crate) fn phase(timeline: &Timeline, stretch: &Stretch<Phase>) -> String {
    let (name, took) = (name(stretch), time(stretch.to.saturating_sub(stretch.from)));
    match &stretch.what {
        Phase::Launch => format!("launch: {took}"),
        Phase::Ending { cause } => format!("ending: {}; {took}", self::cause(timeline, cause)),
        Phase::Generation { rank, node, how: end, is_host_lost, left, .. } => {
            let why = match (node.filter(|_| *is_host_lost), rank) {
                (Some(node), _) => format!("{} was lost", host(timeline, node)),
                (None, Some(rank)) => format!("rank {rank} {}", how(end)),
                (None, None) => "more slices were up".to_owned(),
            };
            let ranks = left.map_or_else(|| "all ranks".to_owned(), |left| count(left.into(), "rank"));
            format!("{name}: {why}; {ranks} started again after {took}")
        }
        Phase::Round { fault, more, world_size, active, .. } => {
            let why = fault.as_ref().map_or_else(|| "planned".to_owned(), self::fault);
            let alike = match fault.as_ref().map(|fault| fault.kind.as_str()) {
                Some("joined" | "warned") => "more rank",
                _ => "more fault",
            };
            let more = if *more == 0 { String::new() } else { format!(" and {}", count((*more).into(), alike)) };
            let ranks = count((*world_size).into(), "rank");
            let active = if active == world_size { String::new() } else { format!(" ({active} active)") };
            format!("{name}: {why}{more}; continued with {ranks}{active} after {took}")
        }
    }
}

/// The job's end in a line, and how far the log goes.
pub(crate) fn end(timeline: &Timeline) -> String {
    match &timeline.end {
        Some(end) => format!("{}; exit code {}", cause(timeline, &end.cause), end.exit),
        None => "the log ends before the job does".into(),
    }
}

/// Parts that the picture lacks; empty: none.
pub(crate) fn gaps(timeline: &Timeline) -> Vec<String> {
    let mut notes = Vec::new();
    if timeline.missing > 0 {
        notes.push(format!("{} are missing in the log", count(timeline.missing, "record")));
    }
    if timeline.hidden_rows > 0 {
        notes.push(format!("{} of ranks are not shown", count(timeline.hidden_rows, "start")));
    }
    if timeline.quantum > 0 {
        notes.push(format!("events within {} are shown as one", time(timeline.quantum)));
    }
    notes
}

/// Phases and facts about hosts by time: when, and what.
pub(crate) fn course(timeline: &Timeline) -> Vec<(u64, String)> {
    let phases = timeline.phases.iter().map(|stretch| (stretch.from, phase(timeline, stretch)));
    let hosts =
        timeline.host_marks.iter().map(|of| (of.at, format!("{} {}", host(timeline, of.node), host_fact(&of.what))));
    let mut course: Vec<(u64, String)> = phases.chain(hosts).collect();
    course.sort_by_key(|(at, _)| *at);
    course
}
