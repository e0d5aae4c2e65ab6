//! Functions that are begun again in the same processes: what becomes of ranks and hosts that are lost meanwhile.

use super::hosts::{OTHER, done, exits, recipients, running};
use super::*;
use crate::report::Rounds as RoundsReport;
use alloc::boxed::Box;
use alloc::string::String;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::Round;
use rlaunch_base::time::HostTime;
use rlaunch_plan::rank_assign::parse;
use rlaunch_protocol::rank_fault::{Fault, FaultKind, Leave};
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::rounds::{Limits, Rounds};
use rlaunch_protocol::spec::JobSpec;
use rlaunch_protocol::wire::round::{Enrolled, RoundDown, RoundUp};
use rlaunch_protocol::wire::to_node::Rendezvous;
use rlaunch_restart::{RoundNote, RoundsEnd, Step};

const KILLED: Status = Status::Signaled { sig: Signal::KILL, core: false };

fn enrolled(first: u32, ranks: &[u32]) -> Vec<Enrolled> {
    let one = |n: &u32| Enrolled { initial: Rank::new(*n), proc: ProcId::new(first + n), keys: Capped::default() };
    ranks.iter().map(one).collect()
}

fn up(s: &mut Script, node: NodeId, up: RoundUp) {
    s.receive_from(node, &ToRoot::Round(up));
}

/// Processes register, of a generation whose first has this number.
pub(super) fn join(s: &mut Script, node: NodeId, first: u32, ranks: &[u32]) {
    let ranks = Capped::chunks(enrolled(first, ranks)).remove(0);
    up(s, node, RoundUp::Joined { call: 0, ranks, terms: OsBytes::default() });
}

/// Records that ranks are out of the function.
pub(super) fn ready(s: &mut Script, node: NodeId, round: u32, ranks: &[u32]) {
    let ranks = Capped::chunks(enrolled(0, ranks)).pop().unwrap_or_default();
    up(s, node, RoundUp::Ready { round: Round::new(round), ranks, last: true, port: 21_000, pinged: false });
}

pub(super) fn fault(s: &mut Script, node: NodeId, round: u32, rank: u32, kind: FaultKind) {
    let fault = Fault { initial: Rank::new(rank), kind, text: "ValueError".into() };
    let at = HostTime(Script::at(s.now).nanos());
    up(s, node, RoundUp::Fault { round: Round::new(round), fault, at });
}

pub(super) fn returned(s: &mut Script, node: NodeId, round: u32) {
    up(s, node, RoundUp::Returned { round: Round::new(round), ranks: 1 });
}

/// Messages about rounds that nodes were sent since the last look.
pub(super) fn on_message(s: &mut Script) -> Vec<(u32, RoundDown)> {
    let sent: Vec<_> = s.to.drain(..).zip(s.sent.drain(..)).collect();
    let round =
        |(node, msg): (NodeId, ToNode)| if let ToNode::Round(down) = msg { Some((node.get(), down)) } else { None };
    sent.into_iter().filter_map(round).collect()
}

/// The same in short: who begins as what, and so on.
pub(super) fn short(s: &mut Script) -> Vec<String> {
    let words = |down: &RoundDown| match down {
        RoundDown::Begin { round, place, members, .. } => {
            let members = members.iter().map(|member| match member.active {
                Some(active) => alloc::format!("{}={active}", member.initial),
                None => alloc::format!("{}=-", member.initial),
            });
            let members: Vec<String> = members.collect();
            alloc::format!("begin {round} at {}: {}", place.port, members.join(" "))
        }
        RoundDown::Interrupt { round, fault, .. } => alloc::format!("interrupt {round} for {}", fault.initial),
        RoundDown::Finish { call: 0, round } => alloc::format!("finish {round}"),
        RoundDown::Finish { call, round } => alloc::format!("finish {round} of call {call}"),
        RoundDown::GiveUp { .. } => "give up".into(),
        RoundDown::End { .. } => "end".into(),
        RoundDown::Refuse { .. } => "refuse".into(),
        RoundDown::Late { .. } => "late".into(),
    };
    on_message(s).iter().map(|(node, down)| alloc::format!("{node}: {}", words(down))).collect()
}

/// A job of one host whose function runs.
pub(super) fn begun(spec: &JobSpec) -> Script {
    let mut s = Script::running(spec);
    s.to.clear();
    let ranks: Vec<u32> = (0..spec.world_size()).collect();
    join(&mut s, NODE, 0, &ranks);
    s
}

fn limited(limits: Limits, spec: JobSpec) -> JobSpec {
    JobSpec { rounds: Rounds { limits, ..Rounds::default() }, ..spec }
}

fn rounds_report(s: &Script) -> RoundsReport {
    s.last_report().rounds
}

#[test]
fn a_rank_that_is_about_to_be_taken_away_is_drained_by_a_planned_round() {
    let mut s = begun(&spec(3));
    on_message(&mut s);
    fault(&mut s, NODE, 0, 1, FaultKind::Warned);
    let sent = on_message(&mut s);
    let [(0, RoundDown::Interrupt { fault, within: Some(within), .. })] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((fault.kind, *within), (FaultKind::Warned, Rounds::YIELD), "each where it says that it can be");
    ready(&mut s, NODE, 0, &[0, 1, 2]);
    assert_eq!(short(&mut s), ["0: begin 1 at 21000: 0=0 1=- 2=1"]);
    s.wait(1).exits(1, KILLED, (1, 2));
    assert_eq!(short(&mut s), [""; 0], "it was out already");
    returned(&mut s, NODE, 1);
    assert_eq!(short(&mut s), ["0: finish 1"]);
}

/// No rank is left that a planned round could continue with.
#[test]
fn warning_of_the_only_host_of_a_round_ends_its_ranks_with_the_grace_of_the_warning() {
    let mut s = begun(&spec(3));
    on_message(&mut s);
    s.receive_from(NODE, &ToRoot::Warned(rlaunch_base::warnings::WarningSource::Preempted));
    let end = ToNode::End { sig: Signal::TERM, grace: rlaunch_base::warnings::GRACE };
    assert_eq!(s.sent.iter().filter(|msg| **msg == end).count(), 1, "{:?}", s.sent);
}

#[test]
fn a_rank_that_is_killed_costs_a_round_and_not_the_job() {
    let mut s = begun(&spec(4));
    assert_eq!(short(&mut s), ["0: begin 0 at 20000: 0=0 1=1 2=2 3=3"]);
    s.wait(10).exits(2, KILLED, (9, 10));
    assert_eq!(short(&mut s), ["0: interrupt 0 for 2"]);
    s.wait(3);
    ready(&mut s, NODE, 0, &[0, 1, 3]);
    assert_eq!(short(&mut s), ["0: begin 1 at 21000: 0=0 1=1 3=2"]);
    assert_eq!(s.homes, [(NODE, 1), (NODE, 2)]);
    returned(&mut s, NODE, 1);
    assert_eq!(short(&mut s), ["0: finish 1"]);
    for rank in [0, 1, 3] {
        s.exits(rank, exit(0), (13, 14));
    }
    s.report();
    assert_eq!((s.finished, s.cause()), (Some(Ending::Code(0)), Cause::Success));
    let report = rounds_report(&s);
    assert_eq!((report.count, report.lost.keys().map(|rank| rank.get()).collect::<Vec<_>>()), (1, vec![2]));
    assert_eq!(report.last[0].sizes, (3, 3));
    let rounds = s.log.iter().filter(|what| matches!(what, What::Round { .. })).count();
    assert_eq!((rounds, s.log.contains(&What::RoundsOver(Box::new(RoundsEnd::Done)))), (2, true));
    let said = |s: &What| matches!(s, What::Round { note, .. } if matches!(&**note, RoundNote::Began { .. }));
    assert_eq!(s.said.iter().filter(|sentence| said(sentence)).count(), 2);
}

#[test]
fn before_all_have_registered_a_failure_is_the_jobs() {
    let mut s = Script::running(&spec(3));
    join(&mut s, NODE, 0, &[0, 1]);
    s.wait(10).exits(2, exit(3), (9, 10));
    assert!(s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. })), "{:?}", s.sent);
    s.exits(0, exit(1), (11, 12)).exits(1, exit(1), (11, 12)).report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(2), status: exit(3) });
}

#[test]
fn unrecoverable_failure_ends_the_job_with_its_status() {
    let once = Limits { max_rounds: Some(1), ..Limits::default() };
    let cases: [(FaultKind, Status); 3] = [
        (FaultKind::Exception, exit(1)),
        (FaultKind::Left(Leave::Abort), exit(1)),
        (FaultKind::Overdue(KILLED), KILLED),
    ];
    for (kind, status) in cases {
        let mut s = begun(&limited(once, spec(3)));
        short(&mut s);
        s.wait(10);
        fault(&mut s, NODE, 0, 1, kind);
        assert_eq!(short(&mut s), ["0: interrupt 0 for 1"]);
        ready(&mut s, NODE, 0, &[0, 1, 2]);
        if matches!(kind, FaultKind::Left(_)) {
            s.wait(5000);
        }
        assert!(s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. })), "{kind:?}: {:?}", s.sent);
        assert_eq!(short(&mut s), ["0: give up"]);
        // Failures of the others because of that, or after the interrupt, are no cause.
        s.wait(1).exits(0, KILLED, (9, 9)).exits(1, exit(7), (10, 11)).exits(2, exit(9), (10, 11)).report();
        assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(1), status }, "{kind:?}");
        assert!(rounds_report(&s).given_up.is_some());
    }
}

#[test]
fn when_all_are_gone_the_first_of_them_is_the_cause() {
    let mut s = begun(&spec(3));
    s.wait(10);
    s.exits(1, crash(), (9, 10)).exits(0, exit(1), (9, 11)).exits(2, exit(0), (9, 12));
    ready(&mut s, NODE, 0, &[]);
    s.report();
    assert_eq!((s.finished, s.cause()), (Some(Ending::Code(139)), Cause::Rank { rank: Rank::new(1), status: crash() }));
}

#[test]
fn early_exit_with_0_fails_the_job() {
    let mut s = begun(&limited(Limits { min_world: Some(2), ..Limits::default() }, spec(2)));
    s.wait(10).exits(1, exit(0), (9, 10));
    ready(&mut s, NODE, 0, &[0]);
    s.exits(0, exit(0), (11, 12)).report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(1), status: exit(1) });
}

#[test]
fn ranks_that_a_round_leaves_out_fail_nothing() {
    let policy = parse::policy("all,shift,group(initial/2)==2").unwrap();
    let mut s = begun(&JobSpec { rounds: Rounds { policy: Some(policy), ..Rounds::default() }, ..spec(6) });
    short(&mut s);
    s.wait(10);
    fault(&mut s, NODE, 0, 4, FaultKind::Left(Leave::BaseException));
    ready(&mut s, NODE, 0, &[0, 1, 2, 3, 5]);
    assert_eq!(short(&mut s)[1], "0: begin 1 at 21000: 0=0 1=1 2=2 3=3 5=-");
    // A discarded rank exits as it likes, at any time.
    s.wait(1).exits(5, exit(1), (10, 11));
    assert_eq!(short(&mut s), [""; 0]);
    returned(&mut s, NODE, 1);
    for rank in 0..4 {
        s.exits(rank, exit(0), (12, 12));
    }
    s.exits(4, exit(17), (12, 12)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
    let lost: Vec<_> = rounds_report(&s).lost.iter().map(|(rank, why)| (rank.get(), why.is_some())).collect();
    assert_eq!(lost, [(4, true), (5, false)]);
}

#[test]
fn after_the_work_is_done_a_failure_is_the_jobs_again() {
    let mut s = begun(&spec(2));
    returned(&mut s, NODE, 0);
    s.wait(10).exits(0, exit(0), (9, 10)).exits(1, exit(4), (9, 10)).report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(1), status: exit(4) });
}

#[test]
fn rounds_that_are_used_up_lead_to_another_generation_with_rounds_of_its_own() {
    let may = spec(2).with(|settings| settings.restarts = Restarts::of(1, Span::ZERO));
    let mut s = begun(&limited(Limits { max_rounds: Some(1), ..Limits::default() }, may));
    s.wait(10).exits(1, exit(3), (9, 10));
    ready(&mut s, NODE, 0, &[0]);
    assert!(s.sent.iter().any(|msg| matches!(msg, ToNode::Clear { .. })), "{:?}", s.sent);
    // A message of those that are being ended.
    fault(&mut s, NODE, 0, 0, FaultKind::Exception);
    s.receive(ToRoot::Cleared { left: 0, named: Capped::default(), port: 22_000 });
    s.sent.clear();
    s.to.clear();
    s.wait(1);
    let rendezvous = |msg: &ToNode| if let ToNode::Again(rendezvous) = msg { Some(rendezvous.clone()) } else { None };
    let meetings: Vec<Rendezvous> = s.sent.iter().filter_map(rendezvous).collect();
    assert_eq!((meetings[0].restart, meetings[0].namespace), (1, 2));
    on_message(&mut s);
    join(&mut s, NODE, 0, &[0, 1]);
    assert_eq!(short(&mut s), [""; 0], "these processes are of the first generation");
    join(&mut s, NODE, 2, &[0, 1]);
    assert_eq!(short(&mut s), ["0: begin 0 at 22000: 0=0 1=1"]);
    assert_eq!(s.homes, [(NODE, 1), (NODE, 2), (NODE, 3)]);
    returned(&mut s, NODE, 0);
    s.exits(2, exit(0), (12, 12)).exits(3, exit(0), (12, 12)).report();
    assert_eq!(s.finished, Some(Ending::Code(0)));
    assert_eq!((s.last_report().restarts.len(), rounds_report(&s).count), (1, 0));
}

#[test]
fn other_hosts_continue_when_ranks_of_a_lost_host_have_surely_ended() {
    let mut s = running();
    join(&mut s, NODE, 0, &[0, 1]);
    join(&mut s, OTHER, 0, &[2, 3]);
    assert_eq!(short(&mut s).len(), 2);
    s.event(JobEvent::EdgeClosed { node: OTHER, why: CloseReason::Eof });
    assert_eq!(recipients(&s, &ToNode::Kill), [1], "the host may still receive it");
    assert_eq!(short(&mut s), ["0: interrupt 0 for 2", "1: interrupt 0 for 2"], "at once");
    ready(&mut s, NODE, 0, &[0, 1]);
    assert_eq!(short(&mut s), [""; 0], "its ranks may still run");
    for _ in 0..60 {
        s.wait(1000);
        let own = Script::at(s.now).nanos();
        let beat = rlaunch_protocol::wire::beat::Beat { own, echo: own };
        s.event(JobEvent::Beat { node: NODE, beat });
    }
    assert_eq!(short(&mut s), ["0: begin 1 at 21000: 0=0 1=1"]);
    returned(&mut s, NODE, 1);
    for rank in [0, 1] {
        exits(&mut s, rank, exit(0), 0);
    }
    assert!(s.sent.contains(&ToNode::Finish), "{:?}", s.sent);
    done(&mut s, NODE, 0);
    s.drained();
    assert_eq!(s.finished, Some(Ending::Code(0)));
    assert_eq!(rounds_report(&s).lost.keys().map(|rank| rank.get()).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn loss_of_an_indispensable_host_ends_the_job() {
    for (limits, open) in [(Limits { min_world: Some(3), ..Limits::default() }, true), (Limits::default(), false)] {
        let mut s = super::hosts::running_by(&limited(limits, super::hosts::two(false)));
        if open {
            join(&mut s, NODE, 0, &[0, 1]);
        }
        join(&mut s, OTHER, 0, &[2, 3]);
        s.event(JobEvent::GuardianEnded { node: OTHER, end: GuardianEnd::Expired { left: 0, named: vec![] } });
        ready(&mut s, NODE, 0, &[0, 1]);
        for rank in [0, 1] {
            exits(&mut s, rank, killed(Signal::TERM), 1);
        }
        done(&mut s, NODE, 0);
        s.drained();
        assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost: Lost::Expired }, "{open}");
        assert_eq!(s.finished, Some(Ending::Code(125)));
    }
}

#[test]
fn a_signal_in_a_round_ends_the_job_as_ever() {
    let mut s = begun(&spec(2));
    s.wait(10).exits(1, KILLED, (9, 10));
    s.signal(Signal::INT);
    short(&mut s);
    ready(&mut s, NODE, 0, &[0]);
    assert_eq!(short(&mut s), [""; 0], "no round follows");
    s.exits(0, killed(Signal::INT), (11, 12)).report();
    assert_eq!(s.cause(), Cause::Signal(Signal::INT));
}

#[test]
fn failed_first_round_is_reported_to_all() {
    let policy = parse::policy("all,shift,group(initial/2)==2").unwrap();
    let limits = Limits { min_world: Some(3), ..Limits::default() };
    let mut s = begun(&JobSpec { rounds: Rounds { policy: Some(policy), limits, ..Rounds::default() }, ..spec(3) });
    assert_eq!(short(&mut s), ["0: refuse"]);
    let said = |s: &What| matches!(s, What::Round { note, .. } if matches!(&**note, RoundNote::Refused { .. }));
    assert!(s.said.iter().any(said));
}

#[test]
fn reason_of_full_hosts_is_reported_once() {
    let mut s =
        Script::running(&JobSpec { rounds: Rounds { asked: "--respawn".into(), ..Rounds::default() }, ..spec(2) });
    let why = || RoundUp::Refused { text: "soft_timeout 9s is too long".into() };
    up(&mut s, NODE, why());
    up(&mut s, NODE, why());
    s.exits(0, exit(1), (4, 5)).exits(1, exit(1), (5, 6)).report();
    let said = |s: &What| if let What::Round { note, .. } = s { Some((**note).clone()) } else { None };
    let said: Vec<RoundNote> = s.said.iter().filter_map(said).collect();
    assert_eq!(said, [RoundNote::Refused { text: "soft_timeout 9s is too long".into() }]);
}

/// The host of a rank that has registered reports the rank that has not: no rank is known to the launcher yet.
#[test]
fn ranks_that_have_not_registered_are_named_once_and_no_line_claims_that_none_has_registered() {
    let mut s =
        Script::running(&JobSpec { rounds: Rounds { asked: "--respawn".into(), ..Rounds::default() }, ..spec(2) });
    let late = || RoundUp::Awaited { ranks: Capped::chunks([Rank::new(1)]).pop().unwrap() };
    up(&mut s, NODE, late());
    up(&mut s, NODE, late());
    s.exits(0, exit(1), (4, 5)).exits(1, exit(1), (5, 6)).report();
    let said = |s: &What| if let What::Round { note, .. } = s { Some((**note).clone()) } else { None };
    let said: Vec<RoundNote> = s.said.iter().filter_map(said).collect();
    let ranks = [Rank::new(1)].into_iter().collect();
    assert_eq!(said, [RoundNote::Awaited { round: None, step: Step::Register, ranks }]);
}

#[test]
fn several_programs_have_no_rounds() {
    let mut spec = spec(1);
    spec.apps.push(spec.apps[0].clone());
    let mut s = begun(&spec);
    assert_eq!(short(&mut s), ["0: refuse"]);
}

#[test]
fn reports_about_other_hosts_ranks_are_dropped() {
    let mut s = running();
    join(&mut s, NODE, 0, &[0, 1, 2, 3]);
    join(&mut s, OTHER, 4, &[2, 3]);
    assert_eq!(short(&mut s), [""; 0]);
    join(&mut s, OTHER, 0, &[2, 3]);
    assert_eq!(short(&mut s).len(), 2);
    fault(&mut s, NODE, 0, 3, FaultKind::Exception);
    assert_eq!(short(&mut s), [""; 0]);
    fault(&mut s, OTHER, 0, 3, FaultKind::Exception);
    assert_eq!(short(&mut s).len(), 2);
}

/// In a call after the first, hosts are asked for a port before it begins: a rank that dies then is its fault.
#[test]
fn rank_killed_between_calls_is_the_cause() {
    let limits = Limits { min_world: Some(2), ..Limits::default() };
    let mut s = begun(&limited(limits, spec(2)));
    returned(&mut s, NODE, 0);
    let ranks = Capped::chunks(enrolled(0, &[0, 1])).remove(0);
    up(&mut s, NODE, RoundUp::Joined { call: 1, ranks, terms: OsBytes::default() });
    s.wait(1).exits(1, KILLED, (1, 2));
    ready(&mut s, NODE, 0, &[]);
    s.wait(1).exits(0, exit(1), (2, 3));
    s.report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(1), status: KILLED });
}

/// Its host has reported that before any other rank had registered.
#[test]
fn rank_that_left_before_registration_is_not_waited_for() {
    let mut s = Script::running(&spec(2));
    s.to.clear();
    fault(&mut s, NODE, 0, 0, FaultKind::Left(Leave::BaseException));
    join(&mut s, NODE, 0, &[1]);
    assert_eq!(short(&mut s), ["0: refuse"]);
}

/// `sys.exit(3)` in the function: it leaves first, and its hooks run before its process ends.
#[test]
fn the_last_rank_leaves_with_a_code_of_its_own() {
    let mut s = begun(&spec(1));
    fault(&mut s, NODE, 0, 0, FaultKind::Left(Leave::BaseException));
    ready(&mut s, NODE, 0, &[]);
    on_message(&mut s);
    s.wait(4000).exits(0, exit(3), (4001, 4002));
    s.report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(0), status: exit(3) });
}

/// The other ranks have no round to continue with: their failures are consequences. A rank that does not exit is not waited for longer
/// than any other.
#[test]
fn rank_that_left_has_grace_to_exit() {
    let limits = Limits { min_world: Some(2), ..Limits::default() };
    let gives_up = || {
        let mut s = begun(&limited(limits, spec(2)));
        fault(&mut s, NODE, 0, 0, FaultKind::Left(Leave::BaseException));
        ready(&mut s, NODE, 0, &[1]);
        s.wait(1000).exits(1, exit(1), (999, 1000));
        s.sent.clear();
        s
    };
    let mut s = gives_up();
    s.exits(0, exit(3), (1001, 1002));
    s.report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(0), status: exit(3) });
    let ends = |s: &Script| s.sent.iter().any(|msg| matches!(msg, ToNode::End { .. }));
    let mut s = gives_up();
    s.wait(3999);
    assert!(!ends(&s));
    s.wait(1);
    assert!(ends(&s), "5 s are over");
    s.exits(0, killed(Signal::TERM), (5002, 5003));
    s.report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(0), status: exit(1) });
}

/// A job under a policy, whose first round has begun.
fn begun_by(policy: &str, ranks: u32, respawn: bool) -> Script {
    let policy = rlaunch_plan::rank_assign::parse::policy(policy).unwrap();
    begun(&JobSpec { rounds: Rounds { policy: Some(policy), respawn, ..Rounds::default() }, ..spec(ranks) })
}

/// All other ranks fail, long after everything else. The first of them is the cause of the job's failure.
fn fails_by_rank_0(mut s: Script, status: Status) {
    s.wait(60_000);
    let at = s.now;
    s.exits(0, status, (at, at)).exits(1, status, (at, at)).report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(0), status });
}

fn started_anew(s: &mut Script, proc: u32) {
    let own = rlaunch_protocol::wire::to_root::Started { proc: ProcId::new(proc), pid: proc, at: HostTime(0) };
    s.receive(ToRoot::Started { procs: Capped::chunks([own]).remove(0) });
}

/// The reserve was killed an hour before, and no round needed it: it does not cause later failures of all others.
#[test]
fn a_reserve_that_had_ended_is_not_what_a_job_fails_by() {
    let mut s = begun_by("max=2,shift", 3, false);
    s.wait(1).exits(2, KILLED, (1, 2));
    fails_by_rank_0(s, exit(3));
}

/// The rank hangs, no rank remains that could continue, and rlaunch has ended it: its status shows nothing of that.
#[test]
fn hang_that_leaves_no_rank_is_the_cause() {
    let mut s = begun(&spec(2));
    s.wait(10);
    fault(&mut s, NODE, 0, 1, FaultKind::Hang);
    let ended = Status::Signaled { sig: Signal::TERM, core: false };
    s.wait(5000).exits(0, ended, (5000, 5010)).exits(1, ended, (5000, 5011)).report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(1), status: ended });
    let (fault, _) = rounds_report(&s).given_up.unwrap();
    assert_eq!((fault.initial, fault.kind), (Rank::new(1), FaultKind::Hang));
}

/// The rank left by a round of its own. Its process exited a moment after the begin of the next one, an hour before all others failed.
#[test]
fn rank_that_left_earlier_is_not_the_cause() {
    let mut s = begun(&spec(3));
    s.wait(1);
    fault(&mut s, NODE, 0, 2, FaultKind::Left(Leave::BaseException));
    ready(&mut s, NODE, 0, &[0, 1]);
    s.wait(1).exits(2, exit(7), (2, 2));
    fails_by_rank_0(s, exit(3));
}

/// A rank that the policy discards exits by RankDiscarded.
#[test]
fn discarded_rank_is_not_the_cause() {
    let mut s = begun_by("all,shift,group(rank/2)==2", 4, false);
    s.wait(1).exits(3, KILLED, (1, 1));
    ready(&mut s, NODE, 0, &[0, 1, 2]);
    s.wait(1).exits(2, exit(1), (2, 2));
    fails_by_rank_0(s, KILLED);
}

/// A reserve leaves by itself, and ends a moment later.
#[test]
fn a_reserve_that_had_left_is_not_what_a_job_fails_by() {
    let mut s = begun_by("max=2,shift", 3, false);
    s.wait(1);
    fault(&mut s, NODE, 0, 2, FaultKind::Left(Leave::BaseException));
    s.wait(1).exits(2, exit(7), (2, 2));
    fails_by_rank_0(s, exit(3));
}

/// The rank came back to the reserve, and exited once more before it was in any round.
#[test]
fn a_reserve_that_came_back_and_ended_is_not_what_a_job_fails_by() {
    let mut s = begun_by("max=2,shift", 3, true);
    s.wait(1).exits(2, KILLED, (1, 2));
    started_anew(&mut s, 5);
    join(&mut s, NODE, 3, &[2]);
    s.wait(1000).exits(5, exit(9), (1001, 1001));
    s.wait(60_000);
    s.exits(0, exit(3), (61_001, 61_001));
    s.exits(1, exit(3), (61_001, 61_001));
    // The third process of rank 2 is on its way.
    started_anew(&mut s, 8);
    s.exits(8, exit(4), (61_002, 61_003));
    s.report();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(0), status: exit(3) });
}
