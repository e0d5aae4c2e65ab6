//! Waits and arrivals at fences are charged like everything else, and given back.

use super::*;
use alloc::format;

fn roomy(bytes: usize) -> Desk {
    Desk::with(Limits { bytes, ..Limits::default() })
}

fn held(desk: &Desk) -> usize {
    desk.space.account.held().1
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
fn change_that_needs_no_more_room_is_done_above_the_limit() {
    let long = alloc::vec![b'q'; 500];
    let waits = 2 * (Limits::PER_REQUEST + Limits::PER_MISSING) + Limits::PER_REQUEST + long.len();
    let bytes = waits + 2 * Limits::PER_ITEM + long.len() + 11;
    let mut desk = roomy(bytes);
    desk.answer(Ask::Set(b"k", &[0; 10]));
    for client in [1, 2] {
        desk.ask(client, Ask::Wait { keys: &[&long], within: None });
    }
    assert_eq!(desk.answer(Ask::Push(&long, b"")), Answer::Done);
    assert!(held(&desk) > bytes, "the first client was notified, and the second one waits still");
    let more = desk.answer(Ask::Set(b"k", &[1; 11]));
    assert_eq!(refusal(&more), format!("'k' does not fit: {} of {bytes} bytes are in use", held(&desk)));
    assert_eq!(desk.answer(Ask::Set(b"k", &[1; 10])), Answer::Done);
    assert_eq!(desk.answer(Ask::Delete(b"k")), Answer::Number(1));
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
