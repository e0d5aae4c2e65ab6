//! Many hosts, with a stand-in for ssh: the launcher's resources for them, and its message about errors of a thousand hosts.

use crate::plan::Plan;
use crate::ssh::script;

/// Twenty hosts take more descriptors than this soft limit gives. ssh is called once more, to ask for the way.
#[test]
fn limit_on_descriptors_is_raised_for_hosts_and_not_for_children() {
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

/// Plan for a thousand hosts under the usual limit on descriptors. Hosts that match `there` are there, and the others refuse.
fn thousand(there: &str, options: &str) -> Plan {
    let behave = format!(
        "behave <<'EOF'\ncase $1 in -G) exit;; esac\ncase \"$*\" in *' -- h'{there}' '*) ;; \
         *) echo 'ssh: connect to host h port 22: Connection refused' >&2; exit 255;; esac\nEOF\n"
    );
    script(&format!(
        "{behave}ulimit -S -n 1024; exec \"$RL\" --ssh-fast --agent-path \"$RL\" -H h[0-999] {options} echo up"
    ))
    .with_events()
}

/// The outcome of a job of which one host in a thousand is there, and its messages.
#[test]
fn a_job_of_a_thousand_hosts_of_which_one_is_there() {
    let done = thousand("77", "").start().code(125);
    assert_eq!((done.out().as_str(), done.named("host.failed").count()), ("", 999));
    let said = "error: 999 of 1000 hosts cannot be reached; nothing was started\n  \
                h[0-76,78-999] nothing listens on its ssh port  (ssh: connect to host h port 22: Connection refused)\n  \
                try     start sshd there, or name its port\n  \
                try     --min-hosts 1, to continue without them\n";
    // A busy machine takes so long that the progress is shown.
    let is_progress = |line: &&str| line.starts_with("rlaunch: ") && line.contains(" of 1000 hosts ready after ");
    assert_eq!(done.err().split_inclusive('\n').filter(|line| !is_progress(line)).collect::<String>(), said);
    let done = thousand("77", "--min-hosts 1").start().code(0);
    assert_eq!(done.out(), "up\n");
    done.says("continuing with 1 rank on 1 of 1000 hosts, without h[0-76,78-999]: nothing listens on its ssh port");
}

/// More are up than the soft limit has descriptors for.
#[test]
fn a_job_of_a_thousand_hosts_of_which_three_hundred_are_there() {
    let done = thousand("[1-3][0-9][0-9]", "--min-hosts 1").start().code(0);
    assert_eq!(done.out(), "up\n".repeat(300));
    done.says("continuing with 300 ranks on 300 of 1000 hosts, without h[0-99,400-999]: nothing listens");
}

/// Hosts without power once held every place of the fan-out for the longest time that a host may take. The last hosts after them were
/// reported twice as late.
#[test]
fn hosts_that_do_not_answer_delay_no_other_host() {
    let behave = "behave <<'EOF'\ncase $1 in -G) exit;; esac\n\
                  case \"$*\" in *' -- up'*) ;; *) exec sleep 999;; esac\nEOF\n";
    let words = "--ssh-fast --agent-path \"$RL\" --connect-timeout 14s --min-hosts 10 -H off[0-69],up[0-9] echo up";
    let began = std::time::Instant::now();
    let done = script(&format!("{behave}exec \"$RL\" {words}")).start().code(0);
    let took = began.elapsed().as_secs();
    assert_eq!(done.out(), "up\n".repeat(10), "{}", done.err());
    done.says("continuing with 10 ranks on 10 of 80 hosts, without off[0-69]: ");
    // 14 s for the first of them, and 5 s for a place.
    assert!((14..26).contains(&took), "{took} s");
}
