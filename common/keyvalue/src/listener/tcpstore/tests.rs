//! The bytes that torch's clients send and expect; and bytes that none of them would send.

use super::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use proptest::prelude::*;
use rlaunch_protocol::wire::limit::{Limit, Met};

/// A front and its connections.
struct Desk {
    front: TcpStore,
    now: Mono,
}

/// The bytes that were written, by client.
type Written = Vec<(ClientId, Vec<u8>)>;
/// The clients that are to be closed, and the reasons.
type Closed = Vec<(ClientId, String)>;

/// The parts of a message: numbers of 64 bits, strings, bytes.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn op(code: u8) -> Self {
        Self(vec![code])
    }
    fn n(mut self, number: i64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }
    fn s(self, text: &str) -> Self {
        self.b(text.as_bytes())
    }
    fn b(mut self, bytes: &[u8]) -> Self {
        self.0.extend((bytes.len() as u64).to_le_bytes());
        self.0.extend(bytes);
        self
    }
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

fn say() -> Words {
    Words::default()
}

impl Desk {
    fn new() -> Self {
        Self { front: TcpStore::new(Limits::default()), now: Mono::from_nanos(1) }
    }

    /// A client of torch 2.2 or later.
    fn modern(&mut self) -> ClientId {
        let client = self.front.open(Peer(1));
        self.exchange(
            client,
            say().raw(&[0, 0xCE, 0xF7, 0x85, 0x3C, 13, 0xE2, 0x69, 0, 0]),
            say().raw(&[0xE2, 0x69, 0, 0]),
        );
        client
    }

    fn send(&mut self, client: ClientId, words: &Words) {
        assert_eq!(self.front.receive(self.now, client, &words.0), words.0.len(), "all of it is understood");
    }

    /// All that is to be done, as (client, bytes) and (client, why).
    fn outcome(&mut self) -> (Written, Closed) {
        let (mut written, mut closed) = (Vec::new(), Vec::new());
        while let Some(action) = self.front.poll_action() {
            match action {
                Action::Write { client, bytes } => written.push((client, bytes)),
                Action::Close { client, why } => closed.push((client, why.to_string())),
            }
        }
        (written, closed)
    }

    /// A request, and its whole answer.
    #[track_caller]
    fn exchange(&mut self, client: ClientId, request: Words, answer: Words) {
        self.send(client, &request);
        let expected = if answer.0.is_empty() { vec![] } else { vec![(client, answer.0)] };
        assert_eq!(self.outcome(), (expected, vec![]));
    }

    /// The reason why the connection is closed.
    fn broken(&mut self, client: ClientId, request: &Words) -> String {
        self.front.receive(self.now, client, &request.0);
        let (written, mut closed) = self.outcome();
        assert_eq!(written, []);
        assert_eq!(closed.len(), 1);
        let (whose, why) = closed.remove(0);
        assert_eq!(whose, client);
        self.front.closed(self.now, client);
        why
    }
}

#[test]
fn half_requests_are_charged_and_refused_beyond_the_limit() {
    let mut desk = Desk::new();
    desk.front = TcpStore::new(Limits { bytes: 100_000, ..Limits::default() });
    let half = Words::op(1).s("key").b(&[b'v'; 50_000]);
    let half = &half.0[..half.0.len() - 1];
    let used = |desk: &mut Desk, client| {
        let epoch = desk.front.sessions.get(client).unwrap().epoch;
        desk.front.epochs.keys(epoch).unwrap().used().0
    };
    let (one, other, third) = (desk.modern(), desk.modern(), desk.modern());
    let nothing = used(&mut desk, one);
    assert_eq!(desk.front.receive(desk.now, one, half), 0);
    assert_eq!(used(&mut desk, one), nothing + half.len() - FREE_REQUEST);
    assert_eq!(desk.front.receive(desk.now, other, half), 0);
    assert_eq!(desk.outcome(), (vec![], vec![]));
    desk.front.receive(desk.now, third, half);
    let (written, closed) = desk.outcome();
    assert_eq!((written.len(), closed.len()), (0, 1));
    assert_eq!(closed[0].0, third);
    assert!(closed[0].1.ends_with("91846 of 100000 bytes are in use"), "{}", closed[0].1);
    desk.front.closed(desk.now, third);
    // A whole request is charged as the value that it stores. A connection that closes gives back its charge.
    let whole = [half, b"v"].concat();
    assert_eq!(desk.front.receive(desk.now, one, &whole), whole.len());
    desk.front.closed(desk.now, other);
    assert_eq!(used(&mut desk, one), nothing + "key".len() + 50_000 + Limits::PER_ITEM);
    // Unread answers are charged like requests, except for the length of one value.
    desk.front.unread(one, FREE_ANSWER);
    assert_eq!(desk.outcome(), (vec![], vec![]));
    desk.front.unread(one, FREE_ANSWER + 60_000);
    let (_, closed) = desk.outcome();
    assert_eq!(closed.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [one]);
}

/// The transcript of torch 1.13's client.
#[test]
fn torch_1_13_is_answered_as_by_its_own_server() {
    let mut desk = Desk::new();
    let (client, callbacks) = (desk.front.open(Peer(1)), desk.front.open(Peer(1)));
    desk.exchange(client, Words::op(3).s("init/").n(1), say().n(1));
    desk.exchange(client, Words::op(0).s("/k1").s("v1"), say());
    desk.exchange(client, Words::op(5).n(1).s("/k1"), say().raw(&[0]));
    desk.exchange(client, Words::op(2).s("/k1"), say().s("v1"));
    desk.exchange(client, Words::op(3).s("/ctr").n(5), say().n(5));
    desk.exchange(client, Words::op(1).s("/k1").s("v1").s("v2"), say().s("v2"));
    desk.exchange(client, Words::op(1).s("/nokey").s("x").s("y"), say().s("x"));
    desk.exchange(client, Words::op(5).n(1).s("/never"), say());
    // Its client has given up, without a word. Were the wait not forgotten, its end would be taken for the next answer.
    desk.exchange(client, Words::op(6), say().n(3));
    let other = desk.front.open(Peer(2));
    desk.exchange(other, Words::op(0).s("/never").s("x"), say());
    desk.exchange(client, Words::op(8).s("/k1"), say().n(1));
    desk.exchange(client, Words::op(8).s("/k1"), say().n(0));
    desk.exchange(callbacks, Words::op(7).s("/ctr"), say().raw(&[3]));
}

#[test]
fn torch_1_13_is_notified_of_each_change_of_a_watched_key() {
    let mut desk = Desk::new();
    let (client, callbacks) = (desk.front.open(Peer(1)), desk.front.open(Peer(1)));
    desk.exchange(client, Words::op(0).s("/k").s("old"), say());
    desk.exchange(callbacks, Words::op(7).s("/k"), say().raw(&[3]));
    let mut change = |request: Words, answer: Words, notice: Words| {
        desk.send(client, &request);
        let (mut written, _) = desk.outcome();
        written.sort();
        let mut expected = vec![(callbacks, notice.0)];
        if !answer.0.is_empty() {
            expected.insert(0, (client, answer.0));
        }
        assert_eq!(written, expected);
    };
    change(Words::op(0).s("/k").s("new"), say(), say().raw(&[0]).s("/k").s("old").s("new"));
    change(Words::op(8).s("/k"), say().n(1), say().raw(&[2]).s("/k").s("new").s(""));
    change(Words::op(3).s("/k").n(4), say().n(4), say().raw(&[1]).s("/k").s("").s("4"));
    desk.exchange(callbacks, Words::op(7).s("/other"), say().raw(&[3]));
    desk.send(client, &Words::op(0).s("/k").s("x"));
    desk.send(client, &Words::op(0).s("/other").s("y"));
    assert_eq!(desk.outcome().0.len(), 1, "both keys are watched");
}

/// The transcript of torch 2.15's client.
#[test]
fn torch_2_15_is_answered_as_by_its_own_server() {
    let mut desk = Desk::new();
    let client = desk.modern();
    desk.exchange(client, Words::op(4).s("init/").n(1), say().n(1));
    desk.exchange(client, Words::op(1).s("/k1").s("v1"), say());
    desk.exchange(client, Words::op(6).n(1).s("/k1"), say().raw(&[0]));
    desk.exchange(client, Words::op(3).s("/k1"), say().s("v1"));
    desk.exchange(client, Words::op(3).s("/nokey"), say().s(""));
    desk.exchange(client, Words::op(2).s("/k1").s("v1").s("v2"), say().s("v2"));
    desk.exchange(client, Words::op(2).s("/k1").s("v1").s("v3"), say().s("v2"));
    desk.exchange(client, Words::op(2).s("/nokey").s("x").s("y"), say().s("x"));
    desk.exchange(client, Words::op(2).s("/cas").s("").s("y"), say().s("y"));
    desk.exchange(client, Words::op(6).n(1).s("/never"), say());
    desk.exchange(client, Words::op(12), say().raw(&[1]));
    desk.exchange(client, Words::op(1).s("/never").s(""), say());
    desk.exchange(client, Words::op(7), say().n(4));
    desk.exchange(client, Words::op(8).s("/never"), say().n(1));
    desk.exchange(client, Words::op(9).s("/k3").s("abc"), say());
    desk.exchange(client, Words::op(11).n(2).s("/m1").s("a").s("/m2").s("b"), say());
    desk.exchange(client, Words::op(6).n(2).s("/m1").s("/m2"), say().raw(&[0]));
    desk.exchange(client, Words::op(10).n(3).s("/m1").s("/no").s("/m2"), say().s("a").s("").s("b"));
    desk.exchange(client, Words::op(5).n(1).s("/m1"), say().raw(&[0]));
    desk.exchange(client, Words::op(5).n(2).s("/m1").s("/no"), say().raw(&[1]));
    let listed = say().n(6).s("/cas").s("/k1").s("/k3").s("/m1").s("/m2").s("init/");
    desk.exchange(client, Words::op(17), listed);
    desk.exchange(client, Words::op(15).s("/q"), say().n(0));
    desk.exchange(client, Words::op(14).s("/q").s("x"), say());
    desk.exchange(client, Words::op(6).n(1).s("/q"), say().raw(&[0]));
    desk.exchange(client, Words::op(16).s("/q"), say().n(1));
    desk.exchange(client, Words::op(15).s("/q"), say().n(1).s("x"));
    desk.exchange(client, Words::op(16).s("/q"), say().n(0));
    desk.exchange(client, Words::op(18).s("/b1").n(1), say().raw(&[0]));
    desk.exchange(client, Words::op(3).s("/b1"), say().s("1"));
}

#[test]
fn torch_2_1_has_opcodes_of_its_own() {
    let mut desk = Desk::new();
    let client = desk.front.open(Peer(1));
    desk.exchange(client, Words::op(3).s("init/").n(1), say().n(1));
    desk.exchange(client, Words::op(8).s("/k").s("ab"), say());
    desk.exchange(client, Words::op(8).s("/k").s("c"), say());
    desk.exchange(client, Words::op(9).n(1).s("/k"), say().s("abc"));
    desk.exchange(client, Words::op(7).s("/k"), say().n(1));
    desk.exchange(client, Words::op(5).n(1).s("/k"), say());
    desk.exchange(client, Words::op(11), say().raw(&[1]));
}

#[test]
fn torch_2_1_is_not_taken_for_another_because_of_a_second_store() {
    let mut desk = Desk::new();
    let client = desk.front.open(Peer(1));
    desk.exchange(client, Words::op(3).s("init/").n(1), say().n(1));
    desk.exchange(client, Words::op(8).s("/k").s("ab"), say());
    let idle = desk.front.open(Peer(1));
    desk.exchange(client, Words::op(8).s("/k").s("c"), say());
    desk.exchange(client, Words::op(9).n(1).s("/k"), say().s("abc"));
    desk.exchange(client, Words::op(11), say().raw(&[1]));
    desk.front.closed(desk.now, idle);
    let alone = desk.front.open(Peer(2));
    desk.exchange(alone, Words::op(7).s("/k"), say().n(1));
}

#[test]
fn a_second_protocol_is_none() {
    let mut desk = Desk::new();
    let client = desk.modern();
    desk.exchange(client, Words::op(0).raw(&MAGIC.to_le_bytes()), say());
    assert_eq!(
        desk.broken(client, &Words::op(0).raw(&[1, 0, 0, 0])),
        "it speaks protocol 0x1, which is none of torch's"
    );
}

#[test]
fn a_long_list_is_not_read_again_for_each_of_its_keys() {
    let mut desk = Desk::new();
    let client = desk.modern();
    let head = Words::op(6).n(1000).s("/k");
    assert_eq!(desk.front.receive(desk.now, client, &head.0), 0);
    assert_eq!(desk.front.sessions.get(client).unwrap().needed, 9 + 1000 * 8, "each key has a length");
    let other = desk.modern();
    let head = Words::op(11).n(10).s("/k");
    assert_eq!(desk.front.receive(desk.now, other, &head.0), 0);
    assert_eq!(desk.front.sessions.get(other).unwrap().needed, 9 + 10 * 16, "so has each value");
}

#[test]
fn a_barrier_lets_all_through_at_once_and_a_wait_ends_with_the_key() {
    let mut desk = Desk::new();
    let clients: Vec<ClientId> = (0..3).map(|_| desk.modern()).collect();
    for client in &clients {
        desk.send(*client, &Words::op(18).s("/b").n(3));
    }
    // The last client is answered first: a program that reads in order is woken once.
    assert_eq!(desk.outcome().0, clients.iter().rev().map(|client| (*client, vec![0])).collect::<Vec<_>>());
    for client in &clients[1..] {
        desk.exchange(*client, Words::op(6).n(2).s("/a").s("/b"), say());
    }
    desk.front.closed(desk.now, clients[1]);
    desk.send(clients[0], &Words::op(1).s("/a").s(""));
    assert_eq!(desk.outcome().0, [(clients[2], vec![0])], "nothing is written for one that is gone");
}

#[test]
fn keys_stay_when_the_last_connection_closes() {
    let mut desk = Desk::new();
    let client = desk.modern();
    desk.exchange(client, Words::op(1).s("/result").s("42"), say());
    desk.front.closed(desk.now, client);
    let late = desk.modern();
    desk.exchange(late, Words::op(3).s("/result"), say().s("42"));
}

/// A client of this process that meets the others, as the nth, and says where it is.
fn meets(desk: &mut Desk, process: u64, nth: i64) -> ClientId {
    let client = desk.front.open(Peer(process));
    desk.send(client, &say().raw(&[0, 0xCE, 0xF7, 0x85, 0x3C]));
    desk.exchange(client, Words::op(4).s("init/").n(1), say().n(nth));
    desk.send(client, &Words::op(1).s(&format!("/at{process}")).s("here"));
    client
}

fn sees(desk: &mut Desk, client: ClientId, process: u64) -> bool {
    desk.send(client, &Words::op(5).n(1).s(&format!("/at{process}")));
    let (written, closed) = desk.outcome();
    assert_eq!((written.len(), closed), (1, vec![]));
    // `CheckResponseType`: 0 is ready.
    written[0].1 == [0]
}

#[test]
fn a_group_that_is_made_again_does_not_read_the_addresses_of_the_first() {
    let mut desk = Desk::new();
    let (early, late) = (meets(&mut desk, 1, 1), meets(&mut desk, 2, 2));
    desk.front.closed(desk.now, early);
    // Back before the other has left: what that one has written is not for it, and the other one finds it still.
    let early = meets(&mut desk, 1, 1);
    assert!(!sees(&mut desk, early, 2) && sees(&mut desk, late, 2));
    let child = desk.front.open(Peer(3));
    desk.send(child, &say().raw(&[0, 0xCE, 0xF7, 0x85, 0x3C]));
    assert!(sees(&mut desk, child, 1), "who comes for the first time sees the newest");
    let second = desk.front.open(Peer(2));
    desk.send(second, &say().raw(&[0, 0xCE, 0xF7, 0x85, 0x3C]));
    assert!(sees(&mut desk, second, 2), "and another connection what the first of its process sees");
    desk.front.closed(desk.now, second);
    desk.front.closed(desk.now, late);
    let late = meets(&mut desk, 2, 2);
    assert!(sees(&mut desk, late, 1) && sees(&mut desk, early, 2), "they meet again");
}

/// `python a.py; python b.py` as a rank.
#[test]
fn group_of_new_processes_does_not_read_the_keys_of_a_group_that_is_gone() {
    let mut desk = Desk::new();
    let first = [meets(&mut desk, 1, 1), meets(&mut desk, 2, 2)];
    first.into_iter().for_each(|client| desk.front.closed(desk.now, client));
    let reader = desk.front.open(Peer(3));
    desk.send(reader, &say().raw(&[0, 0xCE, 0xF7, 0x85, 0x3C]));
    assert!(sees(&mut desk, reader, 1), "a process that meets no other reads the keys");
    desk.front.closed(desk.now, reader);
    // Both have connected before one of them asks for something.
    let early = desk.front.open(Peer(5));
    let one = meets(&mut desk, 4, 1);
    desk.send(early, &say().raw(&[0, 0xCE, 0xF7, 0x85, 0x3C]));
    desk.exchange(early, Words::op(4).s("init/").n(1), say().n(2));
    assert!(!sees(&mut desk, early, 1) && sees(&mut desk, early, 4));
    assert_eq!(
        (desk.front.epochs.count_all(), sees(&mut desk, one, 2)),
        (1, false),
        "the keys of the first group are forgotten"
    );
}

#[test]
fn returning_client_without_rendezvous_finds_its_epoch() {
    let mut desk = Desk::new();
    let (stays, goes) = (meets(&mut desk, 1, 1), meets(&mut desk, 2, 2));
    desk.front.closed(desk.now, goes);
    let back = desk.front.open(Peer(2));
    desk.send(back, &say().raw(&[0, 0xCE, 0xF7, 0x85, 0x3C]));
    assert!(sees(&mut desk, back, 1) && sees(&mut desk, stays, 2));
}

#[test]
fn malformed_request_ends_only_its_connection() {
    let mut desk = Desk::new();
    let good = desk.modern();
    let long = "x".repeat(8193);
    let cases = [
        (Words::op(19), "opcode 19 is unknown"),
        (Words::op(3).s(&long), "a key of 8193 is longer than 8192"),
        (Words::op(1).s("/k").n((8 << 20) + 1), "a value of 8388609 is longer than 8388608"),
        (Words::op(6).n(131_073), "a list of 131073 is longer than 131072"),
        (Words::op(10).n(-1), "a list of 18446744073709551615 is longer than 131072"),
        (
            Words::op(1).s("/n").s("x").raw(&Words::op(4).s("/n").n(1).0),
            "the value of '/n' is no decimal number of 64 bits",
        ),
    ];
    for (request, expected) in cases {
        let client = desk.modern();
        assert_eq!(desk.broken(client, &request), expected);
    }
    let early = desk.front.open(Peer(1));
    assert_eq!(desk.broken(early, &say().raw(b"GET / HTTP/1.1\r\n")), "opcode 71 is unknown");
    let late = desk.front.open(Peer(1));
    let wrong = say().raw(&[0, 0xCE, 0xF7, 0x85, 0x3C]).raw(&Words::op(7).0);
    desk.exchange(late, wrong, say().n(1));
    desk.exchange(good, Words::op(3).s("/n"), say().s("x"));
}

#[test]
fn packet_borders_do_not_change_malformed_requests() {
    // Three pairs were announced, and the length of the first key is none; two bytes are missing of what they have at least.
    let words = Words::op(11).n(3).n(i64::MAX).raw(&[0; 30]);
    for size in 1..=words.0.len() {
        let mut desk = Desk::new();
        let client = desk.modern();
        let mut held = Vec::new();
        for piece in words.0.chunks(size) {
            held.extend_from_slice(piece);
            let used = desk.front.receive(desk.now, client, &held);
            held.drain(..used);
        }
        assert_eq!(desk.outcome(), (vec![], vec![]), "in pieces of {size}");
        held.extend_from_slice(&[0; 10]);
        desk.front.receive(desk.now, client, &held);
        assert_eq!(desk.outcome().1.len(), 1, "now there is enough, in pieces of {size}");
    }
}

#[test]
fn answers_have_a_limit() {
    let mut desk = Desk::new();
    let client = desk.modern();
    desk.exchange(client, Words::op(1).s("/k").b(&vec![7; 8 << 20]), say());
    let slow = desk.modern();
    let mut all = Words::op(10).n(9);
    for _ in 0..9 {
        all = all.s("/k");
    }
    assert_eq!(
        desk.broken(client, &all),
        format!("an answer of {} bytes is longer than 67108864", 9 * ((8 << 20) + 8))
    );
    for _ in 0..9 {
        desk.send(slow, &Words::op(3).s("/k"));
    }
    let (written, closed) = desk.outcome();
    assert_eq!((written, closed.len()), (vec![], 1), "what it does not read is not kept for it");
    assert_eq!(closed[0], (slow, format!("{} bytes of answers wait for it", 8 * ((8 << 20) + 8))));
}

#[test]
fn cut_off_hosts_get_advice() {
    let hints = [
        (Broken::Malformed(Malformed::Opcode(71)), "see what else connects to MASTER_PORT"),
        (Broken::Malformed(Malformed::Long(Met::at(Limit::Value, b"k", 9, 8))), "its path in the store"),
        (Broken::OtherProtocol(1), "torch 1.13 and 2.1 to 2.15 are understood"),
        (Broken::Refused(Refusal::ManyWaiting { most: 1 }), "wait for several keys with one request"),
        (Broken::LongAnswer(9), "ask for fewer keys at once"),
        (Broken::Unread(9), "see whether it is stopped"),
    ];
    for (why, expected) in hints {
        let hint = why.hint().unwrap_or_default();
        assert!(hint.ends_with(expected), "{why}: {hint}");
    }
}

#[test]
fn a_large_request_is_looked_at_when_it_is_there() {
    let mut desk = Desk::new();
    let client = desk.modern();
    let request = Words::op(1).s("/k").b(&vec![7; 1 << 20]);
    assert_eq!(desk.front.receive(desk.now, client, &request.0[..1000]), 0);
    assert_eq!(desk.front.sessions.get(client).unwrap().needed, request.0.len(), "its end is known from its beginning");
    assert_eq!(desk.front.receive(desk.now, client, &request.0), request.0.len());
    desk.exchange(client, Words::op(7), say().n(1));
}

proptest! {
    /// However the bytes are cut, the answers are the same.
    #[test]
    fn packet_borders_do_not_matter(cuts in prop::collection::vec(1usize..40, 1..80)) {
        let request = Words::op(0).raw(&MAGIC.to_le_bytes()).raw(&Words::op(1).s("/k").s("value").0)
            .raw(&Words::op(11).n(2).s("/a").s("1").s("/b").s("2").0).raw(&Words::op(10).n(2).s("/a").s("/b").0)
            .raw(&Words::op(6).n(2).s("/k").s("/a").0).raw(&Words::op(4).s("/n").n(-3).0).raw(&Words::op(3).s("/k").0).0;
        let answer = say().s("1").s("2").raw(&[0]).n(-3).s("value").0;
        let mut desk = Desk::new();
        let client = desk.front.open(Peer(1));
        let (mut held, mut sent, mut got) = (Vec::new(), 0, Vec::new());
        for cut in cuts.iter().cycle() {
            if sent == request.len() {
                break;
            }
            let end = request.len().min(sent + cut);
            held.extend_from_slice(&request[sent..end]);
            sent = end;
            let used = desk.front.receive(desk.now, client, &held);
            held.drain(..used);
            got.extend(desk.outcome().0.into_iter().flat_map(|(_, bytes)| bytes));
        }
        prop_assert_eq!(held, Vec::<u8>::new());
        prop_assert_eq!(got, answer);
    }

    /// Whatever comes, nothing panics, and a connection is closed once at most.
    #[test]
    fn noise_is_survived(noise in prop::collection::vec(any::<u8>(), 0..200), modern in any::<bool>()) {
        let mut desk = Desk::new();
        let client = if modern { desk.modern() } else { desk.front.open(Peer(1)) };
        let used = desk.front.receive(desk.now, client, &noise);
        prop_assert!(used <= noise.len());
        prop_assert!(desk.outcome().1.len() <= 1);
    }
}
