//! The wire is frozen: what was written once is read as it was meant, byte by byte.

mod round;

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use proptest::prelude::*;
use rlaunch_base::id::Rank;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;

fn set(all: &[u32]) -> RankSet {
    all.iter().copied().map(Rank::new).collect()
}

fn every_ask(check: impl Fn(Ask<'_>, &[u8])) {
    let (all, who) = (set(&[0, 1, 2, 7]), set(&[7]));
    let second = Some(Span::from_nanos(258));
    for (ask, bytes) in [
        (Ask::Get(b"k"), &b"\0\x01k"[..]),
        (Ask::GetAll(&[b"k", b""]), b"\x01\x02\x01k\0"),
        (Ask::Set(b"k", b"v"), b"\x02\x01k\x01v"),
        (Ask::SetAll(&[(b"k", b"v")]), b"\x03\x01\x01k\x01v"),
        (Ask::Add(b"k", -2), b"\x04\x01k\x03"),
        (Ask::Append(b"k", b"v"), b"\x05\x01k\x01v"),
        (Ask::CompareSet { key: b"k", expected: Expected::AbsentOr(b"o"), desired: b"v" }, b"\x06\x01k\x02\x01o\x01v"),
        (Ask::Delete(b"k"), b"\x07\x01k"),
        (Ask::Check(&[b"k"]), b"\x08\x01\x01k"),
        (Ask::Wait { keys: &[b"k"], within: None }, b"\x09\x01\x01k\0"),
        (Ask::Count, b"\x0a"),
        (Ask::List { prefix: b"p", after: None, most: 9 }, b"\x0b\x01p\0\x09"),
        (Ask::Push(b"q", b"v"), b"\x0c\x01q\x01v"),
        (Ask::Pop(b"q"), b"\x0d\x01q"),
        (Ask::Take { key: b"q", within: second }, b"\x0e\x01q\x01\x82\x02"),
        (Ask::Len(b"q"), b"\x0f\x01q"),
        (Ask::Watch { key: b"k", since: Some(Revision(3)), within: second }, b"\x10\x01k\x01\x03\x01\x82\x02"),
        (Ask::Gather { key: b"k", until: 3, within: second }, b"\x11\x01k\x06\x01\x82\x02"),
        (
            Ask::Fence { name: b"f", all: &all, who: &who, within: second },
            b"\x12\x01f\x02\0\x02\x07\x07\x01\x07\x07\x01\x82\x02",
        ),
        (Ask::Arrive { name: b"f", all: &who, who: &who }, b"\x13\x01f\x01\x07\x07\x01\x07\x07"),
    ] {
        check(ask, bytes);
    }
}

#[test]
fn asks_are_as_they_were() {
    every_ask(|ask, bytes| {
        assert_eq!(Words::write(ask), bytes, "{ask:?}");
        assert_eq!(Words::parse(bytes).unwrap().ask(), ask);
        assert_eq!(Words::parse(&bytes[..bytes.len() - 1]), Err(Malformed), "{ask:?} is cut");
        let mut more = bytes.to_vec();
        more.push(0);
        assert_eq!(Words::parse(&more), Err(Malformed), "{ask:?} has one byte more");
    });
}

#[test]
fn answers_are_as_they_were() {
    let bytes = |text: &'static [u8]| Bytes::from_static(text);
    let late = Refusal::TimedOut { within: Span::from_nanos(1), missing: Absent::Item("q".into()) };
    for (answer, bytes, reply) in [
        (Answer::Done, &b"\0"[..], Reply::Done),
        (Answer::Missing, b"\x01", Reply::Missing),
        (Answer::Value(None), b"\x02\0", Reply::Value(None)),
        (Answer::Value(Some(bytes(b"v"))), b"\x02\x01\x01v", Reply::Value(Some(b"v"))),
        (Answer::Values(vec![None, Some(bytes(b""))]), b"\x03\x02\0\x01\0", Reply::Values(vec![None, Some(b"")])),
        (Answer::Number(-1), b"\x04\x01", Reply::Number(-1)),
        (Answer::Compared { set: true, now: None }, b"\x05\x01\0", Reply::Compared(true, None)),
        (Answer::Keys(vec![bytes(b"k")]), b"\x06\x01\x01k", Reply::Keys(vec![b"k"])),
        (Answer::Changed { at: Revision(2), value: None }, b"\x07\x02\0", Reply::Changed(2, None)),
        (
            Answer::Refused(late),
            b"\x08\0\x01\x01\x16the queue 'q' is empty\0",
            Reply::Refused(Refused {
                code: Code::TimedOut,
                within: Some(Span::from_nanos(1)),
                text: b"the queue 'q' is empty",
                hint: b"",
            }),
        ),
    ] {
        assert_eq!(write_reply(&answer), bytes, "{answer:?}");
        let mut frames = b"before".to_vec();
        put_reply_frame(&mut frames, 7, &answer);
        assert_eq!(frames, [b"before", &answer_frame(7, bytes)[..]].concat(), "{answer:?}");
        assert_eq!(Reply::parse(bytes), Ok(reply));
        for cut in 0..bytes.len() {
            assert_eq!(Reply::parse(&bytes[..cut]), Err(Malformed), "{answer:?}, cut at {cut}");
        }
        assert_eq!(Reply::parse(&[bytes, &[0]].concat()), Err(Malformed), "{answer:?} with a byte too many");
    }
    // A code of a later version.
    let later = Refused { code: Code::Other, within: None, text: b"", hint: b"" };
    assert_eq!(Reply::parse(b"\x08\x63\0\0\0"), Ok(Reply::Refused(later)));
    let gone = write_reply(&Answer::Refused(Refusal::Gone));
    assert!(matches!(Reply::parse(&gone), Ok(Reply::Refused(Refused { code: Code::Gone, within: None, .. }))));
}

/// Every operation has its number among those that are known, and no other number is one.
#[test]
fn known_request_is_found_by_its_number() {
    every_ask(|_, bytes| assert!(bytes[0] < request::KNOWN));
    let takes_any = |op: &u8| (0..64).any(|len| Words::parse(&[&[*op][..], &vec![0; len]].concat()).is_ok());
    let numbers: Vec<u8> = (0..0x80).filter(takes_any).collect();
    assert_eq!(numbers, (0..request::KNOWN).collect::<Vec<u8>>());
}

/// A list that declares 4,000 million entries reserves nothing for them. A range of ranks does not end before it begins.
#[test]
fn declared_number_of_entries_reserves_nothing() {
    let words: [&[u8]; 4] = [
        b"\x01\xff\xff\xff\xff\x0f",
        b"\x03\xff\xff\xff\xff\x0f\0\0",
        b"\x13\0\xff\xff\xff\xff\x0f",
        b"\x13\0\x01\x02\x01\0",
    ];
    for words in words {
        assert_eq!(Words::parse(words), Err(Malformed), "{words:?}");
    }
    assert_eq!(Reply::parse(b"\x03\xff\xff\xff\xff\x0f\0"), Err(Malformed));
}

#[test]
fn unknown_operation_is_refused_with_its_number() {
    let known = Asked { seq: 3, space: Space::Generation, words: b"\x0a" };
    let frame = known.to_frame();
    assert_eq!(ClientFrame::parse(&frame), Ok(ClientFrame::Ask(known, Words::Count)));
    let operation = b"\x08\x05\0\x2bthis version does not know the operation 20\0";
    let space = b"\x08\x05\0\x26this version does not know the space 2\0";
    let kind = b"\x08\x05\0\x2dthis version does not know messages of kind 5\0";
    for (frame, seq, reply) in [
        (&b"\x0c\0\0\0\x01\x07\0\0\0\0\0\0\0\0\x14x"[..], 7, &operation[..]),
        (b"\x0b\0\0\0\x01\x08\0\0\0\0\0\0\0\x02\x0a", 8, space),
        (b"\x0a\0\0\0\x05\x09\0\0\0\0\0\0\0x", 9, kind),
        (b"\x03\0\0\0\x05ab", 0, kind),
    ] {
        assert_eq!(frame_len(frame), Ok(Some(frame.len())));
        let Ok(ClientFrame::Unknown(unknown)) = ClientFrame::parse(frame) else { panic!("{frame:?}") };
        assert_eq!((unknown.seq, unknown.reply()), (seq, reply.to_vec()), "{frame:?}");
        let answer = answer_frame(seq, reply);
        let Ok(FromAgent::Answer(to, Reply::Refused(refused))) = FromAgent::parse(&answer) else {
            panic!("{answer:?}")
        };
        assert_eq!((to, refused.code), (seq, Code::Unsupported));
    }
    // No kind; no number, no operation; one that is known and cut.
    for frame in [
        &b"\0\0\0\0"[..],
        b"\x08\0\0\0\x01\x07\0\0\0\0\0\0",
        b"\x0a\0\0\0\x01\x07\0\0\0\0\0\0\0\0",
        b"\x0b\0\0\0\x01\x07\0\0\0\0\0\0\0\0\x01",
    ] {
        assert_eq!(ClientFrame::parse(frame), Err(Malformed), "{frame:?}");
    }
}

#[test]
fn frames_are_as_they_were() {
    assert_eq!(&hello(7), b"rlaunch\n\x01\0\0\0\x07\0\0\0");
    assert_eq!(parse_hello(&hello(7)), Ok((1, 7)));
    assert_eq!(parse_hello(b"rlaunch \x01\0\0\0\x07\0\0\0"), Err(Malformed));
    let asked = Asked { seq: 3, space: Space::Generation, words: b"\x0a" };
    let frame = asked.to_frame();
    assert_eq!(frame, b"\x0b\0\0\0\x01\x03\0\0\0\0\0\0\0\x01\x0a");
    assert_eq!((frame_len(&frame), Asked::parse(&frame)), (Ok(Some(frame.len())), Ok(asked)));
    let frame = answer_frame(3, b"\0");
    assert_eq!(frame, b"\x0a\0\0\0\x01\x03\0\0\0\0\0\0\0\0");
    assert_eq!(
        (frame_len(&frame), FromAgent::parse(&frame)),
        (Ok(Some(frame.len())), Ok(FromAgent::Answer(3, Reply::Done)))
    );
    let frame = bye_frame("no");
    assert_eq!((frame_len(&frame), FromAgent::parse(&frame)), (Ok(Some(frame.len())), Ok(FromAgent::Bye(b"no"))));
    assert_eq!(frame_len(b"\0\0\x10\0"), Err(Malformed), "1 MiB is too long");
    assert_eq!(frame_len(b"\0\0\x0f"), Ok(None));
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes: Vec<u8>) {
        if let Ok(words) = Words::parse(&bytes) {
            let again = Words::write(words.ask());
            prop_assert_eq!(Words::parse(&again), Ok(words.clone()));
        }
        let _whatever = (Reply::parse(&bytes), Asked::parse(&bytes), FromAgent::parse(&bytes), ClientFrame::parse(&bytes), frame_len(&bytes));
    }
}
