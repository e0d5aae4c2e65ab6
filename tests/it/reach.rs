//! Hosts of a testbed, reached over ssh: through another host, and while cables are cut.

use crate::bed::Bed;
use crate::census::Mercy;
use crate::watch::Exit;
use nix::sys::signal::Signal;
use std::io::Write as _;

/// Writes the user's ssh configuration on all hosts.
pub(crate) fn configure(bed: &Bed, user: &str, config: &str) {
    let script = "umask 077; printf '%s\\n' \"$1\" >~/.ssh/config";
    bed.run(["exec", "--user", user, "--cwd", "/", "login", "sh", "-c", script, "sh", config]);
}

#[test]
fn hosts_behind_a_jump_host_that_cuts_logins_off() {
    let Some(bed) = Bed::up(13) else { return };
    let gate = "sed 's/^MaxStartups.*/MaxStartups 2/' /etc/ssh/sshd_config >/run/gate; \
                exec /usr/sbin/sshd -D -e -f /run/gate -p 2222 -o LogLevel=VERBOSE -o PidFile=none";
    let gate = bed.plan("root", "node0", ["sh", "-c", gate]).start();
    gate.says_on_stderr("Server listening");
    // Two that send nothing: no other login succeeds.
    let idle = "exec 3<>/dev/tcp/node0/2222 4<>/dev/tcp/node0/2222; read go";
    let mut idle = bed.plan("root", "login", ["bash", "-c", idle]).stdin_pipe().start();
    let go = idle.take_stdin();
    let logged = |what: &'static str, times: usize| {
        gate.until(what, |seen| (String::from_utf8_lossy(&seen.err).matches(what).count() >= times).then_some(()));
    };
    logged("Connection from", 2);
    configure(&bed, "tester", "Host gate\n HostName node0\n Port 2222\nHost node*\n ProxyJump gate\n");
    let case = bed.plan("tester", "login", ["rlaunch", "doctor", "--ssh-fast", "-H", "node[1-12]"]).start();
    logged("drop connection", 1);
    drop(go);
    idle.end();
    let done = case.code(0);
    assert_eq!(done.out().matches(": ready in").count(), 12, "{}", done.out());
    gate.signal(Signal::SIGTERM);
    gate.end();
    bed.down();
}

#[test]
fn a_launcher_that_is_killed_during_a_partition_leaves_no_ssh() {
    let Some(bed) = Bed::up(2) else { return };
    configure(&bed, "tester", "Host node1\n ProxyJump node0\n");
    // The jump host does not answer; or the host after it does not answer the ssh that runs for ssh.
    for cut in ["node0", "node1"] {
        bed.run(["partition", cut]);
        let script = "\"$RL\" doctor --ssh-fast -H node1 & P=$!; read go; kill -KILL $P; wait $P; exit 0";
        let mut case = bed.plan("tester", "login", ["sh", "-c", script]).stdin_pipe().start();
        let mut stdin = case.take_stdin();
        bed.until_strays(" -W ");
        stdin.write_all(b"go\n").unwrap();
        assert!(case.end_with(Mercy::All).exit == Exit::Code(0));
        bed.run(["heal"]);
        let strays = bed.strays();
        assert!(strays.is_empty(), "{cut} was cut, and this is left:\n{strays}");
    }
    bed.down();
}

#[test]
fn home_may_be_full_or_read_only_or_shared_by_all_hosts() {
    let Some(bed) = Bed::up(2) else { return };
    // Where the binary lies here nothing lies on node1.
    let hide = "mkdir -p /run/none && mount --bind /run/none \"$(dirname \"$1\")\"";
    for host in ["node0", "node1"] {
        let rl = bed.rlaunch();
        bed.run(["exec", "--cwd", "/", host, "sh", "-c", hide, "sh", &rl]);
    }
    let says = |hosts: &str, what: &[&str]| {
        let out = bed.plan("tester", "login", ["rlaunch", "doctor", "--ssh-fast", "-H", hosts]).start().code(0).out();
        what.iter().for_each(|what| assert!(out.contains(what), "does not say {what:?}:\n{out}"));
        out
    };
    let out = says("node0,node1", &["in cache (was sent)"]);
    assert_eq!(out.matches("in cache").count(), 2, "both may send: {out}");
    let out = says("node0,node1", &[]);
    assert_eq!(out.matches("in cache (was there)").count(), 2, "one home: {out}");
    let mount = |host: &str, options: &str| {
        let script = format!("mkdir -p ~/.cache; exec mount -t tmpfs -o {options} none ~tester/.cache");
        bed.run(["exec", "--cwd", "/", host, "sh", "-c", &script]);
    };
    mount("node0", "ro");
    mount("node1", "size=64k,uid=2000,mode=700");
    let out = says("node0,node1", &[]);
    assert_eq!(out.matches("in tmp (was sent)").count(), 2, "{out}");
    bed.run(["exec", "--cwd", "/", "node1", "mount", "-t", "tmpfs", "-o", "noexec,mode=1777", "none", "/tmp"]);
    says("node1", &["in shm (was sent)", "noexec  /tmp"]);
    bed.down();
}
