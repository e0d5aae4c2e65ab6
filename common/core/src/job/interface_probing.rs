//! The search for the address of rank 0's host that the other hosts reach: ranks get no address that was not tried.
//!
//! Each other host tries all addresses of that host, while hosts are still getting ready. The first address in the order offered that
//! all hosts reach is taken. An earlier one that is slower is waited for: if several addresses work, launches shall rarely differ.

use super::{Cx, JobAction};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use core::net::IpAddr;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::peer_identity::Address;
use rlaunch_protocol::wire::probe::{Key, Place, Places};
use rlaunch_protocol::wire::to_node::ToNode;
use rlaunch_protocol::wire::to_root::{ADDRESSES, Reached, Tried};

/// The wait for the first address once all hosts are ready, if all hosts reach another address. A lost packet is sent again after 1 s.
const FIRST: Span = Span::from_millis(1500);
/// The wait for other addresses that are better than one that all hosts reach.
const BETTER: Span = Span::from_millis(250);
/// The wait for any address.
const ALL: Span = Span::from_secs(10);

/// The outcome of the tries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Answers that matter are missing.
    Open,
    /// All hosts reach this address.
    Found(OsBytes),
    /// No address is reached by all hosts. These hosts do not reach the address that most hosts reach.
    Closed(Vec<NodeId>),
}

/// The tries of a job.
#[derive(Debug, Default)]
pub(super) struct Probing {
    secret: Key,
    /// The number of the next place.
    next: u32,
    head: Option<Head>,
    /// The addresses by which hosts have reached the first rendezvous.
    own_addrs: BTreeMap<NodeId, OsBytes>,
}

/// The host that is tried.
#[derive(Debug)]
struct Head {
    node: NodeId,
    /// The best first.
    candidates: Vec<Candidate>,
    asked: BTreeSet<NodeId>,
    /// The number of hosts that had to reach this host at the last decision.
    needed: usize,
    /// The time at which all hosts were ready.
    ready: Option<Mono>,
    /// The time of the next decision, whatever is answered by then.
    deadline: Option<Mono>,
}

/// An address of that host.
#[derive(Debug)]
struct Candidate {
    place: Place,
    /// For each host that has tried the place: its own address there, or an errno.
    found: BTreeMap<NodeId, Result<Address, i32>>,
    has_failed: bool,
}

impl Probing {
    pub(super) fn new(secret: Key) -> Self {
        Self { secret, ..Self::default() }
    }

    /// The host that is tried.
    pub(super) fn head(&self) -> Option<NodeId> {
        self.head.as_ref().map(|head| head.node)
    }

    /// Begins with a host, at the addresses where it listens.
    pub(super) fn begin(&mut self, node: NodeId, reached: Option<&Reached>) {
        if self.head() == Some(node) {
            return;
        }
        let offered = reached.into_iter().flat_map(|reached| reached.at.iter().zip(reached.probe_ports.iter()));
        let key = self.secret.of(node);
        let candidate = |((addr, port), number): ((&OsBytes, &u16), u32)| {
            let place = Place { number, addr: addr.clone(), port: *port, key: key.at(addr, *port) };
            Candidate { place, found: BTreeMap::new(), has_failed: false }
        };
        let candidates: Vec<Candidate> =
            offered.filter(|(_, port)| **port != 0).zip(self.next..).map(candidate).collect();
        self.next = self.next.saturating_add(u32::try_from(candidates.len()).unwrap_or(u32::MAX));
        self.head = Some(Head { node, candidates, asked: BTreeSet::new(), needed: 0, ready: None, deadline: None });
    }

    /// Has a host try all places.
    pub(super) fn ask(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let Some(head) = self.head.as_mut().filter(|head| head.node != node) else { return };
        if head.asked.insert(node) {
            for places in Places::chunks(head.candidates.iter().map(|candidate| candidate.place.clone())) {
                cx.act(JobAction::Send { node, msg: ToNode::Probe(places) });
            }
        }
    }

    /// Records the answer of a host. Returns whether it may decide.
    pub(super) fn answered(&mut self, node: NodeId, number: u32, found: Result<Address, i32>) -> bool {
        let Some(head) = self.head.as_mut().filter(|head| head.asked.contains(&node)) else { return false };
        let candidate = head.candidates.iter_mut().find(|candidate| candidate.place.number == number);
        let Some(candidate) = candidate.filter(|candidate| !candidate.found.contains_key(&node)) else { return false };
        candidate.found.insert(node, found);
        let is_first_failure = found.is_err() && !core::mem::replace(&mut candidate.has_failed, true);
        is_first_failure || candidate.found.len() >= head.needed
    }

    /// The outcome. `others` are the hosts that must reach the address; they are ready. Addresses that are likely to be reached go
    /// first.
    pub(super) fn way(&mut self, now: Mono, others: &[NodeId], is_likely: impl Fn(&OsBytes) -> bool) -> Way {
        let Some(head) = &mut self.head else { return Way::Closed(others.to_vec()) };
        head.candidates.sort_by_key(|candidate| (!is_likely(&candidate.place.addr), candidate.place.number));
        let way = head.way(now, others);
        if let Way::Found(addr) = &way {
            self.own_addrs = head.own_addrs(addr);
        }
        way
    }

    /// The address by which a host has reached that of rank 0, where the ranks have met at first.
    pub(super) fn own_addr(&self, node: NodeId) -> Option<&OsBytes> {
        self.own_addrs.get(&node)
    }

    /// The places that a host has not reached, and the reasons.
    pub(super) fn tried(&self, node: NodeId) -> Capped<Tried, ADDRESSES> {
        let tried = |candidate: &Candidate| {
            let errno = candidate.found.get(&node).map_or(Some(0), |found| found.err())?;
            Some(Tried { at: candidate.place.text(), errno })
        };
        let candidates = self.head.iter().flat_map(|head| &head.candidates);
        Capped::chunks(candidates.filter_map(tried)).pop().unwrap_or_default()
    }

    /// The first address, if another one was taken, and the hosts that do not reach it.
    pub(super) fn missed(&self, addr: &OsBytes, others: &[NodeId]) -> Option<(OsBytes, Vec<NodeId>)> {
        let first = self.head.as_ref()?.candidates.first().filter(|first| first.place.addr != *addr)?;
        Some((first.place.addr.clone(), first.misses(others)))
    }

    /// Hosts that have not reached any address yet.
    pub(super) fn awaited(&self) -> Vec<NodeId> {
        let Some(head) = &self.head else { return Vec::new() };
        let has_none = |node: &&NodeId| !head.candidates.iter().any(|candidate| candidate.is_reached(**node));
        head.asked.iter().filter(has_none).copied().collect()
    }

    /// A host is lost, and may be reached again. Then it listens elsewhere, and is asked again.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.head.take_if(|head| head.node == node);
        if let Some(head) = self.head.as_mut().filter(|head| head.asked.contains(&node)) {
            head.asked.remove(&node);
            head.ready = None;
            for candidate in &mut head.candidates {
                candidate.found.remove(&node);
            }
        }
    }

    /// Stops the search.
    pub(super) fn stop(&mut self) {
        self.head = None;
    }

    /// Returns whether the time of a decision has come.
    pub(super) fn timeout(&mut self, now: Mono) -> bool {
        self.head.as_mut().is_some_and(|head| head.deadline.take_if(|at| *at <= now).is_some())
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.head.as_ref()?.deadline
    }
}

impl Head {
    fn way(&mut self, now: Mono, others: &[NodeId]) -> Way {
        self.needed = others.len();
        let ready = *self.ready.get_or_insert(now);
        let best = self.candidates.iter().position(|candidate| candidate.misses(others).is_empty());
        let (is_open, wait) = match best {
            None => (self.candidates.iter().any(|candidate| !candidate.is_answered(others)), ALL),
            Some(best) => {
                let better = self.candidates.iter().take(best).position(|candidate| !candidate.is_failed(others));
                (better.is_some(), if better == Some(0) { FIRST } else { BETTER })
            }
        };
        self.deadline = Some(ready + wait).filter(|until| is_open && now < *until);
        if self.deadline.is_some() {
            return Way::Open;
        }
        match best.and_then(|best| self.candidates.get(best)) {
            Some(best) => Way::Found(best.place.addr.clone()),
            None => Way::Closed(self.misses(others)),
        }
    }

    /// Hosts that do not reach the address that most hosts reach.
    fn misses(&self, others: &[NodeId]) -> Vec<NodeId> {
        let misses = self.candidates.iter().map(|candidate| candidate.misses(others));
        misses.min_by_key(Vec::len).unwrap_or_else(|| others.to_vec())
    }

    fn own_addrs(&self, addr: &OsBytes) -> BTreeMap<NodeId, OsBytes> {
        let found = self.candidates.iter().filter(|candidate| candidate.place.addr == *addr).flat_map(|one| &one.found);
        found.filter_map(|(node, found)| Some((*node, format!("{}", IpAddr::from((*found).ok()?)).into()))).collect()
    }
}

impl Candidate {
    fn is_reached(&self, node: NodeId) -> bool {
        matches!(self.found.get(&node), Some(Ok(_)))
    }

    fn is_answered(&self, by: &[NodeId]) -> bool {
        by.iter().all(|node| self.found.contains_key(node))
    }

    fn is_failed(&self, by: &[NodeId]) -> bool {
        by.iter().any(|node| matches!(self.found.get(node), Some(Err(_))))
    }

    /// The hosts in `hosts` that have not reached this place.
    fn misses(&self, hosts: &[NodeId]) -> Vec<NodeId> {
        hosts.iter().filter(|node| !self.is_reached(**node)).copied().collect()
    }
}
