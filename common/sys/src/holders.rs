//! Which process of a job holds a socket.
//!
//! The kernel tells of a connection the inode of its socket (`sock_diag`), and /proc/PID/fd whose descriptors lead there. To look
//! through all processes takes milliseconds, so one look answers for all that is asked, and where the last socket of a process was
//! found the next one is looked for first: descriptors are numbered upwards. How often is looked is the caller's matter: a look finds
//! no process that forks and ends, passing its sockets on, while it goes on.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

/// How far behind the last descriptor of a process the next one is looked for.
const NEAR: i32 = 4;
/// Most processes that are remembered.
const KNOWN: usize = 4096;
/// Generations between a process and the one above its job: far more than there are.
const DEEPEST: usize = 256;

/// A process, and when it was started: its number may be another's later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Process {
    /// Its number on this host.
    pub pid: i32,
    /// When it was started, in ticks since boot: field 22 of proc_pid_stat(5).
    pub started: u64,
}

/// Where sockets were found.
#[derive(Debug, Default)]
pub struct Holders {
    /// Members of the job, and the descriptor at which a socket of theirs was found last.
    known: BTreeMap<i32, (Process, i32)>,
    /// Which of them connected last.
    last: i32,
}

impl Holders {
    /// Who of those below the process `above` holds each of these sockets: one look through all processes.
    pub fn find(&mut self, above: i32, inodes: &[u32]) -> Vec<Option<Process>> {
        let mut found: Vec<Option<Process>> = vec![None; inodes.len()];
        let wanted: BTreeMap<u32, usize> = inodes.iter().copied().zip(0..).collect();
        self.look(above, &wanted, &mut found);
        found
    }

    /// The process that connected last, a few descriptors behind that one.
    pub fn guess(&mut self, inode: u32) -> Option<Process> {
        let (process, fd) = self.known.get_mut(&self.last)?;
        let hit = (*fd..fd.saturating_add(NEAR)).find(|fd| socket_at(process.pid, *fd) == Some(inode))?;
        // It is still the same process: one look at its file tells.
        if started(process.pid) != Some(process.started) {
            self.known.remove(&self.last);
            return None;
        }
        *fd = hit;
        Some(*process)
    }

    fn look(&mut self, above: i32, wanted: &BTreeMap<u32, usize>, found: &mut [Option<Process>]) {
        // Descriptors of others cannot be read, and are none of ours.
        let own = nix::unistd::geteuid().as_raw();
        let mut left = wanted.len();
        for pid in numbers("/proc") {
            if left == 0 {
                return;
            }
            if !is_readable(pid, own) {
                continue;
            }
            let mut member = None;
            for fd in numbers(&format!("/proc/{pid}/fd")) {
                let Some(at) = socket_at(pid, fd).and_then(|inode| wanted.get(&inode)) else { continue };
                if member.is_none() && !is_below(pid, above) {
                    break;
                }
                let Some(process) = member.or_else(|| Some(Process { pid, started: started(pid)? })) else { break };
                member = Some(process);
                if let Some(slot @ None) = found.get_mut(*at) {
                    *slot = Some(process);
                    left = left.saturating_sub(1);
                    self.remember(process, fd);
                }
            }
        }
    }

    fn remember(&mut self, process: Process, fd: i32) {
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.last = process.pid;
        self.known.insert(process.pid, (process, fd));
    }
}

/// A process of this user; root may look at all.
fn is_readable(pid: i32, own: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| own == 0 || meta.uid() == own)
}

/// The processes below another one that are of this user.
pub(crate) fn below(above: i32) -> impl Iterator<Item = i32> {
    let own = nix::unistd::geteuid().as_raw();
    numbers("/proc").filter(move |pid| is_readable(*pid, own) && is_below(*pid, above))
}

/// Entries of a directory that are numbers.
fn numbers(dir: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The inode of the socket that a descriptor leads to.
fn socket_at(pid: i32, fd: i32) -> Option<u32> {
    let mut path = [0u8; 40];
    let room = path.len();
    let mut rest = &mut path[..];
    write!(rest, "/proc/{pid}/fd/{fd}").ok()?;
    let len = room - rest.len();
    let link = nix::fcntl::readlink(std::str::from_utf8(path.get(..len)?).ok()?).ok()?;
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether a process descends from another. The reparented count: they go to one that stands above.
fn is_below(pid: i32, above: i32) -> bool {
    let mut at = pid;
    for _ in 0..DEEPEST {
        match field(at, 4).and_then(|parent| i32::try_from(parent).ok()) {
            Some(parent) if parent == above => return true,
            Some(parent) if parent > 1 => at = parent,
            Some(_) | None => return false,
        }
    }
    false
}

fn started(pid: i32) -> Option<u64> {
    field(pid, 22)
}

/// A field of /proc/PID/stat, counted from 1, behind the name: that may hold anything.
fn field(pid: i32, number: usize) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.get(stat.iter().rposition(|b| *b == b')')? + 2..)?;
    std::str::from_utf8(rest.split(|b| *b == b' ').nth(number.checked_sub(3)?)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, fcntl};
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

    /// One behind the other from a number on that is no other test's: they run side by side.
    fn sockets(from: i32, count: usize) -> (Vec<OwnedFd>, Vec<u32>) {
        let one = || {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let fd = fcntl(&socket, FcntlArg::F_DUPFD_CLOEXEC(from)).unwrap();
            // SAFETY: a new descriptor, which nobody else has.
            unsafe { OwnedFd::from_raw_fd(fd) }
        };
        let all: Vec<OwnedFd> = (0..count).map(|_| one()).collect();
        let own = i32::try_from(std::process::id()).unwrap();
        let inodes = all.iter().map(|socket| socket_at(own, socket.as_raw_fd()).unwrap()).collect();
        (all, inodes)
    }

    #[test]
    fn the_holder_is_found_below_whoever_stands_above_it() {
        let own = i32::try_from(std::process::id()).unwrap();
        let above = nix::unistd::getppid().as_raw();
        let (held, inodes) = sockets(500, 20);
        let mut holders = Holders::default();
        let found = holders.find(above, &inodes);
        assert!(found.iter().all(|process| process.is_some_and(|process| process.pid == own)), "{found:?}");
        assert_eq!(Holders::default().find(own, &inodes), vec![None; 20], "nobody is below itself");
        drop(held);
        assert_eq!(holders.find(above, &inodes), vec![None; 20], "nobody holds them any more");
    }

    #[test]
    fn the_next_one_is_where_the_last_one_was() {
        let above = nix::unistd::getppid().as_raw();
        let (_held, inodes) = sockets(600, 3);
        let mut holders = Holders::default();
        let process = holders.find(above, &inodes[..1])[0];
        assert_eq!(holders.guess(inodes[1]), process);
        assert_eq!(holders.guess(inodes[2]), process);
        assert_eq!(holders.guess(u32::MAX), None);
    }

    #[test]
    fn a_number_that_is_anothers_by_now_is_not_believed() {
        let above = nix::unistd::getppid().as_raw();
        let (_held, inodes) = sockets(700, 2);
        let mut holders = Holders::default();
        let process = holders.find(above, &inodes[..1])[0].unwrap();
        let other = Process { started: process.started + 1, ..process };
        holders.known.values_mut().for_each(|(known, _)| *known = other);
        assert_eq!(holders.guess(inodes[1]), None);
        assert!(holders.known.is_empty());
    }

    #[test]
    fn a_name_can_hold_anything() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(field(own, 4).unwrap(), u64::from(std::os::unix::process::parent_id()));
        assert!(started(own).unwrap() > 0);
        assert_eq!(started(-1), None);
    }
}
