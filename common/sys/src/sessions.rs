//! The processes of a session: what a rank has started and has not left it.

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getsid};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Looks at most so often: a process may fork while it is looked for.
const LOOKS: usize = 8;

/// Leaders of sessions, by their numbers.
pub type Leaders = BTreeMap<i32, Arc<OwnedFd>>;

/// Sends SIGKILL to each process of the sessions of leaders. Returns how many there were. The session of a leader that was reaped is left
/// alone: another session may have its number.
#[must_use]
pub fn kill(leaders: &Leaders) -> usize {
    let mut killed = Vec::new();
    for _ in 0..LOOKS {
        let new: Vec<i32> = members(leaders).filter(|pid| !killed.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in &new {
            // Its number may have become another's before it was opened.
            let Ok(pidfd) = crate::pidfd::open(*pid) else { continue };
            if leader_of(*pid, leaders).is_some_and(|leader| !is_reaped(leader)) {
                let _gone = crate::pidfd::signal(&pidfd, Signal::SIGKILL as i32);
            }
        }
        killed.extend(new);
    }
    killed.len()
}

fn members(leaders: &Leaders) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse().ok());
    entries.filter_map(move |entry| number(entry.file_name())).filter(|pid| leader_of(*pid, leaders).is_some())
}

fn leader_of(pid: i32, leaders: &Leaders) -> Option<&Arc<OwnedFd>> {
    leaders.get(&getsid(Some(Pid::from_raw(pid))).ok()?.as_raw())
}

fn is_reaped(leader: &OwnedFd) -> bool {
    crate::pidfd::signal(leader, 0).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a session with processes is what is killed")]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::process::CommandExt as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    /// A session of a shell with a child in a group of its own; the child's descriptor.
    fn session() -> (std::process::Child, OwnedFd) {
        // SAFETY: setsid between fork and exec takes nothing.
        let mut leader = unsafe {
            Command::new("sh")
                .args(["-c", "set -m; sleep 60 & echo $!; read line"])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into))
                .spawn()
        }
        .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(leader.stdout.take().unwrap()), &mut line).unwrap();
        let child = crate::pidfd::open(line.trim().parse().unwrap()).unwrap();
        (leader, child)
    }

    fn leaders(leader: &std::process::Child) -> Leaders {
        let pid = i32::try_from(leader.id()).unwrap();
        [(pid, Arc::new(crate::pidfd::open(pid).unwrap()))].into()
    }

    #[test]
    fn whole_session_is_killed_and_no_other() {
        let (mut leader, child) = session();
        assert!(kill(&leaders(&leader)) >= 2);
        assert_eq!(leader.wait().unwrap().signal(), Some(9));
        crate::fd::wait_for_any(&[child.as_fd()], Some(std::time::Duration::from_secs(60)));
        assert!(crate::fd::readable_now(&child), "a process of its own group is in the session");
    }

    /// A session that has its number by then would be another's.
    #[test]
    fn session_of_reaped_leader_is_left_alone() {
        let (mut leader, child) = session();
        let leaders = leaders(&leader);
        drop(leader.stdin.take());
        leader.wait().unwrap();
        let _found = kill(&leaders);
        assert!(crate::pidfd::signal(&child, 0).is_ok() && !crate::fd::readable_now(&child));
        crate::pidfd::signal(&child, Signal::SIGKILL as i32).unwrap();
    }
}
