//! Processes that a command has started and that have left its process group, by `setsid` for one: no signal to the group reaches them.
//! They are found below the command, which they cannot leave while it lives: it is a subreaper.

use crate::children;
use nix::unistd::{Pid, getpgid};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

/// Most that are kept in mind: each costs a descriptor.
const MOST: usize = 256;

/// The detached descendants of one command.
#[derive(Debug, Default)]
pub struct DetachedDescendants(Vec<(i32, OwnedFd)>);

impl DetachedDescendants {
    /// Finds the processes below a process that was not reaped and leads its group, and below those that were found before: after the
    /// command's end they are not below it any more.
    pub(crate) fn look(&mut self, leader: i32) {
        let own = Pid::from_raw(leader);
        let is_away = |pid: &i32| getpgid(Some(Pid::from_raw(*pid))).is_ok_and(|group| group != own);
        let above: Vec<i32> = self.0.iter().filter(|one| lives(one)).map(|(pid, _)| *pid).chain([leader]).collect();
        let known: BTreeSet<i32> = above.iter().copied().collect();
        for parent in above {
            let seen: Vec<i32> = below(parent).into_iter().filter(|pid| !known.contains(pid)).filter(is_away).collect();
            let opened: Vec<_> =
                seen.into_iter().filter_map(|pid| Some((pid, crate::pidfd::open(pid).ok()?))).collect();
            // A number may have become a stranger's before it was opened: who is found below a second time is none.
            let still = below(parent);
            // So may the parent's.
            if parent == leader || self.0.iter().any(|one| one.0 == parent && lives(one)) {
                let room = MOST.saturating_sub(self.0.len());
                self.0.extend(opened.into_iter().filter(|(pid, _)| still.contains(pid)).take(room));
            }
        }
    }

    /// Signals all that were found.
    pub(crate) fn signal(&self, number: i32) {
        for (_, pidfd) in &self.0 {
            // A process that has ended meanwhile is no error.
            let _gone = crate::pidfd::signal(pidfd, number);
        }
    }

    /// Waits until they have ended, after SIGKILL: at most 100 ms.
    pub fn outlive(&self) {
        for _ in 0..100 {
            if !self.0.iter().any(lives) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// A pidfd can be read when its process has ended.
fn lives((_, pidfd): &(i32, OwnedFd)) -> bool {
    !crate::fd::readable_now(pidfd)
}

fn below(leader: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    children::for_each_below(leader, 0, &mut |pid| {
        found.insert(pid);
    });
    found
}
