//! The Linux edges: processes, namespaces, signals, descriptors. All unsafe code of the launcher and the agent is here.
#![allow(unsafe_code, reason = "this is the room for it; every block says why it is sound")]

pub mod abstract_name;
pub mod approach;
pub mod background;
pub mod child;
pub mod children;
pub mod clock;
pub mod command;
pub mod detached_descendants;
pub mod devices;
pub mod directory;
pub mod directory_watch;
pub mod doorbell;
pub mod epoll;
mod errno;
pub mod facts;
pub mod fd;
pub mod guardian;
pub mod helper_command;
pub mod holders;
pub mod job_parts;
pub mod memory;
pub mod namespaces;
pub mod ns;
pub mod origin;
pub mod pidfd;
pub mod port;
pub mod random;
pub mod rights;
pub mod seccomp;
pub mod sessions;
pub mod signals;
pub mod slots;
pub mod sock_diag;
pub mod socket;
pub mod spawn;
pub mod ssh_reaper;
pub mod thread;
pub mod timer;
pub mod tty;
pub mod unix;

mod cstr;
mod init;

/// Whether descriptors or memory ran out: trying something else instead does not help then.
#[must_use]
pub fn is_shortage(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Whether `accept(2)` failed for one connection only, because its client has closed it. The next connection may be ready.
#[must_use]
pub fn is_aborted_connection(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR))
}

/// The text of a system error, in words that fit after a colon: "no such file or directory".
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let number = error.raw_os_error().map(|errno| format!(" (os error {errno})")).unwrap_or_default();
    let mut chars = text.strip_suffix(&number).unwrap_or(&text).chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
