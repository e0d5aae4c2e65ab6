//! Networks between the hosts: the addresses at which others reach rank 0's host, and their messages about it.

use crate::agent::Arrival;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::site::Site;
use crate::world::{Ev, World};
use rlaunch_base::capped::Capped;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::node::{ExecSpec, NodeEvent};
use rlaunch_protocol::wire::peer_identity::{Address, HOST_ADDRESSES};
use rlaunch_protocol::wire::probe::{Key, Place};
use rlaunch_protocol::wire::to_node::Start;
use rlaunch_protocol::wire::to_root::Reached;
use std::net::Ipv4Addr;

/// Every host has an address in each of them.
const NETS: u8 = 3;
/// The port at which other agents are waited for.
const PROBE_PORT: u16 = 7;

/// A host's way to a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Net {
    /// The connection takes this long.
    Open(u64),
    Refused,
    /// No answer comes.
    Silent,
}

/// The networks of a host.
pub(crate) type Nets = [Net; NETS as usize];

pub(crate) const OPEN: Nets = [Net::Open(100_000); NETS as usize];

/// Drawn last: the jobs of all seeds stay what they were.
pub(crate) fn draw(rng: &mut Rng, plan: &mut Plan) {
    if rng.chance(50) {
        return;
    }
    for site in &mut plan.sites {
        for net in &mut site.nets {
            let open = Net::Open(rng.micros(20, 50_000));
            *net = rng.pick(&[open, open, Net::Refused, Net::Silent]);
        }
        // Else few jobs had a way at all.
        if rng.chance(80) {
            site.nets[usize::from(NETS) - 1] = Net::Open(rng.micros(20, 50_000));
        }
    }
}

fn address(net: u8, node: usize, local: bool) -> Ipv4Addr {
    Ipv4Addr::new(10, net, 0, if local { 9 } else { u8::try_from(10 + node).unwrap_or(u8::MAX) })
}

impl Site {
    fn is_open(&self) -> bool {
        self.nets.iter().all(|net| matches!(net, Net::Open(_)))
    }

    /// Whether its messages arrive soon.
    pub(crate) fn is_swift(&self) -> bool {
        self.spells.is_empty() && self.faults.is_empty() && self.wire.1 < 100_000
    }
}

impl World {
    fn address(&self, net: u8, node: usize) -> Ipv4Addr {
        address(net, node, self.plan.sites.get(node).is_some_and(|site| site.local))
    }

    /// Whether the launcher's host is seen by an address that is not its own.
    pub(crate) fn is_translated(&self) -> bool {
        self.several() && self.plan.spec.placement.ranks.len().is_multiple_of(3)
    }

    pub(crate) fn own_addresses(&self) -> Capped<Address, HOST_ADDRESSES> {
        let foreign = !self.host.remote && self.is_translated();
        let own = |net| if foreign { Ipv4Addr::new(10, 9, 9, 9) } else { self.address(net, self.node) };
        Capped::chunks((0..NETS).map(|net| Address::from(core::net::IpAddr::from(own(net))))).remove(0)
    }

    /// The addresses that a host reports.
    pub(crate) fn reached_by(&mut self, start: &Start) -> Option<Reached> {
        let key = start.find.as_ref().and_then(|find| find.probe_key.clone());
        let own = key.as_ref().is_none_or(|key| *key == self.key_of(self.id()));
        self.check(own, || "a host is to prove what another does".to_owned());
        (self.host.agent.probes, self.host.agent.listened) = (key.is_some(), key.is_some());
        let from = if self.host.remote { OsBytes::from("10.0.0.9") } else { OsBytes::default() };
        let at = (0..NETS).map(|net| OsBytes::from(self.address(net, self.node).to_string()));
        let probe_ports = (0..NETS).map(|_| if key.is_some() { PROBE_PORT } else { 0 });
        let (at, probe_ports) = (Capped::chunks(at).remove(0), Capped::chunks(probe_ports).remove(0));
        (self.host.remote || start.find.is_some()).then(|| Reached { from, at, probe_ports, has: OsBytes::default() })
    }

    fn key_of(&self, node: NodeId) -> Key {
        Key::default().of(node)
    }

    /// Which network and which host an address is of.
    fn place_of(&self, addr: &str) -> Option<(u8, usize)> {
        let all = (0..NETS).flat_map(|net| (0..self.plan.sites.len()).map(move |node| (net, node)));
        all.into_iter().find(|(net, node)| self.address(*net, *node).to_string() == addr)
    }

    pub(crate) fn probes(&mut self, place: &Place) {
        let found = std::str::from_utf8(&place.addr).ok().and_then(|addr| self.place_of(addr));
        let Some((net, head)) = found else { return self.fail(format!("{place:?} is nobody's")) };
        let id = NodeId::new(u32::try_from(head).unwrap_or(u32::MAX));
        let listens = self.host(head).agent.listened;
        let key = self.key_of(id).at(&place.addr, PROBE_PORT);
        let right = place.port == PROBE_PORT && head != self.node && place.key == key;
        self.check(right && listens, || format!("{place:?} is not where node {head} listens"));
        self.host.agent.probes = true;
        let number = place.number;
        let (after, event) = match self.site().map_or(Net::Silent, |site| site.nets[usize::from(net)]) {
            Net::Open(after) => (after, NodeEvent::Probed { number, found: Ok(self.address(net, self.node).into()) }),
            Net::Refused => (20_000, NodeEvent::Probed { number, found: Err(111) }),
            Net::Silent => return,
        };
        // The other host may be gone: then no answer comes.
        if !self.host(head).gone {
            self.at(self.now + after, Ev::Arrives(Arrival::Event(Box::new(event))));
        }
    }

    pub(crate) fn probes_end(&mut self) {
        let once = std::mem::take(&mut self.host.agent.probes);
        self.check(once, || "nothing is tried, and it is ended".to_owned());
    }

    /// Hosts may fail to reach each other, or to say so in time.
    pub(crate) fn may_be_cut_off(&self) -> bool {
        !self.plan.stops.is_empty() || self.plan.sites.iter().any(|site| !site.is_open() || !site.is_swift())
    }

    /// Ranks meet where all of their hosts reach that of the first: at the best such place, where nothing was late.
    pub(crate) fn check_way(&mut self, exec: &ExecSpec) {
        let over = !self.host.agent.probes;
        self.check(over, || "a rank starts while somebody still tries to reach its host".to_owned());
        let used: Vec<usize> = self.placement().used().map(NodeId::index).collect();
        let head = self.placement().ranks.first().map_or(0, |placed| placed.node.index());
        let addr =
            exec.shared.iter().find_map(|entry| Some(String::from_utf8_lossy(entry.strip_prefix(b"MASTER_ADDR=")?)));
        let addr = addr.map(std::borrow::Cow::into_owned).unwrap_or_default();
        if used.len() < 2 {
            return self.check(addr == "127.0.0.1", || format!("one host meets at {addr}"));
        }
        let is_open = |net: u8| {
            let others = used.iter().filter(|node| **node != head).filter_map(|node| self.plan.sites.get(*node));
            others.into_iter().all(|site| matches!(site.nets[usize::from(net)], Net::Open(_)))
        };
        let best = (0..NETS).find(|net| is_open(*net));
        let right = match self.place_of(&addr) {
            Some((net, node)) if node == head && is_open(net) => {
                // Where hosts are missing, whose ways were tried too, another may have been taken.
                let calm = self.plan.stops.is_empty() && self.plan.sites.iter().all(Site::is_swift);
                !calm || used.len() < self.plan.sites.len() || best == Some(net)
            }
            Some(_) | None => false,
        };
        self.check(right, || format!("ranks meet at {addr}, and the best is {best:?} of node {head}"));
    }
}
