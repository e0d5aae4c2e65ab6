//! Controllers and workers in one process, over the store of it.
#![allow(clippy::disallowed_methods, reason = "a process of another user, not a rank")]

use super::*;
use crate::own_store::{self, Own};
use nix::unistd::geteuid;
use rlaunch_protocol::wire::frozen::calls::hello::{self, Secret};
use rlaunch_protocol::wire::frozen::calls::{Description, Place};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const SOON: Duration = Duration::from_secs(20);

fn store() -> (Arc<Own>, Store) {
    let own = own_store::open();
    let store = Store::own(&own);
    (own, store)
}

/// A worker on a thread, which answers each call with its method and value until the connection ends.
fn worker(group: &'static str, is_far: bool) -> (Arc<AtomicBool>, JoinHandle<Vec<String>>) {
    let (_own, store) = store();
    let calls = Calls::new().unwrap();
    let identity = Record { size: 1, pid: std::process::id(), host: "here".into(), ..Record::default() };
    calls.serve(&store, group, identity, is_far).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let run = move || {
        let mut closed = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            match calls.next(Some(Duration::from_millis(50))).unwrap() {
                Some(Event::Frame(peer, frame)) => {
                    let description = Description::parse(&frame.description, frame.header.body).unwrap();
                    let head = Head {
                        kind: Kind::Return,
                        codec: frame.header.codec,
                        count: 0,
                        call: frame.header.call,
                        texts: &description.texts,
                    };
                    calls.send(&[peer], head, &[Sent::Bytes(&frame.body)]).unwrap();
                }
                Some(Event::Closed(_, why)) => closed.push(why),
                Some(Event::Opened(_)) | None => {}
            }
        }
        closed
    };
    (stop, std::thread::Builder::new().spawn(run).unwrap())
}

fn call(controller: &Calls, peer: u32, call: u64, parts: &[Sent<'_>]) {
    let head = Head { kind: Kind::Call, codec: 1, count: 0, call, texts: &[b"method"] };
    controller.send(&[peer], head, parts).unwrap();
}

fn answer(controller: &Calls) -> Frame {
    match controller.next(Some(SOON)).unwrap() {
        Some(Event::Frame(_, frame)) => frame,
        other => panic!("{other:?}"),
    }
}

fn end((stop, thread): (Arc<AtomicBool>, JoinHandle<Vec<String>>)) -> Vec<String> {
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap()
}

#[test]
fn call_on_one_host_is_answered_whatever_its_size() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let worker = worker("near", false);
    let controller = Calls::new().unwrap();
    let attached = controller.attach(&store, "near", 0, Some(SOON)).unwrap();
    assert!(attached.is_near && attached.record.tcp.is_empty(), "{attached:?}");
    let large: Vec<u8> = (0..5_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    call(&controller, attached.peer, 7, &[Sent::Bytes(b"odd"), Sent::Bytes(&large), Sent::Arena(4096, 9)]);
    let frame = answer(&controller);
    assert_eq!((frame.header.kind, frame.header.call, frame.header.codec), (Kind::Return, 7, 1));
    assert!(frame.body[..3] == *b"odd" && frame.body[16..large.len() + 16] == large, "parts are aligned");
    for number in 0..100 {
        call(&controller, attached.peer, number, &[]);
        assert_eq!(answer(&controller).header.call, number);
    }
    controller.close(attached.peer);
    end(worker);
}

#[test]
fn call_between_hosts_goes_over_tcp() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let worker = worker("far", true);
    let mut record = Record::wait(&store, "far", 0, Some(SOON)).unwrap();
    // Another host of a test, on this machine.
    record.machine = format!("{}1", record.machine);
    record.publish(&store, "far").unwrap();
    let controller = Calls::new().unwrap();
    let attached = controller.attach(&store, "far", 0, Some(SOON)).unwrap();
    assert!(!attached.is_near && !record.tcp.is_empty(), "{attached:?}");
    call(&controller, attached.peer, 1, &[Sent::Bytes(b"value")]);
    let frame = answer(&controller);
    let description = Description::parse(&frame.description, frame.header.body).unwrap();
    assert_eq!((description.texts, description.parts[0].place), (vec![&b"method"[..]], Place::Body));
    end(worker);
}

#[test]
fn stranger_gets_no_byte_and_does_not_disturb() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let worker = worker("strangers", false);
    let record = Record::wait(&store, "strangers", 0, Some(SOON)).unwrap();
    let name = UnixAddr::from_abstract_name(&record.unix).unwrap();
    let mut strangers = Vec::new();
    for number in 0..100_u8 {
        let mut stranger = UnixStream::connect_addr(&name).unwrap();
        // The worker may have closed it already.
        let _closed = stranger.write_all(if number % 2 == 0 { b"GET / HTTP/1.0\r\n\r\n" } else { b"rlcalls\n" });
        strangers.push(stranger);
    }
    let controller = Calls::new().unwrap();
    let attached = controller.attach(&store, "strangers", 0, Some(SOON)).unwrap();
    call(&controller, attached.peer, 1, &[]);
    assert_eq!(answer(&controller).header.call, 1);
    for stranger in &strangers {
        stranger.set_nonblocking(true).unwrap();
        assert!(!matches!(std::io::Read::read(&mut &*stranger, &mut [0; 1]), Ok(1)), "a stranger got a byte");
    }
    end(worker);
}

/// The worker accepts the controller after the strangers.
#[test]
fn worker_closes_the_oldest_silent_connections_when_there_are_too_many() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let worker = worker("silent", false);
    let record = Record::wait(&store, "silent", 0, Some(SOON)).unwrap();
    let name = UnixAddr::from_abstract_name(&record.unix).unwrap();
    let strangers: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect_addr(&name).unwrap()).collect();
    let controller = Calls::new().unwrap();
    let attached = controller.attach(&store, "silent", 0, Some(SOON)).unwrap();
    call(&controller, attached.peer, 1, &[]);
    assert_eq!(answer(&controller).header.call, 1);
    strangers[0].set_nonblocking(true).unwrap();
    assert_eq!((&strangers[0]).read(&mut [0]).map_err(|error| error.kind()), Ok(0), "it is closed");
    end(worker);
}

#[test]
fn controller_in_its_proof_is_spared_when_strangers_open_many_connections() {
    let secret = Secret::new([7; 32]);
    let (mut listener, _) = Listener::open(secret.clone(), 0, true).unwrap();
    let at = (Ipv4Addr::LOCALHOST, listener.tcp.as_ref().unwrap().local_addr().unwrap().port());
    let secret = secret.at(at.into());
    let mut connect = |first: &[u8]| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(first).unwrap();
        let number = std::iter::repeat_with(|| listener.accept(true)).flatten().next().unwrap();
        let proof = listener.read(number);
        listener.drop_surplus();
        (stream, number, proof)
    };
    let (mut controller, number, proof) = connect(&hello::ask(&secret, 0, &[1; hello::NONCE]));
    assert_eq!(proof, Proof::Part);
    let strangers: Vec<_> = (0..200).map(|_| connect(b"")).collect();
    assert!(strangers.iter().filter(|(_, number, _)| listener.get(*number).is_some()).count() <= 64);
    let mut answer = [0; hello::ANSWER];
    controller.read_exact(&mut answer).unwrap();
    let peer_nonce = hello::answered(&secret, 0, &[1; hello::NONCE], &answer).unwrap();
    controller.write_all(&hello::confirm(&secret, 0, &[1; hello::NONCE], &peer_nonce)).unwrap();
    assert_eq!(listener.read(number), Proof::Proven(Vec::new()));
}

#[test]
fn proofs_that_a_stranger_passes_on_from_another_address_are_refused() {
    let secret = Secret::new([7; 32]);
    let (mut listener, _) = Listener::open(secret.clone(), 0, true).unwrap();
    let port = listener.tcp.as_ref().unwrap().local_addr().unwrap().port();
    let mut proof = |dialled: Ipv4Addr| {
        let mut relay = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        relay.write_all(&hello::ask(&secret.at((dialled, port).into()), 0, &[1; hello::NONCE])).unwrap();
        let number = std::iter::repeat_with(|| listener.accept(true)).flatten().next().unwrap();
        listener.read(number)
    };
    assert_eq!(proof(Ipv4Addr::new(172, 17, 0, 1)), Proof::Refused);
    assert_eq!(proof(Ipv4Addr::LOCALHOST), Proof::Part);
}

#[test]
fn address_that_the_controllers_host_has_too_is_not_dialled() {
    let (_own, store) = store();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = vec![listener.local_addr().unwrap()];
    Record { size: 1, machine: "another".into(), tcp, ..Record::default() }.publish(&store, "docker").unwrap();
    let error = Calls::new().unwrap().attach(&store, "docker", 0, Some(SOON)).unwrap_err();
    assert!(error.to_string().contains("no address for other hosts"), "{error}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "a stranger on this host was called");
}

#[test]
fn worker_closes_connections_of_other_users_of_its_host() {
    let secret = Secret::new([7; 32]);
    let (mut listener, _) = Listener::open(secret.clone(), 0, true).unwrap();
    let port = listener.tcp.as_ref().unwrap().local_addr().unwrap().port();
    let ask = |at: Ipv4Addr| hello::ask(&secret.at((at, port).into()), 0, &[1; hello::NONCE]);
    for at in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
        let mut ours = TcpStream::connect((at, port)).unwrap();
        ours.write_all(&ask(at)).unwrap();
        let number = listener.accept(true).unwrap();
        assert_eq!(listener.read(number), Proof::Part, "{at}");
    }
    // Only root can become another user.
    if !geteuid().is_root() {
        return;
    }
    // The stranger passes on what a controller has sent.
    let bytes: String = ask(Ipv4Addr::LOCALHOST).iter().map(|byte| format!("\\x{byte:02x}")).collect();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{bytes}' >&3; echo; read -u 3 || exit 0");
    let mut command = std::process::Command::new("bash");
    let mut stranger = command.args(["-c", &script]).uid(65534).stdout(std::process::Stdio::piped()).spawn().unwrap();
    stranger.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let number = listener.accept(true).unwrap();
    assert_eq!(listener.read(number), Proof::Refused);
    drop(listener.take(number));
    assert!(stranger.wait().unwrap().success(), "it sees the end of its connection");
}

#[test]
fn connection_that_a_worker_closes_unread_is_made_again() {
    let (_own, store) = store();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tcp = vec![listener.local_addr().unwrap()];
    let machine = format!("{}1", record::machine());
    Record { size: 1, machine, tcp, ..Record::default() }.publish(&store, "flood").unwrap();
    let secret = record::secret(&store, "flood").unwrap();
    let serve = move || {
        (0..5).for_each(|_| drop(listener.accept().unwrap()));
        let (mut stream, _) = listener.accept().unwrap();
        let secret = secret.at(stream.local_addr().unwrap());
        let mut ask = [0; hello::ASK];
        stream.read_exact(&mut ask).unwrap();
        let nonce = hello::asked(&secret, 0, &ask).unwrap();
        stream.write_all(&hello::answer(&secret, 0, &nonce, &[2; hello::NONCE])).unwrap();
        stream.read_exact(&mut [0; hello::CONFIRM]).unwrap();
    };
    let served = std::thread::Builder::new().spawn(serve).unwrap();
    assert!(!Calls::new().unwrap().attach(&store, "flood", 0, Some(SOON)).unwrap().is_near);
    served.join().unwrap();
}

#[test]
fn second_controller_is_refused_with_a_reason() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let worker = worker("two", false);
    let (first, second) = (Calls::new().unwrap(), Calls::new().unwrap());
    let attached = first.attach(&store, "two", 0, Some(SOON)).unwrap();
    second.attach(&store, "two", 0, Some(SOON)).unwrap();
    let frame = answer(&second);
    let description = Description::parse(&frame.description, 0).unwrap();
    assert_eq!((frame.header.kind, frame.header.call), (Kind::Raise, 0));
    assert!(description.texts[1].starts_with(b"the worker has a controller already"));
    call(&first, attached.peer, 1, &[]);
    assert_eq!(answer(&first).header.call, 1);
    end(worker);
}

#[test]
fn end_of_a_worker_is_an_event() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let worker = worker("end", false);
    let controller = Calls::new().unwrap();
    let attached = controller.attach(&store, "end", 0, Some(SOON)).unwrap();
    end(worker);
    let event = controller.next(Some(SOON)).unwrap();
    assert!(
        matches!(&event, Some(Event::Closed(peer, why)) if *peer == attached.peer && why.contains("closed")),
        "{event:?}"
    );
    // The frame is dropped, and that is no error.
    call(&controller, attached.peer, 1, &[]);
    assert!(controller.next(Some(Duration::from_millis(1))).unwrap().is_none());
}

#[test]
fn event_that_a_sender_reads_wakes_the_thread_that_waits() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let worker = worker("bell", false);
    let controller = Arc::new(Calls::new().unwrap());
    let peer = controller.attach(&store, "bell", 0, Some(SOON)).unwrap().peer;
    let waits = Arc::clone(&controller);
    let waiter = std::thread::Builder::new().spawn(move || {
        let mut seen = 0;
        while seen < 50 && waits.next(Some(SOON)).unwrap().is_some() {
            seen += 1;
        }
        seen
    });
    // Both directions are full at times: the sender reads answers while it sends.
    let large = vec![7; 1 << 20];
    for number in 0..50 {
        call(&controller, peer, number, &[Sent::Bytes(&large)]);
    }
    assert_eq!(waiter.unwrap().join().unwrap(), 50);
    end(worker);
}

#[test]
fn answers_to_a_call_of_several_workers_are_taken_together() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let workers = [worker("first", false), worker("second", false), worker("third", false)];
    let controller = Calls::new().unwrap();
    let attach = |group| controller.attach(&store, group, 0, Some(SOON)).unwrap().peer;
    let peers = ["first", "second", "third"].map(attach);
    let call = |number| {
        let head = Head { kind: Kind::Call, codec: 1, count: 0, call: number, texts: &[b"method"] };
        controller.send(&peers, head, &[Sent::Bytes(b"value")]).unwrap();
    };
    for number in 1..100 {
        call(number);
        let mut answered = Vec::new();
        while answered.len() < peers.len() {
            let last = peers.iter().rev().find(|peer| !answered.contains(*peer)).unwrap();
            controller.await_answers(number, peers.len() - answered.len(), *last, Some(SOON)).unwrap();
            let frames = controller.take_frames(|frame| frame.header.call == number);
            assert!(!frames.is_empty(), "call {number}: {answered:?}");
            answered.extend(frames.iter().map(|(peer, _)| *peer));
        }
        answered.sort_unstable();
        assert_eq!(answered, peers, "call {number}");
    }
    // An answer to another call does not wait for more, and is left if it is not accepted.
    call(100);
    controller.await_answers(101, 4, peers[2], Some(SOON)).unwrap();
    assert!(controller.has_event() && controller.take_frames(|_| false).is_empty());
    assert_eq!(answer(&controller).header.call, 100);
    for worker in workers {
        end(worker);
    }
}

#[test]
fn wait_for_answers_ends_with_a_connection_or_a_moment_after_the_first_answer() {
    let _turn = crate::session::tests::turn();
    let (_own, store) = store();
    let (first, second) = (worker("stays", false), worker("ends", false));
    let controller = Calls::new().unwrap();
    let attach = |group| controller.attach(&store, group, 0, Some(SOON)).unwrap().peer;
    let (stays, ends) = (attach("stays"), attach("ends"));
    // The second worker is not called, and sends nothing.
    call(&controller, stays, 1, &[]);
    controller.await_answers(1, 2, ends, None).unwrap();
    assert_eq!(controller.take_frames(|_| true).len(), 1);
    end(second);
    controller.await_answers(2, 2, stays, None).unwrap();
    assert!(controller.take_frames(|_| true).is_empty());
    let event = controller.next(Some(SOON)).unwrap();
    assert!(matches!(event, Some(Event::Closed(peer, _)) if peer == ends), "{event:?}");
    end(first);
}

#[test]
fn number_of_a_worker_on_this_host_comes_from_the_kernel() {
    let (_own, store) = store();
    let (worker, controller) = (Calls::new().unwrap(), Calls::new().unwrap());
    let identity = Record { size: 1, pid: 1, host: "here".into(), ..Record::default() };
    worker.serve(&store, "liar", identity, false).unwrap();
    let served = std::thread::Builder::new().spawn(move || worker.next(Some(SOON)).unwrap()).unwrap();
    let attached = controller.attach(&store, "liar", 0, Some(SOON)).unwrap();
    assert_eq!(attached.record.pid, std::process::id());
    drop(controller);
    served.join().unwrap();
}

#[test]
fn worker_without_descriptors_takes_no_connection_for_a_second() {
    for (errno, is_short) in
        [(Errno::EMFILE, true), (Errno::ENFILE, true), (Errno::EAGAIN, false), (Errno::ECONNABORTED, false)]
    {
        assert_eq!(is_shortage(&errno.into()), is_short, "{errno}");
    }
    let (_own, store) = store();
    let (worker, controller) = (Calls::new().unwrap(), Calls::new().unwrap());
    let identity = Record { size: 1, ..Record::default() };
    worker.serve(&store, "short", identity, true).unwrap();
    let record = Record::wait(&store, "short", 0, Some(SOON)).unwrap();
    let name = UnixAddr::from_abstract_name(&record.unix).unwrap();
    let at = (Ipv4Addr::LOCALHOST, record.tcp[0].port());
    let _waiting = (UnixStream::connect_addr(&name).unwrap(), TcpStream::connect(at).unwrap());
    worker.pause(worker.inner().listener.as_mut().unwrap());
    assert_eq!(worker.turn(Some(Duration::ZERO), true).unwrap(), Some(false), "the sockets are still watched");
    let served = std::thread::Builder::new().spawn(move || worker.next(Some(SOON)).unwrap()).unwrap();
    controller.attach(&store, "short", 0, Some(SOON)).unwrap();
    assert!(matches!(served.join().unwrap(), Some(Event::Opened(_))));
}
