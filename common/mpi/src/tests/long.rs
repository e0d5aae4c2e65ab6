//! Hosts whose ranks put more than a value, a request or an answer of the store has room for.

use super::*;

/// Two hosts, the second one with three ranks.
fn hosts() -> Hosts {
    let all = vec![host("a", &[(0, 1)]), host("b", &[(2, 4)])];
    let layout = Layout { hosts: all, apps: vec![5], ..world(5) };
    Hosts { rigs: [0, 1].map(|here| Rig::new(Layout { here, ..layout.clone() })), ..Hosts::new() }
}

#[test]
fn many_keys_of_pmi_1_reach_the_other_host() {
    let mut hosts = hosts();
    let clients = [0, 1, 2, 3, 4].map(|rank| hosts.rig(rank).rank(rank));
    let value = |rank: u32, key: usize| alloc::format!("{rank}-{key}-{}", "v".repeat(1000));
    for round in 0..2 {
        for (rank, client) in (0..).zip(clients) {
            for key in round * 500..(round + 1) * 500 {
                let put = alloc::format!("cmd=put kvsname=k key=a{rank}-{key} value={}\n", value(rank, key));
                assert_eq!(hosts.rig(rank).say(client, &put), "cmd=put_result rc=0\n");
            }
            // The value of this key changes.
            hosts.rig(rank).say(client, &alloc::format!("cmd=put kvsname=k key=last{rank} value={round}\n"));
            hosts.rig(rank).say(client, "cmd=barrier_in\n");
            hosts.exchange();
        }
        for (rank, client) in (0..).zip(clients) {
            assert!(hosts.rig(rank).taken(client).ends_with("cmd=barrier_out rc=0\n"));
            let get = |hosts: &mut Hosts, key: &str, value: &str| {
                let at_once = hosts.rig(rank).say(client, &alloc::format!("cmd=get kvsname=k key={key}\n"));
                hosts.exchange();
                let found = at_once + &hosts.rig(rank).taken(client);
                assert!(found == alloc::format!("cmd=get_result rc=0 found=TRUE value={value}\n"), "{key}: {found}");
            };
            for of in 0..5 {
                (0..(round + 1) * 500).for_each(|key| get(&mut hosts, &alloc::format!("a{of}-{key}"), &value(of, key)));
                get(&mut hosts, &alloc::format!("last{of}"), &round.to_string());
            }
        }
    }
}

/// The answer about a part is late.
#[test]
fn later_look_waits_for_parts_that_an_earlier_one_has_asked_for() {
    let all = vec![host("a", &[(0, 1)]), host("b", &[(2, 3)])];
    let mut rig = Rig::new(Layout { hosts: all, apps: vec![4], ..world(4) });
    let clients = [0, 1].map(|rank| rig.rank(rank));
    let answer = |rig: &mut Rig, seq, answer: Answer| {
        rig.mpi.answered(Mono::from_nanos(1), seq, &write_reply(&answer));
        rig.drain();
    };
    let only = |rig: &mut Rig| match core::mem::take(&mut rig.asked).as_slice() {
        [(seq, _)] => *seq,
        asked => panic!("{} requests", asked.len()),
    };
    let values = |text: &[u8]| Answer::Values(vec![Some(text.to_vec().into())]);
    let mut looks = Vec::new();
    for (rank, client) in (0..).zip(clients) {
        rig.say(client, &alloc::format!("cmd=barrier_in group={rank},2:1\n"));
        let seq = only(&mut rig);
        answer(&mut rig, seq, Answer::Done);
        assert!(rig.taken(client).contains("barrier_out"));
        assert_eq!(rig.say(client, "cmd=get kvsname=k key=a\n"), "");
        let seq = only(&mut rig);
        answer(&mut rig, seq, values(b"\0\0\0\x01b\0late\n"));
        looks.extend(core::mem::take(&mut rig.asked));
    }
    let [(seq, _)] = looks.as_slice() else { panic!("the part is asked for once") };
    assert!(rig.written.is_empty());
    answer(&mut rig, *seq, values(b"a\x001\nb\0early\n"));
    for client in clients {
        assert_eq!(rig.taken(client), "cmd=get_result rc=0 found=TRUE value=1\n");
    }
    assert!(rig.say(clients[0], "cmd=get kvsname=k key=b\n").contains("value=late"));
}

fn command(number: u8) -> Writer {
    let mut body = Writer::new(false);
    body.raw(&[0, 0, 0, 1, number]);
    body
}

fn commit(rig: &mut Rig, client: ClientId, value: &[u8]) {
    let mut data = Writer::new(false);
    data.key_text(b"key", value);
    let data = data.into_bytes();
    let mut body = command(2);
    body.raw(&[0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 0, 15]).raw(&(data.len() as u64).to_be_bytes()).raw(&data);
    rig.send(client, &request(1, body));
}

#[test]
fn long_data_of_pmix_reaches_the_other_host() {
    // Two of the first are a request. Three of the second are a little too long for one.
    [500 << 10, 349_505].into_iter().for_each(exchange_data);
}

fn exchange_data(len: usize) {
    let mut hosts = hosts();
    let value = |rank: u32| vec![b'a' + u8::try_from(rank).unwrap(); len];
    let clients = [0, 1, 2, 3, 4].map(|rank| {
        let client = hosts.rig(rank).mpi.open();
        hosts.rig(rank).send(client, &hello(rank));
        commit(hosts.rig(rank), client, &value(rank));
        let mut fence = command(3);
        fence.procs([Proc { nspace: b"world", rank: ALL_RANKS }].into_iter()).size(0);
        hosts.rig(rank).send(client, &request(2, fence));
        hosts.exchange();
        client
    });
    assert!(hosts.rigs.iter().all(|rig| rig.closed.is_empty()));
    for of in [4, 2, 3] {
        hosts.rig(0).written.clear();
        let mut get = command(4);
        // At once.
        let immediate = b"\0\0\0\x01\0\0\0\x0fpmix.immediate\0\0\0\0\0\0\x01\x01";
        get.string(b"world").rank(of).size(1).raw(immediate);
        hosts.rig(0).send(clients[0], &request(3, get));
        hosts.exchange();
        let answer = hosts.rig(0).written.remove(&clients[0]).unwrap();
        assert!(answer.windows(len).any(|part| part == value(of)), "{} bytes about rank {of}", answer.len());
    }
    // More than a value of the store.
    commit(hosts.rig(0), clients[0], &value(0));
    assert!(hosts.rig(0).closed[0].1.contains("rank 0 has put more than"), "{:?}", hosts.rig(0).closed);
}

#[test]
fn public_values_that_are_no_request_of_the_store_are_refused() {
    let mut rig = Rig::new(world(2));
    let client = rig.mpi.open();
    rig.send(client, &hello(0));
    for (values, status) in [(1, None), (3, Some(rlaunch_protocol::wire::pmix::status::OUT_OF_RESOURCE))] {
        rig.written.clear();
        let mut publish = command(6);
        publish.raw(&[0, 0, 0, 1, 0, 0, 0, 0]).size(values).raw(&[0, 0, 0]).raw(&[u8::try_from(values).unwrap()]);
        for _ in 0..values {
            // Name, flags, and a text.
            let text = [b'x'; 100 << 10];
            publish.raw(b"\0\0\0\x02k\0\0\0\0\0\0\x03\0\x01\x90\x01").raw(&text).raw(&[0]);
        }
        rig.send(client, &request(1, publish));
        let answer = rig.written.remove(&client).map(|answer| answer[answer.len() - 4..].to_vec());
        assert_eq!(answer, status.map(|status: i32| status.to_be_bytes().to_vec()), "{values}");
    }
}

/// The launcher would close the edge of the host, and the job would end.
#[test]
fn spawn_that_is_no_message_to_the_launcher_is_refused() {
    for (len, is_refused) in [(1000, false), (800 << 10, true)] {
        let mut rig = Rig::new(world(2));
        let client = rig.mpi.open();
        rig.send(client, &hello(1));
        rig.written.clear();
        // No wishes for all, one program "a" without arguments and variables, its directory, 2 ranks, no wishes for it.
        let mut spawn = command(9);
        spawn.size(0).size(1).raw(&[0, 0, 0, 1]).raw(b"\0\0\0\x02a\0").raw(&[0, 9, 0, 0, 0, 0]).raw(&[0; 4]);
        spawn.raw(&u32::try_from(len + 1).unwrap().to_be_bytes()).raw(&vec![b'd'; len]).raw(&[0]);
        spawn.raw(&[0, 9, 0, 0, 0, 2]).raw(&[0, 15, 0, 0, 0, 0, 0, 0, 0, 0]);
        rig.send(client, &request(1, spawn));
        let [action] = rig.others.as_slice() else { panic!("{} actions", rig.others.len()) };
        assert_eq!(matches!(action, Action::Log { .. }), is_refused);
        assert_eq!(rig.written.contains_key(&client), is_refused, "the rank gets an error");
    }
}
