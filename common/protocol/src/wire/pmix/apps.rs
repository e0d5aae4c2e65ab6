//! Programs that a client wants to have started.

use super::{Malformed, RawValue, Reader, kind};
use alloc::vec::Vec;

/// A program, and the ranks that run it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct App<'a> {
    /// Its file.
    pub command: &'a [u8],
    /// Its arguments; the first one is its name.
    pub argv: Vec<&'a [u8]>,
    /// Variables, as `NAME=VALUE`.
    pub env: Vec<&'a [u8]>,
    /// Its working directory; empty: not given.
    pub wdir: &'a [u8],
    /// How many ranks run it.
    pub ranks: u32,
    /// Further wishes, by name.
    pub infos: Vec<(&'a [u8], RawValue<'a>)>,
}

impl<'a> App<'a> {
    /// Reads it. Declared numbers cost nothing: each item takes bytes of the buffer.
    pub(super) fn read(all: &mut Reader<'a>) -> Result<Self, Malformed> {
        let command = all.text()?;
        let count = all.number()?;
        let argv = (0..count).map(|_| all.text()).collect::<Result<_, _>>()?;
        let count = all.word()?;
        let env = (0..count).map(|_| all.text()).collect::<Result<_, _>>()?;
        let wdir = all.text()?;
        let ranks = u32::try_from(all.number()?).map_err(|_| Malformed::Kind(kind::APP))?;
        let count = all.number()?;
        let infos = (0..count).map(|_| all.info()).collect::<Result<_, _>>()?;
        Ok(Self { command, argv, env, wdir, ranks, infos })
    }
}
