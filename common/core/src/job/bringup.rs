//! From nothing to nodes that start their ranks: what each is sent first, and what it answers.
//!
//! The launcher's own host, where it is the only one, is sent everything at once, without waiting for `Hello`: the answer would cost a
//! round trip before the first rank, and a node that refuses drops the rest. Of several hosts none starts a rank before all are ready: a
//! job that is not complete cannot do its work. The user may have said how many hosts are enough (`--min-hosts`). All hosts are still
//! waited for, until each is ready or cannot be had. Then the ranks of the missing hosts are dropped. No host has received a rank or the
//! number of ranks before.

mod next_generation;
mod sliced;
mod worlds;

use super::device_barrier::DeviceBarrier;
use super::interface_probing::{Probing, Way};
use super::notice::Notice;
use super::orders::{self, Orders, Slices};
use super::roster::{Roster, Standing, State};
use super::{Cx, JobAction, Setting, host_reports, master_addr, slice_hosts};
use crate::events::{Cause, JobNews, What};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::bootstrap::HostFailure;
use rlaunch_plan::place::{Node, Placement};
use rlaunch_plan::tpu::SliceError;
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::peer_identity::Address;
use rlaunch_protocol::wire::to_node::{Rendezvous, ToNode};
use rlaunch_protocol::wire::to_root::{Hello, NodeRefusal};
use sliced::Sliced;

/// The bring-up of all nodes.
#[derive(Debug)]
pub(super) struct Bringup {
    orders: Arc<Orders>,
    /// While the hosts are gathered: where ranks would run without those that cannot be had, if there are any.
    fewer: Option<Arc<Placement>>,
    nodes: Roster,
    /// How rank 0's host is found by the others.
    probing: Probing,
    /// The devices of hosts before ranks are started.
    devices: DeviceBarrier,
    /// The only node ends by itself with its ranks.
    ends_by_itself: bool,
    /// The rendezvous and its host, once ranks were asked for.
    rendezvous: Option<(NodeId, Rendezvous)>,
    /// The slices of the job, once they are known.
    slices: Slices,
    /// Ranks were asked for, or never will be.
    is_decided: bool,
    /// The job ends: a host that comes now is too late.
    is_ending: bool,
    /// The job runs on slices, and hosts of them come and go (`--slices`).
    sliced: Option<Sliced>,
}

impl Bringup {
    pub(super) fn new(spec: Arc<JobSpec>, setting: &Setting) -> Self {
        let state = |node: &Node| match node.local {
            true => State::Waiting,
            // The name of the host is not known yet (`--discover`).
            false if node.is_unknown() => State::Failed,
            false => State::Connecting,
        };
        let nodes = Roster::new(spec.placement.nodes.iter().map(state).collect());
        let sliced = spec.slices.as_ref().filter(|_| !spec.placement.is_here()).map(|_| Sliced::default());
        let orders = Arc::new(Orders::new(spec, setting));
        let ends_by_itself = orders.is_sole() && !orders.can_start_more();
        let probing = Probing::new(setting.secret.clone());
        Self {
            orders,
            is_ending: false,
            sliced,
            fewer: None,
            nodes,
            probing,
            devices: DeviceBarrier::default(),
            ends_by_itself,
            rendezvous: None,
            slices: Slices::default(),
            is_decided: false,
        }
    }

    pub(super) fn start(&mut self, cx: &mut Cx<'_>) {
        for (node, state) in self.nodes.iter() {
            // The agent of the launcher's own host is there.
            match state {
                State::Waiting => self.orders.begin(cx, node),
                State::Connecting => cx.act(JobAction::Connect { node }),
                State::Up(_) | State::Ready(_) | State::Refused(_) | State::Failed | State::Lost => {}
            }
        }
        if self.orders.is_sole() {
            self.orders.all_ranks(cx);
            self.is_decided = true;
            let placement = cx.facts.placement();
            self.rendezvous = Some((placement.head(), self.orders.alone(placement)));
        }
    }

    /// The edge to a node's agent is there.
    pub(super) fn edge_up(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(State::Connecting) = self.nodes.get(node) else { return };
        self.nodes.set(node, State::Waiting);
        if self.takes_hosts() {
            self.orders.begin(cx, node);
            self.probe(cx, node);
        } else {
            // It came too late: the job ends, and so does the node.
            cx.act(JobAction::Send { node, msg: ToNode::Kill });
        }
    }

    pub(super) fn hello(&mut self, cx: &mut Cx<'_>, node: NodeId, hello: Hello) {
        // Said twice, or after a refusal: it changes nothing.
        let Some(State::Waiting) = self.nodes.get(node) else { return };
        self.nodes.set(node, State::Up(hello.clone()));
        if self.orders.is_sole() {
            self.report_port(cx, &hello);
        }
        cx.notify(Notice::Log(What::HostReady { node, hello }));
        self.probe(cx, node);
    }

    /// A host is there, or has introduced itself. It tries to reach that of rank 0, or is that: both while others are getting ready.
    fn probe(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let placement = self.planned(cx);
        let first = placement.head();
        let probes = !self.is_decided && self.orders.probes(&placement);
        match self.probing.head() {
            _ if !probes => {}
            Some(head) if head == first => self.probing.ask(cx, node),
            Some(_) | None => self.probe_all(cx, first),
        }
    }

    /// All hosts that are there try to reach rank 0's host, once its addresses are known.
    fn probe_all(&mut self, cx: &mut Cx<'_>, first: NodeId) {
        let Some(hello) = self.nodes.hello(first) else { return };
        self.probing.begin(first, hello.reached.as_ref());
        let there = self.nodes.iter().filter(|(_, state)| state.is_notified());
        there.for_each(|(node, _)| self.probing.ask(cx, node));
    }

    /// A host has tried a place.
    pub(super) fn probed(&mut self, cx: &mut Cx<'_>, node: NodeId, number: u32, found: Result<Address, i32>) {
        if self.probing.answered(node, number, found) {
            self.decide(cx);
        }
    }

    pub(super) fn timeout(&mut self, cx: &mut Cx<'_>) {
        if self.probing.timeout(cx.now) {
            self.decide(cx);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.probing.deadline()
    }

    pub(super) fn ready(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        // Said too early, or twice, or after a refusal: it changes nothing.
        let Some(State::Up(hello)) = self.nodes.get(node) else { return };
        let hello = hello.clone();
        self.nodes.set(node, State::Ready(hello));
        self.decide(cx);
    }

    /// A host has looked which processes hold its devices, or has ended these.
    pub(super) fn on_devices(&mut self, cx: &mut Cx<'_>, node: NodeId, held: bool) {
        self.devices.on_answer(node, held);
        self.decide(cx);
    }

    /// A refusal may come after `Hello` too: the node ran into it later, and rolls back. The other nodes are waited for: the user gets
    /// all refusals at once.
    pub(super) fn refused(&mut self, cx: &mut Cx<'_>, node: NodeId, why: NodeRefusal) {
        let Some(State::Waiting | State::Up(_) | State::Ready(_)) = self.nodes.get(node) else { return };
        self.nodes.set(node, State::Refused(why.clone()));
        cx.notify(Notice::Log(What::HostRefused { node, why: why.clone() }));
        if self.is_decided && (self.sliced.is_none() || cx.facts.is_used(node)) {
            return cx.notify(Notice::End(Cause::Refused { node, why }));
        }
        self.decide(cx);
        // The host counts what remains. Its ranks are not waited for.
        cx.notify(Notice::Absent(node));
    }

    /// A node's agent could not be started. The others are waited for: the user gets all failures at once.
    /// `why`: for the log.
    pub(super) fn failed(&mut self, cx: &mut Cx<'_>, node: NodeId, why: Option<HostFailure>) {
        if let Some(State::Connecting) = self.nodes.get(node) {
            self.nodes.set(node, State::Failed);
            why.into_iter().for_each(|why| cx.notify(Notice::Log(What::HostFailed { node, why })));
            self.decide(cx);
        }
    }

    /// Gives up a node that was reached and is not ready in time. Returns why, if it was still waited for. No rank was asked for there, so
    /// whatever its agent is doing, nothing of the job has to be counted.
    pub(super) fn give_up_late_host(&mut self, cx: &mut Cx<'_>, node: NodeId, limit: Span) -> Option<HostFailure> {
        let state = self.nodes.get(node).filter(|_| self.takes_hosts())?;
        let awaited = match state {
            State::Waiting => "its agent has started, and is not heard of",
            State::Up(_) => "its agent is still looking for the directory and the program",
            State::Connecting | State::Ready(_) | State::Refused(_) | State::Failed | State::Lost => return None,
        };
        self.nodes.set(node, State::Failed);
        let why = HostFailure {
            why: format!("not ready within {limit}: {awaited}").into(),
            hint: "see whether a file system hangs there; a longer --connect-timeout".into(),
            ..HostFailure::default()
        };
        cx.notify(Notice::Log(What::HostFailed { node, why: why.clone() }));
        // An agent that hangs does not listen: its guardian ends it.
        cx.act(JobAction::Sever { node });
        self.decide(cx);
        Some(why)
    }

    /// Handles the loss of a part of ours on a node. Returns whether the job starts without the node. That may be so before the start
    /// only, and the others are waited for then, as if it had not been reached.
    pub(super) fn try_start_without(&mut self, cx: &mut Cx<'_>, node: NodeId) -> bool {
        if cx.facts.hosts.is_left_out(node) {
            return true;
        }
        match self.nodes.get(node) {
            None => false,
            Some(State::Refused(_) | State::Failed | State::Lost) => !self.is_decided,
            Some(State::Waiting | State::Up(_) | State::Ready(_)) if self.can_miss_one_more() => {
                self.nodes.set(node, State::Lost);
                self.decide(cx);
                true
            }
            Some(State::Connecting | State::Waiting | State::Up(_) | State::Ready(_)) => false,
        }
    }

    /// Whether one host more may be missing.
    fn can_miss_one_more(&self) -> bool {
        let rest = self.nodes.len().saturating_sub(self.nodes.missing());
        !self.is_decided && self.orders.least() < rest
    }

    /// The hosts that are waited for before any rank is started; `None`: ranks were asked for, or never will be.
    pub(super) fn awaited(&self) -> Option<Vec<NodeId>> {
        if self.is_decided {
            return None;
        }
        let open = self.nodes.iter().filter(|(_, state)| state.standing() == Standing::Open);
        let open: Vec<NodeId> = open.map(|(node, _)| node).collect();
        let rest = || self.probing.awaited().into_iter().chain(self.devices.awaited()).collect();
        Some(if open.is_empty() { rest() } else { open })
    }

    /// The ending has begun: no rank will be started.
    pub(super) fn on_ending_began(&mut self, cx: &mut Cx<'_>) {
        self.is_decided = true;
        self.probing.stop();
        self.stop_connecting(cx);
    }

    /// A host that is still being reached is too late.
    pub(super) fn stop_connecting(&mut self, cx: &mut Cx<'_>) {
        if core::mem::replace(&mut self.is_ending, true) {
            return;
        }
        for (node, state) in self.nodes.iter() {
            if *state == State::Connecting {
                cx.act(JobAction::GiveUp { node });
            }
        }
    }

    /// Sends a message to every node that can receive it. The only node knows by itself that its ranks have ended.
    pub(super) fn broadcast(&self, cx: &mut Cx<'_>, msg: &ToNode) {
        if self.ends_by_itself && *msg == ToNode::Finish {
            return;
        }
        let facts = cx.facts;
        for (node, state) in self.nodes.iter().filter(|(node, _)| !facts.hosts.is_left_out(*node)) {
            match state {
                State::Connecting | State::Failed => {}
                State::Waiting | State::Up(_) | State::Ready(_) | State::Refused(_) | State::Lost => {
                    // A host without ranks has nothing to wait for.
                    let is_spare = *msg == ToNode::Finish && !facts.is_used(node);
                    let msg = if is_spare { ToNode::Kill } else { msg.clone() };
                    cx.act(JobAction::Send { node, msg });
                }
            }
        }
    }

    /// The placement of the ranks, or the one with the hosts that can be had.
    fn planned(&self, cx: &Cx<'_>) -> Arc<Placement> {
        Arc::clone(self.fewer.as_ref().unwrap_or_else(|| cx.facts.placement()))
    }

    /// Starts the ranks or ends the job, once each host has answered and all find rank 0's host.
    fn decide(&mut self, cx: &mut Cx<'_>) {
        if self.is_decided || self.is_open() {
            return;
        }
        let orders = Arc::clone(&self.orders);
        let is_sliced = self.sliced.is_some();
        let gathered = if is_sliced { Ok(()) } else { self.gather(cx, &orders) };
        let gathered = gathered.and_then(|()| self.check_addr(cx, &orders));
        let gathered = gathered.and_then(|()| self.plan_slices(cx, &orders));
        match gathered.and_then(|()| self.find(cx, &orders)) {
            Ok(None) => return,
            Ok(Some(addr)) => {
                let placement = self.planned(cx);
                // All hosts could start: from here on holders of devices are ended.
                let spare = self.without_ranks(&placement);
                if !self.devices.is_free(cx, &placement.used().chain(spare).collect::<Vec<_>>()) {
                    return;
                }
                self.rendezvous = Some((placement.head(), self.go(cx, &orders, &placement, addr)));
            }
            Err(cause) => cx.notify(Notice::End(cause)),
        }
        self.is_decided = true;
        self.probing.stop();
    }

    /// By which address all find rank 0's host; `None`: it is still being tried.
    fn find(&mut self, cx: &mut Cx<'_>, orders: &Orders) -> Result<Option<OsBytes>, Cause> {
        loop {
            let placement = self.planned(cx);
            let first = placement.head();
            if !orders.probes(&placement) {
                return Ok(Some(self.sole_addr(orders, first)));
            }
            let others: Vec<NodeId> = placement.used().filter(|node| *node != first).collect();
            self.probe_all(cx, first);
            // Our own host is likely to be found where others have seen us come from.
            let seen = others.iter().filter_map(|node| Some(&self.nodes.hello(*node)?.reached.as_ref()?.from));
            let seen: Vec<&OsBytes> = seen.filter(|_| orders.is_local(first)).collect();
            match self.probing.way(cx.now, &others, |addr| seen.contains(&addr)) {
                Way::Open => return Ok(None),
                Way::Found(addr) => {
                    if let Some((instead_of, missed_by)) = self.probing.missed(&addr, &others) {
                        news(cx, JobNews::AddrDetour { addr: addr.clone(), instead_of, node: first, missed_by });
                    }
                    return Ok(Some(addr));
                }
                Way::Closed(misses) => self.refuse(cx, orders, (first, &others), &misses),
            }
            if self.sliced.is_some() {
                // Other slices may do.
                self.fewer = None;
                return Ok(None);
            }
            self.gather(cx, orders)?;
        }
    }

    /// The address that no host has to try: it was chosen, or there is no other host.
    fn sole_addr(&self, orders: &Orders, first: NodeId) -> OsBytes {
        if let Some(addr) = orders.pinned_addr() {
            return addr.clone();
        }
        let own = self.hello_of(first).and_then(|hello| hello.reached.as_ref()?.at.first());
        own.filter(|_| !orders.interface().is_empty()).cloned().unwrap_or_else(|| orders::LOOPBACK.into())
    }

    /// These hosts do not reach that of rank 0. If rank 0's host has no such address, and another host may have it, the message names
    /// that.
    fn refuse(&mut self, cx: &mut Cx<'_>, orders: &Orders, (first, others): (NodeId, &[NodeId]), misses: &[NodeId]) {
        let (to, interface) = (orders.folded(&[first]), orders.interface().clone());
        let is_alone = others.len() > 1 && misses.len() == others.len() && orders.least() < self.nodes.len();
        let refused: Vec<(NodeId, NodeRefusal)> = match others.first().filter(|_| is_alone) {
            Some(other) => [(first, NodeRefusal::Alone { interface, tried: self.probing.tried(*other) })].into(),
            None => {
                let way = |node| NodeRefusal::NoWay {
                    to: to.clone(),
                    interface: interface.clone(),
                    tried: self.probing.tried(node),
                };
                misses.iter().map(|node| (*node, way(*node))).collect()
            }
        };
        for (node, why) in refused {
            self.nodes.set(node, State::Refused(why.clone()));
            cx.notify(Notice::Log(What::HostRefused { node, why: why.clone() }));
            cx.notify(Notice::Absent(node));
            if self.sliced.is_some() {
                // Its agent ends, and is started again later.
                cx.act(JobAction::Send { node, msg: ToNode::Kill });
                cx.notify(Notice::NoWay(node, why));
            }
        }
    }

    /// Leaves out missing hosts, if the others are enough. Otherwise returns why the job cannot start.
    fn gather(&mut self, cx: &mut Cx<'_>, orders: &Orders) -> Result<(), Cause> {
        loop {
            let missing = self.nodes.list_missing();
            let enough = self.nodes.len().saturating_sub(missing.len()) >= orders.least();
            self.fewer = cx.facts.placement().without(&missing).filter(|_| !missing.is_empty()).map(Arc::new);
            if !enough || (self.fewer.is_none() && !missing.is_empty()) {
                return self.cause().map_or(Ok(()), Err);
            }
            let first = self.planned(cx).head();
            let Some(why) = self.no_interface(first, orders) else { return Ok(()) };
            // Rank 0 cannot be found there as asked for: another host may have it.
            self.nodes.set(first, State::Refused(why.clone()));
            cx.notify(Notice::Log(What::HostRefused { node: first, why }));
            cx.notify(Notice::Absent(first));
        }
    }

    /// Checks the address that the user gave for the rendezvous. If ranks could not meet there, nothing is started.
    fn check_addr(&mut self, cx: &mut Cx<'_>, orders: &Orders) -> Result<(), Cause> {
        let Some(addr) = orders.pinned_addr() else { return Ok(()) };
        let placement = self.planned(cx);
        let node = placement.head();
        let given = master_addr::Given {
            addr,
            is_shared: !orders::is_together(&placement),
            is_other_host: orders.is_other_host(addr, node),
            holder: orders.holder(),
            hello: self.hello_of(node),
        };
        let Some(why) = master_addr::fault(&given) else { return Ok(()) };
        self.nodes.set(node, State::Refused(why.clone()));
        cx.notify(Notice::Log(What::HostRefused { node, why: why.clone() }));
        Err(Cause::Refused { node, why })
    }

    /// Finds the slices of the TPU hosts that take part. If they are no whole slices, nothing is started.
    fn plan_slices(&mut self, cx: &mut Cx<'_>, orders: &Orders) -> Result<(), Cause> {
        match self.slices_of(&self.planned(cx), orders) {
            Ok(slices) => {
                self.slices = slices;
                Ok(())
            }
            Err((node, why)) => {
                self.nodes.set(node, State::Refused(why.clone()));
                cx.notify(Notice::Log(What::HostRefused { node, why: why.clone() }));
                Err(Cause::Refused { node, why })
            }
        }
    }

    /// The slices of the hosts of a placement.
    fn slices_of(&self, placement: &Placement, orders: &Orders) -> Result<Slices, (NodeId, NodeRefusal)> {
        let address = |node| self.address(placement, node);
        slice_hosts::plan(placement, |node| self.hello_of(node), orders.allows_partial(), address)
    }

    /// Why the hosts of this placement cannot have the next generation.
    pub(super) fn slice_error(&self, placement: &Placement) -> Option<SliceError> {
        match self.slices_of(placement, &self.orders) {
            Err((_, NodeRefusal::Slices(error))) => Some(error),
            Ok(_) | Err(_) => None,
        }
    }

    /// Has all who are there start their ranks.
    fn go(&mut self, cx: &mut Cx<'_>, orders: &Orders, placement: &Placement, addr: OsBytes) -> Rendezvous {
        let fewer = self.fewer.take();
        if let Some(placement) = &fewer {
            let is_sliced = self.sliced.is_some();
            for node in self.nodes.list_missing().into_iter().filter(|_| !is_sliced) {
                // An agent that is still there has nothing to do any more.
                cx.act(JobAction::Send { node, msg: ToNode::Kill });
            }
            cx.act(JobAction::Place(Arc::clone(placement)));
        }
        host_reports::notes(cx, || self.hellos());
        let head = placement.head();
        if let Some(hello) = self.hello_of(head) {
            self.report_port(cx, hello);
        }
        let rendezvous = orders.rendezvous(placement, addr, orders.pinned_port().or(self.port_of(head)));
        let rendezvous = self.held(cx, orders, head, rendezvous);
        self.meet(placement);
        if let Some(placement) = fewer {
            let left_out = if self.sliced.is_some() { Vec::new() } else { self.nodes.list_missing() };
            cx.notify(Notice::Placed { left_out, placement });
        }
        host_reports::chips(cx, self.hellos());
        orders.send_rendezvous(cx, (placement, &rendezvous), 0, &self.slices, |_| true);
        for node in self.without_ranks(placement) {
            cx.act(JobAction::Send { node, msg: ToNode::Rendezvous(orders::of_no_rank(&rendezvous)) });
        }
        rendezvous
    }

    /// Hosts whose slots are for worlds that ranks ask for (`--lead`).
    fn without_ranks(&self, placement: &Placement) -> Vec<NodeId> {
        let is_free = |node: NodeId| placement.nodes.get(node.index()).is_some_and(|node| node.ranks == 0);
        let ready = self.nodes.iter().filter(|(_, state)| self.sliced.is_none() && matches!(state, State::Ready(_)));
        ready.map(|(node, _)| node).filter(|node| is_free(*node)).collect()
    }

    /// The hello of a node.
    pub(super) fn known(&self, node: NodeId) -> Option<&Hello> {
        self.nodes.hello(node)
    }

    /// The rendezvous of the ranks, once it is known.
    pub(super) fn rendezvous(&self) -> Option<&Rendezvous> {
        self.rendezvous.as_ref().map(|(_, rendezvous)| rendezvous)
    }

    /// Checks the chosen address. A host cannot listen at an address that is not its own. Where the others see rank 0's host by a
    /// translated address, rank 0 may know what to do. If it was asked for, its agent says that it cannot.
    fn held(&self, cx: &mut Cx<'_>, orders: &Orders, first: NodeId, rendezvous: Rendezvous) -> Rendezvous {
        if master_addr::is_of(&rendezvous.addr, self.hello_of(first)) || !orders.holder().is_by_itself() {
            return rendezvous;
        }
        news(cx, JobNews::StoreLeft { addr: rendezvous.addr.clone() });
        Rendezvous { agent_store: false, ..rendezvous }
    }

    /// Why the job cannot start.
    fn cause(&self) -> Option<Cause> {
        let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
        let (failed, asked) = (count(self.nodes.missing()), count(self.nodes.len()));
        let mut refused = None;
        for (node, state) in self.nodes.iter() {
            match state.standing() {
                Standing::Gone => return Some(Cause::Unreachable { node, failed, asked }),
                Standing::Refused(why) => refused = refused.or(Some((node, why))),
                Standing::Open | Standing::Ready(_) => {}
            }
        }
        refused.map(|(node, why)| Cause::Refused { node, why: why.clone() })
    }

    /// The host is to be found at an interface that it has not.
    fn no_interface(&self, node: NodeId, orders: &Orders) -> Option<NodeRefusal> {
        let reached = self.hello_of(node)?.reached.as_ref()?;
        let lacks = !orders.interface().is_empty() && reached.at.is_empty();
        lacks.then(|| NodeRefusal::NoInterface { name: orders.interface().clone(), has: reached.has.clone() })
    }

    /// A port that is not reserved matters where we have chosen it.
    fn report_port(&self, cx: &mut Cx<'_>, hello: &Hello) {
        if self.orders.chooses_port() && hello.master_port != 0 && !hello.port_reserved {
            news(cx, JobNews::PortUnreserved { port: hello.master_port });
        }
    }

    fn hello_of(&self, node: NodeId) -> Option<&Hello> {
        if let Standing::Ready(hello) = self.nodes.get(node)?.standing() { Some(hello) } else { None }
    }

    /// The hellos of the nodes that are ready.
    fn hellos(&self) -> impl Iterator<Item = (NodeId, &Hello)> {
        self.nodes.iter().filter_map(|(node, _)| Some((node, self.hello_of(node)?)))
    }
}

fn news(cx: &mut Cx<'_>, news: JobNews) {
    cx.notify(Notice::Log(What::News(news)));
}
