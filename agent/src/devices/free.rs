//! The release of devices before ranks are started: holders first, then lock files.

use super::look::{Holder, Look, Site};
use rlaunch_core::guard::devices::{CleanPolicy, DeviceHolder, Kept, LockFound, Treatment};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::wire::capped::Capped;
use rlaunch_core::wire::node_news::NodeNews;
use rlaunch_core::wire::to_root::{HOLDERS, NodeRefusal};
use rlaunch_sys::devices::{LockState, lock_state, remove_lock, user_name};
use rlaunch_sys::{fd, pidfd, signals};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the release may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The release of the devices of this host.
#[derive(Clone, Copy, Debug)]
pub struct Freeing<'a> {
    /// The devices.
    pub site: &'a Site,
    /// Which holders are ended.
    pub policy: CleanPolicy,
    /// This job, as RLAUNCH_JOB_ID names it.
    pub job: &'a str,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Whether holders by mappings alone are searched for.
    pub closely: bool,
    /// Nothing is ended.
    pub is_trial: bool,
}

/// The result of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Freed {
    /// No process holds the devices.
    Free,
    /// These do.
    Held(NodeRefusal),
}

/// A holder that is being ended.
struct Ending {
    holder: Holder,
    pidfd: OwnedFd,
    was_killed: bool,
}

impl Freeing<'_> {
    /// Ends holders as the policy allows. `report` gets each that has exited. If any holder has to be kept, none is ended.
    ///
    /// # Errors
    /// Holders cannot be searched for.
    pub fn run(&self, mut report: impl FnMut(NodeNews)) -> io::Result<Freed> {
        let limit = Instant::now() + PATIENCE;
        loop {
            let look = self.look()?;
            let (mut to_end, mut kept) = (Vec::new(), Vec::new());
            for holder in look.holders {
                match holder.treatment(self.policy) {
                    Treatment::Ignore => {}
                    Treatment::Keep(why) => kept.push(holder.report(why)),
                    Treatment::End if self.is_trial => kept.push(holder.report(Kept::Trial)),
                    Treatment::End if Instant::now() >= limit => kept.push(holder.report(Kept::Killed)),
                    Treatment::End => to_end.push(holder),
                }
            }
            if !kept.is_empty() || (look.hidden.is_some() && to_end.is_empty()) {
                return Ok(Freed::Held(held(kept, look.hidden.as_deref())));
            }
            if to_end.is_empty() {
                return Ok(Freed::Free);
            }
            self.end(to_end, limit, &mut report)?;
        }
    }

    fn look(&self) -> io::Result<Look> {
        if self.closely { self.site.look_closely(self.job) } else { self.site.look(self.job) }
    }

    /// Ends holders: SIGTERM, the grace, then SIGKILL for those that still hold a device.
    fn end(&self, holders: Vec<Holder>, limit: Instant, report: &mut impl FnMut(NodeNews)) -> io::Result<()> {
        let mut ending: Vec<Ending> = holders.into_iter().filter_map(begin).collect();
        wait(&mut ending, limit.min(Instant::now() + self.grace), report);
        if ending.is_empty() {
            return Ok(());
        }
        let still: BTreeSet<(u32, u64)> =
            self.look()?.holders.iter().map(|holder| (holder.process.pid, holder.process.started)).collect();
        ending.retain(|one| still.contains(&(one.holder.process.pid, one.holder.process.started)));
        for one in &mut ending {
            one.was_killed = pidfd::signal(&one.pidfd, signals::KILL).is_ok();
        }
        wait(&mut ending, limit, report);
        Ok(())
    }
}

/// Sends SIGTERM. `None`: the holder has exited, or its number belongs to another process by now.
fn begin(holder: Holder) -> Option<Ending> {
    let pidfd = pidfd::open(i32::try_from(holder.process.pid).ok()?).ok()?;
    if !holder.process.is_there() {
        return None;
    }
    tracing::debug!("SIGTERM to process {}, which holds {}", holder.process.pid, holder.devices());
    pidfd::signal(&pidfd, signals::TERM).ok()?;
    Some(Ending { holder, pidfd, was_killed: false })
}

/// Waits until all have exited, or until the limit. A device is free when the descriptor of its holder is readable.
fn wait(ending: &mut Vec<Ending>, until: Instant, report: &mut impl FnMut(NodeNews)) {
    loop {
        ending.retain(|one| {
            let lives = !fd::readable_now(&one.pidfd);
            if !lives {
                report(ended(one));
            }
            lives
        });
        let left = until.saturating_duration_since(Instant::now());
        if ending.is_empty() || left.is_zero() {
            return;
        }
        let fds: Vec<_> = ending.iter().map(|one| one.pidfd.as_fd()).collect();
        fd::wait_for_any(&fds, Some(left));
    }
}

fn ended(one: &Ending) -> NodeNews {
    let process = &one.holder.process;
    NodeNews::HolderEnded {
        devices: OsBytes::from(one.holder.devices()),
        pid: process.pid,
        user: OsBytes::from(user_name(process.uid)),
        command: OsBytes::from(process.command.as_slice()),
        killed: one.was_killed,
    }
}

fn held(kept: Vec<DeviceHolder>, hidden: Option<&Path>) -> NodeRefusal {
    let more = u32::try_from(kept.len().saturating_sub(HOLDERS)).unwrap_or(u32::MAX);
    let holders = Capped::chunks(kept.into_iter().take(HOLDERS)).pop().unwrap_or_default();
    let hidden = hidden.map(|path| OsBytes::from(path.as_os_str().as_encoded_bytes())).unwrap_or_default();
    NodeRefusal::Devices { holders, more, hidden }
}

/// Removes the lock files that no process has locked. `dry`: looks only. The states of those that are there.
pub fn lock_files(paths: &[OsBytes], dry: bool) -> Vec<(OsBytes, LockFound)> {
    use std::os::unix::ffi::OsStrExt as _;
    let found = |path: &OsBytes| {
        let file = Path::new(std::ffi::OsStr::from_bytes(path));
        match if dry { lock_state(file) } else { remove_lock(file) } {
            LockState::Absent => None,
            LockState::Free if dry => Some(LockFound::Unlocked),
            LockState::Free => Some(LockFound::Removed),
            LockState::Locked(pid) => Some(LockFound::Locked(pid)),
            LockState::Foreign(uid) => Some(LockFound::Foreign(uid)),
            LockState::Odd => Some(LockFound::Odd),
            LockState::Unknown(errno) => Some(LockFound::Unknown(errno)),
        }
    };
    paths.iter().filter_map(|path| Some((path.clone(), found(path)?))).collect()
}
