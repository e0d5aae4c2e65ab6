//! The steps of a job as diagnostics, for a user who watches a launch (`-vv`): the records of the event log, in words.

use crate::view::phrases;
use rlaunch_base::id::NodeId;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::Span;
use rlaunch_core::events::{Cause, JobStart, Record, What};
use tracing::debug;

/// Says what a record is about. Arguments and environments are only counted: diagnostics end up in tickets.
pub(super) fn record(record: &Record, own: &str, hosts: &[String]) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let host = |node: &NodeId| hosts.get(node.index()).map_or("a host", String::as_str);
    match &record.what {
        What::JobStart(start) => job_start(start, own),
        What::HostReady { node, hello } => {
            let host = host(node);
            let init = hello.init.map_or_else(String::new, |init| format!(", init {init}"));
            let port = match (hello.master_port, hello.port_reserved) {
                (0, _) => "MASTER_PORT is yours".to_owned(),
                (port, true) => format!("MASTER_PORT {port}, reserved"),
                (port, false) => format!("MASTER_PORT {port}, not reserved"),
            };
            debug!("{host} is ready: agent {}{init}, containment {}, {port}", hello.agent, phrases::tier(hello.tier));
        }
        What::HostFailed { node, why } => debug!("{} cannot be reached: {why:?}", host(node)),
        What::HostRefused { node, why } => debug!("{} refuses: {why:?}", host(node)),
        What::HostLost { node, lost } => debug!("{}: lost: {lost:?}", host(node)),
        What::LeftOut { nodes, world_size, .. } => {
            debug!("{} hosts are left out, and {world_size} ranks are started", nodes.len());
        }
        What::Slices(taken) => debug!("ranks start on slices: {taken:?}"),
        What::Together { nodes } => debug!("of {} hosts nobody can tell which was lost first", nodes.len()),
        What::HostDone { node, left, .. } => debug!("{} is done: {}", host(node), crate::view::report::left(*left)),
        What::RankStarted { rank, node, pid, at, .. } => {
            debug!("rank {rank} runs on {}: pid {pid}, {at} after the start", host(node));
        }
        What::RankFailed { rank, node, error, .. } => {
            debug!("rank {rank} was not started on {}: {error:?}", host(node))
        }
        What::RankExited { rank, status, at, .. } => debug!("rank {rank} has ended: {status}, at {at}"),
        What::RankFacts { rank, facts } => debug!("rank {rank} left behind: {facts:?}"),
        What::Signal { sig, answer } => debug!("got {sig}: {answer:?}"),
        What::Ending { cause, sent, grace, .. } => ending(cause, *sent, *grace),
        what @ (What::Clearing { .. } | What::Restart { .. }) => between(what),
        What::Round { note, .. } => debug!("rounds: {note:?}"),
        What::RoundsOver(given) => debug!("rounds are over: {given:?}"),
        what @ (What::StreamEnd { .. } | What::FileLost { .. }) => stream(what),
        What::SinkLost { std, errno, .. } => debug!("our {} is lost: errno {errno:?}", phrases::std(*std)),
        What::WorldStart(line) => debug!("world {} begins: {} programs", line.group, line.apps.len()),
        What::News(news) => debug!("{news:?}"),
        What::NodeNews { node, news } => debug!("{}: {news:?}", host(node)),
        // This record is made where the log is written, and never comes here.
        What::LogLost { records } => debug!("{records} records are missing in the event log"),
        What::OutputEnd { lost, .. } => debug!("all output is written, {lost} bytes are lost"),
        What::JobEnd { exit, launch, never_started, .. } => {
            let launch = launch.map_or_else(|| "incomplete".to_owned(), |at: Span| at.to_string());
            let never = never_started.map_or_else(|| "an unknown number".to_owned(), |n| n.to_string());
            debug!("the job ends with {exit:?}: launch {launch}, {never} of the ranks never started");
        }
    }
}

fn job_start(start: &JobStart, own: &str) {
    let (ranks, apps) = (start.world_size, start.apps.len());
    let (contain, pid) = (start.contain, std::process::id());
    debug!("{own}: launcher {pid} starts job {}: {ranks} ranks of {apps} programs, --contain {contain:?}", start.job);
    debug!("{}", crate::view::map::store(start.master_store));
}

/// The job ends.
fn ending(cause: &Cause, sent: Option<Signal>, grace: Span) {
    let sent = sent.map_or_else(|| "SIGKILL".to_owned(), |sig| sig.to_string());
    debug!("the ending begins, {sent} to all ranks, grace {}: {cause:?}", phrases::wait(grace));
}

/// All ranks are started again.
fn between(what: &What) {
    if let What::Clearing { why, grace } = what {
        debug!("all ranks are ended, grace {}: {why:?}", phrases::wait(*grace));
    }
    if let What::Restart { restart, why, delay, .. } = what {
        debug!("start {} in {}: {why:?}", restart.saturating_add(1), phrases::wait(*delay));
    }
}

/// A stream that has ended, and log files that do not have everything.
fn stream(what: &What) {
    if let What::StreamEnd { rank, std, total } = what {
        debug!("rank {rank}: {} has ended after {total} bytes", phrases::std(*std));
    }
    if let What::FileLost { rank, std, bytes } = what {
        debug!("rank {rank}: {bytes} bytes of {} are in no file", phrases::std(*std));
    }
}
