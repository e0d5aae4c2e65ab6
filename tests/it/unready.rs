//! Hosts that are reached, and have no rank yet: what befalls them is noticed as later, and named.

use crate::census::{self, Mercy, Proc};
use crate::place;
use crate::plan::Plan;
use crate::ssh::script;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// All below a process. A guardian's environment cannot be read by who is not root: it is not dumpable.
fn below(pid: i32) -> Vec<Proc> {
    census::children(pid).into_iter().flat_map(|child| below(child.pid).into_iter().chain([child])).collect()
}

/// Its streams stay open, other than sshd's, and its guardian is killed while another host is waited for.
#[test]
fn a_guardian_that_is_lost_before_the_first_rank_is_named() {
    let behave = "behave <<'EOF'\ncase \"$*\" in *' slow '*) exec sleep 999;; esac\n\
                  HOME=\"$DIR/home\" sh -c \"$line\" | cat; exit\nEOF\n";
    let job = "\"$RL\" --ssh-fast --lease 10m --connect-timeout 20s -H orphan,slow echo never";
    let case = script(&format!("{behave}{job}")).with_events().mercy(Mercy::LostHosts).start();
    case.event("host.ready");
    let launcher = case.ours("rlaunch").expect("the launcher");
    let is_it = |p: &Proc| p.comm == "rlaunch-guard" && p.ppid != launcher;
    let guardian = below(case.pid()).into_iter().find(is_it).expect("a guardian");
    kill(Pid::from_raw(guardian.pid), Signal::SIGKILL).unwrap();
    let done = case.code(125);
    done.says("the guardian on orphan was lost").says("0 left running");
    assert_eq!(done.out(), "");
}

/// A launcher that was stopped for longer than hosts may take blamed all that it had not read yet.
#[test]
fn hosts_are_not_late_because_the_launcher_was_stopped() {
    // One host answers meanwhile, the other afterwards.
    let behave = "behave <<'EOF'\nHOME=\"$DIR/home\"; export HOME\ncase \"$*\" in *' slow '*) \
                  kill -STOP $PPID; sleep 6; kill -CONT $PPID; sleep 0.3;; esac\nEOF\n";
    let words = "--ssh-fast --agent-path \"$RL\" --connect-timeout 5s -H quick,slow echo up";
    let done = script(&format!("{behave}\"$RL\" {words}")).mercy(Mercy::Hosts).start().code(0);
    assert_eq!(done.out(), "up\nup\n", "{}", done.err());
}

/// A look at a directory below this mount blocks until its holder ends: requests in `/dev/fuse` are never read.
const DEAD: &str =
    "exec 9<>/dev/fuse; mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 dead \"$DIR/work\" || exit 99";

fn has_dead_mounts() -> bool {
    let has = place::is_root() && std::fs::File::open("/dev/fuse").is_ok();
    if !has {
        place::absent("a file system that does not answer", "needs root and /dev/fuse");
    }
    has
}

/// A host sends heartbeats while it waits for a directory, so its lease does not expire.
#[test]
fn host_with_a_hanging_file_system_is_named_after_its_time_limit() {
    if !has_dead_mounts() {
        return;
    }
    let behave = format!(
        "mkdir \"$DIR/work\"; behave <<'EOF'\nexport line; HOME=\"$DIR/home\"; export HOME\n\
         case \"$*\" in *' hung '*) exec unshare -m --propagation private sh -c '{DEAD}; sh -c \"$line\" 9>&-; exit';; esac\nEOF\n"
    );
    let words = "--ssh-fast --lease 2s --connect-timeout 6s --wdir \"$DIR/work\" -H ready,hung";
    let job = |more: &str| script(&format!("{behave}\"$RL\" {words} {more}")).mercy(Mercy::LostHosts).start();
    let late = "not ready within 6.0s: its agent is still looking for the directory and the program";
    let done = job("echo never").code(125);
    done.says("error: 1 of 2 hosts cannot be reached; nothing was started\n").says(&format!("  hung    {late}\n"));
    let done = job("--min-hosts 1 echo up").code(0);
    done.says(&format!("continuing with 1 rank on 1 of 2 hosts, without hung: {late}\n"));
    assert_eq!(done.out(), "up\n");
}

/// From the second start on: its files are lost, and said to be, and the rank does its work.
#[test]
fn a_rank_whose_log_directory_cannot_be_made_is_started_all_the_same() {
    if !has_dead_mounts() {
        return;
    }
    let rank = "echo $RLAUNCH_RESTART_COUNT; [ $RLAUNCH_RESTART_COUNT = 0 ] || exit 0; echo >\"$DIR/runs\"; \
                read gone <\"$DIR/dead\"; exit 1";
    let case = format!(
        "mkdir \"$DIR/work\"; mkfifo \"$DIR/runs\" \"$DIR/dead\"; (read up <\"$DIR/runs\"; {DEAD}; \
         echo >\"$DIR/dead\"; exec sleep 60) & \"$RL\" -n 1 --contain t3 --max-restarts 1 --log-dir \"$DIR/work\" -t 3 \
         sh -c '{rank}'; code=$?; kill $!; exit $code"
    );
    let done = Plan::shell("exec unshare -m --propagation private sh -c \"$CASE\"").env("CASE", case).start().code(125);
    assert_eq!(done.out(), "0\n1\n");
    done.says("/attempt_1/0 on ")
        .says(": connection timed out; the job continues")
        .says("2 bytes could not be written to log files");
}

/// The others see the directory as it was before the mount.
#[test]
fn the_launchers_own_host_has_its_time_too() {
    if !has_dead_mounts() {
        return;
    }
    let behave = "mkdir \"$DIR/work\"; OUTSIDE=$$; HOME=\"$DIR/home\"; export OUTSIDE HOME; behave <<'EOF'\n\
                  exec nsenter --mount=/proc/$OUTSIDE/ns/mnt sh -c \"$line\"\nEOF\n";
    let words = "--ssh-fast --connect-timeout 4s --wdir \"$DIR/work\" -H localhost,other";
    let job = |more: &str| {
        let inside = format!("{DEAD}; \"$RL\" {words} {more} 9>&-");
        let case = format!("{behave}unshare -m --propagation private sh -c '{inside}'; exit");
        script(&case).mercy(Mercy::LostHosts).start()
    };
    let late = "not ready within 4.0s: its agent is still looking for the directory and the program";
    let done = job("echo never").code(125);
    done.says("error: 1 of 2 hosts cannot be reached; nothing was started\n").says(&format!("  localhost {late}\n"));
    let done = job("--min-hosts 1 echo up").code(0);
    done.says(&format!("continuing with 1 rank on 1 of 2 hosts, without localhost: {late}\n"));
    assert_eq!(done.out(), "up\n");
}
