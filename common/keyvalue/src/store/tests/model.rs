//! The store beside a model that is written as simply as can be: everything in lists, searched from the front.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use proptest::prelude::*;
use rlaunch_base::os_bytes::OsBytes;

const KEYS: [&[u8]; 4] = [b"a", b"ab", b"b", b""];
/// The participants of fences: sets that are equal, overlap, or are empty.
const WORLDS: [&[u32]; 4] = [&[0, 1, 2], &[0, 1, 2], &[1, 2, 5], &[]];

type Ranks = BTreeSet<u32>;

#[derive(Clone, Debug)]
enum Step {
    Set(usize, Vec<u8>),
    SetAll(Vec<(usize, Vec<u8>)>),
    Add(usize, i64),
    Append(usize, Vec<u8>),
    Compare(usize, Option<Vec<u8>>, Vec<u8>),
    Delete(usize),
    Push(usize, Vec<u8>),
    Pop(usize),
    Len(usize),
    Check(Vec<usize>),
    List(usize, Option<usize>, usize),
    Wait(Vec<usize>, Option<Span>),
    Take(usize, Option<Span>),
    Watch(usize, Since, Option<Span>),
    Gather(usize, i64, Option<Span>),
    Fence(usize, usize, Ranks, Option<Span>),
    Arrive(usize, usize, Ranks),
    Cancel(usize),
    Gone,
    Later(Span),
}

#[derive(Clone, Copy, Debug)]
enum Since {
    Asked,
    Absent,
    Now,
    Before,
    /// Later than the key itself, if another has changed since: so old watches look at a key that was deleted.
    Latest,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS.len();
    let text = || prop::collection::vec(prop::sample::select(vec![b'1', b'x']), 0..4);
    let span = || (0u64..4).prop_map(Span::from_secs);
    let within = move || prop::option::of(span());
    let who = || prop::collection::btree_set(prop::sample::select(vec![0u32, 1, 2, 5]), 0..4);
    let since = prop::sample::select(vec![Since::Asked, Since::Absent, Since::Now, Since::Before, Since::Latest]);
    let pairs = prop::collection::vec((key(), text()), 0..4);
    prop_oneof![
        2 => (key(), text()).prop_map(|(k, v)| Step::Set(k, v)),
        1 => pairs.prop_map(Step::SetAll),
        1 => (key(), -5i64..5).prop_map(|(k, by)| Step::Add(k, by)),
        1 => (key(), text()).prop_map(|(k, v)| Step::Append(k, v)),
        1 => (key(), prop::option::of(text()), text()).prop_map(|(k, e, d)| Step::Compare(k, e, d)),
        2 => key().prop_map(Step::Delete),
        2 => (key(), text()).prop_map(|(k, v)| Step::Push(k, v)),
        1 => key().prop_map(Step::Pop),
        1 => key().prop_map(Step::Len),
        1 => prop::collection::vec(key(), 0..4).prop_map(Step::Check),
        1 => (key(), prop::option::of(key()), 0usize..4).prop_map(|(p, a, m)| Step::List(p, a, m)),
        2 => (prop::collection::vec(key(), 0..4), within()).prop_map(|(k, w)| Step::Wait(k, w)),
        2 => (key(), within()).prop_map(|(k, w)| Step::Take(k, w)),
        2 => (key(), since, within()).prop_map(|(k, s, w)| Step::Watch(k, s, w)),
        2 => (key(), 0i64..4, within()).prop_map(|(k, u, w)| Step::Gather(k, u, w)),
        2 => (0usize..2, 0..WORLDS.len(), who(), within()).prop_map(|(n, all, r, w)| Step::Fence(n, all, r, w)),
        1 => (0usize..2, 0..WORLDS.len(), who()).prop_map(|(n, all, r)| Step::Arrive(n, all, r)),
        1 => (0usize..4).prop_map(Step::Cancel),
        1 => Just(Step::Gone),
        2 => span().prop_map(Step::Later),
    ]
}

#[derive(Debug)]
enum For {
    Keys(BTreeSet<usize>),
    Change(usize),
    Item(usize),
    Count(usize, i64),
    Fence(usize),
}

impl For {
    /// Whether it waited for keys, and this was the last.
    fn key_is_there(&mut self, key: usize) -> bool {
        let Self::Keys(keys) = self else { return false };
        keys.remove(&key) && keys.is_empty()
    }
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    awaited: For,
    /// For how many things it came.
    came_for: usize,
    within: Option<(Span, Mono)>,
}

#[derive(Default)]
struct Model {
    now: Mono,
    /// Value, and when it was set.
    values: BTreeMap<usize, (Vec<u8>, u64)>,
    changes: u64,
    queues: BTreeMap<usize, VecDeque<Vec<u8>>>,
    /// The ranks that have to come, and those that have.
    fences: BTreeMap<usize, (Ranks, Ranks)>,
    /// In the order in which they came.
    waiting: Vec<Waiter>,
    notified: BTreeSet<(ClientId, usize)>,
    out: Vec<(Ticket, Answer)>,
}

fn bytes(value: &[u8]) -> Bytes {
    Bytes::copy_from_slice(value)
}

fn named(key: usize) -> OsBytes {
    OsBytes::new(KEYS[key].to_vec())
}

fn set(of: &Ranks) -> RankSet {
    of.iter().copied().map(Rank::new).collect()
}

impl Model {
    fn say(&mut self, ticket: Ticket, answer: Answer) {
        self.out.push((ticket, answer));
    }

    fn queue(&self, key: usize) -> usize {
        self.queues.get(&key).map_or(0, VecDeque::len)
    }

    fn exists(&self, key: usize) -> bool {
        self.values.contains_key(&key) || self.queue(key) > 0
    }

    fn value(&self, key: usize) -> Option<Bytes> {
        self.values.get(&key).map(|(value, _)| bytes(value))
    }

    fn revision(&self, key: usize) -> u64 {
        self.values.get(&key).map_or(0, |(_, at)| *at)
    }

    /// The first who waits so is woken, or all of them.
    fn wake(&mut self, all: bool, mut whom: impl FnMut(&mut For) -> bool, answer: &Answer) -> Vec<ClientId> {
        let mut woken = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() && (all || woken.is_empty()) {
            if whom(&mut self.waiting[at].awaited) {
                let waiter = self.waiting.remove(at);
                woken.push(waiter.ticket.client);
                self.say(waiter.ticket, answer.clone());
            } else {
                at += 1;
            }
        }
        woken
    }

    fn set(&mut self, key: usize, value: Vec<u8>) {
        self.changes += 1;
        self.values.insert(key, (value, self.changes));
        self.is_set(key);
    }

    fn is_set(&mut self, key: usize) {
        self.wake(true, |awaited| awaited.key_is_there(key), &Answer::Done);
        self.changed(key);
    }

    fn changed(&mut self, key: usize) {
        let answer = Answer::Changed { at: Revision(self.revision(key)), value: self.value(key) };
        self.wake(true, |awaited| matches!(awaited, For::Change(of) if *of == key), &answer);
    }

    /// Adds an item of which no client was notified.
    fn pushed(&mut self, key: usize) {
        if self.waiting.iter().any(|waiter| matches!(waiter.awaited, For::Item(of) if of == key)) {
            let item = self.queues.get_mut(&key).unwrap().pop_front().unwrap();
            let answer = Answer::Value(Some(bytes(&item)));
            self.wake(false, |awaited| matches!(awaited, For::Item(of) if *of == key), &answer);
            return;
        }
        let woken = self.wake(false, |awaited| awaited.key_is_there(key), &Answer::Done);
        self.notified.extend(woken.into_iter().map(|client| (client, key)));
    }

    fn pass_on(&mut self, client: ClientId) {
        let left: Vec<usize> = self.notified.iter().filter(|(of, _)| *of == client).map(|(_, key)| *key).collect();
        self.notified.retain(|(of, _)| *of != client);
        let mut left: Vec<usize> = left.into_iter().filter(|key| self.queue(*key) > 0).collect();
        left.sort_by_key(|key| KEYS[*key]);
        left.into_iter().for_each(|key| self.pushed(key));
    }

    fn number(&self, key: usize) -> Result<i64, Answer> {
        let Some((text, _)) = self.values.get(&key) else { return Ok(0) };
        let number = core::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| Answer::Refused(Refusal::NoNumber { key: named(key) }))
    }

    fn add(&mut self, key: usize, by: i64) -> Result<i64, Answer> {
        let sum = self.number(key)? + by;
        self.set(key, sum.to_string().into_bytes());
        Ok(sum)
    }

    fn arrive(&mut self, name: usize, all: &Ranks, who: &Ranks) -> Result<bool, Answer> {
        if !who.is_subset(all) {
            let who = set(&(who - all));
            return Err(Answer::Refused(Refusal::NoParticipant { name: named(name), who }));
        }
        let (open, arrived) = self.fences.entry(name).or_insert_with(|| (all.clone(), Ranks::new()));
        if open != all {
            let (open, asked) = (set(open), set(all));
            return Err(Answer::Refused(Refusal::OtherFence { name: named(name), open, asked }));
        }
        arrived.extend(who);
        let complete = arrived == open;
        if complete {
            self.fences.remove(&name);
            self.wake(true, |awaited| matches!(awaited, For::Fence(of) if *of == name), &Answer::Done);
        }
        Ok(complete)
    }

    /// The immediate answer, if there is one.
    fn wait(&mut self, ticket: Ticket, over: Option<Answer>, awaited: For, within: Option<Span>) -> Option<Answer> {
        if over.is_none() {
            let came_for = if let For::Keys(keys) = &awaited { keys.len() } else { 1 };
            let within = within.map(|within| (within, self.now + within));
            self.waiting.push(Waiter { ticket, awaited, came_for, within });
        }
        over
    }

    fn absent(&self, awaited: &For) -> Absent {
        match awaited {
            For::Keys(keys) => {
                let mut first: Vec<OsBytes> = keys.iter().map(|key| named(*key)).collect();
                first.sort();
                Absent::Keys(first, keys.len())
            }
            For::Change(key) => Absent::Change(named(*key)),
            For::Item(key) => Absent::Item(named(*key)),
            For::Count(key, until) => Absent::Count { key: named(*key), until: *until },
            For::Fence(name) => {
                let (all, arrived) = &self.fences[name];
                Absent::Ranks { name: named(*name), missing: set(&(all - arrived)) }
            }
        }
    }

    fn later(&mut self, span: Span) {
        self.now = self.now + span;
        let now = self.now;
        let is_over = |waiter: &Waiter| waiter.within.is_some_and(|(_, at)| at <= now);
        let (over, rest): (Vec<Waiter>, Vec<Waiter>) =
            core::mem::take(&mut self.waiting).into_iter().partition(is_over);
        self.waiting = rest;
        for waiter in over {
            let (within, _) = waiter.within.unwrap();
            let missing = self.absent(&waiter.awaited);
            self.say(waiter.ticket, Answer::Refused(Refusal::TimedOut { within, missing }));
        }
    }

    /// The actions of requests that are answered at once, and of waits.
    fn perform(&mut self, ticket: Ticket, step: &Step) -> Option<Answer> {
        Some(match step {
            Step::Set(key, value) => {
                self.set(*key, value.clone());
                Answer::Done
            }
            Step::SetAll(pairs) => {
                // All values are there before the first notification.
                pairs.iter().for_each(|(key, value)| {
                    self.changes += 1;
                    self.values.insert(*key, (value.clone(), self.changes));
                });
                pairs.iter().for_each(|(key, _)| self.is_set(*key));
                Answer::Done
            }
            Step::Add(key, by) => self.add(*key, *by).map_or_else(|refused| refused, Answer::Number),
            Step::Append(key, more) => {
                let mut value = self.values.get(key).map(|(value, _)| value.clone()).unwrap_or_default();
                value.extend(more);
                let len = value.len();
                self.set(*key, value);
                number(len)
            }
            Step::Compare(key, expected, desired) => {
                let set = self.values.get(key).map(|(value, _)| value) == expected.as_ref();
                if set {
                    self.set(*key, desired.clone());
                }
                Answer::Compared { set, now: self.value(*key) }
            }
            Step::Delete(key) => {
                let was = self.exists(*key);
                self.queues.remove(key);
                if self.values.remove(key).is_some() {
                    self.changes += 1;
                    self.changed(*key);
                }
                number(usize::from(was))
            }
            Step::Push(key, item) => {
                self.queues.entry(*key).or_default().push_back(item.clone());
                self.pushed(*key);
                Answer::Done
            }
            Step::Pop(key) => Answer::Value(self.pop(*key)),
            Step::Len(key) => number(self.queue(*key)),
            Step::Check(keys) if keys.iter().all(|key| self.exists(*key)) => Answer::Done,
            Step::Check(_) => Answer::Missing,
            Step::List(prefix, after, most) => Answer::Keys(self.list(KEYS[*prefix], after.map(|at| KEYS[at]), *most)),
            Step::Arrive(name, all, who) => {
                let all = WORLDS[*all].iter().copied().collect();
                self.arrive(*name, &all, who).map_or_else(|refused| refused, |_| Answer::Done)
            }
            Step::Wait(..) | Step::Take(..) | Step::Watch(..) | Step::Gather(..) | Step::Fence(..) => {
                return self.perform_later(ticket, step).unwrap_or_else(Some);
            }
            Step::Cancel(_) | Step::Gone | Step::Later(_) => return None,
        })
    }

    fn list(&self, prefix: &[u8], after: Option<&[u8]>, most: usize) -> Vec<Bytes> {
        let mut keys: Vec<&[u8]> = self.values.keys().map(|key| KEYS[*key]).collect();
        keys.sort_unstable();
        keys.retain(|key| key.starts_with(prefix) && after.is_none_or(|after| *key > after));
        keys.into_iter().take(most).map(bytes).collect()
    }

    fn pop(&mut self, key: usize) -> Option<Bytes> {
        self.queues.get_mut(&key).and_then(VecDeque::pop_front).map(|item| bytes(&item))
    }

    /// The same, of requests that may have to wait.
    fn perform_later(&mut self, ticket: Ticket, step: &Step) -> Result<Option<Answer>, Answer> {
        Ok(match step {
            Step::Wait(keys, within) => {
                let missing: BTreeSet<usize> = keys.iter().copied().filter(|key| !self.exists(*key)).collect();
                self.wait(ticket, missing.is_empty().then_some(Answer::Done), For::Keys(missing), *within)
            }
            Step::Take(key, within) => {
                let item = self.pop(*key).map(|item| Answer::Value(Some(item)));
                self.wait(ticket, item, For::Item(*key), *within)
            }
            Step::Watch(key, since, within) => {
                let now = Revision(self.revision(*key));
                let changed = Answer::Changed { at: now, value: self.value(*key) };
                let is_over = self.since(*key, *since).is_some_and(|since| since != now);
                self.wait(ticket, is_over.then_some(changed), For::Change(*key), *within)
            }
            Step::Gather(key, until, within) => {
                let count = self.add(*key, 1)?;
                self.wake(
                    true,
                    |on| matches!(on, For::Count(of, until) if of == key && *until <= count),
                    &Answer::Done,
                );
                self.wait(ticket, (count >= *until).then_some(Answer::Done), For::Count(*key, *until), *within)
            }
            Step::Fence(name, all, who, within) => {
                let all = WORLDS[*all].iter().copied().collect();
                let complete = self.arrive(*name, &all, who)?;
                self.wait(ticket, complete.then_some(Answer::Done), For::Fence(*name), *within)
            }
            Step::Set(..) | Step::SetAll(_) | Step::Add(..) | Step::Append(..) | Step::Compare(..) => unreachable!(),
            Step::Delete(_) | Step::Push(..) | Step::Pop(_) | Step::Len(_) | Step::Check(_) => unreachable!(),
            Step::List(..) | Step::Arrive(..) | Step::Cancel(_) | Step::Gone | Step::Later(_) => unreachable!(),
        })
    }

    fn since(&self, key: usize, since: Since) -> Option<Revision> {
        match since {
            Since::Asked => None,
            Since::Absent => Some(Revision(0)),
            Since::Now => Some(Revision(self.revision(key))),
            Since::Latest => Some(Revision(self.changes)),
            Since::Before => Some(Revision(self.revision(key).saturating_sub(1))),
        }
    }

    /// Things, and bytes.
    fn held(&self) -> (usize, usize) {
        let values = self.values.iter().map(|(key, (value, _))| KEYS[*key].len() + value.len());
        let items = self.queues.iter().flat_map(|(key, queue)| queue.iter().map(|item| KEYS[*key].len() + item.len()));
        let ranges = |of: &Ranks| set(of).ranges().len() * Limits::PER_RANGE;
        let fences = self.fences.iter().map(|(name, (all, here))| KEYS[*name].len() + ranges(all) + ranges(here));
        let things: Vec<usize> = values.chain(items).chain(fences).collect();
        let mut waits = 0;
        let mut awaited = BTreeSet::new();
        for waiter in &self.waiting {
            waits += Limits::PER_REQUEST + waiter.came_for * Limits::PER_MISSING;
            match &waiter.awaited {
                For::Keys(keys) => awaited.extend(keys.iter().map(|key| (0, *key))),
                For::Change(key) => drop(awaited.insert((1, *key))),
                For::Item(key) => drop(awaited.insert((2, *key))),
                For::Count(key, _) => drop(awaited.insert((3, *key))),
                For::Fence(name) => drop(awaited.insert((4, *name))),
            }
        }
        let awaited: usize = awaited.iter().map(|(_, key)| Limits::PER_REQUEST + KEYS[*key].len()).sum();
        waits += self.notified.iter().map(|(_, key)| Limits::PER_ITEM + KEYS[*key].len()).sum::<usize>();
        (things.len(), things.iter().sum::<usize>() + things.len() * Limits::PER_ITEM + waits + awaited)
    }
}

/// Whether it is about what is in a queue.
fn comes_for(step: &Step) -> Option<usize> {
    match step {
        Step::Pop(key) | Step::Len(key) | Step::Take(key, _) => Some(*key),
        Step::Set(..) | Step::SetAll(_) | Step::Add(..) | Step::Append(..) | Step::Compare(..) | Step::Delete(_) => {
            None
        }
        Step::Push(..) | Step::Check(_) | Step::List(..) | Step::Wait(..) | Step::Watch(..) | Step::Gather(..) => None,
        Step::Fence(..) | Step::Arrive(..) | Step::Cancel(_) | Step::Gone | Step::Later(_) => None,
    }
}

/// Asks the store. Borrowed lists are made for it.
fn ask(desk: &mut Desk, model: &Model, client: u32, step: &Step) -> Option<Ticket> {
    let keys = |keys: &[usize]| keys.iter().map(|key| KEYS[*key]).collect::<Vec<_>>();
    let world = |all: usize| ranks(WORLDS[all]);
    Some(match step {
        Step::Set(key, value) => desk.ask(client, Ask::Set(KEYS[*key], value)),
        Step::SetAll(pairs) => {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| (KEYS[*key], &value[..])).collect();
            desk.ask(client, Ask::SetAll(&pairs))
        }
        Step::Add(key, by) => desk.ask(client, Ask::Add(KEYS[*key], *by)),
        Step::Append(key, more) => desk.ask(client, Ask::Append(KEYS[*key], more)),
        Step::Compare(key, expected, desired) => {
            let expected = expected.as_ref().map_or(Expected::Absent, |value| Expected::Value(value));
            desk.ask(client, Ask::CompareSet { key: KEYS[*key], expected, desired })
        }
        Step::Delete(key) => desk.ask(client, Ask::Delete(KEYS[*key])),
        Step::Push(key, item) => desk.ask(client, Ask::Push(KEYS[*key], item)),
        Step::Pop(key) => desk.ask(client, Ask::Pop(KEYS[*key])),
        Step::Len(key) => desk.ask(client, Ask::Len(KEYS[*key])),
        Step::Check(all) => desk.ask(client, Ask::Check(&keys(all))),
        Step::List(prefix, after, most) => {
            desk.ask(client, Ask::List { prefix: KEYS[*prefix], after: after.map(|at| KEYS[at]), most: *most })
        }
        Step::Wait(all, within) => desk.ask(client, Ask::Wait { keys: &keys(all), within: *within }),
        Step::Take(key, within) => desk.ask(client, Ask::Take { key: KEYS[*key], within: *within }),
        Step::Watch(key, since, within) => {
            desk.ask(client, Ask::Watch { key: KEYS[*key], since: model.since(*key, *since), within: *within })
        }
        Step::Gather(key, until, within) => {
            desk.ask(client, Ask::Gather { key: KEYS[*key], until: *until, within: *within })
        }
        Step::Fence(name, all, who, within) => {
            let ask = Ask::Fence { name: KEYS[*name], all: &world(*all), who: &set(who), within: *within };
            desk.ask(client, ask)
        }
        Step::Arrive(name, all, who) => {
            desk.ask(client, Ask::Arrive { name: KEYS[*name], all: &world(*all), who: &set(who) })
        }
        Step::Cancel(_) | Step::Gone | Step::Later(_) => return None,
    })
}

/// The step, of both.
fn play(desk: &mut Desk, model: &mut Model, client: u32, step: &Step) {
    let who = ClientId::new(client);
    if let Some(ticket) = ask(desk, model, client, step) {
        let notified = model.notified.iter().filter(|(of, _)| *of == who).map(|(_, key)| *key).collect::<BTreeSet<_>>();
        if let Some(answer) = model.perform(ticket, step) {
            model.say(ticket, answer);
        }
        if !notified.is_empty() && comes_for(step).is_none_or(|key| !notified.contains(&key)) {
            model.pass_on(who);
        }
        return;
    }
    match step {
        Step::Cancel(at) => {
            let at = *at;
            let ticket = model.waiting.get(at).map(|waiter| waiter.ticket);
            let cancelled = ticket.is_some_and(|ticket| desk.space.cancel(ticket));
            assert_eq!(cancelled, at < model.waiting.len());
            model.waiting.drain(model.waiting.len().min(at)..model.waiting.len().min(at + 1));
        }
        Step::Gone => {
            desk.space.gone(who);
            model.waiting.retain(|waiter| waiter.ticket.client != who);
            model.pass_on(who);
        }
        Step::Later(span) => {
            desk.later(*span);
            model.later(*span);
        }
        Step::Set(..) | Step::SetAll(_) | Step::Add(..) | Step::Append(..) | Step::Compare(..) => unreachable!(),
        Step::Delete(_) | Step::Push(..) | Step::Pop(_) | Step::Len(_) | Step::Check(_) => unreachable!(),
        Step::List(..) | Step::Arrive(..) | Step::Wait(..) | Step::Take(..) => unreachable!(),
        Step::Watch(..) | Step::Gather(..) | Step::Fence(..) => unreachable!(),
    }
}

proptest! {
    #[test]
    fn store_answers_as_the_model(steps in prop::collection::vec((1u32..4, step()), 0..60)) {
        let mut desk = Desk::new();
        let mut model = Model { now: desk.now, ..Model::default() };
        for (at, (client, step)) in steps.iter().enumerate() {
            play(&mut desk, &mut model, *client, step);
            let (said, mut expected) = (desk.answers(), core::mem::take(&mut model.out));
            let mut sorted = said.clone();
            sorted.sort_by_key(|(ticket, _)| *ticket);
            expected.sort_by_key(|(ticket, _)| *ticket);
            prop_assert_eq!(sorted, expected, "{} of {:?}", at, &steps);
            prop_assert_eq!(desk.space.account.held(), model.held(), "{} of {:?}", at, &steps);
            let due = model.waiting.iter().filter_map(|waiter| waiter.within).map(|(_, at)| at).min();
            prop_assert_eq!(desk.space.poll_timeout(), due);
            prop_assert_eq!(desk.answer(Ask::Count), number(model.values.len()));
            let values = (0..KEYS.len()).map(|key| model.value(key)).collect();
            prop_assert_eq!(desk.answer(Ask::GetAll(&KEYS)), Answer::Values(values));
        }
    }
}
