//! A process that starts programs by its MPI library, and waits until they run.

use super::{Action, Cx};
use crate::id::{ClientId, Rank};
use crate::wire::frozen::client::Reply as Stored;
use crate::wire::frozen::client::order::{Order, Request};
use crate::wire::pmi1::Reply;
use alloc::vec::Vec;

/// The process, and what it waits for.
#[derive(Debug)]
pub(super) struct Spawn {
    client: ClientId,
    rank: Rank,
    /// The new ranks.
    ranks: u32,
}

/// Orders the start of programs.
pub(super) fn begin(cx: &mut Cx<'_>, rank: Rank, request: Request) {
    let ranks = request.programs.iter().fold(0_u32, |sum, program| sum.saturating_add(program.ranks));
    let spawn = Spawn { client: cx.client, rank, ranks };
    cx.order(rank, Order::Spawn(request).write(), super::remote::Pending::Spawn(spawn));
}

/// The library sees an error without words: the user reads the reason.
pub(super) fn refuse(cx: &mut Cx<'_>, (client, rank): (ClientId, Rank), words: &[&[u8]]) {
    let text: Vec<u8> =
        [&b"rlaunch: MPI_Comm_spawn: "[..]].iter().chain(words).flat_map(|part| part.iter()).copied().collect();
    cx.out.push_back(Action::Log { rank, text });
    cx.write(client, Reply::NotSpawned.write());
}

impl Spawn {
    /// The ranks run, or none does.
    pub(super) fn answered(self, cx: &mut Cx<'_>, answer: &Stored<'_>) {
        let Self { client, rank, ranks } = self;
        let Stored::Refused(refused) = answer else {
            return cx.write(client, Reply::Spawned { ranks }.write());
        };
        let hint: &[&[u8]] = if refused.hint.is_empty() { &[] } else { &[b"\n  try     ", refused.hint] };
        refuse(cx, (client, rank), &[&[refused.text], hint].concat());
    }
}
