//! The first bytes that an agent's guardian reads: of fixed length and layout, so that it parses and allocates nothing.
//!
//! The secret travels here, in ssh's stdin, and nowhere else: not in arguments, an environment or a file. Over ssh it only proves that
//! the answering process is the agent that was started; ssh itself authenticates and encrypts.

use super::hash::{Hash, Hasher};
use alloc::string::String;
use core::fmt;
use core::fmt::Write as _;
use rlaunch_base::id::{JobId, NodeId};
use rlaunch_base::time::Span;

/// Length in bytes.
pub const PREAMBLE: usize = 128;
/// Version of the preamble and of the messages that follow it. Launcher and agent are the same build, unless the user
/// named another (`--agent-path`): then this must agree.
pub const WIRE: u32 = 1;

const MAGIC: [u8; 8] = *b"rlaunch\x01";
/// Bytes at the end that repeat the hash of those before.
const CHECK: usize = 16;

/// 256 random bits of a job. Never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Facts that a guardian needs before it starts its agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preamble {
    /// The job's name.
    pub job: JobId,
    /// The node that this host is.
    pub node: NodeId,
    /// The job's secret.
    pub secret: Secret,
    /// How long this host may continue without word from the launcher, from now; zero: for ever.
    pub lease: Span,
    /// Length of the binary that was asked for; 0 where any is accepted.
    pub len: u64,
    /// Its hash.
    pub hash: Hash,
}

/// Bytes that are no preamble.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PreambleError {
    /// Something else is on stdin.
    #[error("stdin does not begin with data of rlaunch: a start-up file of the login shell may have read it")]
    Foreign,
    /// A launcher that speaks another version.
    #[error("the launcher speaks version {launcher} of the wire, this agent {WIRE}: both must be the same rlaunch")]
    Version {
        /// The launcher's version.
        launcher: u32,
    },
}

impl Preamble {
    /// The bytes: magic 8, wire u32, node u32, lease in ms u64, job 16, secret 32, length u64, hash 32, check 16; numbers
    /// little endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PREAMBLE] {
        let mut out = [0; PREAMBLE];
        let mut slots = out.iter_mut();
        let mut put = |bytes: &[u8]| slots.by_ref().zip(bytes).for_each(|(to, from)| *to = *from);
        put(&MAGIC);
        put(&WIRE.to_le_bytes());
        put(&self.node.get().to_le_bytes());
        put(&self.lease.millis().to_le_bytes());
        put(&self.job.0);
        put(&self.secret.0);
        put(&self.len.to_le_bytes());
        put(&self.hash.0);
        let check = check(&out);
        for (to, from) in out.iter_mut().rev().take(CHECK).rev().zip(check) {
            *to = from;
        }
        out
    }

    /// Reads them.
    ///
    /// # Errors
    /// Other bytes, or another version.
    pub fn parse(bytes: &[u8; PREAMBLE]) -> Result<Self, PreambleError> {
        let mut rest = &bytes[..];
        let foreign = PreambleError::Foreign;
        if take(&mut rest).ok_or(foreign)? != MAGIC {
            return Err(foreign);
        }
        let version = u32::from_le_bytes(take(&mut rest).ok_or(foreign)?);
        if version != WIRE {
            return Err(PreambleError::Version { launcher: version });
        }
        let node = NodeId::new(u32::from_le_bytes(take(&mut rest).ok_or(foreign)?));
        let lease = Span::from_millis(u64::from_le_bytes(take(&mut rest).ok_or(foreign)?));
        let job = JobId(take(&mut rest).ok_or(foreign)?);
        let secret = Secret(take(&mut rest).ok_or(foreign)?);
        let len = u64::from_le_bytes(take(&mut rest).ok_or(foreign)?);
        let hash = Hash(take(&mut rest).ok_or(foreign)?);
        if take(&mut rest) != Some(check(bytes)) {
            return Err(foreign);
        }
        Ok(Self { job, node, secret, lease, len, hash })
    }

    /// The answer that only a reader of the secret can give, in hex.
    #[must_use]
    pub fn proof(&self) -> String {
        let mut hasher = Hasher::default();
        hasher.update(b"rlaunch agent up");
        hasher.update(&self.secret.0);
        hasher.update(&self.job.0);
        hasher.update(&self.node.get().to_le_bytes());
        hasher.finish().0.iter().take(16).fold(String::new(), |mut text, b| {
            // Writing to a String cannot fail.
            write!(text, "{b:02x}").unwrap_or_default();
            text
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn check(bytes: &[u8; PREAMBLE]) -> [u8; CHECK] {
    let Hash(full) = Hash::of(bytes.get(..PREAMBLE - CHECK).unwrap_or_default());
    full.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    fn example() -> Preamble {
        Preamble {
            job: JobId([7; 16]),
            node: NodeId::new(3),
            secret: Secret([9; 32]),
            lease: Span::from_millis(30_000),
            len: 2_316_608,
            hash: Hash::of(b"binary"),
        }
    }

    proptest! {
        #[test]
        fn comes_back(job: [u8; 16], node: u32, secret: [u8; 32], ms in 0..1u64 << 40, len: u64, hash: [u8; 32]) {
            let sent = Preamble {
                job: JobId(job), node: NodeId::new(node), secret: Secret(secret),
                lease: Span::from_millis(ms), len, hash: Hash(hash),
            };
            prop_assert_eq!(Preamble::parse(&sent.to_bytes()), Ok(sent));
        }

        #[test]
        fn a_changed_byte_is_noticed(at in 0..PREAMBLE, by in 1u8..) {
            let mut bytes = example().to_bytes();
            bytes[at] ^= by;
            prop_assert!(Preamble::parse(&bytes).is_err());
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = example().to_bytes();
        bytes[8] = 9;
        assert_eq!(Preamble::parse(&bytes), Err(PreambleError::Version { launcher: 9 }));
    }

    #[test]
    fn the_secret_is_never_shown() {
        assert!(!format!("{:?}", example()).contains("9, 9"));
        let other = Preamble { secret: Secret([8; 32]), ..example() };
        assert_ne!(example().proof(), other.proof());
        assert_eq!(example().proof().len(), 32);
    }
}
