//! Parser of an answer of the metadata server. An answer has at most [`MOST`] bytes, whatever its header announces.

use alloc::string::String;
use alloc::vec::Vec;
use thiserror::Error;

/// Most bytes of an answer: real ones have some hundred.
pub const MOST: usize = 64 << 10;
/// Most header lines: the server sends about ten.
const HEADERS: usize = 64;
/// Longest entity tag that is sent back. The server's are 16 hexadecimal digits.
const LONGEST_TAG: usize = 128;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The entity tag of the value, if it has one that can be sent back.
    pub etag: Option<String>,
    /// The value.
    pub body: Vec<u8>,
}

/// Why bytes are no answer of a metadata server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unusable {
    /// The answer is longer than any value.
    #[error("the answer has more than 64 KiB")]
    TooLong,
    /// The bytes are no answer of HTTP.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// The header does not name the server.
    #[error("the answer has no header Metadata-Flavor: Google, so it is not from a metadata server")]
    OtherServer,
    /// The connection was closed before the end of the answer.
    #[error("the connection was closed in the middle of the answer")]
    Truncated,
}

/// The bytes of an answer that have come so far.
#[derive(Default, Debug)]
pub struct AnswerParser {
    bytes: Vec<u8>,
}

/// The header of an answer.
struct Head {
    status: u16,
    etag: Option<String>,
    length: Length,
    is_google: bool,
    len: usize,
}

/// The end of a body.
#[derive(Clone, Copy)]
enum Length {
    Bytes(usize),
    Chunks,
    UntilClosed,
}

impl AnswerParser {
    /// Adds bytes. Returns the answer once it is complete. No bytes: the connection was closed.
    ///
    /// # Errors
    ///
    /// The bytes are no answer of a metadata server. The connection has no further use then.
    pub fn add(&mut self, bytes: &[u8]) -> Result<Option<Answer>, Unusable> {
        let is_closed = bytes.is_empty();
        if self.bytes.len().saturating_add(bytes.len()) > MOST {
            return Err(Unusable::TooLong);
        }
        self.bytes.extend_from_slice(bytes);
        let Some(head) = parse_head(&self.bytes)? else {
            return if is_closed { Err(Unusable::Truncated) } else { Ok(None) };
        };
        if !head.is_google {
            return Err(Unusable::OtherServer);
        }
        let rest = self.bytes.get(head.len..).unwrap_or_default();
        let body = match head.length {
            Length::Bytes(length) if length > MOST => return Err(Unusable::TooLong),
            Length::Bytes(length) => rest.get(..length).map(<[u8]>::to_vec),
            Length::Chunks => join_chunks(rest)?,
            Length::UntilClosed => is_closed.then(|| rest.to_vec()),
        };
        match body {
            Some(body) => Ok(Some(Answer { status: head.status, etag: head.etag, body })),
            None if is_closed => Err(Unusable::Truncated),
            None => Ok(None),
        }
    }
}

/// The header, if it is complete.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, Unusable> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let len = match response.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Unusable::NotHttp),
    };
    let find = |name: &str| {
        let named = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value.trim_ascii())
    };
    let text = |value: &[u8]| core::str::from_utf8(value).ok().map(String::from);
    let length = match (find("Transfer-Encoding"), find("Content-Length")) {
        (Some(encoding), _) if encoding.eq_ignore_ascii_case(b"chunked") => Length::Chunks,
        (Some(_), _) => return Err(Unusable::NotHttp),
        (None, Some(length)) => {
            let length = text(length).and_then(|length| length.parse().ok());
            Length::Bytes(length.ok_or(Unusable::NotHttp)?)
        }
        (None, None) => Length::UntilClosed,
    };
    let etag = find("ETag").filter(|tag| is_tag(tag)).and_then(text);
    let is_google = find("Metadata-Flavor").is_some_and(|flavor| flavor.eq_ignore_ascii_case(b"Google"));
    Ok(Some(Head { status: response.code.unwrap_or(0), etag, length, is_google, len }))
}

/// Whether a tag can be part of a request: another one could add lines to its header.
fn is_tag(tag: &[u8]) -> bool {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=LONGEST_TAG).contains(&tag.len()) && tag.iter().all(is_plain)
}

/// The body that chunks have in common, if the last one has come.
fn join_chunks(mut rest: &[u8]) -> Result<Option<Vec<u8>>, Unusable> {
    let mut body = Vec::new();
    loop {
        let (start, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Unusable::NotHttp),
        };
        if size == 0 {
            return Ok(Some(body));
        }
        let end = usize::try_from(size).ok().and_then(|size| start.checked_add(size)).ok_or(Unusable::TooLong)?;
        let Some(chunk) = rest.get(start..end) else {
            return if end > MOST { Err(Unusable::TooLong) } else { Ok(None) };
        };
        body.extend_from_slice(chunk);
        rest = match rest.get(end..) {
            Some([b'\r', b'\n', rest @ ..]) => rest,
            Some([] | [b'\r']) | None => return Ok(None),
            Some(_) => return Err(Unusable::NotHttp),
        };
    }
}
