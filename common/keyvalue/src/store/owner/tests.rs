//! Changes of keys that agents keep: their order, and the end of the hosts that asked for them.

use super::*;

const NOW: Mono = Mono::from_nanos(1);

/// A request of a client of an agent. Client 0 is the agent's cache.
fn ask(owner: &mut Owner, node: u32, (client, seq): (u32, u64), ask: Ask<'_>) {
    let ticket = Ticket { client: ClientId::new(client), seq: Seq(seq) };
    owner.receive(NOW, NodeId::new(node), Up::Ask(ticket, &Words::write(ask)));
}

/// An owner with a value at each of these keys. Node 2 keeps the values.
fn owner_with_kept(keys: &[&[u8]]) -> Owner {
    let mut owner = Owner::default();
    for (seq, key) in (1..).zip(keys) {
        ask(&mut owner, 1, (1, seq), Ask::Set(key, b"old"));
        ask(&mut owner, 2, (0, seq), Ask::Get(key));
    }
    answered(&mut owner);
    owner
}

fn drop_key(owner: &mut Owner, node: u32, key: &[u8]) {
    owner.receive(NOW, NodeId::new(node), Up::Dropped(key));
}

fn value(owner: &Owner, key: &[u8]) -> Option<Vec<u8>> {
    owner.space.get(key).map(|value| value.to_vec())
}

/// The nodes that got answers since the last call.
fn answered(owner: &mut Owner) -> Vec<u32> {
    let sent = core::iter::from_fn(|| owner.poll_action());
    sent.filter(|(_, message)| matches!(message, ToCache::Answer(..))).map(|(node, _)| node.get()).collect()
}

#[test]
fn first_request_of_a_client_is_withdrawn_with_its_lost_host() {
    let mut owner = owner_with_kept(&[b"k"]);
    ask(&mut owner, 3, (1, 1), Ask::Set(b"k", b"ghost"));
    owner.receive(NOW, NodeId::new(3), Up::Lost);
    drop_key(&mut owner, 2, b"k");
    assert_eq!(value(&owner, b"k"), Some(b"old".to_vec()));
    assert!(!owner.by_node.contains_key(&NodeId::new(3)), "{:?}", owner.by_node);
    assert!(owner.deferred.is_empty() && owner.changing.is_empty() && owner.closing.is_empty());
    assert!(answered(&mut owner).is_empty());
}

#[test]
fn lost_host_leaves_no_entry_among_readers() {
    let mut owner = owner_with_kept(&[b"a", b"b"]);
    ask(&mut owner, 3, (0, 1), Ask::Get(b"b"));
    owner.receive(NOW, NodeId::new(2), Up::Lost);
    let readers: Vec<_> = owner.readers.iter().map(|(key, nodes)| (key.to_vec(), nodes.clone())).collect();
    assert_eq!(readers, [(b"b".to_vec(), [Rank::new(3)].into_iter().collect::<RankSet>())]);
}

#[test]
fn later_change_does_not_overtake_deferred_change_of_its_key() {
    type Keys = &'static [&'static [u8]];
    let cases: [(Keys, Keys); 2] = [(&[b"a"], &[b"a"]), (&[b"a", b"b"], &[b"b", b"a"])];
    for (kept, drops) in cases {
        let mut owner = owner_with_kept(kept);
        let before = value(&owner, b"b");
        ask(&mut owner, 1, (1, 8), Ask::SetAll(&[(b"a", b"1"), (b"b", b"1")]));
        ask(&mut owner, 1, (1, 9), Ask::Set(b"b", b"2"));
        ask(&mut owner, 1, (2, 1), Ask::Set(b"c", b"1"));
        assert_eq!((value(&owner, b"b"), value(&owner, b"c")), (before, Some(b"1".to_vec())));
        for key in drops {
            assert_eq!(value(&owner, b"a"), Some(b"old".to_vec()));
            drop_key(&mut owner, 2, key);
        }
        assert_eq!((value(&owner, b"a"), value(&owner, b"b")), (Some(b"1".to_vec()), Some(b"2".to_vec())));
        assert!(owner.deferred.is_empty() && owner.changing.is_empty());
    }
}

#[test]
fn withdrawn_change_delays_no_later_change() {
    let mut owner = owner_with_kept(&[b"a"]);
    ask(&mut owner, 1, (1, 8), Ask::SetAll(&[(b"a", b"1"), (b"b", b"1")]));
    ask(&mut owner, 1, (2, 1), Ask::Set(b"b", b"2"));
    assert_eq!(value(&owner, b"b"), None);
    owner.receive(NOW, NodeId::new(1), Up::Gone(ClientId::new(1)));
    assert_eq!((value(&owner, b"a"), value(&owner, b"b")), (Some(b"old".to_vec()), Some(b"2".to_vec())));
}

/// Node 3 has arrived at a fence, and node 1 changes a key that node 2 keeps and arrives without waiting for the answer.
fn owner_with_arrivals() -> Owner {
    let mut owner = owner_with_kept(&[b"k"]);
    let all = RankSet::world(2);
    let fence = |who: &RankSet| Words::write(Ask::Fence { name: b"f", all: &all, who, within: None });
    let ticket = Ticket { client: ITSELF, seq: Seq(1) };
    let [first, second] = [0, 1].map(|rank| fence(&[Rank::new(rank)].into_iter().collect()));
    owner.receive(NOW, NodeId::new(3), Up::Ask(ticket, &first));
    ask(&mut owner, 1, (1, 9), Ask::Set(b"k", b"new"));
    owner.receive(NOW, NodeId::new(1), Up::Ask(ticket, &second));
    assert!(answered(&mut owner).is_empty(), "a rank of node 3 would read the old value after the fence");
    owner
}

#[test]
fn fence_completes_after_earlier_changes_of_its_hosts() {
    let mut owner = owner_with_arrivals();
    drop_key(&mut owner, 2, b"k");
    assert_eq!(value(&owner, b"k"), Some(b"new".to_vec()));
    let mut nodes = answered(&mut owner);
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 1, 3], "the change, and both arrivals");
}

#[test]
fn deferred_arrival_that_is_cancelled_counts() {
    let mut owner = owner_with_arrivals();
    owner.receive(NOW, NodeId::new(1), Up::Cancel(Ticket { client: ITSELF, seq: Seq(1) }));
    assert!(answered(&mut owner).is_empty());
    owner.receive(NOW, NodeId::new(1), Up::Gone(ClientId::new(1)));
    assert_eq!(value(&owner, b"k"), Some(b"old".to_vec()));
    assert!(answered(&mut owner).contains(&3), "all have come");
}
