//! The store beside a model that is written as simply as can be.

use super::*;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use proptest::prelude::*;

const KEYS: [&[u8]; 4] = [b"a", b"ab", b"b", b""];

#[derive(Clone, Debug)]
enum Step {
    Set(usize, Vec<u8>),
    Add(usize, i64),
    Append(usize, Vec<u8>),
    Compare(usize, Option<Vec<u8>>, Vec<u8>),
    Delete(usize),
    Push(usize, Vec<u8>),
    Pop(usize),
    Wait(u32, Vec<usize>),
    Take(u32, usize),
    Gone(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS.len();
    let text = || prop::collection::vec(prop::sample::select(vec![b'1', b'x']), 0..4);
    prop_oneof![
        (key(), text()).prop_map(|(k, v)| Step::Set(k, v)),
        (key(), -5i64..5).prop_map(|(k, by)| Step::Add(k, by)),
        (key(), text()).prop_map(|(k, v)| Step::Append(k, v)),
        (key(), prop::option::of(text()), text()).prop_map(|(k, e, d)| Step::Compare(k, e, d)),
        key().prop_map(Step::Delete),
        (key(), text()).prop_map(|(k, v)| Step::Push(k, v)),
        key().prop_map(Step::Pop),
        (1u32..4, prop::collection::vec(key(), 1..4)).prop_map(|(c, k)| Step::Wait(c, k)),
        (1u32..4, key()).prop_map(|(c, k)| Step::Take(c, k)),
        (1u32..4).prop_map(Step::Gone),
    ]
}

#[derive(Default)]
struct Model {
    values: BTreeMap<usize, Vec<u8>>,
    queues: BTreeMap<usize, VecDeque<Vec<u8>>>,
    takers: BTreeMap<usize, VecDeque<Ticket>>,
}

impl Model {
    fn exists(&self, key: usize) -> bool {
        self.values.contains_key(&key) || self.queues.get(&key).is_some_and(|queue| !queue.is_empty())
    }

    fn add(&mut self, key: usize, by: i64) -> Answer {
        let old = self.values.get(&key).map_or(Some(0), |text| core::str::from_utf8(text).ok()?.parse::<i64>().ok());
        let Some(old) = old else {
            return Answer::Refused(Refusal::NoNumber { key: crate::os_bytes::OsBytes::new(KEYS[key].to_vec()) });
        };
        self.values.insert(key, (old + by).to_string().into_bytes());
        Answer::Number(old + by)
    }

    fn bytes(&self) -> (usize, usize) {
        let values = self.values.iter().map(|(key, value)| KEYS[*key].len() + value.len());
        let items = self.queues.iter().flat_map(|(key, queue)| queue.iter().map(|item| KEYS[*key].len() + item.len()));
        let all: Vec<usize> = values.chain(items).collect();
        (all.len(), all.iter().sum::<usize>() + all.len() * Limits::PER_ITEM)
    }
}

fn bytes(value: &[u8]) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(value))
}

/// What the model says, and the request to the store that it says it of.
fn play(desk: &mut Desk, model: &mut Model, step: &Step) -> (Option<Answer>, Option<Ticket>) {
    let (answer, asked) = match step {
        Step::Set(key, value) => {
            model.values.insert(*key, value.clone());
            (Answer::Done, desk.ask(0, Ask::Set(KEYS[*key], value)))
        }
        Step::Add(key, by) => (model.add(*key, *by), desk.ask(0, Ask::Add(KEYS[*key], *by))),
        Step::Append(key, more) => {
            let value = model.values.entry(*key).or_default();
            value.extend(more);
            (number(value.len()), desk.ask(0, Ask::Append(KEYS[*key], more)))
        }
        Step::Compare(key, expected, desired) => {
            let set = model.values.get(key) == expected.as_ref();
            if set {
                model.values.insert(*key, desired.clone());
            }
            let now = model.values.get(key).and_then(|now| bytes(now));
            let expected = expected.as_ref().map_or(Expected::Absent, |value| Expected::Value(value));
            (Answer::Compared { set, now }, desk.ask(0, Ask::CompareSet { key: KEYS[*key], expected, desired }))
        }
        Step::Delete(key) => {
            let was = model.exists(*key);
            model.values.remove(key);
            model.queues.remove(key);
            (Answer::Number(i64::from(was)), desk.ask(0, Ask::Delete(KEYS[*key])))
        }
        Step::Push(key, item) => (Answer::Done, push(desk, model, *key, item)),
        Step::Pop(key) => {
            let item = model.queues.get_mut(key).and_then(VecDeque::pop_front);
            (Answer::Value(item.and_then(|item| bytes(&item))), desk.ask(0, Ask::Pop(KEYS[*key])))
        }
        Step::Wait(..) | Step::Take(..) | Step::Gone(_) => return play_waiting(desk, model, step),
    };
    (Some(answer), Some(asked))
}

/// The same, of requests that may have to wait (no answer yet) and of clients that go.
fn play_waiting(desk: &mut Desk, model: &mut Model, step: &Step) -> (Option<Answer>, Option<Ticket>) {
    match step {
        Step::Wait(client, keys) => {
            let answer = keys.iter().all(|key| model.exists(*key)).then_some(Answer::Done);
            let keys: Vec<&[u8]> = keys.iter().map(|key| KEYS[*key]).collect();
            (answer, Some(desk.ask(*client, Ask::Wait { keys: &keys, within: None })))
        }
        Step::Take(client, key) => {
            let item = model.queues.get_mut(key).and_then(VecDeque::pop_front);
            let asked = desk.ask(*client, Ask::Take { key: KEYS[*key], within: None });
            if item.is_none() {
                model.takers.entry(*key).or_default().push_back(asked);
            }
            (item.map(|item| Answer::Value(bytes(&item))), Some(asked))
        }
        Step::Gone(client) => {
            let client = ClientId::new(*client);
            model.takers.values_mut().for_each(|takers| takers.retain(|ticket| ticket.client != client));
            desk.space.gone(client);
            (None, None)
        }
        Step::Set(..) | Step::Add(..) | Step::Append(..) | Step::Compare(..) => unreachable!("answered at once"),
        Step::Delete(_) | Step::Push(..) | Step::Pop(_) => unreachable!("answered at once"),
    }
}

/// Something is pushed: who waits longest gets it, or it stays.
fn push(desk: &mut Desk, model: &mut Model, key: usize, item: &[u8]) -> Ticket {
    let taker = model.takers.get_mut(&key).and_then(VecDeque::pop_front);
    let asked = desk.ask(0, Ask::Push(KEYS[key], item));
    match taker {
        Some(ticket) => {
            let answer = Answer::Value(bytes(item));
            assert_eq!(
                desk.space.poll_action(),
                Some(Action::Answer { ticket, answer }),
                "the first who waits gets it"
            );
        }
        None => model.queues.entry(key).or_default().push_back(item.to_vec()),
    }
    asked
}

proptest! {
    #[test]
    fn it_answers_as_the_model(steps in prop::collection::vec(step(), 0..60)) {
        let (mut desk, mut model) = (Desk::new(), Model::default());
        for step in &steps {
            let (expected, asked) = play(&mut desk, &mut model, step);
            let answers = desk.answers();
            let own = answers.into_iter().find(|(ticket, _)| Some(*ticket) == asked).map(|(_, answer)| answer);
            prop_assert_eq!(own, expected, "{:?} of {:?}", step, &steps);
            prop_assert_eq!(desk.space.account.held(), model.bytes());
            let count = i64::try_from(model.values.len()).unwrap();
            prop_assert_eq!(desk.answer(Ask::Count), Answer::Number(count));
            for (at, key) in KEYS.iter().enumerate() {
                let value = model.values.get(&at).and_then(|value| bytes(value));
                prop_assert_eq!(desk.answer(Ask::Get(key)), Answer::Value(value));
            }
        }
    }

    /// However clients repeat what they are in doubt of, it is as if each had asked once.
    #[test]
    fn repeating_changes_nothing(steps in prop::collection::vec((step(), 0u8..4, 0u64..3), 0..40)) {
        let (mut desk, mut other) = (Desk::new(), Desk::new());
        let client = ClientId::new(7);
        let mut asked: Vec<(u64, &[u8], i64)> = Vec::new();
        for (step, repeats, behind) in &steps {
            let Step::Add(key, by) = step else { continue };
            let seq = asked.len() as u64 + 1;
            asked.push((seq, KEYS[*key], *by));
            other.answer(Ask::Add(KEYS[*key], *by));
            for _ in 0..=*repeats {
                for (seq, key, by) in asked.iter().rev().take(usize::try_from(*behind).unwrap() + 1).rev() {
                    let has = Seq(seq.saturating_sub(behind + 1));
                    desk.space.ask(desk.now, Ticket { client, seq: Seq(*seq) }, Retry::Behind(has), Ask::Add(key, *by));
                }
            }
        }
        for key in KEYS {
            prop_assert_eq!(desk.answer(Ask::Get(key)), other.answer(Ask::Get(key)));
        }
    }
}
