//! Requests that the store has refused, and processes that depend on them.

use super::{Action, Answer, Layout, Refusal, Rig, Writer, hello, host, request, world, write_reply};
use alloc::vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::time::Mono;
use rlaunch_protocol::wire::pmix::{ALL_RANKS, Proc, status};

/// The host of ranks 0 and 1, beside another one.
fn first_host() -> Rig {
    let hosts = vec![host("a", &[(0, 1)]), host("b", &[(2, 3)])];
    Rig::new(Layout { hosts, apps: vec![4], ..world(4) })
}

/// Both ranks of the host, by PMIx.
fn ranks_of_pmix(rig: &mut Rig) -> [ClientId; 2] {
    let clients = [0, 1].map(|rank| {
        let client = rig.mpi.open();
        rig.send(client, &hello(rank));
        client
    });
    rig.written.clear();
    clients
}

fn command(number: u8) -> Writer {
    let mut body = Writer::new(false);
    body.raw(&[0, 0, 0, 1, number]);
    body
}

fn fence(rig: &mut Rig, client: ClientId) {
    let mut body = command(3);
    body.procs(core::iter::once(Proc { nspace: b"world", rank: ALL_RANKS })).size(0);
    rig.send(client, &request(1, body));
}

/// A process asks for data of a rank of the other host.
fn get(rig: &mut Rig, client: ClientId) {
    let mut body = command(4);
    body.string(b"world").rank(3).size(0);
    rig.send(client, &request(2, body));
}

/// A process commits data, which the store is sent after a moment.
fn commit(rig: &mut Rig, client: ClientId) {
    let mut data = Writer::new(false);
    data.key_text(b"key", b"value");
    let data = data.into_bytes();
    let mut body = command(2);
    body.raw(&[0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 0, 15]).raw(&(data.len() as u64).to_be_bytes()).raw(&data);
    rig.send(client, &request(3, body));
    let due = rig.mpi.poll_timeout().unwrap();
    rig.pass(due);
    rig.written.clear();
}

/// A process publishes two values.
fn publish(rig: &mut Rig, client: ClientId) {
    let mut body = command(6);
    body.raw(&[0, 0, 0, 1, 0, 0, 0, 0]).size(2).raw(&[0, 0, 0, 2]);
    for name in [b'a', b'b'] {
        body.raw(&[0, 0, 0, 2, name, 0]).raw(&[0, 0, 0, 0, 0, 3]).raw(b"\0\0\0\x02v\0");
    }
    rig.send(client, &request(4, body));
}

fn answer(rig: &mut Rig, seq: u64, answer: Answer) {
    rig.mpi.answered(Mono::from_nanos(1), seq, &write_reply(&answer));
    rig.drain();
}

/// The store refuses all requests.
fn refuse(rig: &mut Rig, refusal: &Refusal) {
    let asked = core::mem::take(&mut rig.asked);
    assert!(!asked.is_empty());
    asked.into_iter().for_each(|(seq, _)| answer(rig, seq, Answer::Refused(refusal.clone())));
}

const WAITING: Refusal = Refusal::ManyWaiting { most: 8 };

/// Whether the user reads the words of [`WAITING`], once, beside rank 0.
fn is_shown(rig: &Rig) -> bool {
    let text = "rlaunch: the store has refused a request of MPI: 8 requests wait already\n  \
                try     wait for several keys with one request";
    rig.others == [Action::Log { rank: Rank::new(0), text: text.into(), help: None }]
}

/// The status at the end of an answer of PMIx.
fn status_of(rig: &mut Rig, client: ClientId) -> i32 {
    let answer = rig.written.remove(&client).unwrap();
    i32::from_be_bytes(*answer.last_chunk().unwrap())
}

fn closed(rig: &Rig) -> alloc::vec::Vec<ClientId> {
    rig.closed.iter().map(|(client, _)| *client).collect()
}

#[test]
fn refused_barrier_is_an_error_of_its_processes_and_ends_their_connections() {
    let mut rig = first_host();
    let clients = [0, 1].map(|rank| rig.rank(rank));
    clients.iter().for_each(|client| _ = rig.say(*client, "cmd=barrier_in\n"));
    refuse(&mut rig, &WAITING);
    assert!(is_shown(&rig), "{:?}", rig.others);
    assert_eq!(closed(&rig), clients);
    for client in clients {
        assert_eq!(rig.taken(client), "cmd=barrier_out rc=-1 msg=refused_by_the_store\n");
    }
}

#[test]
fn refused_fence_of_pmix_is_an_error_of_its_processes_and_ends_their_connections() {
    let mut rig = first_host();
    let clients = ranks_of_pmix(&mut rig);
    clients.iter().for_each(|client| fence(&mut rig, *client));
    refuse(&mut rig, &WAITING);
    assert!(is_shown(&rig), "{:?}", rig.others);
    assert_eq!(closed(&rig), clients);
    clients.iter().for_each(|client| assert_eq!(status_of(&mut rig, *client), status::OUT_OF_RESOURCE));
    assert!(rig.mpi.is_inside(Rank::new(0)), "the rank fails, whether its library heeds the error or not");
}

#[test]
fn refused_keys_of_pmi_1_end_the_connections_of_their_program() {
    let mut rig = first_host();
    let clients = [0, 1].map(|rank| rig.rank(rank));
    rig.say(clients[0], "cmd=put kvsname=k key=addr value=here\n");
    clients.iter().for_each(|client| _ = rig.say(*client, "cmd=barrier_in\n"));
    let [(keys, _), (barrier, _)] = rig.asked[..] else { panic!("{:?}", rig.asked) };
    answer(&mut rig, keys, Answer::Refused(WAITING));
    answer(&mut rig, barrier, Answer::Refused(WAITING));
    assert!(is_shown(&rig), "{:?}", rig.others);
    assert_eq!(closed(&rig), clients);
    assert!(rig.written.is_empty(), "{:?}", rig.written);
}

#[test]
fn refused_data_of_pmix_ends_the_connection_of_its_rank() {
    let mut rig = first_host();
    let clients = ranks_of_pmix(&mut rig);
    commit(&mut rig, clients[0]);
    refuse(&mut rig, &WAITING);
    assert!(is_shown(&rig), "{:?}", rig.others);
    assert_eq!(closed(&rig), [clients[0]]);
    assert!(rig.closed[0].1.starts_with("the store has refused a request of MPI: 8 requests"), "{:?}", rig.closed);
}

/// Other worlds would not find this one.
#[test]
fn refused_layout_of_a_world_ends_the_connection_of_the_rank_that_needs_it() {
    let mut rig = first_host();
    let clients = ranks_of_pmix(&mut rig);
    publish(&mut rig, clients[0]);
    let [(layout, _), _] = rig.asked[..] else { panic!("{:?}", rig.asked) };
    answer(&mut rig, layout, Answer::Refused(WAITING));
    assert!(is_shown(&rig), "{:?}", rig.others);
    assert_eq!(closed(&rig), [clients[0]]);
}

#[test]
fn refused_request_for_data_of_a_rank_is_an_error_and_the_user_reads_it_once() {
    let mut rig = first_host();
    let [client, _] = ranks_of_pmix(&mut rig);
    get(&mut rig, client);
    refuse(&mut rig, &WAITING);
    assert_eq!(status_of(&mut rig, client), status::OUT_OF_RESOURCE);
    get(&mut rig, client);
    // The rank has committed its data, and that is too much.
    let (seq, _) = rig.asked.remove(0);
    answer(&mut rig, seq, Answer::Done);
    refuse(&mut rig, &WAITING);
    assert_eq!(status_of(&mut rig, client), status::OUT_OF_RESOURCE);
    assert!(is_shown(&rig) && rig.closed.is_empty(), "{:?} {:?}", rig.others, rig.closed);
}

#[test]
fn refusal_at_the_end_of_the_job_has_no_consequence() {
    let mut rig = first_host();
    let clients = [0, 1].map(|rank| rig.rank(rank));
    rig.say(clients[0], "cmd=put kvsname=k key=addr value=here\n");
    clients.iter().for_each(|client| _ = rig.say(*client, "cmd=barrier_in\n"));
    refuse(&mut rig, &Refusal::Gone);
    assert!(rig.written.is_empty() && rig.closed.is_empty() && rig.others.is_empty(), "{:?}", rig.closed);
    let mut rig = first_host();
    let clients = ranks_of_pmix(&mut rig);
    commit(&mut rig, clients[0]);
    get(&mut rig, clients[0]);
    clients.iter().for_each(|client| fence(&mut rig, *client));
    assert_eq!(rig.asked.len(), 3);
    refuse(&mut rig, &Refusal::Gone);
    assert!(rig.written.is_empty() && rig.closed.is_empty() && rig.others.is_empty(), "{:?}", rig.closed);
}

#[test]
fn names_are_taken_back_one_by_one_and_a_refusal_is_an_error() {
    for is_refused in [true, false] {
        let mut rig = first_host();
        let [client, _] = ranks_of_pmix(&mut rig);
        publish(&mut rig, client);
        rig.asked.clear();
        let mut unpublish = command(8);
        unpublish.raw(&[0, 0, 0, 1, 0, 0, 0, 0]).size(0);
        rig.send(client, &request(5, unpublish));
        let [(seq, _)] = rig.asked[..] else { panic!("{:?}", rig.asked) };
        rig.asked.clear();
        answer(&mut rig, seq, if is_refused { Answer::Refused(WAITING) } else { Answer::Number(1) });
        if is_refused {
            assert_eq!(status_of(&mut rig, client), status::OUT_OF_RESOURCE);
            continue;
        }
        assert!(rig.written.is_empty(), "one name is left");
        let (seq, _) = rig.asked.remove(0);
        answer(&mut rig, seq, Answer::Number(1));
        assert_eq!(status_of(&mut rig, client), status::SUCCESS);
    }
}
