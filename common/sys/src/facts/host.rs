//! The name of this host, and how many CPUs of it are ours.

use std::os::unix::ffi::OsStringExt;

/// Words of the affinity mask that are asked for: 65,536 CPUs, eight times what x86 kernels are built for.
const WORDS: usize = 1024;

/// The host's name as the kernel has it; empty where it cannot be had. No name service is asked.
#[must_use]
pub fn hostname() -> Vec<u8> {
    hostname::get().map(OsStringExt::into_vec).unwrap_or_default()
}

/// How many CPUs the calling thread may run on; 0 where that is not known.
#[must_use]
pub fn cpus() -> u32 {
    let mut mask = [0u64; WORDS];
    // SAFETY: `mask` is writable for the length that is passed. The raw call is used because it says how much it wrote,
    // and because libc's cpu_set_t ends at 1,024 CPUs, where hosts with more answer EINVAL.
    let got = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    if got < 0 {
        return 0;
    }
    mask.iter().map(|word| word.count_ones()).sum()
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
