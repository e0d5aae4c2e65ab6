//! Hosts that are about to be taken away: the metadata server and SIGTERM to an agent as they are, and failures that are no preemptions.

use crate::bed::Bed;
use crate::case::Case;
use crate::census::{self, Mercy, Proc};
use crate::jax;
use crate::place::{self, Scratch};
use crate::plan::Plan;
use crate::ssh::script;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

/// Says when it has got SIGTERM, and ends well.
const SAVES: &str = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 1; done";

/// Answers as the metadata server of a cloud does: entity tags, waiting for a change, 403 without the header. `/set/VALUE` is for tests:
/// it changes `instance/preempted`, and prints when.
const SERVER: &str = r#"
import http.server, threading, time
value, change = ["FALSE"], threading.Condition()
class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, status, body, etag=None):
        self.send_response(status)
        self.send_header("Metadata-Flavor", "Google")
        if etag: self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
    def do_GET(self):
        if self.path.startswith("/set/"):
            with change:
                value[0] = self.path[5:]
                change.notify_all()
                print("set", time.monotonic_ns(), flush=True)
            return self.reply(200, "")
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.reply(403, "")
        path, _, query = self.path.partition("?")
        known = dict(part.split("=") for part in query.split("&") if part)
        if path != "/computeMetadata/v1/instance/preempted":
            return self.reply(404, "none")
        with change:
            if known.get("wait_for_change") == "true":
                change.wait_for(lambda: value[0] != known["last_etag"], float(known["timeout_sec"]))
            self.reply(200, value[0], value[0])
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("169.254.169.254", 80), Handler)
server.daemon_threads = True
print("serving", flush=True)
server.serve_forever()
"#;

/// Waits in the first generation for its SIGTERM, and says when that came.
const PROGRAM: &str = r#"
import os, signal, sys, time
def saves(*_):
    print("term", os.environ["RANK"], time.monotonic_ns(), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, saves)
print("start", os.environ["RLAUNCH_RESTART_COUNT"], os.environ["WORLD_SIZE"], os.uname().nodename, flush=True)
while os.environ["RLAUNCH_RESTART_COUNT"] == "0": signal.pause()
"#;

#[test]
fn job_continues_without_the_host_that_the_metadata_server_has_warned() {
    let Some(bed) = Bed::up(3) else { return };
    let servers = serve_hosts(&bed, 3);
    let options = "--ssh-fast -H node[0-2] --min-world 2 --max-restarts 1 --preempt-retries 3 python3 -c";
    let words: Vec<&str> = ["rlaunch"].into_iter().chain(options.split(' ')).chain([PROGRAM]).collect();
    let case = bed.plan("root", "login", words).with_events().start();
    case.says_on_stdout("start 0 3 ", 3);
    warn(&bed, "node2");
    let done = case.code(0);
    servers[2].says_on_stdout("set ", 1);
    let set: u64 = servers[2].until("the time", |seen| number(&String::from_utf8_lossy(&seen.out), "set "));
    let mut after: Vec<u64> = done.out().lines().filter_map(|line| number(line, "term ")).map(|at| at - set).collect();
    after.sort_unstable();
    println!(
        "from the metadata server to the ranks: {:?} ms",
        after.iter().map(|ns| ns / 1_000_000).collect::<Vec<_>>()
    );
    assert_eq!(after.len(), 3, "{}{}", done.out(), done.err());
    let again: Vec<String> = done.sorted().into_iter().filter(|line| line.starts_with("start 1 ")).collect();
    assert_eq!(again, ["start 1 2 node0", "start 1 2 node1"], "{}", done.err());
    let warned: Vec<&Value> = done.named("host.warned").collect();
    assert_eq!((warned.len(), &warned[0]["source"], &warned[0]["node"]), (1, &"preempted".into(), &2.into()));
    assert_eq!(done.event("restart")["lost"], "warned");
    done.says("rlaunch: node2 is about to be taken away (the metadata server reports a preemption)");
    end(servers);
    bed.clean(5);
    bed.down();
}

fn on(bed: &Bed, host: &str, script: &str) {
    bed.run(["exec", "--cwd", "/", host, "sh", "-c", script]);
}

/// A metadata server on each of so many hosts, at the address that a cloud's has.
fn serve_hosts(bed: &Bed, count: u32) -> Vec<Case> {
    on(bed, "login", "echo 'export GCE_METADATA_HOST=169.254.169.254' >> ~/.bashrc");
    let serve = |n: u32| {
        let host = format!("node{n}");
        on(bed, &host, "ip addr add 169.254.169.254/32 dev lo");
        let server = bed.plan("root", &host, ["python3", "-c", SERVER]).start();
        server.says_on_stdout("serving", 1);
        server
    };
    (0..count).map(serve).collect()
}

/// The server of a host reports a preemption.
fn warn(bed: &Bed, host: &str) {
    on(bed, host, "python3 -c 'import urllib.request as u; u.urlopen(\"http://169.254.169.254/set/TRUE\")'");
}

fn end(servers: Vec<Case>) {
    for server in servers {
        server.signal(Signal::SIGTERM);
        server.code(143);
    }
}

/// No job has the host when its metadata server warns.
#[test]
fn host_of_a_pool_that_is_warned_between_two_jobs_is_not_handed_out() {
    let Some(bed) = Bed::up(2) else { return };
    let servers = serve_hosts(&bed, 2);
    let script = "\"$RL\" pool up p -H node[0-1] && \"$RL\" --pool p true || exit 5; echo jobs are over\n\
        until \"$RL\" pool status p | grep -q 'node1 .*warned'; do sleep 0.05; done\n\
        grep -q 'node1: the metadata server reports: preempted' /tmp/rlaunch-0/pool-p/log || exit 6\n\
        \"$RL\" --pool p hostname || exit 7; \"$RL\" --pool p --nnodes 2 -n 2 true; [ $? = 75 ] || exit 8\n\
        \"$RL\" pool down p";
    let case = bed.plan("root", "login", ["sh", "-c", script]).start();
    case.says_on_stdout("jobs are over", 1);
    warn(&bed, "node1");
    let done = case.code(0);
    assert!(done.out().ends_with("jobs are over\nnode0\n"), "{}{}", done.out(), done.err());
    end(servers);
    bed.clean(5);
    bed.down();
}

/// Its ranks save together before they end, and continue from there on three hosts.
#[test]
fn jax_job_of_four_hosts_continues_without_the_warned_host() {
    let Some(python) = jax::python() else { return };
    let Some(bed) = Bed::up(4) else { return };
    let servers = serve_hosts(&bed, 4);
    let options = "rlaunch --ssh-fast -f hosts --min-world 3 --max-restarts 1 --preempt-retries 3";
    let program = ["jax_multihost.py", "--steps", "400", "--step-time", "0.05"];
    let words = options.split(' ').chain([python.to_str().unwrap()]).chain(program);
    let plan = bed.plan("root", "login", words).env("JAX_PLATFORMS", "cpu").with_events();
    std::fs::write(plan.scratch().path("hosts"), "node[0-3]\n").unwrap();
    let example = place::root().join("examples/jax_multihost.py");
    std::fs::copy(example, plan.scratch().path("jax_multihost.py")).unwrap();
    let case = plan.start();
    case.says_on_stdout("step 10 of 4 processes", 1);
    warn(&bed, "node2");
    let done = case.code(0);
    let (out, again) = (done.out(), " of 3 starts at step ");
    let steps: Vec<u32> = out.lines().filter_map(|line| line.split_once(again)?.1.parse().ok()).collect();
    assert!(steps.len() == 3 && steps.iter().all(|step| *step == steps[0] && *step > 10), "{out}{}", done.err());
    assert_eq!(out.matches("is done: [1.0, 2.0, 3.0, 4.0]").count(), 3, "{out}");
    assert_eq!(done.named("host.warned").count(), 1);
    assert_eq!(done.event("restart")["lost"], "warned");
    end(servers);
    bed.clean(5);
    bed.down();
}

/// The last number of the line that begins so.
fn number(text: &str, begin: &str) -> Option<u64> {
    text.lines().find(|line| line.starts_with(begin))?.split(' ').next_back()?.parse().ok()
}

/// The answer of a server to the first question about `instance/preempted`.
#[derive(Clone, Copy, Debug)]
enum First {
    Text(&'static str),
    /// 1 GiB.
    Endless,
    /// Nothing, until the client closes.
    Silent,
}

const FIRST: [First; 7] = [
    First::Text("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nTRUE"),
    First::Text("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 17\r\n\r\n<html>TRUE</html>"),
    First::Text("HTTP/1.1 503 X\r\nMetadata-Flavor: Google\r\nContent-Length: 0\r\n\r\n"),
    First::Text(
        "HTTP/1.1 302 X\r\nLocation: http://example.invalid/\r\nMetadata-Flavor: Google\r\nContent-Length: 0\r\n\r\n",
    ),
    First::Text("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 4\r\n\r\nTR"),
    First::Endless,
    First::Silent,
];

/// Serves one job: a bad answer to the first question, then FALSE, and TRUE at the ring of a bell. Returns the address, and the bell.
fn serve(first: First) -> (String, std::sync::mpsc::SyncSender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (bell, rings) = std::sync::mpsc::sync_channel::<()>(1);
    std::thread::spawn(move || {
        let (mut asked, mut kept) = (0, Vec::new());
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let line = read_request(&stream);
            if !line.contains("instance/preempted") {
                kept.push(stream);
                continue;
            }
            asked += 1;
            let good = |body: &str| {
                let len = body.len();
                format!(
                    "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: {len}\r\nContent-Length: {len}\r\n\r\n{body}"
                )
            };
            let _closed = match (asked, first) {
                (1, First::Text(text)) => stream.write_all(text.as_bytes()),
                (1, First::Endless) => {
                    let head = "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 1073741824\r\n\r\n";
                    let part = vec![b'x'; 1 << 16];
                    let sent = stream.write_all(head.as_bytes());
                    // Far less than 1 GiB: the client has closed.
                    let parts = (0..1 << 14).take_while(|_| stream.write_all(&part).is_ok()).count();
                    assert!(parts < 1 << 10, "{parts} parts were taken");
                    sent
                }
                (1, First::Silent) => {
                    kept.push(stream);
                    continue;
                }
                _ if !line.contains("wait_for_change") => stream.write_all(good("FALSE").as_bytes()),
                _ => {
                    // The long poll.
                    if rings.recv().is_err() {
                        return;
                    }
                    stream.write_all(good("TRUE").as_bytes())
                }
            };
        }
    });
    (address, bell)
}

fn read_request(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    assert!(lines.any(|line| line == "Metadata-Flavor: Google"), "{first}");
    first
}

#[test]
fn bad_answer_of_a_metadata_server_is_no_warning_and_is_asked_for_again() {
    for first in FIRST {
        let (address, bell) = serve(first);
        let case = Plan::rlaunch(["-n", "2", "sh", "-c", SAVES]).env("GCE_METADATA_HOST", address).start();
        case.says_on_stdout("ready", 2);
        bell.send(()).unwrap();
        let done = case.code(75);
        assert_eq!(done.out().matches("saved").count(), 2, "{first:?}: {}", done.err());
        assert_eq!(done.named("host.warned").count(), 1, "{first:?}");
        assert_eq!(done.event("job.end")["cause"]["kind"], "preempted");
        done.says("is about to be taken away: the metadata server reports a preemption");
    }
}

#[test]
fn sigterm_to_an_agent_is_a_warning_and_its_ranks_have_their_grace() {
    let case = Plan::rlaunch(["-n", "2", "sh", "-c", SAVES]).start();
    case.says_on_stdout("ready", 2);
    let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(agent), Signal::SIGTERM).unwrap();
    let done = case.code(75);
    assert_eq!(done.out().matches("saved").count(), 2, "{}", done.err());
    assert_eq!(done.event("host.warned")["source"], "signal");
    assert_eq!(done.event("ending")["grace"], 25_000_000_000_u64);
}

/// The guardian of the launcher's own host passes it on.
#[test]
fn sigterm_to_the_guardian_of_the_own_host_is_a_warning() {
    let case = Plan::rlaunch(["-n", "2", "sh", "-c", SAVES]).start();
    case.says_on_stdout("ready", 2);
    let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(census::parent(agent).unwrap()), Signal::SIGTERM).unwrap();
    let done = case.code(75);
    assert_eq!(done.out().matches("saved").count(), 2, "{}", done.err());
    assert_eq!(done.event("host.warned")["source"], "signal");
}

/// Each host is reached through a stand-in for ssh, whose two pipes are its connection.
const REACHED: &str = "behave <<'EOF'\nHOME=\"$DIR/home\"; export HOME; cat | sh -c \"$line\" | cat; exit\nEOF\n";

/// All below a process, but the pipes of its connection.
fn below(pid: i32) -> Vec<Proc> {
    census::children(pid).into_iter().flat_map(|child| below(child.pid).into_iter().chain([child])).collect()
}

/// A host shuts down: systemd sends SIGTERM to each process of the session, and the connection ends soon after.
#[test]
fn host_whose_session_ends_as_at_a_shutdown_is_preempted() {
    let job = "exec \"$RL\" --ssh-fast --lease 5s --warning-grace 2s -H one,two sh -c \"$SAVES\"";
    let case = script(&format!("{REACHED}{job}")).env("SAVES", SAVES).with_events().mercy(Mercy::LostHosts).start();
    case.says_on_stdout("ready", 2);
    let agent = case.events("host.ready", 2).into_iter().find(|ready| ready["node"] == 1).unwrap();
    let agent = i32::try_from(agent["agent"].as_i64().unwrap()).unwrap();
    let guardian = census::parent(agent).unwrap();
    let pipes: Vec<Proc> = below(case.pid()).into_iter().filter(|proc| proc.comm == "cat").collect();
    let shell = census::parent(guardian).unwrap();
    for pid in below(guardian).into_iter().map(|proc| proc.pid).chain([guardian]) {
        let _has_ended = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    assert_eq!(case.event("host.warned")["node"], 1);
    let above = census::parent(shell);
    for pipe in pipes.iter().filter(|pipe| Some(pipe.ppid) == above || pipe.ppid == shell) {
        let _has_ended = kill(Pid::from_raw(pipe.pid), Signal::SIGKILL);
    }
    let done = case.code(75);
    assert_eq!(done.event("host.warned")["source"], "signal");
    assert_eq!(done.event("job.end")["cause"]["kind"], "preempted", "{}", done.err());
}

#[test]
fn warned_job_runs_to_its_end_where_a_note_is_wanted() {
    let script = "echo ready; read -r line; echo $line";
    let mut case = Plan::rlaunch(["--on-warning", "note", "sh", "-c", script]).stdin_pipe().start();
    case.says_on_stdout("ready", 1);
    let agent = i32::try_from(case.event("host.ready")["agent"].as_i64().unwrap()).unwrap();
    kill(Pid::from_raw(agent), Signal::SIGTERM).unwrap();
    assert_eq!(case.event("host.warned")["response"], "note");
    writeln!(case.take_stdin(), "well").unwrap();
    assert!(case.code(0).out().contains("well"));
}

#[test]
fn rank_that_prints_preempted_and_fails_is_a_failure() {
    let words = "--max-restarts 1 --restart-delay 0 --preempt-retries 3 sh -c";
    let script = "echo preempted; echo preempted >&2; exit 1";
    let done = Plan::rlaunch(words.split(' ').chain([script])).start().code(1);
    assert_eq!(done.named("restart").count(), 1, "{}", done.err());
    assert_eq!(done.event("job.end")["cause"]["kind"], "rank");
}

#[test]
fn probe_warns_on_exit_code_0() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("probe");
    for (code, source) in [("127", "host.warning_note"), ("0", "host.warned")] {
        let probe = format!("read line <{}; exit $line", fifo.display());
        let case = Plan::rlaunch(["-n", "2", "--preempt-probe", &probe, "sh", "-c", SAVES]).start();
        case.says_on_stdout("ready", 2);
        std::fs::write(&fifo, format!("{code}\n")).unwrap();
        case.event(source);
        if code == "0" {
            let done = case.code(75);
            assert_eq!(done.out().matches("saved").count(), 2, "{}", done.err());
            assert_eq!(done.event("host.warned")["source"], "probe");
            done.says("is about to be taken away: the command of --preempt-probe exited with 0");
        } else {
            case.says_on_stderr("the command of --preempt-probe cannot run on ");
            case.signal(Signal::SIGTERM);
            case.end();
        }
    }
}

/// The probe and its child are gone when the job is: each case ends with a census of processes.
#[test]
fn probe_that_still_runs_ends_with_its_job() {
    for tier in place::tiers() {
        for sig in [Signal::SIGTERM, Signal::SIGKILL] {
            let scratch = Scratch::new();
            let fifo = scratch.fifo("probe");
            let probe = format!("trap '' TERM; sleep 1000 & echo up >{}; sleep 1000", fifo.display());
            let words = ["--preempt-probe", &probe, "sh", "-c", "echo ready; exec sleep 1000"];
            let case = Plan::rlaunch(words).contain(tier).mercy(Mercy::All).start();
            case.says_on_stdout("ready", 1);
            assert_eq!(std::fs::read(&fifo).unwrap(), b"up\n");
            case.signal(sig);
            case.end();
        }
    }
}

#[test]
fn probe_runs_again_after_a_restart_of_all_ranks() {
    let scratch = Scratch::new();
    let fifo = scratch.fifo("probe");
    let probe = format!("echo $$ >{}; exec sleep 1000", fifo.display());
    // Each generation ends when its probe was seen: the first fails.
    let go = scratch.fifo("go");
    let script = format!("echo start $RLAUNCH_RESTART_COUNT; read line <{}; exit $line", go.display());
    let words = ["--max-restarts", "1", "--restart-delay", "0", "--preempt-probe", &probe, "sh", "-c", &script];
    let case = Plan::rlaunch(words).start();
    let first = std::fs::read(&fifo).unwrap();
    std::fs::write(&go, "1\n").unwrap();
    let second = std::fs::read(&fifo).unwrap();
    std::fs::write(&go, "0\n").unwrap();
    assert_ne!(first, second);
    assert_eq!(case.code(0).out(), "start 0\nstart 1\n");
}
