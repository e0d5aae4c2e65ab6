//! A request that comes again is done once.

use super::*;

fn again(desk: &mut Desk, seq: u64, has: u64, ask: Ask<'_>) -> Vec<Answer> {
    let ticket = Ticket { client: ClientId::new(7), seq: Seq(seq) };
    desk.space.ask(desk.now, ticket, Retry::Behind(Seq(has)), ask);
    desk.answers().into_iter().filter(|(of, _)| of.client == ticket.client).map(|(_, answer)| answer).collect()
}

#[test]
fn an_addition_that_comes_again_counts_once() {
    let mut desk = Desk::new();
    for _ in 0..3 {
        assert_eq!(again(&mut desk, 1, 0, Ask::Add(b"n", 5)), [Answer::Number(5)]);
    }
    assert_eq!(again(&mut desk, 2, 1, Ask::Add(b"n", 5)), [Answer::Number(10)], "the next one is another");
    let stale = again(&mut desk, 1, 1, Ask::Add(b"n", 5));
    assert_eq!(stale, [Answer::Refused(Refusal::Stale)], "of one that it has the answer of nothing is kept");
    assert_eq!(desk.answer(Ask::Get(b"n")), value("10"));
}

#[test]
fn a_refusal_that_comes_again_is_the_same() {
    let mut desk = Desk::new();
    desk.answer(Ask::Set(b"n", b"x"));
    let refused = again(&mut desk, 1, 0, Ask::Add(b"n", 1));
    desk.answer(Ask::Set(b"n", b"1"));
    assert_eq!(again(&mut desk, 1, 0, Ask::Add(b"n", 1)), refused);
    assert_eq!(desk.answer(Ask::Get(b"n")), value("1"));
}

#[test]
fn a_wait_that_comes_again_goes_on() {
    let mut desk = Desk::new();
    let wait = Ask::Wait { keys: &[b"k"], within: Some(Span::from_secs(1)) };
    assert_eq!(again(&mut desk, 1, 0, wait), []);
    desk.later(Span::from_millis(600));
    assert_eq!(again(&mut desk, 1, 0, wait), [], "its time is not begun anew");
    desk.later(Span::from_millis(400));
    assert_eq!(desk.answers().len(), 1);
    assert_eq!(again(&mut desk, 1, 0, wait).len(), 1);
    let mut take = |seq, has| again(&mut desk, seq, has, Ask::Take { key: b"q", within: None });
    assert_eq!(take(2, 1), []);
    assert_eq!(take(2, 1), []);
    assert_eq!(again(&mut desk, 3, 1, Ask::Push(b"q", b"x")), [value("x"), Answer::Done]);
    assert_eq!(
        again(&mut desk, 2, 1, Ask::Take { key: b"q", within: None }),
        [value("x")],
        "what was taken is not lost"
    );
}

#[test]
fn a_fence_that_was_passed_is_not_entered_anew_by_one_that_asks_again() {
    let mut desk = Desk::new();
    let (all, own, others) = (RankSet::world(3), ranks(&[0]), ranks(&[1, 2]));
    let fence = Ask::Fence { name: b"f", all: &all, who: &own, within: None };
    assert_eq!(again(&mut desk, 1, 0, fence), []);
    desk.answer(Ask::Arrive { name: b"f", all: &all, who: &others });
    assert_eq!(again(&mut desk, 1, 0, fence), [Answer::Done]);
    let next = desk.answer(Ask::Fence { name: b"f", all: &all, who: &all, within: None });
    assert_eq!(next, Answer::Done, "nobody is there before the others come again");
}

#[test]
fn kept_answers_of_a_client_have_a_limit() {
    let mut desk = Desk::new();
    for seq in 1..=1024 {
        assert_eq!(again(&mut desk, seq, 0, Ask::Add(b"n", 1)).len(), 1);
    }
    let full = "1024 answers are kept for a client that does not say that it has them";
    for seq in 1025..1030 {
        assert_eq!(refusal(&again(&mut desk, seq, 0, Ask::Add(b"n", 1))[0]), full);
    }
    assert_eq!(again(&mut desk, 2000, 0, Ask::Get(b"n")), [value("1024")], "nothing is kept of what changes nothing");
    assert_eq!(desk.answer(Ask::Get(b"n")), value("1024"));
    assert_eq!(
        again(&mut desk, 1026, 1024, Ask::Add(b"n", 1)),
        [Answer::Number(1025)],
        "once it has them it may go on"
    );
    desk.space.gone(ClientId::new(7));
    assert_eq!(again(&mut desk, 1, 0, Ask::Add(b"n", 1)), [Answer::Number(1026)], "one that is gone is forgotten");
}
