//! Waits, kept answers and arrivals at fences are charged like everything else, and given back.

use super::*;
use alloc::format;

fn roomy(bytes: usize) -> Desk {
    Desk::with(Limits { bytes, ..Limits::default() })
}

fn held(desk: &Desk) -> usize {
    desk.space.account.held().1
}

/// A request that may come again.
fn again(desk: &mut Desk, client: u32, seq: u64, has: u64, ask: Ask<'_>) -> Option<Answer> {
    let ticket = Ticket { client: ClientId::new(client), seq: Seq(seq) };
    desk.space.ask(desk.now, ticket, Retry::Behind(Seq(has)), ask);
    desk.answers().into_iter().find(|(of, _)| *of == ticket).map(|(_, answer)| answer)
}

#[test]
fn many_who_wait_for_the_same_keys_share_them() {
    let names: Vec<String> = (0..1024).map(|key| format!("default_pg/0//cuda//{key:060}")).collect();
    let keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let (waiters, mut charged) = (256u64, 0);
    let used = allocation_counter::measure(|| {
        let mut desk = Desk::new();
        for client in 0..256 {
            desk.ask(client, Ask::Wait { keys: &keys, within: Some(Span::from_secs(60)) });
        }
        charged = held(&desk) as u64;
        for key in &keys {
            desk.answer(Ask::Set(key, b""));
        }
        assert_eq!(held(&desk), names.iter().map(|name| name.len() + Limits::PER_ITEM).sum::<usize>());
    });
    let most = waiters * 1024 * 36 + 1024 * 1024;
    assert!(used.bytes_max <= most, "{} bytes for {waiters} x 1024 keys; {most} would do", used.bytes_max);
    assert!(used.bytes_max <= charged + charged / 8, "{} bytes in use, {charged} charged", used.bytes_max);
}

#[test]
fn wait_beyond_quota_is_refused() {
    let mut desk = roomy(4 * Limits::PER_REQUEST + 3 * Limits::PER_MISSING + 1);
    let one = desk.ask(1, Ask::Wait { keys: &[b"a", b"", b"a"], within: None });
    assert_eq!(held(&desk), 3 * Limits::PER_REQUEST + 2 * Limits::PER_MISSING + 1);
    let said = desk.answer(Ask::Wait { keys: &[b"b", b"c", b"d", b"e"], within: None });
    assert_eq!(refusal(&said), "there is no room to wait for 'b' and 3 more: 833 of 1121 bytes are in use");
    for said in [
        desk.answer(Ask::Take { key: b"q", within: None }),
        desk.answer(Ask::Watch { key: b"q", since: None, within: None }),
        desk.answer(Ask::Gather { key: b"q", until: 2, within: None }),
        desk.answer(Ask::Fence { name: b"q", all: &RankSet::world(2), who: &RankSet::world(1), within: None }),
    ] {
        assert_eq!(refusal(&said), "there is no room to wait for 'q': 833 of 1121 bytes are in use");
    }
    assert_eq!(desk.answer(Ask::Count), Answer::Number(0), "what is refused has not counted");
    let other = desk.ask(2, Ask::Wait { keys: &[b""], within: None });
    assert_eq!((desk.answers(), held(&desk)), (Vec::new(), 1121), "a key that is waited for already is charged once");
    desk.space.cancel(one);
    assert_eq!(held(&desk), 2 * Limits::PER_REQUEST + Limits::PER_MISSING);
    desk.space.gone(other.client);
    assert_eq!(held(&desk), 0);
}

#[test]
fn whatever_ends_a_wait_gives_its_room_back() {
    let mut desk = Desk::new();
    let within = Some(Span::from_secs(1));
    let all = RankSet::world(2);
    for turn in 0..2 {
        desk.ask(1, Ask::Wait { keys: &[b"a", b"b"], within });
        desk.ask(2, Ask::Take { key: b"q", within });
        desk.ask(3, Ask::Watch { key: b"a", since: None, within });
        desk.ask(4, Ask::Gather { key: b"n", until: 2, within });
        desk.ask(5, Ask::Fence { name: b"f", all: &all, who: &ranks(&[0]), within });
        assert_eq!(desk.answers(), []);
        if turn == 0 {
            desk.later(Span::from_secs(1));
        } else {
            desk.ask(9, Ask::SetAll(&[(b"a", b""), (b"b", b"")]));
            desk.ask(9, Ask::Push(b"q", b""));
            desk.ask(9, Ask::Add(b"n", 1));
            desk.ask(9, Ask::Gather { key: b"n", until: 3, within });
            desk.ask(9, Ask::Arrive { name: b"f", all: &all, who: &ranks(&[1]) });
        }
        assert!(desk.answers().len() >= 5);
        desk.answer(Ask::Arrive { name: b"f", all: &all, who: &all });
        for key in [b"a", b"b", b"n"] {
            desk.answer(Ask::Delete(key));
        }
        assert_eq!(desk.space.account.held(), (0, 0), "turn {turn}");
    }
}

#[test]
fn answers_that_are_kept_are_charged_with_what_they_say() {
    let mut desk = Desk::new();
    desk.answer(Ask::Push(b"q", &[7; 1000]));
    assert_eq!(again(&mut desk, 1, 1, 0, Ask::Pop(b"q")), Some(Answer::Value(Some(Bytes::from(alloc::vec![7; 1000])))));
    assert_eq!(held(&desk), Limits::PER_REQUEST + 1000);
    assert!(again(&mut desk, 1, 1, 0, Ask::Pop(b"q")).is_some());
    assert_eq!(held(&desk), Limits::PER_REQUEST + 1000, "to ask again costs nothing");
    again(&mut desk, 1, 2, 1, Ask::Arrive { name: b"fence", all: &RankSet::world(2), who: &ranks(&[1, 3, 5]) });
    assert_eq!(held(&desk), Limits::PER_REQUEST + 5 + 2 * Limits::PER_RANGE, "the first was had; this names ranks");
    again(&mut desk, 1, 3, 2, Ask::Take { key: b"r", within: None });
    let waits = 2 * Limits::PER_REQUEST + 1 + Limits::PER_MISSING;
    assert_eq!(held(&desk), Limits::PER_REQUEST + waits, "one that waits has its place already");
    desk.answer(Ask::Push(b"r", b"1234"));
    assert_eq!(held(&desk), Limits::PER_REQUEST + 4);
    desk.space.gone(ClientId::new(1));
    assert_eq!(held(&desk), 0);
}

#[test]
fn value_sent_to_many_clients_is_charged_once() {
    let mut desk = Desk::new();
    for client in 1..=100 {
        again(&mut desk, client, 1, 0, Ask::Watch { key: b"k", since: None, within: None });
    }
    desk.answer(Ask::Set(b"k", &[7; 1000]));
    desk.answer(Ask::Delete(b"k"));
    assert_eq!(held(&desk), 100 * Limits::PER_REQUEST + 1000);
    for client in 1..100 {
        desk.space.gone(ClientId::new(client));
    }
    assert_eq!(held(&desk), Limits::PER_REQUEST + 1000, "the last one has it still");
    desk.space.gone(ClientId::new(100));
    assert_eq!(held(&desk), 0);
}

#[test]
fn kept_answers_have_a_limit_and_delete_always_works() {
    let mut desk = roomy(Limits::PER_ITEM + Limits::PER_REQUEST + 50);
    desk.answer(Ask::Set(b"k", &[0; 39]));
    let expected = Expected::Value(b"x");
    let compare = Ask::CompareSet { key: b"k", expected, desired: b"y" };
    let kept = again(&mut desk, 1, 1, 0, compare);
    let full = again(&mut desk, 1, 2, 0, Ask::Add(b"n", 1)).unwrap();
    let said = "no room to keep an answer that a client may ask for again: 463 of 434 bytes are in use";
    assert_eq!(refusal(&full), said);
    assert_eq!(again(&mut desk, 1, 1, 0, compare), kept, "what was done is answered nevertheless");
    assert_eq!(desk.answer(Ask::Set(b"k", &[1; 39])), Answer::Done, "what takes no more room is done");
    assert_eq!(again(&mut desk, 1, 2, 0, Ask::Delete(b"k")), Some(Answer::Number(1)));
    again(&mut desk, 1, 3, 2, Ask::Delete(b"k"));
    assert_eq!(again(&mut desk, 1, 4, 3, Ask::Set(b"n", b"1")), Some(Answer::Done), "and then there is room again");
}

#[test]
fn a_fence_is_charged_for_the_ranks_that_it_names() {
    let all = RankSet::world(100);
    let bytes = Limits::PER_ITEM + 1 + 4 * Limits::PER_RANGE;
    let mut desk = roomy(bytes);
    let arrive = |desk: &mut Desk, who: &[u32]| desk.answer(Ask::Arrive { name: b"f", all: &all, who: &ranks(who) });
    assert_eq!(arrive(&mut desk, &[0]), Answer::Done);
    assert_eq!(held(&desk), bytes - 2 * Limits::PER_RANGE);
    assert_eq!(arrive(&mut desk, &[2, 4]), Answer::Done);
    assert_eq!(held(&desk), bytes);
    assert_eq!(refusal(&arrive(&mut desk, &[6])), format!("'f' does not fit: {bytes} of {bytes} bytes are in use"));
    assert_eq!(arrive(&mut desk, &[1, 3]), Answer::Done, "they close gaps");
    assert_eq!(held(&desk), bytes - 2 * Limits::PER_RANGE);
    assert_eq!(arrive(&mut desk, &[6, 8]), Answer::Done);
    let rest: Vec<u32> = (0..100).filter(|rank| ![6, 8].contains(rank)).collect();
    assert_eq!(arrive(&mut desk, &rest), Answer::Done, "the last may always come");
    assert_eq!(held(&desk), 0);
}
