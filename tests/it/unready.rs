//! Hosts that are reached, and have no rank yet: what befalls them is noticed as later, and named.

use crate::census::{Mercy, Proc};
use crate::ssh::script;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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
    let guardian = case.all_of_it().into_iter().find(is_it).expect("a guardian");
    kill(Pid::from_raw(guardian.pid), Signal::SIGKILL).unwrap();
    let done = case.code(125);
    done.says("the guardian on orphan was lost").says("0 left running");
    assert_eq!(done.out(), "");
}
