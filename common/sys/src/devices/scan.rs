//! The search for processes that hold device files.

use super::Node;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
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
    /// The process holds some VFIO device, and the kernel does not tell which.
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

/// The descriptors of a process. Those of a thread, where the main thread has exited: then the process shows none.
fn descriptors(proc: BorrowedFd<'_>, pid: u32, targets: &Targets, found: &mut Found) -> Result<(), Errno> {
    let own = format!("{pid}/fd");
    if look(proc, &own, targets, found)? > 0 {
        return Ok(());
    }
    let tasks = format!("{pid}/task");
    let mut threads = Dir::openat(proc, tasks.as_str(), READ, Mode::empty())?;
    for thread in threads.iter().map_while(Result::ok).filter_map(|entry| number(entry.file_name())) {
        if thread != pid && look(proc, &format!("{tasks}/{thread}/fd"), targets, found)? > 0 {
            return Ok(());
        }
    }
    Ok(())
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
        let Ok(stat) = fstatat(dir.as_fd(), name, AtFlags::empty()) else { continue };
        if is_character_device(&stat) && targets.rdevs.contains(&stat.st_rdev) {
            found.rdevs.insert(stat.st_rdev);
        } else if targets.anonymous == Some(stat.st_dev) {
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
        let path = format!("{pid}/map_files");
        let Ok(mut maps) = Dir::openat(base.as_fd(), path.as_str(), READ, Mode::empty()) else { continue };
        let Ok(dir) = maps.as_fd().try_clone_to_owned() else { continue };
        let mut found = Found { pid, rdevs: BTreeSet::new(), is_unsure: false };
        for entry in maps.iter().map_while(Result::ok) {
            let Ok(stat) = fstatat(dir.as_fd(), entry.file_name(), AtFlags::empty()) else { continue };
            if is_character_device(&stat) && targets.rdevs.contains(&stat.st_rdev) {
                found.rdevs.insert(stat.st_rdev);
            }
        }
        holders.extend(Some(found).filter(|found| !found.rdevs.is_empty()));
    }
    Ok(holders)
}

fn open(path: &Path) -> io::Result<Dir> {
    Ok(Dir::open(path, READ, Mode::empty())?)
}

fn is_character_device(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR
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
        let scan = scan_below(&proc, &Targets::new(&[zero()], Vec::new()));
        std::fs::remove_dir_all(&proc).unwrap();
        let mut pids: Vec<u32> = scan.unwrap().found.iter().map(|found| found.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [42, 77]);
        assert!(scan_below(&proc, &Targets::new(&[zero()], Vec::new())).is_err(), "there is no /proc");
    }
}
