//! The requests of a client, as far as they are answered.

use super::{App, LogText, Malformed, Proc, RawValue, Reader, kind};
use alloc::vec::Vec;

const ABORT: u8 = 1;
const FIRST_READ: &[u8] = &[1];

/// A name and its value.
type Info<'a> = (&'a [u8], RawValue<'a>);

/// A request about values that all processes of the job can look up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublicRequest<'a> {
    /// Makes values public.
    Publish {
        /// The values.
        values: Vec<Info<'a>>,
        /// The values are gone when they were read once.
        is_once: bool,
    },
    /// Asks for public values.
    Lookup {
        /// Their names.
        keys: Vec<&'a [u8]>,
        /// When they are there.
        waits: bool,
    },
    /// Takes back public values; an empty list: all of its own.
    Unpublish(Vec<&'a [u8]>),
}

/// A request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The facts about its job.
    JobData,
    /// The job shall end.
    Abort {
        /// With which code.
        status: i32,
        /// Why.
        text: &'a [u8],
    },
    /// Its data is for the others: the scope of each part, and its bytes.
    Commit(Vec<(u8, &'a [u8])>),
    /// Waits for others.
    Fence(Vec<Proc<'a>>),
    /// Data that another process has committed.
    Get {
        /// The process.
        of: Proc<'a>,
        /// At once, even if nothing is committed.
        is_immediate: bool,
    },
    /// The process ends.
    Finalize,
    /// About public values.
    Public(PublicRequest<'a>),
    /// Starts programs as another job.
    Spawn(Vec<App<'a>>),
    /// Waits for others, and gets to know their jobs.
    Connect(Vec<Proc<'a>>),
    /// Waits for others, and forgets their jobs.
    Disconnect(Vec<Proc<'a>>),
    /// Notify others, or be notified: is accepted, and nothing follows.
    Events,
    /// Be notified no more: has no answer.
    NoEvents,
    /// Texts for the user.
    Log(Vec<LogText<'a>>),
    /// Removal of files when it is gone.
    JobControl,
    /// Waits for others, and gets a number for their group.
    GroupConstruct {
        /// Its name.
        name: &'a [u8],
        /// Its members.
        procs: Vec<Proc<'a>>,
    },
    /// Waits for others: their group ends.
    GroupDestruct {
        /// Its name.
        name: &'a [u8],
        /// Its members.
        procs: Vec<Proc<'a>>,
    },
    /// Something else.
    Unsupported(u8),
}

impl<'a> Request<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// The bytes are no request.
    pub fn parse(body: &'a [u8], is_described: bool) -> Result<Self, Malformed> {
        let mut all = Reader::new(body, is_described);
        all.one(kind::COMMAND)?;
        Ok(match all.byte()? {
            0 => Self::JobData,
            ABORT => {
                all.one(kind::STATUS)?;
                Self::Abort { status: i32::from_be_bytes(all.word()?.to_be_bytes()), text: all.one_text()? }
            }
            2 => Self::Commit(commit(&mut all)?),
            3 => Self::Fence(all.counted(kind::PROC, Reader::proc)?),
            4 => get(&mut all)?,
            5 => Self::Finalize,
            6 => publish(&mut all)?,
            7 => {
                let keys = keys(&mut all)?;
                Self::Public(PublicRequest::Lookup { keys, waits: has(&infos(&mut all)?, b"pmix.wait") })
            }
            8 => Self::Public(PublicRequest::Unpublish(keys(&mut all)?)),
            9 => {
                let of_the_job = infos(&mut all)?;
                let mut apps = all.counted(kind::APP, App::read)?;
                apps.iter_mut().take(1).for_each(|app: &mut App<'_>| app.infos.extend(of_the_job.iter().cloned()));
                Self::Spawn(apps)
            }
            10 => Self::Connect(all.counted(kind::PROC, Reader::proc)?),
            11 => Self::Disconnect(all.counted(kind::PROC, Reader::proc)?),
            12 | 13 => Self::Events,
            14 => Self::NoEvents,
            16 => Self::Log(super::log::texts(&mut all)?),
            18 => {
                let _targets = all.counted(kind::PROC, Reader::proc)?;
                let _files = infos(&mut all)?;
                Self::JobControl
            }
            24 => Self::GroupConstruct { name: all.one_text()?, procs: all.counted(kind::PROC, Reader::proc)? },
            28 => Self::GroupDestruct { name: all.one_text()?, procs: all.counted(kind::PROC, Reader::proc)? },
            other => Self::Unsupported(other),
        })
    }
}

pub(super) fn infos<'a>(all: &mut Reader<'a>) -> Result<Vec<Info<'a>>, Malformed> {
    all.counted(kind::INFO, Reader::info)
}

fn has(infos: &[Info<'_>], key: &[u8]) -> bool {
    infos.iter().any(|(name, value)| *name == key && value.is_true())
}

fn commit<'a>(all: &mut Reader<'a>) -> Result<Vec<(u8, &'a [u8])>, Malformed> {
    let mut parts = Vec::new();
    while !all.is_empty() {
        all.one(kind::SCOPE)?;
        let scope = all.byte()?;
        all.one(kind::BUFFER)?;
        let _its_kind = all.byte()?;
        parts.push((scope, all.bytes()?));
    }
    Ok(parts)
}

fn get<'a>(all: &mut Reader<'a>) -> Result<Request<'a>, Malformed> {
    let nspace = all.one_text()?;
    all.one(kind::RANK)?;
    let of = Proc { nspace, rank: all.word()? };
    // The key that may follow is not needed: the client gets all that the process has committed.
    Ok(Request::Get { of, is_immediate: has(&infos(all)?, b"pmix.immediate") })
}

fn publish<'a>(all: &mut Reader<'a>) -> Result<Request<'a>, Malformed> {
    all.one(kind::UINT32)?;
    let _user = all.word()?;
    let infos = infos(all)?;
    let is_once = infos.iter().any(|(name, value)| *name == b"pmix.persist" && value.bytes == FIRST_READ);
    let values = infos.into_iter().filter(|(name, _)| !name.starts_with(b"pmix.")).collect();
    Ok(Request::Public(PublicRequest::Publish { values, is_once }))
}

/// Keys, each packed by itself.
fn keys<'a>(all: &mut Reader<'a>) -> Result<Vec<&'a [u8]>, Malformed> {
    all.one(kind::UINT32)?;
    let _user = all.word()?;
    let count = all.size()?;
    (0..count).map(|_| all.one_text()).collect()
}
