//! Words about pools, for people and for programs.

use super::room::{self, Elsewhere, Room};
use crate::view::phrases;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::wire::frozen::pool::{Holder, HostReport, HostWord, Refusal, Report};
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
    let one = |holder: &Holder| {
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
    let mut all: Vec<String> = holders.iter().take(NAMED).map(one).collect();
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
    let one = |host: &HostReport| {
        let note = if host.note.is_empty() { String::new() } else { format!(" ({})", host.note) };
        match host.state {
            HostWord::Reaching => format!("{} is being reached{note}", host.name),
            state => format!("{} is {}{note}", host.name, state.word()),
        }
    };
    let bad: Vec<&HostReport> = report.hosts.iter().filter(|host| !is_usable(host)).collect();
    let mut all = vec![format!("it can use {usable} of its {}", phrases::count(report.hosts.len() as u64, "host"))];
    all.extend(bad.iter().take(NAMED).map(|host| one(host)));
    if bad.len() > NAMED {
        all.push(format!("{} more", bad.len() - NAMED));
    }
    all.join("; ")
}

/// Why a pool does not do something.
pub(super) fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooFew { usable, hosts } => format!("can use {usable} of its {hosts}, and more are wanted"),
        Refusal::BadNumber => "cannot give 0 hosts".to_owned(),
        Refusal::NoSlices => "has hosts that form no slices".to_owned(),
        Refusal::Ending => "is about to end".to_owned(),
        Refusal::QueueFull => "has as many waiting jobs as it can have".to_owned(),
        Refusal::NoHost(host) => format!("has no host {host}"),
        Refusal::HasJob(host) => format!("keeps {host}: a job has it"),
        Refusal::HasHost(host) => format!("has {host} already"),
        Refusal::Lines(why) => format!("cannot take these hosts: {why}"),
        Refusal::Version(_) | Refusal::Other(_) => "is of another version of rlaunch".to_owned(),
    }
}

/// The advice then.
pub(super) fn way_out(name: &str, refusal: &Refusal) -> Option<Cow<'static, str>> {
    match refusal {
        Refusal::TooFew { .. } | Refusal::NoHost(_) | Refusal::HasHost(_) => {
            Some(format!("rlaunch pool status {name}").into())
        }
        Refusal::BadNumber => Some("a number above 0".into()),
        Refusal::NoSlices => Some("slice=NAME id=N for each host in the hostfile of rlaunch pool up".into()),
        Refusal::Ending | Refusal::Version(_) | Refusal::Other(_) => {
            Some(format!("rlaunch pool up {name} -H LIST, once it has ended").into())
        }
        Refusal::QueueFull => Some("later".into()),
        Refusal::HasJob(host) => Some(format!("rlaunch pool drain {name} {host}, which waits for the job").into()),
        Refusal::Lines(_) => None,
    }
}

/// Pools in words.
pub(super) fn text(pools: &[(&str, Report)]) -> String {
    let mut text = String::new();
    for (name, report) in pools {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        report.hosts.iter().for_each(|host| *counts.entry(host.state.word()).or_default() += 1);
        let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let hosts = phrases::count(report.hosts.len() as u64, "host");
        let mut line = |line: String| writeln!(text, "{line}").unwrap_or_default();
        line(format!("{name}: {hosts} ({}), pid {}, up for {}", counts.join(", "), report.pid, report.age));
        for host in &report.hosts {
            let job = host.job.map(|job| format!("  job {}", job.short())).unwrap_or_default();
            let note = if host.note.is_empty() { String::new() } else { format!("  {}", host.note) };
            line(format!("  {:<20} {}{job}{note}", host.name.to_string(), host.state.word()));
        }
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
    let mut text = format!("no pool is up in {}\n", Room::dir_of_all().display());
    for Elsewhere { dir, names, way } in room::elsewhere() {
        text += &format!("these are up in {}: {} ({way} rlaunch pool status)\n", dir.display(), names.join(", "));
    }
    text
}

/// Pools for programs: one object, by their names.
pub(super) fn json(pools: &[(&str, Report)]) -> String {
    let all: Map<String, Value> = pools.iter().map(|(name, report)| ((*name).to_owned(), pool(report))).collect();
    format!("{}\n", Value::from(all))
}

fn pool(report: &Report) -> Value {
    let host = |host: &HostReport| {
        let job = host.job.map(|job| job.to_string());
        json!({ "name": host.name.to_string(), "state": host.state.word(), "job": job, "note": host.note.to_string() })
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
        "jobs": report.jobs.iter().map(job).collect::<Vec<_>>(),
    })
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
