//! The wire is frozen. Bytes that were written once are read as they were meant.

use super::*;
use alloc::vec;
use proptest::prelude::*;

fn header() -> Header {
    Header { kind: Kind::Call, codec: 2, count: 3, call: 0x0102, description: 5, body: 6 }
}

#[test]
fn header_is_as_it_was() {
    let bytes = *b"\x01\x02\0\0\x03\0\0\0\x02\x01\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0";
    assert_eq!(header().to_bytes(), bytes);
    assert_eq!(Header::parse(&bytes), Ok(header()));
}

#[test]
fn description_is_as_it_was() {
    let parts =
        vec![Part { place: Place::Body, offset: 0, len: 5 }, Part { place: Place::Arena, offset: 0x1000, len: 7 }];
    let description = Description { texts: vec![b"m", b""], parts };
    let bytes = b"\x02\0\0\0\x01\0\0\0m\0\0\0\0\x02\0\0\0\
        \0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\
        \x01\0\0\0\0\x10\0\0\0\0\0\0\x07\0\0\0\0\0\0\0";
    assert_eq!(description.to_bytes(), bytes);
    assert_eq!(Description::parse(bytes, 5), Ok(description));
    for cut in 0..bytes.len() {
        assert_eq!(Description::parse(&bytes[..cut], 5), Err(FrameError::Malformed), "cut at {cut}");
    }
    assert_eq!(Description::parse(bytes, 4), Err(FrameError::Malformed), "a part outside of the body");
    assert_eq!(Description::parse(&[bytes, &b"\0"[..]].concat(), 5), Err(FrameError::Malformed), "bytes after it");
}

#[test]
fn kinds_have_the_numbers_that_they_had() {
    let numbers = Kind::ALL.map(Kind::raw);
    assert_eq!(numbers, [1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21]);
    for kind in Kind::ALL {
        assert_eq!(Kind::from_raw(kind.raw()), kind);
    }
    assert_eq!(Kind::from_raw(99), Kind::Unknown(99));
}

#[test]
fn header_beyond_a_limit_is_refused() {
    let long = Header { description: (1 << 20) + 1, ..header() };
    assert_eq!(Header::parse(&long.to_bytes()), Err(FrameError::Description((1 << 20) + 1)));
    let long = Header { body: MAX_BODY + 1, ..header() };
    assert_eq!(Header::parse(&long.to_bytes()), Err(FrameError::Body(MAX_BODY + 1)));
    let mut odd = header().to_bytes();
    odd[3] = 1;
    assert_eq!(Header::parse(&odd), Err(FrameError::Header));
}

#[test]
fn parts_are_aligned() {
    assert_eq!(laid_out(&[5, 0, 17, 1]), (vec![0, 16, 16, 48], 49));
    assert_eq!(laid_out(&[]), (vec![], 0));
    assert_eq!(laid_out(&[u64::MAX, 1]).1, u64::MAX);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), body: u64) {
        if let Ok(description) = Description::parse(&bytes, body) {
            prop_assert_eq!(description.to_bytes(), bytes);
        }
    }

    #[test]
    fn any_header_is_read_or_refused(bytes: [u8; HEADER]) {
        if let Ok(header) = Header::parse(&bytes) {
            prop_assert_eq!(header.to_bytes(), bytes);
        }
    }
}
