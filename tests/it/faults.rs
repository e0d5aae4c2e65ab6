//! Hosts that fail under a job: without power, cut off, slow, frozen, or with a suspended part of ours. The tests check what the user
//! sees, when, and that the ranks of a host were dead before it was reported lost. docs/contribute/faults.md has the table.

use crate::bed::Bed;
use crate::case::{Case, Done};
use crate::census::Proc;
use crate::place;
use crate::several::job;
use crate::watch::Exit;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Every rank, and a descendant that has left its session, until they are killed.
const LONG: &str = "setsid sleep 999 & exec sleep 999";
/// With `--lease 4s` a host is lost after silence of 4 s, 1 % and 2 s. It sends every second, and the machine that plays all of the hosts
/// may be slow.
const PROMISED: Duration = Duration::from_secs(9);
const UNHEARD: &str = "lost contact with node2: no heartbeat before its lease expired; its guardian killed its ranks, or the host is down";
const EXPIRED: &str = "no heartbeat from here reached node2, or its agent was suspended; its guardian killed its ranks when its lease expired";

fn nanos(at: SystemTime) -> u128 {
    at.duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

/// Notes when processes end, in nanoseconds since 1970.
pub(crate) fn watch(all: Vec<Proc>) -> Vec<JoinHandle<u128>> {
    let ends = |p: Proc| {
        let pidfd = rlaunch_sys::pidfd::open(p.pid).unwrap();
        std::thread::spawn(move || {
            let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::from(60_000u16)).unwrap();
            assert!(ready > 0, "{p:?} lives on");
            nanos(SystemTime::now())
        })
    };
    all.into_iter().map(ends).collect()
}

/// When a record was written, in the same.
pub(crate) fn nanos_of(record: &Value) -> u128 {
    u128::from(record["wall"].as_u64().unwrap())
}

/// A job under a fault.
struct Struck {
    case: Case,
    deaths: Vec<JoinHandle<u128>>,
    at: Instant,
}

/// The processes of a host's ranks and their descendants.
fn sleepers(bed: &Bed, host: &str) -> Vec<Proc> {
    let all: Vec<Proc> =
        bed.processes().into_iter().filter(|(on, p)| on == host && p.comm == "sleep").map(|(_, p)| p).collect();
    assert_eq!(all.len(), 4, "{all:?}");
    all
}

/// The only process of ours with this name on a host.
pub(crate) fn part(bed: &Bed, host: &str, comm: &str) -> i32 {
    let found: Vec<i32> =
        bed.processes().into_iter().filter(|(on, p)| on == host && p.comm == comm).map(|(_, p)| p.pid).collect();
    assert_eq!(found.len(), 1, "{comm} on {host}: {found:?}");
    found[0]
}

fn launcher(case: &Case) -> i32 {
    case.ours("rlaunch").expect("a launcher")
}

/// A job that runs everywhere.
fn running(bed: &Bed, user: &str, lease: &str) -> Case {
    let case = job(bed, user, &["--lease", lease, "sh", "-c", LONG]).start();
    case.events("rank.started", 8);
    // The shells have become what they shall be.
    crate::census::wait_until("all sleepers", || {
        bed.processes().iter().filter(|(_, p)| p.comm == "sleep").count() == 16
    });
    case
}

/// The same, and this happens to node2.
fn struck(bed: &Bed, user: &str, fault: &[&str]) -> Struck {
    let case = running(bed, user, "4s");
    let deaths = watch(sleepers(bed, "node2"));
    bed.run(fault);
    Struck { case, deaths, at: Instant::now() }
}

impl Struck {
    /// The job ends for this reason within the time promised, and the ranks were dead before rlaunch said so.
    fn loses_a_host(self, says: &str) -> Done {
        let Self { case, deaths, at } = self;
        case.until("its end", |seen| seen.exit);
        let took = at.elapsed();
        assert!(took < PROMISED, "the loss was noticed after {took:?}");
        let done = case.code(125);
        done.says(says).says("  ended    after ").says("ranks 0-3,6,7 stopped by rlaunch");
        // The processes in the guardian's count are gone; its report may come before that of the last end.
        let counted = record(&done, "host.done")["left"].is_number();
        let said = nanos_of(record(&done, "host.done"));
        for death in deaths {
            let death = death.join().unwrap();
            let late = death.saturating_sub(said) / 1_000;
            assert!(death < said || counted, "a process of node2 ended {late} us after it was given up");
        }
        done
    }
}

/// The record of this name that is about node2.
fn record<'a>(done: &'a Done, ev: &str) -> &'a Value {
    let record = done.named(ev).find(|e| e["node"] == 2);
    record.unwrap_or_else(|| panic!("no {ev}: {:#?}", done.events))
}

#[test]
fn host_without_power_is_lost_after_lease_expiry() {
    let Some(bed) = Bed::up(4) else { return };
    struck(&bed, "root", &["kill-host", "node2"])
        .loses_a_host(UNHEARD)
        .says("what is left on node2 could not be counted");
    bed.start_host("node2");
    bed.clean(10);
    // ssh exits at once if a switch or a router reports the loss. The end of the ranks on the host is only known later.
    let case = struck(&bed, "tester", &["kill-host", "--fin", "node2"]);
    case.case.says_on_stderr("lost contact with node2; its lease ends its ranks within ");
    case.loses_a_host("the connection to node2, or the guardian there, was lost (ssh exited with 255)");
    bed.start_host("node2");
    bed.clean(10);
    bed.down();
}

#[test]
fn host_that_is_cut_off_ends_its_ranks_before_the_loss_is_reported() {
    let Some(bed) = Bed::up(4) else { return };
    for (user, fault) in [
        ("root", &["partition", "node2"][..]),
        ("tester", &["partition", "node2"]),
        ("root", &["partition", "--out", "node2"]),
        // The host's output from now on waits for an acknowledgement that does not come.
        ("tester", &["partition", "--in", "node2"]),
    ] {
        let done = struck(&bed, user, fault).loses_a_host(UNHEARD);
        assert_eq!(record(&done, "host.lost")["lost"], "unheard", "{fault:?}");
        bed.run(["heal"]);
        // sshd is notified of the end of the connection.
        bed.clean(30);
    }
    bed.down();
}

/// Output of its ranks that is not taken holds none of ours there. That a full stream does not, either, is shown in
/// `sys/guardian/run.rs`: credit ends before sshd's buffers do.
#[test]
fn a_host_that_is_cut_off_while_its_ranks_write_keeps_nothing() {
    let Some(bed) = Bed::up(4) else { return };
    let plan = job(&bed, "tester", &["--lease", "4s", "sh", "-c", "sleep 999 & exec yes"]);
    let case = plan.stdout(std::process::Stdio::null()).start();
    case.events("rank.started", 8);
    crate::census::wait_until("all that write", || {
        bed.processes().iter().filter(|(_, p)| p.comm == "yes" || p.comm == "sleep").count() == 16
    });
    bed.run(["partition", "node2"]);
    let at = Instant::now();
    crate::census::wait_until("the end of all that node2 had of the job", || {
        let ours = |p: &Proc| ["yes", "sleep", "rlaunch-agent", "rlaunch-guard"].contains(&p.comm.as_str());
        !bed.processes().iter().any(|(on, p)| on == "node2" && ours(p)) || at.elapsed() > PROMISED
    });
    assert!(at.elapsed() < PROMISED, "{:?}", bed.processes());
    case.code(125).says(UNHEARD);
    bed.run(["heal"]);
    bed.clean(30);
    bed.down();
}

/// Lives for so many seconds. Rank 0 prints it in each of them.
const LIVES: &str =
    "i=0; while [ $i -lt $0 ]; do sleep 1; i=$((i + 1)); [ $RANK -gt 0 ] || echo lives; done; echo lived";

/// One way, as where each host's own cable is bad. Both ways TCP's pauses, each twice as long as the one before, are now and
/// then longer than a lease: docs/explain/hosts-and-leases.md.
#[test]
fn a_slow_and_lossy_cable_costs_no_job() {
    let Some(bed) = Bed::up(3) else { return };
    // A cable that carries nothing ends the job after 36.3 s, as those that are cut show: 30 s, 1 % of it, and 6 s. Of longer jobs one in some
    // tens meets four losses of the same packet in a row: docs/explain/hosts-and-leases.md.
    let words = ["rlaunch", "--ssh-fast", "-n", "6", "-H", "node[0-2]:2", "sh", "-c", LIVES, "45"];
    let case = bed.plan("tester", "login", words).with_events().start();
    case.events("rank.started", 6);
    for (way, host) in [("--in", "node1"), ("--out", "node2")] {
        bed.run(["delay", way, host, "2000", "20%"]);
    }
    // Those of the other host end in time; then the cables are good again, or the end alone would take long.
    case.until("the ends of node0's ranks", |seen| {
        (seen.named("rank.exited").filter(|e| e["rank"].as_u64() < Some(2)).count() == 2).then_some(())
    });
    for host in ["node1", "node2"] {
        bed.run(["delay", host, "0"]);
    }
    let done = case.code(0);
    assert_eq!(done.out().lines().filter(|line| *line == "lived").count(), 6, "{}", done.err());
    bed.clean(10);
    bed.down();
}

#[test]
fn frozen_host_is_lost_and_ends_its_ranks_when_resumed() {
    let Some(bed) = Bed::up(4) else { return };
    let case = running(&bed, "tester", "4s");
    let at = Instant::now();
    bed.run(["freeze", "node2"]);
    case.until("its end", |seen| seen.exit);
    assert!(at.elapsed() < PROMISED, "{:?}", at.elapsed());
    bed.run(["thaw", "node2"]);
    bed.clean(10);
    case.code(125).says(UNHEARD);
    bed.down();
}

#[test]
fn agent_suspended_for_longer_than_the_lease_loses_its_host() {
    let Some(bed) = Bed::up(4) else { return };
    for user in ["root", "tester"] {
        let case = running(&bed, user, "4s");
        let deaths = watch(sleepers(&bed, "node2"));
        kill(Pid::from_raw(part(&bed, "node2", "rlaunch-agent")), Signal::SIGSTOP).unwrap();
        Struck { case, deaths, at: Instant::now() }.loses_a_host(EXPIRED).says("0 left running");
        bed.clean(5);
    }
    bed.down();
}

#[test]
fn launcher_suspended_for_less_than_the_lease_loses_nothing_and_for_longer_the_job() {
    let Some(bed) = Bed::up(4) else { return };
    let case = job(&bed, "tester", &["--lease", "5s", "sleep", "4"]).start();
    case.events("rank.started", 8);
    let stopped = Pid::from_raw(launcher(&case));
    kill(stopped, Signal::SIGSTOP).unwrap();
    // The pause is the fault.
    std::thread::sleep(Duration::from_secs(2));
    kill(stopped, Signal::SIGCONT).unwrap();
    case.code(0);
    let case = running(&bed, "tester", "4s");
    let deaths = watch(sleepers(&bed, "node2"));
    let stopped = Pid::from_raw(launcher(&case));
    kill(stopped, Signal::SIGSTOP).unwrap();
    let last = deaths.into_iter().map(|death| death.join().unwrap()).max();
    assert!(last.is_some());
    bed.until_gone("sleep");
    // This one is, too. By now the launcher would have given the hosts up, if it had looked at its clock first.
    std::thread::sleep(Duration::from_secs(4));
    kill(stopped, Signal::SIGCONT).unwrap();
    let done = case.code(125);
    done.says("rlaunch was suspended for ")
        .says("longer than --lease allows; the guardians of node[0-3] killed the ranks there")
        .says("0 left running");
    assert_eq!(record(&done, "host.lost")["lost"], "starved");
    bed.clean(5);
    bed.down();
}

#[test]
fn unanswering_host_does_not_delay_an_interrupt() {
    let Some(bed) = Bed::up(4) else { return };
    for times in [1, 2, 3] {
        let case = running(&bed, "tester", "4s");
        bed.run(["partition", "node2"]);
        case.signal(Signal::SIGINT);
        (1..times).for_each(|_| case.signal_again(Signal::SIGINT));
        let at = Instant::now();
        case.until("its end", |seen| seen.exit);
        let (took, limit) = (at.elapsed(), if times < 3 { PROMISED } else { Duration::from_secs(1) });
        assert!(took < limit, "{times} interrupts took {took:?}");
        bed.run(["heal"]);
        bed.clean(30);
        let done = case.finish(Exit::Code(130));
        done.says("ended by SIGINT").says("what is left on node2 could not be counted");
        if times == 1 {
            done.says("no answer from node2; waiting up to ");
        }
    }
    bed.down();
}

#[test]
fn host_of_rank_0_may_be_lost_during_its_reads() {
    let Some(bed) = Bed::up(4) else { return };
    let mut case = job(&bed, "tester", &["--lease", "4s", "-l", "cat"]).stdin_pipe().start();
    let mut stdin = case.take_stdin();
    case.events("rank.started", 8);
    stdin.write_all(b"before\n").unwrap();
    case.says_on_stdout("0: before", 1);
    bed.run(["partition", "node0"]);
    stdin.write_all(b"after\n").unwrap();
    case.until("its end", |seen| seen.exit);
    drop(stdin);
    let done = case.code(125);
    done.says("lost contact with node0: no heartbeat before its lease expired; its guardian killed its ranks, or the host is down");
    assert_eq!(done.out(), "0: before\n");
    bed.run(["heal"]);
    bed.clean(30);
    bed.down();
}

#[test]
fn a_host_that_is_off_is_named_before_anything_starts() {
    let Some(bed) = Bed::up(4) else { return };
    bed.run(["kill-host", "node2"]);
    let done = job(&bed, "tester", &["--connect-timeout", "2s", "echo", "never"]).start().code(125);
    assert_eq!(done.out(), "");
    done.says("error: 1 of 4 hosts cannot be reached; nothing was started\n  node2 ");
    bed.start_host("node2");
    bed.clean(5);
    bed.down();
}

#[test]
fn ssh_that_is_killed_by_hand_is_named() {
    let Some(bed) = Bed::up(4) else { return };
    let case = running(&bed, "tester", "4s");
    let deaths = watch(sleepers(&bed, "node2"));
    let words = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_it = |p: &Proc| p.comm == "ssh" && words(p.pid).windows(7).any(|w| w == b"\0node2\0");
    let ssh: Vec<i32> = bed.processes().into_iter().filter(|(_, p)| is_it(p)).map(|(_, p)| p.pid).collect();
    assert_eq!(ssh.len(), 1);
    kill(Pid::from_raw(ssh[0]), Signal::SIGKILL).unwrap();
    Struck { case, deaths, at: Instant::now() }.loses_a_host("ssh to node2 was killed by SIGKILL");
    bed.clean(5);
    bed.down();
}

/// A host that booted long before the others, by its own clock.
#[test]
fn host_with_a_wrong_clock_works() {
    let Some(bed) = Bed::up(2) else { return };
    // The children of a process that has unshared its time have another.
    let sshd = "/usr/sbin/sshd -D -e -p 2222 -o PidFile=none & trap \"kill $!\" TERM; wait";
    let offset = format!("exec unshare --time --boottime 500000 --monotonic 500000 sh -c '{sshd}'");
    let other = bed.plan("root", "node1", ["sh", "-c", &offset]).start();
    let said = |text: &str| {
        other.until("sshd", |seen| {
            let ready = String::from_utf8_lossy(&seen.err).contains(text);
            (ready || seen.exit.is_some()).then_some(ready)
        })
    };
    if !said("Server listening") {
        place::absent("clocks that are far off", &other.end().err());
        return bed.down();
    }
    let words = ["rlaunch", "--ssh-fast", "--lease", "3s", "-n", "4", "--hostfile", "hosts", "sh", "-c"];
    let run = |script, code| {
        let plan = bed.plan("root", "login", words.iter().chain(&[script])).with_events();
        std::fs::write(plan.scratch().path("hosts"), "node0 slots=2\nnode1 slots=2 port=2222\n").unwrap();
        plan.start().code(code)
    };
    let done = run("sleep 4", 0);
    let at = |n: u64| done.named("rank.started").find(|e| e["rank"] == n).unwrap()["at"].as_u64().unwrap();
    assert!(at(0).abs_diff(at(3)) < 5_000_000_000, "times are on our clock: {} and {}", at(0), at(3));
    // Rank 2 may fail before the others have started.
    run("[ $RANK != 2 ] || exit 3; sleep 2; exit 4", 3);
    other.signal(Signal::SIGTERM);
    other.end();
    bed.clean(5);
    bed.down();
}
