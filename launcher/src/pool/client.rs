//! The other end of a pool's socket: a job that gets hosts, and the commands of `rlaunch pool`.

use super::room::Room;
use super::show;
use crate::cli::{PoolChoice, Run};
use rlaunch_core::error::Hint;
use rlaunch_core::exit;
use rlaunch_core::hostlist::{self, Alone, Entry};
use rlaunch_core::id::{JobId, NodeId};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::place::Placement;
use rlaunch_core::time::Span;
use rlaunch_core::wire::frozen::pool::{
    Granted, HEADER, Holder, MAX_REPLY, PoolReply, PoolRequest, Refusal, Report, Slices, VERSION, Want, body_len,
    common_version,
};
use std::borrow::Cow;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a pool may take to answer where it does not wait for others.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pool that does not do what was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    /// There is none of this name.
    #[error("there is no pool {name}{}", those(others))]
    None { name: String, others: Vec<String> },
    /// Its directory could be another user's work.
    #[error("the pool {name} is not used: {why}")]
    Unsafe { name: String, why: String },
    /// The connection failed.
    #[error("the pool {name} does not answer: {why}")]
    Silent { name: String, why: String },
    /// Other jobs have its hosts.
    #[error("the pool {name} is busy: {}", show::holders(holders, *waiting))]
    Busy { name: String, holders: Vec<Holder>, waiting: u32 },
    /// Not done.
    #[error("the pool {name} {}", show::refusal(refusal))]
    Refused { name: String, refusal: Refusal },
    /// Another version.
    #[error("the pool {name} was started by an rlaunch of another version")]
    Version { name: String },
}

/// The names of other pools.
fn those(others: &[String]) -> String {
    match others {
        [] => "; none is up".to_owned(),
        others => format!("; these are up: {}", others.join(", ")),
    }
}

impl Hint for PoolError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::None { name, .. } => format!("rlaunch pool up {name} -H LIST").into(),
            Self::Unsafe { .. } => "remove that directory, or set XDG_RUNTIME_DIR to one of your own".into(),
            Self::Silent { name, .. } => format!("rlaunch pool status {name}").into(),
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

    fn silent(name: &str, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                "it has ended".to_owned()
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no word for {} s", PATIENCE.as_secs()),
            _ => rlaunch_sys::reason(error),
        };
        Self::Silent { name: name.to_owned(), why }
    }
}

/// A connection to a pool that was checked.
fn connect(name: &str) -> Result<UnixStream, PoolError> {
    let room = Room::of(name);
    let none = || PoolError::None { name: name.to_owned(), others: Room::names() };
    let not_safe = |why: String| PoolError::Unsafe { name: name.to_owned(), why };
    match room.check() {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
        Err(error) => return Err(not_safe(rlaunch_sys::reason(&error))),
    }
    let stream = match UnixStream::connect(room.socket()) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            return Err(none());
        }
        Err(error) => return Err(PoolError::silent(name, &error)),
    };
    match rlaunch_sys::unix::user_of(&stream) {
        Ok(user) if user == rlaunch_sys::facts::host::user().0 => {}
        Ok(user) => return Err(not_safe(format!("its process is one of user {user}"))),
        Err(error) => return Err(not_safe(rlaunch_sys::reason(&error))),
    }
    let greeted = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| send(&stream, &PoolRequest::Hello { min: VERSION, max: VERSION }))
        .and_then(|()| receive(&stream));
    match greeted.map_err(|error| PoolError::silent(name, &error))? {
        PoolReply::Hello { min, max } if common_version(min, max).is_some() => Ok(stream),
        other => Err(PoolError::unexpected(name, other)),
    }
}

fn send(mut stream: &UnixStream, request: &PoolRequest) -> io::Result<()> {
    stream.write_all(&request.to_frame())
}

fn receive(mut stream: &UnixStream) -> io::Result<PoolReply> {
    let malformed = |_| io::Error::other("its answer is not understood");
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let len = body_len(&header, MAX_REPLY).map_err(malformed)?;
    let mut frame = header.to_vec();
    stream.take(len as u64).read_to_end(&mut frame)?;
    PoolReply::parse(&frame).map_err(malformed)
}

/// Asks a pool for something.
pub(super) fn request(name: &str, request: &PoolRequest) -> Result<PoolReply, PoolError> {
    let stream = connect(name)?;
    send(&stream, request).and_then(|()| receive(&stream)).map_err(|error| PoolError::silent(name, &error))
}

/// The state of a pool, with its slices.
pub(super) fn status(name: &str) -> Result<(Report, Slices), PoolError> {
    let stream = connect(name)?;
    // Both at once, because the state may change between two answers.
    let both = [PoolRequest::Status, PoolRequest::Slices].map(|request| request.to_frame()).concat();
    let silent = |error: io::Error| PoolError::silent(name, &error);
    (&stream).write_all(&both).map_err(silent)?;
    let report = match receive(&stream).map_err(silent)? {
        PoolReply::Report(report) => report,
        other => return Err(PoolError::unexpected(name, other)),
    };
    match receive(&stream).map_err(silent)? {
        PoolReply::Slices(slices) => Ok((report, slices)),
        // A pool of an earlier version.
        PoolReply::Unsupported(_) => Ok((report, Slices { sizes: Vec::new(), slices: Vec::new() })),
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

/// Ends a pool, and waits until nothing is left of it.
pub(super) fn down(name: &str, is_now: bool) -> Result<String, PoolError> {
    let stream = connect(name)?;
    let silent = |error: &io::Error| PoolError::silent(name, error);
    match send(&stream, &PoolRequest::Down { is_now })
        .and_then(|()| receive(&stream))
        .map_err(|error| silent(&error))?
    {
        PoolReply::Done => {}
        other => return Err(PoolError::unexpected(name, other)),
    }
    // Jobs may take as long as their --grace.
    let ended = stream.set_read_timeout(None).and_then(|()| (&stream).read(&mut [0]));
    match ended {
        Ok(_) => Ok(String::new()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(String::new()),
        Err(error) => Err(silent(&error)),
    }
}

/// A job's hold on hosts of a pool. The hosts are the job's until this is closed.
#[derive(Debug)]
pub(crate) struct Held {
    name: String,
    stream: UnixStream,
}

impl Held {
    /// For warnings about the hosts of a placement.
    pub(crate) fn warner(&self, placement: &Placement) -> Option<Warner> {
        let hosts = placement.nodes.iter().map(|node| node.host.to_string()).collect();
        self.stream.try_clone().ok().map(|stream| Warner { stream, hosts })
    }

    /// The pool, if its process has ended.
    pub(crate) fn lost(&self) -> Option<&str> {
        // The pool sends nothing after the hosts.
        let end = rlaunch_sys::socket::recv(&self.stream, &mut [0]);
        let is_open = end.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        (!is_open).then_some(self.name.as_str())
    }
}

/// A job's way to report warnings about its hosts.
#[derive(Debug)]
pub(crate) struct Warner {
    stream: UnixStream,
    /// The names of the hosts in the pool.
    hosts: Vec<String>,
}

impl Warner {
    /// A host is about to be taken away.
    pub(crate) fn warn(&self, node: NodeId) {
        if let Some(host) = self.hosts.get(node.index()) {
            let frame = PoolRequest::Warned(host.as_str().into()).to_frame();
            // A pool that is gone hands nothing out.
            let _gone = rlaunch_sys::socket::send(&self.stream, &frame);
        }
    }
}

/// Gets hosts for a job, if it names a pool. `say` prints notes.
///
/// # Errors
/// There is no such pool, or it does not give the hosts.
pub(crate) fn hold(run: &mut Run, choice: PoolChoice, job: JobId, say: impl Fn(&str)) -> Result<Held, PoolError> {
    let PoolChoice { name, mut need, wait, evict, takes_sizes } = choice;
    let words =
        |program: &crate::cli::Program| program.argv.iter().map(OsBytes::as_slice).collect::<Vec<_>>().join(&b' ');
    let command = run.programs.iter().map(words).collect::<Vec<_>>().join(&b" : "[..]);
    // A name of the job for others, not a record of it.
    let command = OsBytes::from(command.get(..256).unwrap_or(&command));
    let stream = connect(&name)?;
    let silent = |error: &io::Error| PoolError::silent(&name, error);
    if takes_sizes && let Some(sizes) = sizes(&stream).map_err(|error| silent(&error))? {
        need = run.use_sizes(&sizes);
    }
    let is_patient = evict || wait != Some(Span::ZERO);
    let want = PoolRequest::Want(Want { job, need, wait, evict, command });
    let asked = send(&stream, &want).and_then(|()| stream.set_read_timeout((!is_patient).then_some(PATIENCE)));
    asked.map_err(|error| silent(&error))?;
    let granted = loop {
        match receive(&stream).map_err(|error| silent(&error))? {
            PoolReply::Granted(granted) => break granted,
            PoolReply::Queued { before, holders } => {
                say(&format!("rlaunch: waiting for the pool {name}: {}\n", show::holders(&holders, before)));
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
    let hosts = entries(&granted).map_err(|why| PoolError::Silent { name: name.clone(), why })?;
    run.use_pool(hosts);
    Ok(Held { name, stream })
}

/// The numbers of slices for a job that names none, if the pool has such.
fn sizes(stream: &UnixStream) -> io::Result<Option<Vec<u32>>> {
    send(stream, &PoolRequest::Slices)?;
    match receive(stream)? {
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
