//! Functions of C that the client calls and no safe crate offers: the kernel's, `setenv`, and those in the tables of gloo's classes.
//!
//! A crate of its own beside `rlaunch-sys`, whose dependencies a training program would load for nothing.
#![allow(unsafe_code, reason = "it calls C; every block says why it is sound")]

pub mod gloo;

use gloo::{Kind, rl_gloo};
use std::ffi::{OsStr, c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `bool UnboundBuffer::waitRecv(int *rank, std::chrono::milliseconds timeout)`, and `waitSend`; false: the wait was aborted.
type Wait = unsafe extern "C-unwind" fn(this: *mut c_void, rank: *mut c_int, timeout: i64) -> bool;
/// `void Pair::connect(const std::vector<char> &)`
type Connect = unsafe extern "C-unwind" fn(this: *mut c_void, address: *const c_void);
/// `void UnboundBuffer::abortWaitRecv()`, `abortWaitSend`, `void Pair::close()`
type Abort = unsafe extern "C-unwind" fn(this: *mut c_void);

/// The functions of gloo, by [`Kind`].
struct Gloo {
    wait: [Wait; 2],
    connect: Connect,
    abort: [Abort; 3],
}

static GLOO: OnceLock<Gloo> = OnceLock::new();

unsafe extern "C-unwind" fn wait<const KIND: usize>(this: *mut c_void, rank: *mut c_int, timeout: i64) -> bool {
    let Some(gloo) = GLOO.get() else { return false };
    // SAFETY: what was called, with what it was given.
    gloo::wait(Kind::of(KIND), this.expose_provenance(), timeout, |within| unsafe {
        (gloo.wait[KIND])(this, rank, within)
    })
}

unsafe extern "C-unwind" fn connect(this: *mut c_void, address: *const c_void) {
    let Some(gloo) = GLOO.get() else { return };
    // SAFETY: what was called, with what it was given.
    gloo::connect(this.expose_provenance(), || unsafe { (gloo.connect)(this, address) });
}

impl Gloo {
    /// Ends the wait of a thread at an object.
    fn abort(&self, kind: Kind, held: &gloo::Held<'_>) {
        let abort = self.abort[kind as usize];
        // SAFETY: gloo's own function, for an object with a waiter; `Noted` keeps the waiter there while it is held.
        unsafe { abort(std::ptr::with_exposed_provenance_mut(held.who())) };
    }
}

/// Why gloo's tables keep their own functions.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The caller gave something else than tables and functions of gloo's.
    #[error("{0}")]
    Argument(&'static str),
    /// The table cannot be changed.
    #[error("cannot make a table of gloo's writable: {0}")]
    System(io::Error),
}

/// Puts functions of ours into gloo's tables.
///
/// # Safety
/// Places and functions are those of gloo's classes for TCP, as built for this platform. The places hold what the header says.
pub unsafe fn hold(given: &rl_gloo) -> Result<(), HoldError> {
    let places = [given.wait_recv, given.wait_send, given.connect];
    let (Some(abort_recv), Some(abort_send), Some(close)) = (given.abort_recv, given.abort_send, given.close) else {
        return Err(HoldError::Argument("a function of gloo's is NULL"));
    };
    if places.iter().any(|place| place.is_null() || !place.is_aligned()) {
        return Err(HoldError::Argument("a place in gloo's tables is NULL, or between two"));
    }
    if GLOO.get().is_some() {
        return Ok(());
    }
    // SAFETY: as the caller says, they can be read.
    let was = places.map(|place| unsafe { place.read() });
    if was.iter().any(|was| was.is_null()) {
        return Err(HoldError::Argument("a place in gloo's tables is empty"));
    }
    let gloo = Gloo {
        // SAFETY: as the caller says, that is what is there.
        wait: [was[0], was[1]].map(|was| unsafe { std::mem::transmute::<*mut c_void, Wait>(was) }),
        // SAFETY: the same.
        connect: unsafe { std::mem::transmute::<*mut c_void, Connect>(was[2]) },
        abort: [abort_recv, abort_send, close],
    };
    for place in places {
        // SAFETY: as the caller says, it is in a table.
        unsafe { make_writable(place) }?;
    }
    // Nothing fails from here on: gloo is known exactly if its tables have functions of ours.
    if GLOO.set(gloo).is_ok() {
        let ours =
            [wait::<0> as Wait as *mut c_void, wait::<1> as Wait as *mut c_void, connect as Connect as *mut c_void];
        for (place, ours) in places.into_iter().zip(ours) {
            // SAFETY: it is aligned, can be written now, and is read by whole words; ours takes and does what was there.
            unsafe { AtomicPtr::from_ptr(place) }.store(ours, Ordering::Release);
        }
    }
    Ok(())
}

/// Makes the page of a place writable: a table may be in memory that cannot be written.
///
/// # Safety
/// The place is in a table of functions.
unsafe fn make_writable(place: *mut *mut c_void) -> Result<(), HoldError> {
    // SAFETY: no memory is touched.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).ok().filter(|page| page.is_power_of_two()).unwrap_or(4096);
    let start = place.map_addr(|addr| addr & !(page - 1)).cast::<c_void>();
    // The page stays writable: another thread may be writing to it, and no system call returns the protection that it had.
    // SAFETY: the page is there, as one place of it is, and is read as before.
    if unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        return Err(HoldError::System(io::Error::last_os_error()));
    }
    Ok(())
}

/// Duplicates the descriptor that has this number now.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched; a number that is no descriptor is an error.
    let held = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if held < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was made above, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(held) })
}

/// A descriptor of a process, which can be read once it has exited.
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched; a number that is no process is an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0_i64) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: it was made above, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to one thread of this process. A thread that has ended gets none.
pub fn signal_thread(tid: i32, signo: i32) {
    let pid = libc::c_long::from(std::process::id());
    // SAFETY: no memory is touched; what the signal does is its handler's, which the caller has chosen.
    unsafe { libc::syscall(libc::SYS_tgkill, pid, libc::c_long::from(tid), libc::c_long::from(signo)) };
}

/// Sets or unsets a variable, for `kernel::set_environment`, whose comment says when. The name is not empty and has no `=`. Neither name
/// nor value has a 0 byte.
#[expect(clippy::disallowed_methods, reason = "the program has asked for it: its rank may change while it runs")]
pub fn set_variable(name: &OsStr, value: Option<&OsStr>) {
    match value {
        // SAFETY: the program has asked for it, and its training thread does nothing else meanwhile; Rust's own functions lock.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: the same.
        None => unsafe { std::env::remove_var(name) },
    }
}

/// Stand-ins for the functions of gloo, as its own code would call them.
#[cfg(test)]
mod tests {
    use super::gloo::rl_gloo;
    use super::{Connect, HoldError, Wait, hold};
    use std::ffi::c_void;
    use std::os::fd::AsRawFd as _;
    use std::ptr::null_mut;

    /// The value that a call got.
    pub(crate) fn seen<'a, T>(this: *mut c_void) -> &'a T {
        // SAFETY: the test hands in nothing but leaked buffers of this type.
        unsafe { &*this.cast::<T>() }
    }

    pub(crate) fn held(given: &rl_gloo) -> Result<(), HoldError> {
        // SAFETY: its places are those of a leaked table, or of a file; one that is odd is refused before it is looked at.
        unsafe { hold(given) }
    }

    /// The function that is in a place of the table now.
    pub(crate) fn now_at<T: Copy>(place: *mut *mut c_void) -> T {
        assert_eq!(size_of::<T>(), size_of::<*mut c_void>());
        // SAFETY: the place is a leaked table's, and holds a function of this kind, before and after it was replaced.
        unsafe { place.cast::<T>().read() }
    }

    /// A place that can be read, and whose page cannot be made writable.
    pub(crate) fn read_only() -> *mut *mut c_void {
        let program = std::fs::File::open("/proc/self/exe").unwrap();
        // SAFETY: the mapping is a new one, and is there until the process exits.
        let page = unsafe { libc::mmap(null_mut(), 1, libc::PROT_READ, libc::MAP_SHARED, program.as_raw_fd(), 0) };
        assert_ne!(page, libc::MAP_FAILED);
        page.cast()
    }

    pub(crate) fn wait(function: Wait, this: *mut c_void, timeout: i64) -> bool {
        // SAFETY: as gloo calls it: `this` is what its functions expect, and no rank is asked for.
        unsafe { function(this, null_mut(), timeout) }
    }

    pub(crate) fn connect(function: Connect, this: *mut c_void) {
        // SAFETY: as gloo calls it; no address is looked at.
        unsafe { function(this, std::ptr::null()) }
    }
}
