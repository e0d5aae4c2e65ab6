//! Random bytes from the kernel: names of jobs, where to start looking for a port.

use std::io;

/// `N` random bytes.
///
/// # Errors
/// The kernel has no `getrandom(2)` (before Linux 3.17) or it is filtered.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut out = [0u8; N];
    // SAFETY: `out` is N writable bytes; up to 256 bytes are filled without interruption (getrandom(2)).
    let got = unsafe { libc::getrandom(out.as_mut_ptr().cast(), N, 0) };
    if usize::try_from(got) == Ok(N) { Ok(out) } else { Err(io::Error::last_os_error()) }
}
