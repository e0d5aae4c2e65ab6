//! GPUs of their own for ranks, on hosts that show some: device files are all that is looked at.

use crate::place;
use crate::plan::Plan;

/// Runs its words where /dev holds four GPUs.
const FOUR: &str = "unshare -m sh -c 'mount -t tmpfs none \"$DIR\" && cd \"$DIR\" && touch null nvidiactl nvidia0 nvidia1 nvidia2 nvidia3 && \
     mount --bind /dev/null null && mount --rbind . /dev && cd / && exec \"$@\"' sh";

fn can_show_some() -> bool {
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

/// What ranks print of their variable.
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
fn too_few_of_them_are_refused_before_any_rank_starts() {
    if !can_show_some() {
        return;
    }
    let done = ranks("-n 3 --gpus-per-rank 2 echo ran").start().code(125);
    assert_eq!(done.out(), "");
    done.says("error: --gpus-per-rank 2: ranks on ");
    done.says(" need 6 GPUs, and there are 4");
    done.says("  try     --ppn 2");
    // Each program has an environment of its own; the first has enough.
    let done = ranks("-n 1 --gpus-per-rank 1 echo ran : -n 1 -x CUDA_VISIBLE_DEVICES=1 echo ran").start().code(125);
    assert_eq!(done.out(), "");
    done.says(" need 2 GPUs, and there is 1");
}
