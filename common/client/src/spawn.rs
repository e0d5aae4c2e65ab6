//! Other programs of the same job, started and ended by a rank.

use crate::Error;
use crate::connection::{Connection, path_from_env};
use crate::store::{span, variable};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::wire::frozen::client::order::{self, Order, Spawned};
use rlaunch_protocol::wire::frozen::client::{FromAgent, NO_RANK, Reply};
use std::time::Duration;

/// A program of a world that is to be started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
    /// How many ranks run it.
    pub ranks: u32,
    /// Variables that go over those of the program of this rank.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its working directory; `None`: that of the program of this rank.
    pub wdir: Option<Vec<u8>>,
    /// The hosts that it may run on, by their names in the job; none: all. With as many names as ranks: the host of each rank.
    pub hosts: Vec<Vec<u8>>,
}

/// A world that is to be started: ranks with numbers, MASTER_PORT and keys of their own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Its programs; ranks are numbered through them in this order.
    pub programs: Vec<Program>,
    /// The name of the world; empty: `world-N`.
    pub group: Vec<u8>,
    /// The group on whose slots and devices its ranks run; empty: on free slots.
    pub share: Vec<u8>,
    /// Ranks that are tied together; 0: none.
    pub tied: u32,
    /// The failure of one of its ranks does not end the job.
    pub tolerant: bool,
    /// The world ends when the rank that has asked for it ends.
    pub bound: bool,
}

/// A world that was started: all of its ranks run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpawnedWorld {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub group: Vec<u8>,
    /// The host of each of its ranks, in their order.
    pub hosts: Vec<Vec<u8>>,
}

/// Starts programs as a new world of this job. Returns when all of its ranks run; where one cannot be started, none remains.
///
/// # Errors
/// The reason for which nothing was started, or [`Error::NoJob`] outside rlaunch.
pub fn spawn(request: &Request) -> Result<SpawnedWorld, Error> {
    spawn_by_words(&Order::Spawn(request.into()).write()).and_then(|value| {
        let Spawned { world, group, hosts } = Spawned::parse(&value).map_err(|_| Error::Malformed)?;
        let hosts = hosts.into_iter().map(|host| host.to_vec()).collect();
        Ok(SpawnedWorld { number: world.get(), group: group.to_vec(), hosts })
    })
}

/// Ends the ranks of a world: SIGTERM, and SIGKILL for all that is in their sessions after `grace` (`None`: the job's own). Returns
/// at once. Keys of the store record how each rank has ended.
///
/// # Errors
/// There is no such world, or [`Error::NoJob`] outside rlaunch.
pub fn end_world(number: u32, grace: Option<Duration>) -> Result<(), Error> {
    let order = Order::EndWorld(rlaunch_base::id::WorldId::new(number), span(grace));
    carry_out(&order.write(), |reply| matches!(reply, Reply::Done).then_some(()))
}

/// The same by the words of the wire, for C.
pub(crate) fn spawn_by_words(words: &[u8]) -> Result<Vec<u8>, Error> {
    carry_out(words, |reply| match reply {
        Reply::Value(value) => Some(value.unwrap_or_default().to_vec()),
        Reply::Done => Some(Vec::new()),
        _ => None,
    })
}

/// Each order has a connection of its own: it may take as long as a program takes to start.
fn carry_out<T>(words: &[u8], take: impl FnOnce(Reply<'_>) -> Option<T>) -> Result<T, Error> {
    let path = path_from_env()?.ok_or(Error::NoJob)?;
    let rank = variable("RLAUNCH_RANK")?.unwrap_or(NO_RANK);
    let frame = Connection::open(&path, rank)?.order(words)?;
    match FromAgent::parse(&frame) {
        Ok(FromAgent::Answer(_, Reply::Refused(refused))) => Err(refused.into()),
        Ok(FromAgent::Answer(_, reply)) => take(reply).ok_or(Error::Malformed),
        Ok(FromAgent::Bye(_)) | Err(_) => Err(Error::Malformed),
    }
}

impl From<&Request> for order::Request {
    fn from(request: &Request) -> Self {
        let Request { programs, group, share, tied, tolerant, bound } = request;
        Self {
            programs: programs.iter().map(Into::into).collect(),
            group: group.as_slice().into(),
            share: share.as_slice().into(),
            tied: *tied,
            tolerant: *tolerant,
            bound: *bound,
            origin: OsBytes::default(),
        }
    }
}

impl From<&Program> for order::Program {
    fn from(program: &Program) -> Self {
        let bytes = |bytes: &Vec<u8>| OsBytes::from(bytes.as_slice());
        Self {
            ranks: program.ranks,
            argv: program.argv.iter().map(bytes).collect(),
            env: program.env.iter().map(|(name, value)| (bytes(name), bytes(value))).collect(),
            wdir: program.wdir.as_ref().map(bytes),
            hosts: program.hosts.iter().map(bytes).collect(),
        }
    }
}
