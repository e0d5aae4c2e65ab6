//! TPU chips that other processes hold: real device files in a mount namespace, and real holders.
//!
//! /dev is a tmpfs there, because all mount namespaces share devtmpfs. The PCI bus shows one chip, of IOMMU group 0.

use crate::case::Done;
use crate::census;
use crate::place;
use crate::plan::Plan;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs its words where the PCI bus shows a chip. The variable `NODE` has the device behind /dev/vfio/0.
const CHIP: &str = "unshare -m sh -c 'mount -t tmpfs -o mode=755 none \"$DIR\" && cd \"$DIR\" && chmod 777 . && \
     mkdir -p dev/vfio pci/0000:00:04.0 && echo 0x1ae0 >pci/0000:00:04.0/vendor && echo 0x0063 >pci/0000:00:04.0/device && \
     ln -s ../../../kernel/iommu_groups/0 pci/0000:00:04.0/iommu_group && mount --bind pci /sys/bus/pci/devices && \
     mknod -m 666 dev/null c 1 3 && mknod -m 666 dev/zero c 1 5 && mknod -m 666 dev/urandom c 1 9 && \
     mknod -m 666 dev/vfio/0 c $NODE && mount --rbind dev /dev && exec sh -c \"$1\"' sh";

/// /dev/random: no other process of these tests has it open.
const FREE: &str = "1 8";

/// Holders are found by device number, in all of /proc: two cases at a time would see each other's.
static TURN: Mutex<()> = Mutex::new(());

/// The turn of a case, if such a place can be made here; prints a note if not.
pub(crate) fn turn() -> Option<MutexGuard<'static, ()>> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !place::is_root() {
        place::absent("TPU chips", "needs root, to show some");
        return None;
    }
    if !["unshare", "setpriv", "python3"].into_iter().all(place::has) {
        return None;
    }
    let works = on_chip("test -c /dev/vfio/0").start().end();
    if !works.exit.is_success() {
        place::absent("TPU chips", works.err().trim());
    }
    works.exit.is_success().then_some(turn)
}

/// A script in such a place. `rl` runs rlaunch with another lock file than the usual one.
fn on_chip(script: &str) -> Plan {
    let plan = Plan::shell(&format!("exec {CHIP} \"$SCRIPT\""));
    let rl = "rl() { \"$RL\" \"$@\"; }; fate() { kill -0 $1 2>/dev/null && [ $(cut -d\" \" -f3 /proc/$1/stat) != Z ] && echo lives || echo ended; };";
    plan.env("SCRIPT", format!("{rl} {script}"))
        .env("NODE", FREE)
        .env("RLAUNCH_LOCK_FILES", "none")
        .env("RLAUNCH_DEVICES", "tpu")
}

/// The script of a holder in the background, of a job and of the fate of the holder.
///
/// The holder and its descendants keep the pipe `alive` open. The kernel kills a contained holder
/// some time after the process that contains it: the script ends when all of them have ended.
fn held_by(holder: &str, job: &str) -> Done {
    let script = format!(
        "{holder} 9>alive & pid=$!; exec 8<alive; read up <up; {job}; echo code $?; fate $pid; \
         [ -e rest ] && pid=$(cat rest); kill -KILL $pid 2>/dev/null; wait; read end <&8"
    );
    let done = on_chip(&format!("mkfifo -m 666 up alive; {script}; exit 0")).start().end();
    assert!(done.exit.is_success(), "{:?}: {}", done.exit, done.err());
    done
}

/// Keeps the chip until it is killed, and says when it has it.
const HOLDER: &str = "sh -c 'exec 3</dev/vfio/0; echo up >up; exec sleep 1000'";

/// Only root can open the chip: a holder of root has opened it itself.
const ROOTS: &str = "chmod 600 /dev/vfio/0;";

#[test]
fn holder_is_named_and_lives_by_default() {
    let Some(_turn) = turn() else { return };
    let done = held_by(HOLDER, &format!("{ROOTS} rl -n 2 echo ran"));
    assert_eq!(done.out(), "code 125\nlives\n");
    done.says("is in use; nothing was started\n").says("/dev/vfio/0  pid ").says("sleep 1000");
    done.says("rlaunch clean --clean-devices own, to end it; or --devices none");
    let none = held_by(HOLDER, "rl --devices none -n 1 echo ran");
    assert_eq!(none.out(), "ran\ncode 0\nlives\n");
}

#[test]
fn program_that_names_no_tpu_library_starts_beside_a_holder() {
    let Some(_turn) = turn() else { return };
    let auto = "RLAUNCH_DEVICES=auto rl -n 1";
    let done = held_by(HOLDER, &format!("{auto} echo ran; {auto} sh -c 'echo jax'"));
    assert_eq!(done.out(), "ran\ncode 125\nlives\n", "{}", done.err());
    done.says(" still holds /dev/vfio/0 ").says("is in use; nothing was started");
}

#[test]
fn own_holder_is_ended_by_policy_own() {
    let Some(_turn) = turn() else { return };
    let done = held_by(HOLDER, &format!("{ROOTS} rl --clean-devices own -n 1 echo ran"));
    assert_eq!(done.out(), "ran\ncode 0\nended\n");
    done.says("ended process ").says("which held /dev/vfio/0: sleep 1000");
    let stubborn = "sh -c 'trap \"\" TERM; exec 3</dev/vfio/0; echo up >up; exec sleep 1000'";
    let done = held_by(stubborn, &format!("{ROOTS} rl --grace 2500ms --clean-devices own -n 1 echo ran"));
    assert_eq!(done.out(), "ran\ncode 0\nended\n");
    done.says("rlaunch: waiting for ").says(" to free /dev/vfio/0 (process ").says("killed process ");
}

/// The reasons are found on the host that has the holder.
#[test]
fn holder_lives_if_the_job_cannot_start() {
    let Some(_turn) = turn() else { return };
    for (job, code) in [
        ("-n 1 ./absent", 127),
        ("-n 1 --wdir /absent echo ran", 125),
        ("-n 1 --bind-to core --cpus-per-rank 65536 echo ran", 125),
        ("-n 1 echo ran : -n 1 ./absent", 127),
    ] {
        let done = held_by(HOLDER, &format!("{ROOTS} rl --clean-devices own {job}"));
        assert_eq!(done.out(), format!("code {code}\nlives\n"), "{job}: {}", done.err());
    }
}

#[test]
fn clean_frees_chips_without_a_job() {
    let Some(_turn) = turn() else { return };
    let dry = held_by(HOLDER, &format!("{ROOTS} rl clean --dry-run --clean-devices own"));
    assert_eq!(dry.out(), "code 125\nlives\n");
    dry.says("(would be ended)").says("the same without --dry-run");
    // The real run would end none of them.
    let other = "mkfifo -m 666 opened; setpriv --reuid 65534 --clear-groups \
        sh -c 'exec 3</dev/vfio/0; echo >opened; exec sleep 1000' & other=$!; read line <opened";
    let mixed = "rl clean --dry-run --clean-devices own; echo code $?; fate $other; kill -KILL $other";
    let mixed = held_by(&format!("{other}; {HOLDER}"), &format!("{ROOTS} {mixed}"));
    assert!(mixed.out().starts_with("code 125\nlives\n"), "{}", mixed.out());
    mixed.says("(would be ended, if no other holder were kept)").says("as root: rlaunch clean --clean-devices all");
    let free = ": no process holds a TPU chip\n";
    let out = held_by(HOLDER, &format!("{ROOTS} rl clean --clean-devices own")).out();
    assert!(out.ends_with(&format!("{free}code 0\nended\n")), "{out}");
    assert!(on_chip("rl clean").start().code(0).out().ends_with(free));
    // Another device has /dev/vfio/0 then.
    let none = on_chip("rm -r pci/0000:00:04.0; rl clean").start().code(0).out();
    assert!(none.ends_with(": there is no TPU chip: the PCI bus shows none\n"), "{none}");
}

/// A second chip.
const SECOND: &str = "mkdir pci/0000:00:05.0 && echo 0x1ae0 >pci/0000:00:05.0/vendor && echo 0x0063 >pci/0000:00:05.0/device && \
     ln -s ../../../kernel/iommu_groups/7 pci/0000:00:05.0/iommu_group && mknod -m 666 dev/vfio/7 c 1 7;";

#[test]
fn job_looks_only_at_the_chips_that_its_user_has_named() {
    let Some(_turn) = turn() else { return };
    let job = "-n 1 sh -c 'echo chips $TPU_VISIBLE_CHIPS'";
    let jobs = format!("TPU_VISIBLE_CHIPS=1 rl {job}; rl -x TPU_VISIBLE_CHIPS=1 {job}; TPU_VISIBLE_CHIPS=0,1 rl {job}");
    let done = held_by(&format!("{SECOND} {HOLDER}"), &jobs);
    assert_eq!(done.out(), "chips 1\nchips 1\ncode 125\nlives\n", "{}", done.err());
}

#[test]
fn holders_that_must_live_are_kept() {
    let Some(_turn) = turn() else { return };
    let other = "setpriv --reuid 65534 --clear-groups sh -c 'exec 3</dev/vfio/0; echo up >up; exec sleep 1000'";
    let done = held_by(other, "rl --clean-devices own -n 1 echo ran");
    assert_eq!(done.out(), "code 125\nlives\n");
    done.says("as root: rlaunch clean --clean-devices all");
    // Another user has chosen its environment.
    let forged = other.replacen("sh -c", "env RLAUNCH_JOB_ID=1 sh -c", 1);
    assert_eq!(held_by(&forged, "rl --clean-devices all -n 1 echo ran").out(), "ran\ncode 0\nended\n");
    // A process of root can have received the device from any user.
    let done = held_by(HOLDER, "rl --clean-devices own -n 1 echo ran");
    assert_eq!(done.out(), "code 125\nlives\n");
    done.says("(any user can have passed the TPU to it)").says("as root: rlaunch clean --clean-devices all");
    let contained = "unshare -pf --kill-child sh -c 'exec 3</dev/vfio/0; echo up >up; exec sleep 1000'";
    let done = held_by(contained, "rl --clean-devices own -n 1 echo ran");
    assert_eq!(done.out(), "code 125\nlives\n");
    done.says("in another PID namespace");
    let done = on_chip("exec 3</dev/vfio/0; rl --clean-devices all -n 1 echo ran; echo code $?").start().code(0);
    assert_eq!(done.out(), "code 125\n", "the shell that has started rlaunch");
    done.says("rlaunch was started by it");
}

#[test]
fn holder_is_found_behind_threads_forks_and_mappings() {
    let Some(_turn) = turn() else { return };
    let forked = "sh -c 'sh -c \"echo \\$\\$ >rest; exec 3</dev/vfio/0; echo up >up; exec sleep 1000\" & wait'";
    assert!(held_by(forked, "rl -n 1 echo ran").out().starts_with("code 125\n"));
    // The main thread exits by the system call, so that the other thread of the process stays.
    let thread = "python3 -c 'import threading, time, ctypes; f = open(\"/dev/vfio/0\"); \
        threading.Thread(target=time.sleep, args=(1000,)).start(); open(\"up\", \"w\").write(\"up\\n\"); ctypes.CDLL(None).syscall(60, 0)'";
    let done = held_by(thread, "rl -n 1 echo ran");
    assert!(done.out().starts_with("code 125\n"), "{}", done.out());
    // Its own user may not read the descriptors of the main thread then.
    let drop = "c = ctypes.CDLL(None); os.setgroups([]); os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3); c.prctl(4, 1, 0, 0, 0); f =";
    let thread = thread.replacen("threading, time,", "os, threading, time,", 1).replacen("f =", drop, 1);
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let job = format!("mkdir t; chmod 1777 t; TMPDIR=\"$PWD/t\" {user} \"$RL\" -n 1 echo ran");
    let done = held_by(&thread, &job);
    assert!(done.out().starts_with("code 125\n"), "{}{}", done.out(), done.err());
    done.says("/dev/vfio/0  pid ").says("--clean-devices own, to end it");
    let mapping = "python3 -c 'import mmap, os, time; f = os.open(\"/dev/vfio/0\", os.O_RDWR); \
        m = mmap.mmap(f, 4096, mmap.MAP_PRIVATE); os.close(f); open(\"up\", \"w\").write(\"up\\n\"); time.sleep(1000)'";
    let script = format!("mkfifo up; {mapping} & pid=$!; read up <up; rl clean; echo code $?; kill -KILL $pid; wait");
    // A copy of a file of the process's own keeps the descriptor of a mapping: the device of zeros does not.
    let done = on_chip(&script).env("NODE", "1 5").start().code(0);
    assert_eq!(done.out(), "code 125\n");
    done.says("/dev/vfio/0  pid ");
}

#[test]
fn member_of_a_living_job_is_never_ended() {
    let Some(_turn) = turn() else { return };
    // A rank may have cleared its environment.
    for (program, name) in [("sh -c", "  (job "), ("env -i sh -c", "  (of a job of rlaunch)")] {
        let job = format!("\"$RL\" -n 1 {program} 'exec 3</dev/vfio/0; echo up >up; read end <end'");
        let clean = "for policy in own all; do rl --clean-devices $policy -n 1 echo ran; echo code $?; done";
        let script =
            format!("mkfifo up end; {job} & job=$!; read up <up; {clean}; echo >end; wait $job; echo first $?");
        let done = on_chip(&script).start().code(0);
        assert_eq!(done.out(), "code 125\ncode 125\nfirst 0\n", "{program}: {}", done.err());
        done.says(name);
    }
}

/// Guardian and agent are killed at once, so their rank outlives the job.
#[test]
fn leftovers_of_a_dead_job_are_ended_by_default() {
    let Some(_turn) = turn() else { return };
    let job = "\"$RL\" --contain t3 -n 1 sh -c 'exec 3</dev/vfio/0; echo up; exec sleep 1000'";
    let case = on_chip(&format!("{job}; echo first $?; rl -n 1 echo ran; echo second $?")).start();
    case.says_on_stdout("up\n", 1);
    let agent = case.ours("rlaunch-agent").expect("an agent");
    let guardian = census::parent(agent).expect("a guardian");
    // Linux continues a stopped agent when its guardian ends, so the agent must be killed first.
    for (pid, sig) in
        [(guardian, Signal::SIGSTOP), (agent, Signal::SIGSTOP), (agent, Signal::SIGKILL), (guardian, Signal::SIGKILL)]
    {
        let sent = kill(Pid::from_raw(pid), sig);
        // The launcher may have killed the guardian, once it had lost the agent.
        assert!(sent.is_ok() || (pid, sig) == (guardian, Signal::SIGKILL), "{sig} to {pid}: {sent:?}");
    }
    let done = case.code(0);
    assert_eq!(done.out(), "up\nfirst 125\nran\nsecond 0\n", "{}", done.err());
    done.says("ended process ");
}

/// A virtual terminal that is held exclusively refuses another user with EBUSY, as a VFIO group does.
#[test]
fn holder_that_may_not_be_seen_is_reported() {
    let Some(_turn) = turn() else { return };
    let holder = "python3 -c 'import fcntl, os, termios, time; f = os.open(\"/dev/vfio/0\", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK); \
        fcntl.ioctl(f, termios.TIOCEXCL); open(\"up\", \"w\").write(\"up\\n\"); time.sleep(1000)'";
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let script = format!(
        "mkfifo up; {holder} & pid=$!; read up <up; mkdir t; chmod 1777 t; TMPDIR=\"$PWD/t\" {user} \"$RL\" -n 1 echo ran; echo code $?; kill $pid; wait $pid; \
         TMPDIR=\"$PWD/t\" {user} \"$RL\" -n 1 echo ran"
    );
    let done = on_chip(&script).env("NODE", "4 50").start().end();
    if done.err().contains("No such device") || done.err().contains("Permission denied") {
        return place::absent("a busy device", done.err().trim());
    }
    assert_eq!(done.out(), "code 125\nran\n", "{}", done.err());
    done.says("held by a process that you may not see; ask root: lsof /dev/vfio/0");
}

#[test]
fn lock_file_is_removed_if_no_process_holds_the_lock() {
    let Some(_turn) = turn() else { return };
    let job = "RLAUNCH_LOCK_FILES=\"$PWD/lock\" \"$RL\" -n 1 sh -c 'echo ${ALLOW_MULTIPLE_LIBTPU_LOAD-unset}'";
    let left = on_chip(&format!(": >lock; {job}; ls lock 2>/dev/null || echo gone")).start().code(0);
    assert_eq!(left.out(), "unset\ngone\n");
    assert!(!left.err().contains("removed"), "{}", left.err());
    let clean = "RLAUNCH_LOCK_FILES=\"$PWD/lock\" \"$RL\" clean; ls lock 2>/dev/null || echo gone";
    let left = on_chip(&format!(": >lock; {clean}")).start().code(0);
    assert!(left.out().ends_with("gone\n"), "{}", left.out());
    left.says("removed ").says("/lock on ");
    let link = on_chip(&format!(": >target; ln -s target lock; {job}; ls lock target")).start().code(0);
    assert_eq!(link.out(), "1\nlock\ntarget\n");
    link.says("is a symbolic link, not a lock file: ranks get ALLOW_MULTIPLE_LIBTPU_LOAD=1");
    let directory = on_chip(&format!("mkdir lock; {job}; {clean}")).start().code(0);
    directory.says("is a directory, not a lock file: ranks get").says("is a directory, not a lock file");
    let lock = "python3 -c 'import fcntl, time; f = open(\"lock\", \"w\"); fcntl.lockf(f, fcntl.LOCK_EX); open(\"up\", \"w\").write(\"up\\n\"); time.sleep(1000)'";
    let script = format!("mkfifo up; {lock} & pid=$!; read up <up; {job}; ls lock; kill $pid; wait $pid");
    let locked = on_chip(&script).start().end();
    assert_eq!(locked.out(), "unset\nlock\n");
    locked.says("is locked by process ").says(" of root: ").says("python3 -c import fcntl");
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let script = format!(
        ": >lock; chmod 600 lock; mkdir t; chmod 1777 t; TMPDIR=\"$PWD/t\"; export TMPDIR; exec {user} env {job}"
    );
    let foreign = on_chip(&script).start().code(0);
    assert_eq!(foreign.out(), "1\n");
    foreign.says("belongs to user 0: ranks get ALLOW_MULTIPLE_LIBTPU_LOAD=1\n  try     sudo rm ");
}

#[test]
fn doctor_shows_chips_and_holders() {
    let Some(_turn) = turn() else { return };
    let done = held_by(HOLDER, "rl doctor");
    assert!(done.out().contains("1 chip (v5e)"), "{}", done.out());
    assert!(done.out().contains("/dev/vfio/0 by pid ") && done.out().contains(": sleep 1000 ("), "{}", done.out());
}

/// The same bus with a GPU, of IOMMU group 7, that is lent to a virtual machine. It is another real device.
const LENT: &str = "mkdir pci/0000:00:05.0 && echo 0x10de >pci/0000:00:05.0/vendor && echo 0x2330 >pci/0000:00:05.0/device && \
     ln -s ../../../kernel/iommu_groups/7 pci/0000:00:05.0/iommu_group && mknod -m 666 dev/vfio/7 c 1 5;";

/// Prints which of the device files were opened meanwhile: `0`, `7`, both or none.
const OPENS: &str = r#"
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(0o4000)
IN_OPEN, names = 0x20, {}
for name in "0", "7":
    names[libc.inotify_add_watch(fd, b"/dev/vfio/" + name.encode(), IN_OPEN)] = name
code = subprocess.run(sys.argv[1:]).returncode
try: events = os.read(fd, 65536)
except BlockingIOError: events = b""
print("opened", *sorted({names[int.from_bytes(events[at:at + 4], sys.byteorder)] for at in range(0, len(events), 16)}), code)
"#;

/// The kernel's own record of opens, for a user that tries groups whose holder it does not see. The same user with strace, where that is
/// there, has no path of the group in any system call.
#[test]
fn group_of_a_virtual_machine_is_never_looked_at() {
    let Some(_turn) = turn() else { return };
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let holder = "sh -c 'exec 4</dev/vfio/7; echo up >up; exec sleep 1000'";
    let setting = format!(
        "{LENT} mkfifo up; {holder} & pid=$!; read up <up; mkdir t; chmod 1777 t; TMPDIR=\"$PWD/t\"; export TMPDIR"
    );
    let end = "fate $pid; kill -KILL $pid; wait";
    for (policy, by) in [("stale", user), ("all", "")] {
        let run = format!("python3 -c \"$OPENS\" {by} \"$RL\" --clean-devices {policy} -n 1 echo ran");
        let done = on_chip(&format!("{setting}; {run}; {end}")).env("OPENS", OPENS).start().end();
        let opened = if by.is_empty() { "opened 0" } else { "opened 0 0" };
        assert!(done.out().starts_with("ran\nopened"), "{policy}: {}{}", done.out(), done.err());
        assert!(!done.out().contains('7') && done.out().ends_with("lives\n"), "{policy}: {}", done.out());
        assert!(done.out().contains(opened), "a chip's own group is tried: {}", done.out());
    }
    // A host without any chip.
    let none = "rm -r pci/0000:00:04.0";
    let run = format!("python3 -c \"$OPENS\" {user} \"$RL\" -n 1 echo ran");
    let done = on_chip(&format!("{setting}; {none}; {run}; {end}")).env("OPENS", OPENS).start().end();
    assert_eq!(done.out(), "ran\nopened 0\nlives\n", "{}", done.err());
    if place::has("strace") {
        let run = "strace -f -qq -o trace \"$RL\" --clean-devices all -n 1 echo ran; grep -c vfio/0 trace; grep -c vfio/7 trace";
        let done = on_chip(&format!("{setting}; {run}; {end}")).start().end();
        let counts: Vec<u32> = done.out().lines().filter_map(|line| line.parse().ok()).collect();
        assert!(matches!(counts[..], [found, 0] if found > 0), "{}{}", done.out(), done.err());
    }
}

/// A rank's helper keeps the chip: the process that follows the rank is started when the helper has ended.
const HOLDS: &str = r#"if mkdir "$TMPDIR/$RLAUNCH_RANK" 2>/dev/null; then
    echo $$ > "$TMPDIR/pid$RLAUNCH_RANK"
    if [ $RLAUNCH_RANK = 1 ]; then set -m; sh -c 'read x < "$TMPDIR/go"' 3</dev/vfio/0 >/dev/null 2>&1 & set +m; fi
fi
exec "$TRAIN" --resilient --epochs 1000000"#;

#[test]
fn chip_is_looked_at_before_a_respawn() {
    let (Some(train), Some(_turn)) = (place::example("train"), turn()) else { return };
    if !place::has("bash") {
        return;
    }
    // Without a PID namespace a rank knows its number on the host.
    let plan =
        on_chip("exec \"$RL\" --contain t3 -n 3 --respawn bash -c \"$HOLDS\"").env("HOLDS", HOLDS).env("TRAIN", train);
    let temporary = plan.scratch().temporary();
    let go = temporary.join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let case = plan.env("TMPDIR", &temporary).start();
    case.says_on_stdout("epoch   3", 1);
    for rank in [1, 2] {
        let pid = std::fs::read_to_string(temporary.join(format!("pid{rank}"))).unwrap();
        kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    }
    case.says_on_stderr("rank 2 has rejoined");
    let early =
        case.until("stderr", |seen| Some(String::from_utf8_lossy(&seen.err).contains("rank 1 is started again")));
    assert!(!early, "its chip is held");
    std::fs::write(&go, "x\n").unwrap();
    case.says_on_stderr("rank 1 has rejoined");
    case.signal(Signal::SIGTERM);
    case.end().says("0 left running");
}

/// The /proc of another PID namespace: a number there is that of another process here, or of none.
#[test]
fn no_process_is_ended_by_the_proc_of_another_namespace() {
    let Some(_turn) = turn() else { return };
    let inner = "mount -t proc none other && exec 3</dev/vfio/0 && echo up >up && exec sleep 1000";
    let holder = format!("mkdir other; exec unshare -pf --kill-child sh -c '{inner}'");
    // Processes with each number that a holder there can have.
    let run = "mount --bind other /proc && \"$RL\" --contain t3 --clean-devices all -n 1 echo ran; echo code $?";
    let script = format!(
        "mkfifo up; ({holder}) & pid=$!; read up <up; unshare -m --propagation private sh -c '{run}'; fate $pid; kill -KILL $pid; wait"
    );
    let done = on_chip(&script).start().end();
    assert!(done.out().starts_with("code 125\nlives\n"), "{}{}", done.out(), done.err());
    done.says("kept: /proc shows another PID namespace").says("mount the /proc of this PID namespace");
}

/// Holds the chip once it is asked to, after the job has begun.
const INTRUDER: &str = "cd \"$TMPDIR\"; sh -c 'read go <hold; exec 3</dev/vfio/0; echo up >up; read end <leave' & exec \"$RL\" --contain t3 -n 2 \
     --respawn bash -c 'echo $$ >pid$RLAUNCH_RANK; exec \"$TRAIN\" --resilient --epochs 1000000'";

#[test]
fn respawn_does_not_start_on_a_chip_that_another_process_has_taken() {
    let (Some(train), Some(_turn)) = (place::example("train"), turn()) else { return };
    let plan = on_chip(INTRUDER).env("TRAIN", train);
    let dir = plan.scratch().temporary();
    let [hold, up, leave] = ["hold", "up", "leave"].map(|name| dir.join(name));
    for fifo in [&hold, &up, &leave] {
        nix::unistd::mkfifo(fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    }
    let case = plan.env("TMPDIR", &dir).start();
    case.says_on_stdout("epoch   3", 1);
    std::fs::write(hold, "x\n").unwrap();
    assert_eq!(std::fs::read(up).unwrap(), b"up\n");
    let pid = std::fs::read_to_string(dir.join("pid1")).unwrap();
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    case.says_on_stderr("still holds /dev/vfio/0");
    case.says_on_stderr("rank 1 could not be started again");
    case.says_on_stderr("another process holds /dev/vfio/0");
    std::fs::write(leave, "x\n").unwrap();
    case.signal(Signal::SIGTERM);
    case.end();
}
