//! Abstract unix names, by which the jobs of one host know of each other.
//!
//! A name has the scope of the network namespace, is nothing on disk, and ends with its owner. Any user can take any name. So a name of
//! another process counts only if the kernel shows that its socket belongs to this user or to root.

use crate::sock_diag::SockDiag;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The kernel's table of unix sockets.
const TABLE: &str = "/proc/net/unix";

/// Takes a name for the life of the descriptor. Nothing can be sent to it.
///
/// # Errors
/// `AddrInUse`: the name is taken. Others: this host allows no such names, or there is no descriptor left.
pub fn hold(name: &str) -> io::Result<OwnedFd> {
    Ok(UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?.into())
}

/// Claims a name against other jobs. `None`: another user has the name, or this host allows no such names: it protects nothing.
///
/// # Errors
/// `AddrInUse`: a process of this user or of root has the name. Others: there is no descriptor or memory left.
pub fn claim(name: &str) -> io::Result<Option<OwnedFd>> {
    match hold(name) {
        Ok(held) => Ok(Some(held)),
        Err(error) if crate::is_shortage(&error) => Err(error),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_held(name)? => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether a process of any user has this name. Nothing is sent, and its owner does not learn of it.
pub(crate) fn is_taken(name: &str) -> io::Result<bool> {
    let asking = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let address = UnixAddr::new_abstract(name.as_bytes())?;
    Ok(connect(asking.as_raw_fd(), &address) != Err(Errno::ECONNREFUSED))
}

/// Whether a process of this user or of root has this name.
///
/// # Errors
/// The table of sockets cannot be read.
pub fn is_held(name: &str) -> io::Result<bool> {
    Ok(held(name)?.iter().any(|held| held == name))
}

/// The names with this beginning that processes of this user or of root have.
///
/// # Errors
/// The table of sockets cannot be read.
pub fn held(beginning: &str) -> io::Result<Vec<String>> {
    let table = std::fs::read(TABLE)?;
    let all = entries(&String::from_utf8_lossy(&table), beginning);
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let mut diag = SockDiag::open();
    let own = nix::unistd::geteuid().as_raw();
    let mut names: Vec<String> = Vec::new();
    for (inode, name) in all {
        let found = diag.as_mut().map_err(|_| io::ErrorKind::Unsupported.into()).and_then(|diag| diag.unix_name(inode));
        let counts = match found {
            // A stranger's name can hold the text of another line of the table.
            Ok(found) => found.is_some_and(|(text, uid)| text == name.as_bytes() && (uid == own || uid == 0)),
            Err(error) if crate::is_shortage(&error) => return Err(error),
            // A kernel without unix_diag does not report the owner. As any name of a job may be ours, each counts.
            Err(_) => true,
        };
        if counts {
            names.push(name);
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Inode and name of the lines of the table whose name begins so.
fn entries(table: &str, beginning: &str) -> Vec<(u32, String)> {
    let entry = |line: &str| {
        let (rest, name) = line.rsplit_once(' ')?;
        let name = name.strip_prefix('@').filter(|name| name.starts_with(beginning))?;
        Some((rest.rsplit(' ').next()?.parse().ok()?, name.to_owned()))
    };
    table.lines().filter_map(entry).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::disallowed_methods, reason = "a process of another user")]
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    /// A process of another user that has taken a name for streams and for datagrams, until its input ends. `None`: only root can start one.
    pub(crate) fn stranger(name: &str) -> Option<Child> {
        if !nix::unistd::geteuid().is_root() {
            println!("absent: a process of another user needs root");
            return None;
        }
        let take = "import os, socket, sys\nos.setuid(4251)\nkinds = socket.SOCK_STREAM, socket.SOCK_DGRAM\n\
                    both = [socket.socket(socket.AF_UNIX, kind) for kind in kinds]\n\
                    for s in both: s.bind(chr(0) + sys.argv[1])\nboth[0].listen(1)\nprint(flush=True)\nsys.stdin.read()";
        let mut command = Command::new("python3");
        command.args(["-c", take, name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        Some(child)
    }

    fn name(of: &str) -> String {
        format!("rlaunch-test-{of}-{}", std::process::id())
    }

    #[test]
    fn name_of_this_user_is_claimed_once() {
        let name = name("own");
        let own = claim(&name).unwrap().unwrap();
        assert_eq!(claim(&name).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(held(&name).unwrap(), [name.as_str()]);
        drop(own);
        // A child of another test has the descriptor until it executes its program.
        while is_held(&name).unwrap() {
            std::thread::yield_now();
        }
        assert!(claim(&name).unwrap().is_some());
    }

    #[test]
    fn name_of_another_user_does_not_count() {
        let name = name("stranger");
        let Some(mut child) = stranger(&name) else { return };
        assert!(claim(&name).unwrap().is_none() && !is_held(&name).unwrap());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(claim(&name).unwrap().is_some());
    }

    #[test]
    fn text_of_a_line_within_a_name_does_not_count() {
        let (name, own) = (name("forged"), name("real"));
        let _own = hold(&own).unwrap();
        let table = std::fs::read(TABLE).unwrap();
        let (inode, _) = entries(&String::from_utf8_lossy(&table), &own)[0];
        let _forged = hold(&format!("x\n0: 0 0 0 0 0 {inode} @{name}")).unwrap();
        // Text that is not UTF-8 must not hide the others.
        let _text = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(b"x\xff\xfe").unwrap()).unwrap();
        assert_eq!(held(&name).unwrap(), [""; 0]);
        assert!(is_held(&own).unwrap());
    }
}
