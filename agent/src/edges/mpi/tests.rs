//! Connections and their machine. Jobs test which process has made a connection.

#![allow(clippy::disallowed_methods, reason = "a process with other rights, not a rank")]
use super::*;
use crate::edges::part::Base;
use crate::edges::{Edges, testing};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;
use rlaunch_keyvalue::listener::tcpstore::Peer;
use rlaunch_mpi::MAX_UNREAD;
use rlaunch_protocol::wire::node_news::{MpiNews, MpiWire};
use rlaunch_protocol::wire::to_node::HostRanks;
use rlaunch_sys::facts::host;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::runtime::EnterGuard;

const FIRST: WorldId = WorldId::new(0);
const INIT: &[u8] = b"cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\n";

fn layout() -> Layout {
    Layout {
        name: "world".into(),
        hosts: vec![HostRanks::new("here".into(), &RankSet::world(2))],
        here: 0,
        apps: vec![2],
        is_crowded: false,
        origin: OsBytes::default(),
        session_dir: OsBytes::default(),
    }
}

/// An agent that serves the ranks of a world, and its ends of sockets.
struct Rig {
    edges: Edges,
    _far: [UnixStream; 2],
    _runtime: EnterGuard<'static>,
}

impl Rig {
    fn new() -> Self {
        let runtime = testing::enter();
        let (mut edges, far) = testing::edges();
        edges.parts.mpi = open(&edges.base, MpiService::Served);
        let mut rig = Self { edges, _far: far, _runtime: runtime };
        rig.begin(layout());
        rig
    }

    fn split(&mut self) -> (&mut MpiListener, &mut Base) {
        (self.edges.parts.mpi.as_mut().unwrap(), &mut self.edges.base)
    }

    fn begin(&mut self, layout: Layout) {
        let (listener, base) = self.split();
        listener.perform(base, Box::new(layout));
    }

    fn status(&mut self, rank_of: RankOf, status: Status) -> Status {
        let (listener, base) = self.split();
        listener.status(base, rank_of, status)
    }

    fn listener(&mut self) -> &mut MpiListener {
        self.split().0
    }

    /// A connection of a process of rank 0 that has called `MPI_Init`, and its other end.
    fn client(&mut self, number: u32) -> (ClientId, TcpStream) {
        self.client_of(number, std::process::id())
    }

    /// The same, as a connection of another process.
    fn client_of(&mut self, number: u32, pid: u32) -> (ClientId, TcpStream) {
        let near = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(near.local_addr().unwrap()).unwrap();
        (self.client_on(number, pid, near.accept().unwrap().0), far)
    }

    /// The same, over this connection.
    fn client_on(&mut self, number: u32, pid: u32, socket: TcpStream) -> ClientId {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let started = stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(19).unwrap();
        let peer = Peer(u64::from(pid) << 32 | started.parse::<u64>().unwrap());
        socket.set_nonblocking(true).unwrap();
        let client = ClientId::new(number);
        let listener = self.listener();
        listener.set.add(&socket, u64::from(number)).unwrap();
        listener.authorizer.get_or_insert_with(|| Authorizer::new(now()).unwrap());
        let mut connection = Connection::new(socket, peer);
        connection.world = Some(FIRST);
        listener.connections.insert(client, connection);
        let machine = &mut listener.worlds.get_mut(&FIRST).unwrap().machine;
        machine.open_as(client, peer.0);
        machine.receive(now(), client, INIT, |_| Some(true));
        let (listener, Base { ranks, .. }) = self.split();
        listener.perform_all(ranks);
        client
    }

    fn read(&mut self, client: ClientId) {
        let (listener, Base { ranks, .. }) = self.split();
        listener.read(client, ranks);
        listener.perform_all(ranks);
    }

    /// Whether a look at the first process is due after more than the time to the first look.
    fn is_look_due(&mut self) -> bool {
        let (listener, Base { ranks, .. }) = self.split();
        for at in [now(), now() + Span::from_secs(1)] {
            listener.worlds.values_mut().for_each(|world| world.machine.handle_timeout(at));
            listener.perform_all(ranks);
        }
        std::mem::take(&mut listener.is_look_due)
    }

    fn is_open(&mut self, client: ClientId) -> bool {
        self.listener().connections.get(client).is_some()
    }
}

fn read_all(far: &mut TcpStream) -> String {
    let mut text = String::new();
    far.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn client_that_reads_nothing_is_disconnected() {
    let mut rig = Rig::new();
    let (client, _far) = rig.client(1);
    rig.listener().write(client, vec![b'x'; MAX_UNREAD]);
    assert!(rig.is_open(client));
    rig.listener().write(client, vec![b'x'; MAX_UNREAD]);
    assert!(!rig.is_open(client));
}

#[test]
fn rank_is_served_again_after_its_connection_was_closed() {
    let mut rig = Rig::new();
    let (first, _far) = rig.client(1);
    let (second, mut far) = rig.client(2);
    assert!(rig.is_open(first) && !rig.is_open(second), "a rank is one process of MPI at a time");
    assert!(!read_all(&mut far).contains("response_to_init"));
    assert!(!rig.listener().is_first_refusal(FIRST, Rank::new(0)), "the user has read it once");
    rig.listener().close(first);
    let (third, _far) = rig.client(3);
    assert!(rig.is_open(third));
}

/// There may be no descriptor for the authorizer when the first rank connects.
#[test]
fn listener_is_watched_again_after_failure_of_the_authorizer() {
    let mut rig = Rig::new();
    let _client = TcpStream::connect((Ipv4Addr::LOCALHOST, rig.listener().port())).unwrap();
    let listener = rig.listener();
    assert_eq!(listener.set.look(), Some(vec![LISTENER]));
    listener.keep(Err(ErrorKind::Other.into()));
    assert!(listener.authorizer.is_none());
    assert_eq!(listener.set.look(), None, "the listener would keep the machine thread busy");
    let retry = listener.queue.deadline().unwrap();
    assert!(listener.deadline().is_some_and(|at| at <= retry));
    while now() < retry {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (listener, base) = rig.split();
    listener.admit_known(base);
    assert_eq!(listener.set.look(), Some(vec![LISTENER]));
    assert_eq!(listener.queue.deadline(), None);
    listener.accept();
    assert!(listener.authorizer.is_some());
    assert_eq!(listener.set.look(), None, "the connection was accepted");
}

/// The launcher reads ranks of the first world in what is found by a look.
#[test]
fn libraries_are_looked_for_in_the_first_world_only() {
    let mut rig = Rig::new();
    rig.begin(Layout { hosts: vec![HostRanks::new("here".into(), &RankSet::world(1))], ..layout() });
    rig.listener().open_world(WorldId::new(1), layout());
    assert!(!rig.is_look_due(), "a rank alone needs no MPI");
    rig.begin(layout());
    assert!(rig.is_look_due());
}

#[test]
fn connections_of_ranks_before_are_closed_when_others_begin() {
    let mut rig = Rig::new();
    let (client, mut far) = rig.client(1);
    rig.begin(layout());
    assert!(!rig.is_open(client));
    assert!(read_all(&mut far).ends_with("cmd=response_to_init pmi_version=1 pmi_subversion=2 rc=0\n"));
}

#[test]
fn rank_that_exits_with_0_before_finalize_has_failed_and_is_reported() {
    let mut rig = Rig::new();
    let rank = Rank::new(0);
    assert_eq!(rig.status((FIRST, rank), Status::Exited(0)), Status::Exited(0));
    let (_client, _far) = rig.client(1);
    assert_eq!(rig.status((FIRST, Rank::new(1)), Status::Exited(0)), Status::Exited(0));
    assert!(rig.edges.base.events.is_empty());
    assert_eq!(rig.status((FIRST, rank), Status::Exited(0)), Status::Exited(1));
    let event = rig.edges.base.events.pop_back();
    assert!(
        matches!(event, Some(NodeEvent::News(NodeNews::Mpi(MpiNews::Unfinished { rank: found, .. }))) if found == rank)
    );
}

#[test]
fn last_message_of_a_rank_is_read_before_its_end_is_judged() {
    let mut rig = Rig::new();
    let (_client, mut far) = rig.client(1);
    far.write_all(b"cmd=abort exitcode=7 message=abort\n").unwrap();
    assert_eq!(rig.status((FIRST, Rank::new(0)), Status::Exited(0)), Status::Exited(7));
    assert!(rig.edges.base.events.is_empty(), "a rank that has aborted is not reported as unfinished");
}

#[test]
fn rank_that_has_used_mpi_takes_part_in_no_rounds() {
    let mut rig = Rig::new();
    assert_eq!(rig.listener().register(Rank::new(1)), Ok(()));
    let (_client, _far) = rig.client(1);
    assert_eq!(rig.listener().register(Rank::new(0)), Err(USES_MPI));
    let news = std::mem::take(&mut rig.listener().news);
    assert!(matches!(news.as_slice(), [NodeNews::Mpi(MpiNews::Used { wire: MpiWire::Pmi1 })]), "{news:?}");
}

const SPAWN: &[u8] = b"mcmd=spawn\nnprocs=1\nexecname=/bin/true\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";

/// A program that is started could do more than its rank may.
#[test]
fn spawn_of_a_process_with_other_rights_is_refused() {
    let mut child = Command::new("setpriv")
        .args(["--no-new-privs", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"x").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let mut rig = Rig::new();
    let is_ordered = |rig: &mut Rig, (client, mut far): (ClientId, TcpStream)| {
        far.write_all(SPAWN).unwrap();
        rig.read(client);
        let orders = std::mem::take(&mut rig.listener().orders).len();
        rig.listener().close(client);
        (orders, read_all(&mut far))
    };
    let other = rig.client_of(1, child.id());
    let (orders, answer) = is_ordered(&mut rig, other);
    assert!(orders == 0 && answer.ends_with("cmd=spawn_result rc=-1 msg=spawn_failed\n"), "{orders} {answer}");
    let own = rig.client(2);
    let (orders, answer) = is_ordered(&mut rig, own);
    assert!(orders == 1 && !answer.contains("spawn_result"), "{orders} {answer}");
    drop(stdin);
    child.wait().unwrap();
}

/// The process may have executed a setuid program, or have the socket from another process.
#[test]
fn spawn_over_a_connection_of_another_user_is_refused() {
    if host::user().0 != 0 {
        println!("absent: only root can connect as another user");
        return;
    }
    let near = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = "exec 3<>/dev/tcp/127.0.0.1/$0; printf %s \"$1\" >&3; cat <&3 >/dev/null";
    let port = near.local_addr().unwrap().port().to_string();
    let mut child = Command::new("setpriv")
        .args(["--reuid", "65534", "bash", "-c", script, &port, std::str::from_utf8(SPAWN).unwrap()])
        .spawn()
        .unwrap();
    let socket = near.accept().unwrap().0;
    assert_eq!(socket.peek(&mut [0]).unwrap(), 1);
    let mut rig = Rig::new();
    let client = rig.client_on(1, std::process::id(), socket);
    rig.read(client);
    assert_eq!(std::mem::take(&mut rig.listener().orders).len(), 0);
    rig.listener().close(client);
    child.wait().unwrap();
}
