//! Claim of a MASTER_PORT that the user gave, against other jobs of rlaunch on this host.
//!
//! Claims are abstract unix names, as the reservations of chosen ports are. A given port has a name of its own, so that two given ports
//! of one block do not exclude each other. A claim and a reservation each take their own name first, and look for the names of the
//! other kind then: of two that exclude each other at least one fails. A second name of the claim says which job has it.

use super::{BLOCK, Port, reservation};
use crate::abstract_name;
use std::io;

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
    let held = match abstract_name::claim(&given(number)) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(ClaimError::Taken(owner(number)?)),
        claimed => claimed?,
    };
    let block = reservation(number - number % BLOCK);
    if abstract_name::is_taken(&block)? && abstract_name::is_held(&block)? {
        return Err(ClaimError::Taken(Owner::default()));
    }
    let label = held.is_some().then(|| abstract_name::claim(&format!("{}{job}-{}", label(number), std::process::id())));
    Ok(Port { number, reservation: held, label: label.transpose()?.flatten(), placeholder: None })
}

/// Whether a port of this block is claimed, by any user.
pub(super) fn is_in(first: u16) -> io::Result<bool> {
    (first..first + BLOCK).map(given).try_fold(false, |is_taken, name| Ok(is_taken || abstract_name::is_taken(&name)?))
}

fn given(port: u16) -> String {
    format!("rlaunch-port-{port}-given")
}

/// The beginning of the name that names the owner.
fn label(port: u16) -> String {
    format!("rlaunch-port-{port}-given-to-")
}

/// The owner of a claim, by its second name; without it the owner is unknown.
fn owner(port: u16) -> io::Result<Owner> {
    let label = label(port);
    let held = abstract_name::held(&label)?;
    let owner = held.iter().find_map(|name| name.strip_prefix(&label)?.split_once('-'));
    Ok(owner.map(|(job, agent)| Owner { job: job.to_owned(), agent: agent.parse().ok() }).unwrap_or_default())
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

    #[test]
    fn names_of_another_user_keep_no_port() {
        let number = choose(11).unwrap().number;
        for name in [given(number), reservation(number)] {
            let Some(mut child) = abstract_name::tests::stranger(&name) else { return };
            let port = claim(number, "a1").unwrap();
            assert_eq!(port.reservation.is_none(), name == given(number));
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
