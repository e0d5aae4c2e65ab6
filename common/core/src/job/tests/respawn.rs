//! Processes that are started again for ranks whose own have ended: when, and which.

use super::fewer::three;
use super::hosts::hello;
use super::rounds::{begun, fault, join, on_message, ready, returned, short};
use super::shrink_rule::{beats, ends, node, run};
use super::*;
use alloc::string::String;
use alloc::vec;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::{AppIndex, LocalRank};
use rlaunch_base::time::HostTime;
use rlaunch_plan::place::RankPlacement;
use rlaunch_protocol::rank_fault::FaultKind;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::{Limits, Rounds};
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::round::{Enrolled, RoundDown, RoundUp};
use rlaunch_protocol::wire::to_node::Delta;
use rlaunch_protocol::wire::to_root::{Found, SpawnError, SpawnStep, Started};
use rlaunch_restart::RoundNote;
use rlaunch_restart::remark::Remark;

/// The processes that were asked for since the last look.
fn started(s: &mut Script) -> Vec<u32> {
    let procs = |msg: &ToNode| {
        let procs = if let ToNode::Spawn { procs, .. } = msg { Some(procs) } else { None };
        procs.into_iter().flat_map(|procs| procs.iter().map(|delta| delta.proc.get())).collect::<Vec<u32>>()
    };
    let all = s.sent.iter().flat_map(procs).collect();
    on_message(s);
    all
}

/// A round can begin before its host has reported the status of a rank. The reports of that process have to be complete before another
/// has its place.
#[test]
fn another_process_is_started_when_the_end_of_the_one_before_is_known() {
    let rounds = Rounds { respawn: true, ..Rounds::default() };
    let mut s = begun(&JobSpec { rounds, ..spec(3) });
    on_message(&mut s);
    fault(&mut s, NODE, 0, 1, FaultKind::Exception);
    ready(&mut s, NODE, 0, &[0, 1]);
    assert_eq!(started(&mut s), vec![0; 0], "how rank 2 has ended is not known");
    s.wait(1).exits(2, killed(Signal::KILL), (1, 2));
    assert_eq!(started(&mut s), [5]);
}

fn respawning(ranks: u32) -> Script {
    let rounds = Rounds { respawn: true, ..Rounds::default() };
    let mut s = begun(&JobSpec { rounds, ..spec(ranks) });
    on_message(&mut s);
    s
}

/// Its session has ended for long before its memory and its devices are free.
#[test]
fn slowly_exiting_rank_is_respawned_after_its_exit() {
    let mut s = respawning(2);
    fault(&mut s, NODE, 0, 1, FaultKind::Ended(Status::Lost));
    ready(&mut s, NODE, 0, &[0]);
    assert_eq!(
        (short(&mut s), started(&mut s)),
        (["0: interrupt 0 for 1", "0: begin 1 at 21000: 0=0"].map(String::from).to_vec(), vec![])
    );
    s.wait(1).exits(1, killed(Signal::KILL), (1, 2));
    assert_eq!(started(&mut s), [3]);
}

#[test]
fn unkillable_process_is_named_and_delays_no_round() {
    for ends_after_all in [false, true] {
        let mut s = respawning(2);
        fault(&mut s, NODE, 0, 1, FaultKind::Overdue(killed(Signal::TERM)));
        for _ in 0..2 {
            s.receive(ToRoot::Round(RoundUp::Stuck { proc: ProcId::new(1) }));
        }
        assert_eq!(policy(&s), [Remark::Stuck { initial: Rank::new(1), host: OsBytes::default() }]);
        ready(&mut s, NODE, 0, &[0]);
        assert_eq!(started(&mut s), [0_u32; 0], "two would have one device");
        if ends_after_all {
            s.wait(1).exits(1, killed(Signal::KILL), (1, 2));
            assert_eq!(started(&mut s), [3]);
            continue;
        }
        returned(&mut s, NODE, 1);
        s.wait(1).exits(0, exit(0), (2, 3));
        assert!(
            s.sent.ends_with(&[ToNode::Finish, ToNode::Kill]) || s.sent.ends_with(&[ToNode::Kill, ToNode::Finish]),
            "{:?}",
            s.sent
        );
        s.receive(ToRoot::Done { left: 1, named: Capped::default() }).drained();
        assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(0)), Some(1)));
    }
}

/// The process registers while the order to end is on its way, and is in the next round: its later failure is the job's.
#[test]
fn process_that_registers_at_its_deadline_fails_as_any_other() {
    let rounds = Rounds { respawn: true, ..Rounds::default() };
    let mut s = begun(&JobSpec { rounds, ..spec(2) });
    s.wait(1).exits(1, killed(Signal::KILL), (1, 2));
    ready(&mut s, NODE, 0, &[0]);
    assert_eq!(started(&mut s), [3]);
    let own = Started { proc: ProcId::new(3), pid: 3, at: HostTime(0) };
    s.receive(ToRoot::Started { procs: Capped::chunks([own]).remove(0) });
    s.wait(300_000);
    assert_eq!(short(&mut s), ["0: end"]);
    join(&mut s, NODE, 2, &[1]);
    ready(&mut s, NODE, 1, &[0]);
    assert_eq!(short(&mut s), ["0: interrupt 1 for 1", "0: begin 2 at 21000: 0=0 1=1"]);
    returned(&mut s, NODE, 2);
    s.wait(10).exits(3, exit(3), (300_005, 300_006));
    s.report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(1), status: exit(3) });
}

/// Three hosts with two ranks each and so many slots; their function runs.
fn with_room(slots: [u32; 3]) -> Script {
    with_room_and(slots, Restarts::default())
}

fn with_room_and(slots: [u32; 3], restarts: Restarts) -> Script {
    let rounds = Rounds { respawn: true, ..Rounds::default() };
    let mut spec = JobSpec { rounds, min_hosts: None, ..three(3) }.with(|settings| settings.restarts = restarts);
    spec.placement.nodes.iter_mut().zip(slots).for_each(|(node, slots)| node.slots = slots);
    let mut s = run(&spec);
    for host in 0..3 {
        join(&mut s, node(host), 0, &[2 * host, 2 * host + 1]);
    }
    assert_eq!(short(&mut s).len(), 3);
    s
}

/// A host is lost, and by the end of its lease its ranks have ended; these are left.
fn loses(s: &mut Script, lost: u32, round: u32, left: &[(u32, &[u32])]) {
    s.event(JobEvent::EdgeClosed { node: node(lost), why: CloseReason::Eof });
    for (host, ranks) in left {
        ready(s, node(*host), round, ranks);
    }
    assert_eq!(started(s), vec![0; 0], "its ranks may still run");
    let hosts: Vec<u32> = left.iter().map(|(host, _)| *host).collect();
    beats(s, 60, &hosts);
}

/// The requested processes: host, rank, local rank, number.
fn asked(s: &Script) -> Vec<[u32; 4]> {
    let of = |(node, msg): (&NodeId, &ToNode)| {
        let ToNode::Spawn { procs, .. } = msg else { return vec![] };
        let one = |delta: &Delta| [node.get(), delta.rank.get(), delta.local_rank.get(), delta.proc.get()];
        procs.iter().map(one).collect()
    };
    s.to.iter().zip(&s.sent).flat_map(of).collect()
}

#[test]
fn ranks_of_a_lost_host_are_started_again_where_there_is_room() {
    let mut s = with_room([2, 2, 4]);
    loses(&mut s, 0, 0, &[(1, &[2, 3]), (2, &[4, 5])]);
    assert_eq!(asked(&s), [[2, 0, 2, 6], [2, 1, 3, 7]], "once they have surely ended");
    let moved = s.placements.last().unwrap();
    assert_eq!((moved.ranks[0].node, moved.ranks[1].node, moved.nodes[2].ranks), (node(2), node(2), 4));
    assert_eq!(short(&mut s), ["1: begin 1 at 21000: 2=0 3=1", "2: begin 1 at 21000: 4=2 5=3"]);
    let both = [6, 7].map(|proc| Started { proc: ProcId::new(proc), pid: proc, at: HostTime(0) });
    s.receive_from(node(2), &ToRoot::Started { procs: Capped::chunks(both).remove(0) });
    // The first processes may still send a message.
    join(&mut s, node(0), 0, &[0, 1]);
    assert_eq!(short(&mut s), [""; 0]);
    join(&mut s, node(2), 6, &[0, 1]);
    assert_eq!(short(&mut s), ["1: interrupt 1 for 0", "2: interrupt 1 for 0"]);
    ready(&mut s, node(1), 1, &[2, 3]);
    ready(&mut s, node(2), 1, &[4, 5]);
    assert_eq!(short(&mut s), ["1: begin 2 at 21000: 2=0 3=1", "2: begin 2 at 21000: 0=4 1=5 4=2 5=3"]);
}

/// Three hosts with a rank each, whose function runs; the first is this one.
fn with_one_each() -> Script {
    let rounds = Rounds { respawn: true, ..Rounds::default() };
    let mut spec = JobSpec { placement: three(3).placement, rounds, ..spec(3) };
    spec.placement.nodes.iter_mut().for_each(|node| (node.slots, node.ranks) = (1, 1));
    spec.placement.nodes[0].local = true;
    let placed = |n| RankPlacement { node: node(n), local_rank: LocalRank::new(0), app: AppIndex::new(0) };
    spec.placement.ranks = (0..3).map(placed).collect();
    let mut s = Script::new(&spec);
    for n in 0..3 {
        if n > 0 {
            s.event(JobEvent::EdgeUp { node: node(n) });
        }
        s.receive_from(node(n), &hello(&alloc::format!("10.0.0.{}", n + 1), "10.0.0.9", 20_000));
        s.receive_from(node(n), &ToRoot::Ready);
    }
    for n in 0..3 {
        let own = Started { proc: ProcId::new(n), pid: 100 + n, at: Script::at(s.now).host_time() };
        s.receive_from(node(n), &ToRoot::Started { procs: Capped::chunks([own]).remove(0) });
        join(&mut s, node(n), 0, &[n]);
    }
    on_message(&mut s);
    s
}

/// Its process had ended, and another was started with that: it is waited for.
#[test]
fn an_agent_whose_only_rank_was_started_again_has_to_end_it() {
    let mut s = with_one_each();
    fault(&mut s, node(1), 0, 1, FaultKind::Exception);
    ready(&mut s, NODE, 0, &[]);
    (1..3).for_each(|n| ready(&mut s, node(n), 0, &[n]));
    assert_eq!(started(&mut s), vec![0; 0], "how rank 0 has ended is not known");
    ends(&mut s, 0, 0, killed(Signal::KILL));
    assert_eq!(started(&mut s), [3]);
    s.signal(Signal::INT);
    beats(&mut s, 6, &[1, 2]);
    assert_eq!(s.severed, 1, "it says nothing");
}

/// The reports about ranks that come and do not come.
fn policy(s: &Script) -> Vec<Remark> {
    let remark = |what: &What| {
        let What::Round { note, .. } = what else { return None };
        let RoundNote::Remark(remark) = &**note else { return None };
        Some(remark.clone())
    };
    s.said.iter().filter_map(remark).collect()
}

/// No host has room for these ranks.
fn no_room(ranks: &[u32], hosts: &str, lacks_gpus: bool) -> Remark {
    let ranks = ranks.iter().copied().map(Rank::new).collect();
    Remark::NoRoom { ranks, hosts: hosts.into(), lacks_gpus }
}

/// The rank may be quicker than the answer of the agent that has started it.
#[test]
fn registration_before_start_report_is_reported() {
    let mut s = with_room([2, 2, 4]);
    loses(&mut s, 0, 0, &[(1, &[2, 3]), (2, &[4, 5])]);
    assert_eq!(started(&mut s), [6, 7]);
    join(&mut s, node(2), 6, &[0, 1]);
    let both = [6, 7].map(|proc| Started { proc: ProcId::new(proc), pid: proc, at: HostTime(0) });
    s.receive_from(node(2), &ToRoot::Started { procs: Capped::chunks(both).remove(0) });
    s.receive_from(node(2), &ToRoot::Started { procs: Capped::chunks(both).remove(0) });
    let again = |what: &What| {
        let What::Round { note, .. } = what else { return None };
        let RoundNote::Respawned { initial, pid, .. } = &**note else { return None };
        Some((initial.get(), *pid))
    };
    assert_eq!(s.said.iter().filter_map(again).collect::<Vec<_>>(), [(0, 6), (1, 7)]);
}

#[test]
fn respawns_start_at_once_with_restarts_allowed() {
    let mut s = with_room_and([2, 2, 4], Restarts::of(1, Span::from_secs(1)));
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    ready(&mut s, node(1), 0, &[2, 3]);
    ready(&mut s, node(2), 0, &[4, 5]);
    on_message(&mut s);
    let begins = |s: &Script| s.sent.iter().any(|msg| matches!(msg, ToNode::Round(RoundDown::Begin { .. })));
    while !begins(&s) {
        beats(&mut s, 1, &[1, 2]);
    }
    assert_eq!(asked(&s), [[2, 0, 2, 6], [2, 1, 3, 7]], "with the round");
}

#[test]
fn rank_without_gpus_is_not_started_elsewhere_when_the_work_is_done() {
    let mut s = with_room([2, 4, 4]);
    loses(&mut s, 0, 0, &[(1, &[2, 3]), (2, &[4, 5])]);
    assert_eq!(started(&mut s), [6, 7]);
    returned(&mut s, node(1), 1);
    returned(&mut s, node(2), 1);
    fails(&mut s, 1, (0, 6), SpawnStep::Gpus);
    assert_eq!((asked(&s), policy(&s)), (vec![], vec![]));
}

#[test]
fn rank_exited_before_host_loss_moves_after_its_end() {
    let mut s = with_room([2, 2, 4]);
    s.wait(1).exits(0, killed(Signal::KILL), (0, 1));
    ready(&mut s, NODE, 0, &[1]);
    ready(&mut s, node(1), 0, &[2, 3]);
    ready(&mut s, node(2), 0, &[4, 5]);
    assert_eq!(started(&mut s), [6]);
    // After the second process that cannot start, a third follows after a pause. The pause ends before the lease.
    fails(&mut s, 0, (0, 6), SpawnStep::Clone);
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    ready(&mut s, node(1), 1, &[2, 3]);
    ready(&mut s, node(2), 1, &[4, 5]);
    beats(&mut s, 3, &[1, 2]);
    assert_eq!(started(&mut s), vec![0; 0], "the pause has ended");
    beats(&mut s, 60, &[1, 2]);
    assert_eq!(asked(&s), [[2, 0, 2, 12], [2, 1, 3, 7]]);
}

#[test]
fn no_room_for_respawn_is_reported_once() {
    let mut s = with_room([2, 2, 4]);
    loses(&mut s, 0, 0, &[(1, &[2, 3]), (2, &[4, 5])]);
    assert_eq!(started(&mut s), [6, 7]);
    // The host that has taken them in is lost before they have come.
    s.event(JobEvent::EdgeClosed { node: node(2), why: CloseReason::Eof });
    ready(&mut s, node(1), 1, &[2, 3]);
    beats(&mut s, 60, &[1]);
    assert_eq!(asked(&s), [[0; 4]; 0]);
    assert_eq!(short(&mut s), ["1: interrupt 1 for 4", "2: interrupt 1 for 4", "1: begin 2 at 21000: 2=0 3=1"]);
    assert_eq!(policy(&s), [no_room(&[0, 1, 4, 5], "one,three", false)]);
    returned(&mut s, node(1), 2);
    assert_eq!(short(&mut s), ["1: finish 2"]);
}

/// The end of one rank was known before its host was lost.
#[test]
fn all_ranks_of_a_lost_host_are_placed_together() {
    let mut s = with_room([2, 3, 4]);
    ends(&mut s, 0, 0, killed(Signal::KILL));
    ready(&mut s, NODE, 0, &[1]);
    ready(&mut s, node(1), 0, &[2, 3]);
    ready(&mut s, node(2), 0, &[4, 5]);
    assert_eq!(started(&mut s), [6]);
    fails(&mut s, 0, (0, 6), SpawnStep::Clone);
    on_message(&mut s);
    loses(&mut s, 0, 1, &[(1, &[2, 3]), (2, &[4, 5])]);
    assert_eq!(asked(&s), [[2, 0, 2, 12], [2, 1, 3, 7]], "one host has room for both");
}

/// A host could not start this process of a rank.
fn fails(s: &mut Script, host: u32, (rank, proc): (u32, u32), step: SpawnStep) {
    let error = SpawnError { step, errno: 19, path: OsBytes::default(), found: Found::Nothing };
    s.receive_from(node(host), &ToRoot::SpawnFailed { proc: ProcId::new(proc), error: error.clone() });
    let tried = Tried::Again { several_hosts: true };
    let said = What::RankFailed { rank: Rank::new(rank), node: node(host), error, tried };
    assert!(s.said.contains(&said), "{:?}", s.said);
}

#[test]
fn reason_of_failed_respawn_is_reported() {
    let mut s = with_room([2, 2, 4]);
    loses(&mut s, 0, 0, &[(1, &[2, 3]), (2, &[4, 5])]);
    assert_eq!(started(&mut s), [6, 7]);
    fails(&mut s, 2, (0, 6), SpawnStep::Clone);
    assert_eq!(asked(&s), [[2, 0, 2, 12]], "it is tried again");
    assert_eq!(policy(&s), [], "it was said");
}

#[test]
fn a_host_that_has_no_gpus_for_a_rank_more_is_asked_once() {
    let mut s = with_room([2, 4, 4]);
    loses(&mut s, 0, 0, &[(1, &[2, 3]), (2, &[4, 5])]);
    assert_eq!(asked(&s), [[1, 0, 2, 6], [1, 1, 3, 7]]);
    on_message(&mut s);
    fails(&mut s, 1, (0, 6), SpawnStep::Gpus);
    assert_eq!(asked(&s), [[2, 0, 2, 12]], "another host has room");
    on_message(&mut s);
    fails(&mut s, 2, (0, 12), SpawnStep::Gpus);
    assert_eq!((asked(&s), policy(&s)), (vec![], vec![no_room(&[0], "one", true)]));
    fails(&mut s, 1, (1, 7), SpawnStep::Gpus);
    assert_eq!((asked(&s), policy(&s)), (vec![], vec![no_room(&[0], "one", true), no_room(&[1], "one", true)]));
    let last = s.placements.last().unwrap();
    assert_eq!(
        [0, 1, 2].map(|rank: usize| last.ranks[rank].node),
        [0, 0, 1].map(node),
        "they are of the host that is lost"
    );
    // The round that began without them continues.
    returned(&mut s, node(1), 1);
    returned(&mut s, node(2), 1);
    assert_eq!(short(&mut s), ["1: finish 1", "2: finish 1"]);
}

#[test]
fn a_host_takes_all_that_it_can_before_another_is_asked() {
    let mut s = with_room([2, 3, 4]);
    loses(&mut s, 0, 0, &[(1, &[2, 3]), (2, &[4, 5])]);
    assert_eq!(asked(&s), [[2, 0, 2, 6], [2, 1, 3, 7]], "one host has room for both");
}

#[test]
fn processes_that_are_started_later_have_no_part_in_the_launch() {
    let mut s = respawning(2);
    s.wait(3000).exits(1, killed(Signal::KILL), (3000, 3000));
    ready(&mut s, NODE, 0, &[0]);
    assert_eq!(started(&mut s), [3]);
    let anew = Started { proc: ProcId::new(3), pid: 103, at: Script::at(3001).host_time() };
    s.receive(ToRoot::Started { procs: Capped::chunks([anew]).remove(0) });
    s.exits(0, exit(0), (3002, 3002)).exits(3, exit(0), (3003, 3003)).report();
    assert!(s.last_report().launch().unwrap() < Span::from_secs(1));
}

/// Its process was started again, and the work of the call is done before it has registered.
fn too_late() -> Script {
    let mut s = respawning(2);
    s.wait(1).exits(1, killed(Signal::KILL), (1, 1));
    ready(&mut s, NODE, 0, &[0]);
    assert_eq!(started(&mut s), [3]);
    s.receive(ToRoot::Started {
        procs: Capped::chunks([Started { proc: ProcId::new(3), pid: 3, at: HostTime(0) }]).remove(0),
    });
    returned(&mut s, NODE, 1);
    assert_eq!(short(&mut s), ["0: finish 1"], "another call may follow");
    s
}

#[test]
fn late_process_is_in_the_next_call() {
    let mut s = too_late();
    let both = [(0, 0), (1, 3)].map(|(initial, proc)| Enrolled {
        initial: Rank::new(initial),
        proc: ProcId::new(proc),
        keys: Capped::default(),
    });
    let ranks = Capped::chunks(both).remove(0);
    s.receive(ToRoot::Round(RoundUp::Joined { call: 1, ranks, terms: "keys=0\n".into() }));
    ready(&mut s, NODE, 1, &[]);
    assert_eq!(short(&mut s), ["0: interrupt 1 for 0", "0: begin 2 at 21000: 0=0 1=1"]);
}

/// A late process may wait for ever for work that no other rank does any more.
#[test]
fn late_process_is_ended_when_no_further_call_can_come() {
    let mut s = too_late();
    s.wait(1).exits(0, exit(0), (3, 3));
    assert_eq!(short(&mut s), ["0: end"]);
    s.exits(3, killed(Signal::KILL), (4, 4)).report();
    assert_eq!(s.cause(), Cause::Success);
    // On its own it costs the job nothing either.
    let mut s = too_late();
    s.wait(1).exits(3, exit(5), (3, 3));
    s.exits(0, exit(0), (4, 4)).report();
    assert_eq!(s.cause(), Cause::Success);
}

/// Its start was on its way when it was given up: the start is no news after that, and the process is ended.
#[test]
fn respawn_is_not_reported_after_the_last_round() {
    for gives_up in [false, true] {
        let limits = Limits { max_rounds: Some(if gives_up { 2 } else { 9 }), ..Limits::default() };
        let rounds = Rounds { respawn: true, limits, ..Rounds::default() };
        let mut s = begun(&JobSpec { rounds, ..spec(3) });
        s.wait(1).exits(1, killed(Signal::KILL), (1, 2));
        ready(&mut s, NODE, 0, &[0, 2]);
        assert_eq!(started(&mut s), [4]);
        fault(&mut s, NODE, 1, 0, FaultKind::Exception);
        ready(&mut s, NODE, 1, &[0, 2]);
        let given_up = s.said.iter().any(|said| matches!(said, What::RoundsOver(_)));
        let own = Started { proc: ProcId::new(4), pid: 4, at: HostTime(0) };
        s.receive(ToRoot::Started { procs: Capped::chunks([own]).remove(0) });
        let is_again =
            |said: &What| matches!(said, What::Round { note, .. } if matches!(&**note, RoundNote::Respawned { .. }));
        assert_eq!((given_up, s.said.iter().any(is_again)), (gives_up, !gives_up));
    }
}
