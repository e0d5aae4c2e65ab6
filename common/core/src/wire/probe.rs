//! The proof that an agent reaches rank 0's agent at an address, and no other process: the launcher's request, and the two messages over
//! a connection made for that alone.
//!
//! An accepted connection proves nothing: 172.17.0.1 exists on every host that has Docker, and leads to oneself. So each end proves that
//! it has a key which the launcher has made, for one host of one job, and sent to agents of that job only. The connecting end proves it
//! first: strangers learn nothing. Address and port are in the proof, so that it cannot be passed on under another address.

use super::capped::Capped;
use super::to_root::ADDRESSES;
use crate::id::NodeId;
use crate::os_bytes::OsBytes;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use serde::{Deserialize, Serialize};

/// The begin of the first message: another protocol's bytes are known by the first of them.
const MAGIC: &[u8; 8] = b"\0rlprobe";
/// Bytes that were never used before.
pub const NONCE: usize = 16;
const PROOF: usize = 32;
/// Length of the first message: the magic, a nonce, a proof.
pub const ASK: usize = MAGIC.len() + NONCE + PROOF;
/// Length of the answer: a nonce, a proof.
pub const ANSWER: usize = NONCE + PROOF;

/// A number that was never used before.
pub type Nonce = [u8; NONCE];

/// The key of both ends. Diagnostics do not show it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Key([u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[a key]")
    }
}

impl Key {
    /// From random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// That of one host: several listen where it is open which of them will have rank 0.
    #[must_use]
    pub fn of(&self, node: NodeId) -> Self {
        Self(blake3::keyed_hash(&self.0, &node.get().to_le_bytes()).into())
    }

    /// The proof that its author has the key, listens or connects there, and knows these values.
    fn proof(&self, role: u8, at: SocketAddr, nonces: &[&Nonce]) -> blake3::Hash {
        let ip = match at.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&[role]).update(&ip.octets()).update(&at.port().to_le_bytes());
        for nonce in nonces {
            hasher.update(nonce.as_slice());
        }
        hasher.finalize()
    }
}

/// The role of the connecting end.
const CALLER: u8 = 1;
/// The role of the listening end.
const DOOR: u8 = 2;

/// The result of parsing bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard<T> {
    /// The message is not complete.
    Part,
    /// The message is not from the job.
    Nonsense,
    /// The message is proven.
    Proven(T),
}

/// The first message, as it comes in.
#[derive(Default, Debug)]
pub struct Asked(Vec<u8>);

impl Asked {
    /// Takes in bytes that came to the one who listens there: what others have asked.
    pub fn hear(&mut self, key: &Key, at: SocketAddr, bytes: &[u8]) -> Heard<Nonce> {
        if !take(&mut self.0, bytes, ASK) || !agrees(&self.0, MAGIC) {
            return Heard::Nonsense;
        }
        let Some((nonce, proof)) = self.0.get(MAGIC.len()..).and_then(split) else { return Heard::Part };
        if key.proof(CALLER, at, &[&nonce]) == proof { Heard::Proven(nonce) } else { Heard::Nonsense }
    }
}

/// The connecting end, which waits for the answer.
#[derive(Debug)]
pub struct Caller {
    key: Key,
    at: SocketAddr,
    nonce: Nonce,
    held: Vec<u8>,
}

impl Caller {
    /// Creates the connecting end of a connection to this address.
    #[must_use]
    pub const fn new(key: Key, at: SocketAddr, nonce: Nonce) -> Self {
        Self { key, at, nonce, held: Vec::new() }
    }

    /// The first message.
    #[must_use]
    pub fn ask(&self) -> Vec<u8> {
        let proof = self.key.proof(CALLER, self.at, &[&self.nonce]);
        [MAGIC.as_slice(), &self.nonce, proof.as_bytes()].concat()
    }

    /// Takes in bytes of the answer.
    pub fn hear(&mut self, bytes: &[u8]) -> Heard<()> {
        if !take(&mut self.held, bytes, ANSWER) {
            return Heard::Nonsense;
        }
        let Some((theirs, proof)) = split(&self.held) else { return Heard::Part };
        let is_true = self.key.proof(DOOR, self.at, &[&self.nonce, &theirs]) == proof;
        if is_true { Heard::Proven(()) } else { Heard::Nonsense }
    }
}

/// The answer of the one who listens there, to what was asked.
#[must_use]
pub fn answer(key: &Key, at: SocketAddr, asked: &Nonce, own: &Nonce) -> Vec<u8> {
    [own.as_slice(), key.proof(DOOR, at, &[asked, own]).as_bytes()].concat()
}

/// Keeps what came; false if that is too much.
fn take(held: &mut Vec<u8>, bytes: &[u8], most: usize) -> bool {
    let fits = bytes.len() <= most.saturating_sub(held.len());
    if fits {
        held.extend_from_slice(bytes);
    }
    fits
}

/// Whether this is a beginning of that, or begins with it.
fn agrees(held: &[u8], with: &[u8]) -> bool {
    held.iter().zip(with).all(|(a, b)| a == b)
}

/// A nonce and a proof, where that is all. Proofs are compared in a time that does not tell how much of them is right.
fn split(bytes: &[u8]) -> Option<(Nonce, blake3::Hash)> {
    let (nonce, proof) = bytes.split_first_chunk::<NONCE>()?;
    Some((*nonce, blake3::Hash::from_bytes(*<&[u8; PROOF]>::try_from(proof).ok()?)))
}

/// A place where rank 0's agent may be reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The number of the place in the answer: no two of a job have the same.
    pub number: u32,
    /// A numeric address.
    pub addr: OsBytes,
    /// Its port there.
    pub port: u16,
}

/// Places that an agent is to try, all at a time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// The key of rank 0's agent.
    pub key: Key,
    /// Which.
    pub places: Capped<Place, ADDRESSES>,
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "bounds of a test")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NODE: NodeId = NodeId::new(3);

    fn key() -> Key {
        Key::new([7; 32]).of(NODE)
    }

    fn at() -> SocketAddr {
        "10.0.0.1:20000".parse().unwrap()
    }

    fn caller() -> Caller {
        Caller::new(key(), at(), [1; NONCE])
    }

    #[test]
    fn two_agents_of_a_job_believe_each_other_however_their_bytes_come() {
        for step in [1, 7, ASK] {
            let (mut caller, mut asked) = (caller(), Asked::default());
            let mut heard = Heard::Part;
            for part in caller.ask().chunks(step) {
                assert_eq!(heard, Heard::Part);
                heard = asked.hear(&key(), at(), part);
            }
            assert_eq!(heard, Heard::Proven([1; NONCE]));
            let mut heard = Heard::Part;
            for part in answer(&key(), at(), &[1; NONCE], &[2; NONCE]).chunks(step) {
                assert_eq!(heard, Heard::Part);
                heard = caller.hear(part);
            }
            assert_eq!(heard, Heard::Proven(()));
        }
    }

    #[test]
    fn other_keys_are_not_believed() {
        let others = [Key::new([8; 32]).of(NODE), Key::new([7; 32]).of(NodeId::new(4)), Key::new([7; 32])];
        let elsewhere: [SocketAddr; 2] = ["10.0.0.2:20000".parse().unwrap(), "10.0.0.1:20001".parse().unwrap()];
        let wrong = others.iter().map(|key| (key.clone(), at())).chain(elsewhere.iter().map(|at| (key(), *at)));
        for (theirs, there) in wrong {
            let ask = caller().ask();
            assert_eq!(Asked::default().hear(&theirs, there, &ask), Heard::Nonsense, "{there}");
            let answer = answer(&theirs, there, &[1; NONCE], &[2; NONCE]);
            assert_eq!(caller().hear(&answer), Heard::Nonsense, "{there}");
        }
        // To another question; one's own question, or its proof, sent back.
        assert_eq!(caller().hear(&answer(&key(), at(), &[3; NONCE], &[2; NONCE])), Heard::Nonsense);
        let ask = caller().ask();
        assert_eq!(caller().hear(&ask[..ANSWER]), Heard::Nonsense);
        assert_eq!(caller().hear(&ask[MAGIC.len()..]), Heard::Nonsense);
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(alloc::format!("{:?}", key()), "[a key]");
    }

    proptest! {
        #[test]
        fn bytes_of_strangers_are_dropped(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..8),
            magic: bool,
        ) {
            let (mut asked, mut caller) = (Asked::default(), caller());
            if magic {
                prop_assert_eq!(asked.hear(&key(), at(), MAGIC), Heard::Part);
            }
            for part in parts {
                prop_assert!(!matches!(asked.hear(&key(), at(), &part), Heard::Proven(_)));
                prop_assert!(!matches!(caller.hear(&part), Heard::Proven(())));
                prop_assert!(asked.0.len() <= ASK && caller.held.len() <= ANSWER);
            }
        }

        #[test]
        fn proof_fails_for_one_wrong_bit(bit in 0..8 * ASK, of_answer: bool) {
            let (good, whole) = if of_answer {
                (answer(&key(), at(), &[1; NONCE], &[2; NONCE]), ANSWER)
            } else {
                (caller().ask(), ASK)
            };
            let (mut bad, bit) = (good, bit % (8 * whole));
            bad[bit / 8] ^= 1 << (bit % 8);
            if of_answer {
                prop_assert_eq!(caller().hear(&bad), Heard::Nonsense);
            } else {
                prop_assert_eq!(Asked::default().hear(&key(), at(), &bad), Heard::Nonsense);
            }
        }
    }
}
