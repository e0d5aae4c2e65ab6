//! `--contain`: which guarantee is given to whom, what it looks like from inside, and what is refused.

use crate::census::{self, Mercy};
use crate::place;
use crate::plan::Plan;
use crate::watch::Exit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

#[test]
fn tiers_of_this_host_are_reported() {
    place::say(&format!("tiers of this user here: {}", place::tiers().join(", ")));
    assert!(place::tiers().contains(&"t3"), "subreapers are everywhere");
    // The findings of rlaunch match the kernel's: asked by other means.
    let flags = if place::is_root() { "-pf" } else { "-Urpf" };
    if place::has("unshare") {
        let probe = Plan::shell(&format!("unshare {flags} --mount-proc true")).start().end();
        assert_eq!(place::tiers().contains(&"t1"), probe.exit.is_success(), "{}", probe.err());
    }
}

#[test]
fn a_pid_namespace_shows_nothing_but_the_job() {
    if !place::tiers().contains(&"t1") {
        return;
    }
    let script = "cd /proc; echo [0-9]*; cat 1/comm; echo $RLAUNCH_TIER; readlink self/ns/pid; wait";
    let done = Plan::rlaunch(["-n", "1", "sh", "-c", script]).contain("t1").start().code(0);
    let out = done.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0].split(' ').count(), 2, "init and the rank: {out}");
    assert_eq!(lines[1..3], ["rlaunch-init", "t1"], "{out}");
    assert_ne!(lines[3], own_namespace(), "{out}");
    let ready = done.event("host.ready");
    assert_eq!((&ready["tier"], ready["init"].is_u64()), (&Value::from("t1"), true));
}

/// The root of a chroot is no mount point, and a small one has no /proc.
#[test]
fn ranks_run_in_a_chroot() {
    if !place::is_root() || !place::tiers().contains(&"t1") || !place::has("unshare") {
        return place::absent("a chroot", "needs root, PID namespaces and unshare(1)");
    }
    let job = "chroot . /rlaunch --contain t1 -n 2 /rlaunch hosts -e n1";
    let script = format!(
        "cd \"$DIR\" && mkdir dev proc && : >dev/null && mount --bind /dev/null dev/null && cp \"$RL\" rlaunch && \
         {job} && mount -t proc proc proc && {job}"
    );
    let done = Plan::shell(&format!("exec unshare -m sh -c '{script}'")).start().code(0);
    assert_eq!(done.out(), "n1\n".repeat(4));
}

#[test]
fn init_holds_nothing_of_the_callers() {
    if !place::is_root() {
        return place::absent("a look into init", "needs root");
    }
    if !place::tiers().contains(&"t1") {
        return;
    }
    // A directory that could not be removed or unmounted, a pipe that would never end.
    let mut case = Plan::rlaunch(["-n", "1", "cat"]).contain("t1").stdin_pipe().start();
    case.event("rank.started");
    let init = case.event("host.ready")["init"].to_string();
    census::wait_until("a bare init", || {
        let cwd = std::fs::read_link(format!("/proc/{init}/cwd")).unwrap();
        let fds = std::fs::read_dir(format!("/proc/{init}/fd")).unwrap().count();
        // The one descriptor is the pipe that notifies the agent of its death.
        cwd.as_os_str() == "/" && fds == 1
    });
    drop(case.take_stdin());
    case.code(0);
}

/// In one job of five the first rank was born before init had chosen.
#[test]
fn process_ids_of_a_job_begin_at_a_random_number() {
    if !place::tiers().contains(&"t1") {
        return;
    }
    let ids = (0..30).flat_map(|_| {
        let done = Plan::rlaunch(["-n", "2", "sh", "-c", "echo $$"]).contain("t1").start().code(0);
        done.sorted().into_iter().map(|id| id.parse::<u64>().unwrap())
    });
    let ids: std::collections::BTreeSet<u64> = ids.collect();
    assert_eq!(ids.len(), 60, "two jobs have given the same: {ids:?}");
    // The kernel gives those below 300 once only; what it begins with in a new namespace is 2.
    assert!(ids.first() > Some(&300), "{ids:?}");
}

#[test]
fn subreapers_leave_the_namespace_alone() {
    let script = "echo $RLAUNCH_TIER; readlink /proc/self/ns/pid";
    let done = Plan::rlaunch(["-n", "1", "sh", "-c", script]).contain("t3").start().code(0);
    assert_eq!(done.out(), format!("t3\n{}\n", own_namespace()));
    assert_eq!(
        (&done.event("host.ready")["tier"], &done.event("host.ready")["init"]),
        (&Value::from("t3"), &Value::Null)
    );
}

#[test]
fn the_hosts_other_namespaces_stay() {
    let script = "for ns in ipc net uts cgroup; do readlink /proc/self/ns/$ns; done; stat -fc %i /dev/shm /tmp";
    let bare = Plan::shell(script).start().code(0).out();
    for tier in place::tiers() {
        assert_eq!(Plan::rlaunch(["-n", "1", "sh", "-c", script]).contain(tier).start().code(0).out(), bare, "{tier}");
    }
}

#[test]
fn auto_takes_a_tier_without_cost() {
    let has_devices = std::path::Path::new("/dev/kfd").exists();
    let expected = if place::is_root() && place::tiers().contains(&"t1") && !has_devices { "t1" } else { "t3" };
    let done = Plan::rlaunch(["-n", "1", "sh", "-c", "echo $RLAUNCH_TIER"]).start().code(0);
    assert_eq!(done.out(), format!("{expected}\n"));
    assert_eq!(done.event("host.ready")["tier"], expected);
}

#[test]
fn strict_is_the_kernels_guarantee_or_nothing() {
    let done = Plan::rlaunch(["-n", "1", "sh", "-c", "echo $RLAUNCH_TIER"]).contain("strict").start().end();
    if place::tiers().contains(&"t1") {
        assert_eq!((done.exit.is_success(), done.out().as_str()), (true, "t1\n"), "{}", done.err());
    } else {
        assert_eq!(done.exit, crate::watch::Exit::Code(125));
    }
}

/// A place where no PID namespace can be made: root of a user namespace without the right to, and without more of them.
const POOR: &str = "unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && \
     exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$@\"' sh";

#[test]
fn unavailable_tier_is_refused_and_auto_continues() {
    if !place::has("unshare") || !place::has("setpriv") {
        return;
    }
    let works = Plan::shell(&format!("{POOR} true && ! {POOR} unshare -p true 2>/dev/null")).start().end();
    if !works.exit.is_success() {
        return place::absent("a place without PID namespaces", works.err().trim());
    }
    for tier in ["t1", "strict"] {
        let done = Plan::shell(&format!("{POOR} \"$RL\" -n 2 echo ran; echo $?")).contain(tier).start().code(0);
        assert_eq!(done.out(), "125\n", "{tier}: {}", done.err());
        assert!(done.err().contains("namespace"), "{tier}: {}", done.err());
    }
    for tier in ["auto", "t3"] {
        let done =
            Plan::shell(&format!("{POOR} \"$RL\" -n 1 sh -c 'echo $RLAUNCH_TIER'")).contain(tier).start().code(0);
        assert_eq!(done.out(), "t3\n");
        assert_eq!(
            done.err().contains("containment t3: "),
            tier == "auto",
            "why it is not the stronger: {}",
            done.err()
        );
    }
}

/// Runs its words where /dev holds a GPU.
const GPU: &str = "unshare -m sh -c 'mount -t tmpfs none \"$DIR\" && touch \"$DIR/null\" \"$DIR/$GPU\" && \
     mount --bind /dev/null \"$DIR/null\" && mount --rbind \"$DIR\" /dev && exec \"$@\"' sh";

#[test]
fn only_amds_gpus_keep_auto_from_a_pid_namespace() {
    if !place::is_root() {
        return place::absent("a GPU", "needs root, to show one");
    }
    if !place::tiers().contains(&"t1") || !place::has("unshare") {
        return;
    }
    let works = Plan::shell(&format!("{GPU} test -e /dev/kfd")).env("GPU", "kfd").start().end();
    if !works.exit.is_success() {
        return place::absent("a GPU", works.err().trim());
    }
    for (gpu, asked, given) in [("kfd", "auto", "t3"), ("kfd", "t1", "t1"), ("nvidiactl", "auto", "t1")] {
        let script = format!("{GPU} \"$RL\" -n 1 sh -c 'echo $RLAUNCH_TIER'");
        let done = Plan::shell(&script).env("GPU", gpu).contain(asked).start().code(0);
        assert_eq!(done.out(), format!("{given}\n"), "{gpu}");
        let is_noted = done.err().contains("AMD GPUs were not tried in a PID namespace yet");
        assert_eq!(is_noted, given == "t3", "{gpu}: {}", done.err());
    }
}

/// Runs its words where /proc shows no process.
const BLIND: &str = "unshare -m sh -c 'mount -t tmpfs none /proc && exec \"$@\"' sh";

#[test]
fn empty_proc_hides_no_process() {
    if !place::is_root() {
        return place::absent("an empty /proc", "needs root, to hide it");
    }
    let works = Plan::shell(&format!("{BLIND} test ! -e /proc/self")).start().end();
    if !works.exit.is_success() {
        return place::absent("an empty /proc", works.err().trim());
    }
    let script = format!("exec {BLIND} \"$RL\" -n 1 sh -c 'echo ready; exec sleep 3600'");
    let case = Plan::shell(&script).contain("t3").start();
    case.says_on_stdout("ready", 1);
    let agent = case.ours("rlaunch-agent").unwrap();
    kill(Pid::from_raw(agent), Signal::SIGKILL).unwrap();
    // The guardian has the rank as its child by then, and finds it by its number. On a busy host that may take longer than
    // the launcher waits for the count.
    let done = case.end_with(Mercy::LostHosts);
    assert_eq!(done.exit, Exit::Code(125), "{}", done.err());
    assert!(["0 left running", "could not be counted"].iter().any(|said| done.err().contains(said)), "{}", done.err());
}

/// A container: a part of /proc is hidden, and its root is that of a user namespace. The kernel allows no new /proc there.
#[test]
fn auto_falls_back_where_no_new_proc_can_be_mounted() {
    if !place::is_root() || !["unshare", "setpriv"].into_iter().all(place::has) {
        return place::absent("a container", "needs root, unshare(1) and setpriv(1)");
    }
    let job = |options: &str| {
        let user = "setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Urm env TMPDIR=/tmp";
        let script = format!("mount --bind /dev/null /proc/version && exec {user} \"$RL\" {options} -n 1 echo ran");
        Plan::shell(&format!("exec unshare -m sh -c '{script}'")).start()
    };
    let done = job("--contain auto").code(0);
    assert_eq!(done.out(), "ran\n");
    done.says("containment t3: mount the /proc of a PID namespace: operation not permitted (errno 1)");
    job("--contain t1").code(125).says("mount the /proc of a PID namespace");
}

fn own_namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid").unwrap().to_str().unwrap().to_owned()
}
