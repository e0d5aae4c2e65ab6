//! The job's namespace, which lives here, and the way between agents for requests to this generation's namespace.
//!
//! No machine receives these requests: they are between the programs of the job.

use super::nodes::Nodes;
use super::now;
use rlaunch_base::id::{NodeId, WorldId};
use rlaunch_base::time::Mono;
use rlaunch_keyvalue::store::Ticket;
use rlaunch_keyvalue::store::owner::Owner;
use rlaunch_keyvalue::store::transit::{Transit, refuses_more};
use rlaunch_plan::place::{Placement, World};
use rlaunch_protocol::ended::{Ended, RESERVED};
use rlaunch_protocol::wire::frozen::client::Space;
use rlaunch_protocol::wire::store::{Down, Passage, Up, stamped, unstamped};
use rlaunch_protocol::wire::to_node::WORLD_NAMESPACE;
use std::collections::{BTreeMap, BTreeSet};

/// The launcher's part of the store.
#[derive(Debug)]
pub(super) struct Store {
    job: Owner,
    /// A program has used it.
    is_used: bool,
    /// Keys of rlaunch's own until then, and their values.
    unpublished: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Groups that have keys, by their names.
    groups: BTreeMap<Vec<u8>, WorldId>,
    /// The node on which rank 0 was started.
    head: NodeId,
    /// The number of this generation's namespace.
    number: u32,
    /// That namespace, and those of worlds besides the first one, by their numbers.
    shared: BTreeMap<u32, Home>,
    /// Messages that wait for room on the edges: sender and content.
    out: BTreeMap<NodeId, Transit>,
}

/// A namespace that lives on another host.
#[derive(Debug)]
struct Home {
    /// The node: that of rank 0, until a round moves it.
    node: NodeId,
    is_lost: bool,
    /// Hosts that have used it: they are notified if it is lost.
    hosts: BTreeSet<NodeId>,
}

impl Home {
    const fn new(node: NodeId) -> Self {
        Self { node, is_lost: false, hosts: BTreeSet::new() }
    }
}

impl Store {
    pub(super) fn new(generation: NodeId) -> Self {
        let shared = [(0, Home::new(generation))].into();
        Self {
            job: Owner::with_reserved(RESERVED),
            is_used: false,
            unpublished: BTreeMap::new(),
            groups: BTreeMap::new(),
            head: generation,
            number: 0,
            shared,
            out: BTreeMap::new(),
        }
    }

    /// Ranks run there from now on. If rank 0 is to start on another host, it does not matter that the one before is lost: no rank has
    /// started there.
    pub(super) fn place(&mut self, placement: &Placement) {
        let head = placement.head();
        if std::mem::replace(&mut self.head, head) != head
            && let Some(home) = self.shared.get_mut(&self.number)
        {
            home.is_lost &= home.node == head;
            home.node = head;
        }
        // The last of several worlds with one name counts.
        let named = placement.worlds.ids().map(|world| (placement.worlds.group(world).to_vec(), world));
        let groups: BTreeMap<Vec<u8>, WorldId> = named.filter(|(name, _)| !name.is_empty()).collect();
        let mut before = std::mem::take(&mut self.groups);
        for (name, world) in &groups {
            match before.remove(name) {
                Some(known) if known == *world => continue,
                Some(_) => self.job.delete_all(now(), &World::worker_keys(name)),
                None => {}
            }
            let size = placement.only(*world).world_size();
            self.put(World::store_key(name), Some(format!("size={size}\n").into_bytes()));
        }
        self.groups = groups;
        for name in before.keys() {
            self.put(World::store_key(name), None);
            self.job.delete_all(now(), &World::worker_keys(name));
        }
    }

    /// Another namespace follows, which lives there. Clients of the namespace before know of this, or will.
    pub(super) fn begin(&mut self, home: NodeId, number: u32) {
        if number < WORLD_NAMESPACE {
            self.shared.remove(&self.number);
            self.number = number;
        }
        self.shared.insert(number, Home::new(home));
    }

    /// No rank of this namespace runs any more.
    pub(super) fn end(&mut self, number: u32) {
        self.shared.remove(&number);
    }

    /// Receives a frame of an agent; `of` is the node that the frame names.
    pub(super) fn receive(&mut self, from: NodeId, of: NodeId, bytes: &[u8]) {
        match unstamped(bytes) {
            Ok((number, Passage::Up(space, up))) if let Some((ticket, words)) = self.refuses(from, &up) => {
                self.push(from, from, stamped(number, Passage::Down(space, Down::Answer(ticket, false, &words))));
            }
            Ok((_, Passage::Up(Space::Job, up))) => {
                self.is_used = true;
                self.publish();
                self.job.receive(now(), from, up);
            }
            // A namespace of the past: a client learns of the next one, and asks there.
            Ok((number, passage)) => match self.shared.get_mut(&number) {
                None => tracing::debug!(%from, number, "something of a store is late"),
                Some(home) => match passage {
                    Passage::Up(Space::Generation, _) if home.is_lost => self.send_down(number, from, Down::Closed),
                    Passage::Up(Space::Generation, up) => {
                        home.hosts.insert(from);
                        let to = home.node;
                        self.pass_on(from, to, (number, &up), bytes);
                    }
                    Passage::Down(Space::Generation, _) if from == home.node => self.push(of, of, bytes.to_vec()),
                    Passage::Up(Space::Job, _) | Passage::Down(..) => {
                        tracing::debug!(%from, "something of a store makes no sense");
                    }
                },
            },
            Err(_) => tracing::debug!(%from, "something of a store makes no sense"),
        }
        self.send_actions();
    }

    /// A rank has ended: programs of the job can ask how. Most never do.
    pub(super) fn ended(&mut self, key: Vec<u8>, ended: Option<Box<Ended>>) {
        self.put(key, ended.map(|ended| ended.write()));
    }

    /// Gives a key of rlaunch's own a value, or removes it.
    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        match value {
            value if self.is_used => {
                self.job.put(now(), &key, value.as_deref());
                self.send_actions();
            }
            Some(value) => drop(self.unpublished.insert(key, value)),
            None => drop(self.unpublished.remove(&key)),
        }
    }

    fn publish(&mut self) {
        for (key, value) in std::mem::take(&mut self.unpublished) {
            self.job.put(now(), &key, Some(&value));
        }
    }

    /// The answer for a host that sends requests and does not take its answers.
    fn refuses(&self, from: NodeId, up: &Up<'_>) -> Option<(Ticket, Vec<u8>)> {
        refuses_more(self.out.get(&from).map_or(0, Transit::bytes), up)
    }

    /// Something for the owner of this generation's namespace, which may have no room for it.
    fn pass_on(&mut self, from: NodeId, to: NodeId, (number, up): (u32, &Up<'_>), bytes: &[u8]) {
        match self.out.get(&to).and_then(|transit| transit.refuses(up)) {
            None => self.push(to, from, bytes.to_vec()),
            Some((ticket, words)) => {
                let answer = Passage::Down(Space::Generation, Down::Answer(ticket, false, &words));
                self.push(from, from, stamped(number, answer));
            }
        }
    }

    /// A node is lost.
    pub(super) fn lost(&mut self, node: NodeId) {
        self.out.remove(&node);
        self.job.receive(now(), node, Up::Lost);
        let mut frames = Vec::new();
        for (number, home) in &mut self.shared {
            if node == home.node {
                home.is_lost = true;
                let hosts = std::mem::take(&mut home.hosts).into_iter();
                let closed = |host| (host, host, stamped(*number, Passage::Down(Space::Generation, Down::Closed)));
                frames.extend(hosts.map(closed));
            } else if home.hosts.remove(&node) {
                frames.push((home.node, node, stamped(*number, Passage::Up(Space::Generation, Up::Lost))));
            }
        }
        frames.into_iter().for_each(|(to, of, bytes)| self.push(to, of, bytes));
        self.send_actions();
    }

    fn send_down(&mut self, number: u32, node: NodeId, down: Down<'_>) {
        self.push(node, node, stamped(number, Passage::Down(Space::Generation, down)));
    }

    fn push(&mut self, to: NodeId, of: NodeId, bytes: Vec<u8>) {
        self.out.entry(to).or_default().push(of, bytes);
    }

    fn send_actions(&mut self) {
        while let Some((node, message)) = self.job.poll_action() {
            self.push(node, node, stamped(0, Passage::Down(Space::Job, message.down())));
        }
    }

    /// Queues what the edges have room for; time has passed, too.
    pub(super) fn poll(&mut self, nodes: &mut Nodes) {
        if self.job.poll_timeout().is_some_and(|at| at <= now()) {
            self.job.handle_timeout(now());
            self.send_actions();
        }
        self.out.retain(|node, waiting| {
            let Some(link) = nodes.live(*node) else { return false };
            while link.has_store_room()
                && let Some((of, bytes)) = waiting.pop()
            {
                // The edge has room: the limit is far away.
                let _room = link.store(of, &bytes);
            }
            !waiting.is_empty()
        });
    }

    /// Whether more could be queued at once: the kernel took all that was, so nothing else wakes us.
    pub(super) fn has_more(&self, nodes: &mut Nodes) -> bool {
        self.out.keys().any(|node| nodes.live(*node).is_some_and(|link| link.has_store_room()))
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.job.poll_timeout()
    }
}

#[cfg(test)]
mod tests;
