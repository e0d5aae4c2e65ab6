//! Clients that send the first bytes of a request and stop, at every byte: on rlaunch's own socket, in a session and at the TCPStore. The
//! agent still answers other clients, and sleeps when there is nothing to do.

use crate::case::Case;
use crate::place;
use crate::store::{port, python};
use rlaunch_keyvalue::store::{Answer, Ask};
use rlaunch_protocol::wire::frozen::client::client_round::ClientMessage;
use rlaunch_protocol::wire::frozen::client::{Asked, NO_RANK, Space, Words, answer_frame, hello, write_reply};
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Connections to each socket that send 0 to 20 bytes of one value, with and without a valid beginning. Half of them are closed. Then
/// the program sends one request on each socket.
const BEGIN: &str = r#"
own = lambda: (lambda s: (s.connect(os.environ["RLAUNCH_SOCKET"]), s)[1])(socket.socket(socket.AF_UNIX))
store = lambda: socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 20)
hello, register, ask = (bytes.fromhex(os.environ[name]) for name in ("HELLO", "REGISTER", "ASK"))
validated = bytes([0]) + struct.pack("<I", 0x3C85F7CE)
held = []
for make, first in (own, b""), (own, hello), (own, hello + register), (store, b""), (store, validated):
    for value in 0, 1, 4, ord("r"), 0x7f, 0x80, 0xff:
        for count in range(21):
            for stays in True, False:
                s = make()
                try:
                    s.sendall(first + bytes([value]) * count)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                held.append(s) if stays else s.close()
s = own()
s.sendall(hello + ask)
said = bytes.fromhex(os.environ["ANSWER"])
assert s.recv(16 + len(said), socket.MSG_WAITALL)[16:] == said
s = connect()
put(s, b"k", b"v")
say("answered", get(s, b"k"))
sys.stdin.read()
"#;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn register() -> Vec<u8> {
    ClientMessage::Register(Vec::new()).to_frame()
}

/// Waits until a process sleeps.
fn sleeps(pid: i32) {
    let until = Instant::now() + Duration::from_secs(20);
    let is_asleep = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    };
    while !is_asleep() {
        assert!(Instant::now() < until, "process {pid} does not sleep");
        std::thread::yield_now();
    }
}

#[test]
fn agent_sleeps_after_clients_that_stop_at_any_byte() {
    if !place::has("python3") {
        return;
    }
    let words = Words::write(Ask::Add(b"n", 7));
    let ask = Asked { seq: 1, space: Space::Job, words: &words }.to_frame();
    let plan = python(&["-n", "1", "--master-store", "agent"], BEGIN);
    let plan = plan.env("HELLO", hex(&hello(NO_RANK))).env("REGISTER", hex(&register())).env("ASK", hex(&ask));
    let answer = answer_frame(1, &write_reply(&Answer::Number(7)));
    let mut case: Case = plan.env("ANSWER", hex(&answer)).stdin_pipe().start();
    case.says_on_stdout("answered", 1);
    sleeps(case.ours("rlaunch-agent").unwrap());
    drop(case.take_stdin());
    assert_eq!(case.code(0).out(), "answered b'v'\n");
}

/// Rank 1 and its child open sessions with the number of rank 0, and are refused. Then both ranks open sessions with their own numbers,
/// and the first round begins.
const CLAIM: &str = r#"
def session(number):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ["RLAUNCH_SOCKET"])
    s.sendall(b"rlaunch\n" + struct.pack("<II", 1, number) + bytes.fromhex(os.environ["REGISTER"]))
    return s
def refused():
    with session(0).makefile("rb") as said: say(said.read()[21:].decode())
if rank == 1:
    refused()
    pid = os.fork()
    if pid == 0:
        refused()
        os._exit(0)
    os.waitpid(pid, 0)
else: sys.stdin.readline()
own = session(rank)
say("round", rank, len(own.recv(21, socket.MSG_WAITALL)))
sys.stdin.readline() if rank == 0 else own.recv(1)
"#;

#[test]
fn session_cannot_claim_the_number_of_another_rank() {
    if !place::has("python3") {
        return;
    }
    for tier in place::tiers() {
        let plan = python(&["-n", "2"], CLAIM).contain(tier).env("REGISTER", hex(&register()));
        let mut case = plan.stdin_pipe().start();
        let refused = "the process is none of the rank whose number it gives; see whether the program changes \
                       RLAUNCH_INITIAL_RANK";
        case.says_on_stdout(refused, 2);
        let mut stdin = case.take_stdin();
        stdin.write_all(b"\n").unwrap();
        case.says_on_stdout("round ", 2);
        drop(stdin);
        let done = case.end();
        assert_eq!(done.sorted(), ["round 0 21", "round 1 21", refused, refused], "{tier}: {}", done.err());
    }
}

/// Requests of 62 MiB that lack their last byte, one on each of many connections.
const HALVES: &str = r#"
value = b"x" * (7 << 20)
body = b"".join(text(b"k%d" % n) + text(value) for n in range(8))
held, closed = [], 0
for n in range(24):
    s = connect()
    try: s.sendall(bytes([11]) + struct.pack("<Q", 9) + body + text(b"k9") + struct.pack("<Q", 6 << 20) + value[:6 << 20][:-1])
    except (BrokenPipeError, ConnectionResetError): closed += 1
    held.append(s)
s = connect()
put(s, b"k", b"v")
say("closed" if closed else "all held", get(s, b"k"))
sys.stdin.read()
"#;

#[test]
fn half_requests_are_held_up_to_the_limit_of_the_store() {
    if !place::has("python3") {
        return;
    }
    if !place::full() {
        return place::absent("half requests of 1.4 GiB", "scripts/test --all sends them");
    }
    let mut case = python(&["-n", "1", "--master-store", "agent"], HALVES).stdin_pipe().start();
    case.says_on_stdout("\n", 1);
    let status = std::fs::read_to_string(format!("/proc/{}/status", case.ours("rlaunch-agent").unwrap())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")).unwrap();
    let resident: u64 = resident.trim().parse().unwrap();
    assert!(resident < 1_300_000, "{resident} kB");
    assert!(port(&case) > 0);
    drop(case.take_stdin());
    let done = case.code(0);
    assert_eq!(done.out(), "closed b'v'\n");
    assert!(done.named("store.limit").any(|event| event["limit"] == "bytes"), "{:?}", done.events);
}
