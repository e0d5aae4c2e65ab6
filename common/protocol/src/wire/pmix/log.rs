//! Texts of libraries for the user, the help messages of Open MPI among them.

use super::{Malformed, RawValue, Reader, kind};
use alloc::vec::Vec;

/// The key of a help message that Open MPI 4.1 has packed by its own rules.
const PACKED: &[u8] = b"pmix.log.msg";
/// Beside a text of Open MPI 5: its name as a help message.
const FILE: &[u8] = b"pmix.log.key";
const TOPIC: &[u8] = b"pmix.log.val";

/// Kinds of values in the buffers of Open MPI 4.1.
mod packed_kind {
    pub(super) const STRING: u8 = 3;
    pub(super) const INT8: u8 = 7;
    pub(super) const INT32: u8 = 9;
}

/// The name of a help message of Open MPI. Ranks that meet the same condition send the same message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelpName<'a> {
    /// The file that has the text.
    pub file: &'a [u8],
    /// The part of the file.
    pub topic: &'a [u8],
}

/// A text for the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogText<'a> {
    /// The text.
    pub text: &'a [u8],
    /// Its name, if it is a help message that is shown once.
    pub help: Option<HelpName<'a>>,
}

/// The texts of a request. A client of version 3 or later sends the time before them.
pub(super) fn texts<'a>(all: &mut Reader<'a>) -> Result<Vec<LogText<'a>>, Malformed> {
    let mut timed = *all;
    let read = timed.all(kind::TIME, |all| all.chunk::<8>().map(drop)).and_then(|_| super::request::infos(&mut timed));
    let infos = match read {
        Ok(infos) => {
            *all = timed;
            infos
        }
        Err(_) => super::request::infos(all)?,
    };
    let directives = if all.is_empty() { Vec::new() } else { super::request::infos(all)? };
    let named = |wanted| directives.iter().find(|(key, _)| *key == wanted).and_then(|(_, value)| value.text());
    let help = named(FILE).zip(named(TOPIC)).map(|(file, topic)| HelpName { file, topic });
    let text = |(key, value): &(&'a [u8], RawValue<'a>)| match (*key, value.kind) {
        (PACKED, kind::BYTE_OBJECT) => packed(Reader::new(value.bytes, false).bytes().ok()?),
        _ => value.text().map(|text| LogText { text, help }),
    };
    Ok(infos.iter().filter_map(text).collect())
}

/// A help message of Open MPI 4.1: the file, the topic, a flag, and the text if the flag is set.
pub(super) fn packed(bytes: &[u8]) -> Option<LogText<'_>> {
    let mut all = Packed { all: Reader::new(bytes, false), is_described: bytes.first() == Some(&packed_kind::INT32) };
    let (file, topic) = (all.text()?, all.text()?);
    all.begin(packed_kind::INT8)?;
    let has_text = all.all.byte().ok()? != 0;
    let text = if has_text { all.text()? } else { return None };
    Some(LogText { text, help: Some(HelpName { file, topic }) })
}

/// A buffer of Open MPI 4.1. A library that was built for debugging writes kinds of one byte before counts and values.
struct Packed<'a> {
    all: Reader<'a>,
    is_described: bool,
}

impl<'a> Packed<'a> {
    /// Begins a pack of one value.
    fn begin(&mut self, kind: u8) -> Option<()> {
        self.kind(packed_kind::INT32)?;
        (self.all.word().ok()? == 1).then_some(())?;
        self.kind(kind)
    }

    fn kind(&mut self, wanted: u8) -> Option<()> {
        (!self.is_described || self.all.byte().ok()? == wanted).then_some(())
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        self.begin(packed_kind::STRING)?;
        self.all.text().ok()
    }
}
