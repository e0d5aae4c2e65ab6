//! Small phrases that sentences and reports share.

use rlaunch_base::errno::{EAGAIN, EMFILE, ENOMEM};
use rlaunch_base::id::{Rank, Std};
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::shell::quoted;
use rlaunch_base::time::Span;
use rlaunch_core::report::Report;
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::travel::Resource;
use std::fmt::Write;

/// Longest command that is shown in full.
const COMMAND: usize = 300;
/// Most ranges of ranks that are listed.
const RANGES: usize = 12;

/// `rank 3`, `ranks 0,1,3`, `ranks 0-63`.
pub(crate) fn ranks(ranks: &[Rank]) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", folded(ranks))
}

/// `rank 3`, or `rank policy/3` where the job has groups.
pub(crate) fn rank(report: &Report, rank: Rank) -> String {
    match report.in_group(rank) {
        None => format!("rank {rank}"),
        Some((b"", number)) => format!("rank {number}"),
        Some((group, number)) => format!("rank {}/{number}", OsBytes::from(group)),
    }
}

/// `ranks 0-3`, or `ranks 0, policy/0-3` where the job has groups.
pub(crate) fn named_ranks(report: &Report, all: &[Rank]) -> String {
    let named: Option<Vec<(&[u8], Rank)>> = all.iter().map(|rank| report.in_group(*rank)).collect();
    named.map_or_else(|| ranks(all), |named| in_groups(&named))
}

/// The same by groups and numbers.
pub(crate) fn in_groups(all: &[(&[u8], Rank)]) -> String {
    let mut groups: Vec<(&[u8], Vec<Rank>)> = Vec::new();
    for (group, number) in all {
        match groups.iter_mut().find(|(known, _)| known == group) {
            Some((_, numbers)) => numbers.push(*number),
            None => groups.push((*group, vec![*number])),
        }
    }
    let name = |(group, numbers): &(&[u8], Vec<Rank>)| match group.is_empty() {
        true => folded(numbers),
        false => format!("{}/{}", OsBytes::from(*group), folded(numbers)),
    };
    let noun = if all.len() == 1 { "rank" } else { "ranks" };
    let shown = groups.iter().take(RANGES).map(name).collect::<Vec<_>>().join(", ");
    let rest: usize = groups.iter().skip(RANGES).map(|(_, numbers)| numbers.len()).sum();
    match groups.len().saturating_sub(RANGES) {
        0 => format!("{noun} {shown}"),
        more => format!("{noun} {shown} and {rest} more in {}", count(more as u64, "group")),
    }
}

/// `0,1,3`, or a dash for none.
pub(crate) fn some(ranks: &[Rank]) -> String {
    if ranks.is_empty() { "-".into() } else { folded(ranks) }
}

/// Ascending ranks with their runs folded; two neighbours stay two.
fn folded(ranks: &[Rank]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks.iter().map(|rank| rank.get()) {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let mut text = String::new();
    for (first, last) in runs.iter().take(RANGES) {
        let comma = if text.is_empty() { "" } else { "," };
        let _infallible = match last - first {
            0 => write!(text, "{comma}{first}"),
            1 => write!(text, "{comma}{first},{last}"),
            _ => write!(text, "{comma}{first}-{last}"),
        };
    }
    let rest: u32 = runs.iter().skip(RANGES).map(|(first, last)| last - first + 1).sum();
    if rest > 0 {
        let _infallible = write!(text, " and {rest} more");
    }
    text
}

/// A command as one could type it, cut where it becomes unreadable.
pub(crate) fn command<'a>(argv: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut text = String::new();
    for arg in argv {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&quoted(arg));
        if let Some((cut, _)) = text.char_indices().nth(COMMAND) {
            text.truncate(cut);
            text.push_str("...");
            break;
        }
    }
    text
}

/// The text of an errno, in words that fit after a colon.
pub(crate) fn errno(errno: i32) -> String {
    rlaunch_sys::reason(&std::io::Error::from_raw_os_error(errno))
}

/// The text of an error with which something of rlaunch's own was refused. A process or thread is refused with EAGAIN.
pub(crate) fn shortage(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(EAGAIN) => "the limit on processes is reached".into(),
        _ => rlaunch_sys::reason(error),
    }
}

/// The advice for a refused system call.
pub(crate) const NEWER_CONTAINER: &str = "a newer container runtime, or its option --security-opt seccomp=unconfined";

/// A system call that rlaunch needs and that is refused on this host.
pub(crate) fn refused_call() -> Option<String> {
    let (call, error) = rlaunch_sys::seccomp::refused()?;
    let why = rlaunch_sys::reason(&error);
    Some(format!("the system call {call} is refused ({why}), as old seccomp profiles of containers do"))
}

/// The advice for a limit that was met.
pub(crate) const fn way_out(errno: i32) -> Option<&'static str> {
    match errno {
        EMFILE => Some("a higher limit: ulimit -n"),
        EAGAIN => Some("a higher limit: ulimit -u, the cgroup's pids.max, kernel.pid_max"),
        ENOMEM => Some("more memory: a higher limit (ulimit -v, the cgroup's memory.max), or a larger host"),
        _ => None,
    }
}

/// The advice where the agent may have run out of memory: a limit on it, in bytes, that rlaunch itself may need.
pub(crate) fn more_memory(limit: Option<u64>) -> Option<String> {
    const NEEDED: u64 = 64 << 20;
    let limit = limit.filter(|limit| *limit < NEEDED)?;
    Some(format!("a higher limit on memory: ulimit -v (it is {})", bytes(limit)))
}

/// `512 MiB`, `1.5 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = UNITS.iter().find(|(shift, _)| n >> shift > 0) else { return format!("{n} bytes") };
    let tenths = (u128::from(n) * 10) >> shift;
    if tenths % 10 == 0 { format!("{} {unit}", tenths / 10) } else { format!("{}.{} {unit}", tenths / 10, tenths % 10) }
}

/// A limit in its unit.
pub(crate) fn limit(on: Resource, value: u64) -> String {
    match on {
        Resource::As | Resource::Core | Resource::Data | Resource::Fsize | Resource::Rss | Resource::Stack => {
            bytes(value)
        }
        Resource::Cpu => format!("{value} s"),
        Resource::Nofile | Resource::Nproc => value.to_string(),
    }
}

pub(crate) const fn std(std: Std) -> &'static str {
    match std {
        Std::In => "stdin",
        Std::Out => "stdout",
        Std::Err => "stderr",
    }
}

pub(crate) const fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::T1 => "t1",
        Tier::T3 => "t3",
    }
}

/// `4 ranks`, `1 rank`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `4 lines were`, `1 line was`.
pub(crate) fn count_was(n: u64, noun: &str) -> String {
    format!("{} {}", count(n, noun), if n == 1 { "was" } else { "were" })
}

/// A time that a user set or waits for: `5s`, not `5.0s`.
pub(crate) fn wait(span: Span) -> String {
    let text = span.to_string();
    text.strip_suffix(".0s").map_or(text.clone(), |whole| format!("{whole}s"))
}

/// The longest line of rlaunch's own words, in characters. Names and words of programs may be of any length.
const LONGEST: usize = 1_000;

/// Cuts each line of a text after [`LONGEST`] characters, and marks the cut.
pub(crate) fn short_lines(text: String) -> String {
    if text.len() <= LONGEST {
        return text;
    }
    let mut short = String::new();
    for line in text.split_inclusive('\n') {
        match line.trim_end_matches('\n').char_indices().nth(LONGEST) {
            Some((end, _)) => {
                short.push_str(line.get(..end).unwrap_or(line));
                short.push_str("...\n");
            }
            None => short.push_str(line),
        }
    }
    short
}

/// The last line of what a command has printed: the latest that it knows.
pub(crate) fn last_line(words: &OsBytes) -> Visible<'_> {
    Visible(words.trim_ascii_end().rsplit(|b| *b == b'\n').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_folded() {
        let show = |list: &[u32]| ranks(&list.iter().copied().map(Rank::new).collect::<Vec<_>>());
        assert_eq!(show(&[3]), "rank 3");
        assert_eq!(show(&[0, 1, 3]), "ranks 0,1,3");
        assert_eq!(show(&[0, 1, 2, 5, 7, 8, 9]), "ranks 0-2,5,7-9");
        let odd: Vec<u32> = (0..50).map(|n| 2 * n).collect();
        assert_eq!(show(&odd), "ranks 0,2,4,6,8,10,12,14,16,18,20,22 and 38 more");
    }

    #[test]
    fn many_groups_are_cut() {
        let names: Vec<String> = (0..15).map(|n| format!("world-{n}")).collect();
        let all: Vec<(&[u8], Rank)> =
            names.iter().flat_map(|name| [0, 1].map(|n| (name.as_bytes(), Rank::new(n)))).collect();
        let text = in_groups(&all);
        assert!(text.starts_with("ranks world-0/0,1, world-1/0,1, "), "{text}");
        assert!(text.ends_with(", world-11/0,1 and 6 more in 3 groups"), "{text}");
    }

    #[test]
    fn advice_names_the_limit_that_was_met() {
        let said = |errno| (shortage(&std::io::Error::from_raw_os_error(errno)), way_out(errno).unwrap_or_default());
        let (processes, how) = said(EAGAIN);
        assert_eq!(processes, "the limit on processes is reached");
        assert!(how.contains("ulimit -u") && how.contains("pids.max"), "{how}");
        let (memory, how) = said(ENOMEM);
        assert!(memory.contains("memory") && how.contains("ulimit -v"), "{memory}: {how}");
        assert_eq!(said(2).1, "");
        assert_eq!([more_memory(None), more_memory(Some(1 << 30))], [None, None]);
        assert!(more_memory(Some(5 << 20)).is_some_and(|hint| hint.ends_with("ulimit -v (it is 5 MiB)")));
    }

    #[test]
    fn commands_can_be_typed() {
        let argv = ["./train", "--name=a b", "it's", ""].map(str::as_bytes);
        assert_eq!(command(argv), r"./train '--name=a b' 'it'\''s' ''");
        assert_eq!(command(["x".repeat(400).as_bytes()]).chars().count(), COMMAND + 3);
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!([bytes(100), bytes(1 << 29), bytes(3 << 29)], ["100 bytes", "512 MiB", "1.5 GiB"]);
        assert_eq!(errno(28), "no space left on device");
    }
}
