//! Torch's `TCPStore` wire: what several connections send, cut anywhere, and closed at any moment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_base::id::ClientId;
use rlaunch_base::time::Mono;
use rlaunch_keyvalue::listener::tcpstore::{Action, Peer, TcpStore};
use rlaunch_keyvalue::store::Limits;

const NOW: Mono = Mono::from_nanos(1);

fn small() -> TcpStore {
    TcpStore::new(Limits { bytes: 1 << 20, keys: 100, value: 1 << 16, ..Limits::default() })
}

/// Feeds one connection, in pieces. Returns the bytes that were written for it, and whether it was closed.
fn one(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut front = small();
    let client = front.open(Peer(1));
    let (mut held, mut written, mut closed) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        held.extend_from_slice(piece);
        let used = front.receive(NOW, client, &held);
        held.drain(..used);
        while let Some(action) = front.poll_action() {
            match action {
                Action::Write { bytes, .. } => written.extend(bytes),
                Action::Close { .. } => closed = true,
            }
        }
    }
    (written, closed)
}

/// The borders of packets do not matter.
fn cut(data: &[u8]) {
    let (len, rest) = data.split_first().unwrap_or((&1, data));
    let parts: Vec<&[u8]> = rest.chunks(usize::from(*len).max(1)).collect();
    assert_eq!(one(&parts), one(&[rest]));
}

/// Several connections: who, how much, and what; or that it is closed.
fn several(mut data: &[u8]) {
    let mut front = small();
    let mut clients: Vec<Option<(ClientId, Vec<u8>)>> = vec![None; 4];
    while let Some(([who, len], rest)) = data.split_first_chunk::<2>() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        data = rest;
        let slot = &mut clients[usize::from(who & 3)];
        if who & 0x80 != 0 {
            slot.take().into_iter().for_each(|(client, _)| front.closed(NOW, client));
            continue;
        }
        let (client, held) = slot.get_or_insert_with(|| (front.open(Peer(u64::from(who & 1))), Vec::new()));
        held.extend_from_slice(piece);
        let used = front.receive(NOW, *client, held);
        assert!(used <= held.len());
        held.drain(..used);
        while let Some(action) = front.poll_action() {
            if let Action::Close { client, .. } = action {
                front.closed(NOW, client);
                let is_of =
                    |slot: &Option<(ClientId, Vec<u8>)>| slot.as_ref().is_some_and(|(other, _)| *other == client);
                let slot = clients.iter_mut().find(|slot| is_of(slot)).expect("closed once, and only who is there");
                *slot = None;
            }
        }
    }
    assert_eq!(front.connections(), clients.iter().flatten().count());
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b'c' => cut(rest),
        b's' => several(rest),
        _ => {}
    }
});
