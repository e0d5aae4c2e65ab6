//! The frames of sessions, byte by byte.

use crate::id::{Rank, Round};
use crate::os_bytes::OsBytes;
use crate::restart::rank_fault::{Fault, FaultKind, Leave};
use crate::signal::Signal;
use crate::status::Status;
use crate::time::Span;
use crate::wire::frozen::Malformed;
use crate::wire::frozen::client::client_round::{Begin, Dismissal, Heard, Said, UNSUPPORTED, Unread};
use crate::wire::frozen::client::frame_len;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use proptest::prelude::*;

const R7: Round = Round::new(7);
const SPAN: Option<Span> = Some(Span::from_nanos(258));

fn text(text: &str) -> OsBytes {
    text.into()
}

fn fault(kind: FaultKind) -> Fault {
    Fault { initial: Rank::new(3), kind, text: text("no") }
}

/// Checks that the written bytes are these, and are read as they were meant; bytes that are cut, or too long, are not read.
fn check<T: Debug + PartialEq>(
    value: T,
    bytes: &[u8],
    write: impl Fn(&T) -> Vec<u8>,
    read: impl Fn(&[u8]) -> Result<T, Unread>,
) {
    assert_eq!(write(&value), bytes, "{value:?}");
    assert_eq!(read(bytes), Ok(value));
    assert_eq!(frame_len(bytes), Ok(Some(bytes.len())), "{bytes:?}");
    for cut in 0..bytes.len() {
        assert_eq!(read(&bytes[..cut]), Err(Unread::Malformed(Malformed)), "{bytes:?}, cut at {cut}");
    }
    let more = [bytes, &[0]].concat();
    assert_eq!(read(&more), Err(Unread::Malformed(Malformed)), "{bytes:?} goes on");
}

#[test]
fn process_messages_round_trip() {
    let terms = vec![(text("keys"), text("1")), (text(""), text(""))];
    for (said, bytes) in [
        (Said::Register(terms), &b"\x1a\0\0\0\x11\x02\0\0\0\x04\0\0\0keys\x01\0\0\x001\0\0\0\0\0\0\0\0"[..]),
        (Said::Register(Vec::new()), b"\x05\0\0\0\x11\0\0\0\0"),
        (Said::Fault(R7, text("no")), b"\x0b\0\0\0\x12\x07\0\0\0\x02\0\0\0no"),
        (Said::Ready(R7, vec![text("k"), text("")]), b"\x12\0\0\0\x13\x07\0\0\0\x02\0\0\0\x01\0\0\0k\0\0\0\0"),
        (Said::Returned(R7), b"\x05\0\0\0\x14\x07\0\0\0"),
        (Said::Leave(Leave::BaseException, text("no")), b"\x08\0\0\0\x15\0\x02\0\0\0no"),
        (Said::Leave(Leave::Abort, text("")), b"\x06\0\0\0\x15\x01\0\0\0\0"),
        (Said::Leave(Leave::Unhealthy, text("")), b"\x06\0\0\0\x15\x02\0\0\0\0"),
        (Said::Alive(R7, false), b"\x06\0\0\0\x16\x07\0\0\0\0"),
        (Said::Alive(R7, true), b"\x06\0\0\0\x16\x07\0\0\0\x01"),
        (Said::Section(R7, SPAN), b"\x0d\0\0\0\x17\x07\0\0\0\x02\x01\0\0\0\0\0\0"),
        (Said::Section(R7, None), b"\x0d\0\0\0\x17\x07\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        (Said::Section(R7, Some(Span::ZERO)), b"\x0d\0\0\0\x17\x07\0\0\0\0\0\0\0\0\0\0\0"),
        (Said::Hooks(R7, true), b"\x06\0\0\0\x18\x07\0\0\0\x01"),
    ] {
        assert_eq!(Said::is_register(bytes), matches!(said, Said::Register(_)));
        check(said, bytes, Said::to_frame, Said::parse);
    }
}

#[test]
fn agent_messages_round_trip() {
    let begin = Begin {
        round: R7,
        rank: Rank::new(1),
        world_size: 2,
        active_rank: Some(Rank::new(0)),
        active_world_size: 1,
        initial_rank: Rank::new(5),
        initial_world_size: 6,
        fault: None,
        env: vec![(text("A"), Some(text("b"))), (text("C"), None)],
    };
    let reserve = Begin { active_rank: None, fault: Some(fault(FaultKind::Hang)), env: Vec::new(), ..begin.clone() };
    for (heard, bytes) in [
        (Heard::Unsupported(99), &b"\x02\0\0\0\x10\x63"[..]),
        (
            Heard::Begin(begin),
            b"\x34\0\0\0\x11\x07\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0\0\x01\0\0\0\x05\0\0\0\x06\0\0\0\0\
              \x02\0\0\0\x01\0\0\0A\x01\x01\0\0\0b\x01\0\0\0C\0",
        ),
        (
            Heard::Begin(reserve),
            b"\x2c\0\0\0\x11\x07\0\0\0\x01\0\0\0\x02\0\0\0\0\x01\0\0\0\x05\0\0\0\x06\0\0\0\
              \x01\x03\0\0\0\x01\x02\0\0\0no\0\0\0\0\0\0",
        ),
        (Heard::Finish(R7), b"\x05\0\0\0\x13\x07\0\0\0"),
        (Heard::Dismissed(Dismissal::Discarded, text("")), b"\x06\0\0\0\x14\0\0\0\0\0"),
        (Heard::Dismissed(Dismissal::GivenUp, text("no")), b"\x08\0\0\0\x14\x01\x02\0\0\0no"),
        (Heard::Dismissed(Dismissal::Refused, text("no")), b"\x08\0\0\0\x14\x02\x02\0\0\0no"),
        (
            Heard::Interrupt(R7, fault(FaultKind::Warned), SPAN),
            b"\x1a\0\0\0\x12\x07\0\0\0\x03\0\0\0\x08\x02\0\0\0no\0\0\x02\x01\0\0\0\0\0\0",
        ),
    ] {
        check(heard, bytes, Heard::to_frame, Heard::parse);
    }
}

#[test]
fn faults_are_as_they_were() {
    let killed = |core| Status::Signaled { sig: Signal::KILL, core };
    for (kind, raw, status) in [
        (FaultKind::Exception, 0, [0, 0]),
        (FaultKind::Hang, 1, [0, 0]),
        (FaultKind::Ended(Status::Exited(3)), 2, [1, 3]),
        (FaultKind::Ended(killed(false)), 2, [2, 9]),
        (FaultKind::Ended(killed(true)), 2, [3, 9]),
        (FaultKind::Ended(Status::Lost), 2, [0, 0]),
        (FaultKind::Overdue(killed(false)), 3, [2, 9]),
        (FaultKind::Left(Leave::BaseException), 4, [0, 0]),
        (FaultKind::Left(Leave::Abort), 5, [0, 0]),
        (FaultKind::Left(Leave::Unhealthy), 6, [0, 0]),
        (FaultKind::HostLost, 7, [0, 0]),
        (FaultKind::Warned, 8, [0, 0]),
        (FaultKind::Joined, 9, [0, 0]),
    ] {
        let head = b"\x1a\0\0\0\x12\x07\0\0\0\x03\0\0\0";
        let bytes = [&head[..], &[raw], b"\x02\0\0\0no", &status, &[0xff; 8]].concat();
        check(Heard::Interrupt(R7, fault(kind), None), &bytes, Heard::to_frame, Heard::parse);
    }
}

#[test]
fn missing_script_is_not_read() {
    let said = |bytes: &[u8]| Said::parse(bytes);
    for (bytes, kind) in [(b"\x01\0\0\0\x19", 25), (b"\x01\0\0\0\x10", UNSUPPORTED), (b"\x01\0\0\0\x01", 1)] {
        assert_eq!(said(bytes), Err(Unread::Kind(kind)));
    }
    assert_eq!(Heard::parse(b"\x01\0\0\0\x15"), Err(Unread::Kind(21)));
    for bytes in [
        &b""[..],
        b"\x01\0\0\0",
        b"\x06\0\0\0\x15\x03\0\0\0\0",
        b"\x06\0\0\0\x16\x07\0\0\0\x02",
        b"\x05\0\0\0\x11\xff\xff\xff\xff",
    ] {
        assert_eq!(said(bytes), Err(Unread::Malformed(Malformed)), "{bytes:?}");
    }
    for bytes in [
        &b"\x06\0\0\0\x14\x03\0\0\0\0"[..],
        b"\x18\0\0\0\x12\x07\0\0\0\x03\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\x18\0\0\0\x12\x07\0\0\0\x03\0\0\0\x02\0\0\0\0\x02\0\0\0\0\0\0\0\0\0",
        b"\x18\0\0\0\x12\x07\0\0\0\x03\0\0\0\x02\0\0\0\0\x04\0\0\0\0\0\0\0\0\0",
    ] {
        assert_eq!(Heard::parse(bytes), Err(Unread::Malformed(Malformed)), "{bytes:?}");
    }
}

proptest! {
    /// Bytes that are read at all are written again as they were, except for parts without a meaning: the length of the frame, the status
    /// of a fault that has none.
    #[test]
    fn no_bytes_are_too_much(kind in 15u8..26, rest: Vec<u8>) {
        let frame = [&[0, 0, 0, 0, kind], rest.as_slice()].concat();
        if let Ok(said) = Said::parse(&frame) {
            prop_assert_eq!(Said::parse(&said.to_frame()), Ok(said));
        }
        if let Ok(heard) = Heard::parse(&frame) {
            prop_assert_eq!(Heard::parse(&heard.to_frame()), Ok(heard));
        }
    }
}
