//! Hosts without messages: the cause of the silence, which hosts were lost together, and the reports while they are waited for.

use super::hosts::{MS, OTHER, done, exits, running};
use super::*;
use rlaunch_base::time::HostTime;
use rlaunch_protocol::wire::beat::Beat;
use rlaunch_protocol::wire::to_root::{Exited, Usage};

fn beat(s: &mut Script, node: NodeId) {
    s.event(JobEvent::Beat { node, beat: Beat { own: 7, echo: 0 } });
}

/// The message of a node that knows our clock.
fn answers(s: &mut Script, node: NodeId) {
    let echo = (harness::START + s.now) * MS;
    s.event(JobEvent::Beat { node, beat: Beat { own: echo, echo } });
}

/// Both hosts send heartbeats for so many seconds.
fn on_message(s: &mut Script, seconds: u64) {
    for _ in 0..seconds {
        s.wait(1_000);
        answers(s, NODE);
        answers(s, OTHER);
    }
}

/// The launcher is suspended for so long.
fn suspend(s: &mut Script, ms: u64) {
    s.now += ms;
}

fn expires(s: &mut Script, node: NodeId) {
    s.event(JobEvent::GuardianEnded { node, end: GuardianEnd::Expired { left: 0, named: vec![] } });
    s.event(JobEvent::EdgeClosed { node, why: CloseReason::Eof });
}

/// The only lost one was lost for this reason, and the other has counted.
fn sole_loss(mut s: Script) -> (Cause, Vec<NodeId>) {
    for rank in [0, 1] {
        exits(&mut s, rank, killed(Signal::TERM), 6);
    }
    done(&mut s, NODE, 0);
    s.drained();
    (s.cause(), s.last_report().together)
}

#[test]
fn launcher_suspended_beyond_lease_lost_all_hosts_itself() {
    let mut s = running();
    on_message(&mut s, 2);
    suspend(&mut s, 40_000);
    expires(&mut s, OTHER);
    expires(&mut s, NODE);
    s.drained();
    let lost = Lost::Starved(Span::from_secs(40));
    assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost });
    assert_eq!(s.last_report().together, [NODE, OTHER]);
    assert_eq!((s.finished, s.last_report().left), (Some(Ending::Code(125)), Some(0)));
    assert_eq!(s.last_report().others()[0].became, Became::Ended, "it was counted");
}

#[test]
fn job_with_silent_hosts_ends_too() {
    // A laptop that slept: the connections are gone, or nothing comes through them.
    let mut s = running();
    on_message(&mut s, 2);
    suspend(&mut s, 3_600_000);
    let why =
        CloseReason::Carrier(rlaunch_plan::bootstrap::CarrierKind::Ssh, rlaunch_plan::bootstrap::CarrierEnd::Code(255));
    s.event(JobEvent::EdgeClosed { node: OTHER, why }).wait(0).drained();
    let lost = Lost::Starved(Span::from_secs(3_600));
    assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost });
    assert_eq!(s.last_report().together, [NODE, OTHER]);
}

#[test]
fn host_lost_before_is_not_lost_together() {
    let mut s = running();
    for _ in 0..20 {
        s.wait(1_000);
        answers(&mut s, NODE);
    }
    suspend(&mut s, 40_000);
    expires(&mut s, NODE);
    expires(&mut s, OTHER);
    s.drained();
    assert!(s.log.contains(&What::HostLost { node: NODE, lost: Lost::Starved(Span::from_secs(40)) }));
    assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost: Lost::Expired }, "whichever loss was reported first");
    assert_eq!(s.last_report().together, []);
}

/// A host falls silent, and the consequences are seen long before its lease expires.
fn falls_silent(s: &mut Script) {
    on_message(s, 2);
    for _ in 0..10 {
        s.wait(1_000);
        answers(s, NODE);
    }
}

/// Waits until all leases have expired.
fn waits(s: &mut Script) {
    for _ in 0..60 {
        s.wait(1_000);
    }
    s.drained();
}

#[test]
fn host_silent_before_another_loss_is_reported_with_it() {
    let mut s = running();
    falls_silent(&mut s);
    let why =
        CloseReason::Carrier(rlaunch_plan::bootstrap::CarrierKind::Ssh, rlaunch_plan::bootstrap::CarrierEnd::Code(255));
    s.event(JobEvent::EdgeClosed { node: NODE, why }).wait(0);
    waits(&mut s);
    assert_eq!(s.cause(), Cause::Lost { node: NODE, lost: Lost::Agent(why) });
    assert_eq!(s.last_report().together, [NODE, OTHER], "it did not answer when its ranks were to be ended");
}

#[test]
fn a_host_that_fell_silent_before_another_and_is_lost_is_the_first() {
    let mut s = running();
    falls_silent(&mut s);
    expires(&mut s, NODE);
    expires(&mut s, OTHER);
    s.drained();
    assert_eq!(s.cause(), Cause::Lost { node: OTHER, lost: Lost::Expired });
    assert_eq!(s.last_report().together, []);
}

#[test]
fn host_silent_before_a_rank_failure_is_reported_with_it() {
    for silent in [true, false] {
        let mut s = running();
        if silent {
            falls_silent(&mut s);
        } else {
            on_message(&mut s, 12);
        }
        // As an agent says it that saw nothing happen since the start.
        let (proc, at) = (ProcId::new(0), HostTime((harness::START + s.now) * MS));
        let (status, usage) = (Status::Exited(1), Usage::default());
        let exited = Exited { proc, status, at, alive_at: HostTime(harness::START * MS), asked: false, usage };
        s.receive_from(NODE, &ToRoot::Exited(exited));
        exits(&mut s, 1, killed(Signal::TERM), at.0 / MS);
        done(&mut s, NODE, 0);
        waits(&mut s);
        assert_eq!(s.cause(), Cause::Rank { rank: Rank::new(0), status: Status::Exited(1) });
        assert_eq!(s.last_report().together, if silent { vec![OTHER] } else { vec![] });
    }
}

#[test]
fn malformed_message_is_not_our_fault() {
    for why in [CloseReason::Malformed, CloseReason::Slow] {
        let mut s = running();
        on_message(&mut s, 2);
        suspend(&mut s, 40_000);
        s.event(JobEvent::EdgeClosed { node: OTHER, why });
        assert!(s.log.contains(&What::HostLost { node: OTHER, lost: Lost::Agent(why) }));
    }
}

#[test]
fn messages_during_suspension_do_not_hide_it() {
    let mut s = running();
    on_message(&mut s, 2);
    // Its messages in that time are read first.
    let early = (harness::START + s.now + 29_000) * MS;
    suspend(&mut s, 40_000);
    s.event(JobEvent::Beat { node: OTHER, beat: Beat { own: early, echo: early } });
    expires(&mut s, OTHER);
    assert_eq!(sole_loss(s).0, Cause::Lost { node: OTHER, lost: Lost::Starved(Span::from_secs(40)) });
}

#[test]
fn a_lease_that_ends_while_we_look_is_not_our_doing() {
    let expired = Cause::Lost { node: OTHER, lost: Lost::Expired };
    // Its agent is suspended.
    let mut s = running();
    on_message(&mut s, 2);
    for _ in 0..30 {
        s.wait(1_000);
        answers(&mut s, NODE);
    }
    expires(&mut s, OTHER);
    assert_eq!(sole_loss(s), (expired.clone(), vec![]));
    // It has done so before we did.
    let mut s = running();
    on_message(&mut s, 2);
    for _ in 0..5 {
        s.wait(1_000);
        answers(&mut s, NODE);
    }
    suspend(&mut s, 26_000);
    expires(&mut s, OTHER);
    assert_eq!(sole_loss(s).0, expired);
    // The launcher was suspended, but not for so long.
    let mut s = running();
    on_message(&mut s, 2);
    suspend(&mut s, 20_000);
    expires(&mut s, OTHER);
    assert_eq!(sole_loss(s).0, expired);
    // The host has got heartbeats since.
    let mut s = running();
    on_message(&mut s, 2);
    suspend(&mut s, 32_000);
    on_message(&mut s, 3);
    expires(&mut s, OTHER);
    assert_eq!(sole_loss(s).0, expired);
}

/// Each of the two hosts sends its last heartbeat then, and the job ends.
fn lost_at(first: u64, second: u64) -> (Cause, Vec<NodeId>) {
    let mut s = running();
    s.wait(first);
    beat(&mut s, NODE);
    s.wait(second - first);
    beat(&mut s, OTHER);
    s.wait(50_000).drained();
    (s.cause(), s.last_report().together)
}

#[test]
fn hosts_that_fell_silent_within_the_time_of_a_few_beats_are_lost_together() {
    let cause = Cause::Lost { node: NODE, lost: Lost::NoHeartbeat };
    assert_eq!(lost_at(5_000, 5_900), (cause.clone(), vec![NODE, OTHER]), "the order is not known");
    assert_eq!(lost_at(5_000, 9_000), (cause, vec![]), "its last heartbeat came later");
}

fn silent(s: &Script) -> Vec<&JobNews> {
    let mut news = Vec::new();
    for what in &s.said {
        if let What::News(one @ (JobNews::HostsSilent { .. } | JobNews::HostAwaited { .. })) = what {
            news.push(one);
        }
    }
    news
}

#[test]
fn a_host_that_does_not_answer_is_named_when_it_is_all_that_is_waited_for() {
    let mut s = running();
    on_message(&mut s, 1);
    s.signal(Signal::INT);
    exits(&mut s, 0, killed(Signal::TERM), 6);
    exits(&mut s, 1, killed(Signal::TERM), 6);
    done(&mut s, NODE, 0);
    s.wait(2_999);
    assert_eq!(silent(&s), Vec::<&JobNews>::new(), "it may answer");
    s.wait(1);
    let within = Span::from_millis(33_300);
    let said = [JobNews::HostsSilent { nodes: vec![OTHER], within }];
    assert_eq!(silent(&s), said.iter().collect::<Vec<_>>(), "until its lease has surely ended");
    s.wait(33_299);
    assert_eq!((s.drains, silent(&s).len()), (0, 1), "once");
    s.wait(1);
    assert_eq!(s.drains, 1);
}

#[test]
fn agent_is_killed_after_the_grace() {
    let mut s = running();
    on_message(&mut s, 1);
    s.signal(Signal::INT);
    for _ in 0..5 {
        s.wait(1_000);
        answers(&mut s, NODE);
    }
    assert_eq!(silent(&s).len(), 0, "the others may still use their grace");
    s.wait(1_000);
    let said = [JobNews::HostsSilent { nodes: vec![OTHER], within: Span::from_millis(30_300) }];
    assert_eq!(silent(&s), said.iter().collect::<Vec<_>>());
}

#[test]
fn reported_host_is_not_reported_again() {
    let mut s = running();
    let why =
        CloseReason::Carrier(rlaunch_plan::bootstrap::CarrierKind::Ssh, rlaunch_plan::bootstrap::CarrierEnd::Code(255));
    s.event(JobEvent::EdgeClosed { node: OTHER, why }).wait(20_000);
    let said = [JobNews::HostAwaited { node: OTHER, within: Span::from_millis(36_300) }];
    assert_eq!(silent(&s)[..1], said.iter().collect::<Vec<_>>());
    let again = |news: &&&JobNews| matches!(news, JobNews::HostsSilent { nodes, .. } if *nodes != [NODE]);
    assert_eq!(silent(&s).iter().filter(again).count(), 0, "{:?}", silent(&s));
}

#[test]
fn no_agent_is_waited_for_while_job_runs() {
    let mut s = running();
    s.wait(20_000);
    assert_eq!(silent(&s).len(), 0);
}

#[test]
fn answering_hosts_are_not_reported() {
    let mut s = running();
    on_message(&mut s, 1);
    s.signal(Signal::INT);
    on_message(&mut s, 12);
    assert_eq!(silent(&s).len(), 0, "their ranks may take long to end");
}
