//! Memory that a launch has used and a running job does not need: a process of ours that only waits should be small.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU8};

/// Types that may be in memory that stays shared after a fork.
pub(crate) trait Shared: seal::Sealed {}

mod seal {
    /// Types of which zero bytes are a valid value.
    pub(crate) trait Sealed {}
    impl Sealed for std::sync::atomic::AtomicI32 {}
    impl Sealed for std::sync::atomic::AtomicU8 {}
}

impl Shared for AtomicI32 {}
impl Shared for AtomicU8 {}

/// Zeros that stay shared after a fork; untouched pages cost nothing.
pub(crate) fn shared<T: Shared>(count: usize) -> io::Result<&'static [T]> {
    let (bytes, protection) = (count * size_of::<T>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping, wherever the kernel likes.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `bytes` zeroed and page-aligned bytes that are never unmapped; zero is a valid value of each such type.
    Ok(unsafe { std::slice::from_raw_parts(at.cast::<T>(), count) })
}

/// Gives it back to the kernel: what was freed, and the pages of our own file that are mapped. Code that runs or is read again is mapped
/// again from the page cache, sixteen pages at a fault, or as much as one folio of a freshly written file holds.
pub fn give_back() {
    // SAFETY: malloc_trim takes an integer and works on the allocator's own state, under its lock.
    unsafe { libc::malloc_trim(0) };
    // SAFETY: the callback is called with valid descriptions of what is loaded, and takes no data.
    unsafe { libc::dl_iterate_phdr(Some(unmap), std::ptr::null_mut()) };
}

/// Unmaps the pages of one loaded file that hold nothing but what is in the file.
unsafe extern "C" fn unmap(info: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr(3) passes a description that is valid during the call.
    let info = unsafe { &*info };
    // SAFETY: the same holds for its table of `dlpi_phnum` segments.
    let segments = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let page = page_size();
    for segment in
        segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W == 0)
    {
        let whole = |at: u64| usize::try_from(info.dlpi_addr.wrapping_add(at)).unwrap_or(0) / page * page;
        // Rounded down at both ends: the last page may be shared with the next segment.
        let (from, to) = (whole(segment.p_vaddr), whole(segment.p_vaddr.wrapping_add(segment.p_memsz)));
        if from != 0 && from < to {
            // SAFETY: the range is a private mapping of our own file that was not written to: its pages come back with the same bytes
            // when they are touched (madvise(2), MADV_DONTNEED).
            unsafe { libc::madvise(from as *mut c_void, to - from, libc::MADV_DONTNEED) };
        }
    }
    0
}

fn page_size() -> usize {
    // SAFETY: sysconf takes an integer.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd as _, OwnedFd};

    /// The values in /proc about our mappings, by as little code as can be: the code that looks is mapped again before it has looked.
    fn look(smaps: &OwnedFd, text: &mut Vec<u8>) {
        text.clear();
        while crate::fd::read_onto(smaps.as_raw_fd(), text, 64 << 10).is_ok_and(|n| n > 0) {}
    }

    /// The ranges of our code, and how many kilobytes of it are mapped.
    fn code(smaps: &[u8]) -> (Vec<(usize, usize)>, u64) {
        let (mut ranges, mut ours, mut sum) = (Vec::new(), false, 0);
        for line in std::str::from_utf8(smaps).unwrap().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [range, mode, rest @ ..] if range.contains('-') && !range.contains(':') => {
                    // After offset, device and inode; a path may hold spaces.
                    ours = *mode == "r-xp" && rest.get(3).is_some_and(|path| path.starts_with('/'));
                    let ends = range.split_once('-').filter(|_| ours);
                    let number = |text| usize::from_str_radix(text, 16).unwrap();
                    ranges.extend(ends.map(|(from, to)| (number(from), number(to))));
                }
                ["Rss:", kib, ..] if ours => sum += kib.parse::<u64>().unwrap(),
                _ => {}
            }
        }
        (ranges, sum)
    }

    /// Maps all of it. Returns something that depends on what is there.
    fn read_all(ranges: &[(usize, usize)]) -> u64 {
        let bytes = ranges.iter().flat_map(|(from, to)| (*from..*to).step_by(page_size()));
        // SAFETY: the addresses are of mappings that can be read and that stay as long as the process.
        bytes
            .fold(0, |sum: u64, at| sum.rotate_left(5) ^ u64::from(unsafe { std::ptr::read_volatile(at as *const u8) }))
    }

    #[test]
    fn code_is_unmapped_and_comes_back() {
        let open = || OwnedFd::from(std::fs::File::open("/proc/self/smaps").unwrap());
        let (mut before, mut after) = (Vec::with_capacity(1 << 20), Vec::with_capacity(1 << 20));
        look(&open(), &mut before);
        let (ranges, _) = code(&before);
        let there = read_all(&ranges);
        let mut looks = Vec::new();
        for _ in 0..20 {
            let smaps = [open(), open()];
            read_all(&ranges);
            look(&smaps[0], &mut before);
            give_back();
            look(&smaps[1], &mut after);
            looks.push((code(&before).1, code(&after).1));
        }
        // Running code is mapped again before we look, all of a large folio at once; but not all that there is, each time.
        assert!(looks.iter().any(|(before, after)| after < before), "KiB of code before and after: {looks:?}");
        assert_eq!(read_all(&ranges), there, "what is used again is the same");
    }
}
