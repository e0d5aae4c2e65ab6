//! Jobs on several hosts: four of a testbed with two ranks each, started from a fifth. All hosts behave as one host does.

use crate::bed::Bed;
use crate::case::Done;
use crate::place;
use crate::plan::Plan;
use crate::reach::configure;
use crate::watch::Exit;
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::Write as _;

/// The users that a case is run as: one has PID namespaces, the other subreapers.
const USERS: [&str; 2] = ["root", "tester"];
pub(crate) const HOSTS: [&str; 4] = ["node0", "node1", "node2", "node3"];

/// A job of eight ranks.
pub(crate) fn job(bed: &Bed, user: &str, words: &[&str]) -> Plan {
    let all = ["rlaunch", "--ssh-fast", "-H", "node[0-3]:2"];
    bed.plan(user, "login", all.iter().chain(words)).with_events()
}

/// Its end, with nothing left on any host.
fn ends(bed: &Bed, plan: Plan, code: i32) -> Done {
    let done = plan.start().code(code);
    bed.clean(2);
    done
}

#[test]
fn ranks_know_their_interface_to_the_others() {
    let Some(bed) = Bed::up(4) else { return };
    let command = [
        "sh",
        "-c",
        "echo $MASTER_ADDR ${GLOO_SOCKET_IFNAME-none} ${TP_SOCKET_IFNAME-none} ${NCCL_SOCKET_IFNAME-none}",
    ];
    let said = |words: &[&str]| {
        let all: Vec<&str> = ["rlaunch", "--ssh-fast"].iter().chain(words).chain(&command).copied().collect();
        let mut lines = ends(&bed, bed.plan("tester", "login", all).with_events(), 0).sorted();
        lines.dedup();
        lines
    };
    let name = bed.run([
        "exec",
        "--user",
        "root",
        "--cwd",
        "/",
        "node0",
        "sh",
        "-c",
        "ip -o -4 addr | grep -F 10.77.1.1/ | cut -d' ' -f2",
    ]);
    let name = name.trim_end();
    assert_eq!(said(&["-H", "node[0-3]:2"]), [format!("10.77.1.1 {name} {name} none")]);
    assert_eq!(said(&["-H", "node[0-1]", "--interface", name]), [format!("10.77.1.1 {name} {name} ={name}")]);
    assert_eq!(said(&["-H", "node[0-1]", "-x", "GLOO_SOCKET_IFNAME=ib7"]), [format!("10.77.1.1 ib7 {name} none")]);
    // All on one host, wherever it is: no other has to reach them.
    assert_eq!(said(&["-H", "node0:2"]), ["127.0.0.1 none none none"]);
    bed.down();
}

#[test]
fn ranks_know_their_place_and_their_output_comes_home() {
    let Some(bed) = Bed::up(4) else { return };
    for user in USERS {
        let script = "echo $RANK $LOCAL_RANK $(hostname) $WORLD_SIZE $MASTER_ADDR $(id -un)";
        let done = ends(&bed, job(&bed, user, &["sh", "-c", script]), 0);
        let expected: Vec<String> = (0..8).map(|n| format!("{n} {} node{} 8 10.77.1.1 {user}", n % 2, n / 2)).collect();
        assert_eq!(done.sorted(), expected, "{}", done.err());
        let done = ends(&bed, job(&bed, user, &["-l", "sh", "-c", "echo out; echo err >&2"]), 0);
        assert_eq!(done.sorted(), (0..8).map(|n| format!("{n}: out")).collect::<Vec<_>>());
        let mut complaints: Vec<String> = done.err().lines().map(str::to_owned).collect();
        complaints.sort();
        assert_eq!(complaints, (0..8).map(|n| format!("{n}: err")).collect::<Vec<_>>());
    }
    bed.down();
}

#[test]
fn input_is_exact_whichever_host_has_rank_0() {
    let Some(bed) = Bed::up(4) else { return };
    let mut random = place::Random::new(77);
    let bytes: Vec<u8> = (0..3 << 20).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
    let plan = job(&bed, "tester", &["cat"]);
    let path = plan.scratch().path("input");
    File::create(&path).unwrap().write_all(&bytes).unwrap();
    let done = ends(&bed, plan.stdin(File::open(&path).unwrap()), 0);
    assert!(done.out == bytes, "{} bytes of {}", done.out.len(), bytes.len());
    let plan = job(&bed, "tester", &["--stdin", "all", "md5sum"]);
    let path = plan.scratch().path("input");
    File::create(&path).unwrap().write_all(&bytes).unwrap();
    let done = ends(&bed, plan.stdin(File::open(&path).unwrap()), 0);
    let sums = done.sorted();
    assert!(sums.len() == 8 && sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    // Closed, or open and silent: it is not waited for.
    let closed = "exec \"$RL\" --ssh-fast -H 'node[0-3]:2' sh -c 'cat; echo $RANK' <&-";
    let done = ends(&bed, bed.plan("tester", "login", ["sh", "-c", closed]), 0);
    assert_eq!(done.sorted().len(), 8, "{}", done.err());
    let mut case = job(&bed, "tester", &["true"]).stdin_pipe().start();
    let held = case.take_stdin();
    case.code(0);
    drop(held);
    bed.down();
}

#[test]
fn exit_codes_equal_the_codes_of_one_host() {
    let Some(bed) = Bed::up(4) else { return };
    let one = |code: &str| format!("[ $RANK != 5 ] || {code}; setsid sleep 999 & exec sleep 999");
    for (user, script, code, says) in [
        ("root", one("exit 3"), 3, "rank 5 failed first: exit 3"),
        ("tester", one("exit 3"), 3, "  where    node2, local rank 1, pid "),
        ("tester", one("kill -SEGV $$"), 139, "rank 5 failed first: SIGSEGV"),
    ] {
        let done = ends(&bed, job(&bed, user, &["sh", "-c", &script]), code);
        done.says(says).says("0 left running");
    }
    let done = ends(&bed, job(&bed, "tester", &["/no/such/program"]), 127);
    done.says("error: /no/such/program on node[0-3]: no such file or directory");
    let done = ends(&bed, job(&bed, "tester", &["--timeout", "1", "sleep", "999"]), 124);
    done.says("--timeout 1s ran out").says("0 left running");
    bed.down();
}

#[test]
fn interrupts_and_readers_that_leave_end_all_hosts() {
    let Some(bed) = Bed::up(4) else { return };
    let stubborn = "trap '' INT; setsid sleep 999 & while :; do sleep 1; done";
    for (script, times) in [("setsid sleep 999 & exec sleep 999", 1), (stubborn, 2)] {
        let case = job(&bed, "tester", &["sh", "-c", script]).start();
        case.events("rank.started", 8);
        case.signal(Signal::SIGINT);
        (1..times).for_each(|_| case.signal_again(Signal::SIGINT));
        case.finish(Exit::Code(130)).says("ended by SIGINT").says("0 left running");
        bed.clean(2);
    }
    let piped = "\"$RL\" --ssh-fast -H 'node[0-3]:2' -l yes | head -1; exit ${PIPESTATUS[0]}";
    let done = ends(&bed, bed.plan("tester", "login", ["bash", "-c", piped]), 141);
    assert_eq!(done.out().lines().count(), 1, "{}", done.out());
    bed.down();
}

#[test]
fn nothing_of_a_job_listens_on_any_host() {
    let Some(bed) = Bed::up(4) else { return };
    for user in USERS {
        // The programs of a user with this would be shown here: sshd listens for them.
        configure(&bed, user, "Host *\n ForwardX11 yes\n ForwardX11Trusted yes\n");
        let mut case = job(&bed, user, &["-l", "cat"]).env("DISPLAY", ":9").stdin_pipe().start();
        let stdin = case.take_stdin();
        case.events("rank.started", 8);
        let ours = bed.processes().into_iter().filter(|(_, p)| p.comm == "rlaunch-agent").count();
        assert_eq!(ours, 4, "the hosts have their agents now");
        for host in ["login"].into_iter().chain(HOSTS) {
            let shown = bed.run(["exec", "--cwd", "/", host, "ss", "-Htulnp"]);
            let is_login = |line: &&str| line.contains("\"sshd\"") && line.contains(":22 ");
            // For MPI, which `cat` might use for all that its agent knows. Other hosts cannot reach it.
            let is_mpi = |line: &&str| line.contains("\"rlaunch-agent\"") && line.contains(" 127.0.0.1:");
            let (logins, others): (Vec<&str>, Vec<&str>) = shown.lines().partition(is_login);
            let (mpi, strangers): (Vec<&str>, Vec<&str>) = others.into_iter().partition(is_mpi);
            assert!(strangers.is_empty() && !logins.is_empty(), "{host}: {shown}");
            assert_eq!(mpi.len(), usize::from(host != "login"), "{host}: {shown}");
            let unix = bed.run(["exec", "--cwd", "/", host, "cat", "/proc/net/unix"]);
            // __SO_ACCEPTCON: it listens.
            let listens = |line: &&str| line.split_whitespace().nth(3) == Some("00010000");
            // The agent's own, which no other user can reach.
            let is_agents = |line: &&str| line.contains("/rlaunch-") && line.ends_with(".socket");
            let (agents, others): (Vec<&str>, Vec<&str>) = unix.lines().filter(listens).partition(is_agents);
            // Such a listener accepts no connection. The kernel ends the connection of a pool together with the job.
            let is_sign = |line: &&str| line.contains(" @rlaunch-job-");
            let (signs, others): (Vec<&str>, Vec<&str>) = others.into_iter().partition(is_sign);
            let one = usize::from(host != "login");
            assert_eq!((agents.len(), signs.len(), others), (one, one, Vec::<&str>::new()), "{host}");
        }
        drop(stdin);
        case.code(0);
    }
    bed.down();
}

/// The accuracy in the last line of a training.
fn accuracy(out: &str) -> f64 {
    let last = out.lines().last().unwrap_or_default();
    let percent = last.strip_prefix("final held-out accuracy ").and_then(|rest| rest.split(' ').next());
    percent.unwrap_or_else(|| panic!("no accuracy in {out:?}")).parse().unwrap()
}

#[test]
fn the_examples_train_on_four_hosts() {
    let train = place::beside("train");
    if !train.is_file() {
        assert!(std::env::var_os("CI").is_none(), "{} was not built", train.display());
        return place::absent("examples/train on several hosts", "not built; cargo build --workspace builds it");
    }
    let Some(bed) = Bed::up(4) else { return };
    let plan = job(&bed, "tester", &[]);
    let here = plan.scratch().path("train");
    std::fs::copy(&train, &here).unwrap();
    let done = ends(&bed, plan.args([&here]), 0);
    assert!(accuracy(&done.out()) >= 95.0, "{}", done.out());
    let torch = bed.call(["exec", "--cwd", "/", "node0", "/usr/bin/python3", "-c", "import torch.distributed as d"]);
    if !place::full() || !torch.status.success() {
        place::absent("torch_ddp.py on several hosts", "it takes long (RLAUNCH_TEST_FULL=1), or there is no torch");
        return bed.down();
    }
    let plan = job(&bed, "tester", &["/usr/bin/python3"]);
    let examples = place::root().join("examples");
    std::fs::create_dir_all(plan.scratch().path("train/data")).unwrap();
    for file in ["torch_ddp.py", "train/data/digits.csv"] {
        std::fs::copy(examples.join(file), plan.scratch().path(file)).unwrap();
    }
    let script = plan.scratch().path("torch_ddp.py");
    let done = ends(&bed, plan.args([script]), 0);
    assert!(accuracy(&done.out()) >= 95.0, "{}", done.out());
    bed.down();
}
