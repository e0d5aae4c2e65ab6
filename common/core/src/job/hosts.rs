//! The hosts of the job: whether their agents are there, and how hosts were lost. Only the router changes these facts, and every
//! sub-machine reads them here. A sub-machine keeps only its own times and steps of each host.

use crate::events::Lost;
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::Mono;
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::place::{Node, Placement};

/// The loss of a part of ours on a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Loss {
    /// The host.
    pub(super) node: NodeId,
    /// The part.
    pub(super) lost: Lost,
    /// Between which two moments.
    pub(super) between: (Mono, Mono),
}

/// The loss of a host without which the job continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HostLoss {
    loss: Loss,
    /// In this generation; otherwise, in an earlier one.
    is_recent: bool,
    /// Nothing of it runs any more, as far as is known.
    has_ended: bool,
}

/// State of a host in the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The agent of the host has not connected yet.
    Awaited,
    /// The agent of the host has connected.
    Up,
    /// The host was lost, and the job continues without it. A lost host never comes back.
    Lost(HostLoss),
    /// The job has started without the host (`--min-hosts`): not reached, refused, late, or lost before the start.
    LeftOut,
}

/// One host.
#[derive(Clone, Copy, Debug)]
struct Host {
    state: State,
    /// Whether this is the launcher's own host.
    is_local: bool,
    /// The host is about to be taken away: no rank is started there any more.
    warning: Option<WarningSource>,
}

/// The hosts, by their `NodeId`.
#[derive(Debug)]
pub(super) struct Hosts {
    hosts: Vec<Host>,
}

impl Hosts {
    pub(super) fn new(placement: &Placement) -> Self {
        let mut hosts = Self { hosts: Vec::new() };
        placement.nodes.iter().for_each(|node| hosts.add(node));
        hosts
    }

    /// Another host is of the job.
    pub(super) fn add(&mut self, node: &Node) {
        // The agent of the launcher's own host is there from the start.
        let state = if node.local { State::Up } else { State::Awaited };
        self.hosts.push(Host { state, is_local: node.local, warning: None });
    }

    fn state(&self, node: NodeId) -> Option<State> {
        self.hosts.get(node.index()).map(|host| host.state)
    }

    /// The agent of a host is there.
    pub(super) fn come_up(&mut self, node: NodeId) {
        if let Some(host) = self.hosts.get_mut(node.index()).filter(|host| host.state == State::Awaited) {
            host.state = State::Up;
        }
    }

    /// Whether the agent of a host is not there yet. It may never be.
    pub(super) fn is_awaited(&self, node: NodeId) -> bool {
        self.state(node) == Some(State::Awaited)
    }

    /// Whether this is the launcher's own host, or no host at all: the job ends with it.
    pub(super) fn is_local(&self, node: NodeId) -> bool {
        self.hosts.get(node.index()).is_none_or(|host| host.is_local)
    }

    /// How a host was lost without which the job continues.
    fn loss(&self, node: NodeId) -> Option<HostLoss> {
        match self.state(node)? {
            State::Lost(loss) => Some(loss),
            State::Awaited | State::Up | State::LeftOut => None,
        }
    }

    /// The job continues without it.
    pub(super) fn is_lost(&self, node: NodeId) -> bool {
        self.loss(node).is_some()
    }

    /// The same, of a host of this generation.
    pub(super) fn recent_loss(&self, node: NodeId) -> Option<Loss> {
        self.loss(node).filter(|host| host.is_recent).map(|host| host.loss)
    }

    /// Whether the host was lost in this generation.
    pub(super) fn is_recently_lost(&self, node: NodeId) -> bool {
        self.recent_loss(node).is_some()
    }

    /// Processes of a lost host may still run.
    pub(super) fn may_still_run(&self, node: NodeId) -> bool {
        self.loss(node).is_some_and(|loss| !loss.has_ended)
    }

    /// All that were lost.
    pub(super) fn list_lost(&self) -> Vec<NodeId> {
        (0..).map(NodeId::new).take(self.hosts.len()).filter(|node| self.is_lost(*node)).collect()
    }

    /// A host is about to be taken away, for good. Returns whether that is news. A list can take its own warning back, and no other.
    pub(super) fn warn(&mut self, node: NodeId, source: WarningSource) -> bool {
        let is_open = |host: &&mut Host| match host.warning {
            None => true,
            Some(before) => before == WarningSource::Discovery && source != WarningSource::Discovery,
        };
        let open = self.hosts.get_mut(node.index()).filter(is_open);
        open.map(|host| host.warning = Some(source)).is_some()
    }

    /// The command of `--discover` prints a host again.
    pub(super) fn clear_discovery_warning(&mut self, node: NodeId) {
        if let Some(host) = self.hosts.get_mut(node.index()) {
            host.warning = host.warning.filter(|source| *source != WarningSource::Discovery);
        }
    }

    /// The source of the warning of a host.
    pub(super) fn warning(&self, node: NodeId) -> Option<WarningSource> {
        self.hosts.get(node.index())?.warning
    }

    /// Hosts that are there, and about to be taken away.
    pub(super) fn list_warned(&self) -> Vec<(NodeId, WarningSource)> {
        let present = self.hosts.iter().zip((0..).map(NodeId::new)).filter(|(host, _)| host.state == State::Up);
        present.filter_map(|(host, node)| Some((node, host.warning?))).collect()
    }

    /// Some were lost since this generation began.
    pub(super) fn has_recent_losses(&self) -> bool {
        self.hosts.iter().any(|host| matches!(host.state, State::Lost(loss) if loss.is_recent))
    }

    /// The job continues without this host. `has_ended`: nothing of it runs.
    pub(super) fn lose(&mut self, loss: Loss, has_ended: bool) {
        let Some(host) = self.hosts.get_mut(loss.node.index()) else { return };
        match host.state {
            State::Awaited | State::Up => host.state = State::Lost(HostLoss { loss, is_recent: true, has_ended }),
            State::Lost(_) | State::LeftOut => {}
        }
    }

    /// Nothing of a host runs any more.
    pub(super) fn end(&mut self, node: NodeId) {
        if let Some(Host { state: State::Lost(loss), .. }) = self.hosts.get_mut(node.index()) {
            loss.has_ended = true;
        }
    }

    /// A host is reached again. Nothing of what was there counts any more.
    pub(super) fn revive(&mut self, node: NodeId) {
        if let Some(host) = self.hosts.get_mut(node.index()) {
            (host.state, host.warning) = (State::Awaited, None);
        }
    }

    /// The job has started without this host.
    pub(super) fn is_left_out(&self, node: NodeId) -> bool {
        self.state(node) == Some(State::LeftOut)
    }

    /// The job starts without a host.
    pub(super) fn leave_out(&mut self, node: NodeId) {
        if let Some(host) = self.hosts.get_mut(node.index()) {
            host.state = State::LeftOut;
        }
    }

    pub(super) fn begin_generation(&mut self) {
        for host in &mut self.hosts {
            if let State::Lost(loss) = &mut host.state {
                loss.is_recent = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_plan::place::Placement;

    const NODE: NodeId = NodeId::new(1);

    fn hosts() -> Hosts {
        let mut hosts = Hosts::new(&Placement::here("a", [1]));
        let mut other = Placement::here("b", [1]);
        other.nodes.iter_mut().for_each(|node| node.local = false);
        other.nodes.iter().for_each(|node| hosts.add(node));
        hosts
    }

    #[test]
    fn a_host_that_was_added_can_be_lost_and_is_recent_until_the_next_generation() {
        let mut hosts = hosts();
        let at = Mono::from_nanos;
        assert!(!hosts.is_local(NODE) && !hosts.is_lost(NODE));
        hosts.lose(Loss { node: NODE, lost: Lost::NoHeartbeat, between: (at(1), at(2)) }, false);
        assert!(hosts.is_recently_lost(NODE) && hosts.may_still_run(NODE) && hosts.has_recent_losses());
        hosts.end(NODE);
        assert!(!hosts.may_still_run(NODE));
        hosts.begin_generation();
        assert!(hosts.is_lost(NODE) && !hosts.is_recently_lost(NODE) && !hosts.has_recent_losses());
        assert_eq!(hosts.list_lost(), [NODE]);
    }

    #[test]
    fn host_is_marked_for_good_by_its_first_warning() {
        let mut hosts = hosts();
        hosts.come_up(NODE);
        assert!(hosts.warn(NODE, WarningSource::Preempted) && !hosts.warn(NODE, WarningSource::Signal));
        assert_eq!(hosts.list_warned(), [(NODE, WarningSource::Preempted)]);
        hosts.begin_generation();
        assert_eq!(hosts.warning(NODE), Some(WarningSource::Preempted));
        let (lost, between) = (Lost::Warned(WarningSource::Preempted), (Mono::default(), Mono::default()));
        hosts.lose(Loss { node: NODE, lost, between }, true);
        assert_eq!(hosts.list_warned(), []);
    }

    #[test]
    fn host_is_awaited_until_its_agent_is_there_and_the_launchers_own_is_there_at_once() {
        let mut hosts = hosts();
        assert!(hosts.is_awaited(NODE) && !hosts.is_awaited(NodeId::new(0)));
        hosts.come_up(NODE);
        assert!(!hosts.is_awaited(NODE));
    }

    #[test]
    fn the_first_loss_of_a_host_is_the_one_that_is_kept() {
        let mut hosts = hosts();
        let at = Mono::from_nanos;
        let [first, second] = [(Lost::NoHeartbeat, (at(1), at(2))), (Lost::Guardian, (at(3), at(4)))]
            .map(|(lost, between)| Loss { node: NODE, lost, between });
        hosts.lose(first, true);
        hosts.lose(second, false);
        assert_eq!(hosts.recent_loss(NODE), Some(first));
        assert!(!hosts.may_still_run(NODE));
    }
}
