//! Hosts that a job does not get, as text: all of them, each with what it said; of a thousand that say the same, once.

use super::report::{Block, host};
use super::{device_messages, launch, lost, phrases};
use rlaunch_base::errno::{EADDRNOTAVAIL, EPROTO};
use rlaunch_base::error::Hint as _;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::events::Cause;
use rlaunch_core::report::{Became, Report};
use rlaunch_plan::bootstrap::HostFailure;
use rlaunch_plan::hostlist::fold;
use rlaunch_protocol::wire::to_root::{NodeRefusal, SpawnError, SpawnStep, Tried};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;

/// Longest list of hosts that is shown whole.
const LIST: usize = 300;
/// Most hosts that a line names one by one.
const NAMED: usize = 4;
/// Most different reasons.
const REASONS: usize = 20;
/// The text for a host's name in messages that several hosts have alike.
const ANY: &str = "HOST";

/// Hosts with the same reason.
struct Group<'a> {
    why: String,
    hint: String,
    words: String,
    /// All have said the same.
    alike: bool,
    hosts: Vec<NodeId>,
    first: &'a HostFailure,
}

impl Group<'_> {
    fn is_sole(&self) -> bool {
        self.hosts.len() == 1
    }

    /// The reason, and the messages of the host.
    fn said(&self, gap: &str) -> String {
        let why = if self.is_sole() { self.first.why.to_string() } else { self.why.clone() };
        match (self.is_sole(), self.alike, self.first.words.to_string()) {
            (_, _, words) if words.is_empty() => why,
            (true, _, words) => format!("{why}{gap}({words})"),
            (false, true, _) => format!("{why}{gap}({})", self.words),
            (false, false, words) => format!("{why}{gap}(the first: {words})"),
        }
    }
}

/// Hosts cannot be reached, or are not ready. `cleans`: for `rlaunch clean`, which needs all of them.
pub(crate) fn unreachable(report: &Report, (failed, asked): (u32, u32), cleans: bool) -> String {
    let reached = report.refused.is_empty() && report.lost_hosts.is_empty();
    let what = if reached { "cannot be reached" } else { "cannot be had" };
    let all = phrases::count(asked.into(), "host");
    let mut text = match cleans {
        true => format!("error: {failed} of {all} {what}\n"),
        false => format!("error: {failed} of {all} {what}; nothing was started\n"),
    };
    text.push_str(&too_few(report));
    text.push_str(&missing(report));
    if !cleans {
        text.push_str(&way_on(report));
    }
    text
}

/// Why a job does not continue without its missing hosts, where it might have.
fn too_few(report: &Report) -> String {
    let (ready, asked) = (report.ready(), report.asked());
    match report.start.as_ref().and_then(|start| start.min_hosts).map(|least| least as usize) {
        None => String::new(),
        Some(least) if ready < least => {
            let is = if ready == 1 { "is" } else { "are" };
            format!("  hosts   {ready} of {asked} {is} ready, at least {least} are asked for\n")
        }
        Some(_) => format!("  hosts   {ready} of {asked} are enough, but a program has no ranks there\n"),
    }
}

/// With how many hosts the job would continue.
fn way_on(report: &Report) -> String {
    let (ready, asked) = (report.ready(), report.asked());
    let least = report.start.as_ref().and_then(|start| start.min_hosts).map_or(asked, |least| least as usize);
    // The interface is looked for on rank 0's host, which is another one then: the next host has not been asked yet.
    let elsewhere = report.refused.iter().any(|(_, why)| is_of_rank_0(why));
    if ready == 0 || ready >= least || elsewhere {
        return String::new();
    }
    let them = if asked - ready == 1 { "it" } else { "them" };
    format!("  try     --min-hosts {ready}, to continue without {them}\n")
}

/// `2 hosts`, or `2 of 3 hosts` where the job does without the others.
pub(crate) fn used(report: &Report) -> String {
    count_used(report, report.left_out.len())
}

/// The hosts of a job that has finished, without those that were lost: `2 of 3 hosts`.
pub(crate) fn to_the_end(report: &Report) -> String {
    let lost = report.lost_early();
    let without = lost.iter().filter(|node| !report.left_out.contains(node)).count() + report.left_out.len();
    count_used(report, without)
}

fn count_used(report: &Report, without: usize) -> String {
    let (asked, used) = (report.asked(), report.asked().saturating_sub(without));
    let all = phrases::count(asked as u64, "host");
    if used < asked { format!("{used} of {all}") } else { all }
}

/// The message that the job continues without hosts.
pub(crate) fn left_out(report: &Report) -> String {
    let ranks = phrases::count(report.start.as_ref().map_or(0, |start| start.world_size.into()), "rank");
    let mut reasons: Vec<String> = Vec::new();
    let groups = groups(report);
    let only = groups.len() == 1 && report.refused.is_empty() && report.lost_hosts.is_empty();
    for group in &groups {
        let (hosts, why) = (list(report, &group.hosts), group.said(" "));
        reasons.push(if only { why } else { format!("{hosts}: {why}") });
    }
    reasons.extend(lost_hosts(report));
    reasons.extend(refusals(report).into_iter().map(|(what, _)| what));
    let rest = reasons.len().saturating_sub(REASONS);
    reasons.truncate(REASONS);
    if rest > 0 {
        reasons.push(format!("and {} more", phrases::count(rest as u64, "reason")));
    }
    let without = list(report, &report.left_out);
    format!("continuing with {ranks} on {}, without {without}: {}", used(report), reasons.join("; "))
}

/// All hosts that a job does not get, a line or two for each reason.
fn missing(report: &Report) -> String {
    let mut text = String::new();
    let groups = groups(report);
    for group in groups.iter().take(REASONS) {
        let _infallible = writeln!(text, "  {:<7} {}", list(report, &group.hosts), group.said("  "));
        let hint = if group.is_sole() { group.first.hint.to_string() } else { group.hint.clone() };
        if !hint.is_empty() {
            let _infallible = writeln!(text, "  try     {hint}");
        }
    }
    let rest: usize = groups.iter().skip(REASONS).map(|group| group.hosts.len()).sum();
    if rest > 0 {
        let _infallible = writeln!(text, "  and {} for other reasons", phrases::count(rest as u64, "host"));
    }
    for what in lost_hosts(report) {
        let _infallible = writeln!(text, "  {what}");
    }
    for (what, hint) in refusals(report) {
        let _infallible = writeln!(text, "  {what}");
        if let Some(hint) = hint {
            let _infallible = writeln!(text, "  try     {hint}");
        }
    }
    text
}

/// The messages about parts that were lost on hosts before anything was started.
fn lost_hosts(report: &Report) -> impl Iterator<Item = String> {
    report.lost_hosts.iter().map(|(node, what)| lost::on_host(report, *node, *what))
}

/// The refusals of hosts: each reason once.
fn refusals(report: &Report) -> Vec<Said> {
    let mut refused: Vec<(&NodeRefusal, Vec<NodeId>)> = Vec::new();
    for (node, why) in &report.refused {
        match refused.iter_mut().find(|(other, _)| *other == why) {
            Some((_, nodes)) => nodes.push(*node),
            None => refused.push((why, vec![*node])),
        }
    }
    refused.into_iter().map(|(why, nodes)| refusal(report, &list(report, &nodes), why)).collect()
}

fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (node, first) in &report.unreached {
        let name = host(report, *node);
        let [why, hint, words] = [&first.why, &first.hint, &first.words].map(|text| masked(&text.to_string(), &name));
        match groups.iter_mut().find(|group| group.why == why && group.hint == hint) {
            Some(group) => {
                group.hosts.push(*node);
                group.alike &= group.words == words;
            }
            None => groups.push(Group { why, hint, words, alike: true, hosts: vec![*node], first }),
        }
    }
    groups
}

/// A text without the name of the host that it is about.
fn masked(text: &str, host: &str) -> String {
    // `user@name (port 22)`, `[::1] (port 22)`
    let name = host.split(' ').next().unwrap_or_default();
    let name = name.rsplit('@').next().unwrap_or_default().trim_matches(['[', ']']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(name).filter(|_| !name.is_empty()) {
        let (before, after) = rest.split_at(at);
        let after = after.get(name.len()..).unwrap_or_default();
        done.push_str(before);
        let inside = before.chars().next_back().or_else(|| done.chars().next_back()).is_some_and(is_name);
        let inside = inside || after.chars().next().is_some_and(is_name);
        done.push_str(if inside { name } else { ANY });
        rest = after;
    }
    done.push_str(rest);
    done
}

/// Whether the refusal holds only while rank 0 is on that host.
const fn is_of_rank_0(why: &NodeRefusal) -> bool {
    matches!(
        why,
        NodeRefusal::NoInterface { .. }
            | NodeRefusal::Alone { .. }
            | NodeRefusal::MasterAddr { .. }
            | NodeRefusal::PortTaken { .. }
    )
}

/// Hosts by name, in short; of very many only some.
pub(crate) fn list(report: &Report, nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(|node| host(report, *node)).collect();
    let folded = fold(names.iter().map(String::as_str));
    if folded.len() <= LIST {
        return folded;
    }
    format!("{} ({})", beginning(folded), phrases::count(nodes.len() as u64, "host"))
}

/// A list of hosts; of a very long one the beginning.
pub(crate) fn beginning(folded: String) -> String {
    if folded.len() <= LIST {
        return folded;
    }
    let shown = folded.get(..LIST).and_then(|start| start.rsplit_once(',')).map_or("", |(start, _)| start);
    // A bracket that was cut is closed.
    let close = if shown.rfind('[') > shown.rfind(']') { "]" } else { "" };
    format!("{shown}{close},...")
}

/// Hosts as the user calls them, as far as a line goes.
pub(crate) fn some(report: &Report, nodes: &[NodeId]) -> String {
    let known = report.start.iter().flat_map(|start| nodes.iter().filter_map(|node| start.hosts.get(node.index())));
    let mut names: Vec<String> = known.take(NAMED).map(OsBytes::to_string).collect();
    let last = match nodes.len().saturating_sub(NAMED) {
        0 => names.pop().unwrap_or_default(),
        rest => format!("{rest} more"),
    };
    format!("{} and {last}", names.join(", "))
}

/// Hosts cannot do what was asked for; there may have been ranks. `cleans`: for `rlaunch clean`.
pub(crate) fn refused(report: &Report, why: &NodeRefusal, cleans: bool) -> String {
    let mut all: Vec<(&NodeRefusal, Vec<NodeId>)> = vec![(why, Vec::new())];
    // Refusals of hosts that the job did without were reported before.
    for (node, why) in report.refused.iter().filter(|(node, _)| !report.left_out.contains(node)) {
        let is_alike = |other: &NodeRefusal| *other == *why || device_messages::are_both(other, why);
        match all.iter_mut().find(|(other, _)| is_alike(other)) {
            Some((_, nodes)) => nodes.push(*node),
            None => all.push((why, vec![*node])),
        }
    }
    let mut block = Block::new(String::new());
    let mut head = "error: ";
    for (why, nodes) in all {
        let hosts = if nodes.is_empty() { host(report, first(report)) } else { list(report, &nodes) };
        let (what, hint) = if let NodeRefusal::Devices { .. } = why {
            device_messages::table(report, &hosts, why, cleans)
        } else {
            refusal(report, &hosts, why)
        };
        let _infallible = writeln!(block.text, "{head}{what}");
        if let Some(hint) = hint {
            let _infallible = writeln!(block.text, "  try     {hint}");
        }
        head = "  also    ";
    }
    let started = report.others().iter().any(|group| group.became != Became::NeverStarted);
    if !started && !cleans && report.asked() > 1 {
        block.text.push_str(&too_few(report));
        block.text.push_str(&way_on(report));
    }
    if started || report.left != Some(0) {
        if let Some(end) = &report.end {
            block.also(report, &end.cause);
        }
        block.fates("job", report);
    }
    block.text
}

fn first(report: &Report) -> NodeId {
    match report.end.as_ref().map(|end| &end.cause) {
        Some(Cause::Refused { node, .. }) => *node,
        Some(_) | None => NodeId::new(0),
    }
}

fn shortage(errno: i32) -> String {
    phrases::shortage(&io::Error::from_raw_os_error(errno))
}

pub(super) type Said = (String, Option<Cow<'static, str>>);

/// The reason of a refusal, in a line.
pub(super) fn reason(report: &Report, host: &str, why: &NodeRefusal) -> String {
    let (text, _) = refusal(report, host, why);
    text.lines().next().unwrap_or_default().to_owned()
}

/// The refusal of these hosts, and the advice.
fn refusal(report: &Report, hosts: &str, why: &NodeRefusal) -> Said {
    match why {
        NodeRefusal::Contain { errno, step } => (
            format!("no PID namespace can be had on {hosts} ({step}: {})", shortage(*errno)),
            Some(phrases::way_out(*errno).unwrap_or("--contain t3, or run as root").into()),
        ),
        NodeRefusal::Resource { errno, step } => (
            format!("the agent on {hosts} cannot continue ({step}: {})", shortage(*errno)),
            phrases::way_out(*errno).map(Cow::Borrowed),
        ),
        NodeRefusal::NoPort => {
            (format!("no port is free for MASTER_PORT on {hosts}"), Some("-x MASTER_PORT=N with one that is".into()))
        }
        NodeRefusal::PortTaken { port, job, agent } => {
            let name = if job.is_empty() { String::new() } else { format!(" {job}") };
            let agent = agent.map(|pid| format!(" (its agent is process {pid})")).unwrap_or_default();
            let what = format!("MASTER_PORT={port} on {hosts} belongs to another job of rlaunch{name}{agent}");
            (what, Some("another port, or leave MASTER_PORT out; or end the other job".into()))
        }
        NodeRefusal::NoStore { errno, at } => (
            format!("the agent on {hosts} cannot hold the TCPStore at {at}: {}", phrases::errno(*errno)),
            Some(match *errno {
                EADDRNOTAVAIL => "a MASTER_ADDR that is an address of that host, or --master-store rank0".into(),
                _ => "--master-store rank0, or another MASTER_PORT".into(),
            }),
        ),
        NodeRefusal::MasterAddr { addr, is_loopback, has } => master_addr(hosts, addr, *is_loopback, has),
        NodeRefusal::NoInterface { name, has } => {
            let use_of = if report.asked() > 1 { " that others can use" } else { "" };
            let lacks = format!("there is no such interface with an address{use_of} on {hosts}, where rank 0 runs");
            let others = (!has.is_empty()).then(|| format!("one of these: {has}").into());
            (format!("--interface {name}: {lacks}"), others)
        }
        NodeRefusal::NoWay { to, interface, tried } => {
            (format!("{hosts} cannot reach {to}, where rank 0 runs: {}", places(tried)), Some(other_way(interface)))
        }
        NodeRefusal::Alone { interface, tried } => {
            let what = format!("no other host can reach {hosts}, where rank 0 was to run: {}", places(tried));
            (what, Some(other_way(interface)))
        }
        NodeRefusal::Program { app, error } => program(report, hosts, app.index(), error),
        NodeRefusal::Gpus { each, needed, has } => gpus(hosts, *each, *needed, *has),
        NodeRefusal::Devices { .. } => device_messages::brief(report, hosts, why),
        NodeRefusal::DevicesUnknown { limit } => (
            format!("cannot find the processes that hold the TPU of {hosts}: no answer from /proc for {limit}"),
            Some("ps -eo pid,stat,comm, for processes in state D; or --devices none".into()),
        ),
        NodeRefusal::Bind(error) => (format!("{hosts}: {error}"), error.hint()),
        NodeRefusal::Slices(error) => (format!("{error}"), error.hint()),
        NodeRefusal::Protocol => (format!("the agent on {hosts} does not understand rlaunch: this is a bug"), None),
    }
}

/// The MASTER_ADDR that the user gave, and the right ones.
fn master_addr(hosts: &str, addr: &OsBytes, is_loopback: bool, has: &OsBytes) -> Said {
    let has = has.to_string().replace(' ', ", ");
    let of_host = if has.is_empty() { hosts.to_owned() } else { format!("{hosts} ({has})") };
    if is_loopback {
        let what = format!("MASTER_ADDR={addr} is a different machine on each host; rank 0 runs on {of_host}");
        return (what, Some("leave MASTER_ADDR out, so that rlaunch finds the address".into()));
    }
    let what = format!("MASTER_ADDR={addr} is no address of {of_host}, where rank 0 runs");
    (what, Some("leave MASTER_ADDR out; --master-store rank0, if that address is translated (NAT)".into()))
}

/// The places at which another host was tried, and the results.
fn places(tried: &[Tried]) -> String {
    if tried.is_empty() {
        return "it has no address that could be tried".to_owned();
    }
    let place = |tried: &Tried| match tried.errno {
        0 => format!("{} (no answer)", tried.at),
        EPROTO => format!("{} (another program answers)", tried.at),
        errno => format!("{} ({})", tried.at, phrases::errno(errno)),
    };
    format!("tried {}", tried.iter().map(place).collect::<Vec<_>>().join(", "))
}

/// The advice where hosts do not reach each other.
fn other_way(interface: &OsBytes) -> Cow<'static, str> {
    let which = if interface.is_empty() { "--interface NAME" } else { "another --interface" };
    format!(
        "{which}, for a network that all hosts have in common; is a firewall between them? -x MASTER_ADDR=ADDRESS is taken untried"
    )
    .into()
}

fn gpus(hosts: &str, each: u32, needed: u32, has: Option<u32>) -> Said {
    let has_them = match has {
        None => "their number is unknown".to_owned(),
        Some(0) => "the host has none".to_owned(),
        Some(has) => format!("the host has {has}"),
    };
    let hint = match has {
        Some(has) if has >= each => format!("--ppn {}, or a smaller --gpus-per-rank", has / each.max(1)).into(),
        Some(0) => "hosts with GPUs, or leave --gpus-per-rank out".into(),
        Some(_) => "a smaller --gpus-per-rank".into(),
        None => "CUDA_VISIBLE_DEVICES, with the GPUs of the host".into(),
    };
    let s = if needed == 1 { "" } else { "s" };
    (format!("--gpus-per-rank {each}: ranks on {hosts} need {needed} GPU{s}, and {has_them}"), Some(hint))
}

fn program(report: &Report, hosts: &str, app: usize, error: &SpawnError) -> Said {
    let (path, why) = (&error.path, phrases::errno(error.errno));
    let line = report.start.as_ref().and_then(|start| start.apps.get(app));
    match error.step {
        SpawnStep::ChangeDir if line.is_some_and(|line| line.wdir.is_none()) => (
            format!("ranks cannot start in {path}, where rlaunch was started, on {hosts}: {why}"),
            Some("--wdir DIR, with one that all hosts have".into()),
        ),
        SpawnStep::ChangeDir => {
            (format!("--wdir {path} on {hosts}: {why}"), Some("a directory that all hosts have".into()))
        }
        SpawnStep::LogDirectory => {
            (format!("--log-dir {path} on {hosts}: {why}"), Some("a directory that can be made on all hosts".into()))
        }
        SpawnStep::Exec => launch::program(error, &launch::Place::There(hosts)),
        _ => (format!("{path} on {hosts}: {why}"), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_host_is_masked_only_as_a_whole_word() {
        for (text, host, masked_text) in [
            ("ssh: connect to host n1 port 22: no", "n1", "ssh: connect to host HOST port 22: no"),
            ("n1, n10 and xn1", "n1", "HOST, n10 and xn1"),
            ("u@n1: denied", "u@n1", "u@HOST: denied"),
            ("ssh n1 true", "n1 (port 2222)", "ssh HOST true"),
            ("connect to ::1: no", "[::1] (port 2)", "connect to HOST: no"),
            ("n1.", "", "n1."),
        ] {
            assert_eq!(masked(text, host), masked_text);
        }
    }
}
