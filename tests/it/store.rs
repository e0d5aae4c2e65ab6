//! The TCPStore that rlaunch holds for Python programs: who may speak to it, who may not, and who keeps MASTER_PORT.

use crate::bed::Bed;
use crate::case::{Case, Done};
use crate::place;
use crate::plan::Plan;
use crate::several::job;
use nix::errno::Errno;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// A client of torch 2.x's wire.
const CLIENT: &str = r#"
import os, socket, struct, sys
def text(x): return struct.pack("<Q", len(x)) + x
def connect():
    s = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 20)
    s.sendall(bytes([0]) + struct.pack("<I", 0x3C85F7CE))
    return s
def add(s, key, n=1):
    s.sendall(bytes([4]) + text(key) + struct.pack("<q", n))
    return struct.unpack("<q", s.recv(8, socket.MSG_WAITALL))[0]
def put(s, key, value): s.sendall(bytes([1]) + text(key) + text(value))
def get(s, key):
    s.sendall(bytes([6]) + struct.pack("<Q", 1) + text(key))
    assert s.recv(1) == b"\0"
    s.sendall(bytes([3]) + text(key))
    return s.recv(struct.unpack("<Q", s.recv(8, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)
def say(*words): os.write(1, (" ".join(map(str, words)) + "\n").encode())
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
agent = os.environ["TORCHELASTIC_USE_AGENT_STORE"]
"#;

/// All ranks meet, and a child of each one meets with them.
pub(crate) const MEET: &str = r#"
pid = os.fork()
s = connect()
if add(s, b"came") == 2 * size: put(s, b"all", b"here")
said = get(s, b"all").decode()
if pid == 0: os._exit(0 if said == "here" else 1)
say(rank, said, agent, os.waitpid(pid, 0)[1])
"#;

/// Connected, until stdin ends.
pub(crate) const HOLD: &str = "s = connect()\nadd(s, b'n')\nsay('ready')\nsys.stdin.read() if rank == 0 else get(s, b'end')\n\
                    put(s, b'end', b'1')\n";

pub(crate) fn script(plan: &Plan, body: &str) -> PathBuf {
    let path = plan.scratch().path("a script.py");
    std::fs::write(&path, format!("{CLIENT}{body}")).unwrap();
    path
}

/// A job of Python.
pub(crate) fn python(words: &[&str], body: &str) -> Plan {
    let plan = Plan::rlaunch(words);
    let path = script(&plan, body);
    plan.args([PathBuf::from("python3"), path])
}

fn holder(done: &Done) -> (&str, &str) {
    let store = &done.event("job.start")["store"];
    (store["by"].as_str().unwrap(), store["why"].as_str().unwrap())
}

/// The result for a process that asks for a key: nothing, and the end.
pub(crate) fn gets_nothing(addr: &str, port: u16) -> bool {
    let mut socket = TcpStream::connect((addr, port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut ask = vec![0];
    ask.extend(0x3C85_F7CE_u32.to_le_bytes());
    ask.push(3);
    ask.extend(1_u64.to_le_bytes());
    ask.push(b'n');
    let written = socket.write_all(&ask);
    let mut said = Vec::new();
    let read = socket.read_to_end(&mut said);
    let is_over = |result: &io::Result<()>| {
        result
            .as_ref()
            .err()
            .is_none_or(|e| matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe))
    };
    said.is_empty() && is_over(&written) && is_over(&read.map(|_| ()))
}

pub(crate) fn port(case: &Case) -> u16 {
    u16::try_from(case.event("host.ready")["master_port"].as_u64().unwrap()).unwrap()
}

#[test]
fn ranks_of_python_and_their_children_meet_at_the_agents_store() {
    if !place::has("python3") {
        return;
    }
    for tier in place::tiers() {
        let done = python(&["-n", "4"], MEET).contain(tier).start().code(0);
        assert_eq!(done.sorted(), (0..4).map(|n| format!("{n} here True 0")).collect::<Vec<_>>(), "{tier}");
        assert_eq!(holder(&done), ("agent", "python"));
    }
}

#[test]
fn stranger_gets_a_closed_connection() {
    if !place::has("python3") {
        return;
    }
    for tier in place::tiers() {
        let mut case = python(&["-n", "2"], HOLD).contain(tier).stdin_pipe().start();
        case.says_on_stdout("ready", 2);
        let port = port(&case);
        assert!((0..20).all(|_| gets_nothing("127.0.0.1", port)), "{tier}: a stranger was served");
        // No other program can take its place, as torch's own server would.
        for address in ["[::]", "0.0.0.0", "127.0.0.1"] {
            let bound = TcpListener::bind(format!("{address}:{port}"));
            assert_eq!(bound.unwrap_err().raw_os_error(), Some(Errno::EADDRINUSE as i32), "{address}");
        }
        drop(case.take_stdin());
        // Also those that the launcher learns of at the end only.
        let counted = case.code(0).named("store.refused").map(|event| event["count"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(counted, 20, "{tier}");
    }
}

#[test]
fn keys_stay_when_all_have_left() {
    if !place::has("python3") {
        return;
    }
    let again = "if rank == 0:\n    for turn in range(20):\n        s = connect()\n        n = add(s, b'n')\n        \
                 s.shutdown(socket.SHUT_WR)\n        s.recv(1)\n        say(n)\n";
    let done = python(&["-n", "2"], again).start().code(0);
    assert_eq!(done.out(), (1..=20).map(|n| format!("{n}\n")).collect::<String>());
}

#[test]
fn program_with_own_rendezvous_keeps_its_port() {
    if !place::has("python3") {
        return;
    }
    let bind = "if rank == 0:\n    s = socket.socket()\n    s.bind(('', int(os.environ['MASTER_PORT'])))\n    s.listen()\n\
                say(rank, agent)\n";
    let cases: [(&[&str], String, &str); 5] = [
        (&["-n", "1"], bind.into(), "alone"),
        (&["-n", "2", "--master-store", "rank0"], bind.into(), "asked"),
        (
            &["-n", "2"],
            format!(
                "os.environ['MASTER_ADDR'] = os.environ['MASTER_ADDR']\nif rank > 9: os.environ['MASTER_PORT'] = '1'\n{bind}"
            ),
            "script_sets_port",
        ),
        (&["-n", "2"], format!("def unused(): return TCPStore('h', 1, 2, True)\n{bind}"), "script_opens_store"),
        (&["-n", "2"], format!("def unused(): mp.spawn(1)\n{bind}"), "script_spawns"),
    ];
    for (words, body, why) in cases {
        let done = python(words, &body).start().code(0);
        let ranks = if words[1] == "1" { 1 } else { 2 };
        assert_eq!(done.sorted(), (0..ranks).map(|n| format!("{n} False")).collect::<Vec<_>>(), "{why}");
        assert_eq!(holder(&done), ("rank0", why));
    }
    let done = Plan::rlaunch(["-n", "2", "sh", "-c", "echo $TORCHELASTIC_USE_AGENT_STORE"]).start().code(0);
    assert_eq!((done.out(), holder(&done)), ("False\nFalse\n".into(), ("rank0", "not_python")));
}

#[test]
fn arguments_and_modules_beside_a_script_determine_the_rendezvous() {
    if !place::has("python3") {
        return;
    }
    let say = "import os, sys\nos.write(1, os.environ['TORCHELASTIC_USE_AGENT_STORE'].encode() + b'\\n')\n";
    let module = "import os\ndef setup(): os.environ['MASTER_PORT'] = '29511'\n";
    for (text, args, why) in [
        (say.to_owned(), &["--dist-url", "tcp://127.0.0.1:23456"][..], "arguments_name_address"),
        (say.to_owned(), &["--master_port=29511"], "arguments_name_address"),
        (format!("from meet import setup\n{say}"), &[], "script_sets_port"),
    ] {
        let plan = Plan::rlaunch(["-n", "2", "python3", "train.py"].iter().chain(args));
        std::fs::write(plan.scratch().path("train.py"), text).unwrap();
        std::fs::write(plan.scratch().path("meet.py"), module).unwrap();
        let dir = plan.scratch().dir().to_owned();
        let done = plan.cwd(dir).start().code(0);
        assert_eq!((done.out(), holder(&done)), ("False\nFalse\n".into(), ("rank0", why)));
    }
}

#[test]
fn rank_that_found_no_store_reads_the_expected_holder() {
    let words = "echo 'DistNetworkError: The client socket has timed out after 60000ms' >&2; exit 1";
    let done = Plan::rlaunch(["-n", "2", "sh", "-c", words]).start().code(1);
    done.says("rank 0 was expected to hold the TCPStore at MASTER_PORT (it does not run Python)")
        .says("--master-store agent, if rank 0 opens no store");
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let given = format!("MASTER_PORT={port}");
    let done = Plan::rlaunch(["-n", "2", "--master-store", "agent", "-x", &given, "sh", "-c", "echo started"])
        .start()
        .code(125);
    assert_eq!((done.out(), done.named("rank.started").count()), (String::new(), 0));
    done.says(&format!("cannot hold the TCPStore at 127.0.0.1:{port}")).says("--master-store rank0");
}

#[test]
fn the_store_of_several_hosts_is_there_for_their_ranks_alone() {
    let Some(bed) = Bed::up(4) else { return };
    for user in ["root", "tester"] {
        let plan = job(&bed, user, &[]);
        let path = script(&plan, MEET);
        let done = plan.args([PathBuf::from("python3"), path]).start().code(0);
        assert_eq!(done.sorted(), (0..8).map(|n| format!("{n} here True 0")).collect::<Vec<_>>(), "{}", done.err());
        bed.clean(2);

        let (mut case, ask, port) = held(&bed, user, &[]);
        // From a host of the job, from one that is none, and from that of the store itself.
        for host in ["node0", "node2", "login"] {
            for stranger in ["root", "tester"] {
                let words = ["exec", "--user", stranger, "--cwd", "/", host, "python3", ask.to_str().unwrap(), &port];
                assert_eq!(bed.run(words).trim_end(), "b''", "{stranger} on {host}");
            }
        }
        drop(case.take_stdin());
        case.code(0);
        bed.clean(2);
    }
    bed.down();
}

/// A job of eight ranks that are connected until stdin ends; a script that asks its store, and the port of that.
pub(crate) fn held(bed: &Bed, user: &str, words: &[&str]) -> (Case, PathBuf, String) {
    let plan = job(bed, user, words);
    let path = script(&plan, HOLD);
    let ask = plan.scratch().path("ask.py");
    std::fs::write(&ask, ASK).unwrap();
    let case = plan.args([PathBuf::from("python3"), path]).stdin_pipe().start();
    case.says_on_stdout("ready", 8);
    let port = case.events("host.ready", 4).iter().map(|e| e["master_port"].as_u64().unwrap()).max().unwrap();
    (case, ask, port.to_string())
}

/// Asks rank 0's host for a key, and prints what comes.
const ASK: &str = r#"
import socket, struct, sys
s = socket.create_connection(("10.77.1.1", int(sys.argv[1])), 20)
try:
    s.sendall(bytes([0]) + struct.pack("<I", 0x3C85F7CE) + bytes([3]) + struct.pack("<Q", 1) + b"n")
    print(s.recv(100))
except (ConnectionResetError, BrokenPipeError):
    print(b"")
"#;

#[test]
fn torch_rendezvous_works_with_and_without_the_store() {
    let probe =
        Plan::shell("exec /usr/bin/python3 -c 'import torch.distributed as d; assert d.is_available()'").start().end();
    if !probe.exit.is_success() {
        assert!(std::env::var_os("RLAUNCH_REQUIRE_TORCH").is_none_or(|v| v != "1"), "{}", probe.err());
        return place::absent("torch at the store", "/usr/bin/python3 has no torch.distributed");
    }
    // A store of rank 0's own closes for a rank that is back before rank 0 has left: there is no second turn then.
    let reduce = "import torch, torch.distributed as dist\nfor turn in range(2 if agent == 'True' else 1):\n    dist.init_process_group('gloo')\n    \
                  t = torch.ones(3) * (rank + 1)\n    dist.all_reduce(t)\n    dist.barrier()\n    \
                  dist.destroy_process_group()\nsay(rank, t.tolist(), agent)\n";
    for (who, agent) in [("agent", "True"), ("rank0", "False")] {
        let plan = Plan::rlaunch(["-n", "3", "--master-store", who]);
        let path = script(&plan, reduce);
        let done = plan.args([PathBuf::from("/usr/bin/python3"), path]).start().code(0);
        let expected: Vec<String> = (0..3).map(|n| format!("{n} [6.0, 6.0, 6.0] {agent}")).collect();
        assert_eq!(done.sorted(), expected, "{}", done.err());
    }
}
