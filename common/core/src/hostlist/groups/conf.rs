//! `groups.conf`, in the manner of Python's ConfigParser, in which ClusterShell reads it: sections, `key: value` or
//! `key = value`, lines that continue with more indentation, and whole lines of comment.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// The section whose values are those of all others that do not say otherwise.
const DEFAULT: &str = "DEFAULT";

/// The section of one source of groups, or `[Main]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Section {
    pub(super) name: String,
    values: Vec<(String, String)>,
}

/// A file, or several of which a later one goes before those that were read already.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Conf {
    sections: Vec<Section>,
}

/// The line, from 1, and what is wrong with it.
pub(super) type Wrong = (u32, String);

impl Conf {
    /// Reads a file.
    pub(super) fn parse(text: &str) -> Result<Self, Wrong> {
        let mut reader = Lines { conf: Self::default(), open: None, indent: 0 };
        for (line, number) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().zip(1u32..) {
            reader.take(line).map_err(|why| (number, why))?;
        }
        for (_, value) in reader.conf.sections.iter_mut().flat_map(|section| &mut section.values) {
            value.truncate(value.trim_end().len());
        }
        Ok(reader.conf)
    }

    /// Takes over what another file says.
    pub(super) fn overlay(&mut self, other: Self) {
        for section in other.sections {
            match self.sections.iter_mut().find(|known| known.name == section.name) {
                None => self.sections.push(section),
                Some(known) => {
                    for (key, value) in section.values {
                        known.values.retain(|(own, _)| *own != key);
                        known.values.push((key, value));
                    }
                }
            }
        }
    }

    /// All sections but those of `except` and the common one, in their order.
    pub(super) fn sections(&self, except: &str) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(move |section| section.name != except && section.name != DEFAULT)
    }

    /// The value of a key in a section.
    pub(super) fn value(&self, section: &str, key: &str) -> Option<&str> {
        let of = |name: &str| {
            let found = self.sections.iter().find(|known| known.name == name)?;
            found.values.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str())
        };
        of(section).or_else(|| of(DEFAULT).filter(|_| self.sections.iter().any(|known| known.name == section)))
    }
}

struct Lines {
    conf: Conf,
    /// Whether a value may continue.
    open: Option<()>,
    /// How far the line of the last key is indented.
    indent: usize,
}

impl Lines {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let text = line.trim();
        if text.starts_with(['#', ';']) {
            return Ok(());
        }
        let indent = line.chars().take_while(|c| c.is_whitespace()).count();
        let more = self.open.is_some() && (text.is_empty() || indent > self.indent);
        let last = self.conf.sections.last_mut().and_then(|section| section.values.last_mut());
        match last.filter(|_| more) {
            Some((_, value)) => {
                value.push('\n');
                value.push_str(text);
                Ok(())
            }
            None if text.is_empty() => Ok(()),
            None => {
                self.indent = indent;
                self.begin(text)
            }
        }
    }

    /// Begins a line that continues with nothing.
    fn begin(&mut self, text: &str) -> Result<(), String> {
        self.open = None;
        if let Some((name, _)) = text.strip_prefix('[').and_then(|rest| rest.rsplit_once(']')) {
            if self.conf.sections.iter().any(|known| known.name == name) {
                return Err(format!("the section [{name}] is there twice"));
            }
            self.conf.sections.push(Section { name: name.to_string(), values: Vec::new() });
            return Ok(());
        }
        let (key, value) = text.split_once([':', '=']).ok_or("neither [SECTION] nor KEY: VALUE")?;
        let key = key.trim().to_lowercase();
        let section = self.conf.sections.last_mut().ok_or("a value before the first [SECTION]")?;
        if section.values.iter().any(|(known, _)| *known == key) {
            return Err(format!("{key} is there twice"));
        }
        section.values.push((key, value.trim().to_string()));
        self.open = Some(());
        Ok(())
    }
}

/// Words between blanks; quotes and backslashes as in a shell.
///
/// # Errors
/// A quote is not closed, or a backslash is the last character.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => {
                let next = chars.next().ok_or("a backslash at the end")?;
                let word = word.get_or_insert_default();
                if quote.is_some() && !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, c) if c.is_whitespace() => found.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote that is not closed".into());
    }
    found.extend(word);
    Ok(found)
}

/// Puts values in place of `$NAME` and `${NAME}`; `$$` is `$`. Names that are not known stay, as `$11` and `$f` do: they are the
/// shell's, or awk's.
pub(super) fn substitute(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            text.push('$');
            rest = after;
            continue;
        }
        let (bare, braced) = (after.strip_prefix('{').unwrap_or(after), after.starts_with('{'));
        let is_name = |(at, c): &(usize, char)| c.is_ascii_alphabetic() || *c == '_' || (*at > 0 && c.is_ascii_digit());
        let end = bare.char_indices().find(|place| !is_name(place)).map_or(bare.len(), |(at, _)| at);
        let (name, tail) = bare.split_at(end);
        let tail = if braced { tail.strip_prefix('}') } else { Some(tail) };
        match (values.iter().find(|(known, _)| *known == name), tail) {
            (Some((_, value)), Some(tail)) => {
                text.push_str(value);
                rest = tail;
            }
            (Some(_) | None, _) => {
                text.push('$');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}
