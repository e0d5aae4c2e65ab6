//! Records as lines of NDJSON.

use super::{Record, VERSION, What};
use alloc::string::String;
use rlaunch_base::errno::EPIPE;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::Round;
use rlaunch_base::json::Object;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::signal::Signal;
use rlaunch_protocol::master_store::Holder;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::settings::Tier;
use rlaunch_protocol::wire::to_root::Hello;
use serde::{Serialize, Serializer};

/// Returns one line of the event log, with its newline.
#[must_use]
pub fn line(record: &Record) -> String {
    let mut text = String::with_capacity(160);
    let mut object = Object::open(&mut text);
    object.field("v", &VERSION);
    object.field("t", &record.t);
    object.field("wall", &record.wall);
    match &record.what {
        What::Round { note, .. } => object.field("ev", &**note),
        What::News(news) => object.field("ev", news),
        What::NodeNews { node, news } => object.field_with("ev", news, Some(("node", node.get()))),
        what => object.field("ev", what),
    }
    let (has_generation, has_round) = process(&record.what);
    if has_generation {
        object.field("generation", &record.generation);
    }
    if let Some(round) = record.round.map(Round::get).filter(|_| has_round) {
        object.field("round", &round);
    }
    object.close();
    text.push('\n');
    text
}

/// Whether a record is about one of the processes that have played a rank one after the other: whether it has a generation, and a round.
const fn process(what: &What) -> (bool, bool) {
    match what {
        What::RankStarted { .. }
        | What::RankFailed { .. }
        | What::RankExited { .. }
        | What::RankFacts { .. }
        | What::StreamEnd { .. }
        | What::FileLost { .. } => (true, true),
        What::Round { .. } | What::RoundsOver(_) => (true, false),
        _ => (false, false),
    }
}

/// The part of an agent's hello that is in the log.
pub(super) fn hello<S: Serializer>(hello: &Hello, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shown<'a> {
        tier: Tier,
        note: &'a OsBytes,
        agent: u32,
        init: Option<u32>,
        master_port: u16,
        port_reserved: bool,
    }
    let Hello { tier, note, agent, init, master_port, port_reserved, .. } = hello;
    Shown { tier: *tier, note, agent: *agent, init: *init, master_port: *master_port, port_reserved: *port_reserved }
        .serialize(serializer)
}

pub(super) fn most<S: Serializer>(restarts: &Restarts, serializer: S) -> Result<S::Ok, S::Error> {
    restarts.most.serialize(serializer)
}

pub(super) fn holder<S: Serializer>(holder: &Holder, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shown {
        by: &'static str,
        why: &'static str,
    }
    Shown { by: holder.word(), why: holder.code() }.serialize(serializer)
}

pub(super) fn or_epipe<S: Serializer>(errno: &Option<i32>, serializer: S) -> Result<S::Ok, S::Error> {
    errno.unwrap_or(EPIPE).serialize(serializer)
}

/// The code that a shell shows, and the signal of which rlaunch dies.
pub(super) fn exit<S: Serializer>(ending: &Ending, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shown {
        exit: u8,
        raise: Option<Signal>,
    }
    let raise = match ending {
        Ending::Code(_) => None,
        Ending::Signal(signal) => Some(*signal),
    };
    Shown { exit: ending.shell_code(), raise }.serialize(serializer)
}

#[cfg(test)]
mod tests;
