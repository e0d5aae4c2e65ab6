//! Connections of processes of ranks: the bytes that they are sent, and their end.

use super::{MpiListener, World};
use crate::edges::{client_socket, rank_table};
use rlaunch_base::id::{ClientId, WorldId};
use rlaunch_keyvalue::listener::tcpstore::Peer;
use rlaunch_mpi::MAX_UNREAD;
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::holders;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// Connection of a process.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: TcpStream,
    /// The process that has made it.
    process: Peer,
    /// The world of its rank; `None`: not known yet.
    pub(super) world: Option<WorldId>,
    /// The beginning of a message.
    pub(super) held: Vec<u8>,
    /// Bytes that the client has not taken, and the copy of the descriptor that shows when it can. Nothing is read meanwhile.
    pub(super) unsent: Vec<u8>,
    pub(super) room: Option<OwnedFd>,
    /// No more is read; it is closed when its client has taken everything.
    pub(super) is_ending: bool,
}

impl MpiListener {
    pub(super) fn write(&mut self, client: ClientId, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        if connection.unsent.is_empty() {
            connection.unsent = bytes;
            return self.send(client);
        }
        if connection.unsent.len().saturating_add(bytes.len()) > MAX_UNREAD {
            return self.close(client);
        }
        connection.unsent.extend(bytes);
    }

    /// Writes what can be written. A client that takes nothing is not read from.
    pub(super) fn send(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        let Ok(sent) = client_socket::send(&connection.socket, &connection.unsent) else { return self.close(client) };
        connection.unsent.drain(..sent);
        let is_done = connection.is_ending && connection.unsent.is_empty();
        if is_done || connection.turn(&self.set, client).is_err() {
            self.close(client);
        }
    }

    /// Closes a connection after what was to be sent.
    pub(super) fn end(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get_mut(client) else { return };
        connection.is_ending = true;
        if connection.unsent.is_empty() {
            self.close(client);
        }
    }

    pub(super) fn close(&mut self, client: ClientId) {
        let Some(connection) = self.connections.remove(client) else { return };
        self.set.remove(&connection.socket);
        connection.room.iter().for_each(|room| self.set.remove(room));
        if let Some(world) = connection.world.and_then(|world| self.worlds.get_mut(&world)) {
            world.machine.closed(client);
        }
        self.queue.left();
    }
}

impl Connection {
    pub(super) fn new(socket: TcpStream, process: Peer) -> Self {
        let (held, unsent) = (Vec::new(), Vec::new());
        Self { socket, process, world: None, held, unsent, room: None, is_ending: false }
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.process.0 >> 32).unwrap_or(0)
    }

    /// Whether its process was started at this time, in ticks since boot.
    pub(super) const fn has_begun(&self, started: u64) -> bool {
        (started ^ self.process.0) & 0xffff_ffff == 0
    }

    /// The world that its process speaks in. Most jobs have one.
    pub(super) fn find_world<'a>(
        &mut self,
        client: ClientId,
        worlds: &'a mut BTreeMap<WorldId, World>,
        ranks: &rank_table::Ranks,
    ) -> Option<(WorldId, &'a mut World)> {
        if self.world.is_none() {
            let first = WorldId::new(0);
            let found = match worlds.len() {
                1 if worlds.contains_key(&first) => first,
                _ => {
                    let above = i32::try_from(std::process::id()).unwrap_or(0);
                    ranks.world_of(&holders::leaders_of(self.pid(), above))?
                }
            };
            worlds.get_mut(&found)?.machine.open_as(client, self.process.0);
            self.world = Some(found);
        }
        let number = self.world?;
        worlds.get_mut(&number).map(|world| (number, world))
    }

    fn turn(&mut self, set: &ReadySet, client: ClientId) -> io::Result<()> {
        client_socket::watch(set, client, &self.socket, &mut self.room, !self.unsent.is_empty())
    }
}
