//! Loss of agent, guardian and init.

use super::*;

fn closed(s: &mut Script) -> &mut Script {
    s.event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof })
}
fn record(s: &mut Script, left: u32) -> &mut Script {
    let leftover = Leftover { pid: 9, comm: OsBytes::from("cat"), wchan: OsBytes::from("vfio_release") };
    let named = (0..left).map(|_| leftover.clone()).collect();
    s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Record { left, named } })
}
fn silent(s: &mut Script) -> &mut Script {
    s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Silent })
}
const AGENT: Cause = Cause::Lost { node: NODE, lost: Lost::Agent(CloseReason::Eof) };

#[test]
fn the_guardian_counts_for_a_lost_agent() {
    let mut s = Script::running(&spec(2));
    closed(&mut s);
    assert_eq!((s.drains, s.finished), (0, None), "the count is on its way");
    assert_eq!(s.severed, 1, "also from a guardian that has not seen the agent's end");
    record(&mut s, 1).drained();
    assert_eq!(s.finished, Some(Ending::Code(125)));
    assert_eq!(s.cause(), AGENT);
    let report = s.last_report();
    assert_eq!((report.left, report.named[0].pid), (Some(1), 9));
    assert_eq!(report.others()[0].became, Became::NoContact);
}

#[test]
fn a_rank_that_was_killed_by_a_signal_that_was_passed_on_failed_before_the_agent_was_lost() {
    let mut s = Script::running(&spec(2));
    s.signal(Signal::USR1);
    s.now = 20;
    s.exits(1, killed(Signal::USR1), (1, 20));
    s.now = 30;
    closed(&mut s);
    record(&mut s, 0).drained();
    assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(1), status: killed(Signal::USR1) });
    assert_eq!(s.finished, Some(Ending::Code(138)));
}

#[test]
fn a_record_may_overtake_the_end_of_the_edge() {
    let mut s = Script::running(&spec(2));
    record(&mut s, 0);
    closed(&mut s).drained();
    assert_eq!((s.cause(), s.last_report().left), (AGENT, Some(0)));
}

#[test]
fn nothing_is_counted_if_guardian_and_agent_are_lost() {
    let mut s = Script::running(&spec(1));
    closed(&mut s);
    silent(&mut s).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), None));
}

#[test]
fn both_lost_in_the_other_order() {
    let mut s = Script::running(&spec(1));
    silent(&mut s);
    assert_eq!(s.drains, 0, "the agent can still count");
    closed(&mut s).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), None));
}

#[test]
fn a_guardian_that_does_not_count_is_waited_for_five_seconds() {
    let mut s = Script::running(&spec(1));
    closed(&mut s).wait(4_999);
    assert_eq!(s.drains, 0);
    s.wait(1).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), None));
}

#[test]
fn agent_reports_the_loss_of_its_guardian() {
    let mut s = Script::running(&spec(1));
    s.receive(ToRoot::GuardianLost).exits(0, killed(Signal::KILL), (0, 1)).report();
    assert_eq!(s.finished, Some(Ending::Code(125)));
    assert_eq!(s.cause(), Cause::Lost { node: NODE, lost: Lost::Guardian });
}

#[test]
fn init_takes_the_ranks_along() {
    let mut s = Script::running(&spec(2));
    s.now = 10;
    s.receive(ToRoot::InitLost).exits(0, killed(Signal::KILL), (0, 9)).exits(1, killed(Signal::KILL), (0, 11)).report();
    assert_eq!(s.finished, Some(Ending::Code(125)));
    assert_eq!(s.cause(), Cause::Lost { node: NODE, lost: Lost::Init });
    assert_eq!(s.last_report().others()[0].became, Became::TakenAlong);
}

#[test]
fn an_interrupt_that_came_first_keeps_its_code() {
    let mut s = Script::running(&spec(1));
    s.signal(Signal::TERM);
    record(closed(&mut s), 0).drained();
    assert_eq!(s.finished, Some(Ending::Signal(Signal::TERM)));
}

#[test]
fn an_agent_that_is_done_before_its_ranks_is_lost() {
    let mut s = Script::running(&spec(1));
    s.report();
    assert_eq!(s.finished, Some(Ending::Code(125)));
    assert_eq!(s.cause(), Cause::Lost { node: NODE, lost: Lost::AgentEarly });
}

#[test]
fn an_agent_that_only_has_output_to_pass_on_is_not_stuck() {
    // A rank never started, or cannot be killed: no report of its end will come.
    let mut s = Script::new(&spec(2));
    s.hello().exits(0, exit(3), (0, 0)).receive(ToRoot::Draining).wait(60_000);
    assert_eq!((s.drains, s.abandoned), (0, false), "a failure's last words wait for a slow reader");
    assert_eq!(s.report().left, Some(0));
    assert_eq!(s.finished, Some(Ending::Code(3)));

    let mut s = Script::new(&spec(2));
    s.hello().signal(Signal::INT).receive(ToRoot::Draining).wait(2000);
    assert!(s.abandoned, "a job that was ordered to end does not wait");

    let mut s = Script::running(&spec(1));
    s.receive(ToRoot::Draining).report();
    assert_eq!(s.cause(), Cause::Lost { node: NODE, lost: Lost::AgentEarly });
}

#[test]
fn the_edge_may_end_after_done() {
    let mut s = Script::running(&spec(1));
    s.exits(0, exit(0), (0, 0)).done();
    closed(&mut s).drained();
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(0)), Some(0)));
}

#[test]
fn ranks_of_lost_agent_are_not_reported_as_never_started() {
    let mut s = Script::new(&spec(1));
    s.hello().event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    s.event(JobEvent::GuardianEnded { node: NODE, end: GuardianEnd::Silent }).drained();
    assert_eq!(s.last_report().others()[0].became, Became::NoContact);
    let mut s = Script::new(&spec(1));
    s.hello().event(JobEvent::EdgeClosed { node: NODE, why: CloseReason::Eof });
    record(&mut s, 0).drained();
    assert_eq!(s.last_report().others()[0].became, Became::EndedOrNeverStarted);
}

#[test]
fn ranks_that_ended_because_the_guardian_was_lost_did_not_fail() {
    let mut s = Script::running(&spec(2));
    s.receive(ToRoot::GuardianLost).exits(0, killed(Signal::KILL), (0, 0)).exits(1, killed(Signal::KILL), (0, 9));
    let others: Vec<_> = s.report().others().into_iter().map(|group| (group.became, group.ranks.len())).collect();
    assert_eq!(others, [(Became::Killed, 2)]);
}
