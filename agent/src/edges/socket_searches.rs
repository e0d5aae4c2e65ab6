//! Searches for the processes that hold sockets, on a thread of their own: on a host with many processes a search takes a large part of a
//! second.
//!
//! The `sockets` thread starts with the first search. If the kernel refuses the thread, the machine's thread searches. The `proc` thread
//! must not do this work: a process that connects would wait for the ends of sessions.

use super::files::Port;
use super::tcpstore_listener::{Look, Looked};
use rlaunch_core::id::WorldId;
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

    /// Takes in what the thread has found. A result that its owner has not taken by then is of a closed world.
    pub(super) fn settle(&mut self) {
        self.looked = self.port.iter().flat_map(Port::take_answers).collect();
    }

    /// The result, once.
    pub(super) fn take(&mut self, owner: Owner) -> Option<Looked> {
        let at = self.looked.iter().position(|(of, _)| *of == owner)?;
        Some(self.looked.swap_remove(at).1)
    }
}
