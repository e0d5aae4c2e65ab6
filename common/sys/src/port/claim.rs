//! Claim of a MASTER_PORT that the user gave, against other jobs of rlaunch on this host.
//!
//! Claims are abstract unix names, as the reservations of chosen ports are. A given port has a name of its own, so that two given ports
//! of one block do not exclude each other. A claim and a reservation each take their own name first, and look for the names of the
//! other kind then: of two that exclude each other at least one fails. A second name of the claim says which job has it.

use super::{BLOCK, Port, hold, reservation};
use std::io;
use std::os::fd::AsRawFd;

/// The job that has a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// Its name; empty: unknown.
    pub job: String,
    /// Its agent, as that sees itself; `None`: unknown.
    pub agent: Option<u32>,
}

/// The failure of a claim.
#[derive(Debug)]
pub enum ClaimError {
    /// Another job has the port.
    Taken(Owner),
    /// A resource of our own is missing.
    Failed(io::Error),
}

impl From<io::Error> for ClaimError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Claims a port for a job. A program may listen there already.
///
/// # Errors
/// Another job has the port, or a resource is missing.
pub fn claim(number: u16, job: &str) -> Result<Port, ClaimError> {
    let held = match hold(&given(number)) {
        Ok(held) => Some(held),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            return Err(ClaimError::Taken(owner(number).unwrap_or_default()));
        }
        Err(error) if crate::is_shortage(&error) => return Err(error.into()),
        // This host allows no such names.
        Err(_) => None,
    };
    if are_held([reservation(number - number % BLOCK)])? {
        return Err(ClaimError::Taken(Owner::default()));
    }
    let label = held.is_some().then(|| hold(&format!("{}{job}-{}", label(number), std::process::id()))).transpose()?;
    Ok(Port { number, reservation: held, label })
}

/// Whether a port of this block is claimed.
pub(super) fn is_in(first: u16) -> io::Result<bool> {
    are_held((first..first + BLOCK).map(given))
}

fn given(port: u16) -> String {
    format!("rlaunch-port-{port}-given")
}

/// The beginning of the name that names the owner.
fn label(port: u16) -> String {
    format!("rlaunch-port-{port}-given-to-")
}

/// Whether a process holds one of these names.
fn are_held(names: impl IntoIterator<Item = String>) -> io::Result<bool> {
    use nix::errno::Errno;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
    let asking = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    for name in names {
        // Nothing is sent, and the owner does not learn of it.
        if connect(asking.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?) != Err(Errno::ECONNREFUSED) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The owner of a claim, by its second name.
fn owner(port: u16) -> Option<Owner> {
    let sockets = std::fs::read("/proc/net/unix").ok()?;
    let label = format!("@{}", label(port));
    let text = String::from_utf8_lossy(&sockets);
    let (job, agent) = text.lines().find_map(|line| line.split_once(&label)?.1.split_once('-'))?;
    Some(Owner { job: job.to_owned(), agent: agent.trim_end().parse().ok() })
}

#[cfg(test)]
mod tests {
    use super::super::choose;
    use super::*;

    fn owner_of(failed: Result<Port, ClaimError>) -> Owner {
        match failed {
            Err(ClaimError::Taken(owner)) => owner,
            Err(ClaimError::Failed(error)) => panic!("{error}"),
            Ok(port) => panic!("{} is claimed twice", port.number),
        }
    }

    #[test]
    fn a_claim_excludes_the_same_port_and_the_block_around_it() {
        let mut block = choose(3).unwrap();
        let number = block.number + 3;
        assert_eq!(owner_of(claim(number, "b0")), Owner::default(), "chosen by another");
        drop(block);
        let held = claim(number, "a1").unwrap();
        assert!(held.reservation.is_some());
        let other = claim(number + 1, "b0").unwrap();
        assert_eq!((held.number, other.number), (number, number + 1));
        let agent = Some(std::process::id());
        assert_eq!(owner_of(claim(number, "b0")), Owner { job: "a1".to_owned(), agent });
        // The same random number: only the claim keeps it from that block.
        block = choose(3).unwrap();
        assert_ne!(block.number, number - 3);
        drop((held, other));
        drop(claim(number, "b0").unwrap());
    }
}
