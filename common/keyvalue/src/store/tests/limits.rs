//! Nothing is held beyond the limits, and what is refused changes nothing.

use super::*;

fn small() -> Limits {
    Limits { key: 8, value: 16, keys: 4, bytes: 4 * Limits::PER_ITEM + 52, waiting: 2 }
}

#[test]
fn each_limit_is_reported_with_its_figures() {
    let mut desk = Desk::with(small());
    let mut said = |ask| refusal(&desk.answer(ask));
    assert_eq!(said(Ask::Set(b"123456789", b"")), "a key of 9 bytes is longer than 8");
    assert_eq!(said(Ask::Set(b"k", &[0; 17])), "the value of 'k' would have 17 bytes; the longest may have 16");
    assert_eq!(said(Ask::Push(b"k", &[0; 17])), "the value of 'k' would have 17 bytes; the longest may have 16");
    let keys: &[&[u8]] = &[b"123456789"];
    assert_eq!(said(Ask::Wait { keys, within: None }), "a key of 9 bytes is longer than 8");
    desk.answer(Ask::Set(b"a", &[0; 16]));
    desk.answer(Ask::Set(b"b", &[0; 16]));
    desk.answer(Ask::Push(b"q", &[0; 16]));
    let mut said = |ask| refusal(&desk.answer(ask));
    assert_eq!(said(Ask::Set(b"d", &[0; 16])), "'d' does not fit: 435 of 564 bytes are in use");
    assert_eq!(said(Ask::Append(b"a", &[0; 1])), "the value of 'a' would have 17 bytes; the longest may have 16");
    desk.answer(Ask::Set(b"d", b""));
    let mut said = |ask| refusal(&desk.answer(ask));
    assert_eq!(said(Ask::Push(b"q", b"")), "there is no room for 'q': 4 keys and items of queues are here");
    assert_eq!(said(Ask::Add(b"n", 1)), "there is no room for 'n': 4 keys and items of queues are here");
    assert_eq!(desk.answer(Ask::Set(b"a", b"")), Answer::Done, "what is there may be set");
    assert_eq!(desk.answer(Ask::Pop(b"q")), Answer::Value(Some(Bytes::from_static(&[0; 16]))));
    assert_eq!(desk.answer(Ask::Add(b"n", 1)), Answer::Number(1), "and room that was given back is room again");
}

#[test]
fn several_keys_are_set_or_none() {
    let mut desk = Desk::with(small());
    desk.answer(Ask::Set(b"a", b"old"));
    let refused = desk.answer(Ask::SetAll(&[(b"a", b"new"), (b"b", b""), (b"c", b""), (b"d", b""), (b"e", b"")]));
    assert_eq!(refusal(&refused), "there is no room for 'e': 4 keys and items of queues are here");
    assert_eq!((desk.answer(Ask::Get(b"a")), desk.answer(Ask::Count)), (value("old"), Answer::Number(1)));
}

#[test]
fn no_more_wait_than_may() {
    let mut desk = Desk::with(Limits { bytes: 1 << 20, ..small() });
    let waits = [1, 2].map(|client| desk.ask(client, Ask::Wait { keys: &[b"k"], within: None }));
    let refused = desk.answer(Ask::Wait { keys: &[b"k"], within: None });
    assert_eq!(refusal(&refused), "2 requests wait already");
    desk.space.gone(waits[0].client);
    desk.ask(3, Ask::Wait { keys: &[b"k"], within: None });
    assert_eq!(desk.answers(), []);
}

#[test]
fn refused_wait_neither_counts_nor_arrives() {
    let mut desk = Desk::with(Limits { bytes: 1 << 20, ..small() });
    let all = RankSet::world(3);
    desk.answer(Ask::Arrive { name: b"f", all: &all, who: &ranks(&[0]) });
    for client in [1, 2] {
        desk.ask(client, Ask::Wait { keys: &[b"k"], within: None });
    }
    for _ in 0..2 {
        let gather = desk.answer(Ask::Gather { key: b"n", until: 3, within: None });
        assert_eq!(refusal(&gather), "2 requests wait already");
        let fence = desk.answer(Ask::Fence { name: b"f", all: &all, who: &ranks(&[1]), within: None });
        assert_eq!(refusal(&fence), "2 requests wait already");
    }
    assert_eq!(desk.answer(Ask::Get(b"n")), Answer::Value(None));
    assert_eq!(desk.answer(Ask::Gather { key: b"n", until: 1, within: None }), Answer::Done, "who need not wait may");
    let last = desk.answer(Ask::Fence { name: b"f", all: &all, who: &ranks(&[1, 2]), within: None });
    assert_eq!(last, Answer::Done);
}
