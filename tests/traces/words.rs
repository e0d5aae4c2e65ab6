//! How steps and answers of a trace are written.

use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_protocol::wire::round::{RoundDown, RoundMember, RoundRendezvous};
use rlaunch_restart::{RestartAction, RoundNote, RoundsEnd};

/// `n1`
pub(crate) fn node(word: &str) -> Result<NodeId, String> {
    let number = word.strip_prefix('n').and_then(|number| number.parse().ok());
    number.map(NodeId::new).ok_or_else(|| format!("'{word}' is no node"))
}

/// `3`
pub(crate) fn rank(word: Option<&str>) -> Result<Rank, String> {
    let word = word.ok_or("a rank is missing")?;
    word.parse().map(Rank::new).map_err(|_| format!("'{word}' is no rank"))
}

/// `exit3`, or the number of a signal.
pub(crate) fn status(word: Option<&str>) -> Result<Status, String> {
    let word = word.ok_or("a status is missing")?;
    if let Some(code) = word.strip_prefix("exit") {
        return code.parse().map(Status::Exited).map_err(|_| format!("'{word}' is no exit"));
    }
    let sig = word.parse().ok().and_then(Signal::new).ok_or_else(|| format!("'{word}' is no signal"))?;
    Ok(Status::Signaled { sig, core: false })
}

fn fault(fault: &Fault) -> String {
    let words = if fault.text.is_empty() { String::new() } else { format!(" '{}'", fault.text) };
    format!("{} {}{words}", fault.initial, fault.kind)
}

fn faults(all: &[Fault]) -> String {
    let words: Vec<_> = all.iter().map(fault).collect();
    if words.is_empty() { "nothing".into() } else { words.join(", ") }
}

fn round_member(member: &RoundMember) -> String {
    let number = |rank: Option<Rank>| rank.map_or("-".into(), |rank| rank.to_string());
    format!("{}={}/{}", member.initial, number(member.rank), number(member.active))
}

fn place(place: &RoundRendezvous) -> String {
    let RoundRendezvous {
        addr,
        port,
        here,
        first,
        namespace,
        world_size,
        active_world_size,
        initial_world_size,
        nodes,
        node_index,
        fault,
        slurm,
    } = place;
    let index = node_index.map_or("-".into(), |index| index.to_string());
    let here = if *here { " here" } else { "" };
    let after = fault.as_ref().map_or(String::new(), |fault| format!(", after {}", self::fault(fault)));
    let slurm = slurm.as_ref().map_or(String::new(), |step| format!(", Slurm's {}:{}", step.hosts, step.tasks));
    let first = if first.get() == 0 { String::new() } else { format!(", counted from r{first}") };
    format!(
        "at {addr}:{port}{here}, space {namespace}, world {active_world_size}/{world_size}/{initial_world_size}, host {index}/{nodes}{first}{slurm}{after}"
    )
}

fn down(msg: &RoundDown) -> String {
    match msg {
        RoundDown::Interrupt { round, fault, within: None } => format!("interrupt r{round}: {}", self::fault(fault)),
        RoundDown::Interrupt { round, fault, within: Some(within) } => {
            format!("interrupt r{round} within {within}: {}", self::fault(fault))
        }
        RoundDown::Begin { round, place, members, last } => {
            let members: Vec<_> = members.iter().map(round_member).collect();
            let more = if *last { "" } else { " ..." };
            let members = if members.is_empty() { "nobody".into() } else { members.join(" ") };
            format!("begin r{round} {}: {members}{more}", self::place(place))
        }
        RoundDown::Finish { round, .. } => format!("finish r{round}"),
        RoundDown::End { ranks } => {
            let ranks: Vec<_> = ranks.iter().map(ToString::to_string).collect();
            format!("end {}", ranks.join(","))
        }
        RoundDown::Late { round, after } => format!("who is late in r{round}, after {after}?"),
        RoundDown::GiveUp { text } => format!("give up: {text}"),
        RoundDown::Refuse { ranks, text } if ranks.is_empty() => format!("refuse all: {text}"),
        RoundDown::Refuse { ranks, text } => {
            let ranks: Vec<_> = ranks.iter().map(ToString::to_string).collect();
            format!("refuse {}: {text}", ranks.join(","))
        }
    }
}

fn note(note: &RoundNote) -> String {
    match note {
        RoundNote::Began { round, faults, world_size, active_world_size, discarded, reserve: _, phases } => {
            let home = if discarded.is_empty() { String::new() } else { format!(", sent home {discarded}") };
            let [decided, drained, assigned] = phases;
            let ended = self::faults(faults);
            format!(
                "r{round} began, {active_world_size} of {world_size} work{home}; ended by {ended}; {decided}, {drained}, {assigned}"
            )
        }
        RoundNote::NoRoundNeeded { fault } => format!("no round for {}", self::fault(fault)),
        RoundNote::Respawned { round, initial, pid } => format!("{initial} is started again as {pid} in r{round}"),
        RoundNote::Awaited { step, ranks, .. } => format!("{ranks} are waited for ({step:?})"),
        RoundNote::Refused { text } => text.to_string(),
        RoundNote::Remark(remark) => format!("{remark:?}"),
    }
}

/// A line.
pub(crate) fn action(action: &RestartAction) -> String {
    match action {
        RestartAction::Send { node, msg } => format!("n{node} < {}", down(msg)),
        RestartAction::Opened => "opened".into(),
        RestartAction::Closed(RoundsEnd::Done) => "closed: done".into(),
        RestartAction::Closed(RoundsEnd::Impossible { fault, reason }) => {
            format!("closed: {}: {reason}", self::fault(fault))
        }
        RestartAction::Respawn { initial } => format!("respawn {initial}"),
        RestartAction::End { initial } => format!("end {initial}"),
        RestartAction::Note(note) => format!("note: {}", self::note(note)),
    }
}

/// The fault in a message of a rank, or of its agent: `exception`, `hang`, `overdue`, `base`, `abort` or `unhealthy`.
pub(crate) fn kind(word: &str) -> Option<FaultKind> {
    use rlaunch_protocol::rank_fault::Leave;
    Some(match word {
        "exception" => FaultKind::Exception,
        "hang" => FaultKind::Hang,
        "overdue" => FaultKind::Overdue(Status::Signaled { sig: Signal::new(9)?, core: false }),
        "base" => FaultKind::Left(Leave::BaseException),
        "abort" => FaultKind::Left(Leave::Abort),
        "unhealthy" => FaultKind::Left(Leave::Unhealthy),
        _ => return None,
    })
}
