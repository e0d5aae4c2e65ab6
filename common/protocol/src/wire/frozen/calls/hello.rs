//! The proof at the begin of a connection: each end has the secret of the group.
//!
//! The controller begins with [`ask`]: magic, version, the worker's rank, a nonce and a keyed hash. The worker answers with its version, a
//! nonce and a hash of both nonces. The controller's second hash of both nonces shows that its first was not an old one. The hashes name
//! the role of their author, so that none can be sent back.
//!
//! Over TCP the key of these hashes is that of one address and port ([`Secret::at`]): the controller takes those that it has connected to,
//! the worker those of its own end. A stranger can listen at 172.17.0.1 of the controller's host, and pass the messages on to the worker
//! at another address. Both ends refuse them.
//!
//! A worker sends nothing to an end that has not proved itself. The version is in the first message and in its hash: an end of another
//! version gets an answer, and knows why.

use super::VERSION;
use crate::wire::frozen::fields::{Body, Fields, Malformed};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// How the controller begins.
const MAGIC: &[u8; 8] = b"rlcalls\n";
/// Length of a nonce.
pub const NONCE: usize = 16;
/// Length of a keyed hash.
const PROOF: usize = 32;
/// Length of the first message.
pub const ASK: usize = 64;
/// Length of the answer.
pub const ANSWER: usize = 52;
/// Length of the last message.
pub const CONFIRM: usize = PROOF;

/// A number that is used once.
pub type Nonce = [u8; NONCE];

/// The secret of a group. Diagnostics do not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[a secret]")
    }
}

/// An end that did not prove itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HelloError {
    /// Another protocol, or another secret.
    #[error("the other end does not have the secret of this group")]
    Stranger,
    /// The other end speaks another version only.
    #[error("the other end speaks version {0} of worker calls, this one version {VERSION}")]
    Version(u32),
}

impl From<Malformed> for HelloError {
    fn from(_: Malformed) -> Self {
        Self::Stranger
    }
}

impl Secret {
    /// From random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret of connections to this address and port of a worker.
    #[must_use]
    pub fn at(&self, at: SocketAddr) -> Self {
        let ip = match at.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"rlaunch worker at").update(&ip.octets()).update(&at.port().to_le_bytes());
        Self(hasher.finalize().into())
    }

    /// A keyed hash by an author in this role.
    fn proof(&self, role: u8, version: u32, rank: u32, nonces: &[&Nonce]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"rlaunch worker calls").update(&[role]);
        hasher.update(&version.to_le_bytes()).update(&rank.to_le_bytes());
        for nonce in nonces {
            hasher.update(nonce.as_slice());
        }
        hasher.finalize()
    }
}

const BEGIN: u8 = 1;
const WORKER: u8 = 2;
const CONTROLLER: u8 = 3;

/// The first message, of a controller to the worker of this rank.
#[must_use]
pub fn ask(secret: &Secret, rank: u32, nonce: &Nonce) -> Vec<u8> {
    ask_of(VERSION, secret, rank, nonce)
}

fn ask_of(version: u32, secret: &Secret, rank: u32, nonce: &Nonce) -> Vec<u8> {
    let mut body = Body(MAGIC.to_vec());
    body.word(version).word(rank);
    body.0.extend_from_slice(nonce);
    body.0.extend_from_slice(secret.proof(BEGIN, version, rank, &[nonce]).as_bytes());
    body.0
}

/// The controller's nonce in a first message, which proves that its author once had the secret.
///
/// # Errors
/// It is a stranger's, or of another version; [`answer_version`] is for that.
pub fn asked(secret: &Secret, rank: u32, bytes: &[u8; ASK]) -> Result<Nonce, HelloError> {
    let mut fields = Fields(bytes.strip_prefix(MAGIC).ok_or(HelloError::Stranger)?);
    let (version, meant) = (fields.word()?, fields.word()?);
    let (nonce, proof) = split(fields.0)?;
    if meant != rank || secret.proof(BEGIN, version, rank, &[&nonce]) != proof {
        return Err(HelloError::Stranger);
    }
    if version == VERSION { Ok(nonce) } else { Err(HelloError::Version(version)) }
}

/// Whether bytes can still become a first message.
#[must_use]
pub fn may_be_asked(bytes: &[u8]) -> bool {
    bytes.iter().zip(MAGIC).all(|(a, b)| a == b)
}

/// The answer of the worker of this rank.
#[must_use]
pub fn answer(secret: &Secret, rank: u32, asked: &Nonce, own: &Nonce) -> Vec<u8> {
    let mut body = Body::default();
    body.word(VERSION);
    body.0.extend_from_slice(own);
    body.0.extend_from_slice(secret.proof(WORKER, VERSION, rank, &[asked, own]).as_bytes());
    body.0
}

/// The answer to a controller of another version: the own version, and nothing that proves anything.
#[must_use]
pub fn answer_version() -> Vec<u8> {
    let mut body = Body::default();
    body.word(VERSION);
    body.0.resize(ANSWER, 0);
    body.0
}

/// The worker's nonce in its answer to the nonce `own`.
///
/// # Errors
/// It is a stranger's, or of another version.
pub fn answered(secret: &Secret, rank: u32, own: &Nonce, bytes: &[u8; ANSWER]) -> Result<Nonce, HelloError> {
    let mut fields = Fields(bytes);
    let version = fields.word()?;
    if version != VERSION {
        return Err(HelloError::Version(version));
    }
    let (nonce, proof) = split(fields.0)?;
    if secret.proof(WORKER, VERSION, rank, &[own, &nonce]) == proof { Ok(nonce) } else { Err(HelloError::Stranger) }
}

/// The last message: the controller has seen the worker's nonce.
#[must_use]
pub fn confirm(secret: &Secret, rank: u32, own: &Nonce, worker: &Nonce) -> [u8; CONFIRM] {
    secret.proof(CONTROLLER, VERSION, rank, &[own, worker]).into()
}

/// Whether a last message is the controller's. The comparison takes the same time for every wrong hash.
#[must_use]
pub fn is_confirmed(secret: &Secret, rank: u32, asked: &Nonce, own: &Nonce, bytes: &[u8; CONFIRM]) -> bool {
    secret.proof(CONTROLLER, VERSION, rank, &[asked, own]) == *bytes
}

fn split(bytes: &[u8]) -> Result<(Nonce, blake3::Hash), HelloError> {
    let (nonce, proof) = bytes.split_first_chunk::<NONCE>().ok_or(HelloError::Stranger)?;
    let proof = <&[u8; PROOF]>::try_from(proof).map_err(|_| HelloError::Stranger)?;
    Ok((*nonce, blake3::Hash::from_bytes(*proof)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    const RANK: u32 = 3;

    fn secret() -> Secret {
        Secret::new([7; 32])
    }

    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().unwrap()
    }

    #[test]
    fn both_ends_prove_that_they_have_the_secret() {
        let (controller, worker) = ([1; NONCE], [2; NONCE]);
        let first: [u8; ASK] = array(&ask(&secret(), RANK, &controller));
        assert_eq!(asked(&secret(), RANK, &first), Ok(controller));
        let second: [u8; ANSWER] = array(&answer(&secret(), RANK, &controller, &worker));
        assert_eq!(answered(&secret(), RANK, &controller, &second), Ok(worker));
        let third = confirm(&secret(), RANK, &controller, &worker);
        assert!(is_confirmed(&secret(), RANK, &controller, &worker, &third));
    }

    #[test]
    fn first_message_is_as_it_was() {
        let bytes = ask(&secret(), RANK, &[1; NONCE]);
        assert_eq!(bytes.len(), ASK);
        assert_eq!(
            bytes[..32],
            *b"rlcalls\n\x01\0\0\0\x03\0\0\0\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01"
        );
        let key = blake3::keyed_hash(
            &[7; 32],
            b"rlaunch worker calls\x01\x01\0\0\0\x03\0\0\0\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01",
        );
        assert_eq!(bytes[32..], *key.as_bytes());
    }

    #[test]
    fn stranger_and_old_message_are_refused() {
        let (controller, worker) = ([1; NONCE], [2; NONCE]);
        let first: [u8; ASK] = array(&ask(&secret(), RANK, &controller));
        assert_eq!(asked(&Secret::new([8; 32]), RANK, &first), Err(HelloError::Stranger));
        assert_eq!(asked(&secret(), RANK + 1, &first), Err(HelloError::Stranger));
        for bit in 0..8 * ASK {
            let mut bad = first;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(asked(&secret(), RANK, &bad), Err(HelloError::Stranger), "bit {bit}");
        }
        // A message of another connection: the worker's nonce is another one.
        let old = confirm(&secret(), RANK, &controller, &worker);
        assert!(!is_confirmed(&secret(), RANK, &controller, &[3; NONCE], &old));
        let second: [u8; ANSWER] = array(&answer(&secret(), RANK, &[9; NONCE], &worker));
        assert_eq!(answered(&secret(), RANK, &controller, &second), Err(HelloError::Stranger));
    }

    #[test]
    fn proof_for_one_address_is_refused_at_another() {
        let at = |text: &str| secret().at(text.parse().unwrap());
        let (controller, worker) = ([1; NONCE], [2; NONCE]);
        let dialled = at("172.17.0.1:4000");
        // A socket of IPv6 shows addresses of IPv4 in the other way.
        let same = at("[::ffff:172.17.0.1]:4000");
        assert_eq!(asked(&same, RANK, &array(&ask(&dialled, RANK, &controller))), Ok(controller));
        for other in [at("192.168.77.1:4000"), at("172.17.0.1:4001"), at("[::1]:4000"), secret()] {
            let first: [u8; ASK] = array(&ask(&dialled, RANK, &controller));
            assert_eq!(asked(&other, RANK, &first), Err(HelloError::Stranger));
            let second: [u8; ANSWER] = array(&answer(&other, RANK, &controller, &worker));
            assert_eq!(answered(&dialled, RANK, &controller, &second), Err(HelloError::Stranger));
            let third = confirm(&dialled, RANK, &controller, &worker);
            assert!(!is_confirmed(&other, RANK, &controller, &worker, &third));
        }
    }

    #[test]
    fn other_version_is_named_to_an_end_that_has_the_secret() {
        let first: [u8; ASK] = array(&ask_of(2, &secret(), RANK, &[1; NONCE]));
        assert_eq!(asked(&secret(), RANK, &first), Err(HelloError::Version(2)));
        let mut second: [u8; ANSWER] = array(&answer_version());
        second[0] = 2;
        let error = answered(&secret(), RANK, &[1; NONCE], &second).unwrap_err();
        assert_eq!(error, HelloError::Version(2));
        assert!(error.to_string().contains("version 2"), "{error}");
    }

    #[test]
    fn secret_is_not_shown() {
        assert_eq!(alloc::format!("{:?}", secret()), "[a secret]");
    }
}
