//! A process beside the launcher that ends what ssh, or a command that looks groups of hosts up, has started, if the launcher is
//! gone.
//!
//! The kernel ends ssh itself then, by its parent-death signal. But a signal is all that ssh gets: it does not pass it on to
//! its ProxyCommand or the ssh of a ProxyJump, which may be waiting for a host that never answers. They are in ssh's process
//! group, and the groups are in memory that the reaper shares: nothing wakes it before the launcher's end of a pipe closes.
//!
//! After its fork it calls nothing but the kernel, because the launcher may have threads.

use crate::guardian::{Fork, close_others, fork};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// How many groups there is room for: more than a job may have hosts. Those beyond are left to the parent-death signal.
const ROOM: usize = 128 << 10;
/// How long groups may take to end when they are asked to.
const PATIENCE_MS: u32 = 1_000;
/// How often they are looked after.
const LOOK_MS: u32 = 5;

/// The launcher's side. The reaper ends when this is dropped; with the launcher, at the latest. No other code may reap it then: a caller
/// without processes to be ended dismisses it first.
#[derive(Debug)]
pub struct SshReaper {
    groups: &'static [AtomicI32],
    /// The index for the next search of room: mostly after the slot that was taken last.
    next: AtomicUsize,
    /// As long as it was not dismissed.
    pid: Option<i32>,
    _lifeline: OwnedFd,
}

/// A slot of the reaper's: free at first, then that of the group whose leader has entered itself.
#[derive(Debug)]
pub(crate) struct ReaperSlot(&'static AtomicI32);

/// In a slot that is taken and has no group yet: below every process id, and never signalled.
const NOBODY: i32 = -1;

impl ReaperSlot {
    /// The slot for a new child. It enters the group that it leads there before it executes anything: its descendants are the reaper's,
    /// however soon the launcher is killed. An atomic store needs no lock and no memory, so a forked child may do it.
    pub(crate) fn slot(&self) -> &'static AtomicI32 {
        self.0
    }
}

impl Drop for ReaperSlot {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl SshReaper {
    /// Forks it.
    ///
    /// # Errors
    /// No process, descriptor or memory can be had.
    pub fn start() -> io::Result<Self> {
        let groups = crate::memory::shared(ROOM)?;
        let (reaper_end, lifeline) = crate::fd::pipe()?;
        match fork()? {
            Fork::Parent(pid) => Ok(Self { groups, next: AtomicUsize::new(0), pid: Some(pid), _lifeline: lifeline }),
            Fork::Child => watch(reaper_end.as_raw_fd(), groups),
        }
    }

    /// Ends it and reaps it: no group will be given to it any more. A reaper that still has processes to end does so when this is
    /// dropped, and is not waited for.
    pub fn dismiss(&mut self) {
        if self.groups.iter().any(|group| group.load(Ordering::Acquire) != 0) {
            return;
        }
        if let Some(pid) = self.pid.take() {
            // SAFETY: kill takes two integers; the reaper is our own child, which was not reaped.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            // SAFETY: a null status is allowed. All signals are blocked, so it is not interrupted.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        }
    }

    /// Keeps a slot for a process group whose leader will be a child of ours. It must be let go before that is reaped: the
    /// number may be another's then.
    pub(crate) fn take(&self) -> Option<ReaperSlot> {
        let free = |slot: &&AtomicI32| slot.compare_exchange(0, NOBODY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let (before, after) = self.groups.split_at_checked(self.next.load(Ordering::Relaxed))?;
        let found = (0..).zip(after.iter().chain(before)).find(|(_, slot)| free(slot));
        let (passed, slot) = found?;
        self.next.store((before.len() + passed + 1) % self.groups.len(), Ordering::Relaxed);
        Some(ReaperSlot(slot))
    }
}

/// The reaper's whole life.
fn watch(lifeline: RawFd, groups: &[AtomicI32]) -> ! {
    // SAFETY: the name is a C string of at most 15 characters.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"rlaunch-ssh".as_ptr()) };
    // SAFETY: setsid takes nothing. A signal to the launcher's group is not meant for us.
    unsafe { libc::setsid() };
    close_others([lifeline, lifeline]);
    // SAFETY: 0-2 are not read or written here; a reader that waits for their end must not wait for ours.
    unsafe { libc::close_range(0, 2, 0) };
    // No process writes to the lifeline: the read returns at its end.
    while crate::fd::read(lifeline, &mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
    signal_all(groups, libc::SIGTERM);
    for _ in 0..PATIENCE_MS / LOOK_MS {
        if !signal_all(groups, 0) {
            crate::origin::exit_now(0);
        }
        let pause = libc::timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_MS) * 1_000_000 };
        // SAFETY: `pause` is a valid time; what is left of it is not asked for.
        unsafe { libc::nanosleep(&raw const pause, ptr::null_mut()) };
    }
    signal_all(groups, libc::SIGKILL);
    crate::origin::exit_now(0)
}

/// Signals all groups; returns whether any process is in one of them.
fn signal_all(groups: &[AtomicI32], number: i32) -> bool {
    let mut any = false;
    for group in groups.iter().map(|slot| slot.load(Ordering::Acquire)).filter(|group| *group > 1) {
        any |= crate::pidfd::signal_group(group, number).is_ok();
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of their own for 70,000 hosts; each was looked for among all that were taken.
    #[test]
    fn there_is_room_for_every_host_and_it_is_at_hand() {
        let mut ssh_reaper = SshReaper::start().unwrap();
        let mut wards: Vec<ReaperSlot> = (0..70_000).map(|_| ssh_reaper.take().unwrap()).collect();
        assert_eq!(ssh_reaper.next.load(Ordering::Relaxed), 70_000, "nobody was looked at twice");
        wards.remove(0);
        wards.extend((70_000..ROOM).map(|_| ssh_reaper.take().unwrap()));
        assert!(
            ssh_reaper.take().is_some_and(|ward| ptr::eq(ward.0, &ssh_reaper.groups[0])),
            "what was let go is found"
        );
        wards.push(ssh_reaper.take().unwrap());
        assert!(ssh_reaper.take().is_none());
        drop(wards);
        ssh_reaper.dismiss();
    }

    /// Doctor starts one for each of its rounds: they stayed zombies until it ended.
    #[test]
    fn dismissed_reaper_is_reaped() {
        let mut ssh_reaper = SshReaper::start().unwrap();
        let pid = ssh_reaper.pid.unwrap();
        ssh_reaper.dismiss();
        // SAFETY: a null status is allowed.
        assert_eq!(unsafe { libc::waitpid(pid, ptr::null_mut(), libc::WNOHANG) }, -1, "it is no child any more");
    }
}
