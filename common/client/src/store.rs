//! The store, as programs ask it.

use crate::Error;
use crate::connection::Connection;
use crate::idle::Idle;
use crate::own_store::{self, Own};
use rlaunch_base::id::Rank;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Span;
use rlaunch_keyvalue::store::{Ask, Expected, Revision};
use rlaunch_protocol::wire::frozen::client::{FromAgent, NO_RANK, Reply, Space, Words};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The new state of a watched key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// To be given with the next watch.
    pub revision: u64,
    /// Its value; `None`: it is gone.
    pub value: Option<Vec<u8>>,
}

/// A key-value store that all programs of a job share.
///
/// Keys are at most 8 KiB long, values 512 KiB. A wait without a time waits for as long as the job runs. Where the
/// process takes part in rounds ([`crate::Restart`]), the end of a round ends waits, with [`Error::Interrupted`].
#[derive(Clone, Debug)]
pub struct Store {
    home: Home,
    space: Space,
}

/// The store that handles requests.
#[derive(Debug)]
enum Home {
    Agent {
        path: PathBuf,
        rank: u32,
        idle: Box<Idle>,
    },
    /// There is no job: this process itself.
    Own(Arc<Own>),
}

impl Clone for Home {
    /// With connections of its own.
    fn clone(&self) -> Self {
        match self {
            Self::Agent { path, rank, .. } => Self::at(path.clone(), *rank),
            Self::Own(own) => Self::Own(Arc::clone(own)),
        }
    }
}

impl Home {
    fn at(path: PathBuf, rank: u32) -> Self {
        Self::Agent { path, rank, idle: Box::default() }
    }
}

impl Store {
    /// The store of the job that this program belongs to: it outlives every process and every host but the launcher's. Outside rlaunch it
    /// is this process's own, with one note on stderr.
    ///
    /// # Errors
    /// Its job has other ranks and cannot be reached, or `RLAUNCH_RANK` is no rank.
    pub fn from_env() -> Result<Self, Error> {
        match crate::connection::path_from_env()? {
            Some(path) => Self::of(path),
            None => {
                crate::world::say_alone();
                Ok(Self { home: Home::Own(own_store::open()), space: Space::Job })
            }
        }
    }

    /// The same for who has to do with other processes, and nothing to do alone.
    ///
    /// # Errors
    /// Those, and [`Error::NoJob`] outside rlaunch.
    pub fn of_job() -> Result<Self, Error> {
        Self::of(crate::connection::path_from_env()?.ok_or(Error::NoJob)?)
    }

    fn of(path: PathBuf) -> Result<Self, Error> {
        let home = Home::at(path, variable("RLAUNCH_RANK")?.unwrap_or(NO_RANK));
        Ok(Self { home, space: Space::Job })
    }

    #[cfg(test)]
    pub(crate) fn at(path: &std::path::Path, rank: u32) -> Self {
        Self { home: Home::at(path.to_owned(), rank), space: Space::Job }
    }

    #[cfg(test)]
    pub(crate) fn own(own: &Arc<Own>) -> Self {
        Self { home: Home::Own(Arc::clone(own)), space: Space::Job }
    }

    /// The same in another space: names mean something else there.
    #[must_use]
    pub fn in_space(&self, space: Space) -> Self {
        Self { space, ..self.clone() }
    }

    /// The value of a key, if there is one.
    ///
    /// # Errors
    /// The reasons that [`Error`] lists, as for all methods below.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.ask(Ask::Get(key), |reply| match reply {
            Reply::Value(value) => Some(owned(value)),
            _ => None,
        })
    }

    /// Values of several keys, of one moment.
    ///
    /// # Errors
    /// They do not fit in one message together; as `get`.
    pub fn get_all(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.ask(Ask::GetAll(keys), |reply| match reply {
            Reply::Values(values) => Some(values.into_iter().map(owned).collect()),
            _ => None,
        })
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// A limit of the store; as `get`.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.done(Ask::Set(key, value))
    }

    /// Gives several keys values at once, or, where one is refused, none.
    ///
    /// # Errors
    /// As `set`.
    pub fn set_all(&self, pairs: &[(&[u8], &[u8])]) -> Result<(), Error> {
        self.done(Ask::SetAll(pairs))
    }

    /// Adds to a number in decimal, which begins with 0; the sum.
    ///
    /// # Errors
    /// The value is no number; as `set`.
    pub fn add(&self, key: &[u8], by: i64) -> Result<i64, Error> {
        self.number(Ask::Add(key, by))
    }

    /// Adds to the end of a value; its length.
    ///
    /// # Errors
    /// As `set`.
    pub fn append(&self, key: &[u8], more: &[u8]) -> Result<i64, Error> {
        self.number(Ask::Append(key, more))
    }

    /// Sets a key if it is as expected (`None`: it does not exist). Whether it was, and its value now.
    ///
    /// # Errors
    /// As `set`.
    pub fn compare_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        desired: &[u8],
    ) -> Result<(bool, Option<Vec<u8>>), Error> {
        let expected = expected.map_or(Expected::Absent, Expected::Value);
        self.ask(Ask::CompareSet { key, expected, desired }, |reply| match reply {
            Reply::Compared(set, now) => Some((set, owned(now))),
            _ => None,
        })
    }

    /// Removes a key, its queue included. Whether there was one.
    ///
    /// # Errors
    /// As `get`.
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.number(Ask::Delete(key))? > 0)
    }

    /// Whether all keys exist.
    ///
    /// # Errors
    /// As `get`.
    pub fn check(&self, keys: &[&[u8]]) -> Result<bool, Error> {
        self.ask(Ask::Check(keys), |reply| match reply {
            Reply::Done => Some(true),
            Reply::Missing => Some(false),
            _ => None,
        })
    }

    /// Waits until each of these keys has existed.
    ///
    /// # Errors
    /// [`Error::TimedOut`] names those that do not; as `get`.
    pub fn wait(&self, keys: &[&[u8]], within: Option<Duration>) -> Result<(), Error> {
        self.done(Ask::Wait { keys, within: span(within) })
    }

    /// How many keys there are. Keys of rlaunch are not counted.
    ///
    /// # Errors
    /// As `get`.
    pub fn count(&self) -> Result<i64, Error> {
        self.number(Ask::Count)
    }

    /// All keys that begin so, in order. Keys that come or go meanwhile may be in it or not.
    ///
    /// # Errors
    /// As `get`.
    pub fn keys(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        loop {
            let ask = Ask::List { prefix, after: all.last().map(Vec::as_slice), most: u32::MAX as usize };
            let part: Vec<Vec<u8>> = self.ask(ask, |reply| match reply {
                Reply::Keys(keys) => Some(keys.into_iter().map(<[u8]>::to_vec).collect()),
                _ => None,
            })?;
            if part.is_empty() {
                return Ok(all);
            }
            all.extend(part);
        }
    }

    /// Puts something at the end of a queue.
    ///
    /// # Errors
    /// As `set`.
    pub fn push(&self, queue: &[u8], item: &[u8]) -> Result<(), Error> {
        self.done(Ask::Push(queue, item))
    }

    /// Takes the first of a queue, if there is one.
    ///
    /// # Errors
    /// As `get`.
    pub fn pop(&self, queue: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.ask(Ask::Pop(queue), |reply| match reply {
            Reply::Value(value) => Some(owned(value)),
            _ => None,
        })
    }

    /// Takes the first of a queue, when there is one.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; as `get`.
    pub fn take(&self, queue: &[u8], within: Option<Duration>) -> Result<Vec<u8>, Error> {
        self.ask(Ask::Take { key: queue, within: span(within) }, |reply| match reply {
            Reply::Value(value) => owned(value),
            _ => None,
        })
    }

    /// How long a queue is.
    ///
    /// # Errors
    /// As `get`.
    pub fn queue_len(&self, queue: &[u8]) -> Result<i64, Error> {
        self.number(Ask::Len(queue))
    }

    /// Waits until a key is not any more as it was at a revision (`None`: as it is now).
    ///
    /// # Errors
    /// [`Error::TimedOut`]; as `get`.
    pub fn watch(&self, key: &[u8], since: Option<u64>, within: Option<Duration>) -> Result<Changed, Error> {
        let ask = Ask::Watch { key, since: since.map(Revision), within: span(within) };
        self.ask(ask, |reply| match reply {
            Reply::Changed(revision, value) => Some(Changed { revision, value: owned(value) }),
            _ => None,
        })
    }

    /// Comes to a fence as a rank, and waits until all of `ranks` have come. Then its name is free for the next one.
    ///
    /// # Errors
    /// [`Error::TimedOut`] names the ranks that have not come; that this one has is not taken back. As `get`.
    pub fn fence(
        &self,
        name: &[u8],
        ranks: impl IntoIterator<Item = u32>,
        own: u32,
        within: Option<Duration>,
    ) -> Result<(), Error> {
        let all: RankSet = ranks.into_iter().map(Rank::new).collect();
        let who: RankSet = [Rank::new(own)].into_iter().collect();
        self.done(Ask::Fence { name, all: &all, who: &who, within: span(within) })
    }

    fn done(&self, ask: Ask<'_>) -> Result<(), Error> {
        self.ask(ask, |reply| matches!(reply, Reply::Done).then_some(()))
    }

    fn number(&self, ask: Ask<'_>) -> Result<i64, Error> {
        self.ask(ask, |reply| match reply {
            Reply::Number(number) => Some(number),
            _ => None,
        })
    }

    fn ask<T>(&self, ask: Ask<'_>, take: impl FnOnce(Reply<'_>) -> Option<T>) -> Result<T, Error> {
        // The job's space answers at once what does not wait; a round's may be gone with its home.
        let waits = matches!(ask, Ask::Wait { .. } | Ask::Take { .. } | Ask::Watch { .. } | Ask::Fence { .. });
        let may_end = waits || self.space == Space::Generation;
        if may_end {
            crate::call_guard::may_begin()?;
        }
        let (path, rank, idle) = match &self.home {
            Home::Agent { path, rank, idle } => (path, *rank, idle),
            Home::Own(own) => {
                let reply = own.ask(self.space, ask)?;
                return read(Reply::parse(&reply).map_err(|_| Error::Malformed)?, take);
            }
        };
        let words = Words::write(ask);
        let mut connection = match idle.take() {
            Some(connection) => connection,
            None => Connection::open(path, rank)?,
        };
        // A connection that has failed is not used again.
        let frame = connection.ask(self.space, &words, may_end)?;
        if !connection.is_ended() {
            idle.put_back(connection);
        }
        let Ok(FromAgent::Answer(_, reply)) = FromAgent::parse(&frame) else { return Err(Error::Malformed) };
        read(reply, take)
    }
}

fn read<T>(reply: Reply<'_>, take: impl FnOnce(Reply<'_>) -> Option<T>) -> Result<T, Error> {
    match reply {
        Reply::Refused(refused) => Err(refused.into()),
        reply => take(reply).ok_or(Error::Malformed),
    }
}

/// A number that rlaunch has set, and other code may have changed; `None`: it is not set, or empty.
pub(crate) fn variable(name: &'static str) -> Result<Option<u32>, Error> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let number = value.to_str().and_then(|value| value.parse().ok());
    number.map(Some).ok_or_else(|| Error::Variable { name, value: value.to_string_lossy().into_owned() })
}

fn owned(value: Option<&[u8]>) -> Option<Vec<u8>> {
    value.map(<[u8]>::to_vec)
}

pub(crate) fn span(within: Option<Duration>) -> Option<Span> {
    within.map(|within| Span::from_nanos(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)))
}
