//! TPU chips of several hosts: refused together, cleaned over ssh, and looked at before each start of all ranks.

use crate::bed::Bed;
use crate::case::Case;
use crate::tpu_devices::turn;
use nix::sys::signal::Signal;

/// Shows a chip on a host of a testbed, which has a /dev of its own then.
const CHIP: &str = "mount -t tmpfs none /mnt && cd /mnt && mkdir -p shm pts vfio pci/0000:00:04.0 && \
     echo 0x1ae0 >pci/0000:00:04.0/vendor && echo 0x0063 >pci/0000:00:04.0/device && \
     ln -s ../../../kernel/iommu_groups/0 pci/0000:00:04.0/iommu_group && mount --bind pci /sys/bus/pci/devices && \
     for n in null zero full random urandom tty ptmx; do touch $n && mount --bind /dev/$n $n || exit 1; done && \
     mknod -m 600 vfio/0 c 1 8 && mount --rbind /dev/shm shm && mount --rbind /dev/pts pts && mount --rbind /mnt /dev";

fn on(bed: &Bed, host: &str, script: &str) -> String {
    bed.run(["exec", "--user", "root", "--cwd", "/", host, "sh", "-c", script])
}

/// Starts so many hosts with a chip each.
fn hosts(count: u32) -> Option<Bed> {
    let bed = Bed::up(count)?;
    for n in 0..count {
        on(&bed, &format!("node{n}"), CHIP);
    }
    Some(bed)
}

/// A process that holds the chip of a host.
fn hold(bed: &Bed, host: &str) -> Case {
    let words = ["sh", "-c", "exec 3</dev/vfio/0; echo up; exec sleep 1000"];
    let holder = bed.plan("root", host, words).start();
    holder.says_on_stdout("up", 1);
    holder
}

fn rlaunch(bed: &Bed, words: &[&str]) -> Case {
    bed.plan("root", "login", ["rlaunch"].iter().chain(words).copied()).with_events().start()
}

#[test]
fn held_chip_of_one_host_is_one_line_and_is_cleaned_over_ssh() {
    let Some(_turn) = turn() else { return };
    let Some(bed) = hosts(4) else { return };
    let holder = hold(&bed, "node2");
    let job = ["--devices", "tpu", "--ssh-fast", "-H", "node[0-3]", "sh", "-c", "echo ran on $(hostname)"];
    let done = rlaunch(&bed, &job).code(125);
    assert_eq!(done.out(), "", "nothing is started");
    done.says("error: the TPU of 1 of 4 hosts is in use; nothing was started\n  node2   /dev/vfio/0  pid ");
    done.says("  try     rlaunch clean -H node2 --clean-devices own, to end it; or --devices none");
    let rows = done.err().lines().filter(|line| line.contains("/dev/vfio/")).count();
    assert_eq!(rows, 1, "{}", done.err());
    assert_eq!(done.named("rank.started").count(), 0);
    let dry = rlaunch(&bed, &["clean", "--dry-run", "--ssh-fast", "-H", "node2", "--clean-devices", "own"]).code(125);
    dry.says("(would be ended)");
    on(&bed, "node1", ": >/tmp/libtpu_lockfile");
    let clean = rlaunch(&bed, &["clean", "--ssh-fast", "-H", "node[1-2]", "--clean-devices", "own"]).code(0);
    assert_eq!(clean.sorted(), ["node1: no process holds a TPU chip", "node2: no process holds a TPU chip"]);
    clean.says("rlaunch: ended process ").says("on node2, which held /dev/vfio/0: sleep 1000");
    clean.says("removed /tmp/libtpu_lockfile on node1: no process had locked it");
    holder.end();
    let ran: Vec<String> = (0..4).map(|n| format!("ran on node{n}")).collect();
    assert_eq!(rlaunch(&bed, &job).code(0).sorted(), ran);
    bed.clean(5);
    bed.down();
}

#[test]
fn chips_are_looked_at_before_a_second_generation() {
    let Some(_turn) = turn() else { return };
    let Some(bed) = hosts(2) else { return };
    let script =
        "echo start $RLAUNCH_RESTART_COUNT rank $RANK; [ $RANK = 1 ] && exec sleep 1000; read line <go; exit 1";
    let plan = bed.plan(
        "root",
        "login",
        [
            "rlaunch",
            "--devices",
            "tpu",
            "--ssh-fast",
            "-H",
            "node[0-1]",
            "--max-restarts",
            "1",
            "--restart-delay",
            "0",
            "sh",
            "-c",
            script,
        ],
    );
    let go = plan.scratch().fifo("go");
    let case = plan.with_events().start();
    case.says_on_stdout("start 0", 2);
    let holder = hold(&bed, "node1");
    std::fs::write(go, "1\n").unwrap();
    let done = case.code(125);
    assert!(!done.out().contains("start 1"), "the host whose chips are free has waited: {}", done.out());
    done.says("  node1   /dev/vfio/0  pid ");
    holder.signal(Signal::SIGTERM);
    holder.code(143);
    bed.clean(5);
    bed.down();
}

/// The first host could start its rank and end its holder. The second cannot start, or its holder must live.
#[test]
fn holder_lives_if_another_host_cannot_start() {
    let Some(_turn) = turn() else { return };
    let Some(bed) = hosts(2) else { return };
    let holder = hold(&bed, "node0");
    on(&bed, "node0", "mkdir /tmp/only");
    let job = ["--ssh-fast", "-H", "node[0-1]", "--clean-devices", "own"];
    let missing = rlaunch(&bed, &[&job[..], &["--wdir", "/tmp/only", "echo", "ran"]].concat()).code(125);
    missing.says("/tmp/only");
    on(&bed, "node1", "chmod 666 /dev/vfio/0");
    let words =
        ["setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", "exec 3</dev/vfio/0; echo up; exec sleep 1000"];
    let other = bed.plan("root", "node1", words).start();
    other.says_on_stdout("up", 1);
    let held = rlaunch(&bed, &[&job[..], &["echo", "ran"]].concat()).code(125);
    held.says("error: the TPU of 1 of 2 hosts is in use; nothing was started\n  node1   /dev/vfio/0  pid ");
    for done in [&missing, &held] {
        assert_eq!(done.out(), "");
        assert!(!done.err().contains("ended process"), "{}", done.err());
    }
    other.signal(Signal::SIGTERM);
    other.code(143);
    let free = rlaunch(&bed, &[&job[..], &["echo", "ran"]].concat()).code(0);
    assert_eq!(free.out(), "ran\nran\n");
    free.says("ended process ").says("on node0, which held /dev/vfio/0: sleep 1000");
    holder.end();
    bed.clean(5);
    bed.down();
}
