//! Readiness of a client's socket, for the listeners of the TCPStore and of MPI.

use rlaunch_core::id::ClientId;
use rlaunch_sys::epoll::ReadySet;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// In a token: the client's socket has room. Below it is the number of the client.
pub(super) const WRITABLE: u64 = 1 << 32;

/// The client of a token.
pub(super) fn client_of(token: u64) -> ClientId {
    ClientId::new(u32::try_from(token & (WRITABLE - 1)).unwrap_or(u32::MAX))
}

/// Waits for room while there is something unsent, for messages otherwise. `room` is the descriptor that is watched for room.
pub(super) fn watch(
    set: &ReadySet,
    client: ClientId,
    socket: &TcpStream,
    room: &mut Option<OwnedFd>,
    is_unsent: bool,
) -> io::Result<()> {
    let token = u64::from(client.get());
    match room.take() {
        Some(was_watched) if !is_unsent => {
            set.remove(&was_watched);
            set.add(socket, token)
        }
        None if is_unsent => {
            let new = OwnedFd::from(socket.try_clone()?);
            set.add_writable(&new, token | WRITABLE)?;
            set.remove(socket);
            *room = Some(new);
            Ok(())
        }
        as_before => {
            *room = as_before;
            Ok(())
        }
    }
}
