//! Slots that jobs of this user have in an allocation of a scheduler, as far as their launchers run on this host.
//!
//! Each launcher keeps a list in memory, and an abstract unix name that leads to it. Nothing is left of a launcher that was killed.

use crate::abstract_name;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// The name of the memory of a list.
const LIST: &std::ffi::CStr = c"rlaunch-slots";
/// Longest list that is read.
const LONGEST: u64 = 4 << 20;
/// The longest wait for the turn of another launcher, which ends once it has placed its ranks. Before that it may ask hosts over ssh.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts: the first pause, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];

/// The turn of a launcher: meanwhile no other launcher of the allocation chooses slots here.
#[derive(Debug)]
pub struct Turn {
    name: String,
    is_late: bool,
    /// `None`: another user has the name of the turn, which then protects nothing, or another launcher has the turn for too long.
    _held: Option<OwnedFd>,
}

/// The list of a job, which others see until this is dropped.
#[derive(Debug)]
pub struct Left {
    _list: File,
    _name: OwnedFd,
}

impl Turn {
    /// Waits for the turn.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn take(allocation: &str) -> io::Result<Self> {
        Self::take_within(allocation, PATIENCE)
    }

    /// Waits no longer than this.
    ///
    /// # Errors
    /// As above.
    pub fn take_within(allocation: &str, patience: Duration) -> io::Result<Self> {
        let name = format!("rlaunch-slots-{}-{allocation}", crate::facts::host::user().0);
        let until = Instant::now() + patience;
        let [mut pause, longest] = PAUSES;
        loop {
            match abstract_name::claim(&format!("{name}-turn")) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    if Instant::now() >= until {
                        return Ok(Self { _held: None, is_late: true, name });
                    }
                    std::thread::sleep(pause);
                    pause = longest.min(pause * 2);
                }
                held => return Ok(Self { _held: held?, is_late: false, name }),
            }
        }
    }

    /// Whether another launcher still has the turn: it may take the same slots.
    #[must_use]
    pub const fn is_late(&self) -> bool {
        self.is_late
    }

    /// The lists of other jobs.
    ///
    /// # Errors
    /// The table of sockets cannot be read.
    pub fn others(&self) -> io::Result<Vec<String>> {
        let begin = format!("{}-list-", self.name);
        let names = abstract_name::held(&begin)?;
        Ok(names.iter().filter_map(|name| list_of(name.strip_prefix(&begin)?)).collect())
    }

    /// Leaves the list of this job, and ends the turn.
    ///
    /// # Errors
    /// No memory or descriptor can be had.
    pub fn leave(self, list: &str) -> io::Result<Left> {
        // SAFETY: memfd_create reads the name, which ends with a zero byte.
        let fd = unsafe { libc::memfd_create(LIST.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let mut memory = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        memory.write_all(list.as_bytes())?;
        let name = abstract_name::hold(&format!("{}-list-{}-{fd}", self.name, std::process::id()))?;
        Ok(Left { _list: memory, _name: name })
    }
}

/// The list that a process of this user keeps at a descriptor, by the end of its name.
fn list_of(place: &str) -> Option<String> {
    let (pid, fd) = place.split_once('-')?;
    let (pid, fd) = (pid.parse::<u32>().ok()?, fd.parse::<u32>().ok()?);
    let is_own = fs::metadata(format!("/proc/{pid}")).ok()?.uid() == crate::facts::host::user().0;
    let path = format!("/proc/{pid}/fd/{fd}");
    let memory = format!("/memfd:{}", LIST.to_str().ok()?);
    // A stranger's name could lead to any file.
    let is_list = is_own && fs::read_link(&path).ok()?.to_str()?.starts_with(&memory);
    let mut text = String::new();
    is_list.then(|| File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok())??;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launcher_sees_the_lists_of_others_until_they_end() {
        let allocation = format!("test-{}", std::process::id());
        let lists = || Turn::take(&allocation).unwrap().others().unwrap();
        let (one, other) = (Turn::take(&allocation).unwrap().leave("a 2\n").unwrap(), "b 1\nc 4\n");
        let _other = Turn::take(&allocation).unwrap().leave(other).unwrap();
        let mut both = lists();
        both.sort();
        assert_eq!(both, ["a 2\n", other]);
        drop(one);
        assert_eq!(lists(), [other]);
        let _stranger =
            abstract_name::hold(&format!("rlaunch-slots-{}-{allocation}-list-1-0", crate::facts::host::user().0))
                .unwrap();
        assert_eq!(lists(), [other], "a name that leads to no list");
        let turn = Turn::take(&allocation).unwrap();
        let second = Turn::take_within(&allocation, Duration::ZERO).unwrap();
        assert_eq!((turn.is_late(), second.is_late()), (false, true), "one at a time");
        let _second = second.leave("d 1\n").unwrap();
        assert_eq!(turn.others().unwrap().len(), 2, "its list is seen nevertheless");
    }
}
