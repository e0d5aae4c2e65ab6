//! Words about pools, for people and for programs.

use super::pool_directory::{self, Elsewhere, PoolDirectory};
use crate::view::phrases;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::pool::SliceState;
use rlaunch_protocol::wire::frozen::pool::{Holder, HostReport, HostWord, Refusal, Report, SliceReport, Slices};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Most jobs and hosts in a line.
const NAMED: usize = 4;
/// Longest command in a line.
const LONGEST: usize = 40;

fn command(command: &OsBytes) -> String {
    let text = command.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// Jobs that have hosts, and the number of those that wait.
pub(super) fn holders(holders: &[Holder], waiting: u32) -> String {
    let describe = |holder: &Holder| {
        let hosts = phrases::count(holder.hosts.into(), "host");
        let ending = if holder.is_ending { ", ending" } else { "" };
        format!(
            "job {} ({}, pid {}, {} old{ending}) has {hosts}",
            holder.job.short(),
            command(&holder.command),
            holder.pid,
            holder.age
        )
    };
    let mut all: Vec<String> = holders.iter().take(NAMED).map(describe).collect();
    if holders.len() > NAMED {
        all.push(format!("{} more", holders.len() - NAMED));
    }
    if waiting > 0 {
        all.push(format!("{} before this one", phrases::count(waiting.into(), "job")));
    }
    if all.is_empty() { "processes of an ended job are left on its hosts".to_owned() } else { all.join("; ") }
}

/// Hosts that cannot be used now, each with the reason; empty: there are none, or a job `for_all` does without them.
pub(super) fn lacking(report: &Report, is_for_all: bool) -> String {
    let is_usable = |host: &&HostReport| matches!(host.state, HostWord::Free | HostWord::Held | HostWord::Emptying);
    let usable = report.hosts.iter().filter(is_usable).count();
    if usable == report.hosts.len() || (is_for_all && usable > 0) {
        return String::new();
    }
    let describe = |host: &HostReport| {
        let note = if host.note.is_empty() { String::new() } else { format!(" ({})", host.note) };
        match host.state {
            HostWord::Reaching => format!("{} is being reached{note}", host.name),
            state => format!("{} is {}{note}", host.name, state.word()),
        }
    };
    let bad: Vec<&HostReport> = report.hosts.iter().filter(|host| !is_usable(host)).collect();
    let mut all = vec![format!("it can use {usable} of its {}", phrases::count(report.hosts.len() as u64, "host"))];
    all.extend(bad.iter().take(NAMED).map(|host| describe(host)));
    if bad.len() > NAMED {
        all.push(format!("{} more", bad.len() - NAMED));
    }
    all.join("; ")
}

/// Why a pool does not do something.
pub(super) fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooFew { usable, hosts } => {
            format!("can use {usable} of its {}, and more are wanted", phrases::count((*hosts).into(), "host"))
        }
        Refusal::TooFewSlices { wanted, usable, slices } => {
            let slices_of = phrases::count((*slices).into(), "slice");
            match wanted > slices {
                true => format!("has {slices_of}, and {wanted} are wanted"),
                false => format!("can use {usable} of its {slices_of}, and {wanted} are wanted"),
            }
        }
        Refusal::BadNumber => "cannot give 0 hosts".to_owned(),
        Refusal::NoSlices => "has hosts that form no slices".to_owned(),
        Refusal::Ending => "is about to end".to_owned(),
        Refusal::QueueFull => "has as many waiting jobs as it can have".to_owned(),
        Refusal::NoHost(host) => format!("has no host {host}"),
        Refusal::NoMember { name, hosts, slices } if slices.is_empty() => {
            format!("has no host {name}; its hosts are {hosts}")
        }
        Refusal::NoMember { name, hosts, slices } => {
            format!("has no host or slice {name}; its hosts are {hosts}, its slices {slices}")
        }
        Refusal::HasJob(host) => format!("keeps {host}: a job has it"),
        Refusal::HasHost(host) => format!("has {host} already"),
        Refusal::Rights(why) => format!("takes no order of a process with other rights: {why}"),
        Refusal::Lines(why) => format!("cannot take these hosts: {}", parts(why).0),
        Refusal::Version(_) | Refusal::Other => "is of another version of rlaunch".to_owned(),
    }
}

/// The error and the advice in a text that has both.
fn parts(text: &OsBytes) -> (String, Option<String>) {
    let text = String::from_utf8_lossy(text);
    let lines = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    match text.split_once("\n  try ") {
        Some((error, advice)) => (error.to_owned(), Some(lines(advice))),
        None => (text.into_owned(), None),
    }
}

/// The advice then.
pub(super) fn way_out(name: &str, refusal: &Refusal) -> Option<Cow<'static, str>> {
    match refusal {
        Refusal::TooFewSlices { wanted, slices, .. } if wanted > slices => {
            Some(format!("a smaller number in --slices, or rlaunch pool add {name}").into())
        }
        Refusal::TooFew { .. }
        | Refusal::TooFewSlices { .. }
        | Refusal::NoHost(_)
        | Refusal::NoMember { .. }
        | Refusal::HasHost(_) => Some(format!("rlaunch pool status {name}").into()),
        Refusal::BadNumber => Some("a number above 0".into()),
        Refusal::NoSlices => Some("slice=NAME id=N for each host in the hostfile of rlaunch pool up".into()),
        Refusal::Ending | Refusal::Version(_) | Refusal::Other => {
            Some(format!("rlaunch pool up {name} -H LIST, once it has ended").into())
        }
        Refusal::QueueFull => Some("later".into()),
        Refusal::HasJob(host) => Some(format!("rlaunch pool drain {name} {host}, which waits for the job").into()),
        Refusal::Rights(_) => {
            Some("rlaunch from where the pool was started; to end the pool, SIGTERM to its process".into())
        }
        Refusal::Lines(why) => parts(why).1.map(Cow::from),
    }
}

/// Hosts that may not be empty, each with the job of which processes may be left.
pub(super) fn remains(hosts: &[HostReport]) -> String {
    let job = |host: &HostReport| host.job.map(|job| job.short()).unwrap_or_default();
    let mut all: Vec<String> =
        hosts.iter().take(NAMED).map(|host| format!("{} (job {})", host.name, job(host))).collect();
    if hosts.len() > NAMED {
        all.push(format!("{} more", hosts.len() - NAMED));
    }
    format!("processes may be left on {}", all.join(", "))
}

/// A pool: its name, its report and its slices.
pub(super) type Shown<'a> = (&'a str, Report, Slices);

/// The states of hosts or slices, with their numbers: `(1 free, 2 held)`.
fn counts(states: impl Iterator<Item = HostWord>) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    states.for_each(|state| *counts.entry(state.word()).or_default() += 1);
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    format!("({})", counts.join(", "))
}

/// Pools in words.
pub(super) fn text(pools: &[Shown<'_>]) -> String {
    let mut text = String::new();
    for (name, report, slices) in pools {
        let mut line = |line: String| writeln!(text, "{line}").unwrap_or_default();
        let hosts = phrases::count(report.hosts.len() as u64, "host");
        let of_slices = match slices.slices.as_slice() {
            [] => String::new(),
            all => {
                let count = phrases::count(all.len() as u64, "slice");
                format!(", {count} {}", counts(all.iter().map(|slice| slice.state)))
            }
        };
        line(format!(
            "{name}: {hosts} {}{of_slices}, pid {}, up for {}",
            counts(report.hosts.iter().map(|host| host.state)),
            report.pid,
            report.age
        ));
        for slice in &slices.slices {
            line(format!("  {:<20} {}", format!("slice {} ({})", slice.name, slice.slot), slice.state.word()));
            report.hosts.iter().filter(|host| host.slice == slice.name).for_each(|host| line(host_line(host, "    ")));
        }
        let is_apart = |host: &&HostReport| !slices.slices.iter().any(|slice| slice.name == host.slice);
        report.hosts.iter().filter(is_apart).for_each(|host| line(host_line(host, "  ")));
        for job in &report.jobs {
            let ending = if job.is_ending { "  ending" } else { "" };
            let hosts = phrases::count(job.hosts.into(), "host");
            line(format!(
                "  job {}  {}  pid {}  {hosts}  {} old{ending}",
                job.job.short(),
                command(&job.command),
                job.pid,
                job.age
            ));
        }
        if report.waiting > 0 {
            line(format!("  {} waiting", phrases::count(report.waiting.into(), "job")));
        }
    }
    text
}

/// No pool is up where it is looked for. Names those of other directories.
pub(super) fn no_pool() -> String {
    let mut text = format!("no pool is up in {}\n", PoolDirectory::dir_of_all().display());
    for Elsewhere { dir, names, way } in pool_directory::elsewhere() {
        text += &format!("these are up in {}: {} ({way} rlaunch pool status)\n", dir.display(), names.join(", "));
    }
    text
}

fn host_line(host: &HostReport, indent: &str) -> String {
    let job = host.job.map(|job| format!("  job {}", job.short())).unwrap_or_default();
    let note = if host.note.is_empty() { String::new() } else { format!("  {}", host.note) };
    format!("{:<22} {}{job}{note}", format!("{indent}{}", host.name), host.state.word())
}

/// Pools for programs: one object, by their names.
pub(super) fn json(pools: &[Shown<'_>]) -> String {
    let all: Map<String, Value> =
        pools.iter().map(|(name, report, slices)| ((*name).to_owned(), pool(report, slices))).collect();
    format!("{}\n", Value::from(all))
}

fn pool(report: &Report, slices: &Slices) -> Value {
    let host = |host: &HostReport| {
        let job = host.job.map(|job| job.to_string());
        let slice = (!host.slice.is_empty()).then(|| host.slice.to_string());
        json!({
            "name": host.name.to_string(),
            "slice": slice,
            "state": host.state.word(),
            "job": job,
            "note": host.note.to_string(),
        })
    };
    let slice = |slice: &SliceReport| {
        let hosts = report.hosts.iter().filter(|host| host.slice == slice.name).map(|host| host.name.to_string());
        json!({
            "slot": slice.slot,
            "slice": slice.name.to_string(),
            "state": slice.state.word(),
            "hosts": hosts.collect::<Vec<_>>(),
        })
    };
    let job = |holder: &Holder| {
        json!({
            "job": holder.job.to_string(),
            "command": holder.command.to_string(),
            "pid": holder.pid,
            "hosts": holder.hosts,
            "age_ms": holder.age.millis(),
            "ending": holder.is_ending,
        })
    };
    json!({
        "pid": report.pid,
        "age_ms": report.age.millis(),
        "waiting": report.waiting,
        "hosts": report.hosts.iter().map(host).collect::<Vec<_>>(),
        "slices": slices.slices.iter().map(slice).collect::<Vec<_>>(),
        "jobs": report.jobs.iter().map(job).collect::<Vec<_>>(),
    })
}

/// The state of a slice in a report.
pub(super) const fn of_slice(state: SliceState) -> HostWord {
    match state {
        SliceState::Free => HostWord::Free,
        SliceState::Incomplete => HostWord::Incomplete,
        SliceState::Warned => HostWord::Warned,
        SliceState::Draining => HostWord::Draining,
        SliceState::Reaching => HostWord::Reaching,
        SliceState::Emptying => HostWord::Emptying,
        SliceState::Held => HostWord::Held,
        SliceState::Lost => HostWord::Lost,
    }
}

/// The state of a host in a report.
pub(super) const fn word(state: rlaunch_core::pool::HostState) -> HostWord {
    use rlaunch_core::pool::HostState;
    match state {
        HostState::Reaching => HostWord::Reaching,
        HostState::Free => HostWord::Free,
        HostState::Held(_) => HostWord::Held,
        HostState::Emptying(_) => HostWord::Emptying,
        HostState::Draining => HostWord::Draining,
        HostState::Lost => HostWord::Lost,
        HostState::Warned => HostWord::Warned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_base::time::Span;

    fn report(slices: &[&str]) -> Report {
        let host = |(n, slice): (usize, &&str)| HostReport {
            name: format!("n{n}").into(),
            slice: (*slice).into(),
            state: if n == 0 { HostWord::Lost } else { HostWord::Free },
            job: None,
            note: OsBytes::default(),
        };
        let hosts = slices.iter().enumerate().map(host).collect();
        Report { pid: 7, age: Span::from_secs(65), hosts, jobs: Vec::new(), waiting: 0 }
    }

    #[test]
    fn refused_hosts_have_an_error_and_an_advice() {
        let refused = Refusal::Lines("n1 has no slice\n  try     one thing\n          or another".into());
        assert_eq!(refusal(&refused), "cannot take these hosts: n1 has no slice");
        assert_eq!(way_out("p", &refused).as_deref(), Some("one thing\nor another"));
        assert_eq!(way_out("p", &Refusal::Lines("n1 has no slice".into())), None);
    }

    #[test]
    fn slices_have_a_line_each_above_the_hosts() {
        let slice = |slot, name: &str, state| SliceReport { slot, name: name.into(), state };
        let both = vec![slice(0, "a", HostWord::Lost), slice(2, "c", HostWord::Free)];
        let slices = Slices { sizes: vec![1], slices: both };
        let shown = [("p", report(&["a", "a", "c", "c"]), slices)];
        let lines = [
            "p: 4 hosts (3 free, 1 lost), 2 slices (1 free, 1 lost), pid 7, up for 65.0s",
            "  slice a (0)          lost",
            "    n0                 lost",
            "    n1                 free",
            "  slice c (2)          free",
            "    n2                 free",
            "    n3                 free",
        ];
        assert_eq!(text(&shown).lines().collect::<Vec<_>>(), lines);
        let json: Value = serde_json::from_str(&json(&shown)).unwrap();
        let last = json!({ "slot": 2, "slice": "c", "state": "free", "hosts": ["n2", "n3"] });
        assert_eq!((&json["p"]["slices"][1], &json["p"]["hosts"][3]["slice"]), (&last, &json!("c")));
        let none = Slices { sizes: Vec::new(), slices: Vec::new() };
        let plain = text(&[("p", report(&["", ""]), none)]);
        let lines = [
            "p: 2 hosts (1 free, 1 lost), pid 7, up for 65.0s",
            "  n0                   lost",
            "  n1                   free",
        ];
        assert_eq!(plain.lines().collect::<Vec<_>>(), lines);
    }
}
