//! Ending and counting what is left. We are a subreaper and everything descends from us, so `ECHILD` is the count 0.

use super::{Edges, convert, rank_table};
use crate::clock::now;
use crate::edges::part::Base;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_protocol::wire::to_root::Leftover;
use rlaunch_sys::children::{self, Named};
use rlaunch_sys::pidfd;

/// Time that a killed process may take to go before the machine gets a report that it is still there.
const PATIENCE: Span = Span::from_millis(20);

#[derive(Default)]
pub(super) struct Sweep {
    /// A sweep is under way, and answers by then.
    until: Option<Mono>,
}

impl Sweep {
    pub(super) fn deadline(&self) -> Option<Mono> {
        self.until
    }
}

/// Names what ranks have left behind, if anything.
pub(super) fn name_left(edges: &mut Edges) {
    let root = edges.base.watch.init.as_ref().map(|init| init.pid);
    // Its command is a child of ours.
    if root.is_none() && edges.parts.preempt_probe.is_running() {
        return;
    }
    let mut named = [Named { pid: 0, comm: [0; 16], wchan: [0; 40] }; 1];
    let (_, count) = children::survey_below(root, &mut named);
    let first = named.iter().map(convert::leftover).next().filter(|_| count > 0);
    let news = first.map(|Leftover { pid, comm, .. }| NodeNews::LeftEnded { count, pid, comm });
    edges.base.events.extend(news.map(NodeEvent::News));
}

/// Starts a sweep.
pub(super) fn begin(edges: &mut Edges) {
    edges.parts.preempt_probe.pause();
    if reap_all(edges) {
        return answer(edges, 0);
    }
    kill_everything(&mut edges.base);
    edges.sweep.until = Some(now() + PATIENCE);
    if reap_all(edges) {
        answer(edges, 0);
    }
}

fn kill_everything(base: &mut Base) {
    if let Some(port) = base.sandbox.spawn_port() {
        port.destroying();
    }
    match &base.watch.init {
        // Everything is in its namespace and goes with it.
        Some(init) if !base.watch.init_expected => {
            base.watch.init_expected = true;
            tracing::debug!("sweep: SIGKILL to init {}", init.pid);
            let _gone = pidfd::signal(&init.pidfd, rlaunch_sys::signals::KILL);
        }
        Some(_) | None => {
            tracing::debug!("sweep: SIGKILL to all that descends from us");
            children::kill_all();
        }
    }
}

/// A child of ours has ended: a stranger that became ours, a rank, or init.
pub(super) fn stirred(edges: &mut Edges) {
    if edges.sweep.until.is_none() {
        // Ranks belong to the spawn thread; what this thread may reap are strangers.
        while let Ok(Some(pid)) = pidfd::next_ended(true) {
            pidfd::reap_number(pid);
        }
        return;
    }
    if reap_all(edges) {
        answer(edges, 0);
    } else {
        // Children of what was killed are ours now.
        children::kill_all();
    }
}

/// The deadline of a sweep.
pub(super) fn poll(edges: &mut Edges, now: Mono) {
    if edges.sweep.until.is_some_and(|until| until <= now) {
        if reap_all(edges) {
            answer(edges, 0);
        } else {
            answer_with_survey(edges);
        }
    }
}

/// Reaps all that has ended; true if there is no child any more. How a rank has ended is kept for its report: it may have
/// crashed on its own just before it would have been killed.
fn reap_all(edges: &mut Edges) -> bool {
    if edges.parts.preempt_probe.is_running() {
        // Its thread reaps it, and rings.
        return false;
    }
    if edges.base.ranks.launching() {
        rank_table::drain_outcomes(&mut edges.base);
    }
    // The spawn thread has children that we do not know yet. They must not be reaped as if they were strangers.
    let only_strangers = edges.base.ranks.launching();
    let known = edges.base.ranks.by_number();
    loop {
        match pidfd::next_ended(only_strangers) {
            Ok(Some(pid)) => {
                if let Some(proc) = known.get(&pid) {
                    edges.base.ranks.keep_end(*proc);
                }
                pidfd::reap_number(pid);
            }
            Ok(None) => return false,
            Err(_) => return !only_strangers,
        }
    }
}

fn answer(edges: &mut Edges, count: u32) {
    tracing::debug!("sweep: {count} left");
    edges.sweep.until = None;
    edges.base.events.push_back(NodeEvent::Left { count, named: Vec::new() });
}

fn answer_with_survey(edges: &mut Edges) {
    let mut named = [Named { pid: 0, comm: [0; 16], wchan: [0; 40] }; 16];
    let (n, count) = children::kill_and_survey(&mut named);
    tracing::debug!("sweep: {count} left");
    edges.sweep.until = None;
    let named = named.iter().take(n).map(convert::leftover).collect();
    // A zombie between two looks is no process left, but not gone either.
    edges.base.events.push_back(NodeEvent::Left { count: count.max(1), named });
}
