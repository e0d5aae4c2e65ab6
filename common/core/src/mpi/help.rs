//! Help messages of Open MPI: the ranks that meet the same condition send the same text, and the user reads it once.
//!
//! A host shows a message that it meets first. If the world has other hosts, the store decides which of them shows it.

use super::fences::Waiter;
use super::remote::{PREFIX, Pending};
use super::{Action, Cx, pmix};
use crate::id::Rank;
use crate::os_bytes::OsBytes;
use crate::store::Ask;
use crate::wire::frozen::client::Reply;
use crate::wire::node_news::NodeNews;
use crate::wire::pmix::{HelpName, status};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Most messages with a count, and the longest name. Others are shown each time.
const MOST: usize = 256;
const LONGEST_NAME: usize = 1024;

/// File and topic.
pub(super) type Name = (Vec<u8>, Vec<u8>);

/// The messages that this host has met, and how often each came again since the last report.
#[derive(Debug, Default)]
pub(super) struct HelpMessages {
    repeats: BTreeMap<Name, u32>,
    candidates: Vec<Candidate>,
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
        if let Some(repeats) = self.repeats.get_mut(&name) {
            *repeats = repeats.saturating_add(1);
            return pmix::reply(cx, waiter, status::SUCCESS);
        }
        let is_counted = self.repeats.len() < MOST && file.len().saturating_add(topic.len()) <= LONGEST_NAME;
        if is_counted {
            self.repeats.insert(name.clone(), 0);
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
        let repeats = self.repeats.entry(candidate.name).or_default();
        *repeats = repeats.saturating_add(1);
        pmix::reply(cx, candidate.waiter, status::SUCCESS);
    }

    /// The messages that came again since the last report.
    pub(super) fn report(&mut self) -> Vec<NodeNews> {
        let repeated = self.repeats.iter_mut().filter(|(_, repeats)| **repeats > 0);
        let news = |((file, topic), repeats): (&Name, &mut u32)| NodeNews::MpiHelp {
            count: core::mem::take(repeats),
            file: OsBytes::from(file.as_slice()),
            topic: OsBytes::from(topic.as_slice()),
        };
        repeated.map(news).collect()
    }
}

impl Candidate {
    fn show(self, cx: &mut Cx<'_>) {
        let Self { waiter, rank, text, .. } = self;
        cx.out.push_back(Action::Log { rank, text });
        pmix::reply(cx, waiter, status::SUCCESS);
    }
}
