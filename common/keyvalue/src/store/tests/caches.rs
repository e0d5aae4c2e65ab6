//! A owner and the caches of several hosts, with messages on their way between them: what clients see is as if they asked one store,
//! and what the owner sees does not grow with the ranks of a host.

use super::histories::{Call, Op, Rng, is_linearizable};
use super::*;
use crate::store::cache::{Cache, CacheAction};
use crate::store::owner::{Owner, ToCache};
use alloc::collections::VecDeque;
use alloc::format;
use rlaunch_base::id::NodeId;
use rlaunch_protocol::wire::frozen::client::{Code, Refused, Reply, Space, Words, write_reply};
use rlaunch_protocol::wire::store::{Down, Passage, Up, stamped, unstamped};

/// Hosts in a row, with the same number of ranks each.
struct Site {
    home: Owner,
    relays: Vec<Cache>,
    /// On their way from a host, and to it: in order.
    ups: Vec<VecDeque<CacheAction>>,
    downs: Vec<VecDeque<ToCache>>,
    now: Mono,
    next: u64,
    said: Vec<(usize, Ticket, Vec<u8>)>,
    /// The number of requests to the owner, beside answers to its own questions.
    asked: usize,
    /// The first host's agent asks the owner itself where it can, as the agent does that has both.
    is_beside: bool,
}

impl Site {
    fn new(hosts: u32, each: u32) -> Self {
        let ranks = |host: u32| {
            let mut set = RankSet::new();
            set.insert_range(host * each, host * each + each - 1);
            set
        };
        Self {
            home: Owner::default(),
            relays: (0..hosts).map(|host| Cache::new(ranks(host))).collect(),
            ups: (0..hosts).map(|_| VecDeque::new()).collect(),
            downs: (0..hosts).map(|_| VecDeque::new()).collect(),
            now: Mono::from_nanos(1),
            next: 0,
            said: Vec::new(),
            asked: 0,
            is_beside: false,
        }
    }

    fn ask(&mut self, host: usize, client: u32, ask: Ask<'_>) -> Ticket {
        self.next += 1;
        let ticket = Ticket { client: ClientId::new(client), seq: Seq(self.next) };
        let words = Words::write(ask);
        let parsed = Words::parse(&words).unwrap();
        if self.is_beside && host == 0 && self.relays[0].is_for_home(ticket.client, &parsed) {
            self.asked += 1;
            match self.home.ask_here(self.now, node(0), ticket, &words, &parsed) {
                Some(answer) => self.said.push((0, ticket, write_reply(&answer))),
                None => self.relays[0].waits_at_home(ticket),
            }
            self.spread();
            return ticket;
        }
        let as_it_is = self.relays[host].ask(self.now, ticket, &words, &parsed);
        self.collect(host);
        if as_it_is {
            self.ups[host].push_back(CacheAction::Ask(ticket, words));
        }
        ticket
    }

    fn collect(&mut self, host: usize) {
        while let Some(action) = self.relays[host].poll_action() {
            match action {
                CacheAction::Answer(ticket, words) => self.said.push((host, ticket, words.to_vec())),
                up @ (CacheAction::Ask(..)
                | CacheAction::Cancel(_)
                | CacheAction::Gone(_)
                | CacheAction::Dropped(_)) => {
                    self.ups[host].push_back(up);
                }
            }
        }
    }

    /// The next message of a host comes to the owner.
    fn lift(&mut self, host: usize) {
        let Some(action) = self.ups[host].pop_front() else { return };
        let up = action.up().unwrap();
        self.asked += usize::from(matches!(up, Up::Ask(..)));
        let bytes = stamped(0, Passage::Up(Space::Job, up));
        assert_eq!(unstamped(&bytes), Ok((0, Passage::Up(Space::Job, up))));
        self.home.receive(self.now, node(host), up);
        self.spread();
    }

    fn spread(&mut self) {
        while let Some((node, message)) = self.home.poll_action() {
            self.downs[node.index()].push_back(message);
        }
    }

    /// The next message of the owner comes to a host.
    fn lower(&mut self, host: usize) {
        let Some(message) = self.downs[host].pop_front() else { return };
        let bytes = stamped(0, Passage::Down(Space::Job, message.down()));
        assert_eq!(unstamped(&bytes), Ok((0, Passage::Down(Space::Job, message.down()))));
        // The first host is the owner's own.
        if host == 0 {
            self.relays[host].take(message);
        } else {
            self.relays[host].receive(message.down());
        }
        self.collect(host);
    }

    /// A host is lost, and what was under way with it.
    fn lose(&mut self, host: usize) {
        self.ups[host].clear();
        self.home.receive(self.now, node(host), Up::Lost);
        self.spread();
        self.downs[host].clear();
    }

    /// All that is on its way comes.
    fn exchange(&mut self) {
        while self.ups.iter().any(|all| !all.is_empty()) || self.downs.iter().any(|all| !all.is_empty()) {
            for host in 0..self.relays.len() {
                self.lift(host);
                self.lower(host);
            }
        }
    }

    /// Time passes, and messages come.
    fn later(&mut self, span: Span) {
        self.now = self.now + span;
        for host in 0..self.relays.len() {
            self.relays[host].handle_timeout(self.now);
            self.collect(host);
        }
        self.exchange();
        self.home.handle_timeout(self.now);
        self.spread();
        self.exchange();
    }

    fn answer(&mut self, host: usize, client: u32, ask: Ask<'_>) -> Vec<u8> {
        let ticket = self.ask(host, client, ask);
        self.exchange();
        self.of(ticket).expect("it does not wait")
    }

    fn of(&self, ticket: Ticket) -> Option<Vec<u8>> {
        self.said.iter().find(|(_, of, _)| *of == ticket).map(|(_, _, words)| words.clone())
    }
}

fn node(host: usize) -> NodeId {
    NodeId::new(u32::try_from(host).unwrap())
}

fn value_of(words: &[u8]) -> Option<Vec<u8>> {
    let Ok(Reply::Value(value)) = Reply::parse(words) else { panic!("{words:?} is no value") };
    value.map(<[u8]>::to_vec)
}

fn complaint(words: &[u8]) -> String {
    let Ok(Reply::Refused(Refused { text, .. })) = Reply::parse(words) else { panic!("{words:?} is no refusal") };
    String::from_utf8(text.to_vec()).unwrap()
}

/// The answer, as one that a store gives.
fn as_answer(words: &[u8]) -> Answer {
    let bytes = |value: Option<&[u8]>| value.map(Bytes::copy_from_slice);
    match Reply::parse(words).unwrap() {
        Reply::Done => Answer::Done,
        Reply::Missing => Answer::Missing,
        Reply::Value(value) => Answer::Value(bytes(value)),
        Reply::Values(values) => Answer::Values(values.into_iter().map(bytes).collect()),
        Reply::Number(number) => Answer::Number(number),
        Reply::Compared(set, now) => Answer::Compared { set, now: bytes(now) },
        Reply::Keys(_) | Reply::Changed(..) | Reply::Refused(_) => panic!("{words:?} was not asked for"),
    }
}

/// The requests of clients of several hosts.
struct History {
    calls: Vec<Call>,
    /// Requests of living hosts without an answer after all messages have arrived.
    stuck: Vec<Op>,
    asked: usize,
}

/// Clients, each with one request under way; messages keep their order on each way, and wait for any time. `loses`: at some moment a
/// host is lost with its clients, and what was on its way there and from there.
fn history(seed: u64, loses: bool) -> History {
    const HOSTS: usize = 3;
    const MOMENTS: usize = 160;
    let (mut site, mut rng) = (Site::new(3, 1), Rng(seed));
    site.is_beside = !loses && seed % 2 == 1;
    let mut calls: Vec<Call> = Vec::new();
    let mut open: Vec<Option<(Ticket, usize)>> = alloc::vec![None; HOSTS * 2];
    let loss = (rng.below(MOMENTS), rng.below(HOSTS));
    let is_lost = |moment: usize, host: usize| loses && moment >= loss.0 && host == loss.1;
    for moment in 0..=MOMENTS {
        if loses && moment == loss.0 {
            site.lose(loss.1);
            open.iter_mut().skip(loss.1).step_by(HOSTS).for_each(|slot| *slot = None);
        }
        match rng.below(4) {
            _ if moment == MOMENTS => site.exchange(),
            0 => site.lift(rng.below(HOSTS)),
            1 => site.lower(rng.below(HOSTS)),
            2 => site.lower(rng.below(HOSTS)),
            _ => {
                let who = rng.below(open.len());
                if open[who].is_none() && calls.len() < 14 && !is_lost(moment, who % HOSTS) {
                    let op = match rng.below(2) {
                        0 => Op::Get(0),
                        _ => rng.op(calls.len()),
                    };
                    let client = 1 + u32::try_from(who / HOSTS).unwrap();
                    calls.push(Call { op: op.clone(), asked: 2 * moment, answered: None });
                    open[who] = Some((site.ask(who % HOSTS, client, op.ask()), calls.len() - 1));
                }
            }
        }
        for slot in &mut open {
            if let Some((ticket, call)) = *slot
                && let Some(words) = site.of(ticket)
            {
                calls[call].answered = Some((2 * moment + 1, as_answer(&words)));
                *slot = None;
            }
        }
    }
    let stuck = open.into_iter().flatten().map(|(_, call)| calls[call].op.clone());
    let stuck = stuck.filter(|op| !matches!(op, Op::Take)).collect();
    History { calls, stuck, asked: site.asked }
}

#[test]
fn clients_on_other_hosts_see_the_same_store() {
    let (mut answered, mut asked) = (0, 0);
    for seed in 0..600 {
        let History { calls, stuck, asked: at_home } = history(seed, false);
        answered += calls.iter().filter(|call| call.answered.is_some()).count();
        asked += at_home;
        assert!(is_linearizable(&calls) && stuck.is_empty(), "seed {seed}: {stuck:?} {calls:#?}");
    }
    assert!(answered > 3_000, "most is answered: {answered}");
    assert!(asked < answered, "and some of it from memory: {asked} of {answered}");
}

#[test]
fn a_host_that_is_lost_holds_nobody_up_and_leaves_nothing_untrue() {
    for seed in 0..600 {
        let History { calls, stuck, .. } = history(seed, true);
        assert!(is_linearizable(&calls) && stuck.is_empty(), "seed {seed}: {stuck:?} {calls:#?}");
    }
}

#[test]
fn shared_key_is_requested_once_by_each_host() {
    let mut site = Site::new(4, 8);
    for rank in 0..32u32 {
        let key = format!("address/{rank}");
        site.answer(usize::try_from(rank / 8).unwrap(), 1 + rank % 8, Ask::Set(key.as_bytes(), b"somewhere"));
    }
    site.asked = 0;
    for rank in 0..32u32 {
        for other in 0..32 {
            let key = format!("address/{other}");
            let words = site.answer(usize::try_from(rank / 8).unwrap(), 1 + rank % 8, Ask::Get(key.as_bytes()));
            assert_eq!(value_of(&words).as_deref(), Some(&b"somewhere"[..]));
        }
    }
    assert_eq!(site.asked, 4 * 32, "hosts times keys, and not ranks times keys");
    let keys: Vec<String> = (0..32).map(|rank| format!("address/{rank}")).collect();
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    site.answer(0, 3, Ask::GetAll(&keys));
    site.answer(0, 3, Ask::Check(&keys));
    site.answer(0, 3, Ask::Wait { keys: &keys, within: None });
    assert_eq!(site.asked, 4 * 32, "nor for several at a time");
}

#[test]
fn several_who_ask_for_the_same_at_once_are_one() {
    let mut site = Site::new(1, 8);
    site.answer(0, 1, Ask::Set(b"k", b"v"));
    site.asked = 0;
    let all: Vec<Ticket> = (1..9).map(|client| site.ask(0, client, Ask::Get(b"k"))).collect();
    let waits: Vec<Ticket> =
        (1..9).map(|client| site.ask(0, client, Ask::Wait { keys: &[b"w"], within: None })).collect();
    site.exchange();
    assert!(all.iter().all(|ticket| value_of(&site.of(*ticket).unwrap()).is_some()));
    assert_eq!(site.asked, 2, "one get, one wait");
    let all: Vec<Ticket> = (1..9).map(|client| site.ask(0, client, Ask::Get(b"none"))).collect();
    site.exchange();
    assert!(all.iter().all(|ticket| value_of(&site.of(*ticket).unwrap()).is_none()));
    assert_eq!(core::mem::replace(&mut site.asked, 2), 4, "what is not there is not kept: those who came later, once");
    site.answer(0, 9, Ask::Set(b"w", b""));
    assert!(waits.iter().all(|ticket| site.of(*ticket).is_some()));
    assert!(site.asked <= 4, "the set, and once more for those who came later: {}", site.asked);
}

#[test]
fn change_of_cached_key_waits_for_caches() {
    let mut site = Site::new(3, 1);
    site.answer(0, 1, Ask::Set(b"k", b"old"));
    site.answer(1, 1, Ask::Get(b"k"));
    site.answer(2, 1, Ask::Get(b"k"));
    let set = site.ask(0, 1, Ask::Set(b"k", b"new"));
    site.lift(0);
    site.lower(1);
    site.lift(1);
    site.lower(0);
    assert_eq!(site.of(set), None, "host 2 still has the old value");
    site.exchange();
    assert_eq!(value_of(&site.answer(1, 1, Ask::Get(b"k"))).as_deref(), Some(&b"new"[..]));
    assert!(site.of(set).is_some());
    // A lost host delays no other.
    site.answer(2, 1, Ask::Get(b"k"));
    let set = site.ask(0, 1, Ask::Set(b"k", b"newer"));
    site.lift(0);
    site.lower(0);
    site.lower(1);
    site.lift(1);
    assert_eq!(site.of(set), None);
    site.home.receive(site.now, node(2), Up::Lost);
    site.spread();
    site.lower(0);
    assert_eq!(site.of(set).as_deref(), Some(&b"\0"[..]));
}

/// Number of requests that the owner receives for a fence of all.
fn owner_requests_of_fence(hosts: u32, each: u32) -> usize {
    let mut site = Site::new(hosts, each);
    let all = RankSet::world(hosts * each);
    for rank in 0..hosts * each {
        let who = ranks(&[rank]);
        let ask = Ask::Fence { name: b"f", all: &all, who: &who, within: Some(Span::from_secs(60)) };
        site.ask(usize::try_from(rank / each).unwrap(), 1 + rank % each, ask);
    }
    site.exchange();
    assert_eq!(site.said.len(), usize::try_from(hosts * each).unwrap());
    assert!(site.said.iter().all(|(_, _, words)| words == b"\0"));
    assert!(site.relays.iter().all(|relay| relay.poll_timeout().is_none()), "nothing is left of it");
    site.asked
}

#[test]
fn owner_receives_one_request_per_host_and_not_per_rank() {
    assert_eq!(owner_requests_of_fence(4, 1), 4);
    assert_eq!(owner_requests_of_fence(4, 256), 4);
    assert_eq!(owner_requests_of_fence(10_000, 2), 10_000);
}

#[test]
fn missing_ranks_at_a_fence_are_named() {
    let mut site = Site::new(3, 4);
    let all = RankSet::world(12);
    let arrive = |site: &mut Site, rank: u32, within| {
        let who = ranks(&[rank]);
        site.ask(
            usize::try_from(rank / 4).unwrap(),
            1 + rank % 4,
            Ask::Fence { name: b"f", all: &all, who: &who, within },
        )
    };
    let second = Some(Span::from_secs(1));
    let late: Vec<Ticket> = [0, 1, 4, 5, 6, 7].map(|rank| arrive(&mut site, rank, second)).into();
    let patient = arrive(&mut site, 9, None);
    site.later(Span::from_millis(20));
    site.later(Span::from_millis(980));
    for ticket in late {
        let words = site.of(ticket).unwrap();
        assert_eq!(complaint(&words), "ranks 2-3,8,10-11 have not arrived at the fence 'f'");
        let Ok(Reply::Refused(refused)) = Reply::parse(&words) else { panic!() };
        assert_eq!((refused.code, refused.within), (Code::TimedOut, second));
    }
    // The late ranks have arrived, nevertheless.
    for rank in [2, 3, 8, 10] {
        arrive(&mut site, rank, None);
        site.later(Span::from_secs(1));
    }
    assert_eq!(site.of(patient), None);
    let last = arrive(&mut site, 11, None);
    site.exchange();
    assert!(site.of(last).is_some() && site.of(patient).is_some());
}

#[test]
fn a_fence_that_is_another_is_refused_by_the_home() {
    let mut site = Site::new(2, 2);
    let (all, some, who) = (RankSet::world(4), ranks(&[0, 1, 2]), ranks(&[0]));
    site.ask(0, 1, Ask::Fence { name: b"f", all: &all, who: &who, within: None });
    site.later(Span::from_millis(20));
    let words = site.answer(0, 2, Ask::Fence { name: b"f", all: &some, who: &ranks(&[1]), within: None });
    assert_eq!(complaint(&words), "the fence 'f' is open for ranks 0-3, not for 0-2");
    let words = site.answer(0, 2, Ask::Fence { name: b"g", all: &who, who: &ranks(&[1]), within: None });
    assert_eq!(complaint(&words), "ranks 1 do not take part in the fence 'g'");
}

#[test]
fn a_wait_names_its_key_and_its_time_and_is_forgotten_with_its_client() {
    let mut site = Site::new(2, 2);
    let late = site.ask(0, 1, Ask::Wait { keys: &[b"k"], within: Some(Span::from_secs(2)) });
    let patient = site.ask(0, 2, Ask::Wait { keys: &[b"k"], within: None });
    site.exchange();
    site.later(Span::from_secs(2));
    assert_eq!(complaint(&site.of(late).unwrap()), "nobody has set 'k'");
    assert_eq!(site.of(patient), None);
    site.relays[0].gone(ClientId::new(2));
    site.collect(0);
    let cancelled = site.ups[0].iter().any(|up| matches!(up, CacheAction::Cancel(_)));
    assert!(cancelled, "nobody waits any more: {:?}", site.ups[0]);
    site.exchange();
    site.answer(1, 1, Ask::Set(b"k", b""));
    assert_eq!(site.of(patient), None, "no client is notified");
}

#[test]
fn a_space_that_is_gone_says_so_to_all_who_wait() {
    let mut site = Site::new(2, 2);
    let (all, who) = (RankSet::world(4), ranks(&[0]));
    let waits = [
        site.ask(0, 1, Ask::Fence { name: b"f", all: &all, who: &who, within: None }),
        site.ask(0, 2, Ask::Wait { keys: &[b"k"], within: Some(Span::from_secs(9)) }),
        site.ask(1, 1, Ask::Take { key: b"q", within: None }),
        site.ask(1, 2, Ask::Wait { keys: &[b"k", b"l"], within: None }),
    ];
    site.exchange();
    site.answer(0, 5, Ask::Set(b"kept", b"1"));
    site.answer(1, 4, Ask::Get(b"kept"));
    let deferred = site.ask(0, 3, Ask::Set(b"kept", b"2"));
    site.lift(0);
    let in_flight = site.ask(1, 3, Ask::Get(b"k"));
    for host in 0..2 {
        site.relays[host].receive(Down::Closed);
        site.collect(host);
    }
    let said = site.said.len();
    site.exchange();
    assert_eq!(site.said.len(), said, "what is late is no second answer");
    for ticket in waits.into_iter().chain([in_flight, deferred]) {
        assert_eq!(complaint(&site.of(ticket).unwrap()), "the namespace is gone");
    }
    assert_eq!(complaint(&site.answer(0, 1, Ask::Get(b"k"))), "the namespace is gone");
}

#[test]
fn an_answer_is_never_longer_than_a_message() {
    let mut site = Site::new(1, 1);
    let long = alloc::vec![7; 512 << 10];
    for key in [b"a", b"b", b"c"] {
        site.answer(0, 1, Ask::Set(key, &long));
    }
    let words = site.answer(0, 1, Ask::GetAll(&[b"a", b"b", b"c"]));
    assert!(complaint(&words).starts_with("the answer would have 1572888 bytes; the longest may have "));
    site.answer(0, 1, Ask::Get(b"a"));
    site.answer(0, 1, Ask::Get(b"b"));
    site.answer(0, 1, Ask::Get(b"c"));
    let words = site.answer(0, 1, Ask::GetAll(&[b"a", b"b", b"c"]));
    assert!(complaint(&words).starts_with("the answer would have 1572888 bytes"), "from memory too");
    for n in 0..200 {
        site.answer(0, 1, Ask::Set(format!("{n:08000}").as_bytes(), b""));
    }
    let mut after: Option<Vec<u8>> = None;
    let mut found = 0;
    loop {
        let words = site.answer(0, 1, Ask::List { prefix: b"0", after: after.as_deref(), most: usize::MAX });
        assert!(words.len() < 1 << 20);
        let Ok(Reply::Keys(keys)) = Reply::parse(&words) else { panic!() };
        let Some(last) = keys.last() else { break };
        (found, after) = (found + keys.len(), Some(last.to_vec()));
    }
    assert_eq!(found, 200);
}

#[test]
fn launcher_messages_may_be_any_bytes() {
    let mut site = Site::new(1, 1);
    let ticket = Ticket { client: crate::store::cache::ITSELF, seq: Seq(9) };
    site.relays[0].receive(Down::Answer(ticket, true, b"nonsense"));
    site.relays[0].receive(Down::Drop(b"unknown"));
    site.home.receive(site.now, node(0), Up::Ask(ticket, b"nonsense"));
    site.home.receive(site.now, node(0), Up::Dropped(b"unknown"));
    site.home.receive(site.now, node(0), Up::Gone(ClientId::new(7)));
    assert_eq!(site.home.poll_action(), None);
    site.ask(0, 1, Ask::Get(b"k"));
    site.ups[0].clear();
    site.relays[0].receive(Down::Answer(Ticket { seq: Seq(1), ..ticket }, true, b"nonsense"));
    assert!(site.relays[0].poll_action().is_some(), "its agent and its home are of one version: passed on as it is");
}

#[test]
fn value_read_during_pending_change_is_not_cached() {
    let mut site = Site::new(3, 2);
    site.answer(0, 1, Ask::Set(b"a", b"1"));
    site.answer(0, 1, Ask::Set(b"b", b"1"));
    site.answer(1, 11, Ask::Get(b"a"));
    // The second host keeps a: the change waits for it. Meanwhile the third reads b.
    let change = site.ask(0, 1, Ask::SetAll(&[(b"a", b"2"), (b"b", b"2")]));
    site.lift(0);
    let read = site.ask(2, 21, Ask::Get(b"b"));
    site.lift(2);
    site.lower(2);
    assert_eq!(value_of(&site.of(read).unwrap()), Some(b"1".to_vec()));
    assert_eq!(site.of(change), None);
    site.exchange();
    assert!(site.of(change).is_some());
    assert_eq!(value_of(&site.answer(2, 21, Ask::Get(b"b"))), Some(b"2".to_vec()));
    // A client that has withdrawn its request delays no other.
    let asked = site.asked;
    site.answer(2, 22, Ask::Get(b"b"));
    assert_eq!(site.asked, asked, "what does not change is kept");
    site.answer(1, 11, Ask::Get(b"a"));
    site.ask(0, 1, Ask::SetAll(&[(b"a", b"3"), (b"c", b"3")]));
    site.lift(0);
    site.relays[0].gone(ClientId::new(1));
    site.collect(0);
    site.exchange();
    site.answer(0, 2, Ask::Set(b"c", b"4"));
    site.answer(2, 21, Ask::Get(b"c"));
    let asked = site.asked;
    site.answer(2, 21, Ask::Get(b"c"));
    assert_eq!(site.asked, asked);
}

#[test]
fn query_of_missing_ranks_does_not_arrive_at_next_fence() {
    let mut site = Site::new(2, 1);
    let (all, own, other) = (RankSet::world(2), ranks(&[0]), ranks(&[1]));
    let within = Some(Span::from_millis(100));
    let late = site.ask(1, 1, Ask::Fence { name: b"f", all: &all, who: &other, within });
    site.exchange();
    let first = site.ask(0, 1, Ask::Fence { name: b"f", all: &all, who: &own, within: None });
    site.lift(0);
    // The fence is complete; the answer is on its way to the second host, where the time has expired.
    site.now = site.now + Span::from_millis(100);
    site.relays[1].handle_timeout(site.now);
    site.collect(1);
    site.exchange();
    let done = |reply: Option<Vec<u8>>| reply.is_some_and(|words| Reply::parse(&words) == Ok(Reply::Done));
    assert!(done(site.of(first)) && done(site.of(late)), "both have come: {:?}", site.said);
    let next = site.ask(0, 1, Ask::Fence { name: b"f", all: &all, who: &own, within: None });
    site.exchange();
    assert_eq!(site.of(next), None, "the other has not come to this one");
}
