//! The release of devices before ranks are started: holders first, then lock files.

use super::look::{Holder, Look, Site};
use rlaunch_base::capped::Capped;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_core::node::NodeEvent;
use rlaunch_protocol::guard::DeviceNews;
use rlaunch_protocol::guard::devices::{CleanPolicy, DeviceHolder, DeviceStep, Kept, LockFound, OddFile, Treatment};
use rlaunch_protocol::wire::node_news::NodeNews;
use rlaunch_protocol::wire::to_root::{HOLDERS, NodeRefusal};
use rlaunch_sys::devices::{self, LockState, Process, lock_state, remove_lock, user_name};
use rlaunch_sys::{fd, pidfd, signals};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long new holders are ended beyond the grace, and how long a holder that was killed may take to exit.
const PATIENCE: Duration = Duration::from_secs(30);
/// From the first signal to a line that names the holder.
const SILENCE: Duration = Duration::from_secs(2);

/// The release of the devices of this host.
#[derive(Clone, Copy, Debug)]
pub struct Freeing<'a> {
    /// The devices.
    pub site: &'a Site,
    /// Which holders are ended.
    pub policy: CleanPolicy,
    /// The job, as RLAUNCH_JOB_ID names it.
    pub job: &'a str,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Whether holders by mappings alone are searched for.
    pub closely: bool,
    /// Another job of rlaunch has claimed the devices: nothing is ended.
    pub is_claimed: bool,
    /// Nothing is ended.
    pub is_trial: bool,
    /// How far.
    pub step: DeviceStep,
}

/// The result of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Freed {
    /// No process holds the devices.
    Free,
    /// The look has found holders that have to be ended, and can be.
    Found,
    /// These do.
    Held(NodeRefusal),
}

/// A holder that is being ended.
struct Ending {
    holder: Holder,
    pidfd: OwnedFd,
    was_killed: bool,
    /// When the user reads the name of the holder; `None`: that line was printed.
    silent_until: Option<Instant>,
}

impl Freeing<'_> {
    /// Ends holders as the policy allows. `report` gets each that has exited. If any holder has to be kept, none is ended.
    ///
    /// # Errors
    /// Holders cannot be searched for.
    pub fn run(&self, mut report: impl FnMut(NodeEvent)) -> io::Result<Freed> {
        let limit = Instant::now() + self.grace + PATIENCE;
        let mut killed = BTreeSet::new();
        loop {
            let look = self.look()?;
            let (mut to_end, mut kept) = (Vec::new(), Vec::new());
            for holder in look.holders {
                match holder.treatment(self.policy) {
                    Treatment::Ignore => {}
                    Treatment::Keep(Kept::Policy) | Treatment::End if self.is_claimed => {
                        kept.push(holder.report(Kept::Claimed));
                    }
                    Treatment::Keep(why) => kept.push(holder.report(why)),
                    Treatment::End if self.is_trial => kept.push(holder.report(Kept::Trial)),
                    Treatment::End if killed.contains(&number(&holder)) => kept.push(holder.report(Kept::Killed)),
                    // Other processes take the devices again and again.
                    Treatment::End if Instant::now() >= limit => kept.push(holder.report(Kept::Policy)),
                    Treatment::End => to_end.push(holder),
                }
            }
            if !kept.is_empty() || (look.hidden.is_some() && to_end.is_empty()) {
                return Ok(Freed::Held(held(kept, look.hidden.as_deref())));
            }
            if to_end.is_empty() {
                return Ok(Freed::Free);
            }
            if self.step == DeviceStep::Look {
                return Ok(Freed::Found);
            }
            report(NodeEvent::DevicesEnding);
            let refused = self.end(to_end, &mut killed, &mut report)?;
            if !refused.is_empty() {
                return Ok(Freed::Held(held(refused, None)));
            }
        }
    }

    fn look(&self) -> io::Result<Look> {
        if self.closely { self.site.look_closely(self.job) } else { self.site.look(self.job) }
    }

    /// Ends holders: SIGTERM, the grace, then SIGKILL for those that still hold a device. `killed` gets these. Returns those that this
    /// user may not signal.
    fn end(
        &self,
        holders: Vec<Holder>,
        killed: &mut BTreeSet<(u32, u64)>,
        report: &mut impl FnMut(NodeEvent),
    ) -> io::Result<Vec<DeviceHolder>> {
        let (mut ending, mut refused) = (Vec::new(), Vec::new());
        for holder in holders {
            match self.begin(holder)? {
                Begun::Signalled(one) => ending.push(one),
                Begun::Denied(holder) => refused.push(holder.report(Kept::OtherUser)),
                Begun::Gone => {}
            }
        }
        wait(&mut ending, Instant::now() + self.grace, report);
        if ending.is_empty() {
            return Ok(refused);
        }
        let still: BTreeSet<(u32, u64)> = self.look()?.holders.iter().map(number).collect();
        ending.retain(|one| still.contains(&number(&one.holder)));
        for one in &mut ending {
            one.was_killed = pidfd::signal(&one.pidfd, signals::KILL).is_ok();
            killed.insert(number(&one.holder));
        }
        wait(&mut ending, Instant::now() + PATIENCE, report);
        Ok(refused)
    }

    /// Sends SIGTERM, after a look whether the process with this number still holds a device.
    fn begin(&self, holder: Holder) -> io::Result<Begun> {
        let Ok(pid) = i32::try_from(holder.process.pid) else { return Ok(Begun::Gone) };
        let pidfd = match pidfd::open(pid) {
            Ok(pidfd) => pidfd,
            Err(error) => return refusal(holder, error),
        };
        // From here on the number cannot become that of another process. It may have before, since the search.
        if !holder.process.is_there() || !devices::is_holder(self.site.targets(), holder.process.pid)? {
            return Ok(Begun::Gone);
        }
        tracing::debug!("SIGTERM to process {}, which holds {}", holder.process.pid, holder.devices());
        match pidfd::signal(&pidfd, signals::TERM) {
            Ok(()) => {
                let silent_until = Some(Instant::now() + SILENCE);
                Ok(Begun::Signalled(Ending { holder, pidfd, was_killed: false, silent_until }))
            }
            Err(error) => refusal(holder, error),
        }
    }
}

/// The result of the first signal.
enum Begun {
    Signalled(Ending),
    /// The caller's user may not signal the holder.
    Denied(Holder),
    /// The holder has exited, or its number belongs to another process by now.
    Gone,
}

fn refusal(holder: Holder, error: io::Error) -> io::Result<Begun> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Ok(Begun::Denied(holder)),
        _ if error.raw_os_error() == Some(NO_PROCESS) => Ok(Begun::Gone),
        _ => Err(error),
    }
}

/// ESRCH
const NO_PROCESS: i32 = 3;

/// A process id, and when its process was started: together they name one process.
fn number(holder: &Holder) -> (u32, u64) {
    (holder.process.pid, holder.process.started)
}

/// Waits until all have exited, or until the limit. A device is free when the descriptor of its holder is readable.
fn wait(ending: &mut Vec<Ending>, until: Instant, report: &mut impl FnMut(NodeEvent)) {
    loop {
        ending.retain(|one| {
            let lives = !fd::readable_now(&one.pidfd);
            if !lives {
                report(NodeEvent::News(ended(one)));
            }
            lives
        });
        let now = Instant::now();
        for one in ending.iter_mut() {
            if one.silent_until.take_if(|until| *until <= now).is_some() {
                report(NodeEvent::News(NodeNews::Devices(DeviceNews::Held(one.holder.report(Kept::Ending)))));
            }
        }
        let left = until.saturating_duration_since(now);
        if ending.is_empty() || left.is_zero() {
            return;
        }
        let next = ending.iter().filter_map(|one| one.silent_until).min();
        let left = next.map_or(left, |next| left.min(next.saturating_duration_since(now)));
        let fds: Vec<_> = ending.iter().map(|one| one.pidfd.as_fd()).collect();
        fd::wait_for_any(&fds, Some(left));
    }
}

fn ended(one: &Ending) -> NodeNews {
    let process = &one.holder.process;
    NodeNews::Devices(DeviceNews::HolderEnded {
        devices: OsBytes::from(one.holder.devices()),
        pid: process.pid,
        user: OsBytes::from(user_name(process.uid)),
        command: OsBytes::from(process.command.as_slice()),
        killed: one.was_killed,
    })
}

fn held(kept: Vec<DeviceHolder>, hidden: Option<&Path>) -> NodeRefusal {
    let more = u32::try_from(kept.len().saturating_sub(HOLDERS)).unwrap_or(u32::MAX);
    let holders = Capped::chunks(kept.into_iter().take(HOLDERS)).pop().unwrap_or_default();
    let hidden = hidden.map(|path| OsBytes::from(path.as_os_str().as_encoded_bytes())).unwrap_or_default();
    NodeRefusal::Devices { holders, more, hidden }
}

const fn odd(kind: devices::OddFile) -> OddFile {
    match kind {
        devices::OddFile::Directory => OddFile::Directory,
        devices::OddFile::Link => OddFile::Link,
        devices::OddFile::Fifo => OddFile::Fifo,
        devices::OddFile::ManyNames => OddFile::ManyNames,
        devices::OddFile::Other => OddFile::Other,
    }
}

/// The report of a lock file. Names the user and the command of a process that has locked it.
pub fn lock_news(path: OsBytes, found: LockFound) -> NodeNews {
    let locker = match found {
        LockFound::Locked { pid } if pid > 0 => Process::read(pid),
        _ => None,
    };
    let (user, command) =
        locker.map(|process| (user_name(process.uid).into(), process.command.as_slice().into())).unwrap_or_default();
    NodeNews::Devices(DeviceNews::LockFile { path, found, user, command })
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
            LockState::Locked(pid) => Some(LockFound::Locked { pid }),
            LockState::Foreign(uid) => Some(LockFound::Foreign { uid }),
            LockState::Odd(kind) => Some(LockFound::Odd(odd(kind))),
            LockState::Unknown(errno) => Some(LockFound::Unknown { errno }),
        }
    };
    paths.iter().filter_map(|path| Some((path.clone(), found(path)?))).collect()
}
