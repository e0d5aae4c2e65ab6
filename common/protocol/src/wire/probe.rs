//! The proof that an agent reaches the agent of rank 0's host at an address.
//!
//! An accepted connection proves nothing: 172.17.0.1 exists on every host that has Docker, and leads to the host itself. So the agent that
//! listens sends the key of the place to each process that connects. The launcher derives this key and sends it to agents of the job only.
//! Host, address and port are in the key, so the key is
//! worth nothing at another place. A process on two hosts that have the same address could pass it on.

use super::to_root::ADDRESSES;
use alloc::format;
use core::fmt;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// Length of a key.
pub const KEY: usize = 32;

/// The secret of a job, of a host or of a place. Diagnostics do not show it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Key([u8; KEY]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[a key]")
    }
}

impl Key {
    /// The secret of a job, from random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; KEY]) -> Self {
        Self(bytes)
    }

    /// The key of one host of the job: several hosts listen while it is open which of them will have rank 0.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Self {
        Self(blake3::keyed_hash(&self.0, &node.get().to_le_bytes()).into())
    }

    /// The key of a place where that host listens: a numeric address and a port.
    #[must_use]
    pub fn at(&self, addr: &OsBytes, port: u16) -> Self {
        let place = [port.to_le_bytes().as_slice(), addr].concat();
        Self(blake3::keyed_hash(&self.0, &place).into())
    }

    /// The bytes that the agent sends.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY] {
        &self.0
    }

    /// Whether these bytes are the key. The duration does not depend on how many of them are right.
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        blake3::Hash::from_bytes(self.0) == *bytes
    }
}

/// A place where rank 0's agent may be reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The number of the place in the answer: no two places of a job have the same.
    pub number: u32,
    /// A numeric address.
    pub addr: OsBytes,
    /// The port at this address.
    pub port: u16,
    /// The key that rank 0's agent sends there.
    pub key: Key,
}

impl Place {
    /// The address and the port, as URLs have them.
    #[must_use]
    pub fn text(&self) -> OsBytes {
        if self.addr.contains(&b':') {
            return OsBytes::from(format!("[{}]:{}", self.addr, self.port));
        }
        OsBytes::from(format!("{}:{}", self.addr, self.port))
    }
}

/// All places that an agent is to try.
pub type Places = Capped<Place, ADDRESSES>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_of_one_job_host_address_and_port() {
        let (job, addr) = (Key::new([7; KEY]), OsBytes::from("10.0.0.1"));
        let place = job.of(NodeId::new(3)).at(&addr, 20_000);
        assert!(place.is(place.bytes()) && place == job.of(NodeId::new(3)).at(&addr, 20_000));
        let others = [
            Key::new([8; KEY]).of(NodeId::new(3)).at(&addr, 20_000),
            job.of(NodeId::new(4)).at(&addr, 20_000),
            job.of(NodeId::new(3)).at(&"10.0.0.2".into(), 20_000),
            job.of(NodeId::new(3)).at(&addr, 20_001),
            job.of(NodeId::new(3)),
            job,
        ];
        assert!(others.iter().all(|other| !place.is(other.bytes())));
    }

    #[test]
    fn other_bytes_are_no_key() {
        let key = Key::new([7; KEY]);
        for bit in 0..8 * KEY {
            let mut bytes = *key.bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.is(&bytes), "{bit}");
        }
        assert!(!key.is(&[]) && !key.is(&[7; KEY - 1]) && !key.is(&[7; KEY + 1]));
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(alloc::format!("{:?}", Key::new([7; KEY])), "[a key]");
    }
}
