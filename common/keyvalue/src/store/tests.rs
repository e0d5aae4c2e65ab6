//! The guarantees of the store, one test each; and a model beside it for all requests in any order.

use super::*;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use rlaunch_base::id::Rank;
use rlaunch_base::rank_set::RankSet;

mod caches;
mod histories;
mod limits;
mod model;
mod room;
mod waiting;

/// A namespace, and clients whose requests are numbered for them.
pub(super) struct Desk {
    pub space: Namespace,
    pub now: Mono,
    next: u64,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(super) fn with(limits: Limits) -> Self {
        Self { space: Namespace::new(limits), now: Mono::from_nanos(1), next: 0 }
    }

    /// A request under the next number.
    pub(super) fn ask(&mut self, client: u32, ask: Ask<'_>) -> Ticket {
        self.next += 1;
        let ticket = Ticket { client: ClientId::new(client), seq: Seq(self.next) };
        self.space.ask(self.now, ticket, ask);
        ticket
    }

    /// All answers that have come by now.
    pub(super) fn answers(&mut self) -> Vec<(Ticket, Answer)> {
        core::iter::from_fn(|| self.space.poll_action())
            .map(|Action::Answer { ticket, answer }| (ticket, answer))
            .collect()
    }

    /// The answer to a request that does not wait.
    pub(super) fn answer(&mut self, ask: Ask<'_>) -> Answer {
        let ticket = self.ask(0, ask);
        let mut answers = self.answers();
        let own = answers.iter().position(|(of, _)| *of == ticket).expect("it does not wait");
        answers.swap_remove(own).1
    }

    pub(super) fn later(&mut self, span: Span) {
        self.now = self.now + span;
        self.space.handle_timeout(self.now);
    }
}

pub(super) fn value(text: &str) -> Answer {
    Answer::Value(Some(Bytes::copy_from_slice(text.as_bytes())))
}

fn refusal(answer: &Answer) -> String {
    let Answer::Refused(refusal) = answer else { panic!("{answer:?} is no refusal") };
    refusal.to_string()
}

pub(super) fn ranks(all: &[u32]) -> RankSet {
    all.iter().copied().map(Rank::new).collect()
}

#[test]
fn a_value_is_what_was_last_set() {
    let mut desk = Desk::new();
    assert_eq!(desk.answer(Ask::Get(b"k")), Answer::Value(None));
    desk.answer(Ask::Set(b"k", b"one"));
    assert_eq!(desk.answer(Ask::Append(b"k", b"+two")), Answer::Number(7));
    assert_eq!(desk.answer(Ask::Append(b"new", b"x")), Answer::Number(1));
    assert_eq!(desk.answer(Ask::Get(b"k")), value("one+two"));
    assert_eq!(desk.answer(Ask::Count), Answer::Number(2));
    assert_eq!(desk.answer(Ask::Delete(b"k")), Answer::Number(1));
    assert_eq!(desk.answer(Ask::Delete(b"k")), Answer::Number(0));
    desk.answer(Ask::SetAll(&[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]));
    let all = desk.answer(Ask::GetAll(&[b"a", b"k", b"b"]));
    assert_eq!(all, Answer::Values([Some("3"), None, Some("2")].map(|v| v.map(Bytes::from)).into()));
    assert_eq!(desk.answer(Ask::Check(&[b"a", b"b"])), Answer::Done);
    assert_eq!(desk.answer(Ask::Check(&[b"a", b"k"])), Answer::Missing);
}

#[test]
fn kept_values_stay_unchanged() {
    let mut desk = Desk::new();
    desk.answer(Ask::Set(b"k", b"one"));
    let read = desk.answer(Ask::Get(b"k"));
    desk.answer(Ask::Append(b"k", b"+two"));
    assert_eq!(read, value("one"));
    assert_eq!(desk.answer(Ask::Get(b"k")), value("one+two"));
}

#[test]
fn numbers_are_written_in_decimal() {
    let mut desk = Desk::new();
    assert_eq!(desk.answer(Ask::Add(b"n", 40)), Answer::Number(40));
    assert_eq!(desk.answer(Ask::Add(b"n", -42)), Answer::Number(-2));
    assert_eq!(desk.answer(Ask::Get(b"n")), value("-2"));
    for edge in [i64::MIN, i64::MAX, 0, 7] {
        desk.answer(Ask::Delete(b"edge"));
        assert_eq!(desk.answer(Ask::Add(b"edge", edge)), Answer::Number(edge));
        assert_eq!(desk.answer(Ask::Get(b"edge")), value(&edge.to_string()));
        assert_eq!(desk.answer(Ask::Add(b"edge", 0)), Answer::Number(edge));
    }
    desk.answer(Ask::Set(b"n", b"9223372036854775807"));
    let over = desk.answer(Ask::Add(b"n", 1));
    assert_eq!(refusal(&over), "the number at 'n' would be larger than 64 bits can hold");
    assert_eq!(desk.answer(Ask::Get(b"n")), value("9223372036854775807"), "and is as it was");
    desk.answer(Ask::Set(b"n", b"12x"));
    assert_eq!(refusal(&desk.answer(Ask::Add(b"n", 1))), "the value of 'n' is no decimal number of 64 bits");
}

#[test]
fn a_key_is_set_only_as_expected() {
    let mut desk = Desk::new();
    let mut compare = |expected, desired: &[u8]| {
        let answer = desk.answer(Ask::CompareSet { key: b"k", expected, desired });
        let Answer::Compared { set, now } = answer else { panic!("{answer:?}") };
        (set, now.map(|now| String::from_utf8_lossy(&now).into_owned()))
    };
    let now = |text: &str| Some(String::from(text));
    assert_eq!(compare(Expected::Value(b""), b"x"), (false, None));
    assert_eq!(compare(Expected::Absent, b"1"), (true, now("1")));
    assert_eq!(compare(Expected::Absent, b"2"), (false, now("1")));
    assert_eq!(compare(Expected::AbsentOr(b""), b"2"), (false, now("1")));
    assert_eq!(compare(Expected::Value(b"1"), b""), (true, now("")));
    assert_eq!(compare(Expected::AbsentOr(b""), b"3"), (true, now("3")));
}

#[test]
fn keys_are_listed_in_parts() {
    let mut desk = Desk::new();
    for key in ["b/2", "a", "b/10", "b/1", "c", "b"] {
        desk.answer(Ask::Set(key.as_bytes(), b""));
    }
    let mut list = |prefix: &[u8], after: Option<&[u8]>, most| {
        let answer = desk.answer(Ask::List { prefix, after, most });
        let Answer::Keys(keys) = answer else { panic!("{answer:?}") };
        keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(list(b"b/", None, 9), "b/1 b/10 b/2");
    assert_eq!(list(b"b/", None, 2), "b/1 b/10");
    assert_eq!(list(b"b/", Some(b"b/10"), 2), "b/2");
    assert_eq!(list(b"b/", Some(b"a"), 9), "b/1 b/10 b/2", "what lies before the prefix does not matter");
    assert_eq!(list(b"", Some(b"b/2"), 9), "c");
    assert_eq!(list(b"d", None, 9), "");
}

#[test]
fn keys_of_rlaunch_are_neither_listed_nor_counted() {
    let mut desk = Desk::new();
    for key in ["rlaunch/ended/0", "a", "rlaunch", "rlaunch0"] {
        desk.answer(Ask::Set(key.as_bytes(), b""));
    }
    let mut list = |prefix: &[u8]| desk.answer(Ask::List { prefix, after: None, most: 9 });
    let keys = |all: &[&str]| Answer::Keys(all.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect());
    assert_eq!(list(b""), keys(&["a", "rlaunch", "rlaunch0"]));
    assert_eq!(list(b"rlaunch/"), keys(&["rlaunch/ended/0"]));
    assert_eq!(desk.answer(Ask::Count), Answer::Number(3));
}

#[test]
fn queues_and_values_are_separate() {
    let mut desk = Desk::new();
    assert_eq!(desk.answer(Ask::Pop(b"q")), Answer::Value(None));
    desk.answer(Ask::Push(b"q", b"1"));
    desk.answer(Ask::Push(b"q", b"2"));
    desk.answer(Ask::Push(b"r", b"3"));
    assert_eq!(desk.answer(Ask::Check(&[b"q"])), Answer::Done, "it exists");
    assert_eq!(desk.answer(Ask::Get(b"q")), Answer::Value(None), "but has no value");
    assert_eq!((desk.answer(Ask::Len(b"q")), desk.answer(Ask::Count)), (Answer::Number(2), Answer::Number(0)));
    assert_eq!(desk.answer(Ask::Pop(b"q")), value("1"));
    assert_eq!(desk.answer(Ask::Pop(b"q")), value("2"));
    assert_eq!(desk.answer(Ask::Check(&[b"q"])), Answer::Missing, "an empty one does not exist");
    assert_eq!(desk.answer(Ask::Delete(b"r")), Answer::Number(1));
    assert_eq!(desk.answer(Ask::Len(b"r")), Answer::Number(0));
}

#[test]
fn closed_namespace_notifies_all_waiters() {
    let mut desk = Desk::new();
    desk.answer(Ask::Set(b"k", b"v"));
    let waits = [
        desk.ask(1, Ask::Wait { keys: &[b"never"], within: None }),
        desk.ask(2, Ask::Take { key: b"q", within: Some(Span::from_secs(1)) }),
    ];
    desk.space.close();
    let gone = Answer::Refused(Refusal::Gone);
    assert_eq!(desk.answers(), waits.map(|ticket| (ticket, gone.clone())));
    assert_eq!(desk.answer(Ask::Get(b"k")), gone, "and all who come later");
    assert_eq!(desk.space.poll_timeout(), None);
}
