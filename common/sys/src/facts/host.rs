//! The name of this host, how many CPUs of it are ours, and its GPUs.

use std::fs::DirEntry;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Words of the affinity mask that are asked for: 65,536 CPUs, eight times what x86 kernels are built for.
const WORDS: usize = 1024;

/// The host's name as the kernel has it; empty where it cannot be had. No name service is asked.
#[must_use]
pub fn hostname() -> Vec<u8> {
    hostname::get().map(OsStringExt::into_vec).unwrap_or_default()
}

/// The identity of this host: the boot of its kernel, and of the kernel's containers the one that we are in, if it has a name or a
/// network of its own (namespaces(7)). Copies of a running virtual machine have all that in common, but hardly the name. Not
/// /etc/machine-id, which images of containers and machines bring along. Empty where it cannot be had.
#[must_use]
pub fn machine() -> Vec<u8> {
    let space = |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}"));
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    let (Ok(boot), Ok(uts), Ok(net)) = (boot, space("uts"), space("net")) else { return Vec::new() };
    let (uts, net) = (uts.into_os_string().into_vec(), net.into_os_string().into_vec());
    [boot.trim_ascii_end(), &uts, &net, &hostname()].join(&b' ')
}

/// How many CPUs the calling thread may run on; 0 where that is not known.
#[must_use]
pub fn cpus() -> u32 {
    mask().map_or(0, |mask| mask.iter().map(|word| word.count_ones()).sum())
}

/// The CPUs that the calling thread may run on; none where that is not known.
#[must_use]
pub fn allowed_cpus() -> Vec<u32> {
    let mask = mask().unwrap_or([0; WORDS]);
    let of_word =
        |(at, word): (u32, u64)| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit);
    (0..).zip(mask).flat_map(of_word).collect()
}

fn mask() -> Option<[u64; WORDS]> {
    let mut mask = [0u64; WORDS];
    // SAFETY: `mask` is writable for the length that is passed. The raw call is used because it says how much it wrote,
    // and because libc's cpu_set_t ends at 1,024 CPUs, where hosts with more answer EINVAL.
    let got = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    (got >= 0).then_some(mask)
}

/// The GPUs of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpus {
    /// Whether they are AMD's.
    pub amd: bool,
    /// How many; `None`: where drivers show them cannot be read.
    pub count: Option<u32>,
}

/// The GPUs that this host has, as its drivers show them: NVIDIA's device files, else AMD's nodes with compute units. A program decides
/// by itself which of them it uses.
#[must_use]
pub fn gpus() -> Gpus {
    either(nvidia(Path::new("/dev")), amd(Path::new("/sys/class/kfd/kfd/topology/nodes")))
}

/// The first that has some; none only if that is known of both.
fn either(nvidia: Option<u32>, amd: Option<u32>) -> Gpus {
    let some = |count: Option<u32>| count.filter(|count| *count > 0);
    let is_amd = some(nvidia).is_none() && some(amd).is_some();
    Gpus { amd: is_amd, count: some(nvidia).or(some(amd)).or(nvidia.and(amd)) }
}

fn count(dir: &Path, is_gpu: impl Fn(&DirEntry) -> bool) -> io::Result<u32> {
    let mut gpus = 0;
    for entry in std::fs::read_dir(dir)? {
        gpus += u32::from(is_gpu(&entry?));
    }
    Ok(gpus)
}

/// `nvidia0`, `nvidia1`; not `nvidiactl`, `nvidia-uvm`.
fn nvidia(dev: &Path) -> Option<u32> {
    let is_gpu = |name: &[u8]| {
        name.strip_prefix(b"nvidia").is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
    };
    count(dev, |entry| is_gpu(entry.file_name().as_encoded_bytes())).ok()
}

/// Processors are nodes too, without compute units. Without the driver there is no directory.
fn amd(nodes: &Path) -> Option<u32> {
    let is_gpu = |properties: String| {
        properties.lines().filter_map(|line| line.strip_prefix("simd_count ")).any(|count| count.trim() != "0")
    };
    match count(nodes, |node| std::fs::read_to_string(node.path().join("properties")).is_ok_and(is_gpu)) {
        Ok(gpus) => Some(gpus),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(0),
        Err(_) => None,
    }
}

/// Memory of a host, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Memory that programs could still have.
    pub available: u64,
    /// All there is.
    pub total: u64,
    /// Free swap space.
    pub swap_free: u64,
    /// All swap space.
    pub swap_total: u64,
}

/// The memory of this host; `None` where the kernel does not say.
#[must_use]
pub fn memory() -> Option<Memory> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_memory();
    let (available, total) = (system.available_memory(), system.total_memory());
    let (swap_free, swap_total) = (system.free_swap(), system.total_swap());
    (total > 0).then_some(Memory { available, total, swap_free, swap_total })
}

/// Resources of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessUse {
    /// Its resident memory in bytes.
    pub memory: u64,
    /// Seconds since its start.
    pub seconds: u64,
}

/// Resources of a process; `None`: there is no such process.
#[must_use]
pub fn process(pid: u32) -> Option<ProcessUse> {
    let mut system = sysinfo::System::new().ok()?;
    let pid = sysinfo::Pid::from_u32(pid);
    let wanted = sysinfo::ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(sysinfo::ProcessesToUpdate::Some(&[pid]), true, wanted);
    system.process(pid).map(|process| ProcessUse { memory: process.memory(), seconds: process.run_time() })
}

/// The load averages of 1, 5 and 15 minutes; `None` where the kernel does not say.
#[must_use]
pub fn load() -> Option<[f64; 3]> {
    sysinfo::System::load_average().ok().map(|load| [load.one, load.five, load.fifteen])
}

/// Whether programs in this directory cannot be executed because of how it is mounted.
#[must_use]
pub fn is_noexec(dir: &Path) -> bool {
    nix::sys::statvfs::statvfs(dir).is_ok_and(|fs| fs.flags().contains(nix::sys::statvfs::FsFlags::ST_NOEXEC))
}

/// The user and group that we, and so the ranks, run as.
#[must_use]
pub fn user() -> (u32, u32) {
    (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_kernels() {
        let kernel = std::fs::read("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(hostname(), kernel.trim_ascii_end());
    }

    #[test]
    fn machine_is_identified_by_its_boot_and_its_namespaces() {
        let text = String::from_utf8(machine()).unwrap();
        let words: Vec<&str> = text.split(' ').collect();
        assert_eq!(words.len(), 4, "{text}");
        assert!(words[0].len() == 36 && words[1].starts_with("uts:[") && words[2].starts_with("net:["), "{text}");
        assert_eq!(machine(), text.as_bytes(), "and always the same");
    }

    #[test]
    fn gpus_are_those_of_the_drivers() {
        let dir = std::env::temp_dir().join(format!("rlaunch-gpus-{}", std::process::id()));
        for (node, simds) in [("0", "0"), ("1", "208"), ("2", "208")] {
            std::fs::create_dir_all(dir.join(node)).unwrap();
            std::fs::write(dir.join(node).join("properties"), format!("cpu_cores_count 8\nsimd_count {simds}\n"))
                .unwrap();
        }
        for name in ["nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "null"] {
            std::fs::write(dir.join(name), "").unwrap();
        }
        assert_eq!((nvidia(&dir), amd(&dir)), (Some(2), Some(2)));
        let file = dir.join("null");
        assert_eq!((nvidia(&file), amd(&file)), (None, None), "what cannot be read says nothing");
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((nvidia(&dir), amd(&dir)), (None, Some(0)));
    }

    #[test]
    fn no_gpus_are_those_that_nobody_has() {
        for (one, other, all) in [
            (Some(2), Some(3), (false, Some(2))),
            (Some(0), Some(3), (true, Some(3))),
            (None, Some(3), (true, Some(3))),
            (Some(0), Some(0), (false, Some(0))),
            (None, Some(0), (false, None)),
            (Some(0), None, (false, None)),
        ] {
            let (amd, count) = all;
            assert_eq!(either(one, other), Gpus { amd, count });
        }
    }

    #[test]
    fn memory_is_some_of_it() {
        let Memory { available, total, swap_free, swap_total } = memory().unwrap();
        assert!(available > 0 && available < total, "{available} of {total}");
        assert!(swap_free <= swap_total, "{swap_free} of {swap_total}");
        let own = process(std::process::id()).unwrap();
        assert!(own.memory > 0 && own.memory < total && own.seconds < 86_400, "{own:?}");
        assert_eq!(process(u32::MAX >> 1), None);
        assert!(load().unwrap().iter().all(|load| *load >= 0.0));
    }

    #[test]
    fn proc_is_mounted_without_programs() {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let proc = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/proc")).unwrap();
        assert_eq!(is_noexec(Path::new("/proc")), proc.contains("noexec"));
        assert!(!is_noexec(Path::new("/no/where")));
    }

    #[test]
    fn cpus_are_those_of_the_mask() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
        let count = |range: &str| match range.split_once('-') {
            Some((a, b)) => b.parse::<u32>().unwrap() - a.parse::<u32>().unwrap() + 1,
            None => 1,
        };
        assert_eq!(cpus(), list.trim().split(',').map(count).sum::<u32>());
    }
}
