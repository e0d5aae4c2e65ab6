//! Searches for the processes that hold sockets, on a thread of their own: on a host with many processes a search takes a large part of a
//! second.
//!
//! The `sockets` thread starts with the first search. If the kernel refuses the thread, the machine's thread searches. The `proc` thread
//! must not do this work: a process that connects would wait for the ends of sessions.

use super::files::Port;
use super::tcpstore_listener::{Look, Looked};
use rlaunch_base::id::WorldId;
use rlaunch_sys::doorbell::Doorbell;
use rlaunch_sys::holders::Finder;
use std::io;

/// The owner of a search. Each has one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The `TCPStore` of the first world, here or on another host.
    TcpStore,
    /// The `TCPStore` of another world.
    World(WorldId),
    /// The listener for MPI libraries.
    Mpi,
}

/// Most results that wait: more than there are worlds with a store at a time.
const MOST: usize = 1024;

/// The way to the thread and back.
#[derive(Default)]
pub(super) struct SocketSearches {
    port: Option<Port<(Owner, Look), (Owner, Looked)>>,
    looked: Vec<(Owner, Looked)>,
}

impl SocketSearches {
    /// Has a search made; [`Self::take`] has its result. `watch` is given the bell that rings for it.
    pub(super) fn submit(&mut self, owner: Owner, look: Look, watch: impl FnOnce(&Doorbell) -> io::Result<()>) {
        if self.port.is_none() {
            let mut finder = Finder::default();
            let start = Port::start("sockets", move |(owner, look): (Owner, Look)| (owner, look.perform(&mut finder)));
            match start.and_then(|port| watch(port.bell()).map(|()| port)) {
                Ok(port) => self.port = Some(port),
                Err(error) => tracing::debug!(%error, "no thread for searches of sockets: the machine thread searches"),
            }
        }
        let refused = match &self.port {
            Some(port) => port.pass_on((owner, look)).err(),
            None => Some((owner, look)),
        };
        if let Some((owner, look)) = refused {
            self.looked.push((owner, look.perform(&mut Finder::default())));
        }
    }

    /// Takes in what the thread has found. Results for worlds that are closed by now stay until there are too many.
    pub(super) fn receive_answers(&mut self) {
        self.looked.extend(self.port.iter().flat_map(Port::take_answers));
        let old = self.looked.len().saturating_sub(MOST);
        self.looked.drain(..old);
    }

    /// The result, once.
    pub(super) fn take(&mut self, owner: Owner) -> Option<Looked> {
        let at = self.looked.iter().position(|(of, _)| *of == owner)?;
        Some(self.looked.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::edges::tcpstore_listener::{Asker, Authorizer};
    use crate::edges::testing;

    /// The bell may ring twice before an owner has its turn.
    #[test]
    fn results_of_two_owners_wait_for_both() {
        let _runtime = testing::enter();
        let (mut edges, _far) = testing::edges();
        let owners = [Owner::TcpStore, Owner::Mpi];
        let mut authorizers = owners.map(|_| Authorizer::new(now()).unwrap());
        for (owner, authorizer) in owners.into_iter().zip(&mut authorizers) {
            authorizer.look_inside(Asker::Queue(1), "10.9.9.9:1".parse().unwrap(), "10.9.9.1:2".parse().unwrap());
            assert_eq!(authorizer.take_known(owner, &mut edges.base), []);
        }
        while edges.base.socket_searches.looked.len() < owners.len() {
            std::thread::yield_now();
            edges.base.socket_searches.receive_answers();
        }
        assert!(owners.into_iter().all(|owner| edges.base.socket_searches.take(owner).is_some()));
    }
}
