//! The wire of torch's `TCPStore`, as the client in torch 1.13 and 2.1 to 2.15 speaks it.
//!
//! All integers are little endian, as all hosts of ours are. A string is a length of 64 bits and its bytes; several are their
//! number, of 64 bits, and the strings. Requests have no length of their own: only who understands one knows where the next begins.
//! Opcodes and limits: `TCPStoreBackend.hpp` and `TCPStoreLibUvBackend.cpp` of the released wheels.

use super::limit::{Limit, Met};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use rlaunch_base::error::Hint;

/// Longest key that torch's server takes, in bytes.
pub const MAX_KEY: u64 = 8 << 10;
/// Longest value, in bytes.
pub const MAX_VALUE: u64 = 8 << 20;
/// Most keys in a request.
pub const MAX_KEYS: u64 = 131_072;
/// Longest request that is collected. torch has no such limit; what it sends stays far below.
pub const MAX_REQUEST: usize = 64 << 20;
/// How a connection of torch 2.2 or later begins, behind opcode 0.
pub const MAGIC: u32 = 0x3C85_F7CE;

/// Which opcodes a client uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dialect {
    /// torch 1.13: `WATCH_KEY`, and a second connection for it.
    Watching,
    /// torch 2.1.
    Plain,
    /// torch 2.2 and later: the first request announces it.
    Validated,
}

impl Dialect {
    /// The dialect by the first bytes of a connection; `None`: too few. 1.13 and 2.1 begin alike: a second connection of the same process
    /// can distinguish them.
    #[must_use]
    pub fn detect(first: &[u8]) -> Option<Self> {
        let (op, rest) = first.split_first()?;
        if *op != 0 {
            return Some(Self::Plain);
        }
        let magic = rest.first_chunk::<4>().map(|magic| u32::from_le_bytes(*magic))?;
        Some(if magic == MAGIC { Self::Validated } else { Self::Plain })
    }
}

/// Several strings of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strings<'a> {
    count: usize,
    raw: &'a [u8],
}

impl<'a> Strings<'a> {
    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Iterates over the strings.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = Reader { rest: self.raw, key: b"" };
        (0..self.count).map_while(move |_| rest.string(u64::MAX).ok())
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of the wire")]
pub enum Request<'a> {
    Validate(u32),
    Ping(u32),
    Set {
        key: &'a [u8],
        value: &'a [u8],
    },
    CompareSet {
        key: &'a [u8],
        expected: &'a [u8],
        desired: &'a [u8],
    },
    Get(&'a [u8]),
    Add(&'a [u8], i64),
    Check(Strings<'a>),
    Wait(Strings<'a>),
    CancelWait,
    GetNumKeys,
    WatchKey(&'a [u8]),
    Delete(&'a [u8]),
    Append {
        key: &'a [u8],
        value: &'a [u8],
    },
    MultiGet(Strings<'a>),
    /// Key, value, key, value …
    MultiSet(Strings<'a>),
    QueuePush {
        key: &'a [u8],
        value: &'a [u8],
    },
    QueuePop(&'a [u8]),
    QueueLen(&'a [u8]),
    ListKeys,
    Barrier {
        key: &'a [u8],
        world_size: i64,
    },
}

/// Bytes that are not a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// No such opcode, in this dialect.
    #[error("opcode {0} is unknown")]
    Opcode(u8),
    /// A key, a value or a list above torch's limits.
    #[error("a {} of {} is longer than {}", .0.limit.name(), .0.has, .0.most)]
    Long(Met),
}

impl Hint for Malformed {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Opcode(_) => {
                Some("torch 1.13 and 2.1 to 2.15 are understood; see what else connects to MASTER_PORT".into())
            }
            Self::Long(_) => Some(
                "torch's own store has limits like this: large data belongs in a file, and its path in the store"
                    .into(),
            ),
        }
    }
}

/// The beginning of what a connection has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<'a> {
    /// A request, and how many bytes it has.
    Request(Request<'a>, usize),
    /// The request is incomplete: at least this many bytes are needed.
    More(usize),
}

/// Reads the first request. It looks at nothing twice but lengths, and copies nothing.
///
/// # Errors
/// Parses a request. Bytes that no client of torch sends end the connection: the begin of the next request is unknown then.
pub fn parse(dialect: Dialect, bytes: &[u8]) -> Result<Parsed<'_>, Malformed> {
    let mut reader = Reader { rest: bytes, key: b"" };
    let outcome = reader.byte().and_then(|op| reader.request(dialect, op));
    let used = bytes.len().saturating_sub(reader.rest.len());
    match outcome {
        Ok(request) => Ok(Parsed::Request(request, used)),
        Err(Stop::More(more)) => {
            let needed = used.saturating_add(more);
            let long = || Malformed::Long(Met::at(Limit::Request, reader.key, needed as u64, MAX_REQUEST as u64));
            if needed > MAX_REQUEST { Err(long()) } else { Ok(Parsed::More(needed)) }
        }
        Err(Stop::Malformed(malformed)) => Err(malformed),
    }
}

enum Stop {
    /// Number of bytes that are missing, after those that were read.
    More(usize),
    Malformed(Malformed),
}

impl Stop {
    /// The same, where so much must follow.
    fn and(self, more: usize) -> Self {
        match self {
            Self::More(missing) => Self::More(missing.saturating_add(more)),
            Self::Malformed(_) => self,
        }
    }
}

/// The opcodes, under the numbers of torch 2.2 and later.
#[derive(Clone, Copy)]
enum Op {
    Validate,
    Set,
    CompareSet,
    Get,
    Add,
    Check,
    Wait,
    GetNumKeys,
    WatchKey,
    Delete,
    Append,
    MultiGet,
    MultiSet,
    CancelWait,
    Ping,
    QueuePush,
    QueuePop,
    QueueLen,
    ListKeys,
    Barrier,
}

const WATCHING: &[Op] =
    &[Op::Set, Op::CompareSet, Op::Get, Op::Add, Op::Check, Op::Wait, Op::GetNumKeys, Op::WatchKey, Op::Delete];
/// The opcodes of torch 2.1 are those of later ones, one number lower: they begin after `Validate`.
const PLAIN: core::ops::Range<usize> = 1..13;
const VALIDATED: &[Op] = &[
    Op::Validate,
    Op::Set,
    Op::CompareSet,
    Op::Get,
    Op::Add,
    Op::Check,
    Op::Wait,
    Op::GetNumKeys,
    Op::Delete,
    Op::Append,
    Op::MultiGet,
    Op::MultiSet,
    Op::CancelWait,
    Op::Ping,
    Op::QueuePush,
    Op::QueuePop,
    Op::QueueLen,
    Op::ListKeys,
    Op::Barrier,
];

struct Reader<'a> {
    rest: &'a [u8],
    /// The last one that was read: it is named where what follows is too long.
    key: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Stop::More(len))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Stop::More(N))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Requires this many bytes before the next length is looked at. A caller that needs more does not come back before, and the borders
    /// of packets must make no difference.
    fn least(&self, len: usize) -> Result<(), Stop> {
        if self.rest.len() < len { Err(Stop::More(len)) } else { Ok(()) }
    }

    fn length(&mut self, what: Limit, most: u64) -> Result<usize, Stop> {
        let len = u64::from_le_bytes(self.array()?);
        let long = || Stop::Malformed(Malformed::Long(Met::at(what, self.key, len, most)));
        if len > most { Err(long()) } else { usize::try_from(len).map_err(|_| long()) }
    }

    fn string(&mut self, most: u64) -> Result<&'a [u8], Stop> {
        let len = self.length(Limit::Value, most)?;
        self.take(len)
    }

    fn key(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.length(Limit::Key, MAX_KEY)?;
        self.key = self.take(len)?;
        Ok(self.key)
    }

    fn value(&mut self) -> Result<&'a [u8], Stop> {
        let len = self.length(Limit::Value, MAX_VALUE)?;
        self.take(len)
    }

    /// Keys, or keys with their values.
    fn strings(&mut self, with_values: bool) -> Result<Strings<'a>, Stop> {
        let count = self.length(Limit::List, MAX_KEYS)?;
        let all = self.rest;
        let each = if with_values { 16 } else { 8 };
        for at in 1..=count {
            // Each later string has a length at least. Else a request that comes in small pieces would be read again for each.
            let behind = count.saturating_sub(at).saturating_mul(each);
            let after_key = behind.saturating_add(each).saturating_sub(8);
            self.least(after_key.saturating_add(8))?;
            self.key().map_err(|stop| stop.and(after_key))?;
            if with_values {
                self.least(after_key)?;
                self.value().map_err(|stop| stop.and(behind))?;
            }
        }
        let used = all.len().saturating_sub(self.rest.len());
        let raw = all.get(..used).unwrap_or_default();
        let count = if with_values { count.saturating_mul(2) } else { count };
        Ok(Strings { count, raw })
    }

    fn request(&mut self, dialect: Dialect, code: u8) -> Result<Request<'a>, Stop> {
        let table = match dialect {
            Dialect::Watching => WATCHING,
            Dialect::Plain => VALIDATED.get(PLAIN).unwrap_or_default(),
            Dialect::Validated => VALIDATED,
        };
        let op = table.get(usize::from(code)).ok_or(Stop::Malformed(Malformed::Opcode(code)))?;
        Ok(match op {
            Op::Validate => Request::Validate(u32::from_le_bytes(self.array()?)),
            Op::Ping => Request::Ping(u32::from_le_bytes(self.array()?)),
            Op::Set => Request::Set { key: self.key()?, value: self.value()? },
            Op::CompareSet => Request::CompareSet { key: self.key()?, expected: self.value()?, desired: self.value()? },
            Op::Get => Request::Get(self.key()?),
            Op::Add => Request::Add(self.key()?, i64::from_le_bytes(self.array()?)),
            Op::Check => Request::Check(self.strings(false)?),
            Op::Wait => Request::Wait(self.strings(false)?),
            Op::CancelWait => Request::CancelWait,
            Op::GetNumKeys => Request::GetNumKeys,
            Op::WatchKey => Request::WatchKey(self.key()?),
            Op::Delete => Request::Delete(self.key()?),
            Op::Append => Request::Append { key: self.key()?, value: self.value()? },
            Op::MultiGet => Request::MultiGet(self.strings(false)?),
            Op::MultiSet => Request::MultiSet(self.strings(true)?),
            Op::QueuePush => Request::QueuePush { key: self.key()?, value: self.value()? },
            Op::QueuePop => Request::QueuePop(self.key()?),
            Op::QueueLen => Request::QueueLen(self.key()?),
            Op::ListKeys => Request::ListKeys,
            Op::Barrier => Request::Barrier { key: self.key()?, world_size: i64::from_le_bytes(self.array()?) },
        })
    }
}

/// Answers, as bytes behind those that are there.
pub mod answer {
    use super::Vec;

    /// The keys of `CHECK`, `WAIT` or `BARRIER` are there.
    pub const READY: u8 = 0;
    /// `CHECK`: not all of it.
    pub const NOT_READY: u8 = 1;
    /// `CANCEL_WAIT`.
    pub const CANCELED: u8 = 1;
    /// `WATCH_KEY` of torch 1.13: it is watched; then, whenever it changes, one of the three below, the key, its value before and
    /// its value now.
    pub const WATCHED: u8 = 3;
    /// The key has another value.
    pub const UPDATED: u8 = 0;
    /// The key was not there before.
    pub const CREATED: u8 = 1;
    /// The key is gone.
    pub const DELETED: u8 = 2;

    /// A byte.
    pub fn byte(out: &mut Vec<u8>, byte: u8) {
        out.push(byte);
    }

    /// The nonce of a `PING`.
    pub fn pong(out: &mut Vec<u8>, nonce: u32) {
        out.extend_from_slice(&nonce.to_le_bytes());
    }

    /// A number.
    pub fn number(out: &mut Vec<u8>, number: i64) {
        out.extend_from_slice(&number.to_le_bytes());
    }

    /// How many strings follow.
    pub fn count(out: &mut Vec<u8>, count: usize) {
        out.extend_from_slice(&(count as u64).to_le_bytes());
    }

    /// A string.
    pub fn string(out: &mut Vec<u8>, bytes: &[u8]) {
        count(out, bytes.len());
        out.extend_from_slice(bytes);
    }
}
