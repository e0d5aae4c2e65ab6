//! Connections to the accept queue: broken off, of an unknown owner, and too many.

use super::*;
use rlaunch_sys::epoll::Batch;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;

/// An accept queue to which this process connects itself: it is here, and not a descendant of the agent.
struct Rig {
    queue: AcceptQueue,
    authorizer: Authorizer,
    set: ReadySet,
}

impl Rig {
    fn new(whom: Whom, most: usize) -> Self {
        let set = ReadySet::new().unwrap();
        let queue =
            AcceptQueue::open(rlaunch_sys::port::listen("127.0.0.1:0".parse().unwrap()).unwrap(), whom, most, &set, 7)
                .unwrap();
        Self { queue, authorizer: Authorizer::new(now()).unwrap(), set }
    }

    fn connect(&self) -> TcpStream {
        let mut client = TcpStream::connect(self.queue.own()).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        client.write_all(b"said").unwrap();
        client
    }

    fn take(&mut self) -> usize {
        let pending = self.queue.take(&self.set, &mut self.authorizer);
        pending.len()
    }

    /// Whether the kernel would wake us for a new connection.
    fn is_woken(&self) -> bool {
        self.set.ready(&mut Batch::with_room(1)) > 0
    }
}

/// Bytes from before are dropped: the connection has no end, but a reset.
fn break_off(client: TcpStream) {
    rlaunch_sys::approach::abort_at_end(&client).unwrap();
    drop(client);
}

fn is_ended(client: &mut TcpStream) -> bool {
    match client.read(&mut [0]) {
        Ok(len) => len == 0,
        // Bytes that it has sent were not read.
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn broken_off_connection_has_no_owner() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"said").unwrap();
        (client, listener.accept().unwrap().0)
    };
    let (client, mut served) = connect();
    assert!(is_whole(&served) && !has_left(&served));
    served.set_nonblocking(false).unwrap();
    served.read_exact(&mut [0; 4]).unwrap();
    drop(client);
    rlaunch_sys::fd::wait_for_any(&[served.as_fd()], Some(std::time::Duration::from_secs(5)));
    assert!(has_left(&served));
    assert!(is_whole(&served), "a client that has closed has sent everything");
    let (client, served) = connect();
    break_off(client);
    rlaunch_sys::fd::wait_for_any(&[served.as_fd()], Some(std::time::Duration::from_secs(5)));
    assert!(!is_whole(&served), "its bytes are there still, and may be another's by what the kernel shows");
}

#[test]
fn broken_off_connection_is_never_accepted() {
    let mut all = Rig::new(Whom::Off, 9);
    break_off(all.connect());
    assert_eq!((all.take(), all.queue.held), (0, 0), "before it was looked who he is");
    let mut all = Rig::new(Whom::Job, 9);
    let (gone, _still) = (all.connect(), all.connect());
    assert_eq!((all.take(), all.queue.waiting.len()), (0, 2));
    break_off(gone);
    assert!(all.queue.record_owner(1, Some(Peer(5))).is_none(), "while it was looked");
    assert_eq!((all.queue.held, all.queue.refused().map(|(count, ..)| count)), (1, Some(1)));
    let (_, peer) = all.queue.record_owner(2, Some(Peer(6))).unwrap();
    assert_eq!((peer, all.queue.held), (Peer(6), 1));
}

#[test]
fn unknown_connection_is_closed_after_a_while() {
    let mut all = Rig::new(Whom::Job, 9);
    let mut clients = [all.connect(), all.connect()];
    assert_eq!((all.take(), all.queue.held), (0, 2));
    let until = all.queue.deadline().unwrap();
    all.queue.turn(until - Span::from_nanos(1), &all.set);
    assert_eq!((all.queue.waiting.len(), all.queue.refused()), (2, None), "he has his time");
    all.queue.turn(until + PATIENCE, &all.set);
    assert!(clients.iter_mut().all(is_ended));
    assert_eq!(
        (all.queue.held, all.queue.refused().map(|(count, ..)| count), all.queue.deadline()),
        (0, Some(2), None)
    );
    assert!(all.queue.record_owner(1, Some(Peer(5))).is_none(), "a later answer belongs to no connection");
}

#[test]
fn more_than_may_come_wait_in_the_kernel() {
    let mut all = Rig::new(Whom::Off, 2);
    let _clients = [all.connect(), all.connect(), all.connect()];
    assert_eq!((all.take(), all.queue.held), (2, 2));
    assert!(!all.is_woken(), "nobody looks at the third");
    all.queue.turn(now(), &all.set);
    assert!(!all.is_woken(), "nor until somebody has left");
    all.queue.left();
    all.queue.turn(now(), &all.set);
    assert!(all.is_woken());
    assert_eq!((all.take(), all.queue.held), (1, 2));
}
