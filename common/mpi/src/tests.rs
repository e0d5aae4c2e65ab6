//! The rules of the machine: golden clients, barriers, strangers, and two hosts with a store between them.

use super::*;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Mono;
use rlaunch_keyvalue::store::owner::LIMITS;
use rlaunch_keyvalue::store::{Action as Stored, Answer, Namespace, Refusal, Seq, Ticket};
use rlaunch_protocol::wire::frozen::client::order::{Order, Program, Request};
use rlaunch_protocol::wire::frozen::client::{Asked, Code, MAX_FRAME, Refused, Space, Words, write_reply};
use rlaunch_protocol::wire::pmix::{ALL_RANKS, HEADER, Header, Proc, Writer};
use rlaunch_protocol::wire::to_node::HostRanks;

mod absent_ranks;
mod connections;
mod excess;
mod exchange;
mod groups;
mod help;
mod long;
mod looks;
mod lookups;
mod refusals;
mod worlds;

fn host(name: &str, ranges: &[(u32, u32)]) -> HostRanks {
    let mut ranks = RankSet::new();
    ranges.iter().for_each(|(first, last)| ranks.insert_range(*first, *last));
    HostRanks::new(OsBytes::from(name), &ranks)
}

pub(super) fn world(size: u32) -> Layout {
    let hosts = vec![host("here", &[(0, size - 1)])];
    Layout {
        name: "world".into(),
        hosts,
        here: 0,
        apps: vec![size],
        is_crowded: false,
        origin: OsBytes::default(),
        session_dir: OsBytes::default(),
    }
}

/// A machine, and what it has written.
struct Rig {
    mpi: Mpi,
    written: BTreeMap<ClientId, Vec<u8>>,
    closed: Vec<(ClientId, String)>,
    others: Vec<Action>,
    /// Names of files, and the connections whose processes make them.
    files: Vec<(ClientId, [String; 2])>,
    news: Vec<MpiNews>,
    asked: Vec<(u64, Vec<u8>)>,
}

impl Rig {
    fn new(layout: Layout) -> Self {
        Self {
            mpi: Mpi::new(layout),
            written: BTreeMap::new(),
            closed: Vec::new(),
            others: Vec::new(),
            files: Vec::new(),
            news: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn send(&mut self, client: ClientId, bytes: &[u8]) -> usize {
        let used = self.mpi.receive(Mono::from_nanos(1), client, bytes, |_| Some(true));
        self.drain();
        used
    }

    fn drain(&mut self) {
        while let Some(action) = self.mpi.poll_action() {
            match action {
                Action::Write { client, bytes } => self.written.entry(client).or_default().extend(bytes),
                Action::Close { client, why } => self.closed.push((client, why.to_string())),
                Action::Ask { seq, words, .. } => self.asked.push((seq, words)),
                Action::News(news) => self.news.push(news),
                Action::Cleanup { client, names } => self.files.push((client, names)),
                other @ (Action::Abort { .. } | Action::Look | Action::Log { .. } | Action::Order { .. }) => {
                    self.others.push(other)
                }
            }
        }
    }

    /// Lets time pass until then.
    fn pass(&mut self, now: Mono) {
        self.mpi.handle_timeout(now);
        self.drain();
    }

    /// Sends lines and returns the answers.
    fn say(&mut self, client: ClientId, lines: &str) -> String {
        self.send(client, lines.as_bytes());
        self.taken(client)
    }

    fn taken(&mut self, client: ClientId) -> String {
        String::from_utf8(self.written.remove(&client).unwrap_or_default()).unwrap()
    }

    fn rank(&mut self, rank: u32) -> ClientId {
        let client = self.mpi.open();
        let answer =
            self.say(client, &alloc::format!("cmd=initack pmiid={rank}\ncmd=init pmi_version=1 pmi_subversion=1\n"));
        assert!(answer.contains("response_to_init"), "{answer}");
        client
    }
}

#[test]
fn golden_clients_of_pmi_1_are_served_to_the_end() {
    let ranks: [[&[u8]; 2]; 2] = [
        [
            include_bytes!("../../../tests/golden/mpi/mpich-5.0.2.0"),
            include_bytes!("../../../tests/golden/mpi/mpich-5.0.2.1"),
        ],
        [
            include_bytes!("../../../tests/golden/mpi/impi-2021.18.1.0"),
            include_bytes!("../../../tests/golden/mpi/impi-2021.18.1.1"),
        ],
    ];
    for both in ranks {
        let mut rig = Rig::new(world(2));
        let clients = both.map(|_| rig.mpi.open());
        // Each waits for the answer to its barrier.
        let parts = both.map(|bytes| {
            let text = core::str::from_utf8(bytes).unwrap();
            text.split_inclusive("barrier_in\n").collect::<Vec<&str>>()
        });
        assert_eq!(parts[0].len(), parts[1].len());
        for part in 0..parts[0].len() {
            for (client, parts) in clients.iter().zip(&parts) {
                assert_eq!(rig.send(*client, parts[part].as_bytes()), parts[part].len());
            }
        }
        for client in clients {
            let answers = rig.taken(client);
            assert!(answers.contains("value=(vector,(0,1,2))\n"), "{answers}");
            assert!(answers.contains("cmd=barrier_out") && answers.ends_with("cmd=finalize_ack rc=0\n"), "{answers}");
        }
        assert!(rig.closed.is_empty() && rig.others.is_empty());
        assert!(!rig.mpi.is_inside(Rank::new(0)) && !rig.mpi.is_inside(Rank::new(1)));
    }
}

/// Tags of the answers after the answer to a hello.
fn tags(bytes: &[u8]) -> Vec<u32> {
    let (mut rest, mut tags) = (&bytes[8..], Vec::new());
    while let Some(header) = Header::parse(rest).unwrap() {
        tags.push(header.tag);
        rest = &rest[HEADER + header.len..];
    }
    tags
}

#[test]
fn golden_clients_of_pmix_are_served_to_the_end() {
    let ranks: [[&[u8]; 2]; 2] = [
        [
            include_bytes!("../../../tests/golden/mpi/openmpi-5.0.11.0"),
            include_bytes!("../../../tests/golden/mpi/openmpi-5.0.11.1"),
        ],
        [
            include_bytes!("../../../tests/golden/mpi/openmpi-4.1.8.0"),
            include_bytes!("../../../tests/golden/mpi/openmpi-4.1.8.1"),
        ],
    ];
    for both in ranks {
        let mut rig = Rig::new(world(2));
        let clients = both.map(|_| rig.mpi.open());
        for (client, bytes) in clients.iter().zip(both) {
            // Byte by byte: a message that is not complete is left.
            let mut held = Vec::new();
            for byte in bytes {
                held.push(*byte);
                let used = rig.send(*client, &held);
                held.drain(..used);
            }
            assert!(held.is_empty());
        }
        assert!(rig.closed.is_empty(), "{:?}", rig.closed);
        for client in clients {
            let answered = tags(&rig.written[&client]);
            assert!(answered.len() > 10, "{answered:?}");
        }
        assert!(!rig.mpi.is_inside(Rank::new(0)) && !rig.mpi.is_inside(Rank::new(1)));
    }
}

#[test]
fn barrier_ends_when_all_have_come_and_puts_are_seen() {
    let mut rig = Rig::new(world(3));
    let [a, b, c] = [0, 1, 2].map(|rank| rig.rank(rank));
    assert_eq!(rig.say(a, "cmd=put kvsname=k key=addr value=here\ncmd=barrier_in\n"), "cmd=put_result rc=0\n");
    assert_eq!(rig.say(b, "cmd=barrier_in\n"), "");
    assert_eq!(rig.say(c, "cmd=barrier_in\n"), "cmd=barrier_out rc=0\n");
    assert_eq!(rig.taken(a) + &rig.taken(b), "cmd=barrier_out rc=0\ncmd=barrier_out rc=0\n");
    assert_eq!(rig.say(c, "cmd=get kvsname=k key=addr\n"), "cmd=get_result rc=0 found=TRUE value=here\n");
    // A group, with its tag.
    assert_eq!(rig.say(a, "cmd=barrier_in group=0,2:7\n"), "");
    assert_eq!(rig.say(c, "cmd=barrier_in group=0,2:7\n"), "cmd=barrier_out tag=7 rc=0\n");
    assert_eq!(rig.taken(a), "cmd=barrier_out tag=7 rc=0\n");
    rig.say(b, "cmd=barrier_in group=0,2:8\n");
    assert_eq!(rig.closed.len(), 1, "a rank waits for its own groups only");
}

#[test]
fn second_program_of_a_rank_begins_with_no_keys() {
    let mut rig = Rig::new(world(2));
    let name = |rig: &mut Rig, client| rig.say(client, "cmd=get_my_kvsname\n");
    let first = rig.rank(0);
    let before = name(&mut rig, first);
    rig.say(first, "cmd=put kvsname=k key=a value=1\n");
    let twice = rig.mpi.open();
    rig.say(twice, "cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\n");
    assert!(rig.closed[0].1.contains("another process of rank 0"), "{:?}", rig.closed);
    rig.say(first, "cmd=finalize\n");
    let second = rig.rank(0);
    assert_ne!(name(&mut rig, second), before);
    assert!(rig.say(second, "cmd=get kvsname=k key=a\n").contains("key_not_found"));
    // The other rank is still in its first program, and sees the keys of that.
    let other = rig.rank(1);
    assert_eq!(name(&mut rig, other), before);
    assert!(rig.say(other, "cmd=get kvsname=k key=a\n").contains("value=1"));
    // A program that was killed in the middle makes room for the next, and its rank has failed.
    rig.mpi.closed(second);
    assert!(rig.mpi.is_inside(Rank::new(0)));
    rig.rank(0);
}

/// MPICH leaves its files in /dev/shm if its ranks are killed.
#[test]
fn files_that_mpich_shares_are_named_once_for_each_program() {
    let mut rig = Rig::new(world(2));
    let first = [0, 1].map(|rank| rig.rank(rank));
    let [(client, names)] = rig.files.as_slice() else { panic!("{:?}", rig.files) };
    assert!(*client == first[0] && names[0].starts_with("mpich_shm_") && names[1].starts_with("mpich_vci_"));
    rig.say(first[0], "cmd=finalize\n");
    rig.rank(0);
    assert_eq!(rig.files.len(), 2);
    assert_ne!(rig.files[0].1, rig.files[1].1, "the name of the second program is new");
    let mut alone = Rig::new(world(1));
    alone.rank(0);
    assert_eq!(alone.files.len(), 1, "it may start ranks and share memory with them");
}

/// The request for a removal gets its answer and has no other effect.
#[test]
fn files_of_open_mpi_are_named_after_the_world_and_not_by_the_rank() {
    let mut rig = Rig::new(world(2));
    let client = rig.mpi.open();
    rig.send(client, &hello(0));
    assert_eq!(rig.files, [(client, shm_names::of_open_mpi(&world(2)))]);
    rig.written.clear();
    let mut control = Writer::new(false);
    // No targets, and one wish: a value of the kind of a text.
    control.raw(&[0, 0, 0, 1, 18]).size(0).size(1).string(b"pmix.reg.cleanup").raw(&[0, 0, 0, 0, 0, 3]);
    control.string(b"/dev/shm/other");
    rig.send(client, &request(7, control));
    assert!(rig.written.contains_key(&client) && rig.closed.is_empty());
    assert!(rig.files.len() == 1 && rig.others.is_empty(), "{:?} {:?}", rig.files, rig.others);
}

#[test]
fn stranger_and_other_rank_are_closed_without_a_byte() {
    let mut rig = Rig::new(world(2));
    for bytes in ["GET / HTTP/1.1\r\n", "cmd=init\n", "cmd=initack pmiid=2\n", "cmd=initack\n", "cmx"] {
        let client = rig.mpi.open();
        assert_eq!(rig.say(client, bytes), "", "{bytes}");
    }
    assert_eq!(rig.closed.len(), 5);
    let client = rig.mpi.open();
    rig.mpi.receive(Mono::from_nanos(1), client, b"cmd=initack pmiid=1\n", |_| Some(false));
    let Some(Action::Close { why: Broken::OtherRank(1), .. }) = rig.mpi.poll_action() else { panic!("refused") };
    assert_eq!(rig.mpi.poll_action(), None);
}

#[test]
fn process_of_a_rank_that_is_being_started_waits() {
    let mut rig = Rig::new(world(2));
    let (client, line) = (rig.mpi.open(), b"cmd=initack pmiid=1\n");
    assert_eq!(rig.mpi.receive(Mono::from_nanos(1), client, line, |_| None), 0);
    rig.drain();
    assert!(rig.closed.is_empty() && rig.written.is_empty());
    assert_eq!(rig.send(client, line), line.len());
    assert!(rig.taken(client).contains("set rank=1"));
}

#[test]
fn abort_names_rank_and_code() {
    let mut rig = Rig::new(world(4));
    let client = rig.rank(3);
    assert_eq!(rig.say(client, "cmd=abort exitcode=7 message=abort\n"), "");
    assert_eq!(rig.others, [Action::Abort { rank: Rank::new(3), code: 7, text: b"abort".to_vec() }]);
    assert!(rig.mpi.is_inside(Rank::new(3)));
}

#[test]
fn mapping_is_in_blocks() {
    let mapping = |hosts: Vec<HostRanks>| Layout { hosts, ..world(1) }.mapping().unwrap();
    assert_eq!(mapping(vec![host("a", &[(0, 3)])]), "(vector,(0,1,4))");
    assert_eq!(mapping(vec![host("a", &[(0, 3)]), host("b", &[(4, 7)])]), "(vector,(0,2,4))");
    assert_eq!(mapping(vec![host("a", &[(0, 3)]), host("b", &[(4, 5)])]), "(vector,(0,1,4),(1,1,2))");
    let odd = [(0, 0), (2, 2), (4, 4)];
    assert_eq!(mapping(vec![host("a", &odd), host("b", &[(1, 1), (3, 3), (5, 5)])]), "(vector,(0,2,1))");
}

/// Two hosts with a store between them.
struct Hosts {
    rigs: [Rig; 2],
    store: Namespace,
    /// How many each has sent.
    requests: [usize; 2],
}

impl Hosts {
    fn new() -> Self {
        let hosts = vec![host("a", &[(0, 1)]), host("b", &[(2, 3)])];
        let layout = Layout { hosts, apps: vec![4], ..world(4) };
        let rigs = [0, 1].map(|here| Rig::new(Layout { here, ..layout.clone() }));
        Self { rigs, store: Namespace::new(LIMITS), requests: [0; 2] }
    }

    fn rig(&mut self, rank: u32) -> &mut Rig {
        &mut self.rigs[(rank as usize / 2).min(1)]
    }

    /// Passes on requests and answers until there are none.
    fn exchange(&mut self) {
        let now = Mono::from_nanos(1);
        loop {
            for (number, rig) in (0..).zip(&mut self.rigs) {
                for (seq, words) in core::mem::take(&mut rig.asked) {
                    self.requests[number as usize] += 1;
                    let frame = Asked { seq, space: Space::Generation, words: &words }.to_frame();
                    assert!(frame.len() <= MAX_FRAME, "an edge takes no request of {} bytes", frame.len());
                    let ticket = Ticket { client: ClientId::new(number), seq: Seq(seq) };
                    self.store.ask(now, ticket, Words::parse(&words).unwrap().ask());
                }
            }
            let mut has_moved = false;
            while let Some(Stored::Answer { ticket, answer }) = self.store.poll_action() {
                has_moved = true;
                let rig = &mut self.rigs[ticket.client.index()];
                let mut words = write_reply(&answer);
                if words.len() > MAX_FRAME {
                    words = write_reply(&Answer::Refused(Refusal::LongAnswer { len: words.len(), most: MAX_FRAME }));
                }
                rig.mpi.answered(now, ticket.seq.0, &words);
                rig.drain();
            }
            if !has_moved {
                return;
            }
        }
    }
}

#[test]
fn barrier_over_hosts_brings_the_keys_of_all() {
    let mut hosts = Hosts::new();
    let clients = [0, 1, 2, 3].map(|rank| hosts.rig(rank).rank(rank));
    for round in 0..2 {
        for (rank, client) in (0..).zip(clients) {
            let put = alloc::format!("cmd=put kvsname=k key=a{rank}-{round} value=v{rank}\ncmd=barrier_in\n");
            let answer = hosts.rig(rank).say(client, &put);
            assert!(!answer.contains("barrier_out"), "{answer}");
            hosts.exchange();
        }
        for (rank, client) in (0..).zip(clients) {
            assert_eq!(hosts.rig(rank).taken(client), "cmd=barrier_out rc=0\n");
            for of in 0..4 {
                let get = alloc::format!("cmd=get kvsname=k key=a{of}-{round}\n");
                let mut value = hosts.rig(rank).say(client, &get);
                hosts.exchange();
                value += &hosts.rig(rank).taken(client);
                assert_eq!(value, alloc::format!("cmd=get_result rc=0 found=TRUE value=v{of}\n"));
            }
        }
    }
    // Requests: the keys that were put, the fence, and the first look at the other host's keys. A fence without new keys is one request.
    assert_eq!(hosts.requests, [6, 6]);
    for (rank, client) in (0..).zip(clients) {
        hosts.rig(rank).say(client, "cmd=barrier_in\n");
    }
    hosts.exchange();
    assert_eq!(hosts.requests, [7, 7]);
    clients.iter().zip(0..).for_each(|(client, rank)| assert!(hosts.rig(rank).taken(*client).contains("barrier_out")));
    // A barrier of one host needs no request.
    hosts.rig(0).say(clients[0], "cmd=barrier_in group=NODE:1\n");
    assert!(hosts.rig(0).say(clients[1], "cmd=barrier_in group=NODE:1\n").contains("barrier_out"));
    assert!(hosts.rigs[0].asked.is_empty());
    assert!(hosts.rig(3).say(clients[3], "cmd=get kvsname=k key=PMI_process_mapping\n").contains("(0,2,2)"));
}

#[test]
fn names_are_published_for_all_hosts() {
    let mut hosts = Hosts::new();
    let [first, last] = [0, 3].map(|rank| hosts.rig(rank).rank(rank));
    let mut say = |rank: u32, client, line: &str| {
        let at_once = hosts.rig(rank).say(client, line);
        hosts.exchange();
        at_once + &hosts.rig(rank).taken(client)
    };
    assert!(say(3, last, "cmd=lookup_name service=ocean\n").contains("lookup_result rc=-1"));
    assert!(say(0, first, "cmd=publish_name service=ocean port=tag#0\n").contains("publish_result rc=0"));
    assert!(say(3, last, "cmd=publish_name service=ocean port=other\n").contains("duplicate_service"));
    assert_eq!(say(3, last, "cmd=lookup_name service=ocean\n"), "cmd=lookup_result rc=0 port=tag#0\n");
    assert!(say(0, first, "cmd=unpublish_name service=ocean\n").contains("unpublish_result rc=0"));
    assert!(say(3, last, "cmd=lookup_name service=ocean\n").contains("lookup_result rc=-1"));
}

#[test]
fn rank_that_takes_part_in_rounds_is_refused() {
    let mut rig = Rig::new(world(2));
    rig.mpi.register(Rank::new(1));
    let client = rig.mpi.open();
    assert_eq!(rig.say(client, "cmd=initack pmiid=1\n"), "");
    assert!(rig.closed[0].1.contains("rank 1 takes part in in-process restarts"), "{:?}", rig.closed);
    rig.rank(0);
    assert!(rig.mpi.has_come(Rank::new(0)) && !rig.mpi.has_come(Rank::new(1)));
}

/// A request of PMIx, as a client sends it.
fn request(tag: u32, body: Writer) -> Vec<u8> {
    Header::frame(0, tag, &body.into_bytes())
}

fn hello(rank: u32) -> Vec<u8> {
    hello_of("world", rank)
}

fn hello_of(world: &str, rank: u32) -> Vec<u8> {
    hello_of_version(world, rank, "5.0")
}

fn hello_of_version(world: &str, rank: u32, version: &str) -> Vec<u8> {
    let begin = [&b"none\0\0\0\0\0\0"[..], world.as_bytes(), b"\0", &rank.to_be_bytes()].concat();
    let body = [&begin, version.as_bytes(), b"\0v21\0\x01hash\0"].concat();
    let mut all = [0xff; 4].to_vec();
    all.extend(0_u32.to_le_bytes());
    all.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    all.extend([0; 4]);
    all.extend(body);
    all
}

#[test]
fn data_of_a_rank_of_another_host_is_waited_for() {
    // Whether the ranks have met before.
    [false, true].into_iter().for_each(wait_for_data);
}

fn wait_for_data(has_met: bool) {
    let mut hosts = Hosts::new();
    let clients = [0, 3].map(|rank| {
        let client = hosts.rig(rank).mpi.open();
        assert_eq!(hosts.rig(rank).send(client, &hello(rank)), hello(rank).len());
        hosts.rig(rank).written.clear();
        client
    });
    let command = |number: u8| {
        let mut body = Writer::new(false);
        body.raw(&[0, 0, 0, 1, number]);
        body
    };
    if has_met {
        for (rank, client) in [0, 3].into_iter().zip(clients) {
            let mut fence = command(3);
            fence.procs([0, 3].map(|rank| Proc { nspace: b"world", rank }).into_iter()).size(0);
            hosts.rig(rank).send(client, &request(6, fence));
        }
        hosts.exchange();
        hosts.rigs.iter_mut().for_each(|rig| assert_eq!(core::mem::take(&mut rig.written).len(), 1));
    }
    let mut get = command(4);
    get.string(b"world").rank(3).size(0);
    hosts.rig(0).send(clients[0], &request(7, get));
    hosts.exchange();
    assert!(hosts.rigs[0].written.is_empty(), "rank 3 has committed nothing");
    let mut commit = command(2);
    let mut data = Writer::new(false);
    data.key_text(b"key", b"value");
    let data = data.into_bytes();
    let len = u64::try_from(data.len()).unwrap().to_be_bytes();
    commit.raw(&[0, 0, 0, 1, 2, 0, 0, 0, 1, 1, 0, 15]).raw(&len).raw(&data);
    hosts.rig(3).send(clients[1], &request(8, commit));
    hosts.exchange();
    assert!(hosts.rigs[0].written.is_empty(), "it waits for a fence, or for a moment");
    let due = hosts.rig(3).mpi.poll_timeout().unwrap();
    hosts.rig(3).pass(due);
    hosts.exchange();
    let answer = hosts.rigs[0].written.remove(&clients[0]).unwrap();
    assert_eq!(Header::parse(&answer).unwrap().unwrap().tag, 7);
    assert!(answer.windows(data.len()).any(|part| part == data), "{answer:?}");
}

/// The parts of a spawn of two programs.
const SPAWN: &str = "mcmd=spawn\nnprocs=2\nexecname=./a\ntotspawns=2\nspawnssofar=1\nargcnt=2\narg1=x y\narg2=z\npreput_num=1\n\
                     preput_key_0=PARENT_ROOT_PORT_NAME\npreput_val_0=tag$port\ninfo_num=2\ninfo_key_0=wdir\ninfo_val_0=/w\n\
                     info_key_1=host\ninfo_val_1=h1,h2\nendcmd\nmcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=2\nspawnssofar=2\n\
                     argcnt=0\npreput_num=0\ninfo_num=1\ninfo_key_0=path\ninfo_val_0=/p\nendcmd\n";

/// The only order, and its number.
fn order(rig: &mut Rig, asker: ClientId) -> (u64, Request) {
    let others = core::mem::take(&mut rig.others);
    let [Action::Order { seq, client, rank, words }] = others.as_slice() else { panic!("{others:?}") };
    let Ok(Order::Spawn(request)) = Order::parse(words) else { panic!("a spawn") };
    assert_eq!((*client, *rank), (asker, Rank::new(1)));
    (*seq, request)
}

#[test]
fn programs_that_a_rank_of_pmi_1_starts_are_an_order() {
    let mut rig = Rig::new(world(2));
    let client = rig.rank(1);
    assert_eq!(rig.say(client, SPAWN), "", "the answer waits for the ranks");
    let (seq, request) = order(&mut rig, client);
    let first = Program {
        ranks: 2,
        argv: vec!["./a".into(), "x y".into(), "z".into()],
        wdir: Some("/w".into()),
        hosts: vec!["h1".into(), "h2".into()],
        ..Program::default()
    };
    let second = Program { ranks: 1, argv: vec!["/p/b".into()], ..Program::default() };
    assert_eq!(request.programs, [first, second]);
    rig.mpi.answered(Mono::from_nanos(2), seq, &write_reply(&rlaunch_keyvalue::store::Answer::Value(None)));
    rig.drain();
    assert_eq!(rig.taken(client), "cmd=spawn_result rc=0 errcodes=0,0,0\n");
    // The new ranks find the keys of the rank that has started them.
    let mut new = Rig::new(Layout { origin: request.origin, ..world(3) });
    let child = new.rank(0);
    let get = "cmd=get kvsname=k key=PARENT_ROOT_PORT_NAME\n";
    assert_eq!(new.say(child, get), "cmd=get_result rc=0 found=TRUE value=tag$port\n");
    new.say(child, "cmd=finalize\n");
    let again = new.rank(0);
    assert!(new.say(again, get).contains("key_not_found"), "the second program of a rank has no parent");
}

#[test]
fn program_that_cannot_be_started_is_an_error_of_the_rank() {
    let mut rig = Rig::new(world(2));
    let client = rig.rank(1);
    rig.say(client, SPAWN);
    let (seq, _) = order(&mut rig, client);
    let refused = Refused { code: Code::Unsupported, within: None, text: b"no such file", hint: b"a path" };
    rig.mpi.answered(Mono::from_nanos(2), seq, &refused.write());
    rig.drain();
    assert_eq!(rig.taken(client), "cmd=spawn_result rc=-1 msg=spawn_failed\n");
    let text = b"rlaunch: MPI_Comm_spawn: no such file\n  try     a path".to_vec();
    assert_eq!(rig.others, [Action::Log { rank: Rank::new(1), text, help: None }]);
    assert!(rig.say(client, "cmd=get_appnum\n").contains("appnum=0"), "the rank continues");
}

#[test]
fn spawn_that_cannot_be_is_refused_before_it_is_an_order() {
    let mut rig = Rig::new(world(2));
    let client = rig.rank(1);
    let failed = "cmd=spawn_result rc=-1 msg=spawn_failed\n";
    assert_eq!(rig.say(client, &SPAWN.replace("info_val_0=/p\n", "info_val_0=/p:/q\n")), failed);
    let long = alloc::format!("arg2={}\n", "z".repeat(15_000)).repeat(40);
    assert_eq!(rig.say(client, &SPAWN.replace("arg2=z\n", &long)), failed);
    // Programs of which nothing is said.
    let many = alloc::format!("mcmd=spawn\ntotspawns=20000\n{}", "endcmd\n".repeat(20_000));
    assert_eq!(rig.say(client, &many), failed);
    assert!(rig.others.iter().all(|action| matches!(action, Action::Log { .. })), "{:?}", rig.others);
    rig.others.clear();
    rig.say(client, SPAWN);
    order(&mut rig, client);
    assert!(rig.closed.is_empty());
}
