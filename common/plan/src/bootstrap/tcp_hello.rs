//! The first bytes of an edge over TCP, from an agent in a step of srun: of fixed length, so that a launcher checks them before it
//! allocates anything.
//!
//! All agents of a step read the same [`StepPreamble`] on stdin. Each dials the launcher and sends a [`Hello`] in the clear, with its
//! host's name as a hash, and the first message of the handshake. The launcher answers with the second one, which carries the node's
//! [`Preamble`](super::Preamble). The handshake is Noise `NNpsk0` (revision 34 of its specification) under a key of this host. The third
//! message is a confirmation, which an observer of the first two cannot make.
//!
//! An agent on the streams of an srun of its own seals them in the same way, and sends no [`Hello`].

use super::hash::{Hash, Hasher};
use super::preamble::{PREAMBLE, Preamble, Secret, WIRE};
use alloc::vec::Vec;
use rlaunch_base::id::JobId;
use serde::Serialize;

/// Length of a [`StepPreamble`] in bytes.
pub const STEP_PREAMBLE: usize = 84;
/// Length of a [`Hello`] in bytes.
pub const HELLO: usize = 64;
/// Length of [`AgentFacts`] in bytes.
pub const FACTS: usize = 16;
/// Length of the first message: a key of 32 bytes, the facts, and a tag of 16.
pub const FIRST_MESSAGE: usize = 32 + FACTS + 16;
/// Length of the second message: a key, the preamble, and a tag.
pub const SECOND_MESSAGE: usize = 32 + PREAMBLE + 16;
/// Length of the third message: an empty record, of which only its length and its tag remain.
pub const CONFIRMATION: usize = 2 + 16;
/// Length of the tag after a guardian's last words.
pub const LAST_WORDS_TAG: usize = 32;

const STEP_MAGIC: [u8; 8] = *b"rlaunch\x02";
const HELLO_MAGIC: [u8; 8] = *b"rlaunch\x03";
const CHECK: usize = 16;

/// The bytes that all agents of a step read on stdin. It has the secret, which travels nowhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepPreamble {
    /// The job's name.
    pub job: JobId,
    /// Number of the step among those of the job.
    pub epoch: u32,
    /// The launcher listens there.
    pub port: u16,
    /// The secret of the step.
    pub secret: Secret,
}

impl StepPreamble {
    /// The bytes: magic 8, wire u32, epoch u32, port u16, two zeros, job 16, secret 32, check 16; numbers little endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; STEP_PREAMBLE] {
        let mut out = [0; STEP_PREAMBLE];
        let (port, wire, epoch) = (self.port.to_le_bytes(), WIRE.to_le_bytes(), self.epoch.to_le_bytes());
        fill(&mut out, &[&STEP_MAGIC, &wire, &epoch, &port, &[0; 2], &self.job.0, &self.secret.0]);
        let check = check(&out);
        for (to, from) in out.iter_mut().rev().take(CHECK).rev().zip(check) {
            *to = from;
        }
        out
    }

    /// Reads them; `None`: other bytes, or those of another version.
    #[must_use]
    pub fn parse(bytes: &[u8; STEP_PREAMBLE]) -> Option<Self> {
        let mut rest = &bytes[..];
        if take(&mut rest)? != STEP_MAGIC || u32::from_le_bytes(take(&mut rest)?) != WIRE {
            return None;
        }
        let epoch = u32::from_le_bytes(take(&mut rest)?);
        let port = u16::from_le_bytes(take(&mut rest)?);
        let [0, 0] = take(&mut rest)? else { return None };
        let (job, secret) = (JobId(take(&mut rest)?), Secret(take(&mut rest)?));
        (take(&mut rest)? == check(bytes)).then_some(Self { job, epoch, port, secret })
    }
}

fn check(bytes: &[u8; STEP_PREAMBLE]) -> [u8; CHECK] {
    let Hash(full) = Hash::of(bytes.get(..STEP_PREAMBLE - CHECK).unwrap_or_default());
    full.first_chunk().copied().unwrap_or_default()
}

/// The first bytes of a connection, in the clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The job's name.
    pub job: JobId,
    /// Number of the step.
    pub epoch: u32,
    /// The hash of the host's name in Slurm.
    pub host: Hash,
}

impl Hello {
    /// The bytes: magic 8, wire u32, epoch u32, job 16, hash of the host's name 32.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        fill(&mut out, &[&HELLO_MAGIC, &WIRE.to_le_bytes(), &self.epoch.to_le_bytes(), &self.job.0, &self.host.0]);
        out
    }

    /// Reads them; `None`: other bytes, or those of another version.
    #[must_use]
    pub fn parse(bytes: &[u8; HELLO]) -> Option<Self> {
        let mut rest = &bytes[..];
        if take(&mut rest)? != HELLO_MAGIC || u32::from_le_bytes(take(&mut rest)?) != WIRE {
            return None;
        }
        let epoch = u32::from_le_bytes(take(&mut rest)?);
        let (job, host) = (JobId(take(&mut rest)?), Hash(take(&mut rest)?));
        rest.is_empty().then_some(Self { job, epoch, host })
    }
}

/// Facts about an agent, sealed in the first message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentFacts {
    /// The guardian's process id.
    pub pid: u32,
    /// The host's wall clock in nanoseconds.
    pub wall: u64,
}

impl AgentFacts {
    /// The bytes: pid u32, four zeros, wall u64.
    #[must_use]
    pub fn to_bytes(self) -> [u8; FACTS] {
        let mut out = [0; FACTS];
        fill(&mut out, &[&self.pid.to_le_bytes(), &[0; 4], &self.wall.to_le_bytes()]);
        out
    }

    /// Reads them.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let pid = u32::from_le_bytes(take(&mut rest)?);
        let [0, 0, 0, 0] = take(&mut rest)? else { return None };
        let wall = u64::from_le_bytes(take(&mut rest)?);
        rest.is_empty().then_some(Self { pid, wall })
    }
}

/// Why the launcher refuses a connection to the port for agents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Newer connections have taken its place.
    TooMany,
    /// No hello came in time.
    Silent,
    /// Its hello is none of this step.
    Foreign,
    /// Its host is none of this step.
    UnknownHost,
    /// The agent of its host has connected before.
    Twice,
    /// The sender does not know the key of its host.
    WrongKey,
    /// The connection ended before its hello was complete.
    Ended,
}

/// The keys of one edge. They differ for each host and each step.
#[derive(Clone)]
pub struct EdgeKeys {
    /// The pre-shared key of the handshake.
    pub shared: [u8; 32],
    /// The key for the tag of the guardian's last words.
    pub last_words: [u8; 32],
    /// Both sides must agree about it: the version, the job, the step, the host and their roles.
    pub prologue: Vec<u8>,
}

impl EdgeKeys {
    /// Derives the keys of a host from the secret of a step.
    #[must_use]
    pub fn derive(secret: &Secret, hello: &Hello) -> Self {
        let bytes = hello.to_bytes();
        let key = |purpose: &[u8]| {
            let mut hasher = Hasher::default();
            [b"rlaunch edge key: ", purpose, &secret.0, &bytes].into_iter().for_each(|part| hasher.update(part));
            hasher.finish().0
        };
        let prologue = [&b"rlaunch edge, agent to launcher"[..], &bytes].concat();
        Self { shared: key(b"handshake"), last_words: key(b"last words"), prologue }
    }

    /// Derives the keys for the streams of a carrier, over which this preamble came.
    #[must_use]
    pub fn of_streams(Preamble { job, node, secret, .. }: &Preamble) -> Self {
        Self::derive(secret, &Hello { job: *job, epoch: node.get(), host: Hash::of(b"the streams of a carrier") })
    }
}

impl Drop for EdgeKeys {
    fn drop(&mut self) {
        self.shared = [0; 32];
        self.last_words = [0; 32];
        core::hint::black_box((&self.shared, &self.last_words));
    }
}

/// The tag after the last words of a guardian. Allocates nothing.
#[must_use]
pub fn last_words_tag(key: &[u8; 32], words: &[u8]) -> [u8; LAST_WORDS_TAG] {
    blake3::keyed_hash(key, words).into()
}

fn fill(out: &mut [u8], parts: &[&[u8]]) {
    out.iter_mut().zip(parts.iter().copied().flatten()).for_each(|(to, from)| *to = *from);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello { job: JobId([7; 16]), epoch: 1, host: Hash::of(b"node2") }
    }

    proptest! {
        #[test]
        fn all_parts_come_back(job: [u8; 16], epoch: u32, port: u16, secret: [u8; 32], host: [u8; 32], pid: u32, wall: u64) {
            let step = StepPreamble { job: JobId(job), epoch, port, secret: Secret(secret) };
            prop_assert_eq!(StepPreamble::parse(&step.to_bytes()), Some(step));
            let hello = Hello { job: JobId(job), epoch, host: Hash(host) };
            prop_assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
            let facts = AgentFacts { pid, wall };
            prop_assert_eq!(AgentFacts::parse(&facts.to_bytes()), Some(facts));
        }

        #[test]
        fn changed_preamble_is_refused(at in 0..STEP_PREAMBLE, by in 1u8..) {
            let step = StepPreamble { job: JobId([7; 16]), epoch: 1, port: 9, secret: Secret([3; 32]) };
            let mut bytes = step.to_bytes();
            bytes[at] ^= by;
            prop_assert_eq!(StepPreamble::parse(&bytes), None);
        }
    }

    #[test]
    fn hello_of_another_version_is_refused() {
        let mut bytes = hello().to_bytes();
        bytes[8] ^= 1;
        assert_eq!(Hello::parse(&bytes), None);
        assert_eq!(Hello::parse(&[b'G'; HELLO]), None);
    }

    #[test]
    fn keys_differ_by_host_step_and_purpose() {
        let secret = Secret([9; 32]);
        let of = |hello: Hello| EdgeKeys::derive(&secret, &hello);
        let keys = of(hello());
        let others = [
            of(Hello { host: Hash::of(b"node3"), ..hello() }).shared,
            of(Hello { epoch: 2, ..hello() }).shared,
            EdgeKeys::derive(&Secret([8; 32]), &hello()).shared,
            keys.last_words,
        ];
        assert!(!others.contains(&keys.shared));
        assert_ne!(last_words_tag(&keys.last_words, b"a"), last_words_tag(&keys.last_words, b"b"));
    }
}
