//! Which process of a job holds a socket.
//!
//! The kernel reports the inode of a connection's socket (`sock_diag`), and /proc/PID/fd shows whose descriptors lead there. A look through
//! all processes takes milliseconds, so one look answers all questions. The next socket of a process is looked for first where the last
//! one was found: descriptors are numbered upwards. The caller decides how often it looks: a look finds no process that forks and ends
//! meanwhile, passing its sockets on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

/// Number of descriptors after the last one of a process in which the next one is looked for.
const NEAR: i32 = 4;
/// Most processes that are remembered: each costs a descriptor, and a look when a socket is another's.
const KNOWN: usize = 8;
/// As much of a /proc/PID/stat as holds its first 22 fields, however long each is.
const STAT: usize = 1024;
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

impl Process {
    /// Returns the process that has the number.
    fn now(pid: i32) -> Option<Self> {
        Some(Self { pid, started: started(pid)? })
    }
}

/// A member of the job that has connected.
#[derive(Debug)]
struct Member {
    process: Process,
    /// The descriptor at which a socket of it was found last.
    fd: i32,
    /// Its /proc/PID/fd. The open directory is of this process and no other: after its end nothing can be found there, whatever process
    /// has its number then.
    dir: OwnedFd,
}

/// The places where sockets were found.
#[derive(Debug, Default)]
pub struct Holders {
    /// The processes by their last connection, the latest first.
    known: VecDeque<Member>,
}

/// A socket that a look through all processes has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The process that has connected.
    pub process: Process,
    /// The descriptor of the socket there.
    fd: i32,
}

/// Looks through all processes. On a host with many of them one look takes a large part of a second.
#[derive(Debug, Default)]
pub struct Finder {
    /// Processes whose sockets were found, while they live.
    met: BTreeSet<i32>,
}

impl Finder {
    /// Finds the process below `above` that holds each of these sockets: one look through all processes.
    pub fn find(&mut self, above: i32, inodes: &[u32]) -> Vec<Option<Found>> {
        let mut found: Vec<Option<Found>> = vec![None; inodes.len()];
        let wanted: BTreeMap<u32, usize> = inodes.iter().copied().zip(0..).collect();
        self.look(above, &wanted, &mut found);
        found
    }

    fn look(&mut self, above: i32, wanted: &BTreeMap<u32, usize>, found: &mut [Option<Found>]) {
        // Descriptors of others cannot be read, and are none of ours.
        let own = nix::unistd::geteuid().as_raw();
        let mut left = wanted.len();
        let mut parents = Parents::default();
        for pid in self.in_turn(above) {
            if left == 0 {
                return;
            }
            // Descriptors of other processes are not read: there may be very many.
            if !is_readable(pid, own) || !parents.are_below(pid, above) {
                continue;
            }
            let mut member: Option<(Process, Vec<i32>)> = None;
            for fd in numbers(&format!("/proc/{pid}/fd")) {
                let Some(inode) = socket_at(pid, fd) else { continue };
                let Some(at) = wanted.get(&inode) else { continue };
                if member.is_none() {
                    let lineage = lineage(pid, above);
                    member = lineage.and_then(|lineage| Some((Process::now(pid)?, lineage)));
                }
                let Some((process, lineage)) = &member else { break };
                let process = forked_from(lineage, fd, inode).and_then(Process::now).unwrap_or(*process);
                if let Some(slot @ None) = found.get_mut(*at) {
                    *slot = Some(Found { process, fd });
                    left = left.saturating_sub(1);
                    self.met.insert(process.pid);
                }
            }
        }
    }

    /// All processes, in the order in which they are looked at. A job's are younger than the one above them, mostly, and many meet once,
    /// in the order in which they were started: so who has not been met yet comes first, the oldest of them before the others.
    fn in_turn(&mut self, above: i32) -> Vec<i32> {
        let mut pids: Vec<i32> = numbers("/proc").collect();
        pids.sort_unstable();
        self.met.retain(|pid| pids.binary_search(pid).is_ok());
        pids.sort_by_key(|pid| (self.met.contains(pid), *pid <= above));
        pids
    }
}

impl Holders {
    /// Looks at the processes that connected last, a few descriptors after the last one.
    pub fn guess(&mut self, inode: u32) -> Option<Process> {
        let at = self.known.iter_mut().position(|member| member.holds(inode))?;
        if at > 0 {
            let member = self.known.remove(at)?;
            self.known.push_front(member);
        }
        self.known.front().map(|member| member.process)
    }

    /// Sockets that known processes hold after the last one that was found, by inode. Used when many connections came together: one
    /// reading serves all of them, instead of one reading of each known process for each connection.
    pub fn recent(&mut self) -> BTreeMap<u32, Process> {
        let mut held = BTreeMap::new();
        for member in &mut self.known {
            let mut at = member.fd;
            // The descriptor of the last socket may have been used again.
            held.extend(socket(member.dir.as_fd(), format_args!("{at}")).map(|inode| (inode, member.process)));
            while let Some((fd, inode)) = member.next_after(at) {
                held.insert(inode, member.process);
                at = fd;
            }
            member.fd = at;
        }
        held
    }

    /// Remembers where a socket was found: the next one of the process is near.
    pub fn remember(&mut self, Found { process, fd }: Found) {
        if let Some(member) = self.known.front_mut().filter(|member| member.process == process) {
            member.fd = fd;
            return;
        }
        self.known.retain(|member| member.process != process);
        let Ok(dir) = fs::File::open(format!("/proc/{}/fd", process.pid)) else { return };
        // The number may have become another's just now.
        if started(process.pid) == Some(process.started) {
            self.known.truncate(KNOWN - 1);
            self.known.push_front(Member { process, fd, dir: dir.into() });
        }
    }
}

impl Member {
    /// Whether it holds that socket: after the last one, or at its place, which may be closed by now.
    fn holds(&mut self, inode: u32) -> bool {
        let near = (1..NEAR).map(|more| self.fd.saturating_add(more)).chain([self.fd]);
        let hit = near.into_iter().find(|fd| socket(self.dir.as_fd(), format_args!("{fd}")) == Some(inode));
        self.fd = hit.unwrap_or(self.fd);
        hit.is_some()
    }

    /// The next socket after a descriptor, a few numbers later.
    fn next_after(&self, fd: i32) -> Option<(i32, u32)> {
        let near = (1..NEAR).map(|more| fd.saturating_add(more));
        let mut sockets = near.filter_map(|fd| Some((fd, socket(self.dir.as_fd(), format_args!("{fd}"))?)));
        sockets.next()
    }
}

/// Parents of processes, as far as one search has read them.
#[derive(Debug, Default)]
struct Parents(BTreeMap<i32, Option<i32>>);

impl Parents {
    /// Whether a process descends from another. Each parent is read once.
    fn are_below(&mut self, pid: i32, above: i32) -> bool {
        let mut at = pid;
        for _ in 0..DEEPEST {
            match self.0.entry(at).or_insert_with(|| parent(at)) {
                Some(parent) if *parent == above => return true,
                Some(parent) if *parent > 1 => at = *parent,
                Some(_) | None => return false,
            }
        }
        false
    }
}

/// A process of this user; root may look at all.
fn is_readable(pid: i32, own: u32) -> bool {
    own == 0 || fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == own)
}

/// Whether a user has a process below another one.
#[must_use]
pub fn is_any_below(above: i32, user: u32) -> bool {
    let is_users = |pid: &i32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == user);
    numbers("/proc").filter(is_users).any(|pid| is_below(pid, above))
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
    socket(nix::fcntl::AT_FDCWD, format_args!("/proc/{pid}/fd/{fd}"))
}

/// The inode of the socket that a link leads to, in a directory.
fn socket(dir: BorrowedFd<'_>, link: std::fmt::Arguments<'_>) -> Option<u32> {
    let mut path = [0u8; 40];
    let room = path.len();
    let mut rest = &mut path[..];
    rest.write_fmt(link).ok()?;
    let len = room - rest.len();
    let leads_to = nix::fcntl::readlinkat(dir, std::str::from_utf8(path.get(..len)?).ok()?).ok()?;
    leads_to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether a process is one of the leaders, descends from one of them, or is in the session of one of them. The session stays the same
/// when a parent has exited. The leaders descend from the process `above`.
#[must_use]
pub fn belongs_to(pid: i32, leaders: &[i32], above: i32) -> bool {
    let has_begun = |leader: &i32| u64::try_from(*leader).ok().is_some_and(|leader| field(pid, 6) == Some(leader));
    leaders.contains(&pid)
        || leaders.iter().any(has_begun)
        || lineage(pid, above).is_some_and(|between| between.iter().any(|parent| leaders.contains(parent)))
}

/// The processes that may be leaders of a process: itself, those between it and the one above it, and the leader of its session.
#[must_use]
pub fn leaders_of(pid: i32, above: i32) -> Vec<i32> {
    let session = field(pid, 6).and_then(|leader| i32::try_from(leader).ok());
    let between = lineage(pid, above).unwrap_or_default();
    [pid].into_iter().chain(between).chain(session).collect()
}

/// Whether a process descends from another. The reparented count: they go to one that stands above.
#[must_use]
pub fn is_below(pid: i32, above: i32) -> bool {
    lineage(pid, above).is_some()
}

/// The processes between a process and the one above it, its parent first; `None`: it is not below that.
fn lineage(pid: i32, above: i32) -> Option<Vec<i32>> {
    let mut between = Vec::new();
    let mut at = pid;
    for _ in 0..DEEPEST {
        match parent(at) {
            Some(parent) if parent == above => return Some(between),
            Some(parent) if parent > 1 => {
                between.push(parent);
                at = parent;
            }
            Some(_) | None => return None,
        }
    }
    None
}

/// A process that is just being forked has its parent's descriptors under the same numbers: the oldest above it that has this socket there.
fn forked_from(lineage: &[i32], fd: i32, inode: u32) -> Option<i32> {
    lineage.iter().copied().take_while(|pid| socket_at(*pid, fd) == Some(inode)).last()
}

fn parent(pid: i32) -> Option<i32> {
    field(pid, 4).and_then(|parent| i32::try_from(parent).ok())
}

/// When a process was started, in ticks since boot.
pub(crate) fn started(pid: i32) -> Option<u64> {
    field(pid, 22)
}

/// A field of /proc/PID/stat, counted from 1, after the name, which may hold any character.
fn field(pid: i32, number: usize) -> Option<u64> {
    // The kernel gives it whole, or as much as there is room: what is wanted stands in its first half.
    let mut room = [0; STAT];
    let len = fs::File::open(format!("/proc/{pid}/stat")).and_then(|mut stat| stat.read(&mut room)).ok()?;
    let stat = room.get(..len)?;
    let rest = stat.get(stat.iter().rposition(|b| *b == b')')? + 2..)?;
    std::str::from_utf8(rest.split(|b| *b == b' ').nth(number.checked_sub(3)?)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "processes that hold something, not ranks")]
    use super::*;

    /// A look of which all is remembered.
    fn find(holders: &mut Holders, above: i32, inodes: &[u32]) -> Vec<Option<Process>> {
        let found = Finder::default().find(above, inodes);
        found.iter().flatten().for_each(|found| holders.remember(*found));
        found.into_iter().map(|found| Some(found?.process)).collect()
    }
    use nix::fcntl::{FcntlArg, fcntl};
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    use std::process::{Child, Command, Stdio};
    use std::sync::Mutex;

    /// A child of one test must not have the sockets of another one's, if only until it runs its program.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Consecutive sockets from a number on that is no other test's: they run side by side.
    fn sockets(from: i32, count: usize) -> (Vec<OwnedFd>, Vec<u32>) {
        let one = || {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let fd = fcntl(&socket, FcntlArg::F_DUPFD_CLOEXEC(from)).unwrap();
            // SAFETY: a new descriptor without another owner.
            unsafe { OwnedFd::from_raw_fd(fd) }
        };
        let all: Vec<OwnedFd> = (0..count).map(|_| one()).collect();
        let own = i32::try_from(std::process::id()).unwrap();
        let inodes = all.iter().map(|socket| socket_at(own, socket.as_raw_fd()).unwrap()).collect();
        (all, inodes)
    }

    #[test]
    fn holder_is_found_below_its_ancestor() {
        let _alone = ONE_AT_A_TIME.lock();
        let own = i32::try_from(std::process::id()).unwrap();
        let above = nix::unistd::getppid().as_raw();
        let (held, inodes) = sockets(500, 20);
        let mut holders = Holders::default();
        let found = find(&mut holders, above, &inodes);
        assert!(found.iter().all(|process| process.is_some_and(|process| process.pid == own)), "{found:?}");
        assert_eq!(holders.guess(inodes[19]), found[19], "who is known is not looked for again");
        assert_eq!(find(&mut Holders::default(), own, &inodes), vec![None; 20], "nobody is below itself");
        drop(held);
        assert_eq!(find(&mut holders, above, &inodes), vec![None; 20], "nobody holds them any more");
    }

    #[test]
    fn the_next_one_is_where_the_last_one_was() {
        let _alone = ONE_AT_A_TIME.lock();
        let above = nix::unistd::getppid().as_raw();
        let (_held, inodes) = sockets(600, 3);
        let mut holders = Holders::default();
        let process = find(&mut holders, above, &inodes[..1])[0];
        assert_eq!(holders.guess(inodes[1]), process);
        assert_eq!(holders.guess(inodes[2]), process);
        assert_eq!(holders.guess(u32::MAX), None);
    }

    #[test]
    fn sockets_that_come_together_are_found_by_one_reading() {
        let _alone = ONE_AT_A_TIME.lock();
        let above = nix::unistd::getppid().as_raw();
        let (_held, inodes) = sockets(650, 12);
        let mut holders = Holders::default();
        let process = find(&mut holders, above, &inodes[..1])[0].unwrap();
        let recent = holders.recent();
        assert!(inodes.iter().all(|inode| recent.get(inode) == Some(&process)), "{recent:?}");
        assert_eq!(holders.guess(inodes[11]), Some(process), "the next socket is after the last");
        assert!(Holders::default().recent().is_empty());
    }

    #[test]
    fn process_belongs_to_its_ancestors_and_session_leader_only() {
        let own = i32::try_from(std::process::id()).unwrap();
        let above = nix::unistd::getppid().as_raw();
        let start = |words: &str| Command::new("sh").args(["-c", words]).stdin(Stdio::piped()).spawn().unwrap();
        let (mut one, mut other) = (start("cat; :"), start("cat; :"));
        let [pid, sibling] = [&one, &other].map(|child| i32::try_from(child.id()).unwrap());
        let grandchild = || numbers("/proc").find(|child| parent(*child) == Some(pid));
        let grandchild = core::iter::repeat_with(grandchild).find_map(|found| found).unwrap();
        for (process, leaders, belongs) in [
            (pid, &[pid][..], true),
            (grandchild, &[pid], true),
            (grandchild, &[sibling, pid], true),
            (grandchild, &[sibling], false),
            (sibling, &[pid], false),
            (own, &[pid], false),
            (grandchild, &[], false),
        ] {
            assert_eq!(belongs_to(process, leaders, above), belongs, "{process} {leaders:?}");
        }
        let session = i32::try_from(field(grandchild, 6).unwrap()).unwrap();
        assert!(belongs_to(grandchild, &[session], above), "a process belongs to the leader of its session");
        for child in [&mut one, &mut other] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn exited_process_holds_no_socket_after_number_reuse() {
        let _alone = ONE_AT_A_TIME.lock();
        let own = i32::try_from(std::process::id()).unwrap();
        let (mut held, inodes) = sockets(700, 1);
        let mut child = Command::new("sleep").arg("100").stdin(held.remove(0)).spawn().unwrap();
        // A child of another test has the socket too until its program begins.
        let look = || {
            let mut holders = Holders::default();
            let found = find(&mut holders, own, &inodes)[0].unwrap();
            (found.pid.unsigned_abs() == child.id()).then_some((holders, found))
        };
        let (mut holders, found) = core::iter::repeat_with(look).find_map(|seen| seen).unwrap();
        assert_eq!(holders.guess(inodes[0]), Some(found));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(holders.guess(inodes[0]), None);
    }

    #[test]
    fn forked_child_is_not_taken_for_the_owner() {
        let _alone = ONE_AT_A_TIME.lock();
        let own = i32::try_from(std::process::id()).unwrap();
        let (mut held, inodes) = sockets(900, 1);
        // A shell and what it starts have the same stdin.
        let mut child = Command::new("sh")
            .args(["-c", "sleep 100; :"])
            .stdin(held.remove(0))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let shell = i32::try_from(child.id()).unwrap();
        let grandchild = || numbers("/proc").find(|pid| field(*pid, 4) == Some(u64::from(child.id())));
        let grandchild = core::iter::repeat_with(grandchild).find_map(|found| found).unwrap();
        let mut finder = Finder::default();
        // The shell was met before, and comes last.
        finder.met.insert(shell);
        assert!(finder.in_turn(own).last() == Some(&shell) && socket_at(grandchild, 0) == Some(inodes[0]));
        assert_eq!(finder.find(own, &inodes)[0].unwrap().process.pid, shell);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(grandchild), nix::sys::signal::Signal::SIGKILL).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn many_that_take_turns_are_known() {
        let _alone = ONE_AT_A_TIME.lock();
        let own = i32::try_from(std::process::id()).unwrap();
        let (held, inodes) = sockets(800, KNOWN + 1);
        let child = |socket| Command::new("sleep").arg("100").stdin(socket).spawn().unwrap();
        let mut children: Vec<_> = held.into_iter().map(child).collect();
        // A child still has the sockets of others until its program begins. The kernel closes them before it gives the name of the program.
        let has_executed =
            |child: &Child| fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap() == "sleep\n";
        while !children.iter().all(has_executed) {
            std::thread::yield_now();
        }
        let pids: Vec<_> = children.iter().map(Child::id).collect();
        // A child of another test has them too until its program begins.
        let look = || {
            let mut finder = Finder::default();
            let found = finder.find(own, &inodes);
            let found: Vec<Found> = found.into_iter().map(Option::unwrap).collect();
            let is_found_there = found.iter().map(|found| found.process.pid.unsigned_abs()).eq(pids.iter().copied());
            is_found_there.then_some((finder, found))
        };
        let (mut finder, found) = core::iter::repeat_with(look).find_map(|seen| seen).unwrap();
        let mut holders = Holders::default();
        found.iter().for_each(|found| holders.remember(*found));
        // They are looked at after all others now.
        let turns = finder.in_turn(own);
        let last = turns.iter().rev().take(children.len()).map(|pid| pid.unsigned_abs());
        assert_eq!(last.collect::<BTreeSet<_>>(), pids.into_iter().collect());
        let known =
            inodes.iter().zip(&found).filter(|(inode, process)| holders.guess(**inode) == Some(process.process));
        assert_eq!((known.count(), holders.known.len()), (KNOWN, KNOWN));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn users_are_found_by_their_processes() {
        let above = nix::unistd::getppid().as_raw();
        assert!(is_any_below(above, nix::unistd::geteuid().as_raw()));
        assert!(!is_any_below(above, u32::MAX - 7), "nobody has that number");
        assert!(!is_any_below(i32::try_from(std::process::id()).unwrap(), u32::MAX - 7));
    }

    #[test]
    fn a_name_can_hold_anything() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(field(own, 4).unwrap(), u64::from(std::os::unix::process::parent_id()));
        assert!(started(own).unwrap() > 0);
        assert_eq!(started(-1), None);
    }
}
