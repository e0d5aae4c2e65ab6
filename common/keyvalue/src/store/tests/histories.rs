//! Histories of clients that ask at the same time: each must be one that clients who ask one after another could have seen (linearizable;
//! Wing and Gong's search, with a memory of where it has been).

use super::*;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

const KEYS: [&[u8]; 2] = [b"a", b"b"];
/// Values that both keys are set to at once.
const PAIRS: [[(&[u8], &[u8]); 2]; 5] = {
    const fn both(text: &[u8]) -> [(&[u8], &[u8]); 2] {
        [(KEYS[0], text), (KEYS[1], text)]
    }
    [both(b"200"), both(b"201"), both(b"202"), both(b"203"), both(b"204")]
};

#[derive(Clone, Debug)]
pub(super) enum Op {
    Get(usize),
    /// Get all keys.
    GetAll,
    Check,
    SetAll(usize),
    Set(usize, Vec<u8>),
    Add(usize, i64),
    Append(usize, Vec<u8>),
    Compare(usize, Vec<u8>, Vec<u8>),
    Delete(usize),
    Push(Vec<u8>),
    Pop,
    Take,
}

impl Op {
    pub(super) fn ask(&self) -> Ask<'_> {
        match self {
            Self::Get(key) => Ask::Get(KEYS[*key]),
            Self::GetAll => Ask::GetAll(&KEYS),
            Self::Check => Ask::Check(&KEYS),
            Self::SetAll(which) => Ask::SetAll(&PAIRS[*which]),
            Self::Set(key, value) => Ask::Set(KEYS[*key], value),
            Self::Add(key, by) => Ask::Add(KEYS[*key], *by),
            Self::Append(key, more) => Ask::Append(KEYS[*key], more),
            Self::Compare(key, expected, desired) => {
                Ask::CompareSet { key: KEYS[*key], expected: Expected::AbsentOr(expected), desired }
            }
            Self::Delete(key) => Ask::Delete(KEYS[*key]),
            Self::Push(item) => Ask::Push(b"q", item),
            Self::Pop => Ask::Pop(b"q"),
            Self::Take => Ask::Take { key: b"q", within: None },
        }
    }
}

/// The state that one client after another would find.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct State {
    values: BTreeMap<usize, Vec<u8>>,
    queue: VecDeque<Vec<u8>>,
}

impl State {
    /// Does it; `None`: it would have to wait.
    fn perform(&mut self, op: &Op) -> Option<Answer> {
        let bytes = |value: &Vec<u8>| Bytes::copy_from_slice(value);
        Some(match op {
            Op::Get(key) => Answer::Value(self.values.get(key).map(bytes)),
            Op::GetAll => Answer::Values((0..KEYS.len()).map(|key| self.values.get(&key).map(bytes)).collect()),
            Op::Check if (0..KEYS.len()).all(|key| self.values.contains_key(&key)) => Answer::Done,
            Op::Check => Answer::Missing,
            Op::SetAll(which) => {
                self.values.extend((0..KEYS.len()).map(|key| (key, PAIRS[*which][key].1.to_vec())));
                Answer::Done
            }
            Op::Set(key, value) => {
                self.values.insert(*key, value.clone());
                Answer::Done
            }
            Op::Add(key, by) => {
                let old = self.values.get(key).map_or(0, |text| String::from_utf8_lossy(text).parse().unwrap());
                self.values.insert(*key, (old + by).to_string().into_bytes());
                Answer::Number(old + by)
            }
            Op::Append(key, more) => {
                let value = self.values.entry(*key).or_default();
                value.extend(more);
                number(value.len())
            }
            Op::Compare(key, expected, desired) => {
                let set = self.values.get(key).is_none_or(|now| now == expected);
                if set {
                    self.values.insert(*key, desired.clone());
                }
                Answer::Compared { set, now: self.values.get(key).map(bytes) }
            }
            Op::Delete(key) => number(usize::from(self.values.remove(key).is_some())),
            Op::Push(item) => {
                self.queue.push_back(item.clone());
                Answer::Done
            }
            Op::Pop => Answer::Value(self.queue.pop_front().map(Bytes::from)),
            Op::Take => Answer::Value(Some(Bytes::from(self.queue.pop_front()?))),
        })
    }
}

/// A request, as its client saw it: when it asked, and when it was answered.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub op: Op,
    pub asked: usize,
    pub answered: Option<(usize, Answer)>,
}

/// Whether there is an order in which each request was done at one moment between question and answer. A request without an answer may
/// have been done or not.
pub(super) fn is_linearizable(calls: &[Call]) -> bool {
    fn search(calls: &[Call], done: u32, state: &State, been: &mut BTreeSet<(u32, State)>) -> bool {
        let is_open = |at: &usize| done & (1 << at) == 0;
        let open: Vec<usize> = (0..calls.len()).filter(is_open).collect();
        let first_end = open.iter().filter_map(|at| calls[*at].answered.as_ref().map(|(end, _)| *end)).min();
        let Some(first_end) = first_end else { return true };
        if !been.insert((done, state.clone())) {
            return false;
        }
        open.into_iter().filter(|at| calls[*at].asked < first_end).any(|at| {
            let mut after = state.clone();
            let Some(said) = after.perform(&calls[at].op) else { return false };
            let fits = calls[at].answered.as_ref().is_none_or(|(_, answer)| *answer == said);
            fits && search(calls, done | (1 << at), &after, been)
        })
    }
    search(calls, 0, &State::default(), &mut BTreeSet::new())
}

/// Splitmix: the same seed, the same history.
pub(super) struct Rng(pub u64);

impl Rng {
    pub(super) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((bits ^ (bits >> 31)) % most as u64).unwrap()
    }

    /// Values differ from each other, so that each read shows the writes before it.
    pub(super) fn op(&mut self, unique: usize) -> Op {
        let (key, text) = (self.below(KEYS.len()), (100 + unique).to_string().into_bytes());
        match self.below(16) {
            0 | 1 => Op::Get(key),
            2 => Op::Set(key, text),
            3..=5 => Op::Add(key, 1),
            6 => Op::Append(key, text.get(..1).unwrap().to_vec()),
            7 => Op::Compare(key, b"1".to_vec(), text),
            8 => Op::Delete(key),
            9 => Op::Push(text),
            10 => Op::Pop,
            11 | 12 => Op::SetAll(unique % PAIRS.len()),
            13 => Op::GetAll,
            14 => Op::Check,
            _ => Op::Take,
        }
    }
}

#[test]
fn a_read_of_what_was_before_is_found() {
    let call = |op, asked, end, answer| Call { op, asked, answered: Some((end, answer)) };
    let old = call(Op::Get(0), 2, 3, Answer::Value(None));
    let set = |end| call(Op::Set(0, b"x".to_vec()), 0, end, Answer::Done);
    assert!(!is_linearizable(&[set(1), old.clone()]), "it was set before");
    assert!(is_linearizable(&[set(4), old.clone()]), "it was set meanwhile");
    let lost = Call { answered: None, ..set(1) };
    assert!(is_linearizable(&[lost.clone(), old]), "it may not have been set");
    assert!(is_linearizable(&[lost, call(Op::Get(0), 2, 3, value("x"))]), "or have been");
}

#[test]
fn a_request_that_is_done_twice_is_found() {
    let add = |answered| Call { op: Op::Add(0, 1), asked: 0, answered };
    let read = |text| Call { op: Op::Get(0), asked: 2, answered: Some((3, value(text))) };
    assert!(is_linearizable(&[add(Some((1, Answer::Number(1)))), read("1")]));
    assert!(!is_linearizable(&[add(Some((1, Answer::Number(1)))), read("2")]));
    assert!(!is_linearizable(&[add(None), read("2")]));
}
