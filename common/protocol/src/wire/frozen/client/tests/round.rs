//! The frames of sessions, byte by byte.

use crate::rank_fault::{Fault, FaultKind, Leave};
use crate::wire::frozen::Malformed;
use crate::wire::frozen::client::client_round::{AgentMessage, Begin, ClientMessage, Dismissal, Unread};
use crate::wire::frozen::client::frame_len;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use proptest::prelude::*;
use rlaunch_base::id::{Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_base::time::Span;

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
    assert_eq!(read(&more), Err(Unread::Malformed(Malformed)), "{bytes:?} has one byte more");
}

#[test]
fn process_messages_round_trip() {
    let terms = vec![(text("keys"), text("1")), (text(""), text(""))];
    for (said, bytes) in [
        (ClientMessage::Register(terms), &b"\x0c\0\0\0\x10\0\x02\x04keys\x011\0\0"[..]),
        (ClientMessage::Register(Vec::new()), b"\x03\0\0\0\x10\0\0"),
        (ClientMessage::Fault(R7, text("no")), b"\x06\0\0\0\x10\x01\x07\x02no"),
        (ClientMessage::Ready(R7, vec![text("k"), text("")]), b"\x07\0\0\0\x10\x02\x07\x02\x01k\0"),
        (ClientMessage::Returned(R7), b"\x03\0\0\0\x10\x03\x07"),
        (ClientMessage::Leave(Leave::BaseException, text("no")), b"\x06\0\0\0\x10\x04\0\x02no"),
        (ClientMessage::Leave(Leave::Abort, text("")), b"\x04\0\0\0\x10\x04\x01\0"),
        (ClientMessage::Leave(Leave::Unhealthy, text("")), b"\x04\0\0\0\x10\x04\x02\0"),
        (ClientMessage::Alive(R7, false), b"\x04\0\0\0\x10\x05\x07\0"),
        (ClientMessage::Alive(Round::new(300), true), b"\x05\0\0\0\x10\x05\xac\x02\x01"),
        (ClientMessage::Section(R7, SPAN), b"\x06\0\0\0\x10\x06\x07\x01\x82\x02"),
        (ClientMessage::Section(R7, None), b"\x04\0\0\0\x10\x06\x07\0"),
        (ClientMessage::Section(R7, Some(Span::ZERO)), b"\x05\0\0\0\x10\x06\x07\x01\0"),
        (ClientMessage::Hooks(R7, true), b"\x04\0\0\0\x10\x07\x07\x01"),
    ] {
        assert_eq!(ClientMessage::is_register(bytes), matches!(said, ClientMessage::Register(_)));
        check(said, bytes, ClientMessage::to_frame, ClientMessage::parse);
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
    for (message, bytes) in [
        (AgentMessage::Begin(begin), &b"\x14\0\0\0\x10\0\x07\x01\x02\x01\0\x01\x05\x06\0\x02\x01A\x01\x01b\x01C\0"[..]),
        (AgentMessage::Begin(reserve), b"\x10\0\0\0\x10\0\x07\x01\x02\0\x01\x05\x06\x01\x03\x01\x02no\0"),
        (
            AgentMessage::Interrupt(R7, fault(FaultKind::Warned), SPAN),
            b"\x0b\0\0\0\x10\x01\x07\x03\x06\x02no\x01\x82\x02",
        ),
        (AgentMessage::Finish(R7), b"\x03\0\0\0\x10\x02\x07"),
        (AgentMessage::Dismissed(Dismissal::Discarded, text("")), b"\x04\0\0\0\x10\x03\0\0"),
        (AgentMessage::Dismissed(Dismissal::GivenUp, text("no")), b"\x06\0\0\0\x10\x03\x01\x02no"),
        (AgentMessage::Dismissed(Dismissal::Refused, text("no")), b"\x06\0\0\0\x10\x03\x02\x02no"),
        (AgentMessage::Unsupported(99), b"\x03\0\0\0\x10\x04\x63"),
    ] {
        check(message, bytes, AgentMessage::to_frame, AgentMessage::parse);
    }
}

#[test]
fn faults_are_as_they_were() {
    let killed = |core| Status::Signaled { sig: Signal::KILL, core };
    for (kind, raw) in [
        (FaultKind::Exception, &[0][..]),
        (FaultKind::Hang, &[1]),
        (FaultKind::Ended(Status::Exited(3)), &[2, 0, 3]),
        (FaultKind::Ended(killed(false)), &[2, 1, 9, 0]),
        (FaultKind::Ended(killed(true)), &[2, 1, 9, 1]),
        (FaultKind::Ended(Status::Lost), &[2, 2]),
        (FaultKind::Overdue(killed(false)), &[3, 1, 9, 0]),
        (FaultKind::Left(Leave::BaseException), &[4, 0]),
        (FaultKind::Left(Leave::Abort), &[4, 1]),
        (FaultKind::Left(Leave::Unhealthy), &[4, 2]),
        (FaultKind::HostLost, &[5]),
        (FaultKind::Warned, &[6]),
        (FaultKind::Joined, &[7]),
    ] {
        let len = u8::try_from(raw.len() + 8).unwrap();
        let bytes = [&[len], &b"\0\0\0\x10\x01\x07\x03"[..], raw, b"\x02no\0"].concat();
        check(AgentMessage::Interrupt(R7, fault(kind), None), &bytes, AgentMessage::to_frame, AgentMessage::parse);
    }
}

#[test]
fn unknown_and_malformed_frames_are_not_read() {
    for (bytes, kind) in [(&b"\x01\0\0\0\x19"[..], 25), (b"\x02\0\0\0\x10\x08", 8), (b"\x01\0\0\0\x01", 1)] {
        assert_eq!(ClientMessage::parse(bytes), Err(Unread::Kind(kind)));
    }
    assert_eq!(AgentMessage::parse(b"\x03\0\0\0\x10\x05x"), Err(Unread::Kind(5)));
    for bytes in [
        &b""[..],
        b"\x01\0\0\0",
        b"\x01\0\0\0\x10",
        b"\x04\0\0\0\x10\x04\x03\0",
        b"\x04\0\0\0\x10\x05\x07\x02",
        b"\x07\0\0\0\x10\0\xff\xff\xff\xff\x0f",
    ] {
        assert_eq!(ClientMessage::parse(bytes), Err(Unread::Malformed(Malformed)), "{bytes:?}");
    }
    for bytes in [
        &b"\x04\0\0\0\x10\x03\x03\0"[..],
        b"\x08\0\0\0\x10\x01\x07\x03\x08\x02no\0",
        b"\x0b\0\0\0\x10\x01\x07\x03\x02\x01\0\0\x02no\0",
        b"\x09\0\0\0\x10\x01\x07\x03\x02\x03\x02no\0",
    ] {
        assert_eq!(AgentMessage::parse(bytes), Err(Unread::Malformed(Malformed)), "{bytes:?}");
    }
}

proptest! {
    /// Bytes that are read at all mean the same when they are written again.
    #[test]
    fn no_bytes_are_too_much(kind in 0u8..9, rest: Vec<u8>) {
        let frame = [&[0, 0, 0, 0, 16, kind], rest.as_slice()].concat();
        if let Ok(said) = ClientMessage::parse(&frame) {
            prop_assert_eq!(ClientMessage::parse(&said.to_frame()), Ok(said));
        }
        if let Ok(message) = AgentMessage::parse(&frame) {
            prop_assert_eq!(AgentMessage::parse(&message.to_frame()), Ok(message));
        }
    }
}
