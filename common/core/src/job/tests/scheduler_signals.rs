//! The effects of signals that a scheduler sends to its step.

use super::*;
use crate::job::tests::hosts::{hello, two};
use rlaunch_base::capped::Capped;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::bootstrap::{CarrierEnd, CarrierEvent, CarrierKind, CarrierNews};
use rlaunch_protocol::wire::beat::Beat;

/// A job of two hosts in a step.
fn in_step() -> Script {
    let mut s = Script::new(&two(false).with(|settings| {
        (settings.hosts.scheduler, settings.hosts.suspend_limit) = (Some(Scheduler::Slurm), Span::from_secs(3_600));
    }));
    for (node, at) in [(0, "10.0.0.1"), (1, "10.0.0.2")] {
        let node = NodeId::new(node);
        s.event(JobEvent::EdgeUp { node });
        s.receive_from(node, &hello(at, "10.0.0.9", 20_000)).receive_from(node, &ToRoot::Ready);
    }
    s.sent.clear();
    s
}

fn report_signal(s: &mut Script, node: u32, sig: Signal, to_ranks: bool) -> Vec<ToNode> {
    s.sent.clear();
    s.receive_from(NodeId::new(node), &ToRoot::HostSignal { sig, to_ranks });
    s.sent.clone()
}

#[test]
fn first_host_that_reports_the_end_begins_it_for_all_hosts() {
    let mut s = in_step();
    let ends = ToNode::SchedulerEnds { sig: Signal::TERM, grace: Span::from_secs(5) };
    assert_eq!(report_signal(&mut s, 1, Signal::TERM, true), [ends.clone(), ends]);
    let cause = Cause::Scheduler { scheduler: Scheduler::Slurm, sig: Signal::TERM };
    let is_ending = |what: &What| matches!(what, What::Ending { cause: own, .. } if *own == cause);
    assert!(s.log.iter().any(is_ending), "{:?}", s.log);
    assert_eq!(report_signal(&mut s, 0, Signal::TERM, true), []);
    assert_eq!(cause.exit(false), Ending::Signal(Signal::TERM));
}

#[test]
fn grace_ends_before_the_scheduler_kills() {
    let ends = |kill_wait: u64| {
        let mut s = in_step();
        s.event(JobEvent::Carrier(CarrierEvent::KillWait(Span::from_secs(kill_wait))));
        report_signal(&mut s, 1, Signal::TERM, true)
    };
    for (kill_wait, grace) in [(30, 5), (5, 3), (1, 0)] {
        let end = ToNode::SchedulerEnds { sig: Signal::TERM, grace: Span::from_secs(grace) };
        assert_eq!(ends(kill_wait), [end.clone(), end], "KillWait {kill_wait}");
    }
}

/// As in a batch script whose shell has become rlaunch: Slurm signals it before the step.
#[test]
fn scheduler_is_the_cause_when_rlaunch_itself_gets_sigterm_first() {
    let mut s = in_step();
    s.event(JobEvent::Carrier(CarrierEvent::KillWait(Span::from_secs(5)))).signal(Signal::TERM).wait(999);
    assert_eq!(s.sent, []);
    let end = ToNode::SchedulerEnds { sig: Signal::TERM, grace: Span::from_secs(3) };
    assert_eq!(report_signal(&mut s, 0, Signal::TERM, false), [end.clone(), end]);
    let is_ending = |what: &What| matches!(what, What::Ending { cause: Cause::Scheduler { .. }, .. });
    assert!(s.log.iter().any(is_ending), "{:?}", s.log);
    s.sent.clear();
    s.wait(2_000);
    assert_eq!(s.sent, [], "one end");
}

/// `kill` of rlaunch in an allocation.
#[test]
fn sigterm_of_the_user_has_the_whole_grace() {
    let end = |secs| ToNode::End { sig: Signal::TERM, grace: Span::from_secs(secs) };
    let mut s = in_step();
    s.event(JobEvent::Carrier(CarrierEvent::KillWait(Span::from_secs(5)))).signal(Signal::TERM).wait(1_000);
    assert_eq!(s.sent, [end(5), end(5)]);
    assert_eq!(s.ending_of(), (Signal::TERM, RanksState::Running));
    // The scheduler's comes later: the grace ends before it kills.
    let shorter = ToNode::SchedulerEnds { sig: Signal::TERM, grace: Span::from_secs(3) };
    assert_eq!(report_signal(&mut s, 0, Signal::TERM, false), [shorter.clone(), shorter]);
    // The user does not wait, or sends another signal.
    let mut s = in_step();
    s.signal(Signal::TERM).wait(100).signal(Signal::TERM);
    assert_eq!(s.sent, [end(5), end(5), ToNode::Kill, ToNode::Kill]);
    let mut s = in_step();
    s.signal(Signal::INT);
    let end = ToNode::End { sig: Signal::INT, grace: Span::from_secs(5) };
    assert_eq!(s.sent, [end.clone(), end]);
}

#[test]
fn scheduler_is_the_cause_when_it_kills_the_step_after_sigterm() {
    let mut s = in_step();
    s.signal(Signal::TERM);
    report_signal(&mut s, 0, Signal::TERM, true);
    for node in [0, 1].map(NodeId::new) {
        s.event(JobEvent::EdgeClosed { node, why: CloseReason::Eof });
    }
    s.wait(60_000).event(JobEvent::OutputDrained { lost: 0, broken: 0 });
    let is_by_scheduler = |what: &What| matches!(what, What::JobEnd { cause: Cause::Scheduler { .. }, exit, .. } if *exit == Ending::Signal(Signal::TERM));
    assert!(s.log.last().is_some_and(is_by_scheduler), "{:?}", s.log.last());
}

#[test]
fn another_signal_reaches_each_rank_once() {
    let usr1 = || ToNode::Signal { sig: Signal::USR1 };
    let mut s = in_step();
    assert_eq!(report_signal(&mut s, 0, Signal::USR1, false), [usr1(), usr1()], "to both hosts");
    assert_eq!(report_signal(&mut s, 1, Signal::USR1, false), [], "the same one");
    assert_eq!(report_signal(&mut s, 1, Signal::USR1, false), [usr1(), usr1()], "a second one");
    assert_eq!(report_signal(&mut s, 0, Signal::USR1, false), []);
    assert_eq!(report_signal(&mut s, 0, Signal::USR2, true), [], "ranks have it");
    let reports = s.log.iter().filter(|what| matches!(what, What::News(JobNews::SchedulerSignal { .. })));
    assert_eq!(reports.count(), 3);
}

#[test]
fn without_a_scheduler_such_a_word_means_nothing() {
    let mut s = Script::running(&spec(1));
    assert_eq!(report_signal(&mut s, 0, Signal::TERM, true), []);
}

/// A suspended host sends no heartbeat, for longer than a lease.
#[test]
fn suspended_host_is_lost_only_after_the_limit() {
    for is_resumed in [true, false] {
        let mut s = in_step();
        assert_eq!(report_signal(&mut s, 1, Signal::CONT, false), [], "without a suspension it means nothing");
        assert_eq!(report_signal(&mut s, 1, Signal::TSTP, false), [ToNode::HoldLease(Span::from_secs(3_600))]);
        assert_eq!(report_signal(&mut s, 0, Signal::TSTP, false), [ToNode::HoldLease(Span::from_secs(3_600))]);
        let is_lost = |s: &Script| s.log.iter().any(|what| matches!(what, What::HostLost { .. }));
        s.wait(3_000_000);
        assert!(!is_lost(&s));
        if is_resumed {
            report_signal(&mut s, 0, Signal::CONT, false);
            report_signal(&mut s, 1, Signal::CONT, false);
        }
        // The time of a lease, with a margin, is 36.3 s.
        let left = if is_resumed { 0 } else { 600_000 };
        s.wait(left + 36_000);
        assert!(!is_lost(&s));
        s.wait(1_000);
        assert!(is_lost(&s));
        let count = |own: Signal| {
            let is_own = |what: &&What| matches!(what, What::News(JobNews::SchedulerSignal { sig, .. }) if *sig == own);
            s.log.iter().filter(is_own).count()
        };
        assert_eq!((count(Signal::TSTP), count(Signal::CONT)), (1, usize::from(is_resumed)));
    }
}

/// A signal of the user's (`scancel --signal=TSTP`) stops nothing: the host runs, and can be lost as any other.
#[test]
fn host_that_answers_after_the_announcement_was_not_suspended() {
    let mut s = in_step();
    report_signal(&mut s, 0, Signal::TSTP, false);
    s.wait(6_000);
    for node in [0, 1].map(NodeId::new) {
        s.event(JobEvent::Beat { node, beat: Beat { own: 6_000, echo: 0 } });
    }
    let is_lost = |s: &Script| s.log.iter().any(|what| matches!(what, What::HostLost { .. }));
    s.wait(36_000);
    assert!(!is_lost(&s));
    s.wait(1_000);
    assert!(is_lost(&s), "the time of a lease after the last word, and not the limit of a suspension");
}

fn srun_ended(end: CarrierEnd) -> JobEvent {
    JobEvent::Carrier(CarrierEvent::News(CarrierNews::SrunEnded {
        nodes: [0, 1].map(NodeId::new).into(),
        end,
        words: "srun: error: n0: Killed".into(),
    }))
}

fn closed(node: u32) -> JobEvent {
    JobEvent::EdgeClosed { node: NodeId::new(node), why: CloseReason::Eof }
}

/// The cause of the end of the job, after the leases of lost hosts.
fn cause_after_leases(s: &mut Script) -> Cause {
    s.wait(60_000).event(JobEvent::OutputDrained { lost: 0, broken: 0 });
    match s.log.last() {
        Some(What::JobEnd { cause, .. }) => cause.clone(),
        other => panic!("{other:?}"),
    }
}

/// `kill -9` of srun, after which Slurm ends the step, and `scancel JOB.STEP`, after which srun ends.
#[test]
fn host_lost_within_5_s_of_the_end_of_srun_is_lost_for_that() {
    let killed = CarrierEnd::Signal(9);
    for (end, code) in [(killed, 125), (CarrierEnd::Code(1), 125), (CarrierEnd::Code(137), 137)] {
        let [ended, first, second] = [srun_ended(end), closed(1), closed(0)];
        for order in [
            [ended.clone(), first.clone(), second.clone()],
            [first.clone(), ended.clone(), second.clone()],
            [first, second, ended],
        ] {
            let mut s = in_step();
            let case = alloc::format!("{order:?}");
            for event in order {
                s.wait(2_000).event(event);
            }
            let lost = Lost::Agent(CloseReason::Carrier(CarrierKind::Srun, end));
            let cause = cause_after_leases(&mut s);
            assert!(matches!(cause, Cause::Lost { lost: own, .. } if own == lost), "{case}: {cause:?}");
            assert_eq!(s.finished, Some(Ending::Code(code)), "{case}");
            assert!(s.log.contains(&What::Together { nodes: [0, 1].map(NodeId::new).into() }), "{case}");
        }
    }
}

#[test]
fn host_lost_at_another_time_or_alone_is_not_lost_for_the_end_of_srun() {
    let ended = || srun_ended(CarrierEnd::Code(137));
    let done = || JobEvent::Message { node: NodeId::new(0), msg: ToRoot::Done { left: 0, named: Capped::default() } };
    let is_kill = |s: &mut Script, case| {
        let cause = cause_after_leases(s);
        assert!(matches!(cause, Cause::Lost { lost: Lost::Agent(CloseReason::Eof), .. }), "{case}: {cause:?}");
    };
    let mut s = in_step();
    s.event(ended()).wait(5_001).event(closed(0)).event(closed(1));
    is_kill(&mut s, "5 s after it");
    let mut s = in_step();
    s.event(closed(0)).event(closed(1)).wait(5_001).event(ended());
    is_kill(&mut s, "5 s before it");
    let mut s = in_step();
    s.event(closed(1)).event(done()).event(ended());
    is_kill(&mut s, "srun has ended after an agent that had done its work");
    let mut s = in_step();
    s.event(ended());
    assert!(!s.log.iter().any(|what| matches!(what, What::Ending { .. })), "the end of srun is no loss");
    assert!(
        s.log.iter().any(|what| matches!(what, What::News(JobNews::Carrier(CarrierNews::SrunEnded { .. })))),
        "{:?}",
        s.log
    );
}

/// Slurm kills the processes of a step one after the other.
#[test]
fn rank_killed_with_its_host_within_5_s_of_the_end_of_srun_is_not_the_cause() {
    for (wait, is_rank) in [(1_000, false), (5_001, true)] {
        let mut s = in_step();
        s.wait(100);
        let now = s.now;
        s.exits(0, killed(Signal::KILL), (now, now)).wait(wait);
        s.event(closed(0)).event(closed(1)).event(srun_ended(CarrierEnd::Code(137)));
        assert_eq!(matches!(cause_after_leases(&mut s), Cause::Rank { .. }), is_rank, "{wait}");
        assert_eq!(s.finished, Some(Ending::Code(137)));
    }
}
