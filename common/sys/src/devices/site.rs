//! The device files of this host, whether they are busy, and the claim of a job on them.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A device file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its path.
    pub path: PathBuf,
    /// The number of its device.
    pub rdev: u64,
    /// Users other than root may open it.
    pub is_open_to_others: bool,
}

impl Node {
    /// The character device at this path; `None`: there is none.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok().filter(|found| found.file_type().is_char_device())?;
        let is_open_to_others = found.uid() != 0 || found.mode() & 0o066 != 0;
        Some(Self { path: path.to_owned(), rdev: found.rdev(), is_open_to_others })
    }
}

/// Whether this host may have accelerators that are reached by /dev/vfio or /dev/accelN: two calls of stat(2).
#[must_use]
pub fn has_accelerators() -> bool {
    ["/dev/vfio", "/sys/class/accel"].into_iter().any(|path| std::fs::metadata(path).is_ok())
}

/// Whether this host may have devices whose memory outlives the process that has allocated it: NVIDIA's GPUs, or accelerators.
#[must_use]
pub fn has_shared_memory() -> bool {
    Path::new("/dev/nvidiactl").exists() || has_accelerators()
}

/// NVIDIA's device files. A GPU's memory outlives the process that has allocated it while another process holds one.
#[must_use]
pub fn nvidia() -> Vec<Node> {
    if Node::at(Path::new("/dev/nvidiactl")).is_none() {
        return Vec::new();
    }
    let Ok(all) = std::fs::read_dir("/dev") else { return Vec::new() };
    let is_nvidia = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"nvidia");
    all.flatten().filter(|entry| is_nvidia(&entry.file_name())).filter_map(|entry| Node::at(&entry.path())).collect()
}

/// Whether opening a device fails because it is held. The device is opened and closed at once. A device that this user may not open counts
/// as free: the kernel does not report whether it is held.
#[must_use]
pub fn is_busy(node: &Node) -> bool {
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    nix::fcntl::open(node.path.as_path(), flags, Mode::empty()).is_err_and(|errno| errno == Errno::EBUSY)
}

/// The claim of a job on devices: an abstract unix name for each. Other jobs of rlaunch do not end holders of these.
#[derive(Debug)]
pub struct DeviceClaim(Vec<OwnedFd>);

impl DeviceClaim {
    /// How many devices are claimed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no device is claimed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Claims devices for the life of this process. `None`: another job of this user or of root has claimed one of them.
///
/// # Errors
/// There is no descriptor left, or no memory.
pub fn claim(nodes: &[Node]) -> io::Result<Option<DeviceClaim>> {
    let mut held = Vec::new();
    for node in nodes {
        let name = format!("rlaunch-device-{}-{}", nix::sys::stat::major(node.rdev), nix::sys::stat::minor(node.rdev));
        match crate::abstract_name::claim(&name) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            claimed => held.extend(claimed?),
        }
    }
    Ok(Some(DeviceClaim(held)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_claimed_by_one_job_at_a_time() {
        // No device has this number, and no other test uses it.
        let rdev = nix::sys::stat::makedev(511, u64::from(std::process::id()));
        let node = Node { path: "/nowhere".into(), rdev, is_open_to_others: false };
        let held = claim(std::slice::from_ref(&node)).unwrap().unwrap();
        assert_eq!((held.len(), held.is_empty()), (1, false));
        assert!(claim(std::slice::from_ref(&node)).unwrap().is_none());
        drop(held);
        assert!(claim(std::slice::from_ref(&node)).unwrap().is_some());
        let name = format!("rlaunch-device-511-{}", std::process::id());
        if let Some(mut child) = crate::abstract_name::tests::stranger(&name) {
            let beside = claim(std::slice::from_ref(&node)).unwrap();
            assert!(beside.is_some_and(|claim| claim.is_empty()), "another user has the name");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert!(!is_busy(&node), "there is none");
        assert_eq!(Node::at(Path::new("/etc/passwd")), None);
        let is_open = |path: &str| Node::at(Path::new(path)).unwrap().is_open_to_others;
        assert!(is_open("/dev/null"));
    }
}
