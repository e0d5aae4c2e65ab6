//! The members of the restart group: the process of each initial rank, and the hosts that speak for them.

use super::setup::Site;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::backoff::Streak;
use rlaunch_base::id::{NodeId, ProcId, Rank, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Mono;
use rlaunch_plan::rank_assign::{Keys, Numbers, Source};

/// The part of an initial rank in rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemberState {
    /// Nothing: no process of it has registered, or it is dead and taken out.
    Absent,
    /// Its process has registered, and is in with the next assignment.
    Joining,
    /// Takes part in the round.
    Active,
    /// Dead, or has left; taken out with the next assignment.
    Failed {
        /// Another process of the rank may be started.
        may_respawn: bool,
    },
    /// Its process takes no part any more, though it may be there.
    Left,
}

/// An initial rank.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) node: NodeId,
    pub(super) proc: Option<ProcId>,
    /// Values that its process has sent for the keys that only the process can answer.
    pub(super) keys: Vec<OsBytes>,
    pub(super) state: MemberState,
    /// The first round of its process.
    pub(super) first_round: Round,
    /// Something was wrong with it in this round.
    pub(super) faulted: bool,
    /// Faults of its own.
    pub(super) faults: u32,
    /// Whether a fault of its own was in this round.
    pub(super) fault_counted: bool,
    /// Whether it has left the function of this round.
    pub(super) ready: bool,
    /// Whether it is about to be taken away.
    pub(super) warned: bool,
    /// When the first round of its process began.
    pub(super) entered_at: Option<Mono>,
    /// When it has registered.
    pub(super) joined_at: Option<Mono>,
    /// Some rank has made progress in a round that its process was in.
    pub(super) has_progressed: bool,
    /// Its processes in a row that could not be started, or exited at once.
    pub(super) failed_starts: Option<Streak>,
    /// Number of its processes in a row that exited soon, whether or not other ranks made progress meanwhile.
    pub(super) short_lived: u32,
}

/// A host.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) site: Site,
    /// Its initial ranks, in ascending order.
    pub(super) ranks: Vec<Rank>,
    pub(super) lost: bool,
    /// Whether its heartbeats are missing and it is not yet known to be lost: its earlier messages are not enough.
    pub(super) suspected: bool,
    /// The terms that the host has sent last, which need not have been taken.
    pub(super) last_terms: OsBytes,
    /// Whether it has been sent the interrupt for its ranks.
    pub(super) interrupt_sent: bool,
    /// All of its ranks are ready.
    pub(super) answered: bool,
    /// The port that it holds for the next round; 0: none.
    pub(super) port: u16,
    /// How many of its ranks work in this round, as it began.
    pub(super) active: u32,
    /// The function has returned on all of them.
    pub(super) returned: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) members: Vec<Member>,
    pub(super) hosts: BTreeMap<NodeId, Host>,
}

impl Membership {
    pub(super) fn new(ranks: &[NodeId], nodes: &BTreeMap<NodeId, Site>) -> Self {
        let host = |site: &Site| Host { site: site.clone(), ..Host::default() };
        let mut hosts: BTreeMap<_, _> = nodes.iter().map(|(node, site)| (*node, host(site))).collect();
        for (node, rank) in ranks.iter().zip((0..).map(Rank::new)) {
            hosts.entry(*node).or_default().ranks.push(rank);
        }
        let member = |node: &NodeId| Member {
            node: *node,
            proc: None,
            keys: Vec::new(),
            state: MemberState::Absent,
            first_round: Round::new(0),
            faulted: false,
            faults: 0,
            fault_counted: false,
            ready: false,
            warned: false,
            entered_at: None,
            joined_at: None,
            has_progressed: false,
            failed_starts: None,
            short_lived: 0,
        };
        Self { members: ranks.iter().map(member).collect(), hosts }
    }

    pub(super) fn state_of(&self, initial: Rank) -> Option<MemberState> {
        self.members.get(initial.index()).map(|member| member.state)
    }

    /// A process of this rank is on this node now.
    pub(super) fn move_to_node(&mut self, initial: Rank, node: NodeId) {
        let Some(member) = self.members.get_mut(initial.index()) else { return };
        if member.node == node {
            return;
        }
        if let Some(old) = self.hosts.get_mut(&member.node) {
            old.ranks.retain(|rank| *rank != initial);
        }
        member.node = node;
        let ranks = &mut self.hosts.entry(node).or_default().ranks;
        let at = ranks.partition_point(|rank| *rank < initial);
        ranks.insert(at, initial);
    }

    /// Whether a host has ranks that are, or will be, in a round.
    pub(super) fn has_work(&self, host: &Host) -> bool {
        let here = |rank: &Rank| matches!(self.state_of(*rank), Some(MemberState::Active | MemberState::Joining));
        host.ranks.iter().any(here)
    }
}

/// Values known about ranks, for policies.
pub(super) struct PolicyKeys<'a> {
    pub(super) membership: &'a Membership,
    /// By initial rank.
    pub(super) known: &'a [(Source, Vec<Option<String>>)],
    /// Keys that processes answer themselves, in this order.
    pub(super) asked: &'a [Source],
}

impl Keys for PolicyKeys<'_> {
    fn value(&self, source: &Source, who: Numbers) -> Option<Cow<'_, str>> {
        let member = self.membership.members.get(who.initial.index())?;
        if *source == Source::Host {
            return self.membership.hosts.get(&member.node).map(|host| Cow::Borrowed(host.site.name.as_str()));
        }
        let from_process = || {
            let at = self.asked.iter().position(|asked| asked == source)?;
            member.keys.get(at).map(|value| String::from_utf8_lossy(value))
        };
        let known = self.known.iter().find(|(known, _)| known == source);
        let known = known.and_then(|(_, values)| values.get(who.initial.index())?.as_deref());
        from_process().or_else(|| known.map(Cow::Borrowed))
    }
}
