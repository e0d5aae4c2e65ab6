//! Public names: what a rank publishes for all ranks of the job. They are kept in the store, so that all hosts see the same.

use super::fences::Waiter;
use super::init_wait::PATIENCE;
use super::pmix::{reply, send};
use super::remote::{PREFIX, Pending};
use super::{Action, Cx};
use alloc::vec::Vec;
use rlaunch_base::id::{ClientId, Rank};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_keyvalue::store::{Ask, Expected};
use rlaunch_protocol::wire::codec::{append, decode_borrowed};
use rlaunch_protocol::wire::frozen::client::{Code, Refused, Reply as Stored};
use rlaunch_protocol::wire::node_news::MpiNews;
use rlaunch_protocol::wire::pmi1::{LIMITS, NameRequest, Reply};
use rlaunch_protocol::wire::pmix::{Proc, RawValue, Writer, status};
use serde::{Deserialize, Serialize};

/// Names of a lookup that a message has.
const SHOWN: usize = 8;

/// Kind of a request of PMI-1 about a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Naming {
    Publish,
    Lookup,
    Unpublish,
}

/// A request of PMIx for public values, some of which may have to be taken away.
#[derive(Debug)]
pub(super) struct Taking {
    pub(super) waiter: Waiter,
    pub(super) keys: Vec<Vec<u8>>,
    waits: bool,
    /// The rank whose long wait is to be reported; `None`: it was.
    unreported: Option<Rank>,
    step: Step,
    /// Values in the order of their keys; `None`: there is none.
    found: Vec<Option<Vec<u8>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Until all keys exist, or the wait is to be reported.
    Wait,
    /// Reads the value of this key.
    Read(usize),
    /// Takes the value of this key, which is for one reader.
    Take(usize),
}

/// Whose name it is: names of PMI-1 and PMIx do not meet.
fn key_of(wire: &[u8], name: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), b"/name/", wire, b"/", name].concat()
}

/// Reads a key at its owner. An agent answers other reads with what it read before, and may not know yet that a name was taken back.
const fn read(key: &[u8]) -> Ask<'_> {
    /// No name has this value.
    const NEVER: &[u8] = b"\0";
    Ask::CompareSet { key, expected: Expected::Value(NEVER), desired: NEVER }
}

/// Asks the store about a name of PMI-1. Returns the answer, if that needs no store.
pub(super) fn serve_line(cx: &mut Cx<'_>, request: NameRequest<'_>) -> Option<Reply<'static>> {
    let [longest, ..] = LIMITS;
    let key = |service| key_of(b"1", service);
    match request {
        NameRequest::Publish { service, .. } if service.len() > longest => {
            return Some(Reply::Refused { command: "publish_result", why: "name_is_too_long" });
        }
        NameRequest::Publish { service, port } => {
            let ask = Ask::CompareSet { key: &key(service), expected: Expected::Absent, desired: port };
            cx.ask_for_all(ask, Pending::Name(cx.client, Naming::Publish));
        }
        NameRequest::Lookup { service } => {
            cx.ask_for_all(read(&key(service)), Pending::Name(cx.client, Naming::Lookup));
        }
        NameRequest::Unpublish { service } => {
            cx.ask_for_all(Ask::Delete(&key(service)), Pending::Name(cx.client, Naming::Unpublish));
        }
    }
    None
}

/// Sends what the store has answered about a name of PMI-1.
pub(super) fn answer_line(cx: &mut Cx<'_>, client: ClientId, request: Naming, answer: &Stored<'_>) {
    let command = "publish_result";
    let reply = match (request, answer) {
        (Naming::Publish, Stored::Compared(true, _)) => Reply::Published,
        (Naming::Publish, Stored::Refused(_)) => Reply::Refused { command, why: "too_many_names" },
        (Naming::Publish, _) => Reply::Refused { command, why: "duplicate_service" },
        (Naming::Lookup, Stored::Compared(_, port)) => Reply::LookedUp(*port),
        (Naming::Lookup, _) => Reply::LookedUp(None),
        (Naming::Unpublish, _) => Reply::Unpublished,
    };
    cx.write(client, reply.write());
}

/// Publishes values of PMIx.
pub(super) fn publish(cx: &mut Cx<'_>, waiter: Waiter, by: u32, values: &[(&[u8], RawValue<'_>)], is_once: bool) {
    let nspace = cx.layout.name.as_bytes();
    let entry = |(key, value): &(&[u8], RawValue<'_>)| {
        let public = Public { is_once, proc: Proc { nspace, rank: by }, value: *value };
        (key_of(b"x", key), append(Vec::new(), &public))
    };
    let entries: Vec<(Vec<u8>, Vec<u8>)> = values.iter().map(entry).collect();
    let pairs: Vec<(&[u8], &[u8])> = entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    cx.ask_for_all(Ask::SetAll(&pairs), Pending::Published(waiter, Vec::new()));
}

/// Sends whether values of PMIx are published, or taken back. `rest`: names that are still to be taken back.
pub(super) fn answer_published(cx: &mut Cx<'_>, waiter: Waiter, rest: Vec<Vec<u8>>, answer: &Stored<'_>) {
    if matches!(answer, Stored::Refused(_)) {
        return reply(cx, waiter, status::OUT_OF_RESOURCE);
    }
    unpublish(cx, waiter, rest);
}

/// Takes back values of PMIx. The answer follows when the last of them is gone.
pub(super) fn unpublish(cx: &mut Cx<'_>, waiter: Waiter, mut keys: Vec<Vec<u8>>) {
    match keys.pop() {
        Some(key) => cx.ask_for_all(Ask::Delete(&key_of(b"x", &key)), Pending::Published(waiter, keys)),
        None => reply(cx, waiter, status::SUCCESS),
    }
}

/// Looks up values of PMIx.
pub(super) fn lookup(cx: &mut Cx<'_>, (rank, waiter): (Rank, Waiter), keys: &[&[u8]], waits: bool) {
    if keys.is_empty() {
        return reply(cx, waiter, status::NOT_FOUND);
    }
    let keys = keys.iter().map(|key| key_of(b"x", key)).collect();
    let step = if waits { Step::Wait } else { Step::Read(0) };
    Taking { waiter, keys, waits, unreported: Some(rank), step, found: Vec::new() }.ask(cx);
}

impl Taking {
    fn ask(self, cx: &mut Cx<'_>) {
        let owned = self.keys.clone();
        let keys: Vec<&[u8]> = owned.iter().map(Vec::as_slice).collect();
        let ask = match self.step {
            Step::Wait => Ask::Wait { keys: &keys, within: self.unreported.map(|_| PATIENCE) },
            Step::Read(at) => read(keys.get(at).copied().unwrap_or_default()),
            Step::Take(at) => Ask::Delete(keys.get(at).copied().unwrap_or_default()),
        };
        cx.ask_for_all(ask, Pending::Lookup(self));
    }

    /// The next step after an answer of the store.
    pub(super) fn answered(mut self, cx: &mut Cx<'_>, answer: &Stored<'_>) {
        self.step = match (self.step, answer) {
            (Step::Wait, Stored::Refused(Refused { code: Code::TimedOut, .. })) => {
                self.report(cx);
                Step::Wait
            }
            (_, Stored::Refused(_)) => return reply(cx, self.waiter, status::OUT_OF_RESOURCE),
            (Step::Wait, _) => {
                self.found.clear();
                Step::Read(0)
            }
            (Step::Read(at), Stored::Compared(_, value)) => {
                self.found.push(value.map(<[u8]>::to_vec));
                let next = at.saturating_add(1);
                match if next < self.keys.len() { Some(Step::Read(next)) } else { self.after(None) } {
                    Some(next) => next,
                    None => return self.end(cx),
                }
            }
            (Step::Take(at), Stored::Number(removed)) => {
                if *removed == 0 {
                    // Another reader was faster.
                    self.found.iter_mut().skip(at).take(1).for_each(|found| *found = None);
                }
                match self.after(Some(at)) {
                    Some(next) => next,
                    None => return self.end(cx),
                }
            }
            (Step::Read(_) | Step::Take(_), _) => return reply(cx, self.waiter, status::NOT_FOUND),
        };
        self.ask(cx);
    }

    /// Reports a long wait, once.
    fn report(&mut self, cx: &mut Cx<'_>) {
        if let Some(rank) = self.unreported.take() {
            let names = self.keys.iter().take(SHOWN).filter_map(|key| key.get(key_of(b"x", b"").len()..));
            let names: Vec<&[u8]> = names.collect();
            let name = OsBytes::new(names.join(&b", "[..]));
            cx.out.push_back(Action::News(MpiNews::LookupWaits { rank, name }));
        }
    }

    /// The next step after the value of a key is known. Nothing is taken before all values are there.
    fn after(&self, at: Option<usize>) -> Option<Step> {
        if self.waits && self.found.iter().any(Option::is_none) {
            return Some(Step::Wait);
        }
        let from = at.map_or(0, |at| at.saturating_add(1));
        let is_once = |value: &Option<Vec<u8>>| value.as_deref().and_then(Public::parse).is_some_and(|it| it.is_once);
        let next = self.found.iter().skip(from).position(is_once)?;
        Some(Step::Take(from.saturating_add(next)))
    }

    fn end(self, cx: &mut Cx<'_>) {
        let skipped = key_of(b"x", b"").len();
        let found = self.keys.iter().zip(&self.found).filter_map(|(key, value)| {
            let Public { proc, value, .. } = Public::parse(value.as_deref()?)?;
            Some((proc, key.get(skipped..)?, value))
        });
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return reply(cx, self.waiter, status::NOT_FOUND);
        }
        let mut out = Writer::new(self.waiter.is_described);
        out.status(status::SUCCESS).published(&found);
        send(cx, self.waiter, out);
    }
}

/// A public value, as the store has it.
#[derive(Serialize, Deserialize)]
struct Public<'a> {
    is_once: bool,
    #[serde(borrow)]
    proc: Proc<'a>,
    #[serde(borrow)]
    value: RawValue<'a>,
}

impl<'a> Public<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        decode_borrowed(bytes).ok()
    }
}
