//! The other end of a pool's socket: a job that gets hosts, and the commands of `rlaunch pool`.

use super::pool_directory::{self, PoolDirectory};
use super::show;
use crate::cli::{PoolChoice, Run};
use crate::edges::pool::Warner;
use crate::print::say as print;
use rlaunch_base::error::Hint;
use rlaunch_base::exit;
use rlaunch_base::id::JobId;
use rlaunch_base::nearest::nearest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::hostlist::{self, Alone, Entry};
use rlaunch_plan::place::Placement;
use rlaunch_protocol::wire::frozen::pool::{
    Granted, HEADER, Holder, HostReport, MAX_REPLY, Need, PoolReply, PoolRequest, Refusal, Report, Slices, VERSION,
    Want, body_len, common_version,
};
use rlaunch_sys::{fd, pidfd, signals, unix};
use std::borrow::Cow;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a pool may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The same where it looks whether hosts are empty.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time for the launcher of a job beyond that of its ranks and hosts, before a pool kills it.
const OWN_TIME: Span = Span::from_secs(10);
/// How long a process that was killed may take to end.
const END: Duration = Duration::from_secs(10);

/// A pool that does not do what was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    /// There is none of this name.
    #[error("there is no pool {name} in {dir}{}", other_pools(others, elsewhere.as_ref()))]
    None { name: String, dir: String, others: Vec<String>, elsewhere: Option<(String, String)> },
    /// Its directory could be another user's work.
    #[error("the pool {name} is not used: {why}")]
    Unsafe { name: String, why: String },
    /// The same, of the directory of all pools.
    #[error("pools are not used: {why}")]
    AllUnsafe { why: String },
    /// The connection failed.
    #[error("the pool {name} does not answer: {why}")]
    Silent { name: String, why: String },
    /// Its process is stopped, or hangs.
    #[error("the pool {name} does not answer: no word of process {pid} for {} s", after.as_secs())]
    Stopped { name: String, pid: u32, after: Duration },
    /// Other jobs have its hosts.
    #[error("the pool {name} is busy: {}", show::holders(holders, *waiting))]
    Busy { name: String, holders: Vec<Holder>, waiting: u32 },
    /// The command that started a detached job has ended before it could name it.
    #[error("the pool {name} is not used: the command was ended while its job waited")]
    Left { name: String },
    /// Not done.
    #[error("the pool {name} {}", show::refusal(refusal))]
    Refused { name: String, refusal: Refusal },
    /// Another version.
    #[error("the pool {name} was started by an rlaunch of another version")]
    Version { name: String },
    #[error("the pool {name} is starting or ending: its process {pid} takes no commands now")]
    Between { name: String, pid: u32 },
    /// A pool that has ended before all of its hosts were seen empty.
    #[error("the pool {name} has ended, and {}", show::remains(hosts))]
    Remains { name: String, hosts: Vec<HostReport> },
}

/// The names of other pools, or the directory in which the pool is up.
fn other_pools(others: &[String], elsewhere: Option<&(String, String)>) -> String {
    match (others, elsewhere) {
        (_, Some((dir, _))) => format!("; it is up in {dir}"),
        ([], None) => "; none is up".to_owned(),
        (others, None) => format!("; these are up: {}", others.join(", ")),
    }
}

impl Hint for PoolError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::None { name, elsewhere: Some((_, way)), .. } => {
                format!("{way} rlaunch, for the pool {name} there").into()
            }
            Self::None { name, others, .. } => {
                let near = nearest(name.as_bytes(), others.iter().map(String::as_str));
                let near = near.map(|near| format!("the name {near}\n")).unwrap_or_default();
                format!("{near}rlaunch pool up {name} -H LIST").into()
            }
            Self::Unsafe { .. } | Self::AllUnsafe { .. } => {
                "export XDG_RUNTIME_DIR=DIR, a directory of yours with mode 700\nremove that one, as its owner or root"
                    .into()
            }
            Self::Silent { name, .. } => format!("rlaunch pool status {name}").into(),
            Self::Stopped { name, pid, .. } => {
                format!("kill -CONT {pid}, if it is stopped\nrlaunch pool down {name} --now, which kills it").into()
            }
            Self::Left { .. } => "the same again".into(),
            Self::Between { .. } => "the same again, in a moment".into(),
            Self::Remains { hosts, .. } => {
                let host = hosts.first().map(|host| host.name.to_string()).unwrap_or_default();
                format!("ssh {host} pgrep -l rlaunch\nkill -CONT there, for processes that are stopped").into()
            }
            Self::Busy { .. } => "--wait, until they have ended\n--evict, which ends them".into(),
            Self::Version { name } => format!("rlaunch pool down {name}, by that rlaunch, and up again").into(),
            Self::Refused { name, refusal } => return show::way_out(name, refusal),
        })
    }
}

impl PoolError {
    /// The exit code.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            // As of a hostfile: no such job can be.
            Self::Refused { refusal: Refusal::TooFewSlices { wanted, slices, .. }, .. } if *wanted > *slices => {
                exit::USAGE
            }
            Self::Refused { refusal: Refusal::BadNumber | Refusal::NoSlices, .. } => exit::USAGE,
            Self::Busy { .. }
            | Self::Refused {
                refusal: Refusal::TooFew { .. } | Refusal::TooFewSlices { .. } | Refusal::QueueFull,
                ..
            } => exit::PREEMPTED,
            _ => exit::LAUNCH,
        }
    }

    /// An answer that does not fit.
    pub(super) fn unexpected(name: &str, reply: PoolReply) -> Self {
        let name = name.to_owned();
        match reply {
            PoolReply::Refused(refusal) => Self::Refused { name, refusal },
            PoolReply::Busy { holders, waiting } => Self::Busy { name, holders, waiting },
            _ => Self::Version { name },
        }
    }
}

/// A connection to a pool that was checked.
#[derive(Debug)]
struct Line {
    name: String,
    stream: UnixStream,
    /// The pool's process.
    pid: u32,
    /// How long the pool may take to answer.
    limit: Option<Duration>,
}

/// There is no pool of this name.
fn none(name: &str) -> PoolError {
    if let Some(owner) = PoolDirectory::of(name).owner().filter(|owner| owner.pid != 0) {
        return PoolError::Between { name: name.to_owned(), pid: owner.pid };
    }
    let (name, dir) = (name.to_owned(), PoolDirectory::dir_of_all().display().to_string());
    let place = pool_directory::elsewhere().into_iter().find(|other| other.names.contains(&name));
    let elsewhere = place.map(|other| (other.dir.display().to_string(), other.way));
    PoolError::None { name, dir, others: PoolDirectory::names(), elsewhere }
}

impl Line {
    fn open(name: &str) -> Result<Self, PoolError> {
        let directory = PoolDirectory::of(name);
        let not_safe = |why: String| PoolError::Unsafe { name: name.to_owned(), why };
        match directory.check() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none(name)),
            Err(error) => return Err(not_safe(rlaunch_sys::reason(&error))),
        }
        let owner = || directory.owner().map_or(0, |owner| owner.pid);
        let stream = match unix::connect(&directory.socket(), ANSWER) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                return Err(none(name));
            }
            Err(error) => return Err(failed(name, owner(), Some(ANSWER), &error)),
        };
        match unix::user_of(&stream) {
            Ok(user) if user == rlaunch_sys::facts::host::user().0 => {}
            Ok(user) => return Err(not_safe(format!("its process is one of user {user}"))),
            Err(error) => return Err(not_safe(rlaunch_sys::reason(&error))),
        }
        let pid = unix::process_of(&stream).and_then(|pid| u32::try_from(pid).ok()).unwrap_or_else(owner);
        let line = Self { name: name.to_owned(), stream, pid, limit: Some(ANSWER) };
        match line.ask(&PoolRequest::Hello { min: VERSION, max: VERSION })? {
            PoolReply::Hello { min, max } if common_version(min, max).is_some() => Ok(line),
            other => Err(PoolError::unexpected(name, other)),
        }
    }

    /// Limits the wait for an answer.
    fn set_limit(&mut self, limit: Option<Duration>) -> Result<(), PoolError> {
        self.limit = limit;
        self.stream.set_read_timeout(limit).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> PoolError {
        failed(&self.name, self.pid, self.limit, error)
    }

    fn send(&self, request: &PoolRequest) -> Result<(), PoolError> {
        self.send_all(core::slice::from_ref(request))
    }

    fn send_all(&self, requests: &[PoolRequest]) -> Result<(), PoolError> {
        let frames: Vec<u8> = requests.iter().flat_map(PoolRequest::to_frame).collect();
        (&self.stream).write_all(&frames).map_err(|error| self.failed(&error))
    }

    fn receive(&self) -> Result<PoolReply, PoolError> {
        receive(&self.stream).map_err(|error| self.failed(&error))
    }

    fn ask(&self, request: &PoolRequest) -> Result<PoolReply, PoolError> {
        self.send(request)?;
        self.receive()
    }

    /// Waits for a word that may take long. `say` prints a note when the pool answers nothing else either, and returns whether the user
    /// is there still.
    ///
    /// # Errors
    /// The time has run out, or the user has left.
    fn wait(&self, limit: Option<Duration>, mut say: impl FnMut(&str) -> bool) -> Result<(), PoolError> {
        let began = Instant::now();
        let mut is_silent = false;
        loop {
            let left = limit.map_or(ANSWER, |limit| limit.saturating_sub(began.elapsed()).min(ANSWER));
            fd::wait_for_any(&[self.stream.as_fd()], Some(left));
            if fd::readable_now(&self.stream) {
                return Ok(());
            }
            if left.is_zero() {
                let (name, after) = (self.name.clone(), limit.unwrap_or_default());
                return Err(PoolError::Stopped { name, pid: self.pid, after });
            }
            let silence = Self::open(&self.name).err().filter(|error| matches!(error, PoolError::Stopped { .. }));
            let was_silent = std::mem::replace(&mut is_silent, silence.is_some());
            // The pool may continue, and this client has its place in the queue.
            if let Some(error) = silence.filter(|_| !was_silent && !fd::readable_now(&self.stream)) {
                let text = format!("rlaunch: still waiting, because {}\n", super::described(&error));
                if !say(&text) {
                    return Err(PoolError::Left { name: self.name.clone() });
                }
            }
        }
    }
}

/// A failure of the connection.
fn failed(name: &str, pid: u32, limit: Option<Duration>, error: &io::Error) -> PoolError {
    let name = name.to_owned();
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            PoolError::Silent { name, why: "it has ended".to_owned() }
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            PoolError::Stopped { name, pid, after: limit.unwrap_or_default() }
        }
        _ => PoolError::Silent { name, why: rlaunch_sys::reason(error) },
    }
}

fn receive(mut stream: &UnixStream) -> io::Result<PoolReply> {
    let malformed = |_| io::Error::other("its answer is not understood");
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let len = body_len(header, MAX_REPLY).map_err(malformed)?;
    let mut frame = header.to_vec();
    stream.take(len as u64).read_to_end(&mut frame)?;
    PoolReply::parse(&frame).map_err(malformed)
}

/// Asks a pool for something.
pub(super) fn request(name: &str, request: &PoolRequest) -> Result<PoolReply, PoolError> {
    Line::open(name)?.ask(request)
}

/// The state of a pool, with its slices.
pub(super) fn status(name: &str) -> Result<(Report, Slices), PoolError> {
    let line = Line::open(name)?;
    // Both at once, because the state may change between two answers.
    line.send_all(&[PoolRequest::Status, PoolRequest::Slices])?;
    let report = match line.receive()? {
        PoolReply::Report(report) => report,
        other => return Err(PoolError::unexpected(name, other)),
    };
    match line.receive()? {
        PoolReply::Slices(slices) => Ok((report, slices)),
        other => Err(PoolError::unexpected(name, other)),
    }
}

/// Asks a pool to do something.
pub(super) fn ask(name: &str, what: &PoolRequest) -> Result<String, PoolError> {
    match request(name, what)? {
        PoolReply::Done => Ok(String::new()),
        other => Err(PoolError::unexpected(name, other)),
    }
}

/// Ends a pool, and waits until nothing is left of it. `is_now`: a process that does not answer is killed.
pub(super) fn down(name: &str, is_now: bool) -> Result<String, PoolError> {
    let asked = Line::open(name).and_then(|line| line.ask(&PoolRequest::Down { is_now }).map(|reply| (line, reply)));
    let (line, reply) = match asked {
        Err(PoolError::Stopped { pid, after, .. }) if is_now => return kill(name, pid, after),
        asked => asked?,
    };
    match reply {
        PoolReply::Done => {}
        other => return Err(PoolError::unexpected(name, other)),
    }
    fd::wait_for_any(&[line.stream.as_fd()], Some(ANSWER));
    if !fd::readable_now(&line.stream)
        && let Ok((report, _)) = status(name)
    {
        print(&format!("rlaunch: waiting for the pool {name}: {}\n", show::holders(&report.jobs, 0)));
    }
    // Jobs may take as long as their --grace.
    line.wait(None, |text| {
        print(text);
        true
    })?;
    match receive(&line.stream) {
        Ok(PoolReply::Report(Report { hosts, .. })) => {
            let _end = (&line.stream).read(&mut [0]);
            Err(PoolError::Remains { name: name.to_owned(), hosts })
        }
        Ok(_) => Ok(String::new()),
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            Ok(String::new())
        }
        Err(error) => Err(line.failed(&error)),
    }
}

/// Kills the process of a pool that does not answer, and removes its files. Its connections and its jobs end with it.
fn kill(name: &str, pid: u32, after: Duration) -> Result<String, PoolError> {
    let directory = PoolDirectory::of(name);
    let stopped = || PoolError::Stopped { name: name.to_owned(), pid, after };
    let process = i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(|pid| pidfd::open(pid).ok());
    let Some(process) = process else { return Err(stopped()) };
    // While a process has the lock, its number in there is no other's.
    if directory.owner().is_none_or(|owner| owner.pid != pid) {
        return Err(stopped());
    }
    pidfd::signal(&process, signals::KILL).map_err(|error| failed(name, pid, None, &error))?;
    fd::wait_for_any(&[process.as_fd()], Some(END));
    if directory.is_up() {
        return Err(stopped());
    }
    print(&format!("rlaunch: the pool {name} did not answer: its process {pid} was killed\n"));
    Ok(String::new())
}

/// A job's hold on hosts of a pool. The hosts are the job's until this is closed.
#[derive(Debug)]
pub(crate) struct Held {
    name: String,
    stream: UnixStream,
    /// Hosts are reached over connections of the pool.
    has_connections: bool,
}

impl Held {
    /// For warnings about the hosts of a placement.
    pub(crate) fn warner(&self, placement: &Placement) -> Option<Warner> {
        let hosts = placement.nodes.iter().map(|node| node.host.to_string()).collect();
        let (pool, has_connections) = (self.name.clone(), self.has_connections);
        self.stream.try_clone().ok().map(|stream| Warner::new(stream, hosts, pool, has_connections))
    }
}

/// The longest time that a job may take to end after SIGTERM, with its hooks.
fn ends_within(run: &Run) -> Span {
    let of_hooks = if run.hooks.is_any() { run.hooks.within + run.hooks.within + OWN_TIME } else { Span::ZERO };
    run.settings.ending.grace + run.settings.hosts.lease + of_hooks + OWN_TIME
}

/// Gets hosts for a job, if it names a pool. `say` prints notes, and returns whether the user is there still.
///
/// # Errors
/// There is no such pool, or it does not give the hosts.
pub(crate) fn hold(
    run: &mut Run,
    choice: PoolChoice,
    job: JobId,
    mut say: impl FnMut(&str) -> bool,
) -> Result<Held, PoolError> {
    let PoolChoice { name, mut need, wait, evict, takes_sizes } = choice;
    let words =
        |program: &crate::cli::Program| program.argv.iter().map(OsBytes::as_slice).collect::<Vec<_>>().join(&b' ');
    let command = run.programs.iter().map(words).collect::<Vec<_>>().join(&b" : "[..]);
    // A name of the job for others, not a record of it.
    let command = OsBytes::from(command.get(..256).unwrap_or(&command));
    let mut line = Line::open(&name)?;
    if takes_sizes && let Some(sizes) = sizes(&line)? {
        need = run.use_sizes(&sizes);
    }
    let is_for_all = need == Need::All;
    let is_patient = evict || wait != Some(Span::ZERO);
    line.send(&PoolRequest::EndsWithin(ends_within(run)))?;
    line.send(&PoolRequest::Want(Want { job, need, wait, evict, command }))?;
    let limit = match wait {
        Some(within) if !evict => Some(PATIENCE.saturating_add(Duration::from_nanos(within.nanos()))),
        _ => None,
    };
    // A job that waits is answered at once. The end of its wait is the pool's to decide.
    if !is_patient {
        line.set_limit(Some(PATIENCE))?;
    }
    let granted = loop {
        match line.receive()? {
            PoolReply::Granted(granted) => break granted,
            PoolReply::Queued { before, holders } => {
                // Lost hosts are named where the job may be waiting for them.
                let lacking = match request(&name, &PoolRequest::Status) {
                    Ok(PoolReply::Report(report)) => show::lacking(&report, is_for_all),
                    _ => String::new(),
                };
                let why = match (holders.is_empty() && before == 0, lacking.is_empty()) {
                    (true, false) => lacking,
                    (_, true) => show::holders(&holders, before),
                    (false, false) => format!("{}; {lacking}", show::holders(&holders, before)),
                };
                if !say(&format!("rlaunch: waiting for the pool {name}: {why}\n")) {
                    return Err(PoolError::Left { name });
                }
                line.wait(limit, &mut say)?;
            }
            other => return Err(PoolError::unexpected(&name, other)),
        }
    };
    if !granted.left_out.is_empty() {
        let hosts: Vec<String> = granted.left_out.iter().map(|host| host.to_string()).collect();
        say(&format!(
            "rlaunch: the pool {name} leaves these hosts out, which it cannot use now: {}\n",
            hosts.join(", ")
        ));
    }
    let has_connections = granted.hosts.iter().any(|host| !host.control.is_empty());
    let hosts = entries(&granted).map_err(|why| PoolError::Silent { name: name.clone(), why })?;
    run.use_pool(hosts);
    Ok(Held { name, stream: line.stream, has_connections })
}

/// The numbers of slices for a job that names none, if the pool has such.
fn sizes(line: &Line) -> Result<Option<Vec<u32>>, PoolError> {
    match line.ask(&PoolRequest::Slices)? {
        PoolReply::Slices(slices) => Ok(Some(slices.sizes).filter(|sizes| !sizes.is_empty())),
        // A pool of an earlier version has none.
        _ => Ok(None),
    }
}

/// The hosts of a job, and their control sockets.
fn entries(granted: &Granted) -> Result<Vec<(Entry, OsBytes)>, String> {
    let lines: Vec<&[u8]> = granted.hosts.iter().map(|host| host.line.as_slice()).collect();
    let text = lines.join(&b'\n');
    let entries = hostlist::files([("pool", text.as_slice())], &mut Alone).map_err(|error| error.to_string())?;
    if entries.len() != granted.hosts.len() {
        return Err("a host is named twice".to_owned());
    }
    Ok(entries.into_iter().zip(granted.hosts.iter().map(|host| host.control.clone())).collect())
}
