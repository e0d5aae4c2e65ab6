//! `rlaunch store`, done: a client of the agent's like any other program of the job.

use crate::cli::{Action, Request};
use rlaunch_base::exit;
use rlaunch_base::os_bytes::{OsBytes, Visible};
use rlaunch_client::{Error, Space, Store};

/// The text to be printed, and the exit code.
pub(crate) struct Outcome {
    pub(crate) output: Vec<u8>,
    pub(crate) code: u8,
}

/// Why it could not be done.
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) hint: Option<&'static str>,
    pub(crate) code: u8,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (hint, code) = match &error {
            Error::NoJob => (Some("rlaunch -n 2 sh -c 'rlaunch store add ready'"), exit::LAUNCH),
            Error::Variable { .. } => (Some("run it as a rank, or below one, that leaves it as it is"), exit::LAUNCH),
            Error::Connect { .. } | Error::ForeignSocket { .. } => {
                (Some("run it on a host of the job, while the job runs"), exit::LAUNCH)
            }
            Error::Unsupported(_) => (Some("use the rlaunch that has started the job"), exit::LAUNCH),
            Error::NoSocket(_) => (None, exit::LAUNCH),
            Error::TimedOut { .. } => (None, exit::TIMEOUT),
            Error::Closed(_) | Error::Io(_) | Error::Malformed | Error::Version(_) => (None, exit::LAUNCH),
            Error::TooLong(_) | Error::Refused { .. } => (None, exit::LAUNCH),
            // Errors of programs that take part in rounds: this program does not.
            Error::Interrupted(_)
            | Error::Forked
            | Error::Order(_)
            | Error::Terms(_)
            | Error::Key(_)
            | Error::NoGroup
            | Error::Worker { .. } => (None, exit::LAUNCH),
        };
        Self { text: error.to_string(), hint, code }
    }
}

/// Asks. `stdin` is read where a value is `-`.
pub(crate) fn run(request: &Request, stdin: impl FnOnce() -> std::io::Result<Vec<u8>>) -> Result<Outcome, Failure> {
    let store = Store::of_job()?;
    let store = if request.generation { store.in_space(Space::Generation) } else { store };
    let words: Vec<&[u8]> = request.words.iter().map(OsBytes::as_slice).collect();
    let within = request.timeout.map(|time| time.duration());
    let (first, second) = (words.first().copied().unwrap_or_default(), words.get(1).copied());
    let done = |output: Vec<u8>| Ok(Outcome { output, code: 0 });
    match request.action {
        Action::Get => match store.get(first)? {
            Some(mut value) => {
                value.extend(b"\n".iter().filter(|_| !request.raw));
                done(value)
            }
            None => Ok(Outcome { output: Vec::new(), code: 1 }),
        },
        Action::Set => {
            store.set(first, &value(second, stdin)?)?;
            done(Vec::new())
        }
        Action::Append => {
            store.append(first, &value(second, stdin)?)?;
            done(Vec::new())
        }
        Action::Add => done(format!("{}\n", store.add(first, number(second)?)?).into_bytes()),
        Action::Delete => Ok(Outcome { output: Vec::new(), code: u8::from(!store.delete(first)?) }),
        Action::Wait => done(store.wait(&words, within).map(|()| Vec::new())?),
        Action::List => {
            let lines = store.keys(first)?.into_iter().map(|key| format!("{}\n", Visible(&key)));
            done(lines.collect::<String>().into_bytes())
        }
        Action::Dump => done(dump(&store, first)?),
        Action::Fence => {
            let (rank, world) = (variable("RLAUNCH_RANK")?, variable("RLAUNCH_WORLD_SIZE")?);
            store.fence(first, 0..world, rank, within)?;
            done(Vec::new())
        }
    }
}

/// A key and its value on each line, as far as they are still there. Bytes that are not text are written so that a line stays a line.
fn dump(store: &Store, prefix: &[u8]) -> Result<Vec<u8>, Error> {
    let mut text = String::new();
    for key in store.keys(prefix)? {
        if let Some(value) = store.get(&key)? {
            text += &format!("{}\t{}\n", Visible(&key), Visible(&value));
        }
    }
    Ok(text.into_bytes())
}

/// A word, or all of stdin.
fn value(word: Option<&[u8]>, stdin: impl FnOnce() -> std::io::Result<Vec<u8>>) -> Result<Vec<u8>, Failure> {
    match word.unwrap_or_default() {
        b"-" => stdin().map_err(unread),
        word => Ok(word.to_vec()),
    }
}

fn number(word: Option<&[u8]>) -> Result<i64, Failure> {
    let Some(word) = word else { return Ok(1) };
    let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    number.ok_or_else(|| Failure {
        text: format!("'{}' is no whole number of 64 bits", Visible(word)),
        hint: Some("rlaunch store add KEY 5   or   rlaunch store add KEY -- -5"),
        code: exit::USAGE,
    })
}

fn variable(name: &'static str) -> Result<u32, Failure> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty()).ok_or_else(|| Failure {
        text: format!("{name} is not set: who comes to the fence is not known"),
        hint: Some("run it as a rank, or below one"),
        code: exit::LAUNCH,
    })?;
    let number = value.to_str().and_then(|value| value.parse().ok());
    number.ok_or_else(|| Error::Variable { name, value: value.to_string_lossy().into_owned() }.into())
}

fn unread(error: std::io::Error) -> Failure {
    Failure { text: format!("cannot read stdin: {}", rlaunch_sys::reason(&error)), hint: None, code: exit::LAUNCH }
}
