//! Lists of hosts that the command of `--discover` prints: what a seed means for them, and what must hold of hosts that are found, drained
//! and printed again.
//!
//! A found slice gets the first slot without one, host by host, for ever. Only hosts that are known are reached. Ranks never start on a host
//! that the last list does not have.

use crate::plan::{MS, Plan};
use crate::rng::Rng;
use crate::world::World;
use rlaunch_base::id::NodeId;
use rlaunch_plan::hostlist::{Chips, Entry, Host};
use std::collections::{BTreeMap, BTreeSet};

/// Number of the random stream, distinct from those of other jobs.
const STREAM: u64 = 0x7072_696e_7465_6400;
/// Time between two lists.
const EVERY: u64 = 10_000 * MS;
/// Lists of a job. The last one has all hosts.
const LISTS: u64 = 6;

/// The knowledge about found hosts.
#[derive(Default)]
pub(crate) struct Found {
    /// Names of hosts that the job did not know at its start.
    names: BTreeMap<NodeId, String>,
    /// The hosts of the last list; `None`: there was none.
    listed: Option<BTreeSet<String>>,
}

/// Some jobs on slices have slices that are found later, and hosts that lists do not have.
pub(crate) fn draw(seed: u64, plan: &mut Plan) {
    let rng = &mut Rng::new(seed ^ STREAM);
    let Some(slices) = plan.spec.slices.as_mut().filter(|_| rng.chance(35)) else { return };
    let count = slices.slots.len() as u64;
    let size = slices.slots.first().map_or(1, |slot| slot.hosts.len()) as u64;
    let known = rng.between(1, count);
    for slot in slices.slots.iter_mut().skip(usize::try_from(known).unwrap_or(0)) {
        slot.name.clear();
        for host in &slot.hosts {
            if let Some(node) = plan.spec.placement.nodes.get_mut(host.index()) {
                (node.host, node.chips) = (Host::named(""), None);
            }
        }
    }
    // A slice more than there are slots.
    let found = count - known + u64::from(rng.chance(20));
    let born: Vec<u64> = (0..found).map(|_| rng.below(LISTS)).collect();
    let first = rng.between(100 * MS, EVERY);
    plan.lists = (0..LISTS).map(|n| (first + n * EVERY, list(n, (known, size), &born, rng))).collect();
}

fn list(n: u64, (known, size): (u64, u64), born: &[u64], rng: &mut Rng) -> Vec<Entry> {
    let mut all = Vec::new();
    let is_last = n + 1 == LISTS;
    for slice in 0..known {
        let missing = if !is_last && rng.chance(10) { rng.below(size) } else { size };
        let hosts = (0..size).filter(|host| *host != missing);
        all.extend(hosts.map(|host| entry(format!("node{}", slice * size + host), (format!("s{slice}"), size, host))));
    }
    for (birth, slice) in born.iter().zip(0_u64..) {
        if n < *birth {
            continue;
        }
        // A host of a new slice may come later than the others, and any host may be missing for a while.
        let missing = if !is_last && rng.chance(20) { rng.below(size) } else { size };
        let hosts = (0..size).filter(|host| *host != missing);
        all.extend(hosts.map(|host| entry(format!("f{slice}-{host}"), (format!("f{slice}"), size, host))));
    }
    if rng.chance(50) {
        all.reverse();
    }
    all
}

fn entry(name: String, (slice, size, id): (String, u64, u64)) -> Entry {
    let (hosts, id) = (u32::try_from(size).unwrap_or(0), u32::try_from(id).unwrap_or(0));
    Entry { chips: Some(Chips { hosts, ..Chips::of(&slice, id, 4) }), ..Entry::plain(Host::named(&name)) }
}

impl Found {
    /// The job reads a list.
    pub(crate) fn on_list(&mut self, list: &[Entry]) {
        self.listed = Some(list.iter().map(|entry| entry.host.name.clone()).collect());
    }
}

impl World {
    /// The job has learned the name of a host.
    pub(crate) fn is_known(&mut self, node: NodeId, host: &Host) {
        self.note("< job", || format!("{node:?} is {}", host.name));
        let plan = &self.plan.spec;
        let was_unknown = plan.placement.nodes.get(node.index()).is_some_and(|node| node.is_unknown());
        let is_listed = self.found.listed.as_ref().is_some_and(|listed| listed.contains(&host.name));
        let again = self.found.names.insert(node, host.name.clone());
        self.check(was_unknown && is_listed && again.is_none(), || {
            format!("{node:?} is called {}, and was {again:?}", host.name)
        });
        let slots = self.plan.spec.slices.as_ref().map(|plan| plan.slots.clone()).unwrap_or_default();
        let own = |node: &NodeId| self.found.names.get(node).and_then(|name| name.rsplit_once('-'));
        let mut is_open = false;
        let mut wrong = None;
        for slot in slots.iter().filter(|slot| slot.name.is_empty()) {
            let names: Vec<_> = slot.hosts.iter().filter_map(own).collect();
            let is_in_order = names.iter().zip(0..).all(|((_, id), at)| id.parse() == Ok(at));
            let is_one = names.windows(2).all(|pair| pair[0].0 == pair[1].0);
            let is_next = names.is_empty() || !is_open;
            is_open |= names.len() < slot.hosts.len();
            if !(is_in_order && is_one && is_next) {
                wrong.get_or_insert(format!("a slot has the hosts {names:?}"));
            }
        }
        self.check(wrong.is_none(), || wrong.unwrap_or_default());
    }

    /// The launcher has a host reached: it knows its name.
    pub(crate) fn check_is_known(&mut self) {
        let (node, id) = (self.plan.spec.placement.nodes.get(self.node), self.id());
        let is_known = node.is_none_or(|node| !node.is_unknown()) || self.found.names.contains_key(&id);
        self.check(is_known, || "a host without a name is reached".to_owned());
    }

    /// Whether the last list has a host.
    pub(crate) fn is_listed(&self, node: NodeId) -> bool {
        let named = self.plan.spec.placement.nodes.get(node.index()).map(|node| &node.host.name);
        let Some(name) = self.found.names.get(&node).or(named).filter(|name| !name.is_empty()) else { return false };
        self.found.listed.as_ref().is_none_or(|listed| listed.contains(name))
    }
}
