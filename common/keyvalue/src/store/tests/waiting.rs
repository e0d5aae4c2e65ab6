//! Requests that wait: who is woken, by what, and when.

use super::*;

const SECOND: Span = Span::from_secs(1);

#[test]
fn a_wait_ends_when_each_key_has_existed() {
    let mut desk = Desk::new();
    desk.answer(Ask::Set(b"a", b""));
    let one = desk.ask(1, Ask::Wait { keys: &[b"a", b"b", b"c"], within: None });
    let other = desk.ask(2, Ask::Wait { keys: &[b"b"], within: None });
    assert_eq!(desk.answers(), []);
    desk.ask(9, Ask::Set(b"b", b""));
    desk.ask(9, Ask::Delete(b"b"));
    let woken = desk.answers();
    assert_eq!(woken.first(), Some(&(other, Answer::Done)));
    assert!(woken.iter().all(|(ticket, _)| *ticket != one));
    desk.ask(9, Ask::Push(b"c", b"x"));
    assert_eq!(desk.answers().first(), Some(&(one, Answer::Done)), "a queue exists too");
    let at_once = desk.ask(1, Ask::Wait { keys: &[b"a"], within: None });
    assert_eq!(desk.answers(), [(at_once, Answer::Done)]);
}

#[test]
fn a_comparison_that_sets_nothing_wakes_nobody() {
    let mut desk = Desk::new();
    let wait = desk.ask(1, Ask::Wait { keys: &[b"k"], within: None });
    desk.ask(2, Ask::CompareSet { key: b"k", expected: Expected::Value(b"x"), desired: b"y" });
    assert!(desk.answers().iter().all(|(ticket, _)| *ticket != wait));
    desk.ask(2, Ask::CompareSet { key: b"k", expected: Expected::Absent, desired: b"y" });
    assert!(desk.answers().contains(&(wait, Answer::Done)));
}

#[test]
fn every_wait_can_end_in_time_and_says_for_what_it_waited() {
    let mut desk = Desk::new();
    let within = Some(SECOND);
    let (all, who) = (ranks(&[0, 1, 2, 3, 7]), ranks(&[1]));
    let keys: &[&[u8]] = &[b"a", b"b", b"c", b"d", b"e", b"f"];
    desk.ask(1, Ask::Wait { keys, within });
    desk.ask(2, Ask::Take { key: b"q", within });
    desk.ask(3, Ask::Watch { key: b"w", since: Some(Revision::default()), within });
    desk.ask(4, Ask::Gather { key: b"n", until: 3, within });
    desk.ask(5, Ask::Fence { name: b"f", all: &all, who: &who, within });
    desk.ask(6, Ask::Wait { keys: &[b"z"], within: None });
    assert_eq!(desk.answers(), []);
    assert_eq!(desk.space.poll_timeout(), Some(desk.now + SECOND));
    desk.later(Span::from_millis(999));
    assert_eq!(desk.answers(), []);
    desk.later(Span::from_millis(1));
    let said: Vec<String> = desk.answers().iter().map(|(_, answer)| refusal(answer)).collect();
    assert_eq!(
        said,
        [
            "after 1.0s: nobody has set 'a', 'b', 'c', 'd' and 2 more",
            "after 1.0s: the queue 'q' is empty",
            "after 1.0s: 'w' has not changed",
            "after 1.0s: the count at 'n' has not come to 3",
            "after 1.0s: ranks 0,2-3,7 have not arrived at the fence 'f'",
        ]
    );
    assert_eq!(desk.space.poll_timeout(), None, "who waits for ever has no deadline");
}

#[test]
fn a_watch_misses_no_change() {
    let mut desk = Desk::new();
    let never = Revision::default();
    let watch = desk.ask(1, Ask::Watch { key: b"k", since: Some(never), within: None });
    desk.ask(2, Ask::Set(b"other", b"x"));
    assert!(desk.answers().iter().all(|(ticket, _)| *ticket != watch));
    desk.ask(2, Ask::Set(b"k", b"1"));
    let changed = |answers: Vec<(Ticket, Answer)>, of: Ticket| {
        let (_, answer) = answers.into_iter().find(|(ticket, _)| *ticket == of)?;
        let Answer::Changed { at, value } = answer else { panic!("{answer:?}") };
        Some((at, value.map(|value| value.to_vec())))
    };
    let (at, now) = changed(desk.answers(), watch).expect("it has changed");
    assert_eq!(now, Some(b"1".to_vec()));
    // Deleted and set again without a watch in between, to the same value.
    desk.answer(Ask::Delete(b"k"));
    desk.answer(Ask::Set(b"k", b"1"));
    let again = desk.ask(1, Ask::Watch { key: b"k", since: Some(at), within: None });
    let (later, _) = changed(desk.answers(), again).expect("it is not the one that was seen");
    assert!(later > at);
    let gone = desk.ask(1, Ask::Watch { key: b"k", since: Some(later), within: None });
    assert_eq!(desk.answers(), []);
    desk.ask(2, Ask::Delete(b"k"));
    assert_eq!(changed(desk.answers(), gone), Some((never, None)));
    let absent = desk.ask(1, Ask::Watch { key: b"k", since: Some(later), within: None });
    assert_eq!(changed(desk.answers(), absent), Some((never, None)), "deleted before the watch");
}

#[test]
fn item_goes_to_first_waiter() {
    let mut desk = Desk::new();
    let late = desk.ask(1, Ask::Take { key: b"q", within: Some(SECOND) });
    let [first, second] = [7, 3].map(|client| desk.ask(client, Ask::Take { key: b"q", within: None }));
    desk.later(SECOND);
    assert_eq!(desk.answers().len(), 1);
    let [a, b] = [b"x", b"y"].map(|item| desk.ask(9, Ask::Push(b"q", item)));
    assert_eq!(desk.answers(), [(first, value("x")), (a, Answer::Done), (second, value("y")), (b, Answer::Done)]);
    assert_eq!(desk.answer(Ask::Len(b"q")), Answer::Number(0));
    assert!(!desk.space.cancel(late));
}

#[test]
fn queue_notifies_one_client_and_another_if_it_goes() {
    let mut desk = Desk::new();
    let [first, second, third] = [1, 2, 3].map(|client| desk.ask(client, Ask::Wait { keys: &[b"q"], within: None }));
    desk.ask(9, Ask::Push(b"q", b"x"));
    let notified: Vec<Ticket> = desk.answers().into_iter().map(|(ticket, _)| ticket).collect();
    assert!(notified.contains(&first) && !notified.contains(&second) && !notified.contains(&third));
    desk.space.gone(first.client);
    assert_eq!(desk.answers(), [(second, Answer::Done)]);
    assert_eq!(desk.ask(2, Ask::Pop(b"q")).client, second.client);
    desk.space.gone(second.client);
    assert_eq!(desk.answers().len(), 1, "it had taken it: there is nothing for the third");
}

#[test]
fn a_count_wakes_those_for_whom_it_is_enough() {
    let mut desk = Desk::new();
    let three = desk.ask(1, Ask::Gather { key: b"n", until: 3, within: Some(SECOND) });
    desk.later(SECOND);
    assert_eq!(desk.answers().len(), 1);
    assert_eq!(desk.answer(Ask::Get(b"n")), value("1"), "a time-out takes nothing back");
    let four = desk.ask(2, Ask::Gather { key: b"n", until: 4, within: None });
    let again = desk.ask(1, Ask::Gather { key: b"n", until: 3, within: None });
    assert_eq!(desk.answers(), [(again, Answer::Done)]);
    assert_ne!(again, three);
    let at_once = desk.ask(3, Ask::Gather { key: b"n", until: 1, within: None });
    assert_eq!(desk.answers(), [(four, Answer::Done), (at_once, Answer::Done)]);
}

#[test]
fn a_fence_lets_all_through_when_the_last_has_come() {
    let mut desk = Desk::new();
    let all = RankSet::world(4);
    for turn in 0..3 {
        let mut came = Vec::new();
        for client in 0..4 {
            came.push(desk.ask(client, Ask::Fence { name: b"f", all: &all, who: &ranks(&[client]), within: None }));
            if client < 3 {
                assert_eq!(desk.answers(), [], "turn {turn}: not before the last");
            }
        }
        assert_eq!(desk.answers(), came.into_iter().map(|ticket| (ticket, Answer::Done)).collect::<Vec<_>>());
    }
}

#[test]
fn to_arrive_twice_counts_once_and_others_may_arrive_for_the_dead() {
    let mut desk = Desk::new();
    let all = RankSet::world(3);
    let fence = |who: &RankSet, desk: &mut Desk, client| {
        desk.ask(client, Ask::Fence { name: b"f", all: &all, who, within: Some(SECOND) })
    };
    fence(&ranks(&[0]), &mut desk, 0);
    desk.later(SECOND);
    assert_eq!(refusal(&desk.answers()[0].1), "after 1.0s: ranks 1-2 have not arrived at the fence 'f'");
    let waits =
        [fence(&ranks(&[0]), &mut desk, 0), fence(&ranks(&[0]), &mut desk, 5), fence(&ranks(&[1]), &mut desk, 1)];
    assert_eq!(desk.answers(), []);
    let dead = desk.ask(9, Ask::Arrive { name: b"f", all: &all, who: &ranks(&[1, 2]) });
    let mut expected: Vec<_> = waits.into_iter().map(|ticket| (ticket, Answer::Done)).collect();
    expected.push((dead, Answer::Done));
    assert_eq!(desk.answers(), expected);
}

#[test]
fn stranger_at_a_fence_is_refused() {
    let mut desk = Desk::new();
    let (three, four) = (RankSet::world(3), RankSet::world(4));
    let stranger = desk.answer(Ask::Arrive { name: b"f", all: &three, who: &ranks(&[1, 3]) });
    assert_eq!(refusal(&stranger), "ranks 3 do not take part in the fence 'f'");
    desk.answer(Ask::Arrive { name: b"f", all: &three, who: &ranks(&[1]) });
    let other = desk.answer(Ask::Arrive { name: b"f", all: &four, who: &ranks(&[2]) });
    assert_eq!(refusal(&other), "the fence 'f' is open for ranks 0-2, not for 0-3");
    let own = desk.answer(Ask::Fence { name: b"f", all: &ranks(&[2]), who: &ranks(&[2]), within: None });
    assert_eq!(refusal(&own), "the fence 'f' is open for ranks 0-2, not for 2");
    assert_eq!(
        desk.answer(Ask::Fence { name: b"g", all: &ranks(&[2]), who: &ranks(&[2]), within: None }),
        Answer::Done
    );
}

#[test]
fn cancelled_or_gone_client_is_not_answered() {
    let mut desk = Desk::new();
    let wait = desk.ask(1, Ask::Wait { keys: &[b"k"], within: Some(SECOND) });
    let stays = desk.ask(2, Ask::Wait { keys: &[b"k"], within: None });
    let goes = desk.ask(3, Ask::Watch { key: b"k", since: Some(Revision::default()), within: Some(SECOND) });
    assert!(desk.space.cancel(wait) && !desk.space.cancel(wait));
    desk.space.gone(goes.client);
    assert_eq!(desk.space.poll_timeout(), None, "nor is there anything left to do for it");
    let set = desk.ask(9, Ask::Set(b"k", b""));
    assert_eq!(desk.answers(), [(stays, Answer::Done), (set, Answer::Done)]);
}

#[test]
fn an_item_wakes_one_who_waits_for_nothing_else() {
    let mut desk = Desk::new();
    let both = desk.ask(1, Ask::Wait { keys: &[b"q", b"x"], within: None });
    let [second, third] = [2, 3].map(|client| desk.ask(client, Ask::Wait { keys: &[b"q"], within: None }));
    let push = desk.ask(9, Ask::Push(b"q", b"i"));
    assert_eq!(desk.answers(), [(second, Answer::Done), (push, Answer::Done)]);
    let set = desk.ask(9, Ask::Set(b"x", b""));
    assert_eq!(desk.answers(), [(both, Answer::Done), (set, Answer::Done)], "the queue had existed for it");
    assert!(desk.space.cancel(third));
}

#[test]
fn item_goes_to_another_if_notified_client_does_not_fetch() {
    for how in 0..3 {
        let mut desk = Desk::new();
        let [first, second] = [1, 2].map(|client| desk.ask(client, Ask::Wait { keys: &[b"q"], within: None }));
        desk.ask(9, Ask::Push(b"q", b"i"));
        assert!(desk.answers().contains(&(first, Answer::Done)));
        match how {
            0 => desk.space.pass_on(first.client),
            1 => drop(desk.ask(1, Ask::Get(b"other"))),
            _ => {
                desk.ask(1, Ask::Len(b"q"));
                desk.ask(1, Ask::Pop(b"q"));
            }
        }
        let is_notified = desk.answers().contains(&(second, Answer::Done));
        assert_eq!(is_notified, how < 2, "{how}: to ask how long the queue is is to come for it");
    }
}
