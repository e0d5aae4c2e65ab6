//! Spaces of keys: one for each MPI program that the ranks run one after the other.
//!
//! Keys of this host's ranks are here. The other hosts get them with the next barrier, and look at them when one of their ranks asks for a
//! key that its own host does not have. In the store they are a list of parts, as a value of the store is short. All but the last part stay
//! as they are.

use super::super::refusals::Source;
use super::super::remote::{PREFIX, Pending};
use super::super::{Cx, Layout};
use super::Generation;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::id::ClientId;
use rlaunch_keyvalue::store::Ask;
use rlaunch_protocol::wire::frozen::client::{Code, Refused, Reply as Stored};
use rlaunch_protocol::wire::pmi1::Reply;

/// Longest part of the keys of a host.
const LONGEST_PART: usize = 256 << 10;

/// Keys and their values.
pub(crate) type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// The keys of one program.
#[derive(Debug, Default)]
struct Space {
    own: Keys,
    leaving: Leaving,
    far: Keys,
    /// Parts of each other host that do not change, as far as they were asked for.
    parts: BTreeMap<usize, u32>,
    /// By the number of barriers before, the looks at other hosts' keys that are not over.
    looks: BTreeMap<u64, Look>,
    /// Barriers with other hosts that are over, and how many were when `far` was read.
    barriers: u64,
    read: u64,
    /// Processes that wait for keys of other hosts, each with the number of barriers that were over before.
    gets: Vec<(ClientId, Vec<u8>, u64)>,
}

/// Keys that the ranks of this host have put, as text for other hosts.
#[derive(Debug, Default)]
struct Leaving {
    /// Parts that were stored, and those that are to be.
    stored: u32,
    full: Vec<Vec<u8>>,
    /// The last part.
    last: Vec<u8>,
    /// The store has not got all.
    is_new: bool,
}

impl Leaving {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        if self.last.len().saturating_add(key.len()).saturating_add(value.len()) > LONGEST_PART {
            self.full.push(core::mem::take(&mut self.last));
        }
        for part in [key, &b"\0"[..], value, b"\n"] {
            self.last.extend_from_slice(part);
        }
        self.is_new = true;
    }
}

/// A look at the keys of other hosts.
#[derive(Debug, Default)]
struct Look {
    /// Requests that have no answer yet.
    open: usize,
    /// Last parts of hosts, which are newer than parts that are on their way.
    last: Vec<Vec<u8>>,
}

/// A part of the keys of another host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    node: usize,
    /// `None`: the last one, with the number of the parts before it.
    number: Option<u32>,
}

impl Part {
    fn key(self, generation: Generation) -> String {
        let key = key_of(generation, self.node);
        self.number.map_or(key.clone(), |number| format!("{key}/{number}"))
    }
}

/// A request for keys of other hosts.
#[derive(Debug)]
pub(crate) struct KeysWanted {
    generation: Generation,
    /// How many barriers were over.
    barriers: u64,
    parts: Vec<Part>,
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
    pub(super) fn put(&mut self, layout: &Layout, generation: Generation, (key, value): (&[u8], &[u8])) {
        let space = self.all.entry(generation).or_default();
        space.own.insert(key.to_vec(), value.to_vec());
        if layout.hosts.len() > 1 {
            space.leaving.add(key, value);
        }
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
            let parts = others.map(|node| Part { node, number: None }).collect();
            let barriers = space.barriers;
            space.ask(cx, KeysWanted { generation, barriers, parts });
        }
    }

    /// Keys of other hosts.
    pub(super) fn take(&mut self, cx: &mut Cx<'_>, wanted: KeysWanted, answer: &Stored<'_>) {
        let KeysWanted { generation, barriers: read, mut parts } = wanted;
        let Some(space) = self.all.get_mut(&generation) else { return };
        let look = space.looks.entry(read).or_default();
        look.open = look.open.saturating_sub(1);
        match answer {
            Stored::Values(values) => space.take(cx, (generation, read), &parts, values),
            // The parts together are longer than an answer of the store.
            Stored::Refused(Refused { code: Code::Limit, .. }) if parts.len() > 1 => {
                let second = parts.split_off(parts.len() / 2);
                for parts in [parts, second] {
                    space.ask(cx, KeysWanted { generation, barriers: read, parts });
                }
            }
            Stored::Done
            | Stored::Missing
            | Stored::Value(_)
            | Stored::Number(_)
            | Stored::Compared(..)
            | Stored::Keys(_)
            | Stored::Changed(..)
            | Stored::Refused(_) => {}
        }
        // A later look does not ask for parts that are on their way.
        while let Some(over) = space.looks.first_entry().filter(|look| look.get().open == 0) {
            let (read, look) = over.remove_entry();
            look.last.iter().for_each(|text| space.learn(text));
            space.read = space.read.max(read);
            for (client, key, _) in space.gets.extract_if(.., |(.., barriers)| *barriers <= read) {
                let value = space.far.get(&key);
                cx.write(client, value.map_or(Reply::NotFound, |value| Reply::Found(value)).write());
            }
        }
    }

    /// The other hosts get what the ranks of this one have put, if that is new.
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, generation: Generation) {
        let Some(space) = self.all.get_mut(&generation).filter(|space| space.leaving.is_new) else { return };
        let (node, Leaving { stored, full, last, is_new }) = (cx.layout.here, &mut space.leaving);
        *is_new = false;
        for text in core::mem::take(full) {
            let key = Part { node, number: Some(*stored) }.key(generation);
            cx.ask(Ask::Set(key.as_bytes(), &text), Pending::Put(Source::Program(generation)));
            *stored = stored.saturating_add(1);
        }
        let text = [&stored.to_be_bytes()[..], last].concat();
        let put = Pending::Put(Source::Program(generation));
        cx.ask(Ask::Set(key_of(generation, node).as_bytes(), &text), put);
    }

    /// Handles the end of a barrier with other hosts: they may have put something.
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

impl Space {
    fn ask(&mut self, cx: &mut Cx<'_>, wanted: KeysWanted) {
        let look = self.looks.entry(wanted.barriers).or_default();
        look.open = look.open.saturating_add(1);
        let keys: Vec<String> = wanted.parts.iter().map(|part| part.key(wanted.generation)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        cx.ask(Ask::GetAll(&keys), Pending::Keys(wanted));
    }

    /// Takes parts, and asks for the parts before them that are new.
    fn take(
        &mut self,
        cx: &mut Cx<'_>,
        (generation, barriers): (Generation, u64),
        parts: &[Part],
        values: &[Option<&[u8]>],
    ) {
        let mut more = Vec::new();
        for (Part { node, number }, value) in parts.iter().zip(values) {
            let Some(value) = value else { continue };
            let last = value.split_first_chunk().filter(|_| number.is_none());
            let Some((count, text)) = last else {
                self.learn(value);
                continue;
            };
            let known = self.parts.entry(*node).or_default();
            let new = *known..u32::from_be_bytes(*count);
            *known = new.end.max(*known);
            if new.is_empty() {
                self.learn(text);
                continue;
            }
            more.extend(new.map(|number| Part { node: *node, number: Some(number) }));
            self.looks.entry(barriers).or_default().last.push(text.to_vec());
        }
        if !more.is_empty() {
            self.ask(cx, KeysWanted { generation, barriers, parts: more });
        }
    }

    fn learn(&mut self, text: &[u8]) {
        for line in text.split(|b| *b == b'\n') {
            let mut parts = line.splitn(2, |b| *b == 0);
            if let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                self.far.insert(key.to_vec(), value.to_vec());
            }
        }
    }
}
