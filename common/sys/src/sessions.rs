//! The processes of a session: what a rank has started and has not left it.

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getsid};
use std::fs;

/// Looks at most so often: a process may fork while it is looked for.
const LOOKS: usize = 8;

/// Sends SIGKILL to each process of the sessions of leaders that were not reaped. Returns how many there were.
#[must_use]
pub fn kill(leaders: &[i32]) -> usize {
    let mut killed = Vec::new();
    for _ in 0..LOOKS {
        let new: Vec<i32> = members(leaders).filter(|pid| !killed.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in &new {
            // Its number may have become another's before it was opened.
            let Ok(pidfd) = crate::pidfd::open(*pid) else { continue };
            if is_of(*pid, leaders) {
                let _gone = crate::pidfd::signal(&pidfd, Signal::SIGKILL as i32);
            }
        }
        killed.extend(new);
    }
    killed.len()
}

fn members(leaders: &[i32]) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse().ok());
    entries.filter_map(move |entry| number(entry.file_name())).filter(move |pid| is_of(*pid, leaders))
}

fn is_of(pid: i32, leaders: &[i32]) -> bool {
    getsid(Some(Pid::from_raw(pid))).is_ok_and(|session| leaders.contains(&session.as_raw()))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a session with processes is what is killed")]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    fn whole_session_is_killed_and_no_other() {
        // SAFETY: setsid between fork and exec takes nothing.
        let mut leader = unsafe {
            Command::new("sh")
                .args(["-c", "(set -m; sleep 60 & echo $!; wait)"])
                .stdout(std::process::Stdio::piped())
                .pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into))
                .spawn()
        }
        .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(leader.stdout.take().unwrap()), &mut line).unwrap();
        let child: i32 = line.trim().parse().unwrap();
        let pid = i32::try_from(leader.id()).unwrap();
        let pidfd = crate::pidfd::open(child).unwrap();
        assert!(kill(&[pid]) >= 2);
        assert_eq!(leader.wait().unwrap().signal(), Some(9));
        crate::fd::readable_within(
            &[std::os::fd::AsFd::as_fd(&pidfd), std::os::fd::AsFd::as_fd(&pidfd)],
            std::time::Duration::from_secs(60),
        );
        assert!(crate::fd::readable_now(&pidfd), "a process of its own group is in the session");
    }
}
