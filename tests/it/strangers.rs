//! No other user gets in: no socket that could be reached, and no process that another user could touch.

use crate::case::Case;
use crate::census;
use crate::place;
use crate::plan::Plan;
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// Launcher, guardian and agent of a running case.
fn parts(case: &Case) -> [i32; 3] {
    let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
    [case.pid(), census::parent(agent).unwrap(), agent]
}

/// The inodes of a table of sockets in /proc/net.
fn inodes(table: &str, column: usize) -> BTreeSet<String> {
    let path = format!("/proc/net/{table}");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        // A kernel without IPv6 has no table of it.
        Err(error) if error.kind() == ErrorKind::NotFound && table.ends_with('6') => String::new(),
        Err(error) => panic!("{path}: {error}"),
    };
    text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(column).map(str::to_owned)).collect()
}

/// The inodes of the sockets that a process holds. A process that has ended holds none; one that is there and cannot be read
/// is no proof of anything.
fn sockets(pid: i32) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let looked = std::fs::read_dir(format!("/proc/{pid}/fd")).and_then(|fds| {
        for fd in fds {
            match std::fs::read_link(fd?.path()) {
                Ok(link) => found.push(link.to_string_lossy().into_owned()),
                // It was closed since the folder was read.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    });
    match looked {
        Err(_) if census::is_dead(pid) => Ok(Vec::new()),
        Err(error) => Err(format!("the descriptors of process {pid}: {error}")),
        Ok(()) => {
            let inode = |link: &String| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
            Ok(found.iter().filter_map(inode).collect())
        }
    }
}

/// The sockets of all parts of a case. Of an ordinary user's job only the guardian cannot be looked into, because it is not dumpable,
/// which is as it should be: what it holds is one end of the lifeline, and the run as root sees that.
fn sockets_of(case: &Case) -> Vec<String> {
    let [launcher, guardian, agent] = parts(case);
    let of_guardian = match sockets(guardian) {
        Err(error) if !place::is_root() => {
            assert!(error.contains("Permission denied"), "{error}");
            place::absent("the guardian's sockets", &error);
            Vec::new()
        }
        other => other.unwrap(),
    };
    let [of_launcher, of_agent] = [launcher, agent].map(|pid| sockets(pid).unwrap());
    assert!(!of_launcher.is_empty() && !of_agent.is_empty(), "launcher and agent have no edge");
    [of_launcher, of_guardian, of_agent].concat()
}

#[test]
fn no_socket_of_ours_can_be_reached() {
    for tier in place::tiers() {
        // The listener for MPI libraries is one that any process of the host can connect to: `mpi` looks at it.
        let case = Plan::rlaunch(["--mpi", "none", "-n", "2", "-l", "cat"]).contain(tier).stdin_pipe().start();
        case.events("rank.started", 2);
        let reachable: BTreeSet<String> =
            ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"].iter().flat_map(|table| inodes(table, 9)).collect();
        let unix = std::fs::read_to_string("/proc/net/unix").unwrap();
        for inode in sockets_of(&case) {
            assert!(!reachable.contains(&inode), "{tier}: socket {inode} of ours is in a table of the network");
            // A socket that is in no table at all would have passed every check below.
            let line = unix.lines().find(|line| line.split_whitespace().nth(6) == Some(&inode));
            let line = line.unwrap_or_else(|| panic!("{tier}: socket {inode} of ours is in no table that we know"));
            let fields: Vec<&str> = line.split_whitespace().collect();
            let listens = fields.get(3).is_some_and(|flags| *flags == "00010000");
            let name = fields.get(7).copied().unwrap_or_default();
            // The agent's own, which no other user can reach: `ask` looks at that.
            let is_agents = name.contains("/rlaunch-") && name.ends_with(".socket");
            assert!(
                is_agents || (!listens && (name.is_empty() || name.starts_with("@rlaunch-port-"))),
                "{tier}: {line}"
            );
        }
        if place::has("ss") {
            let shown = census::output(std::process::Command::new("ss").arg("-Htulnp"));
            let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
            let ours = parts(&case).map(|pid| format!("pid={pid},"));
            assert!(!ours.iter().any(|pid| shown.contains(pid)), "{tier}: {shown}");
        }
        drop_stdin(case);
    }
}

fn drop_stdin(mut case: Case) {
    drop(case.take_stdin());
    case.code(0);
}

#[test]
fn another_user_cannot_touch_a_job() {
    if !place::is_root() {
        return place::absent("another user", "needs root");
    }
    if !place::has("setpriv") || !place::has("python3") {
        return;
    }
    for tier in place::tiers() {
        let case = Plan::rlaunch(["-n", "2", "cat"]).contain(tier).stdin_pipe().start();
        case.events("rank.started", 2);
        let port = case.event("host.ready")["master_port"].to_string();
        let ranks = case.events("rank.started", 2).into_iter().map(|e| e["pid"].to_string());
        let pids: Vec<String> = parts(&case).iter().map(i32::to_string).chain(ranks).collect();
        let stranger =
            "setpriv --reuid 65534 --regid 65534 --clear-groups env PATH=/usr/bin:/bin python3 -c \"$ATTACK\" \"$@\"";
        let attack = std::process::Command::new("sh")
            .args(["-c", stranger, "sh", &port])
            .args(&pids)
            .env("ATTACK", ATTACK)
            .output_of_tool();
        assert_eq!(attack, format!("{}\n", 9 * pids.len() + 2), "{tier}");
        drop_stdin(case);
    }
}

/// Every attempt must fail; prints how many did.
const ATTACK: &str = r#"
import os, signal, socket, sys
port, pids = int(sys.argv[1]), [int(p) for p in sys.argv[2:]]
refused = 0
def fails(what, attempt):
    global refused
    try:
        attempt()
    except OSError:
        refused += 1
    else:
        print("a stranger could", what)
for pid in pids:
    for sig in (0, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
        fails("signal %d" % pid, lambda: os.kill(pid, sig))
    for name in ("environ", "mem", "fd", "maps"):
        fails("read %s of %d" % (name, pid),
              lambda: os.listdir("/proc/%d/fd" % pid) if name == "fd" else open("/proc/%d/%s" % (pid, name), "rb").read(1))
    fails("open stdin of %d" % pid, lambda: os.open("/proc/%d/fd/0" % pid, os.O_WRONLY))
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    fails("connect to the name of the port", lambda: socket.socket(socket.AF_UNIX, kind).connect("\0rlaunch-port-%d" % port))
print(refused)
"#;

trait Tool {
    fn output_of_tool(&mut self) -> String;
}

impl Tool for std::process::Command {
    fn output_of_tool(&mut self) -> String {
        let output = census::output(self);
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }
}

/// Takes every name that could reserve a port, then runs its words.
const HOARD: &str = "import os, socket, sys\nheld = []\nfor port in range(10000, 65536, 8):\n    \
     s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n    s.bind(chr(0) + 'rlaunch-port-%d' % port)\n    \
     held.append(s)\nos.spawnvp(os.P_WAIT, sys.argv[1], sys.argv[1:])\n";

#[test]
fn taking_all_names_of_ports_costs_a_note_and_no_job() {
    let unshare = if place::is_root() { "unshare -n" } else { "unshare -Urn" };
    if !["unshare", "python3", "ip"].into_iter().all(place::has) {
        return;
    }
    if !Plan::shell(&format!("{unshare} ip link set lo up && [ $(ulimit -Hn) -gt 8000 ]"))
        .start()
        .end()
        .exit
        .is_success()
    {
        return place::absent("taking all names of ports", "no network namespace can be made, or few descriptors");
    }
    // In a network namespace of its own, so that no other case is without a name.
    let script = format!(
        "exec {unshare} sh -c 'ip link set lo up; ulimit -n $(ulimit -Hn); exec python3 -c \"$HOARD\" \"$RL\" -n 2 sh -c \"echo \\$MASTER_PORT\"'"
    );
    let done = Plan::shell(&script).env("HOARD", HOARD).with_events().start().code(0);
    assert_eq!(done.event("host.ready")["port_reserved"], false);
    let port = done.event("host.ready")["master_port"].to_string();
    assert_eq!(done.out(), format!("{port}\n{port}\n"));
    done.says(&port);
}

/// Listens at each port whose name it sees.
const GRAB: &str = r"
import re, socket
held, seen = [], set()
print('looks', flush=True)
while True:
    for n in set(re.findall(r'@rlaunch-port-(\d+)', open('/proc/net/unix').read())) - seen:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        seen.add(n)
        try:
            s.bind(('127.0.0.1', int(n)))
            s.listen()
            held.append(s)
        except OSError:
            pass
";

#[test]
fn listening_at_ports_whose_names_are_seen_ends_no_job() {
    if !place::is_root() || !["unshare", "ip", "setpriv", "python3"].into_iter().all(place::has) {
        return place::absent("a stranger who listens at ports", "needs root, unshare, ip, setpriv and python3");
    }
    let groups = "--master-store agent --group a -n 1 echo a : --group b -n 1 echo b";
    let script = format!(
        "exec unshare -n sh -c 'ip link set lo up; mkfifo \"$DIR/looks\"\n\
         setpriv --reuid 4250 --regid 4250 --clear-groups /usr/bin/python3 -c \"$GRAB\" >\"$DIR/looks\" & n=0\n\
         read -r looks <\"$DIR/looks\"\n\
         while [ $n -lt 5 ] && \"$RL\" -n 2 --master-store agent echo job && \"$RL\" {groups}; do n=$((n+1)); done\n\
         kill $!; wait $!; [ $n = 5 ]'"
    );
    let done = Plan::shell(&script).env("GRAB", GRAB).start().code(0);
    assert_eq!(done.out().lines().count(), 20, "{}", done.err());
}

/// A client of PMI-1 that asks for a program, as `MPI_Comm_spawn` does.
const ASK: &str = r#"
exec 3<>"/dev/tcp/${PMI_PORT/:/\/}"
say() {
    printf "$1" >&3
    while read -r line <&3; do echo "$line"; case "$line" in "$2"*) return ;; esac; done
}
say 'cmd=initack pmiid=0\n' 'cmd=set debug'
say 'cmd=init pmi_version=1 pmi_subversion=1\n' cmd=response_to_init
say "mcmd=spawn\nnprocs=1\nexecname=touch\ntotspawns=1\nspawnssofar=1\nargcnt=1\narg1=$MADE\npreput_num=0\ninfo_num=0\nendcmd\n" cmd=spawn_result
say 'cmd=finalize\n' cmd=finalize_ack
"#;

/// The environment of a rank can outlive its job. The name of the agent's socket is free then.
#[test]
fn client_does_not_talk_to_a_socket_of_another_user() {
    if !place::is_root() || !place::has("setpriv") {
        return place::absent("a socket of another user", "that takes root and setpriv");
    }
    let listen = "import socket\n\
        stranger = socket.socket(socket.AF_UNIX); stranger.bind(\"agent\"); stranger.listen(); print(flush=True)\n\
        peer = stranger.accept()[0]; print(\"got\", len(peer.recv(99)), \"bytes\")";
    let script = format!(
        "cd \"$DIR\" && chmod 711 . && mkdir of && chmod 777 of && cd of && mkfifo ready && chmod 666 ready\n\
        timeout 60 setpriv --reuid 4250 --clear-groups /usr/bin/python3 -c '{listen}' >ready & exec 3<ready; read -r line <&3\n\
        RLAUNCH_SOCKET=$PWD/agent \"$RL\" store get k; echo code $?; cat <&3; wait"
    );
    let done = Plan::shell(&script).start().code(0);
    assert_eq!(done.out(), "code 125\ngot 0 bytes\n", "{}", done.err());
    done.says("of/agent belongs to user 4250: the job has ended, or this process has changed its user");
}

/// The program would run as root.
#[test]
fn rank_of_another_user_starts_no_program() {
    if !place::is_root() || !place::has("setpriv") {
        return place::absent("a rank of another user", "that takes root and setpriv");
    }
    let scratch = place::Scratch::new();
    let made = scratch.dir().join("made");
    let ask = |words: &[&str]| {
        let words = [&["--mpi", "on", "-n", "1"][..], words, &["bash", "-c", ASK]].concat();
        Plan::rlaunch(words).env("MADE", &made).start().code(0)
    };
    let done = ask(&["setpriv", "--reuid", "4250"]);
    assert!(done.out().contains("cmd=spawn_result rc=-1") && !made.exists(), "{}", done.out());
    done.says(
        "rlaunch: MPI_Comm_spawn: rank 0 has other rights than the job: its Uid is 4250, and that of the job is 0",
    );
    let done = ask(&[]);
    assert!(done.out().contains("cmd=spawn_result rc=0") && made.exists(), "{}", done.err());
}
