//! The settings that ranks on other hosts get of the place in which rlaunch was started, and their rendezvous.

use crate::bed::Bed;

/// Users of the tests: root, and a user without rights.
const USERS: [&str; 2] = ["root", "tester"];

/// The script, on login, with `$RL` as rlaunch.
fn on_login(bed: &Bed, user: &str, script: &str) -> crate::plan::Plan {
    bed.plan(user, "login", ["sh", "-c", script])
}

#[test]
fn ranks_on_other_hosts_start_as_on_this_host() {
    let Some(bed) = Bed::up(2) else { return };
    let look = "echo $(umask) $(ulimit -S -c) $(ulimit -S -s) $(pwd -P) $PWD $MARK h=$HOSTNAME t=$TMPDIR d=$DBUS_X";
    for user in USERS {
        let there = "umask 027; ulimit -S -c 10; ulimit -S -s 4096; mkdir work; ln -s work link; cd link; \
                     export MARK=1 HOSTNAME=caller TMPDIR=/nowhere DBUS_X=y LOOK; exec \"$RL\" -n 2 -H node0,node1 sh -c \"$LOOK\"";
        let done = on_login(&bed, user, there).env("LOOK", look).start().code(0);
        let lines = done.sorted();
        assert_eq!(lines[0], lines[1]);
        assert!(lines[0].starts_with("0027 10 4096 /") && lines[0].ends_with("/link 1 h= t= d="), "{user}: {lines:?}");
        // By option: others travel, or none, and a variable of the host's.
        let script = "ulimit -S -c 10; ulimit -S -n 99; TMPDIR=/there exec \"$RL\" -n 1 -H node0 $OPTIONS \
                      sh -c 'echo $(ulimit -S -c) $(ulimit -S -n) $TMPDIR'";
        let with = |options: &str| on_login(&bed, user, script).env("OPTIONS", options).start().code(0).out();
        assert!(with("--propagate-limits nofile,core -x TMPDIR").starts_with("10 99 /there\n"));
        let none = with("--propagate-limits none");
        assert!(!none.starts_with("10 ") && !none.contains(" 99") && !none.contains("/there"), "{none}");
    }
    bed.down();
}

#[test]
fn a_limit_that_a_host_does_not_allow_is_lowered_and_said_once() {
    let Some(bed) = Bed::up(3) else { return };
    for host in ["node0", "node1"] {
        // A login there gets no more from now on.
        let script = "prlimit --stack=1048576:1048576 --pid \"$(cat /run/sshd.pid 2>/dev/null || pgrep -o sshd)\"";
        bed.run(["exec", "--cwd", "/", host, "sh", "-c", script]);
    }
    let script = "ulimit -S -s 4096; exec \"$RL\" -n 3 -H node[0-2] sh -c 'echo $(ulimit -S -s)'";
    let done = on_login(&bed, "tester", script).start().code(0);
    assert_eq!(done.sorted(), ["1024", "1024", "4096"]);
    let note = "rlaunch: limit stack is 1 MiB on node[0-1], lower than on this host: more is not allowed there\n";
    assert_eq!(done.err().matches("limit stack").count(), 1, "{}", done.err());
    done.says(note);
    bed.down();
}

#[test]
fn all_hosts_without_the_directory_or_the_program_are_named() {
    let Some(bed) = Bed::up(3) else { return };
    bed.run(["exec", "--cwd", "/", "node1", "sh", "-c", "mkdir /tmp/only; cp /bin/true /tmp/only/here"]);
    let from_only = |rest: &str| {
        let script = format!("mkdir -p /tmp/only; cd /tmp/only && exec \"$RL\" -n 3 -H node[0-2] {rest}");
        on_login(&bed, "root", &script).start()
    };
    let done = from_only("true").code(125);
    done.says("ranks cannot start in /tmp/only, where rlaunch was started, on node[0,2]: no such file or directory");
    done.says("--wdir DIR");
    from_only("--wdir / true").code(0);
    from_only("--wdir sub true").code(125).says("--wdir /tmp/only/sub on node[0-2]");
    from_only("--wdir / /tmp/only/here").code(127).says("/tmp/only/here on node[0,2]: no such file or directory");
    // Hosts that cannot be reached are named with those that refuse.
    let script = "cd /; exec \"$RL\" -n 4 -H node[0-1],gone[8-9] /tmp/only/here";
    let done = on_login(&bed, "root", script).start().code(125);
    done.says("3 of 4 hosts cannot be had; nothing was started");
    done.says("gone[8-9] the name does not resolve  (ssh: Could not resolve hostname HOST");
    done.says("/tmp/only/here on node0: no such file or directory");
    bed.down();
}

#[test]
fn rank_0_is_found_where_ssh_has_found_it_or_at_its_interface() {
    let Some(bed) = Bed::up(2) else { return };
    let bridge = "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up";
    for host in ["login", "node0"] {
        bed.run(["exec", "--cwd", "/", host, "sh", "-c", bridge]);
    }
    let config =
        "mkdir -p -m 700 ~/.ssh; printf 'Host self\\n HostName 127.0.0.1\\n HostKeyAlias login\\n' >~/.ssh/config";
    bed.run(["exec", "--cwd", "/", "login", "sh", "-c", config]);
    let meet = |options: &str, expected: &str| {
        let script = format!("exec \"$RL\" {options} sh -c 'echo $MASTER_ADDR'");
        let done = on_login(&bed, "root", &script).start().code(0);
        let out = done.out();
        assert!(out.lines().count() > 0 && out.lines().all(|line| line == expected), "{options}: {out}{}", done.err());
        assert!(!done.err().contains("one machine"), "{}", done.err());
    };
    meet("-n 2 -H node0,node1", "10.77.1.1");
    let done = on_login(&bed, "root", "exec \"$RL\" -n 3 -H node0,node1,10.77.1.1 true").start().code(0);
    done.says(
        "rlaunch: node0 and 10.77.1.1 are names of one machine; the ranks of each name begin with LOCAL_RANK 0\n",
    );
    meet("-n 2 -H login,node1", "10.77.0.1");
    // By the loopback only in a job of that host alone.
    meet("-n 2 -H self,node1", "10.77.0.1");
    meet("-n 1 -H self", "127.0.0.1");
    // An address that was asked for has to lead there.
    let done = on_login(&bed, "root", "exec \"$RL\" -n 2 -H node0,node1 --interface docker0 true").start().code(125);
    done.says("node1 cannot reach node0, where rank 0 runs: tried 172.17.0.1:");
    let done = on_login(&bed, "root", "exec \"$RL\" -n 2 -H node1,node0 --interface docker0 true").start().code(125);
    done.says("--interface docker0: there is no such interface with an address that others can use on node1, where rank 0 runs");
    done.says("one of these: eth0\n");
    bed.down();
}

#[test]
fn script_of_this_host_is_named_with_the_host_without_the_script() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "cd /tmp; echo 'print(1)' >here.py; \"$RL\" -H node0 -n 1 /usr/bin/python3 here.py; code=$?; rm here.py; exit $code";
    let done = bed.plan("root", "login", ["sh", "-c", script]).start().code(2);
    done.says("  try      a copy of here.py on node0, or a directory that all hosts share: here.py is only here\n");
    bed.down();
}
