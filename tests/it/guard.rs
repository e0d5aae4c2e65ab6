//! Whom the store that rlaunch holds serves: `--store-guard`, ranks in network namespaces, and strangers who come in crowds.

use crate::ask::limit_descriptors;
use crate::bed::Bed;
use crate::place;
use crate::plan::Plan;
use crate::store::{HOLD, MEET, gets_nothing, held, port, python, script};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Asks for a key of one byte, and gets it.
fn is_answered(port: u16) -> bool {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let ask = [&[0, 0xce, 0xf7, 0x85, 0x3c, 3], 1_u64.to_le_bytes().as_slice(), b"n"].concat();
    socket.write_all(&ask).unwrap();
    let mut said = [0; 9];
    socket.read_exact(&mut said).is_ok_and(|()| said == [1, 0, 0, 0, 0, 0, 0, 0, b'2'])
}

#[test]
fn store_guard_option_selects_the_clients() {
    if !place::has("python3") {
        return;
    }
    for (mode, is_open) in [("job", false), ("hosts", true), ("off", true)] {
        let mut case = python(&["-n", "2", "--store-guard", mode], HOLD).stdin_pipe().start();
        case.says_on_stdout("ready", 2);
        let port = port(&case);
        assert!(if is_open { is_answered(port) } else { gets_nothing("127.0.0.1", port) }, "{mode}");
        drop(case.take_stdin());
        case.code(0);
        let done = python(&["-n", "3"], MEET).env("RLAUNCH_STORE_GUARD", mode).start().code(0);
        assert_eq!(done.sorted(), (0..3).map(|n| format!("{n} here True 0")).collect::<Vec<_>>(), "{mode}");
    }
}

#[test]
fn hosts_of_the_job_are_distinguished_from_other_hosts() {
    let Some(bed) = Bed::up(4) else { return };
    for mode in ["hosts", "off"] {
        let (mut case, ask, port) = held(&bed, "tester", &["--store-guard", mode]);
        // A value of one byte: eight of its length, and itself.
        for (host, is_served) in [("node0", true), ("node2", true), ("login", mode == "off")] {
            let words = ["exec", "--user", "root", "--cwd", "/", host, "python3", ask.to_str().unwrap(), &port];
            let said = bed.run(words);
            assert_eq!(said.trim_end() != "b''", is_served, "{mode} {host}: {said}");
        }
        drop(case.take_stdin());
        let done = case.code(0);
        assert_eq!(done.err().contains("no host of the job has that address"), mode == "hosts", "{}", done.err());
        bed.clean(2);
    }
    bed.down();
}

/// A child in a network of its own, from which the host is reached by a pair of interfaces.
const INSIDE: &str = r#"
import ctypes, subprocess
def ip(words): subprocess.run(["ip"] + words.split(), check=True)
if rank == 0:
    (there, here), (go, wait) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        assert ctypes.CDLL(None).unshare(0x40000000) == 0
        os.write(here, b"1")
        os.read(go, 1)
        ip("addr add 10.99.0.2/24 dev guest1")
        ip("link set guest1 up")
        ip("route add default via 10.99.0.1")
        s = connect()
        say("inside", add(s, b"inside"), s.getsockname()[0])
        s.close()
        os._exit(0)
    os.read(there, 1)
    ip("link add guest0 type veth peer name guest1 netns %d" % pid)
    ip("addr add 10.99.0.1/24 dev guest0")
    ip("link set guest0 up")
    os.write(wait, b"1")
    say("ended", os.waitpid(pid, 0)[1])
"#;

#[test]
fn ranks_in_a_network_namespace_of_their_own_are_the_jobs() {
    let Some(bed) = Bed::up(2) else { return };
    for tier in ["t1", "t3"] {
        let words = ["rlaunch", "--ssh-fast", "-H", "node[0-1]", "--contain", tier];
        let plan = bed.plan("root", "login", words).with_events();
        let path = script(&plan, INSIDE);
        let done = plan.args([PathBuf::from("python3"), path]).start().code(0);
        assert_eq!(done.sorted(), ["ended 0", "inside 1 10.99.0.2"], "{tier}: {}", done.err());
        assert!(!done.err().contains("no host of the job"), "{tier}: {}", done.err());
        bed.clean(2);
    }
    bed.down();
}

/// New processes come one after another, and each is let in.
const COMERS: &str = r#"
for n in range(40):
    pid = os.fork()
    if pid == 0:
        add(connect(), b"n")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
say("all")
"#;

#[test]
fn crowd_of_strangers_keeps_no_rank_out() {
    if !place::has("python3") {
        return;
    }
    let mut case = python(&["-n", "2"], &format!("{HOLD}{COMERS}")).stdin_pipe().start();
    case.says_on_stdout("ready", 2);
    let (port, over, count) = (port(&case), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let strangers: Vec<_> = (0..4)
        .map(|_| {
            let (over, count) = (Arc::clone(&over), Arc::clone(&count));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut crowd: Vec<TcpStream> =
                        (0..32).filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok()).collect();
                    // They wait until they are sent away.
                    while let Some(one) = crowd.pop() {
                        (&one).read(&mut [0]).unwrap_or_default();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    drop(case.take_stdin());
    case.says_on_stdout("all", 2);
    over.store(true, Ordering::Relaxed);
    strangers.into_iter().for_each(|one| one.join().unwrap());
    let done = case.code(0);
    let refused: u64 = done.named("store.refused").map(|e| e["count"].as_u64().unwrap()).sum();
    assert!(refused > 0 && refused <= count.load(Ordering::Relaxed), "{refused} of {count:?} were counted");
}

#[test]
fn more_connections_than_there_are_descriptors_wait_and_cost_no_job() {
    if !place::has("python3") {
        return;
    }
    let body = "if rank == 0:\n    all = [connect() for _ in range(100)]\n    add(all[0], b'n')\n    say('there')\n    \
                for one in all: one.close()\nelse:\n    s = connect()\n    put(s, b'a', b'1')\n    say(get(s, b'a'))\n";
    let plan = Plan::shell("ulimit -n 300; exec \"$RL\" -n 2 python3 \"$DIR/a script.py\"");
    script(&plan, body);
    let done = plan.start().code(0);
    assert_eq!(done.sorted(), ["b'1'", "there"], "{}", done.err());
}

#[test]
fn client_is_served_when_agent_has_a_descriptor_again() {
    if !place::has("python3") || !place::has("prlimit") {
        return;
    }
    let body = "if rank == 0:\n    say('ready')\n    sys.stdin.readline()\n    s = connect()\n    say('there')\n    say(add(s, b'n'))\n";
    let mut case = python(&["-n", "2"], body).env("RLAUNCH_LOG", "warn").stdin_pipe().start();
    case.says_on_stdout("ready", 1);
    let agent = case.ours("rlaunch-agent").unwrap();
    limit_descriptors(agent, "1");
    case.take_stdin().write_all(b"\n").unwrap();
    case.says_on_stderr("the store takes no more connections");
    limit_descriptors(agent, "256");
    assert_eq!(case.code(0).out(), "ready\nthere\n1\n");
}
