//! Two worlds of a job on one host: the second one is started by a rank of the first.

use super::{Action, Hosts, Layout, Rig, host, order, request, tags};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, WorldId};
use rlaunch_base::time::Mono;
use rlaunch_keyvalue::store::owner::LIMITS;
use rlaunch_keyvalue::store::{Answer, Namespace};
use rlaunch_protocol::wire::frozen::client::order::{Order, Spawned};
use rlaunch_protocol::wire::frozen::client::{Code, Refused, write_reply};
use rlaunch_protocol::wire::pmix::{ALL_RANKS, HEADER, Header, Hello, Proc, Request, Writer};

const PARENT: &str = "job-0";
const CHILD: &str = "job-2147483649";

/// Bytes of ranks of Open MPI 5.0.11. Two ranks start two others, meet them, merge with them and leave them.
const GOLDEN: [[&[u8]; 2]; 2] = [
    [
        include_bytes!("../../../../tests/golden/mpi/openmpi-5.0.11.spawn-parent.0"),
        include_bytes!("../../../../tests/golden/mpi/openmpi-5.0.11.spawn-parent.1"),
    ],
    [
        include_bytes!("../../../../tests/golden/mpi/openmpi-5.0.11.spawn-child.0"),
        include_bytes!("../../../../tests/golden/mpi/openmpi-5.0.11.spawn-child.1"),
    ],
];

fn layout(name: &str) -> Layout {
    Layout { name: name.into(), hosts: vec![host("here", &[(0, 1)])], ..super::world(2) }
}

/// Both worlds and the store that they share: ranks 2 and 3 are those of the second world.
fn worlds(second: Layout) -> Hosts {
    Hosts { rigs: [Rig::new(layout(PARENT)), Rig::new(second)], store: Namespace::new(LIMITS), requests: [0; 2] }
}

fn command(number: u8) -> Writer {
    let mut body = Writer::new(false);
    body.raw(&[0, 0, 0, 1, number]);
    body
}

fn both(body: &mut Writer) -> &mut Writer {
    let all = [PARENT, CHILD].map(|world| Proc { nspace: world.as_bytes(), rank: ALL_RANKS });
    body.procs(all.into_iter()).size(0)
}

fn connect(hosts: &mut Hosts, rank: u32) -> ClientId {
    let (rig, world) = (hosts.rig(rank), if rank < 2 { PARENT } else { CHILD });
    let (client, hello) = (rig.mpi.open(), super::hello_of(world, rank % 2));
    assert_eq!(rig.send(client, &hello), hello.len());
    rig.written.clear();
    client
}

/// A spawn of the second world by rank 1, up to its order.
fn spawned() -> (Hosts, ClientId, u64) {
    let mut hosts = worlds(layout(CHILD));
    let client = connect(&mut hosts, 1);
    let mut spawn = command(9);
    // A program: "a", with its name and "x" as arguments, a variable, a directory, 2 ranks and no wishes.
    spawn
        .size(0)
        .size(1)
        .raw(&[0, 0, 0, 1])
        .raw(b"\0\0\0\x02a\0")
        .raw(&[0, 9, 0, 0, 0, 2])
        .raw(b"\0\0\0\x02a\0\0\0\0\x02x\0");
    spawn
        .raw(b"\0\0\0\x01\0\0\0\x04V=1\0")
        .raw(b"\0\0\0\x03/d\0")
        .raw(&[0, 9, 0, 0, 0, 2])
        .raw(&[0, 15, 0, 0, 0, 0, 0, 0, 0, 0]);
    hosts.rig(1).send(client, &request(9, spawn));
    let (seq, ordered) = order(hosts.rig(1), client);
    let [program] = ordered.programs.as_slice() else { panic!("{ordered:?}") };
    assert_eq!((program.ranks, program.wdir.as_deref()), (2, Some(&b"/d"[..])));
    assert_eq!(
        (program.argv.as_slice(), program.env.as_slice()),
        (&["a".into(), "x".into()][..], &[("V".into(), "1".into())][..])
    );
    hosts.rigs[1] = Rig::new(Layout { origin: ordered.origin, ..layout(CHILD) });
    (hosts, client, seq)
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn golden_clients_of_two_worlds_are_served_to_the_end() {
    let mut hosts = worlds(layout(CHILD));
    let clients = [0, 1, 2, 3].map(|rank| hosts.rig(rank).mpi.open());
    for (rank, client) in (0..).zip(clients) {
        let bytes = GOLDEN[rank as usize / 2][rank as usize % 2];
        assert_eq!(hosts.rig(rank).send(client, bytes), bytes.len());
        for action in core::mem::take(&mut hosts.rig(rank).others) {
            let super::Action::Order { seq, words, .. } = action else { continue };
            assert!(matches!(Order::parse(&words), Ok(Order::Spawn(_))));
            let spawned = Spawned { world: WorldId::new(1), group: "world-1".into(), hosts: Vec::new() };
            let answer = write_reply(&Answer::Value(Some(spawned.write().into())));
            hosts.rig(rank).mpi.answered(Mono::from_nanos(1), seq, &answer);
            hosts.rig(rank).drain();
        }
        hosts.exchange();
    }
    for (rank, client) in (0..).zip(clients) {
        let sent = GOLDEN[rank as usize / 2][rank as usize % 2];
        let rig = hosts.rig(rank);
        assert!(rig.closed.is_empty(), "{:?}", rig.closed);
        let (mut asked, mut answered) = (tags_of(sent), tags(&rig.written[&client]));
        asked.sort_unstable();
        answered.sort_unstable();
        assert_eq!(asked, answered, "rank {rank}");
    }
}

/// Tags of the requests that have an answer.
fn tags_of(bytes: &[u8]) -> Vec<u32> {
    let (_, used) = Hello::parse(bytes).unwrap().unwrap();
    let (mut rest, mut tags) = (&bytes[used..], Vec::new());
    while let Some(header) = Header::parse(rest).unwrap() {
        let body = &rest[HEADER..HEADER + header.len];
        if Request::parse(body, false) != Ok(Request::NoEvents) {
            tags.push(header.tag);
        }
        rest = &rest[HEADER + header.len..];
    }
    tags
}

#[test]
fn rank_of_pmix_starts_a_world_and_meets_it() {
    let (mut hosts, client, seq) = spawned();
    let spawned = Spawned { world: WorldId::new(1), group: "world-1".into(), hosts: Vec::new() };
    let answer = write_reply(&Answer::Value(Some(spawned.write().into())));
    hosts.rig(1).mpi.answered(Mono::from_nanos(1), seq, &answer);
    hosts.rig(1).drain();
    let answer = hosts.rig(1).written.remove(&client).unwrap();
    assert!(has(&answer, CHILD.as_bytes()));
    let clients = [connect(&mut hosts, 0), client, connect(&mut hosts, 2), connect(&mut hosts, 3)];
    hosts.rig(2).send(clients[2], &request(1, command(0)));
    let facts = hosts.rig(2).written.remove(&clients[2]).unwrap();
    assert!(
        has(&facts, b"pmix.spawned") && has(&facts, b"pmix.parent\0\0\x16\0\0\0\x06job-0\0\0\0\0\x01"),
        "{facts:?}"
    );
    // Facts about the parents are there before the worlds meet.
    let mut get = command(4);
    get.string(PARENT.as_bytes()).rank(ALL_RANKS).size(0);
    hosts.rig(3).send(clients[3], &request(2, get));
    hosts.exchange();
    assert!(has(&hosts.rig(3).written.remove(&clients[3]).unwrap(), b"pmix.job.size"));
    // The parents find data of a new rank after the meeting.
    let mut data = Writer::new(false);
    data.key_text(b"key", b"value");
    let data = data.into_bytes();
    let mut commit = command(2);
    commit.raw(&[0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 0, 15]).raw(&(data.len() as u64).to_be_bytes()).raw(&data);
    hosts.rig(2).send(clients[2], &request(3, commit));
    for number in [10, 24] {
        for (rank, client) in (0..).zip(clients) {
            hosts.rigs.iter_mut().for_each(|rig| rig.written.clear());
            let mut body = command(number);
            if number == 24 {
                body.string(b"group");
            }
            both(&mut body);
            hosts.rig(rank).send(client, &request(4, body));
            hosts.exchange();
            assert_eq!(hosts.rigs.iter().all(|rig| rig.written.is_empty()), rank < 3, "all wait for the last one");
        }
        let answers: Vec<Vec<u8>> = (0..).zip(clients).map(|(rank, it)| hosts.rig(rank).written[&it].clone()).collect();
        assert!(answers.iter().all(|it| has(it, PARENT.as_bytes()) && has(it, CHILD.as_bytes())));
        if number == 24 {
            // The same number for all.
            assert!(answers.iter().all(|it| it[it.len() - 8..] == answers[0][answers[0].len() - 8..]), "{answers:?}");
        }
    }
    hosts.rigs.iter_mut().for_each(|rig| rig.written.clear());
    let mut get = command(4);
    get.string(CHILD.as_bytes()).rank(0).size(0);
    hosts.rig(0).send(clients[0], &request(5, get));
    hosts.exchange();
    assert!(has(&hosts.rig(0).written[&clients[0]], &data));
}

#[test]
fn spawn_that_fails_is_an_error_of_the_asking_rank() {
    let (mut hosts, client, seq) = spawned();
    let refused = Refused { code: Code::Other, within: None, text: b"no such file", hint: b"" };
    hosts.rig(1).mpi.answered(Mono::from_nanos(1), seq, &refused.write());
    hosts.rig(1).drain();
    let answer = hosts.rig(1).written.remove(&client).unwrap();
    assert_eq!(answer[answer.len() - 4..], (-181_i32).to_be_bytes());
    assert!(hosts.rig(1).closed.is_empty());
}

#[test]
fn worlds_that_do_not_exist_are_an_error() {
    let mut hosts = worlds(layout(CHILD));
    let client = connect(&mut hosts, 0);
    for other in ["job-7x", "other-1", "job"] {
        let mut body = command(10);
        let all = [PARENT, other].map(|world| Proc { nspace: world.as_bytes(), rank: ALL_RANKS });
        body.procs(all.into_iter()).size(0);
        hosts.rig(0).send(client, &request(1, body));
        let answer = hosts.rig(0).written.remove(&client).unwrap();
        assert_eq!(answer[answer.len() - 4..], (-27_i32).to_be_bytes(), "{other}");
    }
    let mut get = command(4);
    get.string(b"job-9").rank(ALL_RANKS).size(0);
    hosts.rig(0).send(client, &request(2, get));
    assert_eq!(hosts.rigs[0].asked.len(), 1, "the world may not have begun");
    let (seq, _) = hosts.rigs[0].asked.remove(0);
    let refused = Refused { code: Code::Other, within: None, text: b"late", hint: b"" };
    hosts.rig(0).mpi.answered(Mono::from_nanos(1), seq, &refused.write());
    hosts.rig(0).drain();
    let answer = hosts.rig(0).written.remove(&client).unwrap();
    assert_eq!(answer[answer.len() - 4..], (-46_i32).to_be_bytes());
}

#[test]
fn info_keys_of_a_spawn_work_or_are_named() {
    let mut rig = Rig::new(super::world(2));
    let client = rig.rank(1);
    let keys = ["map_by=node", "add-host=h3", "env=A=1", "soft=0:4", "hostfile=f"];
    let infos = keys.iter().enumerate().map(|(at, key)| {
        let (key, value) = key.split_once('=').unwrap();
        alloc::format!("info_key_{at}={key}\ninfo_val_{at}={value}\n")
    });
    let spawn = alloc::format!(
        "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=5\n{}endcmd\n",
        infos.collect::<String>()
    );
    assert_eq!(rig.say(client, &spawn), "");
    let Some(Action::Log { text, .. }) = rig.others.first() else { panic!("{:?}", rig.others) };
    let line = "rlaunch: MPI_Comm_spawn: no effect: info key hostfile, map_by\n";
    assert!(text.starts_with(line.as_bytes()), "{}", String::from_utf8_lossy(text));
    rig.others.remove(0);
    let (_, request) = order(&mut rig, client);
    let [program] = request.programs.as_slice() else { panic!("{request:?}") };
    assert_eq!(
        (program.hosts.as_slice(), program.env.as_slice()),
        (&["h3".into()][..], &[("A".into(), "1".into())][..])
    );
}
