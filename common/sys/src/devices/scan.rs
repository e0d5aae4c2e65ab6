//! The search for processes that hold device files.

use super::Node;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{Mode, makedev};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::path::Path;

/// The link text of a descriptor of a VFIO device. It keeps the group busy after the group file was closed.
const VFIO_DEVICE: &[u8] = b"anon_inode:[vfio-device]";

/// Devices that are searched for.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Device numbers.
    rdevs: BTreeSet<u64>,
    /// The PCI addresses behind VFIO groups, with the device numbers of these; none: no VFIO group is searched for.
    vfio: Vec<(String, u64)>,
    /// The device number of the anonymous inodes; `None`: they are not searched.
    anonymous: Option<u64>,
}

impl Targets {
    /// These device files. `vfio`: the PCI addresses behind VFIO groups among them, with the device numbers of these.
    #[must_use]
    pub fn new(nodes: &[Node], vfio: Vec<(String, u64)>) -> Self {
        let anonymous = if vfio.is_empty() { None } else { anonymous_inodes() };
        Self { rdevs: nodes.iter().map(|node| node.rdev).collect(), vfio, anonymous }
    }
}

/// The device number that descriptors without a file share: those of epoll sets, and those of VFIO devices.
fn anonymous_inodes() -> Option<u64> {
    let set = crate::epoll::ReadySet::new().ok()?;
    nix::sys::stat::fstat(set.as_fd()).ok().map(|stat| stat.st_dev)
}

/// A process that holds devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its process id, as this host's /proc names it.
    pub pid: u32,
    /// The device numbers that it holds.
    pub rdevs: BTreeSet<u64>,
    /// The process holds some VFIO device, and the kernel does not report which.
    pub is_unsure: bool,
}

/// The result of a search.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// The holders, by process id.
    pub found: Vec<Found>,
    /// Processes whose descriptors this user may not read.
    pub unseen: u32,
}

/// Reads the descriptors of all processes.
///
/// # Errors
/// /proc cannot be read, or there is no descriptor left to read it.
pub fn scan(targets: &Targets) -> io::Result<Scan> {
    scan_below(Path::new("/proc"), targets)
}

fn scan_below(proc: &Path, targets: &Targets) -> io::Result<Scan> {
    let mut scan = Scan::default();
    let mut all = open(proc)?;
    let base = all.as_fd().try_clone_to_owned()?;
    for entry in all.iter().map_while(Result::ok) {
        let Some(pid) = number(entry.file_name()) else { continue };
        let mut found = Found { pid, rdevs: BTreeSet::new(), is_unsure: false };
        match descriptors(base.as_fd(), pid, targets, &mut found) {
            Ok(()) => {}
            Err(Errno::EACCES | Errno::EPERM) => scan.unseen += 1,
            // The process has exited meanwhile.
            Err(Errno::ENOENT | Errno::ESRCH) => continue,
            Err(shortage) => return Err(shortage.into()),
        }
        if found.is_unsure || !found.rdevs.is_empty() {
            scan.found.push(found);
        }
    }
    Ok(scan)
}

/// The descriptors of a process. Those of a thread, where the main thread has exited: then the process shows none, and to its own user
/// not even the directory.
fn descriptors(proc: BorrowedFd<'_>, pid: u32, targets: &Targets, found: &mut Found) -> Result<(), Errno> {
    let own = format!("{pid}/fd");
    let denied = match look(proc, &own, targets, found) {
        Ok(1..) => return Ok(()),
        Ok(0) => None,
        Err(error @ (Errno::EACCES | Errno::EPERM)) => Some(error),
        Err(error) => return Err(error),
    };
    let tasks = format!("{pid}/task");
    let mut threads = Dir::openat(proc, tasks.as_str(), READ, Mode::empty())?;
    for thread in threads.iter().map_while(Result::ok).filter_map(|entry| number(entry.file_name())) {
        if thread == pid {
            continue;
        }
        match look(proc, &format!("{tasks}/{thread}/fd"), targets, found) {
            Ok(1..) => return Ok(()),
            // The thread has exited meanwhile. The process may have others.
            Ok(0) | Err(Errno::ENOENT | Errno::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    denied.map_or(Ok(()), Err)
}

const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Looks at one directory of descriptors; how many there are.
fn look(proc: BorrowedFd<'_>, path: &str, targets: &Targets, found: &mut Found) -> Result<usize, Errno> {
    let mut all = Dir::openat(proc, path, READ, Mode::empty())?;
    let dir = all.as_fd().try_clone_to_owned().map_err(|_| Errno::EMFILE)?;
    let mut count = 0;
    for entry in all.iter().map_while(Result::ok) {
        let name = entry.file_name();
        if number(name).is_none() {
            continue;
        }
        count += 1;
        let Ok(file) = OpenFile::at(dir.as_fd(), name) else { continue };
        if let Some(rdev) = file.rdev.filter(|rdev| targets.rdevs.contains(rdev)) {
            found.rdevs.insert(rdev);
        } else if targets.anonymous == Some(file.dev) {
            vfio_device(proc, dir.as_fd(), (path, name), targets, found);
        }
    }
    Ok(count)
}

/// Whether an anonymous inode is a VFIO device of ours.
fn vfio_device(
    proc: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    (path, name): (&str, &CStr),
    targets: &Targets,
    found: &mut Found,
) {
    use std::os::unix::ffi::OsStrExt as _;
    if !readlinkat(dir, name).is_ok_and(|text| text.as_bytes() == VFIO_DEVICE) {
        return;
    }
    let info = format!("{}info/{}", path, name.to_string_lossy());
    let device = read_at(proc, &info).unwrap_or_default();
    let mut lines = device.split(|b| *b == b'\n');
    // Kernels since 2025 name the device.
    match lines.find_map(|line| line.strip_prefix(b"vfio-device-syspath:")) {
        None => found.is_unsure = true,
        Some(path) => {
            let is_device = |(address, _): &&(String, u64)| path.trim_ascii().ends_with(address.as_bytes());
            found.rdevs.extend(targets.vfio.iter().find(is_device).map(|(_, rdev)| rdev));
        }
    }
}

fn read_at(dir: BorrowedFd<'_>, path: &str) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let file = nix::fcntl::openat(dir, path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    std::fs::File::from(file).take(4096).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Reads the mappings of all processes. That takes several times as long as [`scan`], and needs `CAP_SYS_ADMIN` or
/// `CAP_CHECKPOINT_RESTORE`.
///
/// # Errors
/// /proc cannot be read.
pub fn scan_mappings(targets: &Targets) -> io::Result<Vec<Found>> {
    let mut all = open(Path::new("/proc"))?;
    let base = all.as_fd().try_clone_to_owned()?;
    let mut holders = Vec::new();
    for pid in all.iter().map_while(Result::ok).filter_map(|entry| number(entry.file_name())) {
        let rdevs = mapped(base.as_fd(), pid, targets).unwrap_or_default();
        holders.extend((!rdevs.is_empty()).then_some(Found { pid, rdevs, is_unsure: false }));
    }
    Ok(holders)
}

/// The devices among the mappings of a process.
fn mapped(proc: BorrowedFd<'_>, pid: u32, targets: &Targets) -> Result<BTreeSet<u64>, Errno> {
    let path = format!("{pid}/map_files");
    let mut maps = Dir::openat(proc, path.as_str(), READ, Mode::empty())?;
    let dir = maps.as_fd().try_clone_to_owned().map_err(|_| Errno::EMFILE)?;
    let file = |name: &CStr| OpenFile::at(dir.as_fd(), name).ok()?.rdev;
    let devices = maps.iter().map_while(Result::ok).filter_map(|entry| file(entry.file_name()));
    Ok(devices.filter(|rdev| targets.rdevs.contains(rdev)).collect())
}

/// Looks again at one process: whether it holds one of the devices.
///
/// # Errors
/// There is no descriptor left to read /proc.
pub fn is_holder(targets: &Targets, pid: u32) -> io::Result<bool> {
    is_holder_below(Path::new("/proc"), targets, pid)
}

fn is_holder_below(proc: &Path, targets: &Targets, pid: u32) -> io::Result<bool> {
    let proc = open(proc)?;
    let mut found = Found { pid, rdevs: BTreeSet::new(), is_unsure: false };
    match descriptors(proc.as_fd(), pid, targets, &mut found) {
        Ok(()) | Err(Errno::EACCES | Errno::EPERM | Errno::ENOENT | Errno::ESRCH) => {}
        Err(shortage) => return Err(shortage.into()),
    }
    let maps = || mapped(proc.as_fd(), pid, targets).unwrap_or_default();
    Ok(found.is_unsure || !found.rdevs.is_empty() || !maps().is_empty())
}

fn open(path: &Path) -> io::Result<Dir> {
    Ok(Dir::open(path, READ, Mode::empty())?)
}

/// The file that a link in /proc leads to.
struct OpenFile {
    /// The device of its file system.
    dev: u64,
    /// The device that it stands for; `None`: it is no character device.
    rdev: Option<u64>,
}

impl OpenFile {
    /// The file system is not asked: one that does not answer would hold the search for ever.
    fn at(dir: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        // SAFETY: `name` is a C string, and `stat` is valid for writing.
        let rc = unsafe {
            libc::statx(dir.as_raw_fd(), name.as_ptr(), libc::AT_STATX_DONT_SYNC, libc::STATX_TYPE, &raw mut stat)
        };
        if rc < 0 {
            return Err(Errno::last());
        }
        let is_device = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFCHR;
        Ok(Self {
            dev: makedev(stat.stx_dev_major.into(), stat.stx_dev_minor.into()),
            rdev: is_device.then(|| makedev(stat.stx_rdev_major.into(), stat.stx_rdev_minor.into())),
        })
    }
}

fn number(name: &CStr) -> Option<u32> {
    let bytes = name.to_bytes();
    let digits = bytes.first().is_some_and(u8::is_ascii_digit);
    if digits { std::str::from_utf8(bytes).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn zero() -> Node {
        Node::at(Path::new("/dev/zero")).unwrap()
    }

    #[test]
    fn own_descriptor_of_a_device_is_found() {
        let targets = Targets::new(&[zero()], Vec::new());
        let held = std::fs::File::open("/dev/zero").unwrap();
        let own = |scan: &Scan| scan.found.iter().find(|found| found.pid == std::process::id()).cloned();
        let found = own(&scan(&targets).unwrap()).unwrap();
        assert_eq!((found.rdevs, found.is_unsure), (BTreeSet::from([zero().rdev]), false));
        drop(held);
    }

    #[test]
    fn holders_are_found_among_thousands_of_processes_by_device_number() {
        let proc = std::env::temp_dir().join(format!("rlaunch-scan-{}", std::process::id()));
        for pid in 1..=3_000 {
            let process = proc.join(pid.to_string());
            std::fs::create_dir_all(process.join("fd")).unwrap();
            std::fs::create_dir_all(process.join(format!("task/{pid}"))).unwrap();
            if pid == 42 {
                symlink("/dev/zero", process.join("fd/3")).unwrap();
            }
            symlink("/dev/null", process.join("fd/0")).unwrap();
        }
        // The main thread has exited: only its other thread shows the descriptor.
        std::fs::remove_file(proc.join("77/fd/0")).unwrap();
        std::fs::create_dir_all(proc.join("77/task/78/fd")).unwrap();
        symlink("/dev/zero", proc.join("77/task/78/fd/5")).unwrap();
        // Another mount namespace has another name for the device.
        let other = proc.join("other");
        let mode = Mode::S_IRUSR;
        let is_root = nix::sys::stat::mknod(&other, nix::sys::stat::SFlag::S_IFCHR, mode, zero().rdev).is_ok();
        if is_root {
            symlink(&other, proc.join("99/fd/4")).unwrap();
        }
        // A thread that has exited since its number was read: its process has others.
        std::fs::create_dir_all(proc.join("77/task/78")).unwrap();
        std::fs::create_dir_all(proc.join("77/task/79")).unwrap();
        let targets = Targets::new(&[zero()], Vec::new());
        let scan = scan_below(&proc, &targets);
        let again = [42, 77, 5, 4_000].map(|pid| is_holder_below(&proc, &targets, pid).unwrap());
        assert_eq!(again, [true, true, false, false], "looked at again");
        std::fs::remove_dir_all(&proc).unwrap();
        let mut pids: Vec<u32> = scan.unwrap().found.iter().map(|found| found.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, if is_root { vec![42, 77, 99] } else { vec![42, 77] });
        assert!(scan_below(&proc, &Targets::new(&[zero()], Vec::new())).is_err(), "there is no /proc");
    }
}
