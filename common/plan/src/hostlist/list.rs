//! Terms between commas: `node[01-04]`, `host:4`, `user@host`, `[v6]:4`, `!out`, `&both`, `^file`, `@group`.

use super::name::{self, Flaw};
use super::{Count, Fault, Host, HostlistError, Item, LOOKS, MOST_HOSTS, Reader, Spot, brackets};
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// Files in files in files.
const DEEPEST: usize = 8;

/// The text of a line, and where each of its bytes is.
pub(super) struct Text<'a> {
    pub(super) spot: &'a Spot,
    pub(super) text: &'a str,
    /// The offset of `text` in the line.
    pub(super) from: usize,
}

impl Text<'_> {
    pub(super) fn fault(&self, offset: usize, fault: Fault) -> HostlistError {
        self.spot.at(self.from + offset).fault(fault)
    }

    /// A part of it.
    pub(super) fn part(&self, start: usize, end: usize) -> Text<'_> {
        Text { spot: self.spot, text: self.text.get(start..end).unwrap_or_default(), from: self.from + start }
    }
}

/// The sign before a term.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// Nothing: its hosts join.
    Join,
    /// `!`: its hosts leave.
    Leave,
    /// `&`: of the list that began with this line, others leave.
    Stay(u32),
}

impl Reader<'_> {
    /// A whole list, as it stands on the command line.
    pub(super) fn read_list(&mut self, option: &str, bytes: &[u8]) -> Result<(), HostlistError> {
        let source: Arc<str> = option.into();
        let text = utf8(&source, bytes, 0)?;
        let spot = Spot::line(&source, text, 0);
        self.line = self.line.saturating_add(1);
        self.read_terms(&Text { spot: &spot, text, from: 0 })
    }

    /// Terms between commas or blanks. `!` and `&` may also stand between two terms, as in `n[1-9]!n5`.
    pub(super) fn read_terms(&mut self, text: &Text<'_>) -> Result<(), HostlistError> {
        let line = self.line;
        let mut sign = Sign::Join;
        // A blank ends a term, but only a comma or a sign calls for another.
        let mut wanted = true;
        let mut start = 0;
        let mut depth = 0u32;
        let bytes = text.text.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            let next = match byte {
                b'[' => {
                    depth += 1;
                    continue;
                }
                b']' => {
                    depth = depth.saturating_sub(1);
                    continue;
                }
                b',' => Sign::Join,
                b'!' if bytes.get(start) != Some(&b'^') => Sign::Leave,
                b'&' if bytes.get(start) != Some(&b'^') => Sign::Stay(line),
                blank if blank.is_ascii_whitespace() => sign,
                _ => continue,
            };
            if depth > 0 {
                continue;
            }
            let blank = byte.is_ascii_whitespace();
            let first = start == at && sign == Sign::Join && next == Sign::Leave;
            if start < at {
                self.read_term(&text.part(start, at), sign)?;
                (sign, wanted) = (Sign::Join, false);
            } else if wanted && !blank && !first {
                return Err(text.fault(at, Fault::MissingName));
            }
            if !blank {
                (sign, wanted) = (next, true);
            }
            start = at + 1;
        }
        if start < bytes.len() || wanted {
            self.read_term(&text.part(start, bytes.len()), sign)?;
        }
        Ok(())
    }

    fn read_term(&mut self, term: &Text<'_>, sign: Sign) -> Result<(), HostlistError> {
        let before = self.items.len();
        if let Some(path) = term.text.strip_prefix('^') {
            self.read_named(term, path)?;
        } else if term.text.starts_with('@') {
            self.read_groups(term, sign)?;
        } else {
            let (hosts, count) = hosts(term)?;
            if sign != Sign::Join && count != Count::Unsaid {
                return Err(term.fault(0, Fault::Excluded));
            }
            self.goes_through(hosts.len(), term)?;
            let (spot, line) = (term.spot.at(term.from), self.line);
            self.items.extend(hosts.into_iter().map(|host| Item::of(host, count, &spot, line)));
        }
        match sign {
            Sign::Join if self.items.len() > MOST_HOSTS => Err(term.fault(0, Fault::TooMany)),
            Sign::Join => Ok(()),
            Sign::Leave => {
                self.goes_through(before / LOOKS, term)?;
                self.exclude(before);
                Ok(())
            }
            Sign::Stay(line) => {
                self.goes_through(before / LOOKS, term)?;
                self.intersect(before, line);
                Ok(())
            }
        }
    }

    /// `^file`.
    fn read_named(&mut self, term: &Text<'_>, path: &str) -> Result<(), HostlistError> {
        if path.is_empty() {
            return Err(term.fault(1, Fault::MissingName));
        }
        if self.inside.iter().any(|file| file == path) {
            return Err(term.fault(0, Fault::Itself(path.to_string())));
        }
        if self.inside.len() > DEEPEST {
            return Err(term.fault(0, Fault::Deep("files")));
        }
        let bytes =
            self.outside.file(path).map_err(|why| term.fault(0, Fault::File { path: path.to_string(), why }))?;
        self.read_file(path, &bytes)
    }
}

/// The bytes as text.
pub(super) fn utf8<'a>(source: &Arc<str>, bytes: &'a [u8], line: u32) -> Result<&'a str, HostlistError> {
    core::str::from_utf8(bytes).map_err(|error| {
        let shown = String::from_utf8_lossy(bytes);
        // The part before the fault is text, so that it has the same bytes in the shown line.
        Spot::line(source, &shown, line).at(error.valid_up_to()).fault(Fault::NotText)
    })
}

/// The hosts of one term.
fn hosts(term: &Text<'_>) -> Result<(Vec<Host>, Count), HostlistError> {
    // The last one: a user may be `eve@corp.example`.
    let (user, skip) = match term.text.rfind('@') {
        Some(at) => (Some(&term.text[..at]), at + 1),
        None => (None, 0),
    };
    if let Some(user) = user {
        check_user(user, term, 0)?;
    }
    let rest = term.part(skip, term.text.len());
    let (name, count) = split_count(&rest)?;
    let named = |name: String| Host { name, user: user.map(String::from), port: None };
    if let Some(address) = address(&rest, name)? {
        return Ok((vec![named(address)], count));
    }
    check_name(&rest.part(0, name.len()))?;
    let names = brackets::expand(name, rest.spot, rest.from)?;
    Ok((names.into_iter().map(named).collect(), count))
}

/// `host:4` in its two parts. Of an address in brackets only what follows them is a count.
fn split_count<'a>(term: &Text<'a>) -> Result<(&'a str, Count), HostlistError> {
    let text = term.text;
    let after = text.rfind(']').map_or(0, |at| at + 1);
    let bare = text.matches(':').count() > 1 && !text.starts_with('[');
    let Some(colon) = text.get(after..).and_then(|rest| rest.find(':')).filter(|_| !bare) else {
        return Ok((text, Count::Unsaid));
    };
    let (name, digits) =
        (text.get(..after + colon).unwrap_or_default(), text.get(after + colon + 1..).unwrap_or_default());
    match slots(digits) {
        Some(count) => Ok((name, Count::Colon(count))),
        None => {
            if let Some(open) = name.get(after..).and_then(|name| name.rfind('[')) {
                return Err(term.fault(after + open, Fault::Open));
            }
            let fault = Fault::Number { key: "HOST:N", takes: "a whole number of slots above 0", got: digits.into() };
            Err(term.fault(after + colon + 1, fault))
        }
    }
}

/// A number of slots: from 1 to what ranks there can be.
pub(super) fn slots(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|n| plain && (1..=1 << 20).contains(n))
}

/// An IPv6 address, with or without brackets and a zone; `None`: a name.
fn address(term: &Text<'_>, name: &str) -> Result<Option<String>, HostlistError> {
    let inner = name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let text = match inner {
        Some(inner) if inner.contains(':') => inner,
        None if name.matches(':').count() > 1 => name,
        Some(_) | None => return Ok(None),
    };
    if name::is_address(text) {
        Ok(Some(text.to_string()))
    } else {
        Err(term.fault(0, Fault::Address(text.to_string())))
    }
}

/// A user name: ssh gets it as a word of its own.
pub(super) fn check_user(user: &str, text: &Text<'_>, offset: usize) -> Result<(), HostlistError> {
    name::user(user).map_err(|flaw| match flaw {
        Flaw::Missing => text.fault(offset, Fault::MissingUser),
        Flaw::Dash => text.fault(offset, Fault::Dash),
        Flaw::Character(at, c) => text.fault(offset + at, Fault::UserCharacter(c)),
    })
}

/// Checks the name of a slice: it becomes the value of variables.
pub(super) fn check_slice(slice: &str, text: &Text<'_>, offset: usize) -> Result<(), HostlistError> {
    if slice.is_empty() {
        return Err(text.fault(offset, Fault::MissingSlice));
    }
    match slice.char_indices().find(|(_, c)| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.')) {
        Some((at, c)) => Err(text.fault(offset + at, Fault::SliceCharacter(c))),
        None => Ok(()),
    }
}

/// Checks the characters of a host name, and those between its brackets.
fn check_name(text: &Text<'_>) -> Result<(), HostlistError> {
    if text.text.is_empty() {
        return Err(text.fault(0, Fault::MissingName));
    }
    if text.text.starts_with('-') {
        return Err(text.fault(0, Fault::Dash));
    }
    let mut depth = 0u32;
    for (at, c) in text.text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            // The reader of the numbers reports that.
            _ if depth > 0 => {}
            c if name::is_of_host(c) => {}
            c => return Err(text.fault(at, Fault::Character(c))),
        }
    }
    Ok(())
}
