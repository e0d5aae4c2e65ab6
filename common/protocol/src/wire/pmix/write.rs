//! Writing values to a buffer.

use super::{Proc, RawValue, kind};
use alloc::vec::Vec;

/// Form of the answer to processes that have made a group. It follows the version of their library.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum GroupForm {
    /// Before 4.2.5: the number of the group.
    Number,
    /// From 4.2.5 on: the members, then the number.
    #[default]
    Members,
    /// From 6 on: the members, whether there is a number, the number, and facts that the members share.
    Facts,
}

impl GroupForm {
    /// Form that a library of this version reads, as `5.0.11rc1`.
    #[must_use]
    pub fn of(version: &[u8]) -> Self {
        let mut parts = version.split(|b| *b == b'.').map(|part| {
            let digits = part.iter().map_while(|b| char::from(*b).to_digit(10));
            digits.fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(digit))
        });
        let mut next = || parts.next().unwrap_or(0);
        match (next(), next(), next()) {
            (1..=3, _, _) | (4, 0..=1, _) | (4, 2, 0..=4) => Self::Number,
            (6.., _, _) => Self::Facts,
            _ => Self::Members,
        }
    }
}

/// A buffer that is being written.
#[derive(Clone, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    is_described: bool,
}

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub const fn new(is_described: bool) -> Self {
        Self { bytes: Vec::new(), is_described }
    }

    /// Another empty buffer of the same kind.
    #[must_use]
    pub const fn another(&self) -> Self {
        Self::new(self.is_described)
    }

    /// Its bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn half(&mut self, value: u16) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn begin(&mut self, of: u16, count: u32) -> &mut Self {
        if self.is_described { self.half(kind::INT32).word(count).half(of) } else { self.word(count) }
    }

    fn text(&mut self, text: &[u8]) -> &mut Self {
        self.word(u32::try_from(text.len()).unwrap_or(u32::MAX).saturating_add(1));
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        self
    }

    fn number(&mut self, value: u64) -> &mut Self {
        self.half(kind::UINT64).bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn proc(&mut self, proc: Proc<'_>) -> &mut Self {
        self.text(proc.nspace).word(proc.rank)
    }

    fn value(&mut self, value: RawValue<'_>) -> &mut Self {
        self.half(value.kind).bytes.extend_from_slice(value.bytes);
        self
    }

    /// A status.
    pub fn status(&mut self, status: i32) -> &mut Self {
        self.begin(kind::STATUS, 1).word(u32::from_be_bytes(status.to_be_bytes()))
    }

    /// A text.
    pub fn string(&mut self, text: &[u8]) -> &mut Self {
        self.begin(kind::STRING, 1).text(text)
    }

    /// A SIZE.
    pub fn size(&mut self, size: usize) -> &mut Self {
        self.begin(kind::SIZE, 1).number(u64::try_from(size).unwrap_or(u64::MAX))
    }

    /// A rank.
    pub fn rank(&mut self, rank: u32) -> &mut Self {
        self.begin(kind::RANK, 1).word(rank)
    }

    /// Processes, and before them their number.
    pub fn procs<'a>(&mut self, procs: impl ExactSizeIterator<Item = Proc<'a>>) -> &mut Self {
        let count = procs.len();
        self.size(count);
        if count > 0 {
            self.begin(kind::PROC, u32::try_from(count).unwrap_or(u32::MAX));
            for proc in procs {
                self.proc(proc);
            }
        }
        self
    }

    /// A process.
    pub fn one_proc(&mut self, proc: Proc<'_>) -> &mut Self {
        self.begin(kind::PROC, 1).proc(proc)
    }

    /// Bytes.
    pub fn byte_object(&mut self, bytes: &[u8]) -> &mut Self {
        self.begin(kind::BYTE_OBJECT, 1).number(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.raw(bytes)
    }

    /// Bytes that are packed already.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn key(&mut self, key: &[u8], of: u16) -> &mut Self {
        self.begin(kind::KVAL, 1).text(key).half(of)
    }

    /// A key with a number of 32 bits.
    pub fn key_word(&mut self, key: &[u8], value: u32) -> &mut Self {
        self.key(key, kind::UINT32).word(value)
    }

    /// A key with a number of 16 bits.
    pub fn key_half(&mut self, key: &[u8], value: u16) -> &mut Self {
        self.key(key, kind::UINT16).half(value)
    }

    /// A key with a rank.
    pub fn key_rank(&mut self, key: &[u8], value: u32) -> &mut Self {
        self.key(key, kind::RANK).word(value)
    }

    /// A key that is true.
    pub fn key_true(&mut self, key: &[u8]) -> &mut Self {
        self.key(key, kind::BOOL).bytes.push(1);
        self
    }

    /// A key with a process.
    pub fn key_proc(&mut self, key: &[u8], value: Proc<'_>) -> &mut Self {
        self.key(key, kind::PROC).proc(value)
    }

    /// A key with a text.
    pub fn key_text(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.key(key, kind::STRING).text(value)
    }

    /// A key with bytes.
    pub fn key_bytes(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.key(key, kind::BYTE_OBJECT).number(u64::try_from(value.len()).unwrap_or(u64::MAX)).raw(value)
    }

    /// The members of a group and its number.
    pub fn group<'a>(
        &mut self,
        form: GroupForm,
        members: impl ExactSizeIterator<Item = Proc<'a>>,
        number: u64,
    ) -> &mut Self {
        match form {
            GroupForm::Number => self.begin(kind::SIZE, 1).number(number),
            GroupForm::Members => self.procs(members).begin(kind::SIZE, 1).number(number),
            GroupForm::Facts => {
                self.procs(members).begin(kind::BOOL, 1).bytes.push(1);
                self.begin(kind::SIZE, 1).number(number).size(0)
            }
        }
    }

    /// Values that processes have published.
    pub fn published<'a>(&mut self, all: &[(Proc<'a>, &'a [u8], RawValue<'a>)]) -> &mut Self {
        self.size(all.len());
        if !all.is_empty() {
            self.begin(kind::PDATA, u32::try_from(all.len()).unwrap_or(u32::MAX));
            for (proc, key, value) in all {
                self.proc(*proc).text(key).value(*value);
            }
        }
        self
    }
}
