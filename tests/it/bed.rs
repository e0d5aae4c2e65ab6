//! A testbed for a group of cases: hosts of namespaces with real sshd, made by `scripts/testbed`, that nothing may outlive.
//!
//! It is held by a process whose stdin is ours: however the test ends, the testbed ends with it.

use crate::census::{self, Mercy, Proc};
use crate::place::{self, Scratch};
use crate::plan::Plan;
use crate::watch;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Instant;

/// The requirements besides the script, and root.
const NEEDED: [&str; 5] = ["python3", "ip", "nft", "ssh", "/usr/sbin/sshd"];
/// A login that is just ending, and what it ran, may take so long.
const STRAYS_WITHIN: &str = "2";
/// The namespaces of a host.
const SPACES: [&str; 5] = ["mnt", "net", "pid", "uts", "ipc"];

/// A testbed that is up. It must be taken down with [`Bed::down`].
pub(crate) struct Bed {
    name: String,
    holder: Option<Child>,
    /// Seen by the hosts at the same path; all users may write here.
    share: Scratch,
    spaces: Rc<RefCell<Spaces>>,
    /// The hosts by the name of their UTS namespace.
    names: RefCell<BTreeMap<String, String>>,
}

/// The namespaces of a testbed's hosts, also of those that are gone. While we hold one its number is unique: the kernel gives those of
/// namespaces that have ended to the next ones, which may be another test's.
#[derive(Default)]
pub(crate) struct Spaces(BTreeMap<String, File>);

impl Spaces {
    /// Takes hold of the namespaces of this process, if it is still there afterwards; the name of its UTS namespace.
    fn hold(&mut self, p: &Proc) -> Option<String> {
        let open = |kind: &str| {
            let held = File::open(format!("/proc/{}/ns/{kind}", p.pid)).ok()?;
            Some((name_of(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd())))?, held))
        };
        let held: Option<Vec<(String, File)>> = SPACES.iter().map(|kind| open(kind)).collect();
        // The process may have ended, and its number may be another's.
        let held = held.filter(|_| p.is_still_there())?;
        let uts = held.iter().map(|(name, _)| name).find(|name| name.starts_with("uts:")).cloned();
        for (name, file) in held {
            self.0.entry(name).or_insert(file);
        }
        uts
    }

    /// The namespaces of a process of this machine.
    pub(crate) fn in_use(&self) -> Vec<String> {
        let mut found = Vec::new();
        for p in census::all() {
            let names = SPACES.iter().filter_map(|kind| name_of(Path::new(&format!("/proc/{}/ns/{kind}", p.pid))));
            found.extend(names.filter(|name| self.0.contains_key(name)));
        }
        found
    }
}

fn name_of(space: &Path) -> Option<String> {
    fs::read_link(space).ok().map(|name| name.to_string_lossy().into_owned())
}

fn script() -> PathBuf {
    place::root().join("scripts/testbed")
}

/// A python3 that starts quickly: the first of the path may be a shell script that looks for others.
fn python() -> &'static Path {
    let own = Path::new("/usr/bin/python3");
    if own.exists() { own } else { Path::new("python3") }
}

/// Whether this user can have a testbed here; prints a note if not.
fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        if !place::is_root() {
            place::absent("cases on several hosts", "a testbed needs root");
            return false;
        }
        if !script().exists() {
            place::absent("cases on several hosts", "there is no scripts/testbed in RLAUNCH_TEST_ROOT");
            return false;
        }
        if !NEEDED.into_iter().all(place::has) {
            return false;
        }
        let mut probe = Command::new(python());
        probe.arg(script()).args(["with", "0", "--", "true"]).env("TESTBED_NAME", format!("it-{}", place::unique()));
        let probe = census::output(probe.stdin(Stdio::null()));
        let why = String::from_utf8_lossy(&probe.stderr).trim().to_owned();
        if !probe.status.success() {
            assert!(std::env::var_os("CI").is_none(), "no testbed can be made: {why}");
            place::absent("cases on several hosts", &why);
        }
        probe.status.success()
    })
}

fn has_slurm() -> bool {
    place::is_root() && ["srun", "/usr/sbin/slurmctld", "/usr/sbin/munged"].into_iter().all(place::has)
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").unwrap()
}

impl Bed {
    /// `login` and `node0` to `node{count - 1}`; `None` where there can be none, with a note.
    pub(crate) fn up(count: u32) -> Option<Self> {
        Self::up_with(count, &[])
    }

    /// The same as a cluster of Slurm.
    pub(crate) fn slurm(count: u32) -> Option<Self> {
        if !has_slurm() {
            return None;
        }
        Self::up_with(count, &["--slurm"])
    }

    /// The same as a cluster of Slurm whose steps have control groups, and processors of their own.
    pub(crate) fn slurm_cgroup(count: u32) -> Option<Self> {
        const OPTIONS: [&str; 2] = ["--slurm", "--cgroup"];
        if !has_slurm() || !is_possible() {
            return None;
        }
        let mut ask = Command::new(python());
        ask.arg(script()).args(["possible", &count.to_string()]).args(OPTIONS);
        let asked = census::output(ask.env("TESTBED_NAME", format!("it-{}", place::unique())).stdin(Stdio::null()));
        if !asked.status.success() {
            assert_eq!(asked.status.code(), Some(1), "{asked:?}");
            place::absent("cases of Slurm with control groups", String::from_utf8_lossy(&asked.stdout).trim());
            return None;
        }
        Self::up_with(count, &OPTIONS)
    }

    fn up_with(count: u32, options: &[&str]) -> Option<Self> {
        if !is_possible() {
            return None;
        }
        let share = Scratch::new();
        open_to_all(share.dir());
        // Where the tests lie an ordinary user of the hosts may not come.
        fs::copy(place::rlaunch(), share.path("rlaunch")).unwrap();
        let name = format!("it-{}", place::unique());
        let mut bed = Self { name, holder: None, share, spaces: Rc::default(), names: RefCell::default() };
        let (count, hosts) = (count.to_string(), 1 + usize::try_from(count).unwrap());
        let mut up = bed.command(["up", &count, "--hold", "--share"]);
        up.arg(bed.share.dir()).args(options);
        // The hosts have another /tmp.
        let pythons = [place::newer_torch(), place::jax()];
        let homes = pythons.iter().flatten().filter_map(|python| python.ancestors().nth(2).map(PathBuf::from));
        let mpi = std::env::var_os("RLAUNCH_MPI_WHEELS").filter(|path| !path.is_empty()).map(PathBuf::from);
        for home in homes.chain(mpi).chain(place::client()) {
            up.arg("--share").arg(home);
        }
        up.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let holder = bed.holder.insert(census::spawn(&mut up));
        let mut word = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut word).unwrap();
        assert_eq!(word, "ready\n", "the testbed did not come up: {}", bed.last_words());
        bed.hold_spaces();
        assert_eq!(bed.names.borrow().len(), hosts, "login, and the hosts");
        Some(bed)
    }

    /// The first process of each host that is on, by the name of the host: the children of the testbed's fabric.
    fn inits(&self) -> BTreeMap<String, Proc> {
        let all = census::all();
        let holder = self.holder.as_ref().expect("a testbed that is up").id();
        let below = |parent: i32| all.iter().filter(move |p| p.ppid == parent);
        let fabric = below(i32::try_from(holder).unwrap()).flat_map(|between| below(between.pid));
        let children = fabric.flat_map(|fabric| below(fabric.pid)).filter(|p| !p.is_dead());
        children.filter_map(|p| Some((p.comm.strip_prefix("tb-host:")?.to_owned(), p.clone()))).collect()
    }

    fn hold_spaces(&self) {
        for (host, init) in self.inits() {
            let uts = self.spaces.borrow_mut().hold(&init);
            self.names.borrow_mut().insert(uts.expect("a host that is on"), host);
        }
    }

    fn command<I: IntoIterator<Item: AsRef<OsStr>>>(&self, words: I) -> Command {
        let mut command = Command::new(python());
        command.arg(script()).args(words).env("TESTBED_NAME", &self.name).stdin(Stdio::null());
        command
    }

    fn last_words(&mut self) -> String {
        let mut words = String::new();
        if let Some(mut err) = self.holder.as_mut().and_then(|holder| holder.stderr.take()) {
            err.read_to_string(&mut words).unwrap();
        }
        words
    }

    /// A command of `scripts/testbed`, to its end, whichever.
    pub(crate) fn call<I: IntoIterator<Item: AsRef<OsStr>>>(&self, words: I) -> Output {
        census::output(&mut self.command(words))
    }

    /// A command of `scripts/testbed` that must succeed; what it said.
    pub(crate) fn run<I: IntoIterator<Item: AsRef<OsStr>>>(&self, words: I) -> String {
        let mut command = self.command(words);
        let output = census::output(&mut command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// A case on a host: these words run there as this user, in the case's own directory, which all hosts see. The first
    /// word `rlaunch` is the binary under test.
    pub(crate) fn plan<I: IntoIterator<Item: AsRef<OsStr>>>(&self, user: &str, host: &str, words: I) -> Plan {
        let mut words = words.into_iter().peekable();
        let scratch = Scratch::inside(self.share.dir());
        open_to_all(scratch.dir());
        let mut all: Vec<std::ffi::OsString> = vec![script().into(), "exec".into(), "--user".into(), user.into()];
        all.extend(["--cwd".into(), scratch.dir().into(), host.into()]);
        if words.next_if(|word| word.as_ref() == "rlaunch").is_some() {
            all.push(self.share.path("rlaunch").into());
        }
        all.extend(words.map(|word| word.as_ref().to_owned()));
        let plan = Plan::tool(python(), scratch).args(all).mercy(Mercy::Hosts);
        plan.env("TESTBED_NAME", &self.name).env("RL", self.share.path("rlaunch"))
    }

    /// The processes of the hosts, with the names of these, as this machine numbers them.
    pub(crate) fn processes(&self) -> Vec<(String, Proc)> {
        let names = self.names.borrow();
        let host = |p: &Proc| names.get(&name_of(Path::new(&format!("/proc/{}/ns/uts", p.pid)))?).cloned();
        census::all().into_iter().filter_map(|p| Some((host(&p)?, p))).collect()
    }

    /// Power again for a host that was killed.
    pub(crate) fn start_host(&self, host: &str) {
        self.run(["start-host", host]);
        self.hold_spaces();
    }

    /// Waits until nothing that is called so lives on a host.
    pub(crate) fn until_gone(&self, comm: &str) {
        census::wait_until(comm, || !self.processes().iter().any(|(_, p)| p.comm == comm));
    }

    /// Waits until nothing of a job lives on the hosts; the network may need so many seconds for that.
    pub(crate) fn clean(&self, seconds: u32) {
        let output = self.call(["strays", "--within", &seconds.to_string()]);
        assert!(output.status.success(), "left on the hosts:\n{}", String::from_utf8_lossy(&output.stdout));
    }

    /// The path of the binary under test on all hosts.
    pub(crate) fn rlaunch(&self) -> String {
        self.share.path("rlaunch").to_str().unwrap().to_owned()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The namespaces that are the hosts'.
    pub(crate) fn spaces(&self) -> Rc<RefCell<Spaces>> {
        Rc::clone(&self.spaces)
    }

    /// Waits until something with these words lives on a host.
    pub(crate) fn until_strays(&self, words: &str) {
        let start = Instant::now();
        while !String::from_utf8_lossy(&self.call(["strays"]).stdout).contains(words) {
            assert!(start.elapsed() < watch::IDLE, "{words:?} never ran on a host");
        }
    }

    /// Processes that live on the hosts and should not; empty where there are none.
    pub(crate) fn strays(&self) -> String {
        let output = self.call(["strays", "--within", STRAYS_WITHIN]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(i32::from(!said.is_empty())), "strays: {output:?}");
        said
    }

    /// The end: nothing may live on the hosts, and nothing of the hosts may be left here.
    pub(crate) fn down(mut self) {
        let strays = self.strays();
        assert!(strays.is_empty(), "left behind on the hosts:\n{strays}");
        let share = self.share.dir().to_owned();
        // Of hosts that were started again, too.
        self.hold_spaces();
        let status = self.release();
        assert!(status.success(), "the testbed ended with {status}");
        let left = self.spaces.borrow().in_use();
        assert!(left.is_empty(), "namespaces of the testbed are left: {left:?}");
        assert!(!mounts().contains(&*share.to_string_lossy()), "mounts of the testbed are left:\n{}", mounts());
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.contains(&self.name), "the name of the testbed is still taken");
    }

    /// Lets the holder go, and waits until it has taken everything down.
    fn release(&mut self) -> std::process::ExitStatus {
        let mut holder = self.holder.take().expect("a testbed that is up");
        drop(holder.stdin.take());
        let mut said = String::new();
        holder.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.is_empty() || std::thread::panicking(), "the testbed said {said}");
        census::reap(&mut holder)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if self.holder.is_none() {
            return;
        }
        if std::thread::panicking() {
            eprintln!("--- on the hosts:\n{}", String::from_utf8_lossy(&self.call(["ps"]).stdout));
        }
        self.release();
        assert!(std::thread::panicking(), "a testbed was dropped before it was taken down");
    }
}

/// The ordinary user of the hosts has another number than we. As in /tmp, only the owner of a file replaces it: rlaunch is in one of these.
fn open_to_all(dir: &Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o1777)).unwrap();
}
