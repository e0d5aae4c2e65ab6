//! The edges to the agents of all nodes, and what keeps each of them: the guardian of this host, a carrier to another.

use super::guardian::Guardian;
use super::ready::Ready;
use super::remote::Remote;
use super::{now, why};
use crate::bootstrap::BootstrapEvent;
use crate::view::phrases;
use rlaunch_base::id::NodeId;
use rlaunch_base::machine::earliest;
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_base::signal::Signal;
use rlaunch_base::time::{Mono, Span};
use rlaunch_core::events::CloseReason;
use rlaunch_core::job::{GuardianEnd, JobEvent};
use rlaunch_net::{Closed, Connection, Early, Frame, Overflow};
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierKind, HostFailure, Stage, Target, Up};
use rlaunch_protocol::stream::turn::Broken;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::guardian_count::Last;
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_protocol::wire::to_root::ToRoot;
use rlaunch_sys::guardian::Lifeline;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};

/// How much later than its streams a carrier itself may end.
const CARRIER_END: Span = Span::from_secs(1);

/// An edge.
enum Link {
    /// Its agent is not there yet.
    Absent,
    Live(Box<Connection<ToRoot>>),
    Gone,
}

/// A node.
struct Node {
    link: Link,
    /// Most bytes that it may send before any of them is written.
    credit: u64,
    /// How its carrier (ssh, srun or a command) has ended, and its last words.
    ended: Option<(CarrierEnd, OsBytes)>,
    /// Its carrier or its guardian has ended: what was written before is all there, though the runtime may not have seen it.
    unkept: bool,
    /// The process here that keeps the edge to another host, and ends when that does.
    keeper: Option<CarrierKind>,
}

/// An edge that has ended for this reason. Until then its carrier may end too, and write more.
struct Closing {
    id: NodeId,
    why: CloseReason,
    /// Bytes of another host that are no message.
    stray: OsBytes,
    until: Mono,
}

/// Whether the end of the carrier is the reason for the end of an edge. srun exits with 137 if a task was killed.
const fn is_abnormal(why: CloseReason, keeper: CarrierKind, end: CarrierEnd) -> bool {
    let is_by_end = match end {
        CarrierEnd::Signal(_) | CarrierEnd::Code(255) => true,
        CarrierEnd::Code(code) => matches!(keeper, CarrierKind::Srun) && code == Signal::KILL.exit_code(),
    };
    is_by_end && matches!(why, CloseReason::Eof | CloseReason::Failed { .. })
}

/// All nodes.
pub(super) struct Nodes {
    list: Vec<Node>,
    ready: Ready,
    /// Something may wait to be written to them.
    dirty: Vec<NodeId>,
    closing: Vec<Closing>,
    /// The guardian of the launcher's own host. Elsewhere the edge is the lifeline.
    guardian: Option<(NodeId, Guardian)>,
    /// The guardian of this host, if the host has no ranks. The guardian ends at once, and is reaped with the job.
    unused: Option<Lifeline>,
    /// Its end, to be reported after the agent's last messages.
    parted: Option<GuardianEnd>,
    remote: Remote,
    /// How far hosts have come that are being reached.
    stages: Vec<(NodeId, Stage)>,
}

impl Nodes {
    /// `local` is the node that is the launcher's own host, whose agent exists already. If this host has no ranks, its guardian and agent
    /// end with their streams.
    /// `credit` is what each node may send at first. `events` gets the time by which this host is to be ready.
    pub(super) fn new(
        credit: &[u64],
        (local, edge, lifeline): (Option<NodeId>, OwnedFd, Lifeline),
        remote: Remote,
        events: &mut VecDeque<JobEvent>,
    ) -> io::Result<Self> {
        let mut list: Vec<Node> = credit
            .iter()
            .map(|credit| Node { link: Link::Absent, credit: *credit, ended: None, unkept: false, keeper: None })
            .collect();
        let mut guardian = None;
        let mut unused = None;
        if let Some(id) = local
            && let Some(node) = list.get_mut(id.index())
        {
            let mut link = Early::new(UnixStream::from(edge));
            let _empty_yet = link.grant(id, node.credit);
            node.link = Link::Live(Box::new(link.into_connection().map_err(|(_, error)| error)?));
            guardian = Some((id, Guardian::new(lifeline)?));
            let ready_by = |limit| JobEvent::ReadyBy { node: id, at: now() + limit, limit };
            events.extend(remote.limit.map(ready_by));
        } else {
            // The agent ends with its edge. Waiting for both would hold up the start of other hosts.
            drop(edge);
            lifeline.shut();
            unused = Some(lifeline);
        }
        let ready = Ready::new(list.len());
        (0..).map(NodeId::new).take(list.len()).for_each(|id| ready.mark(id));
        Ok(Self {
            unused,
            ready,
            list,
            dirty: Vec::new(),
            closing: Vec::new(),
            guardian,
            parted: None,
            remote,
            stages: Vec::new(),
        })
    }

    /// Nodes whose edges have to be looked at, and are: what can be written now is. First, because input waits for room: room that is
    /// made after the check wakes no task.
    pub(super) fn begin(&mut self, cx: &Context<'_>) -> Vec<NodeId> {
        let ready = self.ready.take(cx);
        ready.iter().for_each(|id| self.poll_flush(*id));
        ready
    }

    /// The next frame of a node; `None`: nothing more for now.
    pub(super) fn poll_recv(&mut self, id: NodeId) -> Option<Frame<ToRoot>> {
        let node = self.list.get_mut(id.index())?;
        let Link::Live(link) = &mut node.link else { return None };
        let next = match link.poll_recv(&mut self.ready.context(id)?) {
            Poll::Ready(next) => next.map(Some),
            Poll::Pending if node.unkept => link.recv_now(),
            Poll::Pending => return None,
        };
        let (why, stray) = match next {
            Ok(Some(frame)) => return Some(frame),
            // An agent may live on without its guardian.
            Ok(None) if node.ended.is_none() => return None,
            // Another process still holds the carrier's end of the stream.
            Ok(None) => (CloseReason::Eof, OsBytes::default()),
            Err(Closed::Frame { begins, .. }) => (CloseReason::Malformed, OsBytes::new(begins)),
            Err(error) => (why(&error), OsBytes::default()),
        };
        node.link = Link::Gone;
        let (stray, patience) =
            if node.keeper.is_some() { (stray, CARRIER_END) } else { (OsBytes::default(), Span::ZERO) };
        self.closing.push(Closing { id, why, stray, until: now() + patience });
        None
    }

    /// A node whose edge has ended, and the reason if it is known; with the last words of the carrier, or bytes that are no message.
    pub(super) fn take_closed(&mut self) -> Option<(NodeId, CloseReason, OsBytes)> {
        let ended = |id: NodeId| self.list.get(id.index()).and_then(|node| Some((node.keeper?, node.ended.clone()?)));
        let is_over = |closing: &Closing| closing.until <= now() || ended(closing.id).is_some();
        let at = self.closing.iter().position(is_over)?;
        let Closing { id, why, stray, .. } = self.closing.swap_remove(at);
        Some(match ended(id) {
            Some((keeper, (end, words))) if is_abnormal(why, keeper, end) => {
                (id, CloseReason::Carrier(keeper, end), words)
            }
            Some(_) | None => (id, why, stray),
        })
    }

    /// Writes what was queued in this round.
    pub(super) fn finish(&mut self) {
        std::mem::take(&mut self.dirty).into_iter().for_each(|id| self.poll_flush(id));
    }

    fn poll_flush(&mut self, id: NodeId) {
        if let Some(Link::Live(link)) = self.list.get_mut(id.index()).map(|node| &mut node.link)
            && let Some(mut cx) = self.ready.context(id)
            && let Poll::Ready(Err(error)) = link.poll_flush(&mut cx)
        {
            // The agent's last messages are still to be read: reading reports its end.
            tracing::debug!(%error, "the edge to the agent cannot be written");
        }
    }

    /// Polls the guardian of this host, after the edges: messages of an agent come before the end of its guardian. The guardian's end may
    /// be written after the edge was polled in the same round, so it is reported in the next round.
    pub(super) fn poll_guardian(&mut self, cx: &mut Context<'_>, events: &mut VecDeque<JobEvent>) {
        if let Some((id, guardian)) = &mut self.guardian {
            let node = *id;
            events.extend(self.parted.take().map(|end| JobEvent::GuardianEnded { node, end }));
            self.parted = guardian.poll(cx);
            if self.parted.is_some() {
                self.look_again(node);
            }
        }
    }

    /// The processes that start agents on other hosts. Before ends of edges are reported, which the end of such a process may explain.
    pub(super) fn poll_carriers(&mut self, cx: &mut Context<'_>, events: &mut VecDeque<JobEvent>) {
        while let Poll::Ready(event) = self.remote.poll(cx) {
            match event {
                BootstrapEvent::Stage { node, stage } => {
                    tracing::debug!(%node, %stage, "progress");
                    self.stages.push((node, stage));
                }
                BootstrapEvent::Up { node, edge, up } => {
                    tracing::debug!(%node, ?up, "its agent is up");
                    self.adopt(node, *edge, &up, events);
                }
                BootstrapEvent::Carrier(event) => events.push_back(JobEvent::Carrier(event)),
                BootstrapEvent::Said { node, bytes } => {
                    tracing::info!(%node, said = %Visible(&bytes), "stderr of the agent")
                }
                BootstrapEvent::Ended { node, end, words } => {
                    tracing::debug!(%node, %end, %words, "its carrier has ended");
                    if let Some(node) = self.list.get_mut(node.index()) {
                        node.ended = Some((end, words));
                    }
                    self.look_again(node);
                }
            }
        }
    }

    /// The process that keeps an edge has ended: the edge has to be read once more.
    fn look_again(&mut self, id: NodeId) {
        if let Some(node) = self.list.get_mut(id.index()) {
            node.unkept = true;
            self.ready.mark(id);
        }
    }

    /// How far hosts have come since this was asked last.
    pub(super) fn take_stages(&mut self) -> Vec<(NodeId, Stage)> {
        std::mem::take(&mut self.stages)
    }

    /// When a host that is being reached, or an edge that has ended, has to be looked at.
    pub(super) fn deadline(&self) -> Option<Mono> {
        let closing = self.closing.iter().map(|closing| closing.until).min();
        earliest(self.remote.deadline(), closing)
    }

    /// The edge to a node, if it is there; what is queued is written by `finish`.
    pub(super) fn live(&mut self, id: NodeId) -> Option<&mut Connection<ToRoot>> {
        self.dirty.push(id);
        match &mut self.list.get_mut(id.index())?.link {
            Link::Live(link) => Some(link),
            Link::Absent | Link::Gone => None,
        }
    }

    /// Whether a host has, or had, an edge.
    pub(super) fn had_edge(&self, id: NodeId) -> bool {
        self.list.get(id.index()).is_some_and(|node| !matches!(node.link, Link::Absent))
    }

    /// Reaches a host, for the first time or again: `credit` is what it may send at first.
    pub(super) fn connect(&mut self, id: NodeId, credit: u64, events: &mut VecDeque<JobEvent>) {
        if let Some(node) = self.list.get_mut(id.index()) {
            *node = Node { link: Link::Absent, credit, ended: None, unkept: false, keeper: None };
        }
        self.closing.retain(|closing| closing.id != id);
        self.remote.connect(id, events);
    }

    /// A host is reached in this way from now on.
    pub(super) fn know(&mut self, id: NodeId, target: Target) {
        self.remote.know(id, target);
    }

    /// Whether a carrier still runs: carriers end after the edges to their agents.
    pub(super) fn has_carriers(&self) -> bool {
        self.remote.has_carriers()
    }

    /// Their time to end by themselves after the job.
    pub(super) const fn carrier_patience(&self) -> Span {
        self.remote.carrier_patience()
    }

    /// Asks those to end that outlive the job, or ends them.
    pub(super) fn end_carriers(&self, hard: bool) {
        self.remote.end_carriers(hard);
    }

    /// Dismisses the processes that watched over the launcher, after the end of the job.
    pub(super) fn dismiss(&mut self) {
        self.remote.dismiss();
        self.unused = None;
        if let Some((_, guardian)) = self.guardian.take_if(|_| !rlaunch_sys::facts::init_state::reaps()) {
            guardian.part();
        }
    }

    /// An agent without any message yet counts as none.
    pub(super) fn give_up(&mut self, id: NodeId, events: &mut VecDeque<JobEvent>) {
        if self.list.get(id.index()).is_some_and(|node| matches!(node.link, Link::Absent)) {
            self.close(id);
            self.remote.give_up(id, events);
        }
    }

    /// The agent of a node is there. An agent that was given up ends with its edge.
    fn adopt(&mut self, id: NodeId, mut link: Early<ToRoot>, up: &Up, events: &mut VecDeque<JobEvent>) {
        let Some(node) = self.list.get_mut(id.index()).filter(|node| matches!(node.link, Link::Absent)) else { return };
        node.keeper = self.remote.keeper(id);
        let _empty_yet = link.grant(id, node.credit);
        match link.into_connection() {
            Ok(link) => {
                node.link = Link::Live(Box::new(link));
                self.ready.mark(id);
                events.push_back(JobEvent::EdgeUp { node: id });
                let (at, limit) = up.by;
                events.push_back(JobEvent::ReadyBy { node: id, at, limit });
            }
            Err((_, error)) => {
                // Its agent ends with the edge, and was never reported.
                node.link = Link::Gone;
                let errno = error.raw_os_error().unwrap_or(0);
                let why = format!("its agent cannot be taken in here: {}", phrases::errno(errno)).into();
                let hint = phrases::way_out(errno).unwrap_or_default().into();
                events
                    .push_back(JobEvent::HostFailed { node: id, why: HostFailure { why, hint, ..Default::default() } });
            }
        }
    }

    /// False if the agent does not read: its edge has to be given up.
    #[must_use]
    pub(super) fn send(&mut self, id: NodeId, msg: &ToNode) -> bool {
        self.queue(id, |link| link.send(id, msg))
    }

    #[must_use]
    pub(super) fn grant(&mut self, id: NodeId, up_to: u64) -> bool {
        self.queue(id, |link| link.grant(id, up_to))
    }

    #[must_use]
    pub(super) fn beat(&mut self, id: NodeId, beat: Beat) -> bool {
        self.queue(id, |link| link.beat(id, beat))
    }

    #[must_use]
    pub(super) fn broken(&mut self, id: NodeId, broken: Broken) -> bool {
        self.queue(id, |link| link.broken(id, broken))
    }

    /// Continues a stopped agent: only its own host's guardian can do so.
    pub(super) fn wake(&mut self, id: NodeId) {
        if let Some((_, guardian)) = self.guardian.as_mut().filter(|(own, _)| *own == id) {
            guardian.wake();
        }
    }

    /// Has a node's guardian end everything there, without the agent. That of another host reads this as the end of its
    /// lifeline; its last words come on the edge, which is still read.
    pub(super) fn sever(&mut self, id: NodeId) {
        if let Some((_, guardian)) = self.guardian.as_ref().filter(|(own, _)| *own == id) {
            guardian.sever();
        } else if let Some(Err(error)) = self.live(id).map(|link| link.shut_write()) {
            // Then it cannot get the order, and its lease ends it.
            tracing::debug!(node = %id, %error, "the edge cannot be shut");
        }
    }

    /// Lets go of a node's edge.
    pub(super) fn close(&mut self, id: NodeId) {
        if let Some(node) = self.list.get_mut(id.index()) {
            node.link = Link::Gone;
        }
    }

    fn queue(&mut self, id: NodeId, message: impl FnOnce(&mut Connection<ToRoot>) -> Result<(), Overflow>) -> bool {
        let Some(node) = self.list.get_mut(id.index()) else { return true };
        self.dirty.push(id);
        let queued = match &mut node.link {
            Link::Live(link) => message(link),
            Link::Absent | Link::Gone => Ok(()),
        };
        queued.is_ok()
    }
}

/// A guardian's last words, as the machine knows them.
pub(super) fn last_words(id: NodeId, last: Last) -> JobEvent {
    let Last { left, expired, named } = last;
    let end = if expired { GuardianEnd::Expired { left, named } } else { GuardianEnd::Record { left, named } };
    JobEvent::GuardianEnded { node: id, end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Write as _;

    /// The events, in order, if an agent and its guardian send their last words between two polls of the runtime.
    fn order(last_word: &[u8], agent_lives: bool) -> Vec<&'static str> {
        let id = NodeId::new(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (edge, agent) = UnixStream::pair().unwrap();
        let (lifeline, mut guardian) = UnixStream::pair().unwrap();
        runtime.block_on(async {
            let local = (Some(id), edge.into(), Lifeline::new(lifeline.into(), None));
            let mut events = VecDeque::new();
            let mut nodes = Nodes::new(&[0], local, Remote::none(), &mut events).unwrap();
            // The runtime then knows that there is something to read, as after the agent's descriptor.
            guardian.write_all(&last_word[..1]).unwrap();
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            let mut agent = Early::<ToNode>::new(agent);
            agent.send(id, &ToRoot::InitLost).unwrap();
            assert!(agent.flush().unwrap());
            let _agent = Some(agent).filter(|_| agent_lives);
            guardian.write_all(&last_word[1..]).unwrap();
            drop(guardian);
            let mut said = Vec::new();
            for _ in 0..2 {
                poll_fn(|cx| {
                    for node in nodes.begin(cx) {
                        said.extend(std::iter::from_fn(|| nodes.poll_recv(node)).map(|_| "the agent"));
                    }
                    nodes.poll_carriers(cx, &mut events);
                    said.extend(std::iter::from_fn(|| nodes.take_closed()).map(|_| "the edge"));
                    nodes.poll_guardian(cx, &mut events);
                    said.extend(events.drain(..).map(|_| "the guardian"));
                    Poll::Ready(())
                })
                .await;
            }
            said
        })
    }

    /// An agent that could not build its event loop reported that, and its guardian had counted. The job learned only that its agent was
    /// lost without a message.
    #[test]
    fn agent_messages_come_before_guardians_end() {
        let record = rlaunch_sys::guardian::example_frame(0, 0, false, &[]).split_off(16);
        assert_eq!(order(&record, false), ["the agent", "the edge", "the guardian"]);
        assert_eq!(order(&record[..20], true), ["the agent", "the guardian"], "it was killed, and the agent lives on");
    }
}
