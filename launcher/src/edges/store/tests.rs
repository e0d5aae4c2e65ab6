//! The store when hosts are lost or slow: for clients that wait there, and for clients whose owner is there.

use super::*;
use rlaunch_base::id::{AppIndex, ClientId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_keyvalue::store::transit::MOST;
use rlaunch_keyvalue::store::{Ask, Seq, Ticket};
use rlaunch_protocol::wire::frozen::client::{Code, Reply, Words};

const A: NodeId = NodeId::new(0);
const B: NodeId = NodeId::new(1);
const C: NodeId = NodeId::new(2);

/// Ranks meet on this host for the third time.
fn met(home: NodeId) -> Store {
    let mut store = Store::new(home);
    store.begin(home, 3);
    store
}

fn says(store: &mut Store, node: NodeId, space: Space, up: Up<'_>) {
    store.receive(node, node, &stamped(3, Passage::Up(space, up)));
}

/// The first client of a host asks.
fn asks(store: &mut Store, node: NodeId, space: Space, seq: u64, ask: Ask<'_>) {
    let ticket = Ticket { client: ClientId::new(0), seq: Seq(seq) };
    says(store, node, space, Up::Ask(ticket, &Words::write(ask)));
}

/// Returns the messages on their way to a host, and their senders.
fn sent(store: &mut Store, node: NodeId) -> Vec<(NodeId, &'static str, u64)> {
    let mut waiting = store.out.remove(&node).unwrap_or_default();
    let message = |(of, bytes): (NodeId, Vec<u8>)| match unstamped(&bytes).unwrap().1 {
        Passage::Down(_, Down::Answer(ticket, ..)) => (of, "an answer", ticket.seq.0),
        Passage::Down(_, Down::Drop(_)) => (of, "a key to forget", 0),
        Passage::Down(Space::Generation, Down::Closed) => (of, "the end", 0),
        Passage::Up(Space::Generation, Up::Ask(ticket, _)) => (of, "an ask", ticket.seq.0),
        Passage::Up(Space::Generation, Up::Lost) => (of, "a loss", 0),
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| waiting.pop()).map(message).collect()
}

#[test]
fn lost_host_does_not_delay_change_of_key_that_the_host_has_read() {
    let mut store = met(A);
    asks(&mut store, A, Space::Job, 1, Ask::Set(b"k", b"v"));
    asks(&mut store, B, Space::Job, 1, Ask::Get(b"k"));
    asks(&mut store, A, Space::Job, 2, Ask::Set(b"k", b"w"));
    assert_eq!(sent(&mut store, A), [(A, "an answer", 1)], "B may still give the old value");
    assert_eq!(sent(&mut store, B), [(B, "an answer", 1), (B, "a key to forget", 0)]);
    store.lost(B);
    assert_eq!(sent(&mut store, A), [(A, "an answer", 2)]);
    assert_eq!(sent(&mut store, B), []);
}

#[test]
fn waiter_on_lost_host_takes_no_item() {
    let mut store = met(A);
    asks(&mut store, B, Space::Job, 1, Ask::Take { key: b"queue", within: None });
    asks(&mut store, C, Space::Job, 1, Ask::Take { key: b"queue", within: None });
    let all: RankSet = (0..2).map(Rank::new).collect();
    let callers: RankSet = [Rank::new(1)].into_iter().collect();
    asks(&mut store, B, Space::Job, 2, Ask::Fence { name: b"f", all: &all, who: &callers, within: None });
    store.lost(B);
    asks(&mut store, A, Space::Job, 1, Ask::Push(b"queue", b"item"));
    assert_eq!(sent(&mut store, B), [], "it was first, and is gone");
    assert_eq!(sent(&mut store, C), [(C, "an answer", 1)]);
}

#[test]
fn generation_owner_learns_of_lost_host_that_sent_a_request() {
    let mut store = met(A);
    asks(&mut store, B, Space::Generation, 5, Ask::Get(b"k"));
    assert_eq!(sent(&mut store, A), [(B, "an ask", 5)]);
    store.lost(C);
    assert_eq!(sent(&mut store, A), [], "it has asked nothing");
    store.lost(B);
    assert_eq!(sent(&mut store, A), [(B, "a loss", 0)]);
}

#[test]
fn clients_learn_of_lost_owner_then_and_later() {
    let mut store = met(A);
    asks(&mut store, B, Space::Generation, 5, Ask::Wait { keys: &[b"k"], within: None });
    store.lost(A);
    assert_eq!(sent(&mut store, A), [], "nothing is kept for one that is gone");
    assert_eq!(sent(&mut store, B), [(B, "the end", 0)]);
    asks(&mut store, C, Space::Generation, 1, Ask::Get(b"k"));
    assert_eq!(sent(&mut store, C), [(C, "the end", 0)]);
    let mut placement = Placement::here("b", [1]);
    placement.ranks.iter_mut().for_each(|placed| placed.node = B);
    store.place(&placement);
    asks(&mut store, C, Space::Generation, 2, Ask::Get(b"k"));
    assert_eq!(sent(&mut store, B), [(C, "an ask", 2)], "it is elsewhere now");
}

/// A host that asks and takes no answers is given no more of them, in either namespace.
#[test]
fn answers_for_slow_client_host_are_bounded() {
    let mut store = met(A);
    asks(&mut store, A, Space::Job, 1, Ask::Set(b"k", &vec![b'v'; 500 << 10]));
    let size = store.out.get(&A).map_or(0, Transit::bytes);
    let read = |client| {
        let ticket = Ticket { client: ClientId::new(client), seq: Seq(1) };
        stamped(3, Passage::Up(Space::Job, Up::Ask(ticket, &Words::write(Ask::Get(b"k")))))
    };
    let asks = u32::try_from(2 * MOST / (500 << 10)).unwrap();
    (1..=asks).for_each(|client| store.receive(B, B, &read(client)));
    let waits = store.out.get(&B).map_or(0, Transit::bytes);
    assert!(waits > MOST && waits < MOST + (2 << 20), "{waits} wait");
    let ticket = Ticket { client: ClientId::new(1), seq: Seq(2) };
    says(&mut store, B, Space::Generation, Up::Ask(ticket, &Words::write(Ask::Get(b"k"))));
    assert_eq!(store.out.get(&A).map_or(0, Transit::bytes), size, "nor is it asked for elsewhere");
    // The host continues.
    while store.out.get_mut(&B).and_then(Transit::pop).is_some() {}
    says(&mut store, B, Space::Generation, Up::Ask(ticket, &Words::write(Ask::Get(b"k"))));
    assert!(store.out.get(&A).map_or(0, Transit::bytes) > size);
}

/// Rank 0's host takes nothing: what others ask is refused to them, one by one, and their launcher stays small.
#[test]
fn requests_for_slow_owner_are_bounded_and_refused() {
    let (home, other) = (NodeId::new(0), NodeId::new(1));
    let mut store = met(home);
    let words = Words::write(Ask::Set(b"k", &vec![b'v'; 500 << 10]));
    let frame = |client: u32| {
        let ticket = Ticket { client: ClientId::new(client), seq: Seq(1) };
        (ticket, stamped(3, Passage::Up(Space::Generation, Up::Ask(ticket, &words))))
    };
    let asks = u32::try_from(2 * MOST / words.len()).unwrap();
    for client in 1..=asks {
        store.receive(other, other, &frame(client).1);
    }
    let mut refused = Vec::new();
    while let Some((of, bytes)) = store.out.get_mut(&other).and_then(Transit::pop) {
        let Ok((3, Passage::Down(Space::Generation, Down::Answer(ticket, false, words)))) = unstamped(&bytes) else {
            panic!("{bytes:?}")
        };
        let Ok(Reply::Refused(refusal)) = Reply::parse(words) else { panic!("{words:?}") };
        refused.push(ticket);
        assert_eq!((of, refusal.code), (other, Code::Limit));
    }
    let waits: Vec<usize> =
        std::iter::from_fn(|| store.out.get_mut(&home).and_then(Transit::pop)).map(|(_, bytes)| bytes.len()).collect();
    assert!(waits.iter().sum::<usize>() <= MOST + words.len(), "{} wait", waits.len());
    let taken = u32::try_from(waits.len()).unwrap();
    assert_eq!(refused, (taken + 1..=asks).map(|client| frame(client).0).collect::<Vec<_>>(), "who came too late");
    // The host continues.
    store.receive(other, other, &frame(7).1);
    assert!(store.out.get(&other).is_none_or(Transit::is_empty));
}

#[test]
fn groups_have_keys_from_the_first_request_on() {
    let mut store = met(A);
    let mut placement = Placement::here("a", [1, 2]);
    for group in ["", "gen"] {
        placement.worlds.add_program(World::named(group.into()));
    }
    store.place(&placement);
    store.place(&placement);
    assert_eq!(store.unpublished, [(b"rlaunch/groups/gen".to_vec(), b"size=2\n".to_vec())].into());
    asks(&mut store, A, Space::Job, 1, Ask::Get(b"rlaunch/groups/gen"));
    assert_eq!(store.unpublished, BTreeMap::new());
}

#[test]
fn last_of_groups_with_the_same_name_has_the_key() {
    let mut store = met(A);
    let mut placement = Placement::here("a", [1, 2, 3]);
    for group in ["", "gen"] {
        placement.worlds.add_program(World::named(group.into()));
    }
    store.place(&placement);
    placement.worlds.spawn(World::named("gen".into()), [AppIndex::new(2)]);
    store.place(&placement);
    assert_eq!(store.unpublished, [(b"rlaunch/groups/gen".to_vec(), b"size=3\n".to_vec())].into());
}
