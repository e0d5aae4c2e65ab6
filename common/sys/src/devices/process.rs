//! A process that holds a device: whose it is, and to which job of rlaunch it belongs.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most bytes of a command that are kept.
const COMMAND: usize = 120;
/// Most bytes of the id of a job that are kept: more than any has.
const JOB_ID: usize = 64;
/// Most generations of ancestors that are followed.
const DEPTH: usize = 128;

/// The facts about a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its process id, as this host's /proc names it.
    pub pid: u32,
    /// Its state, as proc_pid_stat(5) names it.
    pub state: u8,
    /// Its session.
    pub session: u32,
    /// When it was started, in ticks since the host was: with the id it names one process.
    pub started: u64,
    /// For how long it runs.
    pub age: Duration,
    /// Its effective user.
    pub uid: u32,
    /// Its command line, or its short name in brackets.
    pub command: Vec<u8>,
    /// The place in the kernel where it waits; empty: it does not, or that is not known.
    pub wchan: Vec<u8>,
    /// Contents of /proc/PID/cgroup.
    pub cgroup: Vec<u8>,
    /// Its PID namespace; `None`: not known.
    pub pid_namespace: Option<u64>,
    /// Signs of a job of rlaunch; `None`: there are none.
    pub job: Option<JobSigns>,
}

/// Signs of a job of rlaunch at one of its processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobSigns {
    /// RLAUNCH_JOB_ID of its environment, where this user has started it; empty: an agent or guardian above it is the only sign.
    pub job: Vec<u8>,
    /// RLAUNCH_RANK of its environment.
    pub rank: Option<u32>,
    /// An agent or guardian of this user or of root is among its ancestors.
    pub is_supervised: bool,
    /// The nearest of these is this process.
    pub is_ours: bool,
    /// Whether an agent answers at its RLAUNCH_SOCKET; `None`: not known.
    pub is_answered: Option<bool>,
}

impl Process {
    /// Reads the facts. `None`: the process has exited.
    #[must_use]
    pub fn read(pid: u32) -> Option<Self> {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let stat = Stat::read(pid)?;
        let (real, uid) = users(pid)?;
        let command = command(&dir, &stat.comm);
        let small = |name: &str| fs::read(dir.join(name)).unwrap_or_default();
        let wchan = small("wchan");
        Some(Self {
            pid,
            state: stat.state,
            session: stat.session,
            started: stat.started,
            age: age(stat.started),
            uid,
            command,
            wchan: if wchan == b"0" { Vec::new() } else { wchan },
            cgroup: small("cgroup"),
            pid_namespace: pid_namespace(pid),
            job: signs(pid, &dir, real),
        })
    }

    /// Whether the process is still the same, and has not exited.
    #[must_use]
    pub fn is_there(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started)
    }
}

/// Whether /proc shows the PID namespace of this process. Otherwise its numbers must not be used in system calls.
#[must_use]
pub fn is_own_proc() -> bool {
    let shown = fs::read_link("/proc/self").ok();
    shown.and_then(|pid| pid.to_str()?.parse().ok()) == Some(std::process::id())
}

/// The PID namespace of a process.
fn pid_namespace(pid: u32) -> Option<u64> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(format!("/proc/{pid}/ns/pid")).ok().map(|found| found.ino())
}

/// The calling process and its ancestors, and its PID namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ancestors {
    pids: BTreeSet<u32>,
    /// The PID namespace of this process; `None`: not known.
    pub pid_namespace: Option<u64>,
}

impl Ancestors {
    /// The ancestors of the calling process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let own = std::process::id();
        let pids = std::iter::once(own).chain(above(own).map(|(pid, _)| pid)).collect();
        Self { pids, pid_namespace: pid_namespace(own) }
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }
}

/// The ancestors of a process, with their short names.
fn above(pid: u32) -> impl Iterator<Item = (u32, Vec<u8>)> {
    let parent = |pid: u32| Stat::read(pid).map(|stat| stat.parent).filter(|parent| *parent > 0);
    std::iter::successors(parent(pid), move |pid| parent(*pid))
        .take(DEPTH)
        .filter_map(|pid| Some((pid, Stat::read(pid)?.comm)))
}

/// Fields of proc_pid_stat(5).
struct Stat {
    comm: Vec<u8>,
    state: u8,
    parent: u32,
    session: u32,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name may hold any character.
    fn parse(text: &[u8]) -> Option<Self> {
        let begin = text.iter().position(|b| *b == b'(')?;
        let end = text.iter().rposition(|b| *b == b')')?;
        let comm = text.get(begin + 1..end)?.to_vec();
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let small = |at: usize| number(at).and_then(|n| u32::try_from(n).ok());
        let state = *fields.first()?.as_bytes().first()?;
        Some(Self { comm, state, parent: small(1)?, session: small(3)?, started: number(19)? })
    }
}

fn age(started: u64) -> Duration {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let ticks = ticks.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0).unwrap_or(100);
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    now.saturating_sub(Duration::from_secs(started / ticks))
}

/// The real and the effective user of a process: the first numbers of the line `Uid:`.
fn users(pid: u32) -> Option<(u32, u32)> {
    users_in(&fs::read(format!("/proc/{pid}/status")).ok()?)
}

fn users_in(status: &[u8]) -> Option<(u32, u32)> {
    let line = status.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    let mut numbers = std::str::from_utf8(line).ok()?.split_ascii_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether a user is this one or root. Another user can give a process any name and any environment.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

fn command(dir: &Path, comm: &[u8]) -> Vec<u8> {
    let words = fs::read(dir.join("cmdline")).unwrap_or_default();
    let words = words.strip_suffix(b"\0").unwrap_or(&words);
    if words.is_empty() {
        return [b"[", comm, b"]"].concat();
    }
    words.iter().take(COMMAND).map(|b| if *b == 0 { b' ' } else { *b }).collect()
}

/// A program may have cleared its environment: agents and guardians above it are signs by themselves. A program that takes root's rights has
/// the real user of the process that has started it.
fn signs(pid: u32, dir: &Path, user: u32) -> Option<JobSigns> {
    let environment = if is_trusted(user) { fs::read(dir.join("environ")) } else { Ok(Vec::new()) }.unwrap_or_default();
    let value = |name: &[u8]| {
        let mut entries = environment.split(|b| *b == 0);
        entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
    };
    let is_supervisor = |(pid, comm): &(u32, Vec<u8>)| {
        comm.starts_with(b"rlaunch-") && users(*pid).is_some_and(|(real, _)| is_trusted(real))
    };
    let supervisor = above(pid).find(is_supervisor).map(|(pid, _)| pid);
    let job = value(b"RLAUNCH_JOB_ID").unwrap_or_default();
    if job.is_empty() && supervisor.is_none() {
        return None;
    }
    let job = job.get(..JOB_ID).unwrap_or(job).to_vec();
    let rank = value(b"RLAUNCH_RANK").and_then(|rank| std::str::from_utf8(rank).ok()?.parse().ok());
    let is_ours = supervisor == Some(std::process::id()) && is_own_proc();
    let is_answered = value(b"RLAUNCH_SOCKET").and_then(|path| is_answered(dir, path));
    Some(JobSigns { job, rank, is_supervised: supervisor.is_some(), is_ours, is_answered })
}

/// Whether a process listens at this path, as seen from the root directory of the process of which `dir` is the directory in /proc: a
/// container has another /tmp. A socket of another user does not count. `None`: not known.
fn is_answered(dir: &Path, path: &[u8]) -> Option<bool> {
    let place = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open(&dir.join("root"), place | OFlag::O_DIRECTORY, Mode::empty()).ok()?;
    let how = OpenHow::new().flags(place).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let file = match nix::fcntl::openat2(&root, path, how) {
        Ok(file) => file,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Some(false),
        Err(_) => return None,
    };
    if !is_trusted(nix::sys::stat::fstat(&file).ok()?.st_uid) {
        return Some(false);
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let asking = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
    let address = UnixAddr::new(format!("/proc/self/fd/{}", file.as_raw_fd()).as_str()).ok()?;
    match connect(asking.as_raw_fd(), &address) {
        Ok(()) | Err(Errno::EAGAIN) => Some(true),
        Err(Errno::ECONNREFUSED | Errno::ENOENT) => Some(false),
        Err(_) => None,
    }
}

/// The name of a user in /etc/passwd, or the number.
#[must_use]
pub fn user_name(uid: u32) -> String {
    let users = fs::read("/etc/passwd").unwrap_or_default();
    let users = String::from_utf8_lossy(&users);
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn stat_fields_follow_the_name() {
        let text = b"12 (a) b (c) S 1 12 34 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99887 1 2";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.comm.as_slice(), stat.state, stat.parent), (&b"a) b (c"[..], b'S', 1));
        assert_eq!((stat.session, stat.started), (34, 99_887));
        assert!(Stat::parse(b"12 (a").is_none() && Stat::parse(b"12 (a) S 1").is_none());
    }

    #[test]
    fn facts_of_this_process_are_read() {
        let own = Process::read(std::process::id()).unwrap();
        assert_eq!((own.uid, own.is_there()), (nix::unistd::geteuid().as_raw(), true));
        let ancestors = Ancestors::of_this_process();
        assert!(ancestors.contains(own.pid) && ancestors.contains(std::os::unix::process::parent_id()));
        assert_eq!(ancestors.pid_namespace, own.pid_namespace);
        assert!(own.age < Duration::from_secs(86_400), "{:?}", own.age);
        let reused = Process { started: own.started + 1, ..own };
        assert!(!reused.is_there(), "another process has the number now");
        assert!(is_own_proc());
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_000), "4000000000");
    }

    /// An agent or a guardian above a process protects it, also if nothing answers at its socket.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes of a test")]
    fn process_below_an_agent_is_supervised() {
        use std::io::BufRead as _;
        let agent = std::env::temp_dir().join(format!("rlaunch-{}", std::process::id()));
        std::os::unix::fs::symlink("/bin/sh", &agent).unwrap();
        let member = "RLAUNCH_JOB_ID=$(printf %0100d 7) sh -c 'echo $$; read line'; :";
        let cleared = "env -i sh -c 'echo $$; read line'; :";
        let plain = Path::new("/bin/sh");
        for (shell, script, expected) in [
            (agent.as_path(), member, Some((true, JOB_ID))),
            (plain, member, Some((false, JOB_ID))),
            (agent.as_path(), cleared, Some((true, 0))),
            (plain, cleared, None),
        ] {
            let mut command = std::process::Command::new(shell);
            command.args(["-c", script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut line = String::new();
            std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let signs = Process::read(line.trim().parse().unwrap()).unwrap().job;
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(signs.map(|signs| (signs.is_supervised, signs.job.len())), expected, "{script}");
        }
        fs::remove_file(&agent).unwrap();
    }

    /// Another user can give a process any name and any environment.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "processes of a test")]
    fn names_that_another_user_has_chosen_are_no_signs_of_a_job() {
        use std::io::BufRead as _;
        use std::os::unix::process::CommandExt as _;
        if !nix::unistd::geteuid().is_root() {
            return println!("absent: only root can start a process of another user");
        }
        let agent = Path::new("/tmp").join(format!("rlaunch-of-user-{}", std::process::id()));
        std::os::unix::fs::symlink("/bin/sh", &agent).unwrap();
        let member = "RLAUNCH_JOB_ID=7 setpriv --reuid 4251 sh -c 'echo $$; read line'; :";
        for (user, expected) in [(4251, None), (0, Some((true, 0)))] {
            let mut command = std::process::Command::new(&agent);
            command.args(["-c", member]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut child = command.uid(user).spawn().unwrap();
            let mut line = String::new();
            std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let signs = Process::read(line.trim().parse().unwrap()).unwrap().job;
            drop(child.stdin.take());
            child.wait().unwrap();
            assert_eq!(signs.map(|signs| (signs.is_supervised, signs.job.len())), expected, "agent of {user}");
        }
        fs::remove_file(&agent).unwrap();
    }

    #[test]
    fn socket_without_listener_is_not_answered() {
        let path = std::env::temp_dir().join(format!("rlaunch-answered-{}", std::process::id()));
        let (own, text) = (Path::new("/proc/self"), path.as_os_str().as_encoded_bytes());
        assert_eq!(is_answered(own, text), Some(false), "there is none");
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(is_answered(own, text), Some(true));
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(4251), None).unwrap();
            assert_eq!(is_answered(own, text), Some(false), "another user listens");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        drop(listener);
        assert_eq!(is_answered(own, text), Some(false), "its listener has exited");
        fs::remove_file(&path).unwrap();
        assert_eq!(is_answered(Path::new("/proc/0"), text), None);
    }
}
