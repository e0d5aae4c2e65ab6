//! Hooks that run outside of the function: after the work, when a rank leaves, in reserve.

use super::calls::finish;
use super::*;

const TERMS: &str = "soft_timeout=20s hard_timeout=30s barrier_timeout=40s";

/// Its time expires just then: it is reported, and ended.
fn is_ended(rig: &mut Rig, n: u32, ms: u64, text: &str) {
    assert_eq!(rig.awake(ms - 1), [], "{text}");
    let actions = rig.wait(1);
    let overdue = fault(n, FaultKind::Overdue(by(TERM)), text);
    let report = up(RoundUp::Fault { round: R0, fault: overdue, at: rig.now.host_time() });
    assert_eq!(actions, [report, group(n, CONT), group(n, TERM)]);
    assert_eq!(rig.wait(4999), []);
    assert_eq!(rig.wait(1), [group(n, CONT), group(n, KILL)]);
    assert_eq!(rig.wait(9999), []);
    assert_eq!(rig.wait(1), [up(RoundUp::Stuck { proc: p(n) })], "the kernel may not be able to");
    assert_eq!(rig.wait(1_000_000), []);
}

fn is_done(terms: &str) -> Rig {
    let mut rig = Rig::in_round_by(start(), 2, terms);
    (0..2).for_each(|n| drop(rig.says(n, ClientMessage::Returned(R0))));
    rig.down(finish(0, R0));
    (0..2).for_each(|n| drop(rig.says(n, ClientMessage::Hooks(R0, true))));
    rig
}

#[test]
fn a_completion_hook_comes_to_its_end() {
    let mut rig = is_done(TERMS);
    assert_eq!(rig.receive(NodeEvent::SessionLost { session: s(0) }), [], "one has");
    is_ended(&mut rig, 1, 30_000, "it has not come out of its hooks within 30.0s");
    let mut rig = is_done(TERMS);
    rig.says(0, ClientMessage::Hooks(R0, false));
    rig.says(1, ClientMessage::Section(R0, Some(Span::from_secs(100))));
    is_ended(&mut rig, 1, 100_000, "it has not come out of its hooks within 1m40s");
}

#[test]
fn message_after_a_call_is_dropped_in_the_next() {
    let mut rig = is_done(TERMS);
    for n in 0..2 {
        let (rank, terms) = (Some(r(n)), terms(TERMS));
        rig.receive(NodeEvent::SessionBegun { session: s(10 + n), rank, terms });
    }
    let place = RoundRendezvous { first: R1, ..first_place(2) };
    rig.begins(R1, place, &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), Some(1))]);
    rig.says(0, ClientMessage::Hooks(R0, true));
    rig.receive(NodeEvent::SessionLost { session: s(1) });
    assert_eq!(rig.wait(1_000_000), []);
}

#[test]
fn a_terminate_hook_comes_to_its_end() {
    let mut rig = Rig::in_round_by(start(), 2, TERMS);
    rig.says(1, ClientMessage::Leave(Leave::Abort, "enough".into()));
    assert_eq!(rig.wait(100_000), [], "it may do whatever it wants");
    rig.says(1, ClientMessage::Hooks(R0, true));
    is_ended(&mut rig, 1, 30_000, "it has not come out of its hooks within 30.0s");
    let mut rig = Rig::in_round_by(start(), 2, TERMS);
    rig.down(RoundDown::GiveUp { text: "enough".into() });
    rig.says(1, ClientMessage::Hooks(R0, true));
    rig.says(0, ClientMessage::Hooks(R0, true));
    rig.receive(NodeEvent::SessionLost { session: s(0) });
    is_ended(&mut rig, 1, 30_000, "it has not come out of its hooks within 30.0s");
}

#[test]
fn hooks_in_reserve_come_to_their_end() {
    let reserve = || {
        let mut rig = Rig::running_by(start(), 2);
        (0..2).for_each(|n| drop(rig.registers(n, TERMS)));
        rig.begins(R0, first_place(2), &[round_member(0, Some(0), Some(0)), round_member(1, Some(1), None)]);
        rig.says(1, ClientMessage::Hooks(R0, true));
        rig
    };
    is_ended(&mut reserve(), 1, 30_000, "it has not come out of its hooks within 30.0s");
    // The others do not wait for it.
    for down in [finish(0, R0), RoundDown::GiveUp { text: "enough".into() }] {
        let mut rig = reserve();
        rig.says(0, ClientMessage::Returned(R0));
        rig.down(down);
        is_ended(&mut rig, 1, 30_000, "it has not come out of its hooks within 30.0s");
    }
    let mut rig = reserve();
    rig.says(1, ClientMessage::Hooks(R0, false));
    assert_eq!(rig.wait(1_000_000), [], "it waits");
}

/// A job that ends has a grace of its own.
#[test]
fn hooks_of_a_job_that_ends_are_its_business() {
    let mut rig = is_done(TERMS);
    rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(1000) });
    rig.says(0, ClientMessage::Hooks(R0, true));
    assert_eq!(rig.wait(900_000), []);
}

#[test]
fn rank_silent_beyond_its_section_is_reported_with_it() {
    let mut rig = Rig::in_round_by(start(), 1, TERMS);
    rig.says(0, ClientMessage::Alive(R0, true));
    rig.says(0, ClientMessage::Section(R0, Some(Span::from_secs(2))));
    let actions = rig.wait(2000);
    let text = "nothing was heard of it for 2.0s, which is what its section may take";
    let hang = fault(0, FaultKind::Hang, text);
    assert_eq!(actions, [up(RoundUp::Fault { round: R0, fault: hang, at: rig.now.host_time() })]);
}

/// A rank registers after its hooks have finished, and waits for the other.
#[test]
fn hooks_of_a_call_have_ended_when_its_process_registers_for_the_next_call() {
    let mut rig = is_done(TERMS);
    rig.receive(NodeEvent::SessionBegun { session: s(10), rank: Some(r(0)), terms: terms(TERMS) });
    let actions = rig.awake(100_000);
    let ended = [0, 1].map(|n| actions.contains(&group(n, TERM)));
    assert_eq!(ended, [false, true], "{actions:?}");
}

/// The time that the host was awake before, and its other events, change nothing.
#[test]
fn a_host_has_no_more_time_than_it_has_slept() {
    let mut rig = is_done(TERMS);
    // No timer is due in between.
    rig.now = rig.now + Span::from_secs(29);
    rig.says(0, ClientMessage::Hooks(R0, false));
    assert!(!rig.wait(3_600_000).contains(&group(1, TERM)));
    let all = rig.awake(1_500);
    assert!(all.contains(&group(1, TERM)), "{all:?}");
}

/// The clock counts on meanwhile.
#[test]
fn hooks_have_their_time_on_a_host_that_has_slept() {
    let mut rig = is_done(TERMS);
    rig.awake(1_000);
    assert!(!rig.wait(3_600_000).contains(&group(1, TERM)));
    let all = rig.awake(1_000_000);
    assert!(all.contains(&group(1, TERM)), "but no more than that: {all:?}");
}
