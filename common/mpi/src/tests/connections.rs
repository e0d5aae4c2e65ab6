//! Connections that send messages out of order, or are closed in the middle, and the limits of what is remembered.

use super::*;

fn command(number: u8) -> Writer {
    let mut body = Writer::new(false);
    body.raw(&[0, 0, 0, 1, number]);
    body
}

fn come(rig: &mut Rig, rank: u32) -> ClientId {
    let client = rig.mpi.open();
    rig.send(client, &hello(rank));
    rig.written.clear();
    client
}

fn fence(rig: &mut Rig, client: ClientId) {
    let mut body = command(3);
    body.procs([Proc { nspace: b"world", rank: ALL_RANKS }].into_iter()).size(0);
    rig.send(client, &request(1, body));
}

#[test]
fn message_of_pmi_1_out_of_order_closes_the_connection() {
    let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
    for lines in ["cmd=finalize\n", "cmd=put kvsname=k key=a value=1\n", "cmd=initack pmiid=0\n"] {
        let mut rig = Rig::new(world(2));
        let client = rig.mpi.open();
        rig.say(client, "cmd=initack pmiid=0\n");
        assert_eq!(rig.say(client, lines), "", "{lines}");
        assert_eq!(rig.closed.len(), 1, "{lines}");
    }
    for lines in [init, "cmd=finalize\ncmd=finalize\n", "cmd=barrier_in group=0,9:1\n", "cmd=barrier_in group=0,x:1\n"]
    {
        let mut rig = Rig::new(world(2));
        let client = rig.rank(0);
        rig.say(client, lines);
        assert_eq!(rig.closed.len(), 1, "{lines}");
    }
}

#[test]
fn keys_are_forgotten_when_all_ranks_of_the_host_have_left_their_program() {
    let mut rig = Rig::new(world(2));
    let first = [0, 1].map(|rank| rig.rank(rank));
    rig.say(first[0], "cmd=put kvsname=k key=a value=1\n");
    first.iter().for_each(|client| _ = rig.say(*client, "cmd=finalize\n"));
    let get = "cmd=get kvsname=k key=a\n";
    rig.rank(0);
    assert!(rig.say(first[1], get).contains("value=1"));
    rig.rank(1);
    assert!(rig.say(first[1], get).contains("key_not_found"));
}

#[test]
fn process_of_pmix_that_ends_before_finalize_is_inside_until_the_next_one() {
    let mut rig = Rig::new(world(2));
    let client = come(&mut rig, 0);
    rig.mpi.closed(client);
    assert!(rig.mpi.is_inside(Rank::new(0)));
    let next = come(&mut rig, 0);
    let mut finalize = command(5);
    finalize.size(0);
    rig.send(next, &request(1, finalize));
    assert!(!rig.mpi.is_inside(Rank::new(0)));
    rig.mpi.closed(next);
    assert!(!rig.mpi.is_inside(Rank::new(0)));
}

#[test]
fn second_process_of_a_rank_of_pmix_is_refused_and_the_first_is_served() {
    let mut rig = Rig::new(world(2));
    let first = come(&mut rig, 0);
    let open = |rig: &mut Rig, number, process| {
        rig.mpi.open_as(ClientId::new(number), process);
        rig.send(ClientId::new(number), &hello(0));
        rig.send(ClientId::new(number), &request(1, command(0)));
        rig.closed.len()
    };
    assert_eq!(open(&mut rig, 20, 0), 0, "a process may have several connections");
    assert_eq!(open(&mut rig, 21, 7), 1);
    assert!(rig.closed[0].1.contains("another process of rank 0 is in MPI already"), "{:?}", rig.closed);
    let answer = rig.written.remove(&ClientId::new(21)).unwrap();
    assert!(answer.ends_with(b"another process\0"), "it is in no world: {answer:?}");
    rig.mpi.closed(ClientId::new(21));
    let mut finalize = command(5);
    finalize.size(0);
    for client in [first, ClientId::new(20)] {
        rig.written.clear();
        rig.send(client, &request(1, finalize.clone()));
        assert!(rig.written.contains_key(&client), "it is served");
    }
    assert_eq!(open(&mut rig, 22, 7), 1, "the first process has left MPI");
}

#[test]
fn closed_connection_has_arrived_at_its_fence_and_gets_no_answer() {
    let mut rig = Rig::new(world(2));
    let [a, b] = [0, 1].map(|rank| come(&mut rig, rank));
    fence(&mut rig, a);
    rig.mpi.closed(a);
    fence(&mut rig, b);
    assert_eq!(rig.written.keys().collect::<Vec<_>>(), [&b]);
}

#[test]
fn rank_that_opens_too_many_fences_is_disconnected_and_one_that_completes_them_is_not() {
    let mut rig = Rig::new(world(2));
    let [client, other] = [0, 1].map(|rank| rig.rank(rank));
    for tag in 0..4096 {
        rig.say(client, &alloc::format!("cmd=barrier_in group=0,1:{tag}\n"));
        assert!(rig.closed.is_empty(), "{tag}");
    }
    assert_eq!(rig.say(other, "cmd=barrier_in group=0,1:7\n"), "cmd=barrier_out tag=7 rc=0\n");
    rig.say(client, "cmd=barrier_in group=0,1:7\n");
    assert!(rig.closed.is_empty(), "there was room for one");
    rig.say(client, "cmd=barrier_in group=0,1:last\n");
    assert!(rig.closed[0].1.ends_with("fences is full: it has 4096 entries"), "{:?}", rig.closed);
}

/// The members of later groups are not known when they end.
#[test]
fn members_of_many_groups_are_remembered() {
    let mut rig = Rig::new(world(2));
    let clients = [0, 1].map(|rank| come(&mut rig, rank));
    for number in 0..=4096 {
        for client in clients {
            let mut begin = command(24);
            begin.string(number.to_string().as_bytes());
            begin.procs([0, 1].map(|rank| Proc { nspace: b"world", rank }).into_iter()).size(0);
            rig.send(client, &request(1, begin));
        }
    }
    for (number, is_known) in [(4095, true), (4096, false)] {
        rig.written.clear();
        let mut end = command(28);
        end.string(number.to_string().as_bytes()).size(0).size(0);
        rig.send(clients[0], &request(2, end));
        assert_eq!(rig.written.is_empty(), is_known, "{number}");
    }
}

#[test]
fn help_messages_beyond_a_number_are_shown_each_time() {
    let golden = include_bytes!("../../../../tests/golden/mpi/openmpi-4.1.4.help");
    let topic = b"find-available:not-valid";
    let at = golden.windows(topic.len()).position(|part| part == topic).unwrap();
    let mut rig = Rig::new(world(2));
    let clients = [0, 1].map(|rank| come(&mut rig, rank));
    for number in 0..=256 {
        let name = alloc::format!("{number:024}");
        let message = [&golden[..at], name.as_bytes(), &golden[at + topic.len()..]].concat();
        rig.others.clear();
        clients.iter().for_each(|client| _ = rig.send(*client, &message));
        assert_eq!(rig.others.len(), if number < 256 { 1 } else { 2 }, "{number}");
    }
}

/// MPICH names files in /dev/shm after its space of keys.
#[test]
fn spaces_of_keys_have_names_of_their_own() {
    let job = |number| rlaunch_base::id::JobId([number; 16]);
    let worlds = [(1, 0), (1, 1), (2, 0)].map(|(number, namespace)| job(number).world_name(namespace));
    let mut names = alloc::collections::BTreeSet::new();
    for name in worlds {
        let mut rig = Rig::new(Layout { name, ..world(1) });
        for _ in 0..2 {
            let client = rig.rank(0);
            names.insert(rig.say(client, "cmd=get_my_kvsname\n"));
            rig.say(client, "cmd=finalize\n");
        }
    }
    assert_eq!(names.len(), 6, "{names:?}");
}

#[test]
fn process_of_another_job_and_tool_are_closed_without_a_byte() {
    let tool = {
        let mut bytes = hello(0);
        // After the header: the name of the security module, and the length of its credential.
        bytes[HEADER + b"none\0".len() + 4] = 3;
        bytes
    };
    for bytes in [hello_of("other", 0), tool] {
        let mut rig = Rig::new(world(2));
        let client = rig.mpi.open();
        rig.send(client, &bytes);
        assert_eq!(rig.closed.len(), 1);
        assert!(rig.written.is_empty() && !rig.mpi.has_come(Rank::new(0)));
    }
}

#[test]
fn fence_with_unknown_ranks_is_an_error() {
    let mut rig = Rig::new(world(2));
    let client = come(&mut rig, 0);
    let mut body = command(3);
    body.procs([0, 9].map(|rank| Proc { nspace: b"world", rank }).into_iter()).size(0);
    rig.send(client, &request(1, body));
    let answer = rig.written.remove(&client).unwrap();
    assert_eq!(answer[answer.len() - 4..], (-27_i32).to_be_bytes());
}

#[test]
fn requests_that_wait_for_data_are_limited() {
    let mut rig = Rig::new(world(2));
    let client = come(&mut rig, 0);
    let get = || {
        let mut get = command(4);
        get.string(b"world").rank(1).size(0);
        request(1, get)
    };
    let (one, most) = (get(), 100_000);
    rig.send(client, &one.repeat(most));
    assert!(rig.written.is_empty(), "rank 1 has committed nothing");
    rig.send(client, &one);
    let answer = rig.written.remove(&client).unwrap();
    assert_eq!(answer[answer.len() - 4..], (-29_i32).to_be_bytes());
}
