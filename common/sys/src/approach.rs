//! Connections that are begun and not waited for, and numeric addresses as people write them.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Begins to connect. Once there is room to write, [`TcpStream::take_error`] says how that went.
///
/// # Errors
/// As `connect(2)`, where that is known at once.
pub fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd: OwnedFd = socket(family, SockType::Stream, flags, None)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Closing it leaves nothing of the connection in the kernel, and unsent bytes are lost.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn abort_at_end(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(&socket.as_fd(), sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?)
}

/// A numeric address; an address of one link may have the name of an interface of this host after a `%`.
#[must_use]
pub fn address(text: &[u8], port: u16) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (ip, zone) = text.split_once('%').map_or((text, None), |(ip, zone)| (ip, Some(zone)));
    match (ip.parse().ok()?, zone) {
        (IpAddr::V6(v6), Some(zone)) => {
            let scope = nix::net::if_::if_nametoindex(zone).ok().or_else(|| zone.parse().ok())?;
            Some(SocketAddrV6::new(v6, port, 0, scope).into())
        }
        (IpAddr::V4(_), Some(_)) => None,
        (ip, None) => Some(SocketAddr::new(ip, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{SockaddrIn, bind, getsockname};
    use std::io::Read as _;
    use std::net::TcpListener;

    #[test]
    fn addresses_are_read_and_names_are_not() {
        assert_eq!(address(b"10.0.0.1", 7), "10.0.0.1:7".parse().ok());
        assert_eq!(address(b"::1", 7), "[::1]:7".parse().ok());
        let Some(SocketAddr::V6(of_link)) = address(b"fe80::1%lo", 7) else { panic!("no address") };
        assert_eq!((of_link.scope_id(), of_link.port()), (1, 7));
        for wrong in ["", "node0", "10.0.0.1%lo", "fe80::1%no-such-interface", "10.0.0.1:7"] {
            assert_eq!(address(wrong.as_bytes(), 7), None, "{wrong}");
        }
        assert_eq!(address(b"\xff", 7), None);
    }

    #[test]
    fn a_connection_is_begun_and_its_end_leaves_nothing_behind() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = begin(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        crate::fd::wait_writable(ours.as_raw_fd());
        assert!(ours.take_error().unwrap().is_none());
        abort_at_end(&ours).unwrap();
        drop(ours);
        assert_eq!(peer.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        // A port without a listener, and that no other process can have meanwhile.
        let held = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(held.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        let closed: SockaddrIn = getsockname(held.as_raw_fd()).unwrap();
        let closed = SocketAddr::new(closed.ip().into(), closed.port());
        let refused = begin(closed).and_then(|ours| {
            crate::fd::wait_writable(ours.as_raw_fd());
            ours.take_error()?.map_or(Ok(()), Err)
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
