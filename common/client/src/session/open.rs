//! How a session begins.

use super::Session;
use super::alone::Alone;
use super::inner::{Inner, Shared};
use super::monitor::{Monitor, OnAbort};
use crate::connection::{Connection, path_from_env};
use crate::kernel::{Bell, Watch, without_signals};
use crate::{Error, call_guard};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::wire::frozen::client::client_round::ClientMessage;
use rlaunch_restart::terms::Terms;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};

/// How a process takes part, beside its terms.
pub(crate) struct Options {
    /// Whether the caller waits for interrupts, and reports the abort of a round.
    pub(crate) foreign: bool,
    /// The same for who calls this library directly.
    pub(crate) on_abort: Option<OnAbort>,
}

/// The agent's path, and the rank to speak for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) rank: u32,
}

impl Place {
    /// `None`: outside rlaunch.
    pub(crate) fn from_env() -> Result<Option<Self>, Error> {
        let Some(path) = path_from_env()? else { return Ok(None) };
        // A round may have given the other one another number.
        let name =
            if std::env::var_os("RLAUNCH_INITIAL_RANK").is_some() { "RLAUNCH_INITIAL_RANK" } else { "RLAUNCH_RANK" };
        let value = std::env::var_os(name).unwrap_or_default().to_string_lossy().into_owned();
        let rank = value.parse().map_err(|_| Error::Variable { name, value })?;
        Ok(Some(Self { path, rank }))
    }
}

impl Session {
    /// Registers this process where its environment says.
    pub(crate) fn register(terms: &[(OsBytes, OsBytes)], options: Options) -> Result<Self, Error> {
        match Place::from_env()? {
            Some(place) => {
                let socket = Connection::open(&place.path, place.rank)?.into_socket();
                Self::over(Some(socket), terms, options)
            }
            None => {
                crate::world::say_alone();
                Self::over(None, terms, options)
            }
        }
    }

    /// The same over a connection on which the hellos were exchanged; `None`: alone.
    pub(crate) fn over(
        socket: Option<Arc<UnixStream>>,
        terms: &[(OsBytes, OsBytes)],
        options: Options,
    ) -> Result<Self, Error> {
        let pairs = terms.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        let known = Terms::of(pairs);
        let mut inner = Inner::new(options.foreign, None);
        let interval = match (&socket, known) {
            (None, known) => {
                let known = known?;
                inner.alone = Some(Alone::new(known.limits.max_rounds, &mut inner.inbox));
                known.progress_interval
            }
            // The agent may know more terms than this library, and says what is wrong.
            (Some(_), known) => known.unwrap_or_default().progress_interval,
        };
        let interval = interval.duration();
        let bell = Bell::new()?;
        let watch = Watch::new(&bell, socket.as_deref())?;
        let shared = Arc::new(Shared {
            pid: std::process::id(),
            socket,
            sending: Mutex::default(),
            bell,
            watch,
            came: Mutex::default(),
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            bits: AtomicU8::new(0),
            pings: AtomicU64::new(0),
            sent_pings: AtomicU64::new(0),
            has_reported_ping: AtomicBool::new(false),
            looking: AtomicBool::new(false),
        });
        shared.say(&ClientMessage::Register(terms.to_vec()))?;
        call_guard::takes_part();
        let monitor = Monitor::new(interval, options.on_abort);
        let other = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("rlaunch-rounds".to_owned());
        without_signals(|| thread.spawn(move || monitor.run(&other)))?;
        Ok(Self(shared))
    }
}
