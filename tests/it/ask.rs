//! `rlaunch store` and its socket: its data for ranks of one host and of several, the processes that may use it, and its removal with the
//! job, whichever process is killed.

use crate::bed::Bed;
use crate::case::Case;
use crate::census::{self, Mercy};
use crate::faults::part;
use crate::place;
use crate::plan::Plan;
use crate::several::job;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rlaunch_keyvalue::store::Ask;
use rlaunch_protocol::wire::frozen::client::{Asked, Code, FromAgent, Reply, Space, Words, hello};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Ranks that say where their agent listens, and live until stdin ends.
fn waiting(plan: Plan, ranks: usize) -> (Case, PathBuf) {
    let case = plan.args(["sh", "-c", "echo socket $RLAUNCH_SOCKET; [ $RANK = 0 ] && cat; true"]).stdin_pipe().start();
    case.says_on_stdout("socket ", ranks);
    let path = case.until("the socket", |seen| {
        let text = String::from_utf8_lossy(&seen.out).into_owned();
        text.lines().find_map(|line| line.strip_prefix("socket ").map(PathBuf::from))
    });
    (case, path)
}

fn connect(path: &Path) -> UnixStream {
    let mut socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    socket.write_all(&hello(u32::MAX)).unwrap();
    let mut first = [0; 16];
    socket.read_exact(&mut first).unwrap();
    assert_eq!(first, hello(0));
    socket
}

fn ask(socket: &mut UnixStream, seq: u64, ask: Ask<'_>) -> Vec<u8> {
    send(socket, seq, ask);
    answer(socket)
}

fn send(socket: &mut UnixStream, seq: u64, ask: Ask<'_>) {
    socket.write_all(&Asked { seq, space: Space::Job, words: &Words::write(ask) }.to_frame()).unwrap();
}

fn answer(socket: &mut UnixStream) -> Vec<u8> {
    let mut len = [0; 4];
    socket.read_exact(&mut len).unwrap();
    let mut rest = vec![0; u32::from_le_bytes(len) as usize];
    socket.read_exact(&mut rest).unwrap();
    [len.to_vec(), rest].concat()
}

/// The messages before the end of a connection.
fn last_words(mut socket: UnixStream) -> String {
    let mut said = Vec::new();
    socket.read_to_end(&mut said).unwrap_or_default();
    match FromAgent::parse(&said) {
        Ok(FromAgent::Bye(why)) => String::from_utf8_lossy(why).into_owned(),
        _ => format!("{said:?}"),
    }
}

const MEET: &str = "\"$RL\" store set from.$RANK \"rank $RANK\" && \"$RL\" store fence all -t 30s && \
                    \"$RL\" store wait from.0 from.$((WORLD_SIZE - 1)) && \"$RL\" store get from.$((WORLD_SIZE - 1 - RANK)) && \
                    \"$RL\" store -g add count > /dev/null && \"$RL\" store -g fence all && \"$RL\" store -g get count && \
                    \"$RL\" store ls from. | wc -l";

#[test]
fn ranks_and_their_children_reach_the_store() {
    for tier in place::tiers() {
        let done = Plan::rlaunch(["-n", "4", "sh", "-c", MEET]).contain(tier).start().code(0);
        let mut expected: Vec<String> = (0..4).flat_map(|n| [format!("rank {n}"), "4".into(), "4".into()]).collect();
        expected.sort();
        assert_eq!(done.sorted(), expected, "{tier}: {}", done.err());
    }
}

#[test]
fn unused_options_are_reported() {
    let script = "s() { \"$RL\" store \"$@\"; }; s get no; echo $?; s delete no; echo $?; s wait no.1 no.2 -t 200ms; echo $?; \
                  printf 'a\\0b\\nc' | s set bin -; s get --raw bin | od -An -c | tr -d ' '; s dump; s append bin !; s add bin; echo $?; \
                  s add n 5; s add n -- -7; s delete n; echo $?; s fence f -t 100ms; echo $?; s add n x; echo $?; \
                  head -c 600000 /dev/zero | s set big -; echo $?";
    let done = Plan::rlaunch(["-n", "2", "sh", "-c", &format!("[ $RANK = 1 ] || {{ {script}; }}")]).start().code(0);
    let expected = "1\n1\n124\na\\0b\\nc\nbin\ta\\u{0}b\\nc\n125\n5\n-2\n0\n124\n2\n125\n";
    assert_eq!(done.out(), expected, "{}", done.err());
    done.says("error: after 200ms: nobody has set 'no.1', 'no.2'")
        .says("error: the value of 'bin' is no decimal number of 64 bits (one key for numbers, another for text)")
        .says("error: after 100ms: rank 1 has not arrived at the fence 'f'")
        .says("error: 'x' is no whole number of 64 bits")
        .says("error: the value of 'big' would have 600000 bytes; the longest may have 524288");
    let done = Plan::shell("exec \"$RL\" store get k").start().code(125);
    done.says("error: RLAUNCH_SOCKET is not set: this process runs outside rlaunch, or its agent found no directory");
    let done = Plan::shell("exec \"$RL\" store get k").env("RLAUNCH_SOCKET", "/nonexistent/x").start().code(125);
    done.says("cannot connect to the agent at /nonexistent/x").says("while the job runs");
    for action in ["get k", "fence f"] {
        let plan = Plan::shell(&format!("exec \"$RL\" store {action}")).env("RLAUNCH_SOCKET", "/nonexistent/x");
        plan.env("RLAUNCH_RANK", "x").start().code(125).says("error: RLAUNCH_RANK=\"x\" (environment) is no number");
    }
    for (words, says) in [
        ("", "rlaunch store needs a value: ACTION"),
        ("got k", "rlaunch store takes get, set, append, add, delete, wait, ls, dump or fence, got 'got'"),
        ("get", "rlaunch store get needs a value: KEY"),
        ("get a b", "rlaunch store get takes KEY, got 'b'"),
        ("--gneration ls", "unknown option '--gneration'"),
    ] {
        Plan::shell(&format!("exec \"$RL\" store {words}")).start().code(2).says(says);
    }
}

#[test]
fn the_socket_is_its_owners_alone_and_goes_with_the_job() {
    for tier in place::tiers() {
        let (mut case, path) = waiting(Plan::rlaunch(["-n", "2"]).contain(tier), 2);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut socket = connect(&path);
        assert_eq!(
            FromAgent::parse(&ask(&mut socket, 7, Ask::Add(b"n", 3))),
            Ok(FromAgent::Answer(7, Reply::Number(3)))
        );
        drop(case.take_stdin());
        case.code(0);
        assert!(!path.exists(), "{tier}");
        assert_eq!(socket.read(&mut [0]).unwrap(), 0, "the other end reads the end");
    }
}

/// The connecting user, by number: the mode of the socket alone would keep the user out, and may be changed.
const KNOCK: &str = "import socket\ns = socket.socket(socket.AF_UNIX)\nimport sys\ns.connect(sys.argv[1])\ntry:\n    s.sendall(b'rlaunch\\n\\1' + bytes(7))\n    \
                     print(len(s.recv(16)))\nexcept (ConnectionResetError, BrokenPipeError): print(0)\n";

#[test]
fn socket_of_a_running_job_survives_logout() {
    let plan = Plan::rlaunch(["-n", "2"]);
    let login = plan.scratch().path("login");
    std::fs::create_dir(&login).unwrap();
    std::fs::set_permissions(&login, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (mut case, path) = waiting(plan.env("XDG_RUNTIME_DIR", &login), 2);
    // As systemd-logind does after the user's last session.
    std::fs::remove_dir_all(&login).unwrap();
    let mut client = connect(&path);
    assert_eq!(FromAgent::parse(&ask(&mut client, 7, Ask::Add(b"n", 3))), Ok(FromAgent::Answer(7, Reply::Number(3))));
    drop((client, case.take_stdin()));
    case.code(0);
}

#[test]
fn another_user_is_refused_even_if_the_mode_of_the_socket_is_open() {
    if !place::is_root() {
        return place::absent("another user at the socket", "needs root");
    }
    if !place::has("setpriv") || !place::has("python3") {
        return;
    }
    let (mut case, path) = waiting(Plan::rlaunch(["-n", "2"]), 2);
    let dir = path.parent().unwrap();
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(&path, 0o777);
    // From within: no other user may enter the directories above it.
    let knock = |words: &str| {
        let script = format!("cd \"$1\" && exec {words} env PATH=/usr/bin:/bin python3 -c \"$2\" \"$3\"");
        let mut command = std::process::Command::new("sh");
        let output =
            census::output(command.args(["-c", &script, "sh"]).arg(dir).arg(KNOCK).arg(path.file_name().unwrap()));
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    assert_eq!(knock(""), "16\n", "the user himself is greeted");
    assert_eq!(knock("setpriv --reuid 65534 --regid 65534 --clear-groups"), "0\n");
    drop(case.take_stdin());
    case.code(0);
}

/// The other listener too: `guard` has the clients of torch's.
#[test]
fn client_is_served_after_descriptor_shortage() {
    if !place::has("prlimit") {
        return;
    }
    let (mut case, path) = waiting(Plan::rlaunch(["-n", "2"]).env("RLAUNCH_LOG", "warn"), 2);
    let agent = case.ours("rlaunch-agent").unwrap();
    limit_descriptors(agent, "1");
    let mut socket = UnixStream::connect(&path).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    socket.write_all(&hello(u32::MAX)).unwrap();
    case.says_on_stderr("the store takes no more clients");
    limit_descriptors(agent, "256");
    let mut first = [0; 16];
    socket.read_exact(&mut first).unwrap();
    assert_eq!(first, hello(0));
    drop(case.take_stdin());
    case.code(0);
}

/// A process gets no new descriptor with a number from this on.
pub(crate) fn limit_descriptors(pid: i32, most: &str) {
    let words = [format!("--pid={pid}"), format!("--nofile={most}:")];
    let output = census::output(std::process::Command::new("prlimit").args(words));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn socket_is_removed_if_a_process_of_rlaunch_is_killed() {
    for tier in place::tiers() {
        for victim in ["rlaunch", "rlaunch-guard", "rlaunch-agent"] {
            let (case, path) = waiting(Plan::rlaunch(["-n", "2"]).contain(tier).mercy(Mercy::All), 2);
            let agent = case.ours("rlaunch-agent").unwrap();
            let pid = match victim {
                "rlaunch" => case.pid(),
                // Only root may read its state.
                "rlaunch-guard" => census::parent(agent).unwrap(),
                _ => agent,
            };
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            case.end_with(Mercy::All);
            assert!(!path.exists(), "{tier}: {victim} was killed");
        }
    }
}

/// More than the edge takes at a time: what is left goes out as well when the kernel has taken the first part at once.
#[test]
fn callers_are_all_answered_if_many_are_answered_at_once() {
    let (mut case, path) = waiting(Plan::rlaunch(["-n", "2"]), 2);
    let mut clients: Vec<UnixStream> = (0..24).map(|_| connect(&path)).collect();
    let value = vec![b'x'; 100 << 10];
    let keys: Vec<String> = (0..clients.len()).map(|n| format!("k{n}")).collect();
    for seq in (1..80).step_by(2) {
        for (socket, key) in clients.iter_mut().zip(&keys) {
            send(socket, seq, Ask::Set(key.as_bytes(), &value));
        }
        for socket in &mut clients {
            assert_eq!(FromAgent::parse(&answer(socket)), Ok(FromAgent::Answer(seq, Reply::Done)));
        }
        for (socket, key) in clients.iter_mut().zip(&keys) {
            send(socket, seq + 1, Ask::Get(key.as_bytes()));
        }
        for socket in &mut clients {
            assert_eq!(FromAgent::parse(&answer(socket)), Ok(FromAgent::Answer(seq + 1, Reply::Value(Some(&value)))));
        }
    }
    drop(case.take_stdin());
    case.code(0);
}

/// A table that grows while threads share it blocks every thread that needs the next descriptor for some 10 ms.
#[test]
fn agent_has_room_for_descriptors_before_the_first_connection() {
    let (mut case, _) = waiting(Plan::rlaunch(["-n", "2"]), 2);
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", case.ours("rlaunch-agent").unwrap())).unwrap();
    let number = |text: String, name: &str| -> usize {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim_start_matches(':');
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (room, limit) = (number(read("status"), "FDSize"), number(read("limits"), "Max open files"));
    assert!(room >= limit.min(4096), "{room} of {limit}");
    drop(case.take_stdin());
    case.code(0);
}

#[test]
fn malformed_client_is_refused_and_others_continue() {
    let (mut case, path) = waiting(Plan::rlaunch(["-n", "2"]), 2);
    let mut good = connect(&path);
    for (bytes, why) in [
        (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "this is not what a client of rlaunch says"),
        (b"rlaunch\n\x02\0\0\0\0\0\0\0", "it is of another version"),
    ] {
        let mut socket = UnixStream::connect(&path).unwrap();
        socket.write_all(bytes).unwrap();
        let said = last_words(socket);
        assert!(said.contains(why) || why.starts_with("it is") && said.contains("114, 108, 97"), "{said}");
    }
    for frame in
        [&b"\xff\xff\xff\xff"[..], b"\0\0\x10\0", b"\x01\0\0\0\x01", b"\x0b\0\0\0\x01\0\0\0\0\0\0\0\0\0\x01", &[0; 8]]
    {
        let mut socket = connect(&path);
        socket.write_all(frame).unwrap();
        assert_eq!(last_words(socket), "this is not what a client of rlaunch says", "{frame:?}");
    }
    // Clients that leave in the middle of a frame, and clients that wait and leave.
    for _ in 0..200 {
        let mut socket = connect(&path);
        socket.write_all(b"\x20\0\0\0\x01").unwrap();
        let mut socket = connect(&path);
        let words = Words::write(Ask::Wait { keys: &[b"never"], within: None });
        socket.write_all(&Asked { seq: 1, space: Space::Job, words: &words }.to_frame()).unwrap();
    }
    let idle: Vec<UnixStream> = (0..300).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let reply = ask(&mut good, 1, Ask::Set(b"k", b"v"));
    assert_eq!(FromAgent::parse(&reply), Ok(FromAgent::Answer(1, Reply::Done)));
    // Several at once on one connection are answered one after the other.
    let frames: Vec<u8> = (2..402)
        .flat_map(|seq| Asked { seq, space: Space::Job, words: &Words::write(Ask::Add(b"n", 1)) }.to_frame())
        .collect();
    good.write_all(&frames).unwrap();
    for seq in 2..402 {
        let sum = i64::try_from(seq).unwrap() - 1;
        assert_eq!(FromAgent::parse(&answer(&mut good)), Ok(FromAgent::Answer(seq, Reply::Number(sum))));
    }
    drop((idle, case.take_stdin()));
    case.code(0);
}

/// A program of a later version may send unknown requests.
#[test]
fn agent_refuses_unknown_requests_and_continues() {
    let (mut case, path) = waiting(Plan::rlaunch(["-n", "2"]), 2);
    let mut socket = connect(&path);
    assert_eq!(FromAgent::parse(&ask(&mut socket, 1, Ask::Set(b"k", b"v"))), Ok(FromAgent::Answer(1, Reply::Done)));
    for (seq, frame, what) in [
        (2, Asked { seq: 2, space: Space::Job, words: b"\x63any" }.to_frame(), "the operation 99"),
        (3, b"\x0b\0\0\0\x01\x03\0\0\0\0\0\0\0\x07\x01".to_vec(), "the space 7"),
        (4, b"\x09\0\0\0\x09\x04\0\0\0\0\0\0\0".to_vec(), "messages of kind 9"),
        (0, b"\x01\0\0\0\x09".to_vec(), "messages of kind 9"),
    ] {
        // The next request is answered, too.
        let get = Asked { seq: 9, space: Space::Job, words: &Words::write(Ask::Get(b"k")) }.to_frame();
        socket.write_all(&[frame, get].concat()).unwrap();
        let said = answer(&mut socket);
        let Ok(FromAgent::Answer(to, Reply::Refused(refused))) = FromAgent::parse(&said) else { panic!("{said:?}") };
        assert_eq!((to, refused.code), (seq, Code::Unsupported));
        assert_eq!(String::from_utf8_lossy(refused.text), format!("this version does not know {what}"));
        assert_eq!(FromAgent::parse(&answer(&mut socket)), Ok(FromAgent::Answer(9, Reply::Value(Some(b"v")))));
    }
    drop(case.take_stdin());
    case.code(0);
}

#[test]
fn ranks_of_several_hosts_share_one_store() {
    let Some(bed) = Bed::up(4) else { return };
    for user in ["root", "tester"] {
        let done = job(&bed, user, &["sh", "-c", MEET]).start().code(0);
        let mut expected: Vec<String> = (0..8).flat_map(|n| [format!("rank {n}"), "8".into(), "8".into()]).collect();
        expected.sort();
        assert_eq!(done.sorted(), expected, "{user}: {}", done.err());
        bed.clean(2);
    }
    bed.down();
}

/// The namespace of a generation is on rank 0's host. The launcher notifies waiting ranks of its loss at once.
#[test]
fn waiters_learn_of_lost_owner() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "trap '' TERM; [ $RANK = 0 ] && exec sleep 999; \"$RL\" store -g set here yes; echo waits; \
                  \"$RL\" store -g wait never; echo code $?";
    for is_cut in [false, true] {
        let words = ["rlaunch", "--ssh-fast", "-H", "node[0-1]", "--lease", "4s", "--grace", "1h", "sh", "-c", script];
        let case = bed.plan("root", "login", words).with_events().start();
        case.says_on_stdout("waits", 1);
        if is_cut {
            bed.run(["partition", "node0"]);
        } else {
            kill(Pid::from_raw(part(&bed, "node0", "rlaunch-agent")), Signal::SIGKILL).unwrap();
        }
        case.says_on_stdout("code 125", 1);
        let done = case.code(125);
        assert_eq!(done.out(), "waits\ncode 125\n");
        done.says("the namespace is gone");
        if is_cut {
            bed.run(["heal"]);
        }
        bed.clean(8);
    }
    bed.down();
}
