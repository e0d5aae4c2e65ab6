//! Messages about the slices of a job (`--slices`).

use super::log_view::{Line, Names};
use super::{Tone, host_messages, lost, phrases, report};
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_core::events::{Obstacle, SliceNews, SlicesTaken};
use rlaunch_core::report::Report;
use rlaunch_plan::discover::{DiscoverFault, Ignored, MOST, WITHIN};
use rlaunch_plan::hostlist::fold;

/// Most names of slices in a line.
const NAMED: usize = 8;

/// The line of a fact, and the least verbose tone in which it is printed.
pub(super) fn news(news: &SliceNews, names: &Names) -> Line {
    match news {
        SliceNews::Awaited { wanted, up, within } => awaited(*wanted, *up, *within),
        SliceNews::Missing { slice, node, why } => missing(slice, *node, why, names),
        SliceNews::Larger { size, running, restarts } => larger(*size, *running, *restarts),
        SliceNews::Found { slice, hosts, .. } => found(slice, hosts),
        SliceNews::Ignored { slice, why } => ignored(slice, *why),
        SliceNews::HostBack { node } => (Tone::Normal, format!("--discover prints {} again", names.short(*node))),
        SliceNews::DiscoverFailed { why } => undiscovered(why),
    }
}

/// Ranks start on these slices.
pub(super) fn taken(taken: &SlicesTaken) -> Line {
    let SlicesTaken { slices, spares, wanted_spares, .. } = taken;
    let count = phrases::count(slices.len() as u64, "slice");
    let spare = match (spares.as_slice(), *wanted_spares as usize) {
        ([], 0) => "no spare slice".to_owned(),
        (up, wanted) if up.len() < wanted => {
            format!("{} of {} up", up.len(), phrases::count(wanted as u64, "spare slice"))
        }
        (up, _) => format!("spare: {}", names(up)),
    };
    (Tone::Quiet, format!("ranks run on {count}: {} ({spare})", names(slices)))
}

fn names(slices: &[OsBytes]) -> String {
    let mut shown: Vec<String> = slices.iter().take(NAMED).map(OsBytes::to_string).collect();
    if slices.len() > NAMED {
        shown.push(format!("and {} more", slices.len() - NAMED));
    }
    shown.join(", ")
}

/// Slices are waited for.
fn awaited(wanted: u32, up: u32, within: Span) -> Line {
    let are = if up == 1 { "is" } else { "are" };
    let wanted = phrases::count(wanted.into(), "slice");
    (Tone::Quiet, format!("waiting up to {} for {wanted}: {up} {are} up", phrases::wait(within)))
}

/// More slices are up than the job runs on.
fn larger(size: u32, running: u32, restarts: bool) -> Line {
    let what = match restarts {
        false => format!("the next start of ranks takes {size}"),
        true => "all ranks are ended, to start on more".into(),
    };
    (Tone::Normal, format!("{size} slices are up, and the job runs on {running}; {what}"))
}

/// The command of `--discover` prints a new slice.
fn found(slice: &OsBytes, hosts: &[OsBytes]) -> Line {
    let all: Vec<String> = hosts.iter().map(OsBytes::to_string).collect();
    (Tone::Normal, format!("--discover prints the new slice {slice}: {}", fold(all.iter().map(String::as_str))))
}

/// The command of `--discover` prints a slice that cannot be used.
fn ignored(slice: &OsBytes, why: Ignored) -> Line {
    let why = match why {
        Ignored::Hosts { has, of } => {
            format!("it has {}, and the other slices have {of}", phrases::count(has.into(), "host"))
        }
        Ignored::Chips { has, of } => format!("its hosts have {has} chips, and those of the other slices have {of}"),
        Ignored::Name => "the job has a slice of this name with other hosts".into(),
        Ignored::NoSlot { most } => format!("the job has had {most} slices, and takes no more"),
    };
    (Tone::Quiet, format!("--discover prints slice {slice}, which is not used: {why}"))
}

/// The command of `--discover` prints no list of hosts.
fn undiscovered(why: &DiscoverFault) -> Line {
    let why = match why {
        DiscoverFault::Unstarted { errno } => format!("it cannot be started: {}", phrases::errno(*errno)),
        DiscoverFault::Failed(status) => format!("{status}"),
        DiscoverFault::Late => format!("it did not end within {}", phrases::wait(WITHIN)),
        DiscoverFault::TooMuch => format!("it printed more than {}", phrases::bytes(MOST as u64)),
        DiscoverFault::NoList { text } => text.to_string(),
    };
    (Tone::Quiet, format!("--discover gives no list of hosts, so the last list stays: {why}"))
}

/// A slice for the lack of which the job ends.
fn missing(slice: &OsBytes, node: NodeId, why: &Obstacle, names: &Names) -> Line {
    (Tone::Quiet, format!("slice {slice} is missing: {}", obstacle(names.report(), node, why)))
}

fn obstacle(all: &Report, node: NodeId, why: &Obstacle) -> String {
    let host = report::host(all, node);
    match why {
        Obstacle::Awaited => format!("{host} is still being reached"),
        Obstacle::Failed(why) if why.words.is_empty() => format!("{host}: {}", why.why),
        Obstacle::Failed(why) => format!("{host}: {} ({})", why.why, phrases::last_line(&why.words)),
        Obstacle::Refused(why) => host_messages::reason(all, &host, why),
        Obstacle::Lost(lost) => lost::on_host(all, node, *lost),
        Obstacle::Warned(source) => format!("{host} is about to be taken away: {source}"),
    }
}

/// The head of the report of a job that ended for the lack of slices.
pub(super) fn too_few(asked: &[u32], up: u32) -> String {
    let are = if up == 1 { "slice is" } else { "slices are" };
    let sizes: Vec<String> = asked.iter().map(u32::to_string).collect();
    format!("too few slices: {up} {are} up, and --slices asks for {}", sizes.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(slices: &[&str], spares: &[&str], wanted_spares: u32) -> String {
        let names = |all: &[&str]| all.iter().copied().map(OsBytes::from).collect();
        taken(&SlicesTaken {
            slices: names(slices),
            spares: names(spares),
            wanted_spares,
            world_size: 4,
            procs: vec![4],
            is_news: true,
        })
        .1
    }

    #[test]
    fn line_names_slices_and_spare_slices() {
        assert_eq!(line(&["a", "e"], &["b"], 1), "ranks run on 2 slices: a, e (spare: b)");
        assert_eq!(line(&["a"], &[], 0), "ranks run on 1 slice: a (no spare slice)");
        assert_eq!(line(&["a"], &["b"], 2), "ranks run on 1 slice: a (1 of 2 spare slices up)");
        let many: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(line(&many, &[], 0).contains("s7, and 12 more (no spare slice)"));
    }

    #[test]
    fn lack_of_slices_names_the_valid_numbers() {
        assert_eq!(too_few(&[2, 4], 1), "too few slices: 1 slice is up, and --slices asks for 2 or 4");
        assert_eq!(too_few(&[4], 0), "too few slices: 0 slices are up, and --slices asks for 4");
    }
}
