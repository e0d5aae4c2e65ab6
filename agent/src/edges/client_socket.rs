//! The sockets of clients: what they take, and when they can take more.

use rlaunch_base::id::ClientId;
use rlaunch_sys::epoll::ReadySet;
use rlaunch_sys::socket;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};

/// In a token: the client's socket has room. Below it is the number of the client.
pub(super) const WRITABLE: u64 = 1 << 32;

/// The client of a token.
pub(super) fn client_of(token: u64) -> ClientId {
    ClientId::new(u32::try_from(token & (WRITABLE - 1)).unwrap_or(u32::MAX))
}

/// Writes what a socket takes now. Returns how many bytes that were.
pub(super) fn send(to: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(rest @ [_, ..]) = bytes.get(sent..) {
        match socket::send(to, rest) {
            Ok(len) => sent += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
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
