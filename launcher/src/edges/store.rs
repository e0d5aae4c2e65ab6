//! The job's namespace, which lives here, and the way between agents for what is asked of this generation's.
//!
//! No machine hears of any of it: it is between the programs of the job.

use super::nodes::Nodes;
use super::now;
use rlaunch_core::id::NodeId;
use rlaunch_core::place::Placement;
use rlaunch_core::store::Ticket;
use rlaunch_core::store::owner::Owner;
use rlaunch_core::store::transit::{Transit, refuses_more};
use rlaunch_core::time::Mono;
use rlaunch_core::wire::frozen::client::Space;
use rlaunch_core::wire::store::{Down, Passage, Up, stamped, unstamped};
use std::collections::{BTreeMap, BTreeSet};

/// The launcher's part of the store.
#[derive(Debug)]
pub(super) struct Store {
    job: Owner,
    /// The node on which rank 0 was started.
    head: NodeId,
    /// The node on which this generation's namespace lives: rank 0's, until a round moves it.
    generation: NodeId,
    /// The number of that namespace.
    number: u32,
    is_lost: bool,
    /// Hosts that have used it: they are notified if it is lost.
    guests: BTreeSet<NodeId>,
    /// Messages that wait for room on the edges: sender and content.
    out: BTreeMap<NodeId, Transit>,
}

impl Store {
    pub(super) fn new(generation: NodeId) -> Self {
        Self {
            job: Owner::default(),
            head: generation,
            generation,
            number: 0,
            is_lost: false,
            guests: BTreeSet::new(),
            out: BTreeMap::new(),
        }
    }

    /// Ranks run there from now on. If rank 0 is to start on another host, it does not matter that the one before is lost: no rank has
    /// started there.
    pub(super) fn place(&mut self, placement: &Placement) {
        let head = placement.head();
        if std::mem::replace(&mut self.head, head) != head {
            self.is_lost &= self.generation == head;
            self.generation = head;
        }
    }

    /// Another namespace follows, which lives there. Clients of the namespace before know of this, or will.
    pub(super) fn begin(&mut self, home: NodeId, number: u32) {
        (self.generation, self.number, self.is_lost) = (home, number, false);
        self.guests.clear();
    }

    /// An agent says something; `of` is whom it names.
    pub(super) fn heard(&mut self, from: NodeId, of: NodeId, bytes: &[u8]) {
        match unstamped(bytes) {
            Ok((number, Passage::Up(space, up))) if let Some((ticket, words)) = self.refuses(from, &up) => {
                self.push(from, from, stamped(number, Passage::Down(space, Down::Answer(ticket, false, &words))));
            }
            Ok((_, Passage::Up(Space::Job, up))) => self.job.receive(now(), from, up),
            // A namespace of the past: a client learns of the next one, and asks there.
            Ok((number, _)) if number != self.number => tracing::debug!(%from, number, "something of a store is late"),
            Ok((_, Passage::Up(Space::Generation, _))) if self.is_lost => self.tell(from, Down::Closed),
            Ok((number, Passage::Up(Space::Generation, up))) => {
                self.guests.insert(from);
                self.pass_on(from, number, &up, bytes);
            }
            Ok((_, Passage::Down(Space::Generation, _))) if from == self.generation => {
                self.push(of, of, bytes.to_vec());
            }
            Ok((_, Passage::Down(..))) | Err(_) => tracing::debug!(%from, "something of a store makes no sense"),
        }
        self.settle();
    }

    /// The answer for a host that sends requests and does not take its answers.
    fn refuses(&self, from: NodeId, up: &Up<'_>) -> Option<(Ticket, Vec<u8>)> {
        refuses_more(self.out.get(&from).map_or(0, Transit::bytes), up)
    }

    /// Something for the owner of this generation's namespace, which may have no room for it.
    fn pass_on(&mut self, from: NodeId, number: u32, up: &Up<'_>, bytes: &[u8]) {
        match self.out.get(&self.generation).and_then(|transit| transit.refuses(up)) {
            None => self.push(self.generation, from, bytes.to_vec()),
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
        if node == self.generation {
            self.is_lost = true;
            for guest in std::mem::take(&mut self.guests) {
                self.tell(guest, Down::Closed);
            }
        } else if self.guests.remove(&node) {
            self.push(self.generation, node, stamped(self.number, Passage::Up(Space::Generation, Up::Lost)));
        }
        self.settle();
    }

    fn tell(&mut self, node: NodeId, down: Down<'_>) {
        self.push(node, node, stamped(self.number, Passage::Down(Space::Generation, down)));
    }

    fn push(&mut self, to: NodeId, of: NodeId, bytes: Vec<u8>) {
        self.out.entry(to).or_default().push(of, bytes);
    }

    fn settle(&mut self) {
        while let Some((node, tell)) = self.job.poll_action() {
            self.push(node, node, stamped(0, Passage::Down(Space::Job, tell.down())));
        }
    }

    /// Queues what the edges have room for; time has passed, too.
    pub(super) fn poll(&mut self, nodes: &mut Nodes) {
        if self.job.poll_timeout().is_some_and(|at| at <= now()) {
            self.job.handle_timeout(now());
            self.settle();
        }
        self.out.retain(|node, waiting| {
            let Some(link) = nodes.live(*node) else { return false };
            while link.has_store_room()
                && let Some((of, bytes)) = waiting.pop()
            {
                // It has room: the limit is far away.
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
