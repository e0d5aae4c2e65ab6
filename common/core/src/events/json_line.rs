//! Records as lines of NDJSON: which fields each of them has, under which names. docs/reference/events.md describes the same for readers.

mod losses;

use super::{Answer, AppLine, Cause, JobStart, Record, RestartCause, SlicesTaken, VERSION, What, WorldLine};
use super::{news, round_fields};
use crate::errno::EPIPE;
use crate::exit::Ending;
use crate::guard::devices::DeviceHolder;
use crate::id::{NodeId, Rank, Std};
use crate::json::{Object, push_bytes, push_number};
use crate::os_bytes::OsBytes;
use crate::signal::Signal;
use crate::spec::{Contain, OnFailure, Tier};
use crate::status::Status;
use crate::time::Span;
use crate::wire::node_news;
use crate::wire::to_root::{Facts, Found, Hello, HostUse, Leftover, NodeRefusal, SpawnError, SpawnStep, Tried, Usage};
use alloc::format;
use alloc::string::{String, ToString as _};
pub(super) use losses::lost;

/// Returns one line of the event log, with its newline.
#[must_use]
pub fn line(record: &Record) -> String {
    let mut text = String::with_capacity(160);
    let mut object = Object::open(&mut text);
    object.number("v", VERSION.into());
    object.number("t", record.t.nanos());
    object.number("wall", record.wall.0);
    what(&mut object, &record.what);
    generation(&mut object, record);
    object.close();
    text.push('\n');
    text
}

fn what(o: &mut Object<'_>, what: &What) {
    match what {
        What::JobStart(start) => job_start(o, start),
        What::HostReady { node, hello } => host_ready(o, node.get(), hello),
        What::HostRefused { .. } | What::HostFailed { .. } | What::HostLost { .. } | What::HostDone { .. } => {
            host(o, what);
        }
        What::LeftOut { nodes, world_size, procs, is_known: _ } => left_out(o, nodes, *world_size, procs),
        What::Slices(taken) => slices(o, taken),
        What::Together { nodes } => together(o, nodes),
        What::WorldStart(line) => world_start(o, line),
        What::RankStarted { .. } | What::RankFailed { .. } | What::RankExited { .. } | What::RankFacts { .. } => {
            rank(o, what);
        }
        What::Signal { sig, answer } => signal(o, *sig, *answer),
        What::Ending { cause, sent, grace, ranks: _ } => {
            o.text("ev", "ending");
            o.object("cause", |o| self::cause(o, cause));
            match sent {
                Some(sig) => o.text("sent", &format!("{sig}")),
                None => o.null("sent"),
            }
            o.number("grace", grace.nanos());
        }
        What::Clearing { .. } | What::Restart { .. } => between(o, what),
        What::Round { note, node: _ } => round_fields::round(o, note),
        What::RoundsOver(given) => round_fields::over(o, given),
        What::StreamEnd { rank, std, total } => {
            o.text("ev", "stream.end");
            o.number("rank", rank.get().into());
            o.text("stream", self::std(*std));
            o.number("total", *total);
        }
        What::SinkLost { std, errno, end: _ } => {
            o.text("ev", "sink.lost");
            o.text("stream", self::std(*std));
            o.signed("errno", errno.unwrap_or(EPIPE));
        }
        What::OutputEnd { lost, broken } => {
            o.text("ev", "output.end");
            o.number("lost", *lost);
            o.number("broken", *broken);
        }
        What::FileLost { rank, std, bytes } => file_lost(o, *rank, *std, *bytes),
        What::News(news) => news::fields(o, news),
        What::NodeNews { node, news } => news.write_line(*node, o),
        What::LogLost { records } => {
            o.text("ev", "log.lost");
            o.number("records", *records);
        }
        What::JobEnd { cause, exit, left, launch, never_started } => {
            o.text("ev", "job.end");
            o.object("cause", |o| self::cause(o, cause));
            self::exit(o, *exit);
            o.maybe("left", left.map(u64::from));
            o.maybe("launch", launch.map(Span::nanos));
            o.maybe("never_started", never_started.map(u64::from));
        }
    }
}

fn signal(o: &mut Object<'_>, sig: Signal, answer: Answer) {
    o.text("ev", "signal");
    o.text("signal", &format!("{sig}"));
    o.text("answer", self::answer(answer));
}

fn exit(o: &mut Object<'_>, exit: Ending) {
    o.number("exit", exit.shell_code().into());
    match exit {
        Ending::Code(_) => o.null("raise"),
        Ending::Signal(sig) => o.text("raise", &format!("{sig}")),
    }
}

/// Which of the processes that have played a rank one after the other is meant.
fn generation(o: &mut Object<'_>, record: &Record) {
    match record.what {
        What::RankStarted { .. }
        | What::RankFailed { .. }
        | What::RankExited { .. }
        | What::RankFacts { .. }
        | What::StreamEnd { .. }
        | What::FileLost { .. } => {
            o.number("generation", record.generation.into());
            if let Some(round) = record.round {
                o.number("round", round.get().into());
            }
        }
        What::Round { .. } | What::RoundsOver(_) => o.number("generation", record.generation.into()),
        What::JobStart(_)
        | What::HostReady { .. }
        | What::HostRefused { .. }
        | What::HostFailed { .. }
        | What::HostLost { .. }
        | What::HostDone { .. }
        | What::LeftOut { .. }
        | What::Slices(_)
        | What::Together { .. }
        | What::WorldStart(_)
        | What::Signal { .. }
        | What::Ending { .. }
        | What::Clearing { .. }
        | What::Restart { .. }
        | What::SinkLost { .. }
        | What::OutputEnd { .. }
        | What::News(_)
        | What::NodeNews { .. }
        | What::LogLost { .. }
        | What::JobEnd { .. } => {}
    }
}

fn slices(o: &mut Object<'_>, taken: &SlicesTaken) {
    let SlicesTaken { slices, spares, wanted_spares: _, world_size, procs, is_news: _ } = taken;
    o.text("ev", "slices");
    let names = |o: &mut Object<'_>, name: &str, all: &[OsBytes]| {
        o.array(name, all, |text, slice| push_bytes(text, slice));
    };
    names(o, "slices", slices);
    names(o, "spares", spares);
    o.number("world_size", (*world_size).into());
    o.array("procs", procs, |text, procs| push_number(text, *procs));
}

fn between(o: &mut Object<'_>, what: &What) {
    if let What::Clearing { why, grace } = what {
        o.text("ev", "clearing");
        restart_cause(o, *why, false);
        o.number("grace", grace.nanos());
    }
    if let What::Restart { restart, why, lived, delay, fewer: _ } = what {
        o.text("ev", "restart");
        o.number("generation", (*restart).into());
        restart_cause(o, *why, true);
        o.number("lived", lived.nanos());
        o.number("delay", delay.nanos());
    }
}

/// The cause of a restart. `has_node`: with the host of the rank.
fn restart_cause(o: &mut Object<'_>, why: RestartCause, has_node: bool) {
    match why {
        RestartCause::Failed { rank, node, status, lost } => {
            o.number("rank", rank.get().into());
            if has_node {
                o.number("node", node.get().into());
            }
            match lost {
                Some(lost) => self::lost(o, lost),
                None => self::status(o, status),
            }
        }
        RestartCause::Grown { size, running } => {
            o.number("size", size.into());
            o.number("running", running.into());
        }
    }
}

fn left_out(o: &mut Object<'_>, nodes: &[NodeId], world_size: u32, procs: &[u32]) {
    o.text("ev", "hosts.left_out");
    o.array("nodes", nodes, |text, node| push_number(text, node.get()));
    o.number("world_size", world_size.into());
    o.array("procs", procs, |text, procs| push_number(text, *procs));
}

fn file_lost(o: &mut Object<'_>, rank: Rank, std: Std, bytes: u64) {
    o.text("ev", "file.lost");
    o.number("rank", rank.get().into());
    o.text("stream", self::std(std));
    o.number("bytes", bytes);
}

fn together(o: &mut Object<'_>, nodes: &[NodeId]) {
    o.text("ev", "hosts.together");
    o.array("nodes", nodes, |text, node| push_number(text, node.get()));
}

fn world_start(o: &mut Object<'_>, line: &WorldLine) {
    o.text("ev", "world.start");
    o.number("world", line.world.get().into());
    o.bytes("group", &line.group);
    o.number("first", line.first.get().into());
    o.maybe("rank", line.asker.map(|rank| rank.get().into()));
    o.array("apps", &line.apps, app);
}

fn job_start(o: &mut Object<'_>, start: &JobStart) {
    o.text("ev", "job.start");
    o.bytes("version", &start.version);
    o.text("job", &format!("{}", start.job));
    o.bytes("host", &start.host);
    o.number("world_size", start.world_size.into());
    let contain = match start.contain {
        Contain::Auto => "auto",
        Contain::T1 => "t1",
        Contain::T3 => "t3",
        Contain::Strict => "strict",
    };
    o.text("contain", contain);
    let on_failure = match start.on_failure {
        OnFailure::Kill => "kill",
        OnFailure::Continue => "continue",
    };
    o.text("on_failure", on_failure);
    o.number("grace", start.grace.nanos());
    o.maybe("timeout", start.timeout.map(Span::nanos));
    o.number("max_restarts", start.restarts.most.into());
    o.maybe("min_hosts", start.min_hosts.map(u64::from));
    o.object("store", |o| {
        o.text("by", start.master_store.word());
        o.text("why", start.master_store.code());
    });
    o.array("apps", &start.apps, app);
    o.array("hosts", &start.hosts, |text, host| push_bytes(text, host));
}

fn app(text: &mut String, app: &AppLine) {
    let mut o = Object::open(text);
    o.number("procs", app.procs.into());
    if !app.group.is_empty() {
        o.bytes("group", &app.group);
    }
    o.array("argv", &app.argv, push_bytes);
    match &app.wdir {
        Some(wdir) => o.bytes("wdir", wdir),
        None => o.null("wdir"),
    }
    o.number("bytes", app.bytes);
    o.number("longest", app.longest);
    o.close();
}

fn host_ready(o: &mut Object<'_>, node: u32, hello: &Hello) {
    o.text("ev", "host.ready");
    o.number("node", node.into());
    let tier = match hello.tier {
        Tier::T1 => "t1",
        Tier::T3 => "t3",
    };
    o.text("tier", tier);
    o.bytes("note", &hello.note);
    o.number("agent", hello.agent.into());
    o.maybe("init", hello.init.map(u64::from));
    o.number("master_port", hello.master_port.into());
    o.flag("port_reserved", hello.port_reserved);
}

fn host(o: &mut Object<'_>, what: &What) {
    if let What::HostRefused { node, why } = what {
        o.text("ev", "host.refused");
        o.number("node", node.get().into());
        refusal(o, why);
    }
    if let What::HostFailed { node, why } = what {
        o.text("ev", "host.failed");
        o.number("node", node.get().into());
        o.bytes("why", &why.why);
        o.bytes("words", &why.words);
    }
    if let What::HostLost { node, lost } = what {
        o.text("ev", "host.lost");
        o.number("node", node.get().into());
        self::lost(o, *lost);
    }
    if let What::HostDone { node, left, named } = what {
        o.text("ev", "host.done");
        o.number("node", node.get().into());
        o.maybe("left", left.map(u64::from));
        o.array("named", named, leftover);
    }
}

fn leftover(text: &mut String, leftover: &Leftover) {
    let mut o = Object::open(text);
    o.number("pid", leftover.pid.into());
    o.bytes("comm", &leftover.comm);
    o.bytes("wchan", &leftover.wchan);
    o.close();
}

fn rank(o: &mut Object<'_>, what: &What) {
    if let What::RankStarted { rank, node, local_rank, group, pid, at } = what {
        o.text("ev", "rank.started");
        o.number("rank", rank.get().into());
        o.number("node", node.get().into());
        o.number("local_rank", local_rank.get().into());
        if let Some((group, rank)) = group {
            o.bytes("group", group);
            o.number("group_rank", rank.get().into());
        }
        o.number("pid", (*pid).into());
        o.number("at", at.nanos());
    }
    if let What::RankFailed { rank, node, error, tried: _ } = what {
        o.text("ev", "rank.failed");
        o.number("rank", rank.get().into());
        spawn_error(o, error);
        o.number("node", node.get().into());
    }
    if let What::RankExited { rank, status, at, alive_at, asked, usage } = what {
        o.text("ev", "rank.exited");
        o.number("rank", rank.get().into());
        self::status(o, *status);
        o.number("at", at.nanos());
        o.number("alive_at", alive_at.nanos());
        o.flag("asked", *asked);
        let Usage { user_us, system_us, max_rss_kib } = *usage;
        o.number("user_us", user_us);
        o.number("system_us", system_us);
        o.number("max_rss_kib", max_rss_kib);
    }
    if let What::RankFacts { rank, facts } = what {
        o.text("ev", "rank.facts");
        o.number("rank", rank.get().into());
        self::facts(o, facts);
    }
}

fn facts(o: &mut Object<'_>, facts: &Facts) {
    let Facts { tail, core, oom_limit, error_file, late, host } = facts;
    o.bytes("tail", tail);
    match core {
        Some(path) => o.bytes("core_file", path),
        None => o.null("core_file"),
    }
    o.maybe("oom_limit", *oom_limit);
    match error_file {
        Some(text) => o.bytes("error_file", text),
        None => o.null("error_file"),
    }
    o.flag("late", *late);
    if let Some(HostUse { available, total, swap_free, swap_total, load }) = *host {
        o.number("memory_available", available);
        o.number("memory_total", total);
        o.number("swap_free", swap_free);
        o.number("swap_total", swap_total);
        o.number("load_percent", load.into());
    }
}

pub(super) fn status(o: &mut Object<'_>, status: Status) {
    match status {
        Status::Exited(code) => o.number("code", code.into()),
        Status::Signaled { sig, core } => {
            o.text("signal", &format!("{sig}"));
            o.flag("core", core);
        }
        Status::Lost => o.flag("lost", true),
    }
}

fn spawn_error(o: &mut Object<'_>, error: &SpawnError) {
    let step = match error.step {
        SpawnStep::Pipes => "pipes",
        SpawnStep::Clone => "clone",
        SpawnStep::MountProc => "mount_proc",
        SpawnStep::Session => "session",
        SpawnStep::Streams => "streams",
        SpawnStep::ChangeDir => "chdir",
        SpawnStep::Limits => "limits",
        SpawnStep::LogDirectory => "log_dir",
        SpawnStep::Gpus => "gpus",
        SpawnStep::Devices => "devices",
        SpawnStep::Exec => "exec",
    };
    o.text("step", step);
    o.signed("errno", error.errno);
    o.bytes("path", &error.path);
    match error.found {
        Found::Nothing => {}
        Found::Dir => o.text("is", "dir"),
        Found::Empty => o.text("is", "empty"),
        Found::File => o.text("is", "file"),
    }
}

fn refusal(o: &mut Object<'_>, why: &NodeRefusal) {
    match why {
        NodeRefusal::Contain { errno, step } => {
            o.text("why", "contain");
            o.signed("errno", *errno);
            o.bytes("step", step);
        }
        NodeRefusal::Resource { errno, step } => {
            o.text("why", "resource");
            o.signed("errno", *errno);
            o.bytes("step", step);
        }
        NodeRefusal::NoPort => o.text("why", "no_port"),
        NodeRefusal::PortTaken { port, job, agent } => {
            o.text("why", "port_taken");
            o.number("port", (*port).into());
            o.bytes("job", job);
            o.maybe("agent", agent.map(u64::from));
        }
        NodeRefusal::NoStore { errno, at } => {
            o.text("why", "no_store");
            o.signed("errno", *errno);
            o.bytes("at", at);
        }
        NodeRefusal::MasterAddr { addr, is_loopback, has } => {
            o.text("why", "master_addr");
            o.bytes("addr", addr);
            o.flag("loopback", *is_loopback);
            o.bytes("has", has);
        }
        NodeRefusal::NoInterface { name, has } => {
            o.text("why", "no_interface");
            o.bytes("name", name);
            o.bytes("has", has);
        }
        NodeRefusal::NoWay { to, interface, tried } => {
            o.text("why", "no_way");
            o.bytes("to", to);
            places(o, interface, tried);
        }
        NodeRefusal::Alone { interface, tried } => {
            o.text("why", "alone");
            places(o, interface, tried);
        }
        NodeRefusal::Program { app, error } => {
            o.text("why", "program");
            o.number("app", app.get().into());
            spawn_error(o, error);
        }
        NodeRefusal::Gpus { each, needed, has } => gpus(o, *each, *needed, *has),
        NodeRefusal::Bind(error) => unusable(o, "bind", error),
        NodeRefusal::Slices(error) => unusable(o, "slices", error),
        NodeRefusal::Devices { holders, more, hidden } => devices(o, holders, *more, hidden),
        NodeRefusal::DevicesUnknown { limit } => {
            o.text("why", "devices_unknown");
            o.number("waited", limit.nanos());
        }
        NodeRefusal::Protocol => o.text("why", "protocol"),
    }
}

fn gpus(o: &mut Object<'_>, each: u32, needed: u32, has: Option<u32>) {
    o.text("why", "gpus");
    o.number("each", each.into());
    o.number("needed", needed.into());
    o.maybe("has", has.map(u64::from));
}

fn devices(o: &mut Object<'_>, holders: &[DeviceHolder], more: u32, hidden: &OsBytes) {
    o.text("why", "devices");
    o.array("holders", holders, |text, holder| {
        let mut o = Object::open(text);
        node_news::device_holder(&mut o, holder);
        o.close();
    });
    o.number("more", more.into());
    o.bytes("hidden", hidden);
}

fn unusable(o: &mut Object<'_>, why: &str, error: &dyn core::error::Error) {
    o.text("why", why);
    o.text("error", &error.to_string());
}

fn places(o: &mut Object<'_>, interface: &OsBytes, tried: &[Tried]) {
    o.bytes("interface", interface);
    o.array("tried", tried, |text, one| {
        let mut o = Object::open(text);
        o.bytes("at", &one.at);
        o.signed("errno", one.errno);
        o.close();
    });
}

pub(super) fn cause(o: &mut Object<'_>, cause: &Cause) {
    o.text("kind", cause.word());
    match cause {
        Cause::Success => {}
        Cause::Rank { rank, status } => {
            o.number("rank", rank.get().into());
            self::status(o, *status);
        }
        Cause::Lead { rank } => o.number("rank", rank.get().into()),
        Cause::Spawn { rank, error } => {
            o.number("rank", rank.get().into());
            spawn_error(o, error);
        }
        Cause::Refused { node, why } => {
            o.number("node", node.get().into());
            refusal(o, why);
        }
        Cause::Unreachable { node, failed, asked } => {
            o.number("node", node.get().into());
            o.number("failed", (*failed).into());
            o.number("asked", (*asked).into());
        }
        Cause::Signal(sig) => o.text("signal", &format!("{sig}")),
        Cause::Scheduler { scheduler, sig, why } => {
            o.text("scheduler", &format!("{scheduler}"));
            o.text("signal", &format!("{sig}"));
            if let Some(why) = why {
                o.text("reason", why.word());
            }
        }
        Cause::Timeout(limit) => o.number("limit", limit.nanos()),
        Cause::ReaderClosed(std) => o.text("stream", self::std(*std)),
        Cause::Lost { node, lost } | Cause::Preempted { node, lost } => {
            o.number("node", node.get().into());
            self::lost(o, *lost);
        }
        Cause::TooFewSlices { asked, up } => {
            o.array("asked", asked, |text, size| push_number(text, *size));
            o.number("up", (*up).into());
        }
    }
}

const fn std(std: Std) -> &'static str {
    match std {
        Std::In => "stdin",
        Std::Out => "stdout",
        Std::Err => "stderr",
    }
}

const fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Forwarded => "forwarded",
        Answer::Ended | Answer::Noted { .. } | Answer::Unwritten { .. } => "ended",
        Answer::Killed => "killed",
        Answer::Left => "left",
        Answer::Ignored => "ignored",
    }
}

#[cfg(test)]
mod tests;
