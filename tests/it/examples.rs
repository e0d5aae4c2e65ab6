//! The examples, launched as their documentation says.

use crate::case::Case;
use crate::place;
use crate::plan::Plan;

/// The accuracy in the last line of a training.
pub(crate) fn accuracy(out: &str) -> f64 {
    let last = out.lines().last().unwrap_or_default();
    let percent = last.strip_prefix("final held-out accuracy ").and_then(|rest| rest.split(' ').next());
    percent.unwrap_or_else(|| panic!("no accuracy in {out:?}")).parse().unwrap()
}

#[test]
fn train_learns_the_same_on_any_number_of_ranks() {
    let train = place::beside("train");
    if !train.is_file() {
        assert!(std::env::var_os("CI").is_none(), "{} was not built", train.display());
        return place::absent("examples/train", "not built; cargo build --workspace builds it");
    }
    let curve = |n: &str| {
        let done = Case::start(["-n".as_ref(), n.as_ref(), train.as_os_str()]).code(0);
        assert!(accuracy(&done.out()) >= 95.0, "{}", done.out());
        done.out().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let alone = curve("1");
    assert_eq!(curve("2"), alone);
    assert_eq!(curve("4"), alone);
}

#[test]
fn train_names_missing_ranks() {
    let train = place::beside("train");
    if !train.is_file() {
        return place::absent("examples/train", "not built");
    }
    // The second rank never comes: the others give up by themselves, and the first of them is named.
    let script = "[ $RANK != 1 ] || exec sleep 100; exec \"$TRAIN\" --timeout 1";
    let done = Plan::rlaunch(["-n", "3", "sh", "-c", script]).env("TRAIN", &train).start().end();
    assert!(!done.exit.is_success());
    done.says("failed first").says("0 left running");
}

#[test]
fn torch_trains_over_gloo() {
    let required = std::env::var_os("RLAUNCH_REQUIRE_TORCH").is_some_and(|v| v == "1");
    let python = "/usr/bin/python3";
    let probe =
        Plan::shell("exec /usr/bin/python3 -c 'import torch.distributed as d; assert d.is_available()'").start().end();
    if !probe.exit.is_success() {
        assert!(!required, "{}", probe.err());
        return place::absent("torch_ddp.py", "/usr/bin/python3 has no torch.distributed");
    }
    let script = place::root().join("examples/torch_ddp.py");
    let words = ["-n".as_ref(), "4".as_ref(), python.as_ref(), script.as_os_str()];
    let done = Case::start(words).code(0);
    assert!(accuracy(&done.out()) >= 95.0, "{}", done.out());
}

#[test]
fn hello_greets() {
    let hello = place::root().join("examples/hello.sh");
    let done = Case::start(["-n".as_ref(), "3".as_ref(), hello.as_os_str()]).code(0);
    let lines = done.sorted();
    assert!(lines.len() == 3 && lines[2].starts_with("rank 2 of 3, local rank 2, on "), "{lines:?}");
}
