//! PMI-1 and PMIx: what several ranks send, cut anywhere, and closed at any moment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_base::id::ClientId;
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::time::Mono;
use rlaunch_mpi::{Action, Layout, Mpi};
use rlaunch_protocol::wire::to_node::HostRanks;
use rlaunch_protocol::wire::{pmi1, pmix};

const RANKS: u32 = 3;
const NOW: Mono = Mono::from_nanos(1);

fn machine() -> Mpi {
    let here = HostRanks::new("here".into(), &RankSet::world(2));
    let mut other = RankSet::new();
    other.insert_range(2, 2);
    let hosts = vec![here, HostRanks::new("there".into(), &other)];
    Mpi::new(Layout {
        name: "world".into(),
        hosts,
        here: 0,
        apps: vec![RANKS],
        is_crowded: true,
        origin: Default::default(),
        session_dir: "/tmp/rlaunch.mpi/world".into(),
    })
}

/// Collects the bytes that the machine has written for each connection.
fn drain(mpi: &mut Mpi, written: &mut Vec<(ClientId, Vec<u8>)>) {
    while let Some(action) = mpi.poll_action() {
        if let Action::Write { client, bytes } = action {
            written.push((client, bytes));
        }
    }
}

/// The same bytes in one piece and byte by byte have the same answers.
fn one(bytes: &[u8]) {
    let whole = {
        let (mut mpi, mut written) = (machine(), Vec::new());
        let client = mpi.open();
        mpi.receive(NOW, client, bytes, |_| Some(true));
        drain(&mut mpi, &mut written);
        written
    };
    let (mut mpi, mut written, mut held) = (machine(), Vec::new(), Vec::new());
    let client = mpi.open();
    for byte in bytes {
        held.push(*byte);
        let used = mpi.receive(NOW, client, &held, |_| Some(true));
        held.drain(..used);
        drain(&mut mpi, &mut written);
    }
    assert_eq!(whole, written);
}

fuzz_target!(|data: &[u8]| {
    let Some((how, rest)) = data.split_first() else { return };
    let _codec =
        (pmi1::line(rest), pmi1::parse(rest), pmix::Hello::parse(rest), pmix::Request::parse(rest, how & 1 == 1));
    if rest.len() < 4096 {
        one(rest);
    }
    // Pieces for several connections: which, how long, and whether it is closed after that.
    let (mut mpi, mut written) = (machine(), Vec::new());
    let mut clients: Vec<(ClientId, Vec<u8>)> = (0..4).map(|_| (mpi.open(), Vec::new())).collect();
    let mut rest = rest;
    while let Some(([which, len], more)) = rest.split_first_chunk() {
        let (piece, more) = more.split_at(usize::from(*len).min(more.len()));
        rest = more;
        let (client, held) = &mut clients[usize::from(which & 3)];
        held.extend_from_slice(piece);
        let used = mpi.receive(NOW, *client, held, |rank| Some(rank.get() < RANKS));
        held.drain(..used);
        drain(&mut mpi, &mut written);
        if which & 0x80 != 0 {
            mpi.closed(*client);
            *client = mpi.open();
            held.clear();
        }
    }
});
