//! Processes that a command has started and that have left its process group, by `setsid` for one: no signal to the group reaches them.
//! They are found below the command, from which nobody gets away while it lives: it is a subreaper.

use crate::children;
use nix::unistd::{Pid, getpgid};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

/// Most that are kept in mind: each costs a descriptor.
const MOST: usize = 256;

/// Those of one command.
#[derive(Debug, Default)]
pub struct Away(Vec<OwnedFd>);

impl Away {
    /// Looks who is below a process that nobody has reaped and leads its group.
    pub(crate) fn look(&mut self, leader: i32) {
        let own = Pid::from_raw(leader);
        let is_away = |pid: &i32| getpgid(Some(Pid::from_raw(*pid))).is_ok_and(|group| group != own);
        let seen: Vec<i32> =
            below(leader).into_iter().filter(is_away).take(MOST.saturating_sub(self.0.len())).collect();
        let opened: Vec<_> = seen.into_iter().filter_map(|pid| Some((pid, crate::pidfd::open(pid).ok()?))).collect();
        // A number may have become a stranger's before it was opened: who is found below a second time is none.
        let still = below(leader);
        self.0.extend(opened.into_iter().filter(|(pid, _)| still.contains(pid)).map(|(_, pidfd)| pidfd));
    }

    /// Signals all that were found.
    pub(crate) fn signal(&self, number: i32) {
        for pidfd in &self.0 {
            // Whoever has ended meanwhile is no error.
            let _gone = crate::pidfd::signal(pidfd, number);
        }
    }
}

fn below(leader: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    children::for_each_below(leader, 0, &mut |pid| {
        found.insert(pid);
    });
    found
}
