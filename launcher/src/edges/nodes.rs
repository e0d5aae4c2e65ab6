//! The edges to the agents of all nodes.

use super::guardian::Lifeline;
use super::why;
use rlaunch_core::id::NodeId;
use rlaunch_core::job::{CloseReason, JobEvent};
use rlaunch_core::place::Placement;
use rlaunch_core::wire::beat::Beat;
use rlaunch_core::wire::to_node::ToNode;
use rlaunch_core::wire::to_root::ToRoot;
use rlaunch_net::{Body, Connection, Early, Overflow};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll};

/// One edge.
enum Link {
    /// Its agent is not there yet.
    Absent,
    Early(Early<ToRoot>),
    Live(Connection<ToRoot>),
    Gone,
}

/// One node.
struct Node {
    link: Link,
    /// To the guardian of the launcher's own host. Elsewhere the edge is the lifeline.
    lifeline: Option<Lifeline>,
}

/// All nodes.
pub(super) struct Nodes {
    list: Vec<Node>,
}

impl Nodes {
    /// The launcher's own host has an agent already; where it has no ranks, its guardian and agent end with their streams.
    pub(super) fn new(placement: &Placement, edge: OwnedFd, lifeline: OwnedFd) -> Self {
        let mut own = Some((edge, lifeline));
        let node = |local| match own.take_if(|_| local) {
            Some((edge, lifeline)) => {
                Node { link: Link::Early(Early::new(edge.into())), lifeline: Some(Lifeline::new(lifeline)) }
            }
            None => Node { link: Link::Absent, lifeline: None },
        };
        Self { list: placement.nodes.iter().map(|node| node.local).map(node).collect() }
    }

    /// Nodes of which frames may come.
    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..u32::try_from(self.list.len()).unwrap_or(u32::MAX)).map(NodeId::new)
    }

    /// Writes what waits, before there is a runtime.
    pub(super) fn flush_early(&mut self, events: &mut VecDeque<JobEvent>) {
        for (node, id) in self.list.iter_mut().zip((0..).map(NodeId::new)) {
            if let Link::Early(link) = &mut node.link
                && link.flush().is_err()
            {
                node.lose(id, CloseReason::Eof, events);
            }
        }
    }

    /// Hands everything to the runtime that was entered.
    pub(super) fn go_live(&mut self) -> io::Result<()> {
        for node in &mut self.list {
            match std::mem::replace(&mut node.link, Link::Gone) {
                Link::Early(link) => node.link = Link::Live(link.into_connection()?),
                other @ (Link::Absent | Link::Live(_) | Link::Gone) => node.link = other,
            }
        }
        Ok(())
    }

    /// The next frame of a node; `None`: nothing more for now.
    pub(super) fn poll_recv(
        &mut self,
        id: NodeId,
        cx: &mut Context<'_>,
        events: &mut VecDeque<JobEvent>,
    ) -> Option<Body<ToRoot>> {
        let node = self.list.get_mut(id.index())?;
        let Link::Live(link) = &mut node.link else { return None };
        match link.poll_recv(cx) {
            Poll::Pending => None,
            Poll::Ready(Ok(frame)) => Some(frame.body),
            Poll::Ready(Err(error)) => {
                node.lose(id, why(&error), events);
                None
            }
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) {
        for node in &mut self.list {
            if let Link::Live(link) = &mut node.link
                && let Poll::Ready(Err(error)) = link.poll_flush(cx)
            {
                // What the agent said before it ended is still to be read: its end is told by reading.
                tracing::debug!(%error, "the edge to the agent cannot be written");
            }
        }
    }

    /// Guardians whose agent is gone.
    pub(super) fn poll_lifelines(&mut self, cx: &mut Context<'_>, events: &mut VecDeque<JobEvent>) {
        for (node, id) in self.list.iter_mut().zip((0..).map(NodeId::new)) {
            if let (Link::Gone, Some(lifeline)) = (&node.link, &mut node.lifeline) {
                lifeline.poll(id, cx, events);
            }
        }
    }

    /// The edge to a node, if it is there.
    pub(super) fn live(&mut self, id: NodeId) -> Option<&mut Connection<ToRoot>> {
        match &mut self.list.get_mut(id.index())?.link {
            Link::Live(link) => Some(link),
            Link::Absent | Link::Early(_) | Link::Gone => None,
        }
    }

    /// The agent of a node is there.
    pub(super) fn adopt(&mut self, id: NodeId, edge: UnixStream, events: &mut VecDeque<JobEvent>) {
        let Some(node) = self.list.get_mut(id.index()) else { return };
        match Early::new(edge).into_connection() {
            Ok(link) => {
                node.link = Link::Live(link);
                events.push_back(JobEvent::EdgeUp { node: id });
            }
            Err(error) => node.lose(id, CloseReason::Failed(error.raw_os_error().unwrap_or(0)), events),
        }
    }

    pub(super) fn send(&mut self, id: NodeId, msg: &ToNode, events: &mut VecDeque<JobEvent>) {
        self.queue(id, events, |link| link.send(id, msg), |link| link.send(id, msg));
    }

    pub(super) fn grant(&mut self, id: NodeId, up_to: u64, events: &mut VecDeque<JobEvent>) {
        self.queue(id, events, |link| link.grant(id, up_to), |link| link.grant(id, up_to));
    }

    pub(super) fn beat(&mut self, id: NodeId, beat: Beat, events: &mut VecDeque<JobEvent>) {
        self.queue(id, events, |link| link.beat(id, beat), |link| link.beat(id, beat));
    }

    /// Lets go of a node that is lost.
    pub(super) fn close(&mut self, id: NodeId) {
        if let Some(node) = self.list.get_mut(id.index()) {
            node.link = Link::Gone;
        }
    }

    fn queue(
        &mut self,
        id: NodeId,
        events: &mut VecDeque<JobEvent>,
        early: impl FnOnce(&mut Early<ToRoot>) -> Result<(), Overflow>,
        live: impl FnOnce(&mut Connection<ToRoot>) -> Result<(), Overflow>,
    ) {
        let Some(node) = self.list.get_mut(id.index()) else { return };
        let queued = match &mut node.link {
            Link::Early(link) => early(link),
            Link::Live(link) => live(link),
            Link::Absent | Link::Gone => Ok(()),
        };
        if queued.is_err() {
            node.lose(id, CloseReason::Slow, events);
        }
    }
}

impl Node {
    fn lose(&mut self, id: NodeId, why: CloseReason, events: &mut VecDeque<JobEvent>) {
        tracing::debug!(node = %id, ?why, "the edge to the agent has ended");
        self.link = Link::Gone;
        events.push_back(JobEvent::EdgeClosed { node: id, why });
    }
}
