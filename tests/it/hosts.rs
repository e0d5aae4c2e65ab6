//! The testbed itself, as the cases on several hosts use it: who can log in, what a fault looks like, and that it ends.

use crate::bed::Bed;
use std::time::{Duration, Instant};

/// The users that a case is run as.
const USERS: [&str; 2] = ["root", "tester"];

fn ssh(bed: &Bed, user: &str, words: &[&str]) -> String {
    let all = ["ssh", "-o", "BatchMode=yes"].iter().chain(words);
    bed.plan(user, "login", all).start().code(0).out()
}

#[test]
fn hosts_are_reached_by_ssh_and_come_back_after_every_fault() {
    let Some(bed) = Bed::up(2) else { return };
    for user in USERS {
        assert_eq!(ssh(&bed, user, &["node1", "hostname; id -un"]), format!("node1\n{user}\n"));
    }
    // A host without power does not answer, not even to say so.
    bed.run(["kill-host", "node1"]);
    let start = Instant::now();
    let failed = bed.plan("tester", "login", ["ssh", "-o", "ConnectTimeout=1", "node1", "hostname"]).start().code(255);
    failed.says("node1");
    assert!(start.elapsed() >= Duration::from_secs(1), "something refused the connection: {}", failed.err());
    bed.run(["start-host", "node1"]);
    assert_eq!(ssh(&bed, "tester", &["node1", "hostname"]), "node1\n");
    bed.down();
}

#[test]
fn a_login_survives_a_partition_and_a_freeze() {
    let Some(bed) = Bed::up(2) else { return };
    for (fault, cure) in [("partition", "heal"), ("freeze", "thaw")] {
        let mut case =
            bed.plan("tester", "login", ["ssh", "node1", "while read x; do echo got $x; done"]).stdin_pipe().start();
        let mut stdin = case.take_stdin();
        let mut say = |word: &str| std::io::Write::write_all(&mut stdin, format!("{word}\n").as_bytes()).unwrap();
        say("before");
        case.says_on_stdout("got before", 1);
        bed.run([fault, "node1"]);
        say("during");
        // Other hosts are as they were, and meanwhile nothing has come from this one.
        assert_eq!(ssh(&bed, "root", &["node0", "hostname"]), "node0\n");
        assert!(!case.has_said_on_stdout("during"), "{fault} lets something through");
        bed.run([cure, "node1"]);
        case.says_on_stdout("got during", 1);
        drop(stdin);
        assert_eq!(case.code(0).out(), "got before\ngot during\n", "{fault}");
    }
    bed.down();
}

#[test]
fn rlaunch_runs_on_a_host_as_either_user() {
    let Some(bed) = Bed::up(1) else { return };
    for user in USERS {
        let done = bed.plan(user, "node0", ["rlaunch", "-n", "2", "sh", "-c", "hostname; id -un"]).start().code(0);
        assert_eq!(done.sorted(), ["node0", "node0", user, user], "{}", done.err());
    }
    bed.down();
}

#[test]
#[should_panic(expected = "left behind on the hosts")]
fn leftover_on_a_host_is_noticed() {
    let Some(bed) = Bed::up(1) else { panic!("left behind on the hosts: cannot be tested here") };
    // Free of our tag, and of the login: only the host knows of it.
    bed.run(["exec", "--cwd", "/", "login", "ssh", "node0", "env -i setsid sleep 77 </dev/null >/dev/null 2>&1 &"]);
    bed.down();
}

#[test]
#[should_panic(expected = "dropped before it was taken down")]
fn testbed_that_is_not_taken_down_is_noticed() {
    let Some(bed) = Bed::up(0) else { panic!("dropped before it was taken down: cannot be tested here") };
    drop(bed);
}

#[test]
fn a_testbed_ends_with_a_test_that_panics() {
    let Some(bed) = Bed::up(1) else { return };
    let (name, spaces) = (bed.name().to_owned(), bed.spaces());
    let case = bed.plan("root", "node0", ["sleep", "77"]).start();
    bed.until_strays("sleep 77");
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _bed = bed;
        panic!("on purpose");
    }));
    assert!(outcome.is_err());
    case.code(137);
    assert!(!std::fs::read_to_string("/proc/net/unix").unwrap().contains(&name));
    let left = spaces.borrow().in_use();
    assert!(left.is_empty(), "namespaces of the testbed are left: {left:?}");
}
