//! Whether the other hosts are still there.
//!
//! A node lives on its lease: for so long after the reading of its own clock that the launcher repeated last. The launcher received that
//! reading after the node had made it. The launcher waits for the same time, and for as much as the node's clock may be slower. Without
//! another message in that time, the node has surely ended its ranks: only then it is called lost. Delays of messages do not matter to
//! this.
//!
//! While the job ends, the user reads which nodes do not answer, and how long they may be waited for.

use super::clock::{Offset, apart};
use super::notice::{EndingBegan, Notice};
use super::suspend_detector::SuspendDetector;
use super::{Cx, JobAction};
use crate::events::{CloseReason, JobNews, Lost, What};
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::deadlines::Deadlines;
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::earliest;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_node::ToNode;

/// Time that the scheduling of a guardian and the end of its ranks may take; more with long leases.
const MARGIN: Span = Span::from_secs(2);
/// A node's clock may be slower than ours by one part in this many.
const DRIFT: u64 = 100;
/// A host that still answers so long after the announcement of its suspension was not suspended. Slurm stops the processes 2 s after it.
pub(super) const STOPPED_BY: Span = Span::from_secs(5);
/// After the end of the grace, and from look to look at who does not answer.
const LOOK: Span = Span::from_secs(1);

/// The state of one node's lease.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The time of its last message. `None`: the node needs no lease, has none yet, or has ended.
    last_contact: Option<Mono>,
    /// The best estimate of its clock.
    best: Option<Offset>,
    /// Its last beat.
    last: Option<Beat>,
    /// Whether the user knows that the node is waited for.
    is_reported: bool,
    /// The scheduler has suspended the node: when that was announced, and until when it is not lost.
    held: Option<(Mono, Mono)>,
}

impl Known {
    const NEW: Self = Self { last_contact: None, best: None, last: None, is_reported: false, held: None };

    /// Takes the node's clock from a beat: our own reading, sent there and back. While it waited there it continued by the node's clock, at
    /// most since the beat before; one that has waited longer is the same as it was then.
    fn learns(&mut self, now: u64, beat: Beat) -> Option<Offset> {
        let last = self.last.replace(beat)?;
        let waited = beat.own.saturating_sub(last.own);
        let old = last.echo > 0 && beat.echo.saturating_sub(last.echo) == waited;
        // A reading from the future is a mistake, or comes from a fast clock.
        let trip = now.saturating_sub(beat.echo);
        if beat.echo == 0 || old || now.saturating_add(apart(waited).nanos()) < beat.echo {
            return None;
        }
        let error = Span::from_nanos(trip.div_ceil(2)) + apart(waited);
        let offset = Offset { host_clock: beat.own, launcher_clock: now - trip / 2, error };
        // The shortest trip knows best, until the clocks may have run apart by more than it was exact.
        let known = |old: &Offset| old.error + apart(now.saturating_sub(old.launcher_clock));
        if self.best.as_ref().is_some_and(|old| offset.error > known(old)) {
            return None;
        }
        self.best = Some(offset);
        self.best
    }
}

/// The leases.
#[derive(Debug)]
pub(super) struct Lease {
    /// From a node's last word to its loss.
    patience: Span,
    /// From a node's last word to the time at which it should have said something: one beat, which may be late.
    overdue: Span,
    /// How long the scheduler may suspend a node.
    suspend_limit: Span,
    nodes: Vec<Known>,
    due: Deadlines,
    suspend_detector: SuspendDetector,
    /// The ending has begun, and SIGKILL follows then.
    kill_at: Option<Mono>,
    /// When to look who does not answer.
    look: Option<Mono>,
}

/// Time after its last message at which a node with this lease has ended its ranks.
pub(super) fn patience(lease: Span) -> Span {
    let lease = lease.nanos();
    let margin = MARGIN.nanos().max(lease / 5);
    Span::from_nanos(lease.saturating_add(lease / DRIFT).saturating_add(margin))
}

impl Lease {
    pub(super) fn new(spec: &JobSpec) -> Self {
        let every = Beat::every(spec.settings.hosts.lease);
        let nodes = spec.placement.nodes.len();
        Self {
            patience: patience(spec.settings.hosts.lease),
            overdue: every + every + every,
            suspend_limit: spec.settings.hosts.suspend_limit,
            nodes: vec![Known::NEW; nodes],
            due: Deadlines::new(nodes),
            suspend_detector: SuspendDetector::new(spec.settings.hosts.lease, nodes),
            kill_at: None,
            look: None,
        }
    }

    /// Time after its last message at which a node has ended its ranks.
    pub(super) const fn patience(&self) -> Span {
        self.patience
    }

    /// Before anything else is done with what has happened.
    pub(super) fn observe_clock(&mut self, now: Mono) {
        self.suspend_detector.observe_clock(now, self.nodes.iter().map(|node| node.last_contact));
    }

    /// The cause of the loss of a node: if the launcher was suspended, the end of the lease is its own doing.
    pub(super) fn blame(&self, node: NodeId, lost: Lost) -> Lost {
        match lost {
            Lost::Agent(CloseReason::Eof | CloseReason::Failed { .. } | CloseReason::Carrier(..))
            | Lost::NoHeartbeat
            | Lost::Expired => self.suspend_detector.was_suspended(node).map_or(lost, Lost::Starved),
            Lost::Agent(CloseReason::Malformed | CloseReason::Slow)
            | Lost::AgentEarly
            | Lost::AgentMute
            | Lost::Starved(_)
            | Lost::Guardian
            | Lost::Init
            | Lost::Warned(_) => lost,
        }
    }

    /// The two moments between which a node was lost whose loss is reported now.
    pub(super) fn between(&self, now: Mono, node: NodeId, lost: Lost) -> (Mono, Mono) {
        let last_contact = self.nodes.get(node.index()).and_then(|known| known.last_contact).unwrap_or(now);
        // It would have said something by then.
        let silent = matches!(lost, Lost::NoHeartbeat | Lost::Expired | Lost::AgentMute);
        (last_contact, if silent { now.min(last_contact + self.overdue) } else { now })
    }

    pub(super) fn edge_up(&mut self, cx: &Cx<'_>, node: NodeId) {
        // The launcher's own host needs no lease.
        if !cx.facts.hosts.is_local(node) {
            self.on_message(node, Some(cx.now));
            self.look_later(cx.now);
        }
    }

    /// A heartbeat. Returns how the node's clock differs from ours, if that is known better now.
    pub(super) fn beat(&mut self, cx: &mut Cx<'_>, node: NodeId, beat: Beat) -> Option<Offset> {
        let known = self.nodes.get_mut(node.index()).filter(|node| node.last_contact.is_some())?;
        let now = cx.now.nanos();
        let offset = known.learns(now, beat);
        cx.act(JobAction::Beat { node, beat: Beat { own: now, echo: beat.own } });
        if known.held.is_some_and(|(since, _)| cx.now > since + STOPPED_BY) {
            known.held = None;
        }
        self.suspend_detector.beat(node, beat);
        self.on_message(node, Some(cx.now));
        offset
    }

    /// The scheduler is about to suspend a node, which does not answer then until it is resumed; or it has resumed the node.
    pub(super) fn on_host_suspended(&mut self, cx: &mut Cx<'_>, node: NodeId, is_over: bool) {
        let Some(known) = self.nodes.get_mut(node.index()).filter(|known| known.last_contact.is_some()) else { return };
        known.held = (!is_over).then(|| (cx.now, cx.now + self.suspend_limit));
        if !is_over {
            cx.act(JobAction::Send { node, msg: ToNode::HoldLease(self.suspend_limit) });
        }
        self.on_message(node, Some(cx.now));
    }

    /// From here on the user waits for all nodes to end.
    pub(super) fn on_ending_began(&mut self, cx: &Cx<'_>, began: &EndingBegan) {
        self.kill_at = Some(began.kill_at.unwrap_or(cx.now));
        self.look_later(cx.now);
    }

    /// SIGKILL was sent before the grace had expired.
    pub(super) fn killed(&mut self, cx: &Cx<'_>) {
        self.kill_at = self.kill_at.map(|at| at.min(cx.now));
    }

    /// Records that a node can no longer be ended from here: the user reads until when it does so by itself.
    pub(super) fn severed(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        if let Some(Known { last_contact: Some(last_contact), is_reported, .. }) = self.nodes.get_mut(node.index())
            && *last_contact + self.patience > cx.now
            && !core::mem::replace(is_reported, true)
        {
            let within = (*last_contact + self.patience).since(cx.now);
            cx.notify(Notice::Log(What::News(JobNews::HostAwaited { node, within })));
        }
    }

    /// A host is reached again: its clock may be another one.
    pub(super) fn revive(&mut self, node: NodeId) {
        self.due.set(node, None);
        self.nodes.iter_mut().skip(node.index()).take(1).for_each(|known| *known = Known::NEW);
        self.suspend_detector.revive(node);
    }

    /// A node that has reported what remains, or will not, is not waited for.
    pub(super) fn node_over(&mut self, node: NodeId) {
        self.on_message(node, None);
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        if self.look.is_some_and(|at| at <= cx.now) {
            self.look(cx);
        }
        while let Some(node) = self.due.pop(cx.now) {
            cx.act(JobAction::CloseEdge { node });
            cx.notify(Notice::MissedLease(node));
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let due = self.due.next()?;
        earliest(Some(due.min(self.suspend_detector.deadline())), self.look)
    }

    /// Reports nodes that do not answer: after SIGKILL should have ended them, or when the job waits for nothing else.
    fn look(&mut self, cx: &mut Cx<'_>) {
        let (now, overdue) = (cx.now, self.overdue);
        let waited = self.nodes.iter_mut().zip((0..).map(NodeId::new));
        let waited = waited.filter_map(|(known, node)| Some((known.last_contact?, known, node)));
        let (mut silent, others): (Vec<_>, Vec<_>) =
            waited.partition(|(last_contact, ..)| *last_contact + overdue <= now);
        if others.is_empty() || self.kill_at.is_some_and(|at| at + LOOK <= now) {
            silent.retain_mut(|(_, known, _)| !core::mem::replace(&mut known.is_reported, true));
            if let Some(last) = silent.iter().map(|(last_contact, ..)| *last_contact).max() {
                let nodes = silent.iter().map(|(.., node)| *node).collect();
                let within = (last + self.patience).since(now);
                cx.notify(Notice::Log(What::News(JobNews::HostsSilent { nodes, within })));
            }
        }
        self.look_later(now);
    }

    /// Looks again later while there are nodes that the user may have to know of.
    fn look_later(&mut self, now: Mono) {
        let open = |known: &Known| known.last_contact.is_some() && !known.is_reported;
        let look = self.kill_at.is_some() && self.nodes.iter().any(open);
        self.look = look.then_some(now + LOOK);
    }

    fn on_message(&mut self, node: NodeId, last_contact: Option<Mono>) {
        if let Some(known) = self.nodes.get_mut(node.index()) {
            known.last_contact = last_contact;
            let held = known.held.map_or(Mono::default(), |(_, until)| until);
            self.due.set(node, last_contact.map(|at| held.max(at) + self.patience));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_that_only_waited_longer_does_not_improve_the_offset() {
        let ms = |n: u64| n * 1_000_000;
        let beat = |own, echo| Beat { own: ms(own), echo: ms(echo) };
        let mut node = Known::NEW;
        assert_eq!(node.learns(ms(10), beat(1_000, 0)), None, "nobody there knows our clock yet");
        // It may have waited there since the beat before: two clocks run apart by 1 ms in that second.
        let known = node.learns(ms(1_010), beat(2_000, 1_008));
        let expected = Offset { host_clock: ms(2_000), launcher_clock: ms(1_009), error: Span::from_millis(2) };
        assert_eq!(known, Some(expected));
        assert_eq!(node.learns(ms(2_030), beat(3_000, 2_008)), None, "nothing of ours came there since");
    }
}
