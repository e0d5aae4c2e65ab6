//! A process that starts programs by its MPI library, and waits until they run.

use super::fences::Waiter;
use super::{Action, Cx, pmix};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::wire::frozen::client::Reply as Stored;
use rlaunch_protocol::wire::frozen::client::order::{LONGEST_ORDER, Order, Request, Spawned};
use rlaunch_protocol::wire::pmi1::Reply;
use rlaunch_protocol::wire::pmix::{Writer, status};

/// Why a spawn is not ordered.
pub(super) const TOO_LONG: &str = "the programs and their arguments are longer than 512 KiB";

/// Info keys that place or change the new ranks, and that rlaunch does not follow: as the libraries name them and, after `pmix.`, PMIx.
const NO_EFFECT: [&[u8]; 18] = [
    b"hostfile",
    b"add-hostfile",
    b"addhostfile",
    b"map_by",
    b"map-by",
    b"mapby",
    b"mapper",
    b"rank_by",
    b"rankby",
    b"bind_to",
    b"bindto",
    b"npernode",
    b"pernode",
    b"ppr",
    b"preload_binary",
    b"preloadbin",
    b"preload_files",
    b"preloadfiles",
];

/// A connection that waits for a spawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asker {
    /// A client of PMI-1.
    Line(ClientId),
    /// A client of PMIx.
    Message(Waiter),
}

/// The process, and what it waits for.
#[derive(Debug)]
pub(super) struct Spawn {
    asker: Asker,
    rank: Rank,
    /// The new ranks.
    ranks: u32,
}

/// The name and the value of a variable.
pub(super) fn pair(line: &[u8]) -> Option<(OsBytes, OsBytes)> {
    let at = line.iter().position(|b| *b == b'=')?;
    let (name, value) = line.split_at_checked(at)?;
    Some((OsBytes::from(name), OsBytes::from(value.get(1..)?)))
}

/// Names the info keys of a spawn that have no effect. Any other unknown key is a hint for a library.
pub(super) fn note_keys<'a>(cx: &mut Cx<'_>, rank: Rank, keys: impl Iterator<Item = &'a [u8]>) {
    let plain = |key: &'a [u8]| key.strip_prefix(b"pmix.").unwrap_or(key);
    let named: BTreeSet<&[u8]> = keys.map(plain).filter(|key| NO_EFFECT.contains(key)).collect();
    if !named.is_empty() {
        let named = named.into_iter().collect::<Vec<_>>().join(&b", "[..]);
        let parts = [b"rlaunch: MPI_Comm_spawn: no effect: info key ", &*named, b"\n  try     the info key host"];
        cx.out.push_back(Action::Log { rank, text: parts.concat(), help: None });
    }
}

/// Orders the start of programs.
pub(super) fn begin(cx: &mut Cx<'_>, rank: Rank, asker: Asker, request: Request) {
    let ranks = request.programs.iter().fold(0_u32, |sum, program| sum.saturating_add(program.ranks));
    let words = Order::Spawn(request).write();
    // The launcher takes no longer message of an agent.
    if words.len() > LONGEST_ORDER {
        return refuse(cx, (asker, rank), &[TOO_LONG.as_bytes()]);
    }
    cx.order(rank, words, super::remote::Pending::Spawn(Spawn { asker, rank, ranks }));
}

/// The library sees an error without words: the user reads the reason.
pub(super) fn refuse(cx: &mut Cx<'_>, (asker, rank): (Asker, Rank), words: &[&[u8]]) {
    let text: Vec<u8> =
        [&b"rlaunch: MPI_Comm_spawn: "[..]].iter().chain(words).flat_map(|part| part.iter()).copied().collect();
    cx.out.push_back(Action::Log { rank, text, help: None });
    match asker {
        Asker::Line(client) => cx.write(client, Reply::NotSpawned.write()),
        Asker::Message(waiter) => pmix::reply(cx, waiter, status::JOB_FAILED_TO_LAUNCH),
    }
}

impl Spawn {
    /// The ranks run, or none does.
    pub(super) fn answered(self, cx: &mut Cx<'_>, answer: &Stored<'_>) {
        let Self { asker, rank, ranks } = self;
        if let Stored::Refused(refused) = answer {
            let hint: &[&[u8]] = if refused.hint.is_empty() { &[] } else { &[b"\n  try     ", refused.hint] };
            return refuse(cx, (asker, rank), &[&[refused.text], hint].concat());
        }
        let value = if let Stored::Value(value) = answer { *value } else { None };
        let value = value.and_then(|value| Spawned::parse(value).ok());
        match (asker, value) {
            (Asker::Line(client), _) => cx.write(client, Reply::Spawned { ranks }.write()),
            (Asker::Message(waiter), Some(spawned)) => {
                let mut out = Writer::new(waiter.is_described);
                out.status(status::SUCCESS).string(cx.layout.name_of_other(spawned.world).as_bytes());
                pmix::send(cx, waiter, out);
            }
            (Asker::Message(waiter), None) => pmix::reply(cx, waiter, status::JOB_FAILED_TO_LAUNCH),
        }
    }
}
