//! Groups of PMIx: each library gets the answer that its version reads.

use super::{Header, Rig, Writer, hello_of_version, request, world};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use rlaunch_protocol::wire::pmix::{GroupForm, HEADER, Proc};

/// Both ranks make a group, as one of them sends it.
fn begin() -> Vec<u8> {
    let mut body = Writer::new(false);
    body.raw(&[0, 0, 0, 1, 24]).string(b"group");
    body.procs([0, 1].map(|rank| Proc { nspace: b"world", rank }).into_iter()).size(0);
    request(3, body)
}

/// A group of both ranks: the answers, without their headers.
fn group(rig: &mut Rig, versions: [&str; 2]) -> Vec<Vec<u8>> {
    let clients = [0, 1].map(|rank| {
        let client = rig.mpi.open();
        rig.send(client, &hello_of_version("world", rank, versions[usize::try_from(rank).unwrap()]));
        client
    });
    rig.written.clear();
    for client in clients {
        rig.send(client, &begin());
    }
    let answer = |client| {
        let bytes = rig.written.remove(client).unwrap();
        assert_eq!(Header::parse(&bytes), Ok(Some(Header { tag: 3, len: bytes.len() - HEADER })));
        bytes[HEADER..].to_vec()
    };
    clients.iter().map(answer).collect()
}

/// A SIZE as it is packed.
fn size(number: u64) -> Vec<u8> {
    [&[0, 0, 0, 1, 0, 15][..], &number.to_be_bytes()].concat()
}

#[test]
fn answer_about_a_group_has_the_form_of_the_version() {
    let (status, one_true) = ([0, 0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1]);
    let mut members = Writer::new(false);
    members.procs([0, 1].map(|rank| Proc { nspace: b"world", rank }).into_iter());
    let members = members.into_bytes();
    let mut rig = Rig::new(world(2));
    // Two libraries in one job, and a number for each group.
    let mixed = group(&mut rig, ["4.2.2", "5.0.11rc1"]);
    assert_eq!(mixed, [[&status[..], &size(1)].concat(), [&status[..], &members, &size(1)].concat()]);
    let newest = group(&mut rig, ["6.1.0", "6.1.0"]);
    assert_eq!(newest[0], [&status[..], &members, &one_true, &size(2), &size(0)].concat());
    assert_eq!(newest.into_iter().collect::<BTreeSet<_>>().len(), 1);
}

/// The end of the group of both ranks, as one of them sends it.
fn end(members: u32) -> Vec<u8> {
    let mut body = Writer::new(false);
    body.raw(&[0, 0, 0, 1, 28]).string(b"group");
    let all = (0..members).map(|rank| Proc { nspace: b"world", rank });
    if members == 0 {
        body.size(0)
    } else {
        body.procs(all.collect::<Vec<_>>().into_iter())
    };
    body.size(0);
    request(4, body)
}

#[test]
fn end_of_a_group_waits_for_all_members() {
    let mut rig = Rig::new(world(3));
    let [a, b, other] = [0, 1, 2].map(|rank| {
        let client = rig.mpi.open();
        rig.send(client, &hello_of_version("world", rank, "5.0"));
        client
    });
    rig.written.clear();
    for _ in 0..2 {
        rig.send(a, &end(2));
        assert!(rig.written.is_empty(), "it waits for the other");
        rig.send(b, &end(2));
        let [one, two] = [a, b].map(|client| rig.written.remove(&client).unwrap());
        assert_eq!((&one[HEADER..], &two[HEADER..]), (&[0, 0, 0, 1, 0, 0, 0, 0][..], &one[HEADER..]));
    }
    // A rank that is no member, and a group without members.
    rig.send(other, &end(2));
    assert_ne!(rig.written.remove(&other).unwrap()[HEADER..], [0, 0, 0, 1, 0, 0, 0, 0]);
    rig.send(other, &end(0));
    assert_eq!(rig.written.remove(&other).unwrap()[HEADER..], [0, 0, 0, 1, 0, 0, 0, 0]);
}

/// Version 4.2 of the library names no members when a group ends.
#[test]
fn end_without_members_waits_for_those_that_have_made_the_group() {
    let mut rig = Rig::new(world(3));
    let [a, b, other] = [0, 1, 2].map(|rank| {
        let client = rig.mpi.open();
        rig.send(client, &hello_of_version("world", rank, "4.2.2"));
        client
    });
    for _ in 0..2 {
        rig.send(a, &begin());
        rig.send(b, &begin());
        rig.written.clear();
        rig.send(other, &end(0));
        assert_eq!(rig.written.remove(&other).unwrap()[HEADER..], [0, 0, 0, 1, 0, 0, 0, 0], "it is in no such group");
        rig.send(b, &end(0));
        assert!(rig.written.is_empty(), "it waits for the other");
        rig.send(a, &end(0));
        assert_eq!(rig.written.len(), 2);
    }
    // The group has ended.
    rig.written.clear();
    rig.send(a, &end(0));
    assert_eq!(rig.written.len(), 1);
}

/// A member that has finalized never comes, whether it did so before or after the others.
#[test]
fn end_of_a_group_waits_for_no_member_that_has_finalized() {
    for is_before in [true, false] {
        let mut rig = Rig::new(world(2));
        let [a, b] = [0, 1].map(|rank| {
            let client = rig.mpi.open();
            rig.send(client, &hello_of_version("world", rank, "5.0"));
            client
        });
        let finalize = || {
            let mut body = Writer::new(false);
            body.raw(&[0, 0, 0, 1, 5]).size(0);
            request(5, body)
        };
        if is_before {
            rig.send(b, &finalize());
        }
        rig.written.clear();
        rig.send(a, &end(2));
        if !is_before {
            assert!(rig.written.is_empty());
            rig.send(b, &finalize());
        }
        assert_eq!(rig.written.remove(&a).unwrap()[HEADER..], [0, 0, 0, 1, 0, 0, 0, 0]);
    }
}

#[test]
fn versions_have_a_form_of_their_answer() {
    for version in ["3.2.5a1", "4.1.2", "4.2.2", "4.2.4rc1"] {
        assert_eq!(GroupForm::of(version.as_bytes()), GroupForm::Number, "{version}");
    }
    for version in ["4.2.5", "4.2.9", "4.3", "5.0", "5.0.11rc1", "", "x", "v5"] {
        assert_eq!(GroupForm::of(version.as_bytes()), GroupForm::Members, "{version}");
    }
    for version in ["6.0.0", "6.1.0a1", "7", "99999999999.1"] {
        assert_eq!(GroupForm::of(version.as_bytes()), GroupForm::Facts, "{version}");
    }
}
