//! GPUs of their own for ranks, on hosts that show some: device files are all that is looked at.

use crate::bed::Bed;
use crate::census::Mercy;
use crate::place;
use crate::plan::Plan;
use crate::ssh::script;
use crate::watch::Exit;
use nix::sys::signal::Signal;

/// Runs its words where /dev holds four GPUs. They are other devices of the kernel, which few processes have open.
pub(crate) const FOUR: &str = "unshare -m sh -c 'mount -t tmpfs none \"$DIR\" && cd \"$DIR\" && touch null && mknod nvidiactl c 1 11 && \
     mknod nvidia0 c 1 8 && mknod nvidia1 c 1 7 && mknod nvidia2 c 1 5 && mknod nvidia3 c 1 9 && \
     mount --bind /dev/null null && mount --rbind . /dev && cd / && exec \"$@\"' sh";

pub(crate) fn can_show_some() -> bool {
    if !place::is_root() {
        place::absent("GPUs", "needs root, to show some");
        return false;
    }
    if !place::has("unshare") {
        return false;
    }
    let works = Plan::shell(&format!("{FOUR} test -e /dev/nvidia3")).start().end();
    if !works.exit.is_success() {
        place::absent("GPUs", works.err().trim());
    }
    works.exit.is_success()
}

/// Runs its words where two GPUs of NVIDIA's are near one CPU each, of two NUMA nodes: the first GPU is near CPU 1.
const TWO_NEAR: &str = "unshare -m sh -c 'mount -t tmpfs none \"$DIR\" && cd \"$DIR\" && \
     mkdir -p dev gpus/0000:07:00.0 gpus/0000:0F:00.0 pci/0000:07:00.0 pci/0000:0f:00.0 node/node0 node/node1 driver/nvidia && \
     printf \"GPU UUID:\\t GPU-a\\nDevice Minor:\\t 0\\n\" > gpus/0000:07:00.0/information && \
     printf \"GPU UUID:\\t GPU-b\\nDevice Minor:\\t 1\\n\" > gpus/0000:0F:00.0/information && mv gpus driver/nvidia && \
     echo 1 > pci/0000:07:00.0/local_cpulist && echo 0 > pci/0000:0f:00.0/local_cpulist && \
     echo 0-1 > node/online && echo 0 > node/node0/cpulist && echo 1 > node/node1/cpulist && \
     mount --bind node /sys/devices/system/node && mount --bind pci /sys/bus/pci/devices && \
     mount --bind driver /proc/driver && cd dev && touch null nvidiactl nvidia0 nvidia1 && \
     mount --bind /dev/null null && mount --rbind . /dev && cd / && exec \"$@\"' sh";

/// The output of ranks about their variable.
const SAY: &str = "sh -c 'echo $LOCAL_RANK ${CUDA_VISIBLE_DEVICES-none}'";

fn ranks(words: &str) -> Plan {
    Plan::shell(&format!("{FOUR} \"$RL\" {words}"))
}

#[test]
fn each_rank_sees_gpus_of_its_own() {
    if !can_show_some() {
        return;
    }
    let says = |words: &str| ranks(&format!("{words} {SAY}")).start().code(0).sorted();
    assert_eq!(says("--nproc-per-node gpu"), ["0 none", "1 none", "2 none", "3 none"], "as torchrun");
    assert_eq!(says("--nproc-per-node gpu --gpus-per-rank 1"), ["0 0", "1 1", "2 2", "3 3"]);
    assert_eq!(says("-n 2 --gpus-per-task=2"), ["0 0,1", "1 2,3"]);
    assert_eq!(says("-n 2 --gpus-per-rank 1 -x CUDA_VISIBLE_DEVICES=GPU-8f,3"), ["0 GPU-8f", "1 3"]);
    let plan = ranks(&format!("--nproc-per-node gpu --gpus-per-rank 1 {SAY}")).env("CUDA_VISIBLE_DEVICES", "3,1");
    assert_eq!(plan.start().code(0).sorted(), ["0 3", "1 1"]);
    let plan = ranks(&format!("-n 2 {SAY}")).env("RLAUNCH_GPUS_PER_RANK", "1");
    assert_eq!(plan.start().code(0).sorted(), ["0 0", "1 1"]);
}

#[test]
fn ranks_are_on_the_cores_near_their_gpus() {
    if !can_show_some() {
        return;
    }
    let has = Plan::shell(&format!("{TWO_NEAR} test -e /proc/driver/nvidia")).start().end();
    if !has.exit.is_success() {
        return place::absent("CPUs near GPUs", has.err().trim());
    }
    let cpus = |words: &str| {
        let allowed = "echo $RANK $(grep Cpus_allowed_list /proc/self/status | cut -f2)";
        Plan::shell(&format!("{TWO_NEAR} \"$RL\" -n 2 {words} sh -c '{allowed}'")).start().code(0).sorted()
    };
    if cpus("") != ["0 0", "1 1"] {
        return place::absent("CPUs near GPUs", "needs two cores, CPUs 0 and 1");
    }
    assert_eq!(cpus("--gpus-per-rank 1"), ["0 1", "1 0"]);
    assert_eq!(cpus("--gpus-per-rank 1 -x CUDA_VISIBLE_DEVICES=GPU-b,GPU-a"), ["0 0", "1 1"]);
    assert_eq!(cpus("--gpus-per-rank 1 -x SLURM_JOB_GPUS=1"), ["0 0", "1 1"], "an even share");
}

#[test]
fn too_few_gpus_are_refused_before_any_rank_starts() {
    if !can_show_some() {
        return;
    }
    let done = ranks("-n 3 --gpus-per-rank 2 echo ran").start().code(125);
    assert_eq!(done.out(), "");
    done.says("error: --gpus-per-rank 2: ranks on ");
    done.says(" need 6 GPUs, and the host has 4");
    done.says("  try     --ppn 2");
    // Each program has an environment of its own; the first has enough.
    let done = ranks("-n 1 --gpus-per-rank 1 echo ran : -n 1 -x CUDA_VISIBLE_DEVICES=1 echo ran").start().code(125);
    assert_eq!(done.out(), "");
    done.says(" need 2 GPUs, and the host has 1");
}

/// Gives a host of a testbed so many GPUs, in a /dev of its own.
fn give(bed: &Bed, host: &str, count: usize) {
    let files: Vec<String> = (0..count).map(|n| format!("nvidia{n}")).collect();
    let script = format!(
        "mount -t tmpfs none /mnt && cd /mnt && mkdir shm pts && touch {} && \
         for n in null zero full random urandom tty ptmx; do touch $n && mount --bind /dev/$n $n || exit 1; done && \
         mount --rbind /dev/shm shm && mount --rbind /dev/pts pts && mount --rbind /mnt /dev",
        files.join(" ")
    );
    bed.run(["exec", "--user", "root", "--cwd", "/", host, "sh", "-c", &script]);
}

#[test]
fn each_host_gets_a_rank_for_each_of_its_gpus() {
    let Some(bed) = Bed::up(2) else { return };
    give(&bed, "node0", 2);
    give(&bed, "node1", 1);
    let command = ["sh", "-c", "echo $RANK $(hostname) $LOCAL_WORLD_SIZE $CUDA_VISIBLE_DEVICES"];
    for user in ["root", "tester"] {
        let start = |words: &[&str]| {
            let all = ["rlaunch", "--ssh-fast", "-H", "node[0-1]"].iter().chain(words).chain(&command).copied();
            bed.plan(user, "login", all).with_events().start()
        };
        let done = start(&["--nproc-per-node", "gpu", "--gpus-per-rank", "1"]).code(0);
        bed.clean(2);
        assert_eq!(done.sorted(), ["0 node0 2 0", "1 node0 2 1", "2 node1 1 0"], "{user}: {}", done.err());
        let done = start(&["--ppn", "2", "--gpus-per-rank", "1"]).code(125);
        bed.clean(2);
        assert_eq!(done.out(), "", "{user}");
        done.says("--gpus-per-rank 1: ranks on node1 need 2 GPUs, and the host has 1");
    }
    let words = ["rlaunch", "map", "--ssh-fast", "-H", "node[0-1]", "--nproc-per-node", "gpu", "true"];
    let map = bed.plan("tester", "login", words).start().code(0).out();
    bed.clean(2);
    assert!(map.contains("node0") && map.contains("node1"), "{map}");
    bed.down();
}

#[test]
fn a_host_that_cannot_be_counted_is_named() {
    let lost =
        "behave <<'EOF'\necho 'ssh: Could not resolve hostname h: Name or service not known' >&2; exit 255\nEOF\n";
    let done = script(&format!("{lost}exec \"$RL\" --connect-timeout 5 --nproc-per-node auto -H h,g echo ran"));
    let done = done.start().code(125);
    assert_eq!(done.out(), "");
    done.says("error: --nproc-per-node: g: ");
    done.says(" (nor can be asked: h)");
    done.says("  ssh     ssh: Could not resolve hostname");
}

#[test]
fn processors_of_another_host_are_limited_by_its_login() {
    if !place::has("taskset") {
        return;
    }
    let one = "behave <<'EOF'\nexec taskset -c \"$CPU\" env HOME=\"$DIR/home\" sh -c \"$line\"\nEOF\n\
         CPU=$(taskset -cp $$ | sed 's/.*: *//; s/[,-].*//'); export CPU\n";
    let done = script(&format!("{one}exec \"$RL\" --nproc-per-node cpu -H h sh -c 'echo $RANK of $WORLD_SIZE'"));
    let done = done.mercy(Mercy::Hosts).start().code(0);
    assert_eq!(done.out(), "0 of 1\n", "{}", done.err());
}

#[test]
fn a_signal_ends_the_counting() {
    let plan = script(
        "behave <<'EOF'\necho up >\"$DIR/live\"; exec sleep 999\nEOF\nexec \"$RL\" --nproc-per-node gpu -H h echo ran",
    );
    let live = plan.scratch().fifo("live");
    let case = plan.start();
    assert_eq!(std::fs::read(live).unwrap(), b"up\n");
    case.signal(Signal::SIGINT);
    let done = case.end_with(Mercy::All);
    assert_eq!((done.exit, done.out()), (Exit::Signal(Signal::SIGINT), String::new()), "{}", done.err());
}
