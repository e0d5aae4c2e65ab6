//! The closing report as text: one line after success, a block of named lines after anything else.

use super::path_search::Around;
use super::{Tone, host_messages, launch, lost, phrases, round_messages, slice_messages};
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{NodeId, Rank};
use rlaunch_base::shell::quoted;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;
use rlaunch_core::events::{Cause, Lost, RestartCause};
use rlaunch_core::report::{Became, End, Fate, Forgotten, Group, Report, Restarted};
use rlaunch_protocol::master_store::{self, Holder, Program, is_missed};
use rlaunch_protocol::rank_fault::FaultKind;
use rlaunch_protocol::wire::to_root::{Facts, TAIL};
use std::fmt::Write;

/// Most last lines of stderr that are repeated; and where they stand above the report.
const LAST: usize = 10;
const LAST_SHOWN: usize = 1;

/// Whether a report is worth saying. Success is news at a terminal; in a pipe it would stand among the program's own words.
pub(crate) fn is_shown(report: &Report, tone: Tone, terminal: bool) -> bool {
    let clean = report.left == Some(0) && report.end.as_ref().is_none_or(|end| !is_spoiled(end));
    match report.end.as_ref().map(|end| &end.cause) {
        Some(Cause::Success | Cause::Lead { .. }) => {
            !clean || tone == Tone::Verbose || (tone == Tone::Normal && terminal)
        }
        // The closed reader was reported when it happened.
        Some(Cause::ReaderClosed(_)) => !clean || tone == Tone::Verbose,
        Some(_) => true,
        None => false,
    }
}

/// Every rank succeeded, and the job did not.
fn is_spoiled(end: &End) -> bool {
    matches!(end.cause, Cause::Success | Cause::Lead { .. }) && end.exit != Ending::Code(0)
}

/// The text, with its newlines.
pub(crate) fn render(report: &Report, around: &Around) -> String {
    let Some(end) = &report.end else { return String::new() };
    let took = end.took;
    let head = match &end.cause {
        Cause::Success => return success(report, end),
        Cause::Lead { rank } => {
            format!("the program of --lead finished after {took} ({})", phrases::rank(report, *rank))
        }
        Cause::Spawn { rank, error } => return launch::not_started(report, *rank, error, around),
        Cause::Refused { why, .. } => return host_messages::refused(report, why, around.cleans),
        Cause::Unreachable { failed, asked, .. } => {
            return host_messages::unreachable(report, (*failed, *asked), around.cleans);
        }
        Cause::Rank { rank, status } => return failure(report, end, (*rank, *status), around),
        Cause::Signal(sig) => format!("ended by {sig} after {took}{}", before(report)),
        Cause::Scheduler { scheduler, sig } => {
            format!("{scheduler} ended the job by {sig} after {took}{}", before(report))
        }
        Cause::Timeout { limit } => {
            format!("--timeout {} ran out{}; the job was ended", phrases::wait(*limit), before(report))
        }
        Cause::ReaderClosed(std) => format!("ended after {took}: the reader of {} has closed it", phrases::std(*std)),
        Cause::TooFewSlices { asked, up } => slice_messages::too_few(asked, *up),
        Cause::Lost { node, lost } | Cause::Preempted { node, lost } => {
            let hosts = alike(report, *node, *lost);
            match lost::lost_pool(report, *lost) {
                Some(pool) => {
                    format!("the pool {pool} is gone: lost contact with {}", host_messages::list(report, &hosts))
                }
                None => lost::on_hosts(report, &hosts, *lost),
            }
        }
    };
    let mut block = Block::new(format!("rlaunch: {head}\n"));
    if matches!(end.cause, Cause::Lost { .. } | Cause::Preempted { .. }) {
        block.field("ended", &format!("after {}", report.began.map_or(took, |began| began.at)));
    }
    if let Cause::Lost { node, lost } = end.cause
        && let Some(hint) = lost::next_step(report, node, lost)
    {
        block.field("try", &hint);
    }
    if let Cause::Scheduler { .. } = end.cause {
        block.field("try", lost::ASK_SLURM);
    }
    block.also(report, &end.cause);
    block.restarts(report);
    round_messages::fields(&mut block, report);
    block.without(report);
    block.fates("job", report);
    block.exit(end.exit);
    block.text
}

/// The interrupted step, where no rank ran.
fn before(report: &Report) -> &'static str {
    let ran = report.others().iter().any(|group| group.became != Became::NeverStarted);
    match (ran, report.restarts.is_empty()) {
        (true, _) => "",
        (false, true) => ", before any rank was started",
        (false, false) => ", before the ranks were started again",
    }
}

/// A host, and those lost together with it to which the same text applies.
fn alike(report: &Report, node: NodeId, lost: Lost) -> Vec<NodeId> {
    // Parts of ours that were lost are each host's own, unless they were lost with others.
    let alone = !matches!(lost, Lost::NoHeartbeat | Lost::Expired | Lost::Starved(_));
    let same = |other: &Lost| !alone && other.is_like(lost);
    let is_alike = |other: &NodeId| *other == node || lost.is_by_srun() || report.losses.get(other).is_some_and(same);
    let named: Vec<NodeId> = report.together.iter().copied().filter(is_alike).collect();
    if named.is_empty() { vec![node] } else { named }
}

/// A host's name, or `this host` where it has none.
pub(crate) fn host(report: &Report, node: NodeId) -> String {
    let Some(start) = &report.start else { return "this host".into() };
    match start.hosts.get(node.index()).unwrap_or(&start.host) {
        name if !name.is_empty() => name.to_string(),
        _ => "this host".into(),
    }
}

/// The name of a rank's host.
pub(crate) fn host_of(report: &Report, rank: Rank) -> String {
    host(report, report.ranks.get(rank.index()).map_or(NodeId::new(0), |line| line.node))
}

fn success(report: &Report, end: &End) -> String {
    let all = phrases::count(report.all_ranks() as u64, "rank");
    let finished = report.finished();
    let ranks = if finished < report.all_ranks() { format!("{finished} of {all}") } else { all };
    let hosts = host_messages::to_the_end(report);
    let mut text = format!("rlaunch: {ranks} on {hosts} finished in {}", end.took);
    if let Some(launch) = end.launch {
        let _infallible = write!(text, " (launch {launch})");
    }
    if report.left != Some(0) {
        let _infallible = write!(text, "; {}", left_of(report));
    }
    if is_spoiled(end) {
        text.push_str("; some of their output could not be written");
    }
    let mut block = Block::new(text + "\n");
    block.restarts(report);
    round_messages::fields(&mut block, report);
    block.leftovers(report);
    if is_spoiled(end) {
        block.exit(end.exit);
    }
    block.text
}

fn failure(report: &Report, end: &End, (rank, status): (Rank, Status), around: &Around) -> String {
    let nothing = Facts::default();
    let facts = report.facts.get(&rank).unwrap_or(&nothing);
    let line = report.ranks.get(rank.index());
    let first = if report.all_ranks() > 1 { " first" } else { "" };
    let how = match facts.oom_limit {
        Some(0) => "killed by the kernel: out of memory (the host was full)".into(),
        Some(limit) => format!("killed by the kernel: out of memory (limit {})", phrases::bytes(limit)),
        None if passed_on(report, status) => format!("{status}, which rlaunch was sent and passed on,"),
        None => given_up(report, rank, status).unwrap_or_else(|| status.to_string()),
    };
    let started = line.and_then(|line| line.started);
    let ended = line.and_then(|line| match line.fate {
        Fate::Ended { at, .. } => Some(at),
        Fate::Pending | Fate::Running | Fate::NotStarted => None,
    });
    let since = started.map_or(Span::ZERO, |(_, at)| at);
    let after = Span::from_nanos(ended.unwrap_or(end.took).nanos().saturating_sub(since.nanos()));
    let name = phrases::rank(report, rank);
    let mut block = Block::new(format!("rlaunch: {name} failed{first}: {how} after {after}\n"));
    if let (Some(line), Some((pid, _))) = (line, started) {
        block.field("where", &format!("{}, local rank {}, pid {pid}", host(report, line.node), line.local_rank));
    }
    let argv = || report.app(rank).into_iter().flat_map(|app| &app.argv);
    block.field("command", &phrases::command(argv()));
    if let Some(message) = facts.error_file.as_deref().and_then(message) {
        block.field("error", &message);
    }
    block.stderr(&facts.tail, if around.has_stderr { LAST_SHOWN } else { LAST });
    if let Some(memory) = memory(facts, status, report.peaks.get(&rank)) {
        block.field("memory", &memory);
    }
    let missed = is_missed(&facts.tail) || facts.error_file.as_deref().is_some_and(is_missed);
    let store = report.start.as_ref().map(|start| start.master_store).filter(|_| missed);
    if let Some(store) = store {
        block.field("store", &super::map::expected(store));
    }
    if let Some(path) = &facts.core {
        let program = argv().next().map_or_else(String::new, quoted);
        let path = quoted(path);
        block.field("core", &format!("{path}  (gdb {program} {path})"));
    }
    if facts.late {
        block.field("files", "core and error file were not looked for: the file system did not answer in time");
    }
    block.also(report, &end.cause);
    block.restarts(report);
    round_messages::fields(&mut block, report);
    block.without(report);
    block.fates("others", report);
    if is_of_numactl(&facts.tail) {
        block
            .field("try", "--bind-to none, if numactl chooses the CPUs: it takes only those that the rank is bound to");
    }
    script_hint(&mut block, report, rank, around);
    tries(&mut block, report, (rank, status), facts.oom_limit.is_some(), store);
    block.exit(end.exit);
    block.text
}

/// The failure of a rank for which no restart was possible, if its process has ended in another way: it may have exited with 0.
fn given_up(report: &Report, rank: Rank, status: Status) -> Option<String> {
    let (fault, _) = report.rounds.given_up.as_ref().filter(|(fault, _)| fault.initial == rank)?;
    let Fate::Ended { status: own, .. } = report.ranks.get(rank.index())?.fate else { return None };
    (own != status).then(|| match fault.kind {
        FaultKind::Ended(_) => format!("{own} within its function"),
        kind => format!("{kind}, then {own}"),
    })
}

/// The memory of the rank and of its host, where it may explain the failure.
fn memory(facts: &Facts, status: Status, peak: Option<&u64>) -> Option<String> {
    let host = facts.host?;
    let killed = matches!(status, Status::Signaled { sig: Signal::KILL, .. });
    if !killed && !host.is_low() {
        return None;
    }
    let rank = match peak {
        Some(kib) if *kib > 0 => format!("the rank had at most {}; ", phrases::bytes(kib.saturating_mul(1024))),
        Some(_) | None => String::new(),
    };
    let swap = match host.swap_total {
        0 => "no swap".into(),
        total => format!("{} of {} of swap", phrases::bytes(host.swap_free), phrases::bytes(total)),
    };
    let free = format!("{} of {}", phrases::bytes(host.available), phrases::bytes(host.total));
    let load = f64::from(host.load) / 100.0;
    Some(format!("{rank}then free on the host: {free}, {swap}; load {load:.2}"))
}

/// The way out where only this host has the script of a rank.
fn script_hint(block: &mut Block, report: &Report, rank: Rank, around: &Around) {
    let Some(script) = around.script.as_ref().map(|script| quoted(script)) else { return };
    let there = report.ranks.get(rank.index()).map(|line| host(report, line.node)).unwrap_or_default();
    let text = format!("a copy of {script} on {there}, or a directory that all hosts share: {script} is only here");
    block.field("try", &text);
}

/// Whether a rank ended with the usage of numactl, which prints it where a CPU is not one of the process.
fn is_of_numactl(tail: &[u8]) -> bool {
    const USAGE: &[u8] = b"--cpunodebind or --physcpubind instead";
    tail.windows(USAGE.len()).any(|words| words == USAGE)
}

/// Ways out of the failure, one line each.
fn tries(
    block: &mut Block,
    report: &Report,
    (rank, status): (Rank, Status),
    out_of_memory: bool,
    store: Option<Holder>,
) {
    if out_of_memory {
        block.field("try", "fewer ranks on this host, or a higher memory limit");
    }
    if passed_on(report, status) {
        let signal = match status {
            Status::Signaled { sig, .. } => sig.to_string().trim_start_matches("SIG").to_owned(),
            Status::Exited(_) | Status::Lost => "USR1".to_owned(),
        };
        let runs_python = report.app(rank).is_some_and(|app| master_store::program(&app.argv) != Program::Other);
        let handler = if runs_python {
            format!("faulthandler.register(signal.SIG{signal}) in the program, which prints stacks; or py-spy dump")
        } else {
            format!(
                "if a script starts the program: exec it there, or let the script handle the signal (trap : {signal})"
            )
        };
        block.field("try", &handler);
    }
    if let Some(store) = store {
        block.field(
            "try",
            if store.is_agent() {
                "--master-store rank0, if the program opens a store of its own"
            } else {
                "--master-store agent, if rank 0 opens no store at MASTER_PORT"
            },
        );
    }
}

/// Whether a rank was killed by a signal that was sent to rlaunch and meant for the ranks.
fn passed_on(report: &Report, status: Status) -> bool {
    match status {
        Status::Signaled { sig, .. } => report.forwarded.contains(&sig),
        Status::Exited(_) | Status::Lost => false,
    }
}

/// The text `0 left running` needs a count.
pub(crate) fn left(left: Option<u32>) -> String {
    match left {
        Some(n) => format!("{n} left running"),
        None => "what is left could not be counted".into(),
    }
}

/// The same of a job; where only some hosts could not count, they are named.
fn left_of(report: &Report) -> String {
    let uncounted = report.uncounted();
    match report.left {
        None if !uncounted.is_empty() => {
            format!("what is left on {} could not be counted", host_messages::list(report, &uncounted))
        }
        known => left(known),
    }
}

/// The message in torch's error file: `{"message": {"message": …}}` or `{"message": …}`; else its first line.
pub(crate) fn message(file: &[u8]) -> Option<String> {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(file).ok();
    let text = match parsed.as_ref().map(|value| (&value["message"]["message"], &value["message"])) {
        Some((serde_json::Value::String(text), _) | (_, serde_json::Value::String(text))) => text.clone(),
        Some(_) | None => String::from_utf8_lossy(file).into_owned(),
    };
    let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(rlaunch_base::os_bytes::OsBytes::from(first).to_string())
}

/// A report under construction: a head, then lines that begin with a name.
pub(crate) struct Block {
    pub(crate) text: String,
}

/// Why all ranks were started again.
fn restart_cause(report: &Report, why: RestartCause, lived: Span) -> String {
    match why {
        RestartCause::Failed { node, lost: Some(Lost::Warned(_)), .. } => {
            format!("{} was taken away after {lived}", host(report, node))
        }
        RestartCause::Failed { node, lost: Some(_), .. } => format!("{} was lost after {lived}", host(report, node)),
        RestartCause::Failed { rank, node, status, lost: None } => {
            let on = if report.asked() > 1 { format!(" on {}", host(report, node)) } else { String::new() };
            format!("rank {rank}{on} had failed: {status} after {lived}")
        }
        RestartCause::Grown { size, running } => format!("{size} slices were up instead of {running}, after {lived}"),
    }
}

impl Block {
    pub(crate) const fn new(head: String) -> Self {
        Self { text: head }
    }

    pub(crate) fn field(&mut self, name: &str, value: &str) {
        let _infallible = writeln!(self.text, "  {name:<8} {value}");
    }

    fn exit(&mut self, exit: Ending) {
        self.field("exit", &exit.shell_code().to_string());
    }

    /// Hosts that were lost, apart from what the head names: first those that may have been before that.
    pub(crate) fn also(&mut self, report: &Report, cause: &Cause) {
        let (named, what) = if let Cause::Lost { node, lost } | Cause::Preempted { node, lost } = *cause {
            (alike(report, node, lost), ", and it is not known which was lost first")
        } else {
            (Vec::new(), ", without a heartbeat by then")
        };
        let others: Vec<NodeId> = report.together.iter().copied().filter(|other| !named.contains(other)).collect();
        if !others.is_empty() {
            self.field("also", &format!("{}{what}", host_messages::list(report, &others)));
        }
        for (lost, nodes) in report.other_losses() {
            self.field("also", &lost::on_hosts(report, &nodes, lost));
        }
    }

    /// How often all ranks were started again, and why; of many the last ones.
    fn restarts(&mut self, report: &Report) {
        const SHOWN: usize = 5;
        let most = report.start.as_ref().map_or(0, |start| start.restarts.most);
        let before = report.restarts.len().saturating_sub(SHOWN);
        if before > 0 {
            self.field("start", &format!("{before} more before these"));
        }
        for (restarted, n) in report.restarts.iter().zip(1_usize..).skip(before) {
            let Restarted { why, lived } = *restarted;
            let what = restart_cause(report, why, lived);
            // The first start is the launch. Only failures count for --max-restarts.
            let failures = report.restarts.iter().take(n).filter(|other| other.why.is_failure()).count();
            let used = if why.is_failure() { format!(" ({failures} of {most} restarts used)") } else { String::new() };
            self.field("start", &format!("{}: {what}{used}", n.saturating_add(1)));
        }
    }

    /// Hosts that the job did without.
    fn without(&mut self, report: &Report) {
        if !report.left_out.is_empty() {
            self.field("without", &host_messages::list(report, &report.left_out));
        }
    }

    /// Adds the fates of the ranks besides the first cause, and of the rest of the job.
    pub(crate) fn fates(&mut self, name: &str, report: &Report) {
        let alone = matches!(report.end, Some(End { cause: Cause::Rank { .. }, .. }));
        let groups = report.others();
        let mut parts: Vec<String> = groups.iter().map(|group| fate(group, alone, report)).collect();
        parts.extend(forgotten(report));
        if parts.is_empty() {
            parts.push("none".into());
        }
        parts.push(left_of(report));
        self.field(name, &parts.join("; "));
        self.leftovers(report);
    }

    /// By name, so that a user who can (root, the owner of a device) may end them.
    fn leftovers(&mut self, report: &Report) {
        for (i, leftover) in report.named.iter().enumerate() {
            let wchan = match leftover.wchan.is_empty() {
                true => String::new(),
                false => format!(" (waiting in {})", leftover.wchan),
            };
            let name = if i == 0 { "left" } else { "" };
            self.field(name, &format!("{} {}{wchan}", leftover.pid, leftover.comm));
        }
    }

    fn stderr(&mut self, tail: &[u8], most: usize) {
        // A full tail begins in the middle of a line.
        let whole = if tail.len() < TAIL { tail } else { tail.splitn(2, |b| *b == b'\n').last().unwrap_or(tail) };
        let lines: Vec<_> = whole.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
        let shown = lines.get(lines.len().saturating_sub(most)..).unwrap_or_default();
        for (i, line) in shown.iter().enumerate() {
            let name = match i {
                0 => "stderr".into(),
                1 => format!("(last {})", shown.len()),
                _ => String::new(),
            };
            let line = rlaunch_base::os_bytes::OsBytes::from(line.trim_ascii_end());
            // Two digits make the name one letter wider than its column.
            let _infallible = writeln!(self.text, "  {name:<8} | {line}");
        }
    }
}

/// The ranks of groups that ended long before the job.
fn forgotten(report: &Report) -> Option<String> {
    let Forgotten { ranks, failed, pending } = report.forgotten;
    let part = |count, word: &str| if count > 0 { format!(", {count} {word}") } else { String::new() };
    let all = format!("{} of earlier groups ended", phrases::count(ranks as u64, "rank"));
    (ranks > 0).then(|| all + &part(failed, "failed") + &part(pending, "never started"))
}

fn fate(group: &Group, after_a_rank: bool, report: &Report) -> String {
    let ranks = phrases::named_ranks(report, &group.ranks);
    let after = group.after;
    let by = report.scheduler().map_or("rlaunch".to_owned(), |scheduler| scheduler.to_string());
    match group.became {
        Became::Finished => format!("{ranks} finished"),
        Became::Failed(status) if after_a_rank => format!("{ranks} failed too: {status}"),
        Became::Failed(status) => format!("{ranks} failed: {status}"),
        Became::Stopped(sig) => format!("{ranks} stopped by {by} ({sig}, {after})"),
        Became::After(status, sig) => format!("{ranks} {status} after {sig} by {by} ({after})"),
        Became::Killed => format!("{ranks} killed by rlaunch (SIGKILL, {after})"),
        Became::GroupEnded => format!("{ranks} ended by order of the program that drives the group"),
        Became::TakenAlong => format!("{ranks} ended with it"),
        Became::NeverStarted if report.restarts.is_empty() => format!("{ranks} never started"),
        Became::NeverStarted => format!("{ranks} not started again"),
        Became::Ended => format!("{ranks} exited (status unknown)"),
        Became::EndedOrNeverStarted => format!("{ranks} ended, or were never started"),
        Became::NoContact => format!("{ranks} unknown (no contact)"),
    }
}

#[cfg(test)]
mod tests;
