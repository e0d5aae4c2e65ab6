//! Clients that send arbitrary bytes, through the real serving code. Each pass must end, and nothing that it does not take may stay ready.

use super::*;
use crate::edges::testing;
use rlaunch_keyvalue::store::{Ask, Expected};
use rlaunch_protocol::wire::frozen::client::client_round::ClientMessage;
use rlaunch_protocol::wire::frozen::client::order::{Order, order_frame};
use rlaunch_protocol::wire::frozen::client::{Asked, Words, hello, world_frame};
use rlaunch_protocol::wire::to_node::WORLD_NAMESPACE;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::EnterGuard;

/// Time limit for a test. A pass takes far less.
const SOON: Duration = Duration::from_secs(60);

struct Rig {
    store: Store,
    _runtime: EnterGuard<'static>,
}

impl Rig {
    fn new() -> Self {
        let runtime = testing::enter();
        let (store, path) =
            Store::open(NodeId::new(0), TempFiles::new().unwrap(), &std::env::temp_dir(), usize::MAX).unwrap();
        std::fs::remove_file(OsStr::from_bytes(&path)).unwrap();
        let mut rig = Self { store, _runtime: runtime };
        rig.store.begin(true, 0, None);
        rig
    }

    fn connect(&mut self) -> UnixStream {
        let (far, near) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let id = self.store.number();
        self.store.clients.insert(id, Client::new(near, u64::from(id.get()), &self.store.set).unwrap());
        far
    }

    /// Serves all that is ready. False: something stays ready.
    fn becomes_idle(&mut self) -> bool {
        for _ in 0..200 {
            let Some(tokens) = self.store.set.look() else { return true };
            self.store.round(tokens);
        }
        false
    }

    /// The bytes of the answer.
    fn asks(&mut self, far: &mut UnixStream, asked: &[u8]) -> Vec<u8> {
        far.write_all(asked).unwrap();
        assert!(self.becomes_idle());
        let mut answer = vec![0; 4096];
        let len = far.read(&mut answer).unwrap();
        answer.truncate(len);
        answer
    }

    fn used(&self) -> usize {
        self.store.clients.len()
    }
}

/// Runs code that may never end, in a thread of its own. Its failed assertions fail the test.
fn in_time(of: &str, run: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("rig".into()).spawn(move || {
        run();
        done.send(()).unwrap();
    });
    let thread = thread.unwrap();
    match ended.recv_timeout(SOON) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{of}: serving does not end"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap(),
    }
}

fn ask(seq: u64, space: Space, ask: Ask<'_>) -> Vec<u8> {
    Asked { seq, space, words: &Words::write(ask) }.to_frame()
}

#[test]
fn client_that_stops_at_any_byte_is_served_and_waited_for() {
    let register = ClientMessage::Register(Vec::new()).to_frame();
    let asked = ask(1, Space::Generation, Ask::Add(b"n", 1));
    let beginnings =
        [vec![], hello(0).to_vec(), [hello(0).to_vec(), asked].concat(), [&hello(0)[..], &register].concat()];
    in_time("some first bytes", move || {
        let mut rig = Rig::new();
        for first in &beginnings {
            for value in [0, 1, 4, b'r', 0x7f, 0x80, 0xff] {
                for count in 0..=20 {
                    let mut far = rig.connect();
                    far.write_all(&[first.clone(), vec![value; count]].concat()).unwrap();
                    assert!(rig.becomes_idle(), "{count} times {value} after {first:?}");
                    drop(far);
                    assert!(rig.becomes_idle());
                }
            }
        }
        assert_eq!(rig.used(), 0, "closed clients are forgotten");
        rig.store.newcomers();
    });
}

/// Steele and Vigna's SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A client's message, sometimes cut short or damaged.
fn words(state: &mut u64) -> Vec<u8> {
    let mut below = |bound: u64| usize::try_from(random(state) % bound).unwrap();
    let space = if below(2) == 0 { Space::Job } else { Space::Generation };
    let mut bytes = match below(8) {
        0 => hello(u32::try_from(below(4)).unwrap()).to_vec(),
        1 => vec![0; below(40)],
        2 => ClientMessage::Register(Vec::new()).to_frame(),
        3 => (0..below(40)).map(|_| u8::try_from(below(256)).unwrap()).collect(),
        4 => ask(1, space, Ask::Get(b"k")),
        5 => ask(2, space, Ask::Set(b"k", &vec![b'v'; below(200_000)])),
        6 => ask(3, space, Ask::Wait { keys: &[b"never"], within: None }),
        _ => (0..below(30)).flat_map(|_| ask(4, space, Ask::Get(b"k"))).collect(),
    };
    match below(6) {
        0 => bytes.truncate(below(bytes.len() as u64 + 1)),
        1 if !bytes.is_empty() => {
            let at = below(bytes.len() as u64);
            bytes[at] = u8::try_from(below(256)).unwrap();
        }
        _ => {}
    }
    bytes
}

#[test]
fn each_pass_ends_whatever_clients_send() {
    for seed in 0..20 {
        in_time(&format!("seed {seed}"), move || {
            let (mut rig, mut state) = (Rig::new(), seed);
            let mut far: Vec<UnixStream> = Vec::new();
            for _ in 0..300 {
                if far.len() < 4 {
                    let mut one = rig.connect();
                    if random(&mut state) & 3 > 0 {
                        one.write_all(&hello(0)).unwrap();
                    }
                    far.push(one);
                }
                let which = usize::try_from(random(&mut state) % far.len() as u64).unwrap();
                match random(&mut state) % 8 {
                    0 => drop(far.swap_remove(which)),
                    1 | 2 => {
                        let mut room = vec![0; 1 << usize::try_from(random(&mut state) % 20).unwrap()];
                        let _nothing = far[which].read(&mut room);
                    }
                    // A full or closed socket takes less, or nothing.
                    _ => drop(far[which].write(&words(&mut state))),
                }
                assert!(rig.becomes_idle(), "something stays ready");
                // The launcher reads everything.
                rig.store.namespaces.out.clear();
                rig.store.namespaces.waiting = 0;
                std::mem::take(&mut rig.store.held).into_iter().for_each(|id| rig.store.turn(id, false));
                rig.store.newcomers();
            }
            drop(far);
            assert!(rig.becomes_idle());
            assert_eq!(rig.used(), 0, "closed clients are forgotten");
        });
    }
}

#[test]
fn half_requests_of_all_clients_together_are_limited() {
    let mut rig = Rig::new();
    rig.store.buffers = BufferQuota::new(100_000);
    let whole = ask(1, Space::Generation, Ask::Set(b"k", &[b'v'; 40_000]));
    let half = [&hello(0)[..], &whole[..whole.len() - 1]].concat();
    let mut far: Vec<UnixStream> = (0..4).map(|_| rig.connect()).collect();
    for one in &mut far {
        one.write_all(&half).unwrap();
        assert!(rig.becomes_idle());
    }
    assert_eq!(rig.used(), 2, "there is room for two of them");
    let mut said = Vec::new();
    far[3].read_to_end(&mut said).unwrap();
    assert!(
        said.ends_with(b"bytes are in use for requests that have not arrived whole and answers that were not read")
    );
    // A completed request makes room for another client.
    far[0].write_all(&whole[whole.len() - 1..]).unwrap();
    assert!(rig.becomes_idle());
    far.push(rig.connect());
    far[4].write_all(&half).unwrap();
    assert!(rig.becomes_idle());
    assert_eq!(rig.used(), 3);
    drop(far);
    assert!(rig.becomes_idle());
    let mut share = rlaunch_keyvalue::store::buffers::BufferShare::default();
    assert_eq!(rig.store.buffers.resize(&mut share, 100_000), Ok(()), "all is given back");
}

#[test]
fn closed_client_is_forgotten_while_its_request_waits_and_more_are_queued() {
    let never = ask(1, Space::Generation, Ask::Wait { keys: &[b"never"], within: None });
    for (of, queued) in [
        ("one request", vec![]),
        ("less than a frame", vec![0; 15]),
        ("another request", ask(2, Space::Generation, Ask::Get(b"k"))),
        ("more than one read takes", vec![0; 3 * CHUNK]),
    ] {
        let mut rig = Rig::new();
        let mut far = rig.connect();
        far.write_all(&[&hello(0)[..], &never].concat()).unwrap();
        assert!(rig.becomes_idle(), "{of}");
        let sent = far.write(&queued).unwrap();
        assert_eq!(sent, queued.len(), "{of}");
        assert!(rig.becomes_idle(), "{of}");
        assert_eq!(rig.used(), 1, "{of}");
        drop(far);
        assert!(rig.becomes_idle(), "{of}");
        assert_eq!(rig.used(), 0, "{of}");
    }
}

/// The owner is on another host: a message to it is a frame of the edge.
#[test]
fn request_of_mpi_that_no_edge_takes_is_refused() {
    let mut rig = Rig::new();
    rig.store.begin(false, 0, None);
    for (len, refused) in [(500 << 10, false), (MAX_FRAME, true)] {
        let value = vec![b'v'; len];
        let ask = super::super::mpi::Ask { reach: Reach::World, seq: 7, words: Words::write(Ask::Set(b"k", &value)) };
        rig.store.ask_for_mpi(WorldId::new(0), &ask);
        let answers = rig.store.answers_of_mpi();
        assert_eq!(answers.iter().map(|(_, seq, _)| *seq).collect::<Vec<_>>(), if refused { vec![7] } else { vec![] });
        let out = std::mem::take(&mut rig.store.namespaces.out);
        assert_eq!(out.len(), usize::from(!refused), "{len}");
    }
}

/// The process that has connected may have exited. Its number may be that of a process with more rights.
#[test]
fn order_is_refused_if_its_process_is_not_known_to_have_our_rights() {
    let mut rig = Rig::new();
    let end = order_frame(1, &Order::EndWorld(WorldId::new(3), None).write());
    for (is_known, ordered) in [(true, 1), (false, 0)] {
        let mut far = rig.connect();
        if !is_known {
            rig.store.clients.get_mut(ClientId::new(rig.store.last)).unwrap().since = 0;
        }
        far.write_all(&[&hello(0)[..], &end].concat()).unwrap();
        assert!(rig.becomes_idle());
        assert_eq!(rig.store.orders().len(), ordered);
        let mut answer = [0; 4096];
        let len = far.read(&mut answer).unwrap();
        let is_refused = String::from_utf8_lossy(&answer[..len]).contains("rank 0 has other rights than the job");
        assert_eq!(is_refused, !is_known);
    }
}

/// A caller with the secret of a worker group runs code with the rights of the workers. A worker runs code in its caller.
#[test]
fn keys_of_worker_groups_are_for_processes_with_our_rights() {
    let key: &[u8] = b"rlaunch-groups/gen/secret";
    let compared = Ask::CompareSet { key, expected: Expected::Absent, desired: b"own" };
    let about = [
        Ask::Get(key),
        Ask::GetAll(&[b"other", key]),
        Ask::Set(key, b"own"),
        Ask::SetAll(&[(b"other", b""), (key, b"own")]),
        Ask::Add(key, 1),
        Ask::Append(key, b"own"),
        compared,
        Ask::Delete(key),
        Ask::Check(&[key]),
        Ask::Wait { keys: &[b"other", key], within: None },
        Ask::Push(key, b"own"),
        Ask::Pop(key),
        Ask::Take { key, within: None },
        Ask::Len(key),
        Ask::Watch { key, since: None, within: None },
        Ask::Gather { key, until: 1, within: None },
    ];
    let mut rig = Rig::new();
    for (is_known, asked) in about.map(|asked| [(true, asked), (false, asked)]).into_iter().flatten() {
        let mut far = rig.connect();
        if !is_known {
            rig.store.clients.get_mut(ClientId::new(rig.store.last)).unwrap().since = 0;
        }
        rig.asks(&mut far, &hello(0));
        // The launcher also gets the end of the client before.
        rig.store.namespaces.out.clear();
        far.write_all(&ask(1, Space::Job, asked)).unwrap();
        assert!(rig.becomes_idle());
        let sent = std::mem::take(&mut rig.store.namespaces.out).len();
        assert_eq!(sent, usize::from(is_known), "{asked:?}");
        let mut answer = [0; 4096];
        let len = far.read(&mut answer).unwrap_or(0);
        let is_refused = String::from_utf8_lossy(&answer[..len]).contains("rank 0 has other rights than the job");
        assert_eq!(is_refused, !is_known, "{asked:?}");
    }
    let mut far = rig.connect();
    rig.store.clients.get_mut(ClientId::new(rig.store.last)).unwrap().since = 0;
    rig.asks(&mut far, &hello(0));
    rig.store.namespaces.out.clear();
    far.write_all(&ask(1, Space::Job, Ask::Get(b"rlaunch-group"))).unwrap();
    assert!(rig.becomes_idle());
    assert_eq!(rig.store.namespaces.out.len(), 1, "other keys are data of the job");
}

/// A process that outlives the ranks of its group.
#[test]
fn client_of_ended_world_reads_and_writes_no_other_namespace() {
    let mut rig = Rig::new();
    let world = WorldId::new(1);
    rig.store.open_world(world, WORLD_NAMESPACE + 1, true);
    let mut client = |world: Option<WorldId>| {
        let mut far = rig.connect();
        far.write_all(&hello(0)).unwrap();
        world.iter().for_each(|world| far.write_all(&world_frame(*world)).unwrap());
        far
    };
    let (mut first, mut other) = (client(None), client(Some(world)));
    let set = |value: &[u8]| ask(1, Space::Generation, Ask::Set(b"k", value));
    let get = ask(2, Space::Generation, Ask::Get(b"k"));
    let has = |answer: &[u8], word: &[u8]| answer.windows(word.len()).any(|part| part == word);
    rig.asks(&mut first, &set(b"of the first"));
    rig.asks(&mut other, &set(b"of the other"));
    assert!(has(&rig.asks(&mut other, &get), b"of the other"));
    rig.store.close_world(world);
    let gone = Refusal::Gone.to_string();
    for asked in [&get, &set(b"leak")] {
        assert!(has(&rig.asks(&mut other, asked), gone.as_bytes()));
    }
    assert!(has(&rig.asks(&mut first, &get), b"of the first"));
}
