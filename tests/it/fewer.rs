//! Jobs that start with fewer hosts than were asked for.

use crate::bed::Bed;
use crate::case::Done;
use crate::plan::Plan;
use serde_json::json;
use std::fs::File;

/// The place of a rank, in all of its variables.
const PLACE: &str = "echo $RANK $LOCAL_RANK $(hostname) $WORLD_SIZE/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE \
                     $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE \
                     $RLAUNCH_NODE_INDEX/$RLAUNCH_NODES $MASTER_ADDR";
const USERS: [&str; 2] = ["root", "tester"];

fn job(bed: &Bed, user: &str, words: &[&str]) -> Plan {
    bed.plan(user, "login", ["rlaunch", "--ssh-fast"].iter().chain(words)).with_events()
}

/// Logins there fail from now on.
fn refuse_logins(bed: &Bed, host: &str) {
    bed.run(["exec", "--cwd", "/", host, "sh", "-c", "kill $(pgrep -o sshd)"]);
}

/// The messages of rlaunch, and the log, of a job without one host.
fn is_without(done: &Done, node: u32, said: &str) {
    done.says(said);
    assert_eq!(done.err().lines().count(), 1, "{}", done.err());
    let event = done.event("hosts.left_out");
    assert_eq!((&event["nodes"], &event["world_size"]), (&json!([node]), &json!(4)));
    assert_eq!((done.named("rank.started").count(), &done.event("job.end")["left"]), (4, &json!(0)));
}

#[test]
fn a_host_that_refuses_logins_is_left_out_if_the_others_are_enough() {
    let Some(bed) = Bed::up(3) else { return };
    refuse_logins(&bed, "node1");
    for user in USERS {
        let all = ["-H", "node[0-2]:2", "--min-hosts", "2", "sh", "-c", PLACE];
        let done = job(&bed, user, &all).start().code(0);
        let rank = |n: u32| {
            let (local, index) = (n % 2, n / 2);
            format!("{n} {local} node{} 4/2 {index}/2 {n}/4 {n}/4 {index}/2 10.77.1.1", 2 * index)
        };
        assert_eq!(done.sorted(), (0..4).map(rank).collect::<Vec<_>>(), "{}", done.err());
        let said =
            "rlaunch: continuing with 4 ranks on 2 of 3 hosts, without node1: nothing listens on its ssh port (ssh: ";
        is_without(&done, 1, said);
    }
    let refused = |words: &[&str]| {
        let done = job(&bed, "tester", &[&["-H", "node[0-2]:2"], words, &["echo", "never"]].concat()).start().code(125);
        assert_eq!((done.out().as_str(), done.named("hosts.left_out").count()), ("", 0));
        done.says("error: 1 of 3 hosts cannot be reached; nothing was started\n");
        done.says("--min-hosts 2, to continue without it\n");
        done
    };
    refused(&[]);
    refused(&["--min-hosts", "3"]).says("  hosts   2 of 3 are ready, at least 3 are asked for\n");
    job(&bed, "tester", &["-H", "node[0-2]:2", "--nnodes", "2:3", "true"]).start().code(0).says("without node1");
    bed.clean(2);
    bed.down();
}

#[test]
fn rank_0_moves_to_the_next_host_with_its_input_and_its_port() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "[ $RANK != 0 ] || cat; echo $RANK $(hostname) $MASTER_ADDR $MASTER_PORT";
    let all = ["-H", "gone,node1:2,node0:2", "--min-hosts", "1", "-l", "sh", "-c", script];
    let plan = job(&bed, "tester", &all);
    let path = plan.scratch().path("input");
    std::fs::write(&path, "hello\n").unwrap();
    let done = plan.stdin(File::open(&path).unwrap()).start().code(0);
    let lines = done.sorted();
    let port = lines.last().and_then(|line| line.rsplit(' ').next()).unwrap().to_owned();
    assert!(port.parse::<u16>().unwrap() > 0);
    let rank = |n: u32| format!("{n}: {n} node{} 10.77.1.2 {port}", 1 - n / 2);
    let expected: Vec<String> = (0..4).map(rank).chain(["0: hello".to_owned()]).collect();
    assert_eq!(lines.iter().collect::<std::collections::BTreeSet<_>>(), expected.iter().collect(), "{}", done.err());
    is_without(&done, 0, "without gone: the name does not resolve (ssh: ");
    // The remaining host may be the one on which rlaunch was started.
    let done = job(&bed, "tester", &["-H", "gone,login", "--min-hosts", "1", "sh", "-c", PLACE]).start().code(0);
    assert_eq!(done.out(), "0 0 login 1/1 0/1 0/1 0/1 0/1 127.0.0.1\n");
    bed.clean(2);
    bed.down();
}

#[test]
fn hosts_that_lack_the_program_or_do_not_answer_in_time_are_left_out() {
    let Some(bed) = Bed::up(3) else { return };
    for host in ["node0", "node2"] {
        bed.run(["exec", "--cwd", "/", host, "sh", "-c", "cp /bin/echo /tmp/here"]);
    }
    let words = ["-H", "node[0-2]:2", "--min-hosts", "2", "--connect-timeout", "3s"];
    let done = job(&bed, "root", &[&words[..], &["/tmp/here", "x"]].concat()).start().code(0);
    assert_eq!(done.out(), "x\n".repeat(4));
    is_without(&done, 1, "without node1: /tmp/here on node1: no such file or directory\n");
    let done = job(&bed, "root", &[&words[..], &["/tmp/nowhere"]].concat()).start().code(127);
    done.says("error: /tmp/nowhere on node[0-2]: no such file or directory\n");
    done.says("  hosts   0 of 3 are ready, at least 2 are asked for\n");
    // A program is not started without all of its hosts.
    let two = ["--min-hosts", "1", "-H", "node1", "/tmp/here", ":", "-H", "node0", "/tmp/here"];
    let done = job(&bed, "root", &two).start().code(127);
    done.says("  hosts   1 of 2 are enough, but a program has no ranks there\n");
    bed.run(["kill-host", "node1"]);
    let done = job(&bed, "root", &[&words[..], &["echo", "x"]].concat()).start().code(0);
    assert_eq!(done.out(), "x\n".repeat(4));
    is_without(&done, 1, "without node1: not ready within 3.0s: ");
    bed.start_host("node1");
    bed.clean(5);
    bed.down();
}

#[test]
fn this_machine_alone_may_be_enough() {
    let hosts = ["-H", "one.rlaunch.invalid:2,localhost", "--min-hosts", "1"];
    let words = ["sh", "-c", "echo $RANK $WORLD_SIZE"];
    let done = Plan::rlaunch(hosts.iter().chain(&words)).start().code(0);
    assert_eq!(done.out(), "0 1\n");
    done.says("continuing with 1 rank on 1 of 2 hosts, without one.rlaunch.invalid: the name does not resolve (ssh: ");
}
