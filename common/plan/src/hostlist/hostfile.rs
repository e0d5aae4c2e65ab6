//! Hostfiles: a list of hosts on each line, then what is known about them, then a comment.

use super::list::{self, Text};
use super::{Chips, Count, Fault, HostlistError, Reader, Spot};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::nearest::nearest;

/// The words after a host, by their spellings in the launchers that have them. Dashes are underscores.
const KEYS: [(&str, Key); 13] = [
    ("slots", Key::Slots),
    ("count", Key::Slots),
    ("cpu", Key::Slots),
    ("max_slots", Key::Max),
    ("slots_max", Key::Max),
    ("max_count", Key::Max),
    ("port", Key::Port),
    ("user", Key::User),
    ("username", Key::User),
    ("user_name", Key::User),
    ("slice", Key::Slice),
    ("id", Key::Id),
    ("devices", Key::Devices),
];

/// Faulty lines of a file that a message shows.
const MOST_ERRORS: usize = 10;

/// More hosts than any slice has are a typing error.
const LARGEST_SLICE: u32 = 1 << 16;
/// More chips than any host has are one, too.
const MOST_CHIPS: u32 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Slots,
    Max,
    Port,
    User,
    Slice,
    Id,
    Devices,
}

impl Reader<'_> {
    /// A whole file.
    pub(super) fn read_file(&mut self, name: &str, bytes: &[u8]) -> Result<(), HostlistError> {
        let source: Arc<str> = name.into();
        self.inside.push(name.into());
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut errors: Vec<HostlistError> = Vec::new();
        for (line, number) in bytes.split(|b| *b == b'\n').zip(1u32..) {
            let read = list::utf8(&source, line, number).and_then(|line| {
                let code = line.split_once('#').map_or(line, |(code, _)| code);
                let is_empty = code.trim().is_empty();
                if is_empty { Ok(()) } else { self.read_line(&Spot::line(&source, line, number), code) }
            });
            errors.extend(read.err());
            if errors.len() >= MOST_ERRORS {
                break;
            }
        }
        self.inside.pop();
        let mut first = None;
        for mut error in errors.into_iter().rev() {
            error.next = first.map(Box::new);
            first = Some(error);
        }
        first.map_or(Ok(()), Err)
    }

    /// Hosts, then words about them.
    fn read_line(&mut self, spot: &Spot, code: &str) -> Result<(), HostlistError> {
        let from = code.len() - code.trim_start().len();
        let text = code.trim();
        let end = end_of_hosts(text);
        let (hosts, words) = text.split_at(end);
        self.line = self.line.saturating_add(1);
        let line = self.line;
        self.read_terms(&Text { spot, text: hosts, from })?;
        let facts = facts(&Text { spot, text: words, from: from + end })?;
        let mut chips = facts.chips(&Text { spot, text: words, from: from + end })?;
        if let Some(chips) = &mut chips {
            // The hosts of a line follow each other in their slice.
            let hosts = self.items.iter().filter(|item| item.line >= line).count();
            chips.id = chips.id.saturating_add(u32::try_from(hosts).unwrap_or(u32::MAX));
        }
        // By their number, because an exclusion moves what was read before. Lines of a file named here are this line's too.
        for item in self.items.iter_mut().rev().take_while(|item| item.line >= line) {
            match (item.count, facts.slots) {
                (_, None) => {}
                (Count::Unsaid, Some(slots)) => item.count = Count::Key(slots),
                (Count::Colon(_) | Count::Key(_), Some(_)) => {
                    return Err(item.spot.fault(Fault::Twice("the number of slots")));
                }
            }
            if let Some(chips) = &mut chips {
                chips.id = chips.id.saturating_sub(1);
                item.chips = Some(chips.clone());
                if !chips.slice.is_empty() {
                    self.slices.entry(chips.slice.clone()).or_default().insert(chips.id);
                }
            }
            item.max = facts.max.or(item.max);
            item.host.port = facts.port.or(item.host.port);
            if let Some(user) = &facts.user {
                if item.host.user.is_some() {
                    return Err(item.spot.fault(Fault::Twice("the user")));
                }
                item.host.user = Some(user.clone());
            }
        }
        Ok(())
    }
}

/// The end of the hosts: the first blank outside of brackets.
fn end_of_hosts(text: &str) -> usize {
    let mut depth = 0u32;
    text.char_indices()
        .find(|(_, c)| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && c.is_whitespace()
        })
        .map_or(text.len(), |(at, _)| at)
}

#[derive(Default)]
struct Facts {
    slots: Option<u32>,
    max: Option<u32>,
    port: Option<u16>,
    user: Option<String>,
    slice: Option<String>,
    id: Option<u32>,
    devices: Option<u32>,
}

/// The word that a mistyped one was probably meant as: `slots=2` for `slot=2`, and for `2`.
pub(super) fn meant(word: &str) -> Option<String> {
    if list::slots(word).is_some() {
        return Some(format!("slots={word}"));
    }
    let (name, value) = word.split_once('=').unwrap_or((word, "N"));
    let spelled = name.to_ascii_lowercase().replace('-', "_");
    let key = nearest(spelled.as_bytes(), KEYS.iter().map(|(own, _)| *own))?;
    Some(format!("{key}={value}"))
}

/// `slots=4 max_slots = 8`: blanks around the sign are allowed, as Open MPI does.
fn facts(text: &Text<'_>) -> Result<Facts, HostlistError> {
    let mut facts = Facts::default();
    let mut words = words(text.text).into_iter().peekable();
    while let Some((at, word)) = words.next() {
        let (name, mut value, mut value_at) = match word.split_once('=') {
            Some((name, value)) => (name, value, at + name.len() + 1),
            None => match words.next_if(|(_, next)| next.starts_with('=')) {
                Some((sign, next)) => (word, next.get(1..).unwrap_or_default(), sign + 1),
                None => return Err(fault(text, at, Fault::Word(word.to_string()))),
            },
        };
        if value.is_empty()
            && let Some((next_at, next)) = words.next_if(|(_, next)| !next.contains('='))
        {
            (value, value_at) = (next, next_at);
        }
        let spelled = name.to_ascii_lowercase().replace('-', "_");
        let Some((_, key)) = KEYS.iter().find(|(own, _)| *own == spelled) else {
            return Err(fault(text, at, Fault::Word(word.to_string())));
        };
        facts.take(text, *key, at, (value_at, value))?;
    }
    Ok(facts)
}

impl Facts {
    /// The chips of the first host of the line.
    fn chips(&self, text: &Text<'_>) -> Result<Option<Chips>, HostlistError> {
        let devices = self.devices.unwrap_or(0);
        match (&self.slice, self.id) {
            (Some(slice), Some(id)) => Ok(Some(Chips::of(slice, id, devices))),
            (Some(_), None) => Err(fault(text, 1, Fault::Without { key: "slice", other: "id" })),
            (None, Some(_)) => Err(fault(text, 1, Fault::Without { key: "id", other: "slice" })),
            (None, None) => Ok(self.devices.map(|devices| Chips::of("", 0, devices))),
        }
    }

    fn take(
        &mut self,
        text: &Text<'_>,
        key: Key,
        at: usize,
        (value_at, value): (usize, &str),
    ) -> Result<(), HostlistError> {
        let refuse = |key, takes| fault(text, value_at, Fault::Number { key, takes, got: value.to_string() });
        let twice = match key {
            Key::Slots => {
                let slots = list::slots(value).ok_or_else(|| refuse("slots", "a whole number above 0"))?;
                self.slots.replace(slots).map(|_| "slots")
            }
            Key::Max => {
                let max = list::slots(value).ok_or_else(|| refuse("max_slots", "a whole number above 0"))?;
                self.max.replace(max).map(|_| "max_slots")
            }
            Key::Port => {
                let port = value.parse().ok().filter(|port| *port > 0 && !value.starts_with('+'));
                let port = port.ok_or_else(|| refuse("port", "a number from 1 to 65535"))?;
                self.port.replace(port).map(|_| "port")
            }
            Key::User => {
                list::check_user(value, text, value_at)?;
                self.user.replace(value.to_string()).map(|_| "user")
            }
            Key::Slice => {
                list::check_slice(value, text, value_at)?;
                self.slice.replace(value.to_string()).map(|_| "slice")
            }
            Key::Id => {
                let number = value.parse().ok().filter(|id| *id < LARGEST_SLICE && !value.starts_with('+'));
                let id = number.ok_or_else(|| refuse("id", "the number of the host in its slice, from 0 on"))?;
                self.id.replace(id).map(|_| "id")
            }
            Key::Devices => {
                let number = value.parse().ok().filter(|n| (1..=MOST_CHIPS).contains(n) && !value.starts_with('+'));
                let devices =
                    number.ok_or_else(|| refuse("devices", "the number of TPU chips of the host, from 1 to 64"))?;
                self.devices.replace(devices).map(|_| "devices")
            }
        };
        twice.map_or(Ok(()), |key| Err(fault(text, at, Fault::Twice(key))))
    }
}

fn fault(text: &Text<'_>, offset: usize, fault: Fault) -> HostlistError {
    text.spot.at(text.from + offset).fault(fault)
}

/// Words between blanks, and where they begin.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let mut found = Vec::new();
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if !word.is_empty() {
            found.push((at, word));
        }
        at += piece.len();
    }
    found
}
