//! Awaited ranks are named.

use super::*;
use rlaunch_base::rank_set::RankSet;
use rlaunch_protocol::rank_fault::{Fault, FaultKind};

const AT: fn(u64) -> Mono = |secs| Mono::from_nanos(secs * 1_000_000_000);

fn set(ranks: &[u32]) -> RankSet {
    ranks.iter().copied().map(Rank::new).collect()
}

fn awaited(machine: &mut Restart, secs: u64) -> Vec<(Step, RankSet)> {
    machine.handle_timeout(AT(secs));
    let actions = core::iter::from_fn(|| machine.poll_action());
    let named = |action| {
        if let RestartAction::Note(RoundNote::Awaited { step, ranks, .. }) = action {
            Some((step, ranks))
        } else {
            None
        }
    };
    actions.filter_map(named).collect()
}

fn joins(machine: &mut Restart, now: Mono, node: u32, ranks: &[u32]) {
    let ranks = ranks.iter().map(|rank| hosts::enrolled(*rank, *rank, &[])).collect();
    machine.handle(now, RestartEvent::Joined { call: 0, node: NodeId::new(node), ranks, terms: OsBytes::default() });
}

#[test]
fn ranks_that_have_not_registered_are_named_after_ten_seconds_and_once() {
    let mut machine = Restart::new(setup(3, 2, "all,shift"));
    joins(&mut machine, AT(5), 0, &[0, 1]);
    assert!(awaited(&mut machine, 15).is_empty());
    // One rank of this host has registered. Its host reports that only after the other has.
    machine.handle(AT(16), RestartEvent::Awaited { node: NodeId::new(1), ranks: set(&[3]) });
    assert_eq!(awaited(&mut machine, 16), [(Step::Register, set(&[3, 4, 5]))]);
    assert_eq!(machine.poll_timeout(), None);
    machine.handle(AT(20), RestartEvent::Awaited { node: NodeId::new(2), ranks: set(&[5]) });
    assert!(awaited(&mut machine, 60).is_empty());
}

#[test]
fn ranks_that_do_not_leave_their_function_are_named_in_each_round() {
    let mut machine = Restart::new(setup(3, 2, "all,shift"));
    hosts::register(&mut machine, 3, 2, &[]);
    let mut round = Round::new(0);
    for start in [100, 200] {
        assert!(awaited(&mut machine, start).is_empty());
        let fault = Fault { initial: Rank::new(0), kind: FaultKind::Exception, text: OsBytes::default() };
        machine.handle(AT(start), RestartEvent::Fault { round, fault, at: AT(start) });
        let ready = |node: u32| RestartEvent::Ready {
            node: NodeId::new(node),
            round,
            ranks: (node * 2..node * 2 + 2).map(|rank| hosts::enrolled(rank, rank, &[])).collect(),
            last: true,
            port: 9,
            pinged: true,
        };
        machine.handle(AT(start + 1), ready(0));
        machine.handle(AT(start + 10), RestartEvent::Awaited { node: NodeId::new(1), ranks: set(&[2]) });
        assert_eq!(awaited(&mut machine, start + 11), [(Step::Leave, set(&[2, 4, 5]))]);
        machine.handle(AT(start + 12), ready(1));
        machine.handle(AT(start + 13), ready(2));
        assert!(machine.round() > Some(round));
        round = machine.round().unwrap();
    }
}

/// The wait for the lease of a suspected host is reported separately.
#[test]
fn ranks_of_a_suspected_host_are_not_named() {
    let mut machine = Restart::new(setup(2, 2, "all,shift"));
    hosts::register(&mut machine, 2, 2, &[]);
    machine.handle(AT(1), RestartEvent::HostSuspected { node: NodeId::new(1), at: AT(1) });
    assert_eq!(awaited(&mut machine, 12), [(Step::Leave, set(&[0, 1]))]);
}
