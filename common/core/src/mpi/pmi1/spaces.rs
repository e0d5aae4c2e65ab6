//! Spaces of keys: one for each MPI program that the ranks run one after the other.
//!
//! Keys of this host's ranks are here. The other hosts get them with the next barrier, and look at them when one of their ranks asks for a
//! key that its own host does not have.

use super::super::remote::{PREFIX, Pending};
use super::super::{Cx, Layout};
use super::Generation;
use crate::id::ClientId;
use crate::store::Ask;
use crate::wire::pmi1::Reply;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Keys and their values.
pub(crate) type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// The keys of one program.
#[derive(Debug, Default)]
struct Space {
    own: Keys,
    /// Other hosts have not got all of `own`.
    is_new: bool,
    far: Keys,
    /// Barriers with other hosts that are over, and how many were when `far` was read.
    barriers: u64,
    read: u64,
    /// Processes that wait for keys of other hosts, each with the number of barriers that were over before.
    gets: Vec<(ClientId, Vec<u8>, u64)>,
}

/// The keys of all programs.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    all: BTreeMap<Generation, Space>,
}

/// The key of the store for what a host has put.
fn key_of(generation: Generation, node: usize) -> String {
    format!("{PREFIX}/put/{generation}/{node}")
}

impl Spaces {
    pub(super) fn put(&mut self, generation: Generation, key: &[u8], value: &[u8]) {
        let space = self.all.entry(generation).or_default();
        space.own.insert(key.to_vec(), value.to_vec());
        space.is_new = true;
    }

    /// Sends the value of a key, at once or when the other hosts' keys are here.
    pub(super) fn get(&mut self, cx: &mut Cx<'_>, generation: Generation, key: &[u8]) {
        let space = self.all.get_mut(&generation);
        let Some(space) = space.filter(|space| space.read < space.barriers && !space.own.contains_key(key)) else {
            let space = self.all.get(&generation);
            let value = space.and_then(|space| space.own.get(key).or_else(|| space.far.get(key)));
            return cx.answer(value.map_or(Reply::NotFound, |value| Reply::Found(value)).write());
        };
        let is_asked = space.gets.iter().any(|(.., barriers)| *barriers == space.barriers);
        space.gets.push((cx.client, key.to_vec(), space.barriers));
        if !is_asked {
            let Layout { hosts, here, .. } = cx.layout;
            let others = (0..hosts.len()).filter(|node| node != here);
            let keys: Vec<String> = others.map(|node| key_of(generation, node)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
            cx.ask(Ask::GetAll(&keys), Pending::Keys(generation, space.barriers));
        }
    }

    /// The keys of other hosts, read when so many barriers were over.
    pub(super) fn take(&mut self, cx: &mut Cx<'_>, generation: Generation, read: u64, values: &[Option<&[u8]>]) {
        let Some(space) = self.all.get_mut(&generation) else { return };
        space.read = space.read.max(read);
        for line in values.iter().flatten().flat_map(|text| text.split(|b| *b == b'\n')) {
            let mut parts = line.splitn(2, |b| *b == 0);
            if let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                space.far.insert(key.to_vec(), value.to_vec());
            }
        }
        for (client, key, _) in space.gets.extract_if(.., |(.., barriers)| *barriers <= read) {
            let value = space.far.get(&key);
            cx.write(client, value.map_or(Reply::NotFound, |value| Reply::Found(value)).write());
        }
    }

    /// The other hosts get what the ranks of this one have put, if that is new.
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        let Some(space) = self.all.get_mut(&generation).filter(|space| space.is_new) else { return };
        space.is_new = false;
        let mut text = Vec::new();
        for (key, value) in &space.own {
            for part in [key, &b"\0"[..], value, b"\n"] {
                text.extend_from_slice(part);
            }
        }
        cx.ask(Ask::Set(key_of(generation, cx.layout.here).as_bytes(), &text), Pending::Quiet);
    }

    /// A barrier with other hosts is over: they may have put something.
    pub(super) fn on_barrier(&mut self, generation: Generation) {
        let space = self.all.entry(generation).or_default();
        space.barriers = space.barriers.saturating_add(1);
    }

    /// Forgets spaces that all ranks have left.
    pub(super) fn forget_before(&mut self, oldest: Generation) {
        self.all = self.all.split_off(&oldest);
    }

    /// A connection is closed: it waits no more.
    pub(super) fn forget(&mut self, client: ClientId) {
        for space in self.all.values_mut() {
            space.gets.retain(|(other, ..)| *other != client);
        }
    }
}
