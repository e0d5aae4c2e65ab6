//! Data of PMIx for ranks of the same host: after a fence the first answer brings that of all.

use super::{Rig, Writer, hello, request, world};
use alloc::format;
use alloc::vec::Vec;
use rlaunch_base::id::ClientId;
use rlaunch_protocol::wire::pmix::{ALL_RANKS, Proc};

fn command(number: u8) -> Writer {
    let mut body = Writer::new(false);
    body.raw(&[0, 0, 0, 1, number]);
    body
}

/// Ranks of one host.
fn ranks() -> (Rig, [ClientId; 3]) {
    let mut rig = Rig::new(world(3));
    let clients = [0, 1, 2].map(|rank| {
        let client = rig.mpi.open();
        rig.send(client, &hello(rank));
        client
    });
    (rig, clients)
}

fn commit(rig: &mut Rig, client: ClientId, value: &str) {
    let mut data = Writer::new(false);
    data.key_text(b"key", value.as_bytes());
    let data = data.into_bytes();
    let mut body = command(2);
    body.raw(&[0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 0, 15]).raw(&(data.len() as u64).to_be_bytes()).raw(&data);
    rig.send(client, &request(1, body));
}

fn fence(rig: &mut Rig, clients: &[ClientId]) {
    for client in clients {
        let mut body = command(3);
        body.procs([Proc { nspace: b"world", rank: ALL_RANKS }].into_iter()).size(0);
        rig.send(*client, &request(2, body));
    }
}

/// The values in the answer to a request for data of a rank.
fn get(rig: &mut Rig, client: ClientId, of: u32) -> Vec<&'static str> {
    let mut body = command(4);
    body.string(b"world").rank(of).size(0);
    rig.written.clear();
    rig.send(client, &request(3, body));
    let answer = rig.written.remove(&client).unwrap();
    let is_there = |value: &&str| answer.windows(value.len()).any(|part| part == value.as_bytes());
    ["value0", "value1", "value2", "later2"].into_iter().filter(is_there).collect()
}

#[test]
fn first_answer_after_a_fence_brings_the_data_of_all_ranks_of_the_host() {
    let (mut rig, clients) = ranks();
    for (number, client) in clients.iter().enumerate() {
        commit(&mut rig, *client, &format!("value{number}"));
    }
    assert_eq!(get(&mut rig, clients[0], 1), ["value1"], "before a fence each rank is asked for");
    fence(&mut rig, &clients);
    assert_eq!(get(&mut rig, clients[0], 1), ["value0", "value1", "value2"]);
    assert_eq!(get(&mut rig, clients[0], 1), ["value1"], "the others are known");
    assert_eq!(get(&mut rig, clients[1], 2), ["value0", "value1", "value2"], "each process gets them");
    fence(&mut rig, &clients);
    assert_eq!(get(&mut rig, clients[0], 2), ["value2"], "nothing is new");
    commit(&mut rig, clients[2], "later2");
    assert_eq!(get(&mut rig, clients[0], 1), ["value1"], "others have not met since");
    fence(&mut rig, &clients);
    assert_eq!(get(&mut rig, clients[0], 1), ["value0", "value1", "value2", "later2"]);
}

#[test]
fn long_data_is_sent_for_the_rank_that_was_asked_for() {
    let (mut rig, clients) = ranks();
    for (number, client) in clients.iter().enumerate() {
        commit(&mut rig, *client, &format!("value{number}{}", "x".repeat(200 << 10)));
    }
    fence(&mut rig, &clients);
    assert_eq!(get(&mut rig, clients[0], 1), ["value1"]);
}

#[test]
fn process_that_follows_another_of_its_rank_gets_the_data_of_all() {
    let (mut rig, clients) = ranks();
    for (number, client) in clients.iter().enumerate() {
        commit(&mut rig, *client, &format!("value{number}"));
    }
    fence(&mut rig, &clients);
    assert_eq!(get(&mut rig, clients[0], 1).len(), 3);
    rig.mpi.closed(clients[0]);
    let again = rig.mpi.open();
    rig.send(again, &hello(0));
    assert_eq!(get(&mut rig, again, 1), ["value1", "value2"], "its rank has begun anew");
}
