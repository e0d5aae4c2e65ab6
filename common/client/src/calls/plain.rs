//! Plain frames, which have at most one text and one part: most calls and most results. They are read and written without lists.

use super::Head;
use rlaunch_protocol::wire::frozen::calls::{HEADER, Header, Part, Place};

/// Takes the first bytes of a description.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_le_bytes)
}

fn long(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

/// The text and the part of a description that has at most one of each, with the part in the body. `None`: any other, or no description.
pub(crate) fn parse(description: &[u8], body: u64) -> Option<(Option<&[u8]>, Option<Part>)> {
    let mut rest = description;
    let text = match word(&mut rest)? {
        0 => None,
        1 => {
            let len = usize::try_from(word(&mut rest)?).ok()?;
            let (text, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(text)
        }
        _ => return None,
    };
    let part = match word(&mut rest)? {
        0 => None,
        1 => {
            let (place, offset, len) = (word(&mut rest)?, long(&mut rest)?, long(&mut rest)?);
            if place != 0 || offset.checked_add(len)? > body {
                return None;
            }
            Some(Part { place: Place::Body, offset, len })
        }
        _ => return None,
    };
    rest.is_empty().then_some((text, part))
}

/// The bytes of a frame with a text and a part. Each is left out if it is empty. `None`: it is too long for this.
pub(crate) fn frame(head: &Head<'_>, text: &[u8], part: &[u8], longest: usize) -> Option<Vec<u8>> {
    if text.len().saturating_add(part.len()) > longest {
        return None;
    }
    let mut description = 8;
    description += if text.is_empty() { 0 } else { 4 + text.len() };
    description += if part.is_empty() { 0 } else { 20 };
    let header = Header {
        kind: head.kind,
        codec: head.codec,
        count: head.count,
        call: head.call,
        description: u32::try_from(description).ok()?,
        body: part.len() as u64,
    };
    let mut bytes = Vec::with_capacity(HEADER + description + part.len());
    bytes.extend_from_slice(&header.to_bytes());
    bytes.extend_from_slice(&u32::from(!text.is_empty()).to_le_bytes());
    if !text.is_empty() {
        bytes.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
        bytes.extend_from_slice(text);
    }
    bytes.extend_from_slice(&u32::from(!part.is_empty()).to_le_bytes());
    if !part.is_empty() {
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_protocol::wire::frozen::calls::{Description, Kind};

    fn described(texts: &[&[u8]], parts: &[Part]) -> Vec<u8> {
        Description { texts: texts.to_vec(), parts: parts.to_vec() }.to_bytes()
    }

    #[test]
    fn plain_description_is_read_as_any_other() {
        let part = Part { place: Place::Body, offset: 2, len: 3 };
        for (texts, parts) in [(&[][..], &[][..]), (&[&b"name"[..]], &[part]), (&[b""], &[]), (&[], &[part])] {
            let bytes = described(texts, parts);
            assert_eq!(parse(&bytes, 5), Some((texts.first().copied(), parts.first().copied())));
            assert_eq!(Description::parse(&bytes, 5).unwrap().texts, texts);
            for cut in 0..bytes.len() {
                assert_eq!(parse(&bytes[..cut], 5), None, "{texts:?} {parts:?} cut at {cut}");
            }
            assert_eq!(parse(&[&bytes[..], b"\0"].concat(), 5), None);
        }
        assert_eq!(parse(&described(&[], &[part]), 4), None, "outside of the body");
        assert_eq!(parse(&described(&[], &[Part { place: Place::Arena, ..part }]), 5), None);
        assert_eq!(parse(&described(&[b"a", b"b"], &[]), 5), None);
    }

    #[test]
    fn plain_frame_is_written_as_any_other() {
        for (text, part) in [(&b"name"[..], &b"value"[..]), (b"", b"value"), (b"name", b""), (b"", b"")] {
            let texts: &[&[u8]] = if text.is_empty() { &[] } else { &[text] };
            let len = part.len() as u64;
            let parts: &[Part] = if part.is_empty() { &[] } else { &[Part { place: Place::Body, offset: 0, len }] };
            let description = described(texts, parts);
            let (kind, described) = (Kind::Call, u32::try_from(description.len()).unwrap());
            let header = Header { kind, codec: 1, count: 2, call: 3, description: described, body: len };
            let head = Head { kind, codec: 1, count: 2, call: 3, texts };
            let expected = [&header.to_bytes()[..], &description, part].concat();
            assert_eq!(frame(&head, text, part, 9), Some(expected));
        }
        let head = Head { kind: Kind::Call, codec: 0, count: 0, call: 0, texts: &[] };
        assert_eq!(frame(&head, b"name", b"value", 8), None);
    }
}
