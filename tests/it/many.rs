//! Many hosts, behind a stand-in for ssh: what the launcher needs for them, and how it says what is wrong with a thousand.

use crate::ssh::script;

/// Twenty hosts take more descriptors than this soft limit gives. ssh is called once more, to ask for the way.
#[test]
fn the_limit_on_descriptors_is_raised_for_hosts_and_for_nobody_else() {
    let behave = "behave <<'EOF'\nulimit -S -n >>\"$DIR/limits\"\nEOF\nulimit -S -n 64\n";
    for more in ["", "--propagate-limits nofile"] {
        let job = format!(
            "{behave}\"$RL\" --agent-path \"$RL\" -H localhost,h[0-19] {more} sh -c 'ulimit -S -n' || exit\n\
             cat \"$DIR/limits\""
        );
        let done = script(&job).start().code(0);
        assert_eq!(done.out(), "64\n".repeat(21 + 21), "{more}: {}", done.err());
    }
    let doctor = format!("{behave}\"$RL\" doctor --ssh-fast --agent-path \"$RL\" -H h[0-39]");
    assert_eq!(script(&doctor).start().code(0).out().matches(": ready in").count(), 40);
}

#[test]
fn too_many_hosts_for_the_hard_limit_on_descriptors_are_refused_before_any_is_reached() {
    let done = script("ulimit -n 64; \"$RL\" -H h[0-19] true; echo $?; cat \"$DIR/calls\"").start().code(1);
    assert_eq!(done.out(), "125\n");
    done.says("error: 20 hosts take ");
    done.says(" open files here, and the limit cannot be raised beyond 64\n");
    let hint = "  try     fewer hosts, or a hard limit that allows ulimit -n ";
    done.says(hint);
    // And that is enough.
    let said = done.err();
    let need: u32 = said.split(hint).nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    let job = format!("ulimit -n {need}; \"$RL\" --agent-path \"$RL\" -H h[0-19] echo up");
    assert_eq!(script(&job).start().code(0).out(), "up\n".repeat(20));
}
