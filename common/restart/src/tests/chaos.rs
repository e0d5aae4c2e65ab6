//! Deliveries, faults and losses in any order.

use super::hosts::{At, Down, Host, Process};
use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use proptest::prelude::*;
use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::rank_set::RankSet;
use rlaunch_protocol::wire::round::RoundMember;

/// A job, and what the machine has said so far.
struct Job {
    machine: Restart,
    hosts: Vec<Host>,
    now: Mono,
    next: u32,
    /// Processes of whose end the machine was notified.
    dead: BTreeSet<u32>,
    lost: BTreeSet<NodeId>,
    /// The process of each rank, as the machine has learned it.
    procs: BTreeMap<u32, u32>,
    opened: bool,
    closed: Option<RoundsEnd>,
    last: Option<Round>,
    /// Messages of earlier rounds that may come again.
    stale: Vec<RestartEvent>,
}

impl Job {
    fn new(setup: Setup, hosts: u32, per: u32) -> Self {
        Self {
            machine: Restart::new(setup),
            hosts: (0..hosts).map(|n| Host::new(n, per)).collect(),
            now: Mono::default(),
            next: hosts * per,
            dead: BTreeSet::new(),
            lost: BTreeSet::new(),
            procs: BTreeMap::new(),
            opened: false,
            closed: None,
            last: None,
            stale: Vec::new(),
        }
    }

    fn notify(&mut self, event: RestartEvent) {
        match &event {
            RestartEvent::Ended { proc, .. } => drop(self.dead.insert(proc.get())),
            RestartEvent::Joined { ranks, .. } => {
                self.procs.extend(ranks.iter().map(|one| (one.initial.get(), one.proc.get())));
            }
            RestartEvent::HostSuspected { .. } => {}
            RestartEvent::HostLost { node } => drop(self.lost.insert(*node)),
            RestartEvent::Ready { .. } | RestartEvent::Returned { .. } | RestartEvent::Alone { .. } => {
                self.stale.push(event.clone());
            }
            RestartEvent::Fault { fault, .. } if !fault.kind.is_loss() => self.stale.push(event.clone()),
            RestartEvent::Fault { fault, .. } => self.dead.extend(self.procs.get(&fault.initial.get())),
            RestartEvent::Started { .. }
            | RestartEvent::Placed { .. }
            | RestartEvent::Warned { .. }
            | RestartEvent::Awaited { .. }
            | RestartEvent::Off => {}
        }
        self.machine.handle(self.now, event);
        self.machine.handle_timeout(self.now);
        self.follow();
    }

    /// Does what the machine asks for, and looks whether it may.
    fn follow(&mut self) {
        let mut begun: BTreeMap<NodeId, Vec<RoundMember>> = BTreeMap::new();
        let mut world = None;
        while let Some(action) = self.machine.poll_action() {
            match action {
                RestartAction::Opened => {
                    assert!(!self.opened && self.last.is_none(), "it opens once, before the first round");
                    self.opened = true;
                }
                RestartAction::Closed(given) => {
                    assert!(self.opened && self.closed.is_none(), "it closes once");
                    let here = self.hosts.iter().filter(|host| !host.lost && host.round == self.machine.round());
                    let works = here.flat_map(|host| host.procs.values()).any(|proc| proc.at == At::Working);
                    assert!(given != RoundsEnd::Done || !works, "a rank works still: {:?}", self.hosts);
                    self.closed = Some(given);
                }
                RestartAction::Send { node, msg } => {
                    assert!(!self.lost.contains(&node), "{node} is lost: {msg:?}");
                    let after = matches!(msg, RoundDown::Finish { .. } | RoundDown::Refuse { .. });
                    assert!(self.closed.is_none() || after, "nothing follows the end: {msg:?}");
                    if let RoundDown::Begin { round, place, members, last } = &msg {
                        assert!(self.opened && *last);
                        assert_ne!(place.port, 0, "they meet where a port is held");
                        let in_it = |proc: &Process| matches!(proc.at, At::Working | At::Leaving);
                        let missed = self.hosts.iter().filter(|host| host.suspected && !host.lost);
                        let runs = missed.flat_map(|host| host.procs.values()).any(in_it);
                        assert!(
                            !runs,
                            "a rank of a host that sends no heartbeats is in the round before: {:?}",
                            self.hosts
                        );
                        let wanted = self.last.map_or(0, |last| last.get() + 1);
                        assert_eq!(round.get(), wanted, "rounds follow each other");
                        assert!(begun.insert(node, members.to_vec()).is_none(), "one begin for each host");
                        world = Some((place.world_size, place.active_world_size));
                    }
                    self.hosts[node.index()].down.push_back(Down::Word(msg));
                }
                RestartAction::Respawn { initial } => self.starts(initial),
                // An order to end may come late, too.
                RestartAction::End { .. } | RestartAction::Note(_) => {}
            }
        }
        if let Some((world, active)) = world {
            self.last = self.machine.round();
            self.check(&begun, world, active);
        }
    }

    fn check(&self, begun: &BTreeMap<NodeId, Vec<RoundMember>>, world: u32, active: u32) {
        let all: BTreeSet<NodeId> = self.machine.setup.nodes.keys().copied().collect();
        assert_eq!(begun.keys().copied().collect::<BTreeSet<_>>(), &all - &self.lost, "every host is notified");
        let members = || begun.values().flatten();
        let sorted = |number: fn(&RoundMember) -> Option<Rank>| {
            let mut numbers: Vec<u32> = members().filter_map(number).map(Rank::get).collect();
            numbers.sort_unstable();
            numbers
        };
        // A rank that the others did not need may have kept its place in a planned round.
        let lost = self.machine.world.members().iter().zip(&self.machine.membership.members);
        let lost =
            lost.filter(|(_, member)| matches!(member.state, super::super::membership::MemberState::Failed { .. }));
        let mut ranks = sorted(|member| member.rank);
        ranks.extend(lost.filter_map(|(world_member, _)| world_member.rank).map(Rank::get));
        ranks.sort_unstable();
        assert_eq!(ranks, (0..world).collect::<Vec<_>>());
        assert_eq!(sorted(|member| member.active), (0..active).collect::<Vec<_>>());
        for member in members() {
            let proc = self.procs[&member.initial.get()];
            assert!(!self.dead.contains(&proc), "initial rank {} is dead", member.initial);
        }
    }

    /// A process is started again where its host is there still.
    fn starts(&mut self, initial: Rank) {
        let home = self.machine.membership.members[initial.index()].node;
        let host = &mut self.hosts[home.index()];
        if !host.lost && !host.suspected {
            host.down.push_back(Down::Spawn(initial, self.next));
            self.next += 1;
        }
    }

    /// Makes one event happen.
    fn step(&mut self, (what, at, pick): (u8, usize, usize)) {
        let at = at % self.hosts.len();
        let host = &mut self.hosts[at];
        if host.lost {
            return;
        }
        match what {
            0..5 => drop(host.receives()),
            5..10 => {
                if let Some(event) = host.up.pop_front().filter(|_| !host.suspected) {
                    self.notify(event);
                }
            }
            10..12 => drop(host.registers()),
            12..15 => drop(host.gets_ready(pick)),
            15 => host.throws(pick),
            16 => host.dies(pick, false),
            17 => host.dies(pick, true),
            18 => host.hangs(pick),
            19 => host.leaves(pick),
            20 => drop(host.reports_late()),
            21 | 22 => drop(host.returns(pick)),
            23 if pick % 4 == 0 => self.loses(at),
            23 if pick % 4 == 1 && self.machine.is_open() && !host.suspected => {
                host.suspected = true;
                let (node, at) = (NodeId::new(u32::try_from(at).unwrap()), self.now);
                self.notify(RestartEvent::HostSuspected { node, at });
            }
            24 if self.machine.is_open() => {
                let rank = u32::try_from(pick % self.machine.setup.ranks.len()).unwrap();
                let ranks = RankSet::from_iter([Rank::new(rank)]);
                self.notify(RestartEvent::Warned { ranks });
            }
            25 if host.yields() => {
                host.leave_all();
                host.look();
            }
            26 => {
                self.now = self.now + Span::from_millis(20);
                self.machine.handle_timeout(self.now);
                self.follow();
            }
            27 => self.repeats(pick),
            _ => {}
        }
    }

    fn loses(&mut self, at: usize) {
        self.hosts[at].is_lost();
        self.notify(RestartEvent::HostLost { node: NodeId::new(u32::try_from(at).unwrap()) });
    }

    /// Delivers a message of an earlier round again.
    fn repeats(&mut self, pick: usize) {
        let Some(event) = self.stale.get(pick % self.stale.len().max(1)).cloned() else { return };
        let of = match &event {
            RestartEvent::Ready { round, .. }
            | RestartEvent::Returned { round, .. }
            | RestartEvent::Alone { round, .. }
            | RestartEvent::Fault { round, .. } => *round,
            RestartEvent::Joined { .. }
            | RestartEvent::Ended { .. }
            | RestartEvent::Started { .. }
            | RestartEvent::Placed { .. }
            | RestartEvent::HostSuspected { .. }
            | RestartEvent::HostLost { .. }
            | RestartEvent::Warned { .. }
            | RestartEvent::Awaited { .. }
            | RestartEvent::Off => return,
        };
        if self.machine.round().is_some_and(|round| of < round) {
            let before = format!("{:?}", self.machine);
            self.machine.handle(self.now, event);
            assert_eq!(format!("{:?}", self.machine), before, "what is of another round changes nothing");
        }
    }

    /// Nothing else goes wrong, and all that is on its way arrives.
    fn calm(&mut self) {
        for _ in 0..10_000 {
            let mut moved = false;
            for at in 0..self.hosts.len() {
                if self.hosts[at].suspected && !self.hosts[at].lost {
                    self.loses(at);
                    moved = true;
                }
                let host = &mut self.hosts[at];
                if host.yields() {
                    host.leave_all();
                    host.look();
                }
                moved |= host.registers() | host.reports_late() | host.receives() | host.gets_ready(0);
                if let Some(event) = self.hosts[at].up.pop_front() {
                    self.notify(event);
                    moved = true;
                }
            }
            if self.machine.poll_timeout().is_some() {
                self.now = self.now + Span::from_millis(20);
                self.machine.handle_timeout(self.now);
                self.follow();
                moved = true;
            }
            if !moved {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Checks that all active ranks run in the same round, and that all ranks which the machine counts on are there.
    fn is_at_rest(&self) {
        match &self.machine.phase {
            Phase::CallEnded(_) => return,
            Phase::Running => {}
            phase @ (Phase::Gathering | Phase::Waiting(_) | Phase::Draining { .. }) => {
                panic!("it is stuck: {phase:?}\n{:?}\n{:?}", self.machine.membership, self.hosts)
            }
        }
        for host in self.hosts.iter().filter(|host| !host.lost) {
            assert_eq!(host.round, self.machine.round());
            let waits = host.procs.values().any(|proc| proc.at == At::Registered);
            let may = self.machine.membership.hosts.values().any(|host| host.returned)
                || !self.machine.would_add_active_ranks();
            assert!(!waits || may, "a process has registered, and is in no round: {:?}", self.hosts);
            let stands = host.procs.values().any(|proc| matches!(proc.at, At::Leaving | At::Ready));
            assert!(!stands, "a rank is out of its function, and waits for ever: {:?}", self.hosts);
        }
        for (world_member, initial) in self.machine.world.members().iter().zip(0_u32..) {
            let member = &self.machine.membership.members[initial as usize];
            let there = member.proc.map(ProcId::get).is_some_and(|id| {
                let host = &self.hosts[member.node.index()];
                host.procs.get(&initial).is_some_and(|proc| proc.id == id && proc.at != At::Starting)
            });
            let returned = self.machine.membership.hosts[&member.node].returned;
            if world_member.active_rank.is_some() && !returned {
                assert!(there, "initial rank {initial} works, and is not there");
            }
        }
    }

    /// The work comes to its end.
    fn is_done(&mut self) {
        for at in 0..self.hosts.len() {
            while self.hosts[at].returns(0) {}
        }
        self.calm();
        assert!(
            matches!(self.machine.phase, Phase::CallEnded(_)),
            "it does not end: {:?}\n{:?}",
            self.machine,
            self.hosts
        );
        assert!(!self.opened || self.closed.is_some(), "what was opened is closed");
    }
}

fn setups() -> impl Strategy<Value = (Setup, u32, u32)> {
    let policies = prop_oneof![
        Just("all,shift"),
        Just("all,fill"),
        Just("max=3,shift"),
        Just("divisible=2,shift"),
        Just("max=4,shift,group(host)>=2"),
        Just("divisible=2,shift,regrow"),
    ];
    let limits = (prop::option::of(1..6_u32), prop::option::of(1..3_u32), prop::option::of(0..3_u32));
    (1..5_u32, 1..4_u32, policies, any::<bool>(), any::<bool>(), limits).prop_map(
        |(hosts, per, policy, respawn, window, (max_rounds, min_world, max_rank_faults))| {
            let mut setup = setup(hosts, per, policy);
            setup.respawn = respawn;
            setup.fault_window = Span::from_millis(if window { 50 } else { 0 });
            let world = hosts * per;
            setup.limits = Limits {
                max_rounds,
                min_world: min_world.map(|least| least.min(world)),
                min_active: None,
                max_rank_faults,
            };
            (setup, hosts, per)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens(
        (setup, hosts, per) in setups(),
        all_register in prop::bool::weighted(0.9),
        steps in prop::collection::vec((0..28_u8, 0..8_usize, 0..64_usize), 0..250),
    ) {
        let mut job = Job::new(setup, hosts, per);
        if all_register {
            job.calm();
        }
        for step in steps {
            job.step(step);
        }
        job.calm();
        job.is_at_rest();
        job.is_done();
    }

    /// A fault ends in a round without it, or in the end: whatever else the job is.
    #[test]
    fn every_fault_is_answered((setup, hosts, per) in setups(), at in 0..8_usize, how in 15..20_u8, pick in 0..8_usize) {
        let mut job = Job::new(setup, hosts, per);
        job.calm();
        let Some(before) = job.machine.round() else { return Ok(()) };
        let faults = job.machine.membership.members.iter().map(|member| member.faults).sum::<u32>();
        job.step((how, at, pick));
        job.calm();
        let own = job.machine.membership.members.iter().map(|member| member.faults).sum::<u32>() > faults;
        let again = job.machine.round() > Some(before);
        prop_assert!(!own || again || job.closed.is_some(), "{:?}", job.machine);
        job.is_at_rest();
    }
}

#[test]
fn a_host_alone_can_do_all_of_it() {
    let mut job = Job::new(setup(1, 1, "all,shift"), 1, 1);
    job.calm();
    assert_eq!(job.last, Some(Round::new(0)));
    for step in [(15, 0, 0), (12, 0, 0)] {
        job.step(step);
    }
    job.calm();
    assert_eq!(job.last, Some(Round::new(1)));
    job.is_done();
    assert_eq!(job.closed, Some(RoundsEnd::Done));
    assert_eq!(job.hosts.iter().map(|host| host.over).collect::<Vec<_>>(), vec![true]);
}
