//! Reading values from a buffer.

use super::{Malformed, kind};
use crate::wire::codec::raw;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Values that stand in values: those that clients send have three levels.
const DEEPEST: u8 = 8;

/// A process of MPI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Proc<'a> {
    /// Its namespace.
    pub nspace: &'a [u8],
    /// Its rank there.
    pub rank: u32,
}

/// A value that is passed on as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RawValue<'a> {
    /// Its kind.
    pub kind: u16,
    /// Its bytes after the kind.
    #[serde(serialize_with = "raw")]
    pub bytes: &'a [u8],
}

impl<'a> RawValue<'a> {
    /// A text, without the zero byte at its end.
    #[must_use]
    pub fn text(self) -> Option<&'a [u8]> {
        (self.kind == kind::STRING).then(|| Reader::new(self.bytes, false).string().ok().flatten()).flatten()
    }

    /// Whether it is true: a flag without a value is.
    #[must_use]
    pub fn is_true(self) -> bool {
        self.kind != kind::BOOL || self.bytes != [0]
    }
}

/// The values of a buffer that were not read yet.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    is_described: bool,
}

impl<'a> Reader<'a> {
    /// The values of a buffer.
    #[must_use]
    pub const fn new(rest: &'a [u8], is_described: bool) -> Self {
        Self { rest, is_described }
    }

    /// Whether nothing follows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self.rest.split_first_chunk().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*chunk)
    }

    /// A byte.
    ///
    /// # Errors
    /// Nothing follows.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        self.chunk().map(u8::from_be_bytes)
    }

    fn half(&mut self) -> Result<u16, Malformed> {
        self.chunk().map(u16::from_be_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// The buffer ends.
    pub fn word(&mut self) -> Result<u32, Malformed> {
        self.chunk().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        self.chunk().map(u64::from_be_bytes)
    }

    /// A number whose width depends on the client's machine: its kind stands before it.
    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        match self.half()? {
            7 | 12 => self.byte().map(u64::from),
            8 | kind::UINT16 => self.half().map(u64::from),
            kind::INT32 | kind::UINT32 => self.word().map(u64::from),
            10 | kind::UINT64 => self.long(),
            other => Err(Malformed::Kind(other)),
        }
    }

    /// Begins a pack of values of a kind: how many there are.
    ///
    /// # Errors
    /// There are values of another kind.
    pub fn begin(&mut self, wanted: u16) -> Result<u32, Malformed> {
        self.described(kind::INT32)?;
        let count = self.word()?;
        self.described(wanted)?;
        Ok(count)
    }

    /// Passes over the kind of what follows, where that stands there.
    fn described(&mut self, wanted: u16) -> Result<(), Malformed> {
        if self.is_described && self.half()? != wanted {
            return Err(Malformed::Kind(wanted));
        }
        Ok(())
    }

    /// Begins a pack of a single value.
    ///
    /// # Errors
    /// There is another number of values, or another kind.
    pub fn one(&mut self, wanted: u16) -> Result<(), Malformed> {
        match self.begin(wanted)? {
            1 => Ok(()),
            _ => Err(Malformed::Kind(wanted)),
        }
    }

    /// Values of a kind.
    ///
    /// # Errors
    /// There are none.
    pub fn all<T>(
        &mut self,
        wanted: u16,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.begin(wanted)?;
        // Each takes bytes of the buffer, so their number cannot be declared.
        (0..count).map(|_| read(self)).collect()
    }

    /// A packed SIZE.
    ///
    /// # Errors
    /// There is none.
    pub fn size(&mut self) -> Result<u64, Malformed> {
        self.one(kind::SIZE)?;
        self.number()
    }

    /// A number of values, and the values where there are some.
    ///
    /// # Errors
    /// There are none.
    pub fn counted<T>(
        &mut self,
        wanted: u16,
        read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        if self.size()? == 0 { Ok(Vec::new()) } else { self.all(wanted, read) }
    }

    /// A text; `None`: there is none.
    ///
    /// # Errors
    /// The buffer ends.
    pub fn string(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let len = usize::try_from(self.word()?).map_err(|_| Malformed::Short)?;
        Ok(self.take(len)?.split_last().map(|(_, text)| text))
    }

    /// A text, or an empty one.
    ///
    /// # Errors
    /// The buffer ends.
    pub fn text(&mut self) -> Result<&'a [u8], Malformed> {
        Ok(self.string()?.unwrap_or_default())
    }

    /// A packed text.
    ///
    /// # Errors
    /// There is none.
    pub fn one_text(&mut self) -> Result<&'a [u8], Malformed> {
        self.one(kind::STRING)?;
        self.text()
    }

    /// A process.
    ///
    /// # Errors
    /// The buffer ends.
    pub fn proc(&mut self) -> Result<Proc<'a>, Malformed> {
        Ok(Proc { nspace: self.text()?, rank: self.word()? })
    }

    /// Bytes with their length.
    ///
    /// # Errors
    /// The buffer ends.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.number()?).map_err(|_| Malformed::Short)?;
        self.take(len)
    }

    /// A name and its value.
    ///
    /// # Errors
    /// The buffer ends, or the value is of a kind that is not known.
    pub fn info(&mut self) -> Result<(&'a [u8], RawValue<'a>), Malformed> {
        let key = self.text()?;
        let _flags = self.word()?;
        Ok((key, self.value()?))
    }

    /// A value.
    ///
    /// # Errors
    /// The buffer ends, or the value is of a kind that is not known.
    pub fn value(&mut self) -> Result<RawValue<'a>, Malformed> {
        let kind = self.half()?;
        let before = self.rest;
        self.skip(kind, 0)?;
        let len = before.len().saturating_sub(self.rest.len());
        Ok(RawValue { kind, bytes: before.get(..len).unwrap_or_default() })
    }

    fn skip_value(&mut self, depth: u8) -> Result<(), Malformed> {
        match self.half()? {
            0 => Ok(()),
            kind => self.skip(kind, depth),
        }
    }

    /// Passes over a value of this kind.
    fn skip(&mut self, of: u16, depth: u8) -> Result<(), Malformed> {
        let deeper = depth.saturating_add(1);
        if deeper > DEEPEST {
            return Err(Malformed::Deep);
        }
        match of {
            0 if depth == 0 => {}
            kind::BOOL | kind::BYTE | 7 | 12 | 30..=34 | 37 | 43 => self.pass(1)?,
            8 | kind::UINT16 | 36 | 44 => self.pass(2)?,
            kind::INT32 | kind::UINT32 | kind::STATUS | 35 | kind::RANK => self.pass(4)?,
            10 | kind::UINT64 | kind::TIME => self.pass(8)?,
            18 => self.pass(16)?,
            kind::STRING | 16 | 17 => self.pass_text()?,
            kind::SIZE | 5 | 6 | kind::UINT => self.pass_number()?,
            21 => self.skip_value(deeper)?,
            kind::PROC => self.pass_proc()?,
            kind::INFO => {
                self.pass_text()?;
                self.pass(4)?;
                self.skip_value(deeper)?;
            }
            kind::PDATA => {
                self.pass_proc()?;
                self.pass_text()?;
                self.skip_value(deeper)?;
            }
            kind::KVAL => {
                self.pass_text()?;
                self.skip_value(deeper)?;
            }
            kind::BUFFER => {
                self.pass(1)?;
                self.bytes().map(|_| ())?;
            }
            kind::BYTE_OBJECT | 42 => self.bytes().map(|_| ())?,
            38 => {
                self.pass_proc()?;
                self.pass_text()?;
                self.pass_text()?;
                self.pass_number()?;
                self.pass_number()?;
                self.pass(1)?;
            }
            39 => {
                let (of, count) = (self.half()?, self.number()?);
                for _ in 0..count {
                    self.skip(of, deeper)?;
                }
            }
            46 => {
                self.pass_text()?;
                self.pass_text()?;
                self.pass(1)?;
            }
            other => return Err(Malformed::Kind(other)),
        }
        Ok(())
    }

    fn pass(&mut self, len: usize) -> Result<(), Malformed> {
        self.take(len).map(|_| ())
    }

    fn pass_text(&mut self) -> Result<(), Malformed> {
        self.string().map(|_| ())
    }

    fn pass_number(&mut self) -> Result<(), Malformed> {
        self.number().map(|_| ())
    }

    fn pass_proc(&mut self) -> Result<(), Malformed> {
        self.proc().map(|_| ())
    }
}
