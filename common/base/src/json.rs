//! Facts as JSON objects, for the event log. The names of fields and variants are those of the types (`serde(rename)`).
//!
//! Most values are written as serde_json writes them. Other rules keep an object flat, so that a reader finds each value by one name.
//!
//! A variant of an enum is a text under the name of its field. The fields of the variant follow in the same object.
//!
//! A variant with an empty name that holds one value is written as that value.
//!
//! A field with an empty name adds its own fields to the object. If it is an enum, the name of the type is the name of the text. If the name
//! of the type or of the variant is empty, no text is written.
//!
//! Bytes that need not be UTF-8 (paths, arguments, last words) become strings. A backslash is `\\`, and a byte that is not UTF-8 is `\xNN`.
//! JSON's own escapes follow. Text stays readable, and no byte is lost.

use alloc::format;
use alloc::string::String;
use core::fmt::{self, Display, Write as _};
use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};

/// An object that is being written.
pub struct Object<'a>(&'a mut String);

impl<'a> Object<'a> {
    /// Begins an object.
    pub fn open(text: &'a mut String) -> Self {
        text.push('{');
        Self(text)
    }

    /// Ends it.
    pub fn close(self) {
        self.0.push('}');
    }

    /// Writes a value under a name.
    pub fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.field_with(name, value, None);
    }

    /// Writes an enum under a name. `also`: a number after the name of the variant.
    pub fn field_with(&mut self, name: &str, value: &(impl Serialize + ?Sized), also: Option<(&str, u32)>) {
        let written = value.serialize(Value { text: self.0, name: Some(name), also });
        // Only a type that no object can hold is refused: a map, a float. The golden file has every fact.
        debug_assert!(written.is_ok(), "{name} cannot be written: {}", self.0);
    }
}

/// Serializes an enum as an object of its own, with its variant under `kind`.
pub fn object<T: Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Kind<'a, T> {
        kind: &'a T,
    }
    Kind { kind: value }.serialize(serializer)
}

/// Serializes a value as the text that people read.
pub fn text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes an error as a text under `error` in the event log, and as itself on a wire.
pub fn error<T: Display + Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.serialize_newtype_struct("error", &format!("{value}"))
    } else {
        value.serialize(serializer)
    }
}

/// The place of one value.
struct Value<'a> {
    text: &'a mut String,
    /// The name of its field; empty: its fields are part of the object. `None`: an item of a list.
    name: Option<&'a str>,
    also: Option<(&'a str, u32)>,
}

/// Items or fields that are being written.
struct Inside<'a> {
    text: &'a mut String,
    /// The name of items.
    name: Option<&'static str>,
    /// Written after the last.
    end: &'static str,
}

/// Writes the comma and the name before a value.
fn begin(text: &mut String, name: Option<&str>) {
    if !text.ends_with(['{', '[']) {
        text.push(',');
    }
    if let Some(name) = name {
        let _infallible = write!(text, "\"{name}\":");
    }
}

impl<'a> Value<'a> {
    fn named(text: &'a mut String, name: &'a str) -> Self {
        Self { text, name: Some(name), also: None }
    }

    /// Writes a value that has no fields.
    fn put(mut self, value: impl Display) -> fmt::Result {
        self.begin()?;
        write!(self.text, "{value}")
    }

    /// Writes the comma and the name. A value without fields needs a name.
    fn begin(&mut self) -> fmt::Result {
        if self.name == Some("") {
            return Err(fmt::Error);
        }
        begin(self.text, self.name);
        Ok(())
    }

    /// Whether variants have no text: the name of the type is empty.
    fn is_untagged(&self, kind: &str) -> bool {
        self.name == Some("") && kind.is_empty()
    }

    /// Begins a struct or a list in these brackets.
    fn open(mut self, brackets: (char, &'static str)) -> Result<Inside<'a>, fmt::Error> {
        self.begin()?;
        self.text.push(brackets.0);
        Ok(Inside { text: self.text, name: None, end: brackets.1 })
    }

    /// Begins a variant: its text, if it has one. Its fields follow.
    fn variant(self, kind: &str, variant: &str) -> Inside<'a> {
        let Self { text, name, also } = self;
        let end = if name.is_none() { "}" } else { "" };
        if name.is_none() {
            begin(text, None);
            text.push('{');
        }
        let tag = name.filter(|name| !name.is_empty()).unwrap_or(kind);
        if !tag.is_empty() && !variant.is_empty() {
            begin(text, Some(tag));
            push_text(text, variant);
        }
        if let Some((name, number)) = also {
            begin(text, Some(name));
            let _infallible = write!(text, "{number}");
        }
        Inside { text, name: Some(""), end }
    }
}

impl Inside<'_> {
    fn put<T: Serialize + ?Sized>(&mut self, name: Option<&'static str>, value: &T) -> fmt::Result {
        value.serialize(Value { text: self.text, name, also: None })
    }

    fn close(self) {
        self.text.push_str(self.end);
    }
}

/// Methods for values that are written as they are displayed.
macro_rules! displayed {
    ($($method:ident $type:ty),*) => {
        $(fn $method(self, value: $type) -> fmt::Result {
            self.put(value)
        })*
    };
}

impl<'a> Serializer for Value<'a> {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Inside<'a>;
    type SerializeTuple = Inside<'a>;
    type SerializeTupleStruct = Inside<'a>;
    type SerializeTupleVariant = Inside<'a>;
    type SerializeMap = Impossible<(), fmt::Error>;
    type SerializeStruct = Inside<'a>;
    type SerializeStructVariant = Inside<'a>;

    displayed!(
        serialize_bool bool,
        serialize_i8 i8,
        serialize_i16 i16,
        serialize_i32 i32,
        serialize_i64 i64,
        serialize_u8 u8,
        serialize_u16 u16,
        serialize_u32 u32,
        serialize_u64 u64
    );

    fn serialize_f32(self, _: f32) -> fmt::Result {
        Err(fmt::Error)
    }

    fn serialize_f64(self, _: f64) -> fmt::Result {
        Err(fmt::Error)
    }

    fn serialize_char(self, value: char) -> fmt::Result {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(mut self, value: &str) -> fmt::Result {
        self.begin()?;
        push_text(self.text, value);
        Ok(())
    }

    fn serialize_bytes(mut self, value: &[u8]) -> fmt::Result {
        self.begin()?;
        push_bytes(self.text, value);
        Ok(())
    }

    fn serialize_none(self) -> fmt::Result {
        if self.name == Some("") { Ok(()) } else { self.serialize_unit() }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> fmt::Result {
        value.serialize(self)
    }

    fn serialize_unit(self) -> fmt::Result {
        self.put("null")
    }

    fn serialize_unit_struct(self, _: &'static str) -> fmt::Result {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, kind: &'static str, _: u32, variant: &'static str) -> fmt::Result {
        if self.name.is_none() {
            return self.serialize_str(variant);
        }
        if self.is_untagged(kind) {
            return Value::named(self.text, variant).put(true);
        }
        self.variant(kind, variant);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, kind: &'static str, value: &T) -> fmt::Result {
        let name = self.name.map(|name| if name.is_empty() { kind } else { name });
        value.serialize(Self { name, ..self })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        kind: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> fmt::Result {
        if variant.is_empty() {
            return value.serialize(self);
        }
        if self.is_untagged(kind) {
            return value.serialize(Value::named(self.text, variant));
        }
        let mut inside = self.variant(kind, variant);
        inside.put(Some(""), value)?;
        inside.close();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside<'a>, fmt::Error> {
        self.open(('[', "]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside<'a>, fmt::Error> {
        self.open(('[', "]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside<'a>, fmt::Error> {
        self.open(('[', "]"))
    }

    fn serialize_tuple_variant(
        self,
        kind: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'a>, fmt::Error> {
        Ok(self.variant(kind, variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, fmt::Error> {
        Err(fmt::Error)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inside<'a>, fmt::Error> {
        if self.name == Some("") {
            return Ok(Inside { text: self.text, name: None, end: "" });
        }
        self.open(('{', "}"))
    }

    fn serialize_struct_variant(
        self,
        kind: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'a>, fmt::Error> {
        Ok(self.variant(kind, variant))
    }
}

/// Lists, and variants with several values.
macro_rules! items {
    ($($interface:ident $method:ident),*) => {
        $(impl ser::$interface for Inside<'_> {
            type Ok = ();
            type Error = fmt::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
                self.put(self.name, value)
            }

            fn end(self) -> fmt::Result {
                self.close();
                Ok(())
            }
        })*
    };
}
items!(SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field, SerializeTupleVariant serialize_field);

/// Structs, and variants with fields.
macro_rules! fields {
    ($($interface:ident),*) => {
        $(impl ser::$interface for Inside<'_> {
            type Ok = ();
            type Error = fmt::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> fmt::Result {
                self.put(Some(name), value)
            }

            fn end(self) -> fmt::Result {
                self.close();
                Ok(())
            }
        })*
    };
}
fields!(SerializeStruct, SerializeStructVariant);

fn push_text(text: &mut String, value: &str) {
    text.push('"');
    value.chars().for_each(|c| push_char(text, c));
    text.push('"');
}

fn push_char(text: &mut String, c: char) {
    match c {
        '"' => text.push_str("\\\""),
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        '\r' => text.push_str("\\r"),
        // U+2028 and U+2029 end a line for some readers of lines. DEL and C1 could drive a terminal that shows the log.
        c if c.is_control() || c == '\u{2028}' || c == '\u{2029}' => {
            let _infallible = write!(text, "\\u{:04x}", u32::from(c));
        }
        c => text.push(c),
    }
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
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
