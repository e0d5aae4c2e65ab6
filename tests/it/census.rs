//! Remaining processes: every case's processes carry its tag in their environment, and orphans come to us, because the test is a
//! subreaper.

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The variable that holds a case's tag.
pub(crate) const TAG: &str = "TEST_CASE_TAG";
/// Guardian and agent may outlive the launcher for so long.
const OURS: Duration = Duration::from_millis(50);
/// A process that is dying but gets no processor is waited for.
const STARVED: Duration = Duration::from_secs(2);
/// On other hosts all of a job ends so long after its launcher was killed, at the latest.
const FAR: Duration = Duration::from_secs(5);
/// Whatever takes so long never comes.
const STUCK: Duration = Duration::from_secs(20);
/// /proc is not read in one moment: what holds in so many looks in a row holds.
const LOOKS: u32 = 4;
/// The most of a pause between two looks that counts: where the test waits for a processor, the job does too.
const LONGEST_GAP: Duration = Duration::from_millis(10);

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Proc {
    pub(crate) pid: i32,
    pub(crate) ppid: i32,
    pub(crate) state: char,
    pub(crate) comm: String,
    pub(crate) start: u64,
    is_exiting: bool,
}

/// From the kernel's sched.h: it has died, and the kernel is taking it apart.
const PF_EXITING: u64 = 4;

impl Proc {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let (open, close) = (stat.find('(')?, stat.rfind(')')?);
        let mut fields = stat.get(close + 2..)?.split(' ');
        let state = fields.next()?.chars().next()?;
        let ppid = fields.next()?.parse().ok()?;
        let flags: u64 = fields.nth(4)?.parse().ok()?;
        let threads: u32 = fields.nth(10)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        let comm = stat[open + 1..close].into();
        // A leader may be a zombie long before its last thread is: it cannot be reaped before (wait(2) waits for all of them).
        let is_exiting = flags & PF_EXITING != 0 && (state != 'Z' || threads > 1);
        Some(Self { pid, ppid, state, comm, start, is_exiting })
    }
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && !self.is_exiting
    }
    /// Whether this process lives: its number has not become another's.
    pub(crate) fn is_still_there(&self) -> bool {
        Self::read(self.pid).is_some_and(|p| p.start == self.start && !p.is_dead())
    }
    /// Whether a signal has ended it that it neither handles nor ignores nor blocks, but it got no processor since: it runs no
    /// instruction of its program any more.
    fn is_ended_by_signal(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let mask = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            u64::from_str_radix(line.trim_start_matches(':').trim(), 16).ok()
        };
        let all = |names: &[&str]| names.iter().filter_map(|name| mask(name)).fold(0, |all, mask| all | mask);
        let ends = [Signal::SIGKILL, Signal::SIGTERM].iter().fold(0, |all, signal| all | 1 << (*signal as i32 - 1));
        all(&["SigPnd", "ShdPnd"]) & ends & !all(&["SigBlk", "SigIgn", "SigCgt"]) != 0
    }
    /// Whether a test traces the process: its parent is notified of its exit only after the release (ptrace(2)).
    fn is_held_by_tracer(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() != "0"))
    }
    fn is_of_rlaunch(&self) -> bool {
        ["rlaunch", "rlaunch-guard", "rlaunch-agent", "rlaunch-ssh"].contains(&self.comm.as_str())
    }
    fn show(&self) -> String {
        let words = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        // The call in which it waits, and its object.
        let call = fs::read_to_string(format!("/proc/{}/syscall", self.pid)).unwrap_or_default();
        let children: Vec<String> =
            children(self.pid).iter().map(|p| format!("{} ({}, {})", p.pid, p.comm, p.state)).collect();
        let (call, children) = (call.trim(), children.join(", "));
        let Self { pid, comm, state, ppid, .. } = self;
        format!("pid {pid} ({comm}, state {state}, parent {ppid}, call {call}, children {children}): {words}")
    }
}

/// All processes of the host.
pub(crate) fn all() -> Vec<Proc> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Proc::read).collect()
}

/// The children of a process.
pub(crate) fn children(pid: i32) -> Vec<Proc> {
    all().into_iter().filter(|p| p.ppid == pid).collect()
}

/// Whether a process is stopped.
pub(crate) fn is_stopped(pid: i32) -> bool {
    Proc::read(pid).is_some_and(|p| p.state == 'T')
}

/// Whether a process has ended, reaped or not.
pub(crate) fn is_dead(pid: i32) -> bool {
    Proc::read(pid).is_none_or(|p| p.is_dead())
}

/// Waits until a process is stopped, or is no more.
pub(crate) fn wait_stopped(pid: i32, stopped: bool) {
    wait_until(&format!("process {pid}, stopped or not"), || is_stopped(pid) == stopped);
}

/// Waits for a state of which only the parent of a process would be notified: looks until it is reached.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < STUCK, "in vain waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    Proc::read(pid).map(|p| p.ppid)
}

/// The state of a process, as ps(1) shows it.
pub(crate) fn state(pid: i32) -> Option<char> {
    Proc::read(pid).map(|p| p.state)
}

/// Processes started by tests themselves, which they reap. Held while one is started, so that none is unknown.
static KNOWN: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
/// Lock that a case holds alone if its leftovers cannot be distinguished from those of other cases.
static ORDER: RwLock<()> = RwLock::new(());

thread_local! {
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// While this lives no other case looks for leaks.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    ALONE.set(true);
    ORDER.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Starts a program as a child that the test itself will reap.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let mut known = lock(&KNOWN);
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    known.insert(i32::try_from(child.id()).unwrap());
    child
}

/// Reaps a child that has ended.
pub(crate) fn reap(child: &mut Child) -> ExitStatus {
    let mut known = lock(&KNOWN);
    let status = child.wait().unwrap();
    known.remove(&i32::try_from(child.id()).unwrap());
    status
}

/// Runs a tool of the test to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    let child = spawn(command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()));
    let pid = i32::try_from(child.id()).unwrap();
    let output = child.wait_with_output().unwrap();
    lock(&KNOWN).remove(&pid);
    output
}

/// Processes that descend from ours without being a child of the test: their parent is gone. Dead ones are reaped.
fn orphans(all: &[Proc], known: &BTreeSet<i32>) -> BTreeSet<i32> {
    let me = i32::try_from(std::process::id()).unwrap();
    let mut found = BTreeSet::new();
    for p in all.iter().filter(|p| p.ppid == me && !known.contains(&p.pid)) {
        if p.is_dead() {
            // If another process reaped it before us, our work is done.
            let _gone = waitpid(Pid::from_raw(p.pid), Some(WaitPidFlag::WNOHANG));
        }
        found.insert(p.pid);
    }
    loop {
        let more: Vec<i32> =
            all.iter().filter(|p| found.contains(&p.ppid) && !found.contains(&p.pid)).map(|p| p.pid).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// The tag of a process; `None` where its environment has none or may not be read.
fn tag_of(pid: i32) -> Option<String> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{TAG}=");
    let entry = environ.split(|b| *b == 0).find(|entry| entry.starts_with(prefix.as_bytes()))?;
    Some(String::from_utf8_lossy(&entry[prefix.len()..]).into_owned())
}

/// Whether a thread of a process waits for a processor, or for the kernel.
fn has_busy_thread(pid: i32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let is_busy = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['R', 'D']));
    threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok()).any(is_busy)
}

/// The processes that still run.
struct Survey {
    /// The living processes of a case.
    tagged: Vec<Proc>,
    /// Orphans that cannot be distinguished from those of a case.
    strays: Vec<Proc>,
    /// Whether one of them, or of their descendants, could do the step that the others wait for, but waits for a processor, for the
    /// kernel, or for a tracer, dead or alive.
    starved: bool,
}

fn survey(tag: &str) -> Survey {
    let known = lock(&KNOWN);
    let all = all();
    let orphans = orphans(&all, &known);
    let ours = |p: &Proc| !p.is_dead() && !(known.contains(&p.pid));
    let living: Vec<Proc> = all.iter().filter(|p| ours(p)).cloned().collect();
    drop(known);
    let (mut tagged, mut strays) = (Vec::new(), Vec::new());
    for p in living {
        match tag_of(p.pid) {
            Some(found) if found == tag => tagged.push(p),
            Some(_) => {}
            None if orphans.contains(&p.pid) => strays.push(p),
            None => {}
        }
    }
    let mut ours: BTreeSet<i32> = tagged.iter().chain(&strays).map(|p| p.pid).collect();
    // Twice: guardian, agent, ranks.
    for _ in 0..2 {
        ours.extend(all.iter().filter(|p| ours.contains(&p.ppid)).map(|p| p.pid).collect::<Vec<_>>());
    }
    // The first process of a PID namespace that was killed waits until we have reaped its ranks.
    let is_starved =
        |p: &Proc| if p.is_dead() { p.is_held_by_tracer() } else { p.is_exiting || has_busy_thread(p.pid) };
    let starved = all.iter().any(|p| ours.contains(&p.pid) && is_starved(p));
    Survey { tagged, strays, starved }
}

/// The living processes of a case, besides the one that the test started.
pub(crate) fn tagged(tag: &str) -> Vec<Proc> {
    survey(tag).tagged
}

/// How long whom is waited for after the launcher's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mercy {
    /// Guardian and agent have 50 ms, everything else was gone before.
    Ours,
    /// The launcher was killed: all have 50 ms.
    All,
    /// A job on other hosts: ours have the time that the end of a connection takes, ssh too. Everything else was gone before.
    Hosts,
    /// Such a job whose launcher was killed, or one on a host without a free processor: all have five seconds.
    LostHosts,
}

/// Processes of a case that outlive it, ended now. Processes that may take a moment get it.
pub(crate) fn leaks(tag: &str, ended: Instant, mercy: Mercy) -> Vec<String> {
    // A case that is alone has the other side of the lock.
    let _order = (!ALONE.get()).then(|| ORDER.read());
    let mut seen: BTreeMap<(i32, u64), Instant> = BTreeMap::new();
    let mut looks = 0;
    let (mut unstarved, mut looked) = (Duration::ZERO, ended);
    loop {
        let Survey { tagged, strays, starved } = survey(tag);
        let gap = std::mem::replace(&mut looked, Instant::now()).elapsed();
        unstarved += if starved { Duration::ZERO } else { gap.min(LONGEST_GAP) };
        if tagged.is_empty() && strays.is_empty() {
            return Vec::new();
        }
        let spared = |p: &&Proc| match mercy {
            Mercy::Ours => p.is_of_rlaunch() || p.is_ended_by_signal(),
            Mercy::Hosts => p.is_of_rlaunch() || p.comm == "ssh" || p.is_ended_by_signal(),
            Mercy::All | Mercy::LostHosts => true,
        };
        let limit = match mercy {
            Mercy::LostHosts => FAR,
            Mercy::Hosts => STARVED,
            Mercy::Ours | Mercy::All if unstarved < OURS => STARVED,
            Mercy::Ours | Mercy::All => OURS,
        };
        let late_strays = strays.iter().filter(|p| {
            let since = seen.entry((p.pid, p.start)).or_insert_with(Instant::now);
            since.elapsed() > limit
        });
        let slow: Vec<&Proc> =
            tagged.iter().filter(spared).filter(|_| ended.elapsed() > limit).chain(late_strays).collect();
        looks = if slow.is_empty() { 0 } else { looks + 1 };
        let leaks: Vec<&Proc> =
            tagged.iter().filter(|p| !spared(p)).chain(slow.into_iter().filter(|_| looks >= LOOKS)).collect();
        if !leaks.is_empty() {
            let shown = leaks.iter().map(|p| p.show()).collect();
            leaks.iter().for_each(|p| kill(Pid::from_raw(p.pid), Signal::SIGKILL).unwrap_or_default());
            return shown;
        }
        // The kernel does not notify us about the tags of processes that are not our children.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends what a failed case left, so that it spoils no other.
pub(crate) fn kill_all(tag: &str) {
    for _ in 0..100 {
        let tagged = tagged(tag);
        if tagged.is_empty() {
            return;
        }
        for p in tagged {
            kill(Pid::from_raw(p.pid), Signal::SIGKILL).unwrap_or_default();
        }
        // The same: what those have forked meanwhile is found by the next look only.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills of all storms in this run.
static KILLS: AtomicU32 = AtomicU32::new(0);

/// SIGKILL for a process of a storm; returns whether there was one.
pub(crate) fn strike(pid: i32) -> bool {
    let hit = kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok();
    count_kills(hit.into());
    hit
}

/// Processes that a storm has killed.
pub(crate) fn count_kills(count: u32) {
    KILLS.fetch_add(count, Ordering::Relaxed);
}

/// Prints the sum at the end of a storm.
pub(crate) fn say_kills(storm: &str) {
    eprintln!("after {storm}: {} processes killed by storms", KILLS.load(Ordering::Relaxed));
}

/// The launcher of an agent: the guardian stands between.
pub(crate) fn launcher_of(agent: i32) -> i32 {
    parent(parent(agent).unwrap()).unwrap()
}
