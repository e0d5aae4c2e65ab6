//! Help messages of Open MPI: the ranks that meet the same condition send the same text, and the user reads it once.
//!
//! A host shows a message that it meets first. If the world has other hosts, the store decides which of them shows it.
//! A message that cannot be written to the stderr of its rank is shown for another rank of the host.

use super::fences::Waiter;
use super::remote::{PREFIX, Pending};
use super::{Action, Cx, pmix};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use rlaunch_base::id::Rank;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_keyvalue::store::Ask;
use rlaunch_protocol::wire::frozen::client::Reply;
use rlaunch_protocol::wire::node_news::MpiNews;
use rlaunch_protocol::wire::pmix::{HelpName, status};

/// Most messages with a count, and the longest name. Others are shown each time.
const MOST: usize = 256;
const LONGEST_NAME: usize = 1024;

/// File and topic.
pub type Name = (Vec<u8>, Vec<u8>);

/// The messages that this host has met.
#[derive(Debug, Default)]
pub(super) struct HelpMessages {
    met: BTreeMap<Name, Met>,
    candidates: Vec<Candidate>,
}

/// A message that this host has met.
#[derive(Debug, Default)]
struct Met {
    /// How often it came again since the last report.
    repeats: u32,
    /// Whether this host was to show the message and could not: the next rank's is shown.
    is_owed: bool,
    /// The message of another rank, until the first one is shown.
    spare: Option<(Rank, Vec<u8>)>,
}

/// A message that another host may have shown.
#[derive(Debug)]
struct Candidate {
    waiter: Waiter,
    rank: Rank,
    name: Name,
    text: Vec<u8>,
}

impl HelpMessages {
    /// A rank has sent a message.
    pub(super) fn take(
        &mut self,
        cx: &mut Cx<'_>,
        (rank, waiter): (Rank, Waiter),
        HelpName { file, topic }: HelpName<'_>,
        text: &[u8],
    ) {
        let (name, text) = ((file.to_vec(), topic.to_vec()), text.to_vec());
        if let Some(met) = self.met.get_mut(&name) {
            if core::mem::take(&mut met.is_owed) {
                return Candidate { waiter, rank, name, text }.show(cx);
            }
            met.repeats = met.repeats.saturating_add(1);
            if self.candidates.iter().any(|candidate| candidate.name == name) {
                met.spare.get_or_insert((rank, text));
            }
            return pmix::reply(cx, waiter, status::SUCCESS);
        }
        let is_counted = self.met.len() < MOST && file.len().saturating_add(topic.len()) <= LONGEST_NAME;
        if is_counted {
            self.met.insert(name.clone(), Met::default());
        }
        let candidate = Candidate { waiter, rank, name, text };
        if !is_counted || cx.layout.hosts.len() < 2 {
            return candidate.show(cx);
        }
        let key = [PREFIX.as_bytes(), b"/help/", file, b"/", topic].concat();
        cx.ask(Ask::Add(&key, 1), Pending::Help(candidate.name.clone()));
        self.candidates.push(candidate);
    }

    /// The stderr of a rank is about to end: Open MPI 5 exits without waiting for the answer. Its messages are shown now, maybe twice.
    pub(super) fn show_last(&mut self, cx: &mut Cx<'_>, rank: Rank) {
        self.candidates.extract_if(.., |candidate| candidate.rank == rank).for_each(|candidate| candidate.show(cx));
    }

    /// The store has answered: the first host has 1. A store that is gone knows of no other host.
    pub(super) fn answered(&mut self, cx: &mut Cx<'_>, name: &Name, answer: &Reply<'_>) {
        let Some(at) = self.candidates.iter().position(|candidate| candidate.name == *name) else { return };
        let candidate = self.candidates.swap_remove(at);
        if !matches!(answer, Reply::Number(2..)) {
            return candidate.show(cx);
        }
        let met = self.met.entry(candidate.name).or_default();
        met.repeats = met.repeats.saturating_add(1);
        met.spare = None;
        pmix::reply(cx, candidate.waiter, status::SUCCESS);
    }

    /// A message was shown, or could not be. Returns another attempt.
    pub(super) fn written(&mut self, name: &Name, is_written: bool) -> Option<Action> {
        let met = self.met.get_mut(name)?;
        let spare = met.spare.take();
        if is_written {
            return None;
        }
        let Some((rank, text)) = spare else {
            met.is_owed = true;
            return None;
        };
        met.repeats = met.repeats.saturating_sub(1);
        Some(Action::Log { rank, text, help: Some(name.clone()) })
    }

    /// The messages that came again since the last report.
    pub(super) fn report(&mut self) -> Vec<MpiNews> {
        let repeated = self.met.iter_mut().filter(|(_, met)| met.repeats > 0);
        let news = |((file, topic), met): (&Name, &mut Met)| MpiNews::Help {
            count: core::mem::take(&mut met.repeats),
            file: OsBytes::from(file.as_slice()),
            topic: OsBytes::from(topic.as_slice()),
        };
        repeated.map(news).collect()
    }
}

impl Candidate {
    fn show(self, cx: &mut Cx<'_>) {
        let Self { waiter, rank, name, text } = self;
        cx.out.push_back(Action::Log { rank, text, help: Some(name) });
        pmix::reply(cx, waiter, status::SUCCESS);
    }
}
