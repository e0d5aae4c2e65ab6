//! Processes that exit, leave or come unexpectedly: between two calls, before a planned round, under terms that were refused.

use super::hosts::{enrolled, register};
use super::*;
use crate::membership::MemberState;
use crate::remark::FaultLimit;
use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::signal::Signal;
use rlaunch_base::status::Status;
use rlaunch_plan::rank_assign::Layer;
use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::wire::round::Enrolled;

const KILLED: Status = Status::Signaled { sig: Signal::KILL, core: false };

fn n(n: u32) -> NodeId {
    NodeId::new(n)
}

fn at(s: u64) -> Mono {
    Mono::default() + Span::from_secs(s)
}

fn all(machine: &mut Restart) -> Vec<RestartAction> {
    core::iter::from_fn(|| machine.poll_action()).collect()
}

fn ended(machine: &mut Restart, now: Mono, initial: u32, proc: u32) {
    let (initial, proc) = (Rank::new(initial), ProcId::new(proc));
    machine.handle(now, RestartEvent::Ended { initial, proc, status: KILLED, at: now });
}

fn ready(machine: &mut Restart, now: Mono, round: u32, ranks: Vec<Enrolled>) {
    let round = Round::new(round);
    machine.handle(now, RestartEvent::Ready { node: n(0), round, ranks, last: true, port: 9, pinged: false });
}

fn on_registered(machine: &mut Restart, now: Mono, call: u32, ranks: Vec<Enrolled>, terms: &str) {
    let terms = OsBytes::from(terms);
    machine.handle(now, RestartEvent::Joined { node: n(0), call, ranks, terms });
}

fn left(initial: u32) -> Fault {
    Fault { initial: Rank::new(initial), kind: FaultKind::Left(Leave::BaseException), text: OsBytes::default() }
}

fn is_refused(actions: &[RestartAction]) -> bool {
    actions.iter().any(|action| matches!(action, RestartAction::Send { msg: RoundDown::Refuse { .. }, .. }))
}

fn notes(actions: &[RestartAction]) -> Vec<Remark> {
    let text = |action: &RestartAction| {
        let RestartAction::Note(RoundNote::Remark(remark)) = action else { return None };
        Some(remark.clone())
    };
    actions.iter().filter_map(text).collect()
}

/// A node sends terms once: the terms that it does not repeat are its last, whether they were taken or not.
#[test]
fn terms_that_were_refused_once_are_refused_again() {
    let mut machine = Restart::new(Setup { respawn: true, ..setup(1, 2, "all,shift") });
    on_registered(&mut machine, at(0), 0, vec![enrolled(0, 0, &[]), enrolled(1, 1, &[])], "soft_timeout=9s\n");
    ended(&mut machine, at(20), 1, 1);
    ready(&mut machine, at(20), 0, vec![enrolled(0, 0, &[])]);
    on_registered(&mut machine, at(21), 0, vec![enrolled(1, 3, &[])], "soft_timeout=8s\n");
    assert!(is_refused(&all(&mut machine)));
    ended(&mut machine, at(22), 1, 3);
    on_registered(&mut machine, at(23), 0, vec![enrolled(1, 5, &[])], "");
    assert!(is_refused(&all(&mut machine)));
    ended(&mut machine, at(24), 1, 5);
    on_registered(&mut machine, at(25), 0, vec![enrolled(1, 7, &[])], "soft_timeout=9s\n");
    assert!(!is_refused(&all(&mut machine)));
}

/// A tree whose groups processes name.
fn named(text: &str) -> Result<Policy, String> {
    if text != "tree" {
        return parse::policy(text).map_err(|error| format!("{error}"));
    }
    let layer = |key| Layer { key, ..Layer::default() };
    let layers = vec![layer(Key::Same("all".into())), layer(Key::Of(Source::Script(0)))];
    let tree = rlaunch_plan::rank_assign::Tree { layers, ..Default::default() };
    Ok(Policy { stages: vec![Stage::Tree(tree)], regrow: true })
}

#[test]
fn a_rank_lost_in_an_earlier_call_is_asked_nothing_for_the_next() {
    let mut machine =
        Restart::new(Setup { policy: None, read_policy: named, respawn: true, ..setup(1, 3, "all,shift") });
    let three = || vec![enrolled(0, 0, &[]), enrolled(1, 1, &[]), enrolled(2, 2, &[])];
    on_registered(&mut machine, at(0), 0, three(), "keys=0\n");
    ended(&mut machine, at(20), 1, 1);
    ready(&mut machine, at(20), 0, vec![enrolled(0, 0, &[]), enrolled(2, 2, &[])]);
    machine.handle(at(30), RestartEvent::Returned { node: n(0), round: Round::new(1) });
    all(&mut machine);
    let two = |key| vec![enrolled(0, 0, key), enrolled(2, 2, key)];
    on_registered(&mut machine, at(31), 1, two(&[]), "policy=tree\nkeys=1\nkey.0=a\n");
    ready(&mut machine, at(31), 1, vec![]);
    let actions = all(&mut machine);
    assert_eq!(machine.round(), Some(Round::new(2)), "{actions:?}");
    assert_eq!(notes(&actions), [], "all are in order");
    // Its next process says where it belongs.
    on_registered(&mut machine, at(60), 1, vec![enrolled(1, 4, &["b"])], "");
    ready(&mut machine, at(61), 2, two(&["a"]));
    let actions = all(&mut machine);
    let members = members_of(&actions);
    assert_eq!((machine.round(), members), (Some(Round::new(3)), Some(3)), "{actions:?}");
}

/// A call is done, and rank 0 of two has registered for the next.
fn registering_again() -> Restart {
    let mut machine = Restart::new(setup(2, 1, "all,shift"));
    register(&mut machine, 2, 1, &[]);
    for node in 0..2 {
        machine.handle(at(1), RestartEvent::Returned { node: n(node), round: Round::new(0) });
    }
    on_registered(&mut machine, at(2), 1, vec![enrolled(0, 0, &[])], "keys=0\n");
    all(&mut machine);
    machine
}

/// Its leaving is known some time after the end of the call: its session was lost.
#[test]
fn rank_that_left_while_others_register_is_not_waited_for() {
    let mut machine = registering_again();
    machine.handle(at(3), RestartEvent::Fault { round: Round::new(0), fault: left(1), at: at(3) });
    let actions = all(&mut machine);
    assert!(is_refused(&actions), "rank 0 waits for ever: {actions:?}");
}

#[test]
fn rank_that_left_before_its_report_is_not_waited_for() {
    let mut machine = Restart::new(setup(1, 2, "all,shift"));
    machine.handle(at(1), RestartEvent::Fault { round: Round::new(0), fault: left(0), at: at(1) });
    on_registered(&mut machine, at(2), 0, vec![enrolled(1, 1, &[])], "keys=0\n");
    assert!(is_refused(&all(&mut machine)));
}

/// No rank has failed. These policies do not come to the same when they are asked twice.
#[test]
fn a_round_that_was_only_planned_does_not_end_the_job() {
    let mut machine = Restart::new(setup(1, 4, "divisible=3,divisible=4,shift"));
    register(&mut machine, 1, 4, &[]);
    all(&mut machine);
    machine.handle(at(20), RestartEvent::Warned { ranks: [Rank::new(1)].into_iter().collect() });
    ready(&mut machine, at(21), 0, (0..4).map(|n| enrolled(n, n, &[])).collect());
    let actions = all(&mut machine);
    assert!(machine.is_open(), "{actions:?}");
    let works = actions.iter().find_map(|action| {
        let RestartAction::Note(RoundNote::Began { world_size, active_world_size, .. }) = action else { return None };
        Some((*world_size, *active_world_size))
    });
    assert_eq!(works, Some((4, 3)), "as before");
    let said = notes(&actions).pop().unwrap();
    let Remark::Unchanged { reason } = &said else { panic!("{said:?}") };
    assert!(reason.starts_with(b"the policy"), "{said:?}");
}

#[test]
fn rank_that_exited_again_is_not_back() {
    let mut machine = Restart::new(Setup { respawn: true, ..setup(1, 2, "all,shift") });
    register(&mut machine, 1, 2, &[]);
    ended(&mut machine, at(20), 1, 1);
    ready(&mut machine, at(20), 0, vec![enrolled(0, 0, &[])]);
    on_registered(&mut machine, at(21), 0, vec![enrolled(1, 3, &[])], "");
    all(&mut machine);
    ended(&mut machine, at(22), 1, 3);
    ready(&mut machine, at(23), 1, vec![enrolled(0, 0, &[])]);
    let actions = all(&mut machine);
    let came = |action: &RestartAction| {
        let RestartAction::Note(RoundNote::Began { faults, .. }) = action else { return false };
        faults.iter().any(|fault| fault.kind == FaultKind::Joined)
    };
    assert_eq!(machine.round(), Some(Round::new(2)));
    assert!(!actions.iter().any(came), "{actions:?}");
    assert_eq!(notes(&actions), [Remark::FailedEarly { initial: Rank::new(1), kind: FaultKind::Ended(KILLED) }]);
}

/// Others have left for the rank that came: their connections to this one are closed.
#[test]
fn exception_after_a_planned_interruption_is_no_fault_of_the_rank() {
    let mut machine = Restart::new(Setup { respawn: true, ..setup(1, 3, "all,shift") });
    register(&mut machine, 1, 3, &[]);
    ended(&mut machine, at(20), 1, 1);
    let others = || vec![enrolled(0, 0, &[]), enrolled(2, 2, &[])];
    ready(&mut machine, at(20), 0, others());
    on_registered(&mut machine, at(21), 0, vec![enrolled(1, 3, &[])], "");
    all(&mut machine);
    let fault = Fault { initial: Rank::new(2), kind: FaultKind::Exception, text: "closed".into() };
    machine.handle(at(21), RestartEvent::Fault { round: Round::new(1), fault, at: at(21) });
    ready(&mut machine, at(21), 1, others());
    let actions = all(&mut machine);
    let began = actions.iter().find_map(|action| {
        let RestartAction::Note(RoundNote::Began { faults, .. }) = action else { return None };
        Some(faults.clone())
    });
    let faults = began.unwrap_or_else(|| panic!("{actions:?}"));
    let (named, more) = Fault::first_of(&faults).unwrap();
    assert_eq!((named.initial, named.kind, more), (Rank::new(1), FaultKind::Joined, 0), "{faults:?}");
    assert_eq!(
        (machine.unplanned_rounds, machine.membership.members[2].faults),
        (2, 0),
        "the first round, and one fault"
    );
}

#[test]
fn rank_at_fault_limit_is_reported_as_final() {
    let limits = Limits { max_rank_faults: Some(0), ..Limits::default() };
    let mut machine = Restart::new(Setup { respawn: true, limits, ..setup(1, 2, "all,shift") });
    register(&mut machine, 1, 2, &[]);
    ended(&mut machine, at(20), 1, 1);
    ready(&mut machine, at(20), 0, vec![enrolled(0, 0, &[])]);
    let limit = FaultLimit { most: 0, is_option: true };
    let said = Remark::NotRestarted { initial: Rank::new(1), faults: 1, limit };
    assert_eq!(notes(&all(&mut machine)), [said]);
}

/// Ranks would be sent port 0 as the rendezvous.
#[test]
fn host_without_a_port_is_reported() {
    let mut machine = Restart::new(setup(1, 2, "all,shift"));
    register(&mut machine, 1, 2, &[]);
    all(&mut machine);
    ended(&mut machine, at(20), 1, 1);
    let (ranks, round) = (vec![enrolled(0, 0, &[])], Round::new(0));
    let port = RestartEvent::Ready { node: n(0), round, ranks, last: true, port: 0, pinged: false };
    machine.handle(at(20), port);
    let said = Remark::NoPort { host: "host0".into() };
    assert_eq!(notes(&all(&mut machine)), [said]);
}

/// The others do not need it, and it comes back: its place in the world is the one that it had.
fn a_reserve_that_comes_back_and_ends_again() -> Restart {
    let mut machine = Restart::new(Setup { respawn: true, ..setup(1, 3, "max=2,shift") });
    register(&mut machine, 1, 3, &[]);
    ended(&mut machine, at(20), 2, 2);
    on_registered(&mut machine, at(30), 0, vec![enrolled(2, 5, &[])], "");
    all(&mut machine);
    ended(&mut machine, at(40), 2, 5);
    machine
}

#[test]
fn a_reserve_that_ends_again_is_started_again() {
    let mut machine = a_reserve_that_comes_back_and_ends_again();
    let again = |action: &RestartAction| matches!(action, RestartAction::Respawn { .. });
    assert!(all(&mut machine).iter().any(again));
}

#[test]
fn a_reserve_that_ends_again_is_nobodys_fault() {
    let mut machine = a_reserve_that_comes_back_and_ends_again();
    let fault = Fault { initial: Rank::new(0), kind: FaultKind::Exception, text: OsBytes::from("ValueError") };
    machine.handle(at(5000), RestartEvent::Fault { round: Round::new(0), fault: fault.clone(), at: at(5000) });
    ready(&mut machine, at(5001), 0, vec![enrolled(0, 0, &[]), enrolled(1, 1, &[])]);
    let actions = all(&mut machine);
    let began = actions.iter().find_map(|action| {
        let RestartAction::Note(RoundNote::Began { faults, phases, .. }) = action else { return None };
        Some((faults.clone(), phases[0]))
    });
    assert_eq!(began, Some((vec![fault], Span::ZERO)), "{actions:?}");
}

/// Its hooks after the last call do not finish.
#[test]
fn rank_ended_after_a_call_is_not_waited_for_in_the_next() {
    let mut machine = registering_again();
    let fault = Fault { initial: Rank::new(1), kind: FaultKind::Overdue(KILLED), text: OsBytes::from("hook") };
    machine.handle(at(92), RestartEvent::Fault { round: Round::new(0), fault, at: at(92) });
    let actions = all(&mut machine);
    assert!(is_refused(&actions), "{actions:?}");
}

/// The policy lets no rank work without the reserve that was lost: a planned round is no reason to end.
#[test]
fn a_planned_round_does_not_end_a_job_that_has_lost_a_reserve() {
    let mut machine = Restart::new(setup(1, 5, "divisible=3,divisible=4,shift"));
    register(&mut machine, 1, 5, &[]);
    ended(&mut machine, at(20), 4, 4);
    all(&mut machine);
    machine.handle(at(50), RestartEvent::Warned { ranks: [Rank::new(1)].into_iter().collect() });
    ready(&mut machine, at(51), 0, (0..4).map(|n| enrolled(n, n, &[])).collect());
    assert_eq!(members_of(&all(&mut machine)), Some(4), "nothing is sent to the lost one");
    ended(&mut machine, at(60), 2, 2);
    ready(&mut machine, at(61), 1, [0, 1, 3].map(|n| enrolled(n, n, &[])).to_vec());
    assert!(!machine.is_open(), "a fault is: {:?}", machine.world);
}

#[test]
fn needed_rank_is_not_drained_twice() {
    let limits = Limits { min_world: Some(2), ..Limits::default() };
    let mut machine = Restart::new(Setup { limits, ..setup(1, 2, "all,shift") });
    register(&mut machine, 1, 2, &[]);
    machine.handle(at(10), RestartEvent::Returned { node: n(0), round: Round::new(0) });
    machine.handle(at(11), RestartEvent::Warned { ranks: [Rank::new(1)].into_iter().collect() });
    on_registered(&mut machine, at(12), 1, vec![enrolled(0, 0, &[]), enrolled(1, 1, &[])], "keys=0\n");
    all(&mut machine);
    ready(&mut machine, at(13), 0, vec![]);
    let actions = all(&mut machine);
    let msg =
        |action: &RestartAction| if let RestartAction::Send { msg, .. } = action { Some(msg.clone()) } else { None };
    let sent: Vec<RoundDown> = actions.iter().filter_map(msg).collect();
    assert!(matches!(sent[..], [RoundDown::Begin { .. }]), "{sent:?}");
}

/// The limit of faults holds for each call.
#[test]
fn faults_of_an_earlier_call_do_not_count_in_the_next() {
    let mut machine = Restart::new(setup(1, 3, "all,shift"));
    register(&mut machine, 1, 3, &[]);
    let throws = |machine: &mut Restart, round: u32| {
        let fault = Fault { initial: Rank::new(2), kind: FaultKind::Exception, text: OsBytes::from("ValueError") };
        let now = at(u64::from(round) * 1000 + 100);
        machine.handle(now, RestartEvent::Fault { round: Round::new(round), fault, at: now });
        ready(machine, now, round, (0..3).map(|n| enrolled(n, n, &[])).collect());
    };
    (0..3).for_each(|round| throws(&mut machine, round));
    machine.handle(at(4000), RestartEvent::Returned { node: n(0), round: Round::new(3) });
    on_registered(
        &mut machine,
        at(4001),
        1,
        (0..3).map(|n| enrolled(n, n, &[])).collect(),
        "keys=0\nmax_rank_faults=2\n",
    );
    ready(&mut machine, at(4002), 3, vec![]);
    all(&mut machine);
    throws(&mut machine, 4);
    assert_eq!(machine.world.size(), 3, "{:?}", all(&mut machine));
}

/// Each of its processes has waited in reserve for an hour: none was in vain.
#[test]
fn a_reserve_that_waits_for_hours_is_no_try_in_vain() {
    let mut machine = Restart::new(Setup { respawn: true, ..setup(1, 3, "max=2,shift") });
    register(&mut machine, 1, 3, &[]);
    ended(&mut machine, at(20), 2, 2);
    for n in 1..8 {
        let actions = all(&mut machine);
        let again = |action: &RestartAction| matches!(action, RestartAction::Respawn { .. });
        assert!(actions.iter().any(again), "process {n}: {:?}", notes(&actions));
        let (hour, proc) = (3600 * u64::from(n), 2 + 3 * n);
        on_registered(&mut machine, at(hour), 0, vec![enrolled(2, proc, &[])], "");
        ended(&mut machine, at(hour + 3500), 2, proc);
        let mut tries = 0;
        while let Some(due) = machine.poll_timeout().filter(|due| *due < at(hour + 3600)) {
            machine.handle_timeout(due);
            tries += 1;
            assert!(tries < 9);
        }
    }
}

/// How many of the first host have a member in the round that begins.
fn members_of(actions: &[RestartAction]) -> Option<usize> {
    actions.iter().find_map(|action| {
        let RestartAction::Send { msg: RoundDown::Begin { members, .. }, .. } = action else { return None };
        Some(members.len())
    })
}

/// A reserve was started again; its process has registered as the work was done, and comes for the next call with the others.
#[test]
fn a_reserve_that_was_started_again_is_in_the_next_call() {
    let mut machine = Restart::new(Setup { respawn: true, ..setup(1, 3, "max=2,shift") });
    register(&mut machine, 1, 3, &[]);
    ended(&mut machine, at(20), 2, 2);
    machine.handle(at(21), RestartEvent::Started { initial: Rank::new(2), proc: ProcId::new(5) });
    machine.handle(at(22), RestartEvent::Returned { node: n(0), round: Round::new(0) });
    on_registered(&mut machine, at(23), 0, vec![enrolled(2, 5, &[])], "");
    all(&mut machine);
    let everybody = vec![enrolled(0, 0, &[]), enrolled(1, 1, &[]), enrolled(2, 5, &[])];
    on_registered(&mut machine, at(24), 1, everybody, "keys=0\n");
    ready(&mut machine, at(25), 0, vec![]);
    let actions = all(&mut machine);
    let members = members_of(&actions);
    assert!(members == Some(3) || is_refused(&actions), "rank 2 receives nothing: {actions:?}");
}

/// The same of one that worked.
#[test]
fn a_rank_that_was_started_again_is_in_the_next_call() {
    let mut machine = call_that_ends_before_a_respawned_rank_registers();
    on_registered(&mut machine, at(23), 0, vec![enrolled(2, 5, &[])], "");
    all(&mut machine);
    let everybody = vec![enrolled(0, 0, &[]), enrolled(1, 1, &[]), enrolled(2, 5, &[])];
    on_registered(&mut machine, at(24), 1, everybody, "keys=0\n");
    ready(&mut machine, at(25), 1, vec![]);
    let actions = all(&mut machine);
    let members = members_of(&actions);
    assert_eq!(members, Some(3), "{actions:?}");
}

/// Rank 1, the only one of its host, was lost in the first call. Its next process is the first to register for the second call.
fn a_lost_rank_registers_for_the_next_call() -> Restart {
    let mut machine = Restart::new(Setup { respawn: true, ..setup(2, 1, "all,shift") });
    register(&mut machine, 2, 1, &[]);
    ended(&mut machine, at(20), 1, 1);
    ready(&mut machine, at(20), 0, vec![enrolled(0, 0, &[])]);
    machine.handle(at(22), RestartEvent::Returned { node: n(0), round: Round::new(1) });
    let terms = OsBytes::from("keys=0\n");
    machine.handle(at(23), RestartEvent::Joined { node: n(1), call: 1, ranks: vec![enrolled(1, 5, &[])], terms });
    assert_eq!(machine.membership.state_of(Rank::new(1)), Some(MemberState::Joining));
    all(&mut machine);
    machine
}

#[test]
fn a_rank_whose_host_is_lost_while_others_register_does_not_take_part() {
    let mut machine = a_lost_rank_registers_for_the_next_call();
    machine.handle(at(24), RestartEvent::HostLost { node: n(1) });
    machine.check().unwrap();
    on_registered(&mut machine, at(25), 1, vec![enrolled(0, 0, &[])], "keys=0\n");
    ready(&mut machine, at(26), 1, vec![]);
    let actions = all(&mut machine);
    assert_eq!(members_of(&actions), Some(1), "{actions:?}");
}

/// A warning and the first round of the process before do not count for this one.
#[test]
fn next_process_of_a_rank_inherits_nothing() {
    let machine = a_lost_rank_registers_for_the_next_call();
    let member = &machine.membership.members[1];
    assert_eq!((member.first_round, member.warned), (Round::new(1), false));
}

/// Rank 2 was lost, its next process was started at 21 s, and the others have ended the call at 22 s.
fn call_that_ends_before_a_respawned_rank_registers() -> Restart {
    let mut machine = Restart::new(Setup { respawn: true, ..setup(1, 3, "all,shift") });
    register(&mut machine, 1, 3, &[]);
    ended(&mut machine, at(20), 2, 2);
    ready(&mut machine, at(20), 0, vec![enrolled(0, 0, &[]), enrolled(1, 1, &[])]);
    machine.handle(at(21), RestartEvent::Started { initial: Rank::new(2), proc: ProcId::new(5) });
    machine.handle(at(22), RestartEvent::Returned { node: n(0), round: Round::new(1) });
    all(&mut machine);
    machine
}

fn begin_next_call(machine: &mut Restart, now: Mono) {
    on_registered(machine, now, 1, vec![enrolled(0, 0, &[]), enrolled(1, 1, &[])], "keys=0\n");
}

/// Its node has answered it that the call is done, which the root does not learn.
#[test]
fn process_that_was_started_late_is_not_ended_between_calls() {
    let mut machine = call_that_ends_before_a_respawned_rank_registers();
    assert_eq!(machine.poll_timeout(), None);
    machine.handle_timeout(at(400));
    assert_eq!(all(&mut machine), []);
    begin_next_call(&mut machine, at(500));
    machine.handle_timeout(at(501));
    let ends = |action: &RestartAction| matches!(action, RestartAction::End { .. });
    assert!(!all(&mut machine).iter().any(ends));
    // The limit of its time begins anew.
    machine.handle_timeout(at(801));
    assert!(all(&mut machine).iter().any(ends));
}

#[test]
fn process_that_exits_between_calls_before_it_registered_is_replaced_in_the_next() {
    let mut machine = call_that_ends_before_a_respawned_rank_registers();
    ended(&mut machine, at(23), 2, 5);
    let respawns = |action: &RestartAction| *action == RestartAction::Respawn { initial: Rank::new(2) };
    assert!(!all(&mut machine).iter().any(respawns), "there may be no other call");
    begin_next_call(&mut machine, at(24));
    machine.handle_timeout(at(25));
    assert!(all(&mut machine).iter().any(respawns));
}
