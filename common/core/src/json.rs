//! Writer of JSON objects, as small as the event log needs it. The names and their order are a frozen interface. An encoder derived from
//! the types would change that interface whenever a type changes.
//!
//! Bytes that need not be UTF-8 (paths, arguments, last words) become strings: a backslash is `\\`, and a byte that is not UTF-8 is
//! `\xNN`. JSON's own escapes follow. Text stays readable, and no byte is lost.

use crate::os_bytes::OsBytes;
use alloc::string::String;
use core::fmt::{self, Write};

/// Object that is written into a string. Writing to a string cannot fail, so results are dropped here.
pub(crate) struct Object<'a> {
    text: &'a mut String,
    first: bool,
}

impl<'a> Object<'a> {
    pub(crate) fn open(text: &'a mut String) -> Self {
        text.push('{');
        Self { text, first: true }
    }
    pub(crate) fn close(self) {
        self.text.push('}');
    }
    fn name(&mut self, name: &str) {
        if !self.first {
            self.text.push(',');
        }
        self.first = false;
        self.put(format_args!("\"{name}\":"));
    }
    fn put(&mut self, args: fmt::Arguments<'_>) {
        let _infallible = self.text.write_fmt(args);
    }
    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.put(format_args!("{value}"));
    }
    pub(crate) fn signed(&mut self, name: &str, value: i32) {
        self.name(name);
        self.put(format_args!("{value}"));
    }
    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        self.name(name);
        self.put(format_args!("{value}"));
    }
    pub(crate) fn null(&mut self, name: &str) {
        self.name(name);
        self.text.push_str("null");
    }
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.text.push('"');
        value.chars().for_each(|c| push_char(self.text, c));
        self.text.push('"');
    }
    pub(crate) fn bytes(&mut self, name: &str, value: &OsBytes) {
        self.name(name);
        push_bytes(self.text, value);
    }
    pub(crate) fn maybe(&mut self, name: &str, value: Option<u64>) {
        match value {
            Some(value) => self.number(name, value),
            None => self.null(name),
        }
    }
    pub(crate) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        self.name(name);
        let mut inner = Object::open(self.text);
        fill(&mut inner);
        inner.close();
    }
    pub(crate) fn array<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut String, T),
    ) {
        self.name(name);
        self.text.push('[');
        for (i, value) in items.into_iter().enumerate() {
            if i > 0 {
                self.text.push(',');
            }
            item(self.text, value);
        }
        self.text.push(']');
    }
}

fn push_char(text: &mut String, c: char) {
    match c {
        '"' => text.push_str("\\\""),
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        '\r' => text.push_str("\\r"),
        // U+2028 and U+2029 end a line for some readers of lines; DEL and C1 could drive a terminal that shows the log.
        c if c.is_control() || c == '\u{2028}' || c == '\u{2029}' => {
            let _infallible = write!(text, "\\u{:04x}", u32::from(c));
        }
        c => text.push(c),
    }
}

pub(crate) fn push_bytes(text: &mut String, bytes: &[u8]) {
    text.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                text.push_str("\\\\");
            }
            push_char(text, c);
        }
        for b in chunk.invalid() {
            let _infallible = write!(text, "\\\\x{b:02x}");
        }
    }
    text.push('"');
}

pub(crate) fn push_number(text: &mut String, number: u32) {
    let _infallible = write!(text, "{number}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_lossless() {
        let show = |bytes: &[u8]| {
            let mut text = String::new();
            push_bytes(&mut text, bytes);
            text
        };
        assert_eq!(show(b"a\"b\n\x1b"), r#""a\"b\n\u001b""#);
        assert_eq!(show(b"back\\slash \xff \\xff"), r#""back\\\\slash \\xff \\\\xff""#);
        assert_eq!(show("é\u{2028}".as_bytes()), "\"é\\u2028\"");
    }
}
