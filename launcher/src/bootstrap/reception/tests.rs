//! Agents and strangers at the port of a step.

use super::*;
use rlaunch_base::id::JobId;
use rlaunch_net::seal::AgentHandshake;
use rlaunch_plan::bootstrap::admission::{MOST, PATIENCE};
use rlaunch_plan::bootstrap::tcp_hello::SECOND_MESSAGE;
use rlaunch_plan::bootstrap::{EdgeKeys, Hello, Secret};

const SECRET: Secret = Secret([5; 32]);

fn step() -> StepPreamble {
    StepPreamble { job: JobId([1; 16]), epoch: 0, port: 0, secret: SECRET }
}

fn preamble(node: u32) -> Preamble {
    Preamble {
        job: step().job,
        node: NodeId::new(node),
        secret: Secret([0; 32]),
        lease: Span::from_secs(30),
        len: 1,
        hash: Hash([0; 32]),
    }
}

fn reception() -> Reception {
    let host = |n: u32| (Hash::of(format!("n{n}").as_bytes()), preamble(n));
    Reception::open(&step(), [host(1), host(2)].into(), None).unwrap()
}

fn hello(host: &str) -> Hello {
    Hello { job: step().job, epoch: 0, host: Hash::of(host.as_bytes()) }
}

/// Connects as an agent does; `None`: the connection was closed without an answer.
fn connect(reception: &Reception, hello: Hello, secret: &Secret) -> Option<(NodeId, TcpStream)> {
    let keys = EdgeKeys::derive(secret, &hello);
    let (handshake, first) = AgentHandshake::begin(&keys, AgentFacts { pid: 7, wall: 9 }).unwrap();
    let (mut socket, answer) = answered(reception, hello, &first)?;
    let (preamble, confirmation, _) = handshake.finish(&keys, &answer).unwrap();
    socket.write_all(&confirmation[..1]).unwrap();
    // A frame of the edge follows at once.
    socket.write_all(&[&confirmation[1..], b"frame"].concat()).unwrap();
    Some((Preamble::parse(&preamble).unwrap().node, socket))
}

/// Connects with this first message, and reads the answer.
fn answered(
    reception: &Reception,
    hello: Hello,
    first: &[u8; FIRST_MESSAGE],
) -> Option<(TcpStream, [u8; SECOND_MESSAGE])> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, reception.port)).unwrap();
    // In two parts, as a network may deliver it.
    socket.write_all(&hello.to_bytes()).unwrap();
    let _may_be_closed = socket.write_all(first);
    let mut answer = [0; SECOND_MESSAGE];
    socket.read_exact(&mut answer).ok()?;
    Some((socket, answer))
}

/// Waits for the next visit: it is reported after its connection was closed.
fn visit(reception: &Reception) -> Visit {
    loop {
        if let Some(visit) = reception.next() {
            return visit;
        }
        fd::wait_for_any(&[reception.bell.as_fd()], Some(Duration::from_secs(20)));
        reception.bell.clear();
    }
}

fn arrival(reception: &Reception) -> Arrival {
    loop {
        if let Visit::Arrived(arrival) = visit(reception) {
            return *arrival;
        }
    }
}

#[test]
fn each_host_is_taken_once_and_then_the_port_is_closed() {
    let reception = reception();
    let (node, _first) = connect(&reception, hello("n2"), &SECRET).unwrap();
    let mut arrived = arrival(&reception);
    assert_eq!((node, arrived.node), (NodeId::new(2), node));
    let mut frame = [0; 5];
    arrived.socket.set_nonblocking(false).unwrap();
    arrived.socket.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"frame", "the edge has all that follows the handshake");
    assert!(connect(&reception, hello("n2"), &SECRET).is_none(), "a second agent of the same host");
    let (node, _second) = connect(&reception, hello("n1"), &SECRET).unwrap();
    let arrived = arrival(&reception);
    assert_eq!((node, arrived.node, arrived.facts.pid), (NodeId::new(1), node, 7));
    while TcpStream::connect((Ipv4Addr::LOCALHOST, reception.port)).is_ok() {}
}

#[test]
fn strangers_are_refused_and_take_no_host() {
    let reception = reception();
    assert!(connect(&reception, hello("n1"), &Secret([6; 32])).is_none(), "a wrong key");
    assert!(connect(&reception, hello("n9"), &SECRET).is_none(), "another host");
    assert!(connect(&reception, Hello { epoch: 1, ..hello("n1") }, &SECRET).is_none(), "another step");
    let mut browser = TcpStream::connect((Ipv4Addr::LOCALHOST, reception.port)).unwrap();
    browser.write_all(&[b'G'; HELLO]).unwrap();
    assert_eq!(browser.read(&mut [0; 1]).unwrap_or(0), 0);
    for expected in [Refusal::WrongKey, Refusal::UnknownHost, Refusal::Foreign, Refusal::Foreign] {
        assert!(matches!(visit(&reception), Visit::Refused(_, why) if why == expected), "{expected:?}");
    }
    assert!(reception.next().is_none());
    let silent = TcpStream::connect((Ipv4Addr::LOCALHOST, reception.port)).unwrap();
    assert!(connect(&reception, hello("n1"), &SECRET).is_some(), "its agent comes after all");
    let began = now();
    assert_eq!((&silent).read(&mut [0; 1]).unwrap_or(0), 0, "it was closed");
    assert!(now().since(began) < PATIENCE + Span::from_secs(5));
}

/// The agent's own first message, which an observer has seen, took its host's place.
#[test]
fn repeated_first_message_takes_no_host() {
    let reception = reception();
    let keys = EdgeKeys::derive(&SECRET, &hello("n1"));
    let (_, first) = AgentHandshake::begin(&keys, AgentFacts { pid: 7, wall: 9 }).unwrap();
    let (mut observer, _) = answered(&reception, hello("n1"), &first).unwrap();
    observer.write_all(&[0; CONFIRMATION]).unwrap();
    assert!(matches!(visit(&reception), Visit::Refused(_, Refusal::WrongKey)));
    let (waiting, _) = answered(&reception, hello("n1"), &first).unwrap();
    let (node, _agent) = connect(&reception, hello("n1"), &SECRET).unwrap();
    assert_eq!((arrival(&reception).node, node), (node, NodeId::new(1)));
    drop(waiting);
}

/// 80 silent connections of one address were enough to keep the agents of this address out.
#[test]
fn silent_connections_keep_no_agent_out() {
    let reception = reception();
    let connect_silent = || TcpStream::connect((Ipv4Addr::LOCALHOST, reception.port)).unwrap();
    let mut many: Vec<TcpStream> = (0..MOST).map(|_| connect_silent()).collect();
    assert!(connect(&reception, hello("n1"), &SECRET).is_some());
    // The agent's connection is one too many if it was accepted before its message came.
    let mut refused = 0;
    let arrived = loop {
        match visit(&reception) {
            Visit::Arrived(arrival) => break arrival.node,
            Visit::Refused(_, Refusal::TooMany) => refused += 1,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(arrived, NodeId::new(1));
    if refused == 0 {
        many.push(connect_silent());
        assert!(matches!(visit(&reception), Visit::Refused(_, Refusal::TooMany)));
    }
    assert_eq!(many[0].read(&mut [0; 1]).unwrap_or(0), 0, "the oldest is closed");
}

#[test]
fn port_is_closed_when_the_step_is_given_up() {
    let reception = reception();
    let port = reception.port;
    drop(reception);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {}
}

#[test]
fn port_lies_in_the_range_of_the_cluster() {
    let first = listen(None).unwrap().local_addr().unwrap().port().min(u16::MAX - 9);
    let held: Vec<TcpListener> = (0..10).map_while(|_| listen(Some((first, first + 9))).ok()).collect();
    assert!(!held.is_empty());
    for listener in &held {
        assert!((first..=first + 9).contains(&listener.local_addr().unwrap().port()));
    }
    assert!(listen(Some((first, first + 9))).is_err(), "none is left");
}
