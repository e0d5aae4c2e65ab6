//! The effects of signals that a scheduler sends to its step.

use super::*;
use crate::allocation::Scheduler;
use crate::bootstrap::srun_messages::StepEndReason;
use crate::bootstrap::{CarrierEnd, CarrierKind};
use crate::job::tests::hosts::{done, hello, two};
use crate::wire::beat::Beat;
use crate::wire::capped::Capped;

/// A job of two hosts in a step.
fn in_step() -> Script {
    let mut s = Script::new(&two(false).with(|settings| {
        (settings.hosts.scheduler, settings.hosts.suspend_limit) = (Some(Scheduler::Slurm), Span::from_secs(3_600));
    }));
    for (node, at) in [(0, "10.0.0.1"), (1, "10.0.0.2")] {
        let node = NodeId::new(node);
        s.event(JobEvent::EdgeUp { node });
        s.hears_of(node, &hello(at, "10.0.0.9", 20_000)).hears_of(node, &ToRoot::Ready);
    }
    s.sent.clear();
    s
}

fn hears(s: &mut Script, node: u32, sig: Signal, to_ranks: bool) -> Vec<ToNode> {
    s.sent.clear();
    s.hears_of(NodeId::new(node), &ToRoot::HostSignal { sig, to_ranks });
    s.sent.clone()
}

#[test]
fn the_first_host_that_hears_of_the_end_begins_it_for_all() {
    let mut s = in_step();
    let ends = ToNode::SchedulerEnds { sig: Signal::TERM, grace: Span::from_secs(5) };
    assert_eq!(hears(&mut s, 1, Signal::TERM, true), [ends.clone(), ends]);
    let cause = Cause::Scheduler { scheduler: Scheduler::Slurm, sig: Signal::TERM, why: None };
    let is_ending = |what: &What| matches!(what, What::Ending { cause: own, .. } if *own == cause);
    assert!(s.log.iter().any(is_ending), "{:?}", s.log);
    assert_eq!(hears(&mut s, 0, Signal::TERM, true), []);
    assert_eq!(cause.exit(false), Ending::Signal(Signal::TERM));
}

#[test]
fn grace_ends_before_the_scheduler_kills() {
    let ends = |kill_wait: u64| {
        let mut s = in_step();
        s.event(JobEvent::KillWait(Span::from_secs(kill_wait)));
        hears(&mut s, 1, Signal::TERM, true)
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
    s.event(JobEvent::KillWait(Span::from_secs(5))).signal(Signal::TERM).wait(999);
    assert_eq!(s.sent, []);
    let end = ToNode::SchedulerEnds { sig: Signal::TERM, grace: Span::from_secs(3) };
    assert_eq!(hears(&mut s, 0, Signal::TERM, false), [end.clone(), end]);
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
    s.event(JobEvent::KillWait(Span::from_secs(5))).signal(Signal::TERM).wait(1_000);
    assert_eq!(s.sent, [end(5), end(5)]);
    assert_eq!(s.ending_of(), (Signal::TERM, RanksState::Running));
    // The scheduler's comes later: the grace ends before it kills.
    let shorter = ToNode::SchedulerEnds { sig: Signal::TERM, grace: Span::from_secs(3) };
    assert_eq!(hears(&mut s, 0, Signal::TERM, false), [shorter.clone(), shorter]);
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
    hears(&mut s, 0, Signal::TERM, true);
    s.event(JobEvent::StepCancelled { nodes: [0, 1].map(NodeId::new).into(), why: StepEndReason::Cancelled });
    for node in [0, 1].map(NodeId::new) {
        s.event(JobEvent::EdgeClosed { node, why: CloseReason::Eof });
    }
    s.event(JobEvent::OutputDrained { lost: 0, broken: 0 });
    let is_by_scheduler = |what: &What| matches!(what, What::JobEnd { cause: Cause::Scheduler { .. }, exit, .. } if *exit == Ending::Signal(Signal::TERM));
    assert!(s.log.last().is_some_and(is_by_scheduler), "{:?}", s.log.last());
}

/// srun prints the reason at about the time of the signal. The report waits for it after the ranks have ended, and they do not.
#[test]
fn reason_that_srun_prints_is_a_part_of_the_cause() {
    let requeue = || JobEvent::StepCancelled { nodes: [0, 1].map(NodeId::new).into(), why: StepEndReason::Requeue };
    let cause = |s: &Script| match s.log.last() {
        Some(What::JobEnd { cause: Cause::Scheduler { sig: Signal::TERM, why, .. }, .. }) => Some(*why),
        _ => None,
    };
    for (is_first, late) in [(true, 0), (false, 0), (false, 1_500), (false, 2_500)] {
        let mut s = in_step();
        if is_first {
            s.event(requeue());
        }
        hears(&mut s, 0, Signal::TERM, true);
        for node in [0, 1] {
            done(&mut s, NodeId::new(node), 0);
        }
        s.event(JobEvent::OutputDrained { lost: 0, broken: 0 });
        assert_eq!(s.finished.is_some(), is_first, "{late}");
        s.wait(late);
        if !is_first {
            s.event(requeue());
        }
        assert_eq!(cause(&s), Some((late < 2_000).then_some(StepEndReason::Requeue)), "{late}: {:?}", s.log.last());
    }
}

#[test]
fn another_signal_reaches_each_rank_once() {
    let usr1 = || ToNode::Signal { sig: Signal::USR1 };
    let mut s = in_step();
    assert_eq!(hears(&mut s, 0, Signal::USR1, false), [usr1(), usr1()], "to both hosts");
    assert_eq!(hears(&mut s, 1, Signal::USR1, false), [], "the same one");
    assert_eq!(hears(&mut s, 1, Signal::USR1, false), [usr1(), usr1()], "a second one");
    assert_eq!(hears(&mut s, 0, Signal::USR1, false), []);
    assert_eq!(hears(&mut s, 0, Signal::USR2, true), [], "ranks have it");
    let told = s.log.iter().filter(|what| matches!(what, What::News(JobNews::SchedulerSignal { .. })));
    assert_eq!(told.count(), 3);
}

#[test]
fn without_a_scheduler_such_a_word_means_nothing() {
    let mut s = Script::running(&spec(1));
    assert_eq!(hears(&mut s, 0, Signal::TERM, true), []);
}

/// A suspended host sends no heartbeat, for longer than a lease.
#[test]
fn suspended_host_is_lost_only_after_the_limit() {
    for is_resumed in [true, false] {
        let mut s = in_step();
        assert_eq!(hears(&mut s, 1, Signal::CONT, false), [], "without a suspension it means nothing");
        assert_eq!(hears(&mut s, 1, Signal::TSTP, false), [ToNode::HoldLease(Span::from_secs(3_600))]);
        assert_eq!(hears(&mut s, 0, Signal::TSTP, false), [ToNode::HoldLease(Span::from_secs(3_600))]);
        let is_lost = |s: &Script| s.log.iter().any(|what| matches!(what, What::HostLost { .. }));
        s.wait(3_000_000);
        assert!(!is_lost(&s));
        if is_resumed {
            hears(&mut s, 0, Signal::CONT, false);
            hears(&mut s, 1, Signal::CONT, false);
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
fn host_that_is_heard_after_the_announcement_was_not_suspended() {
    let mut s = in_step();
    hears(&mut s, 0, Signal::TSTP, false);
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

/// As `scancel JOB.STEP`: SIGKILL to all processes of the step, and a line of srun about it.
#[test]
fn job_whose_step_was_killed_ends_at_once_for_that() {
    let cancelled = || JobEvent::StepCancelled { nodes: [0, 1].map(NodeId::new).into(), why: StepEndReason::Cancelled };
    let closed = |node| JobEvent::EdgeClosed { node: NodeId::new(node), why: CloseReason::Eof };
    let cause =
        Cause::Scheduler { scheduler: Scheduler::Slurm, sig: Signal::KILL, why: Some(StepEndReason::Cancelled) };
    for is_line_first in [true, false] {
        let mut s = in_step();
        if is_line_first {
            s.event(cancelled());
            assert!(!s.log.iter().any(|what| matches!(what, What::Ending { .. })), "agents that were warned go on");
        }
        s.event(closed(0)).event(closed(1));
        if !is_line_first {
            s.event(cancelled());
        }
        s.event(JobEvent::OutputDrained { lost: 0, broken: 0 });
        let end = s
            .log
            .iter()
            .find_map(|what| if let What::JobEnd { cause, .. } = what { Some(cause.clone()) } else { None });
        assert_eq!((end, s.finished), (Some(cause.clone()), Some(Ending::Code(137))), "{:?}", s.log);
    }
    // All was counted before srun prints the line.
    let mut s = in_step();
    let end = GuardianEnd::Record { left: 0, named: vec![] };
    s.event(JobEvent::GuardianEnded { node: NodeId::new(0), end }).event(closed(0));
    done(&mut s, NodeId::new(1), 0);
    s.event(JobEvent::OutputDrained { lost: 0, broken: 0 }).wait(1_000);
    assert_eq!(s.finished, None, "the line may come");
    s.event(cancelled());
    assert_eq!(s.finished, Some(Ending::Code(137)), "{:?}", s.log.last());
    // The lease of a host was over before.
    let mut s = in_step();
    let end = GuardianEnd::Expired { left: 0, named: vec![] };
    s.event(JobEvent::GuardianEnded { node: NodeId::new(0), end }).event(closed(0));
    s.event(cancelled()).event(closed(1)).event(JobEvent::OutputDrained { lost: 0, broken: 0 });
    assert!(matches!(s.log.last(), Some(What::JobEnd { cause: Cause::Lost { .. }, .. })), "{:?}", s.log.last());
    // A host that was lost long before.
    let mut s = in_step();
    s.event(closed(0)).wait(3_000);
    s.event(cancelled()).event(closed(1));
    assert_eq!(s.finished, None, "its lease is waited for");
}

/// As `kill -9` of srun, whose step Slurm then ends.
#[test]
fn agents_lost_soon_after_srun_was_killed_are_lost_for_that_and_no_lease_is_waited_for() {
    let kind = CarrierKind::Srun;
    let ended = |end| JobEvent::StarterEnded { nodes: [0, 1].map(NodeId::new).into(), kind, end };
    let closed = |node| JobEvent::EdgeClosed { node: NodeId::new(node), why: CloseReason::Eof };
    let is_awaited = |s: &Script| s.log.iter().any(|what| matches!(what, What::News(JobNews::HostAwaited { .. })));
    for end in [CarrierEnd::Signal(9), CarrierEnd::Code(1)] {
        let mut s = in_step();
        s.event(ended(end)).wait(1_900);
        assert!(!s.log.iter().any(|what| matches!(what, What::Ending { .. })), "the end of srun is no loss");
        s.event(closed(1)).wait(100);
        assert_eq!(s.finished, None, "the other agent lives");
        s.event(closed(0)).event(JobEvent::OutputDrained { lost: 0, broken: 0 });
        let lost = Lost::Agent(CloseReason::Carrier(kind, end));
        let is_cause =
            |what: &What| matches!(what, What::JobEnd { cause: Cause::Lost { lost: own, .. }, .. } if *own == lost);
        assert!(s.log.last().is_some_and(is_cause), "{:?}", s.log.last());
        assert_eq!((s.finished, is_awaited(&s)), (Some(Ending::Code(125)), false));
    }
}

/// Slurm has ended the step before the end of srun is heard.
#[test]
fn agents_lost_shortly_before_it_is_heard_that_srun_was_killed_are_lost_for_that() {
    let (kind, end) = (CarrierKind::Srun, CarrierEnd::Signal(9));
    let all = || [0, 1].map(NodeId::new);
    let ended = || JobEvent::StarterEnded { nodes: all().into(), kind, end };
    let closed = |node| JobEvent::EdgeClosed { node: NodeId::new(node), why: CloseReason::Eof };
    let finished = JobEvent::Message { node: NodeId::new(0), msg: ToRoot::Done { left: 0, named: Capped::default() } };
    let drained = || JobEvent::OutputDrained { lost: 0, broken: 0 };
    let record = GuardianEnd::Record { left: 0, named: vec![] };
    let counted = JobEvent::GuardianEnded { node: NodeId::new(1), end: record };
    let orders = [
        vec![closed(1), closed(0), ended()],
        vec![closed(1), ended(), closed(0)],
        // The other host ends its ranks in good order, for the loss of the first.
        vec![closed(1), finished.clone(), ended()],
        vec![closed(1), finished.clone(), closed(0), ended()],
        vec![closed(1), ended(), finished.clone()],
        // The guardian has ended and counted all before.
        vec![counted.clone(), closed(1), finished.clone(), drained(), ended()],
    ];
    for events in orders {
        let mut s = in_step();
        let case = alloc::format!("{events:?}");
        for event in events {
            s.wait(450).event(event);
        }
        s.event(JobEvent::OutputDrained { lost: 0, broken: 0 });
        assert_eq!(s.finished, Some(Ending::Code(125)), "no lease is waited for: {case}");
        let lost = Lost::Agent(CloseReason::Carrier(kind, end));
        let is_cause =
            |what: &What| matches!(what, What::JobEnd { cause: Cause::Lost { lost: own, .. }, .. } if *own == lost);
        assert!(s.log.last().is_some_and(is_cause), "{case}: {:?}", s.log.last());
        assert!(s.log.contains(&What::Together { nodes: all().into() }), "{case}: {:?}", s.log);
    }
    // The guardian of the only host has counted.
    let mut one = two(false);
    one.placement.nodes.truncate(1);
    one.placement.ranks.remove(|rank| rank.get() > 1);
    let mut s = Script::new(&one.with(|settings| settings.hosts.scheduler = Some(Scheduler::Slurm)));
    let (node, end_of_guardian) = (NodeId::new(0), GuardianEnd::Record { left: 0, named: vec![] });
    s.event(JobEvent::EdgeUp { node }).hears_of(node, &hello("10.0.0.1", "10.0.0.9", 20_000));
    s.hears_of(node, &ToRoot::Ready).event(JobEvent::GuardianEnded { node, end: end_of_guardian });
    s.event(drained()).wait(1_000).event(JobEvent::StarterEnded { nodes: vec![node], kind, end });
    let is_cause = |what: &What| matches!(what, What::JobEnd { cause: Cause::Lost { lost, .. }, .. } if *lost == Lost::Agent(CloseReason::Carrier(kind, end)));
    assert!(s.log.last().is_some_and(is_cause), "{:?}", s.log.last());
    // No reason comes.
    let mut s = in_step();
    s.event(counted).event(closed(1)).event(finished.clone()).event(JobEvent::OutputDrained { lost: 0, broken: 0 });
    s.wait(1_999);
    assert_eq!(s.finished, None);
    s.wait(1);
    assert_eq!(s.finished, Some(Ending::Code(125)));
    // A host that was lost long before was lost for another reason, and a host that lives was not lost.
    for events in [vec![closed(1), finished], vec![closed(1)]] {
        let mut s = in_step();
        for event in events {
            s.event(event);
        }
        s.wait(2_001).event(ended());
        assert_eq!(s.finished, None, "its lease is waited for");
        s.wait(60_000).event(JobEvent::OutputDrained { lost: 0, broken: 0 });
        let is_cause = |what: &What| matches!(what, What::JobEnd { cause: Cause::Lost { lost, .. }, .. } if *lost == Lost::Agent(CloseReason::Eof));
        assert!(s.log.last().is_some_and(is_cause), "{:?}", s.log.last());
    }
}

/// Slurm kills the processes of a step one after the other. A rank that was killed before srun is the cause itself.
#[test]
fn rank_killed_with_the_step_of_a_killed_srun_is_not_the_cause() {
    let (kind, end) = (CarrierKind::Srun, CarrierEnd::Signal(9));
    let ended = || JobEvent::StarterEnded { nodes: [0, 1].map(NodeId::new).into(), kind, end };
    let closes = |s: &mut Script, why| {
        for node in [0, 1] {
            s.event(JobEvent::EdgeClosed { node: NodeId::new(node), why });
        }
    };
    let dies = |s: &mut Script| {
        let now = s.now;
        s.exits(0, killed(Signal::KILL), (now, now));
    };
    let is_rank = |s: &mut Script| {
        s.event(JobEvent::OutputDrained { lost: 0, broken: 0 });
        let Some(What::JobEnd { cause, .. }) = s.log.last() else { panic!("{:?}", s.log.last()) };
        let is_rank = matches!(cause, Cause::Rank { status, .. } if *status == killed(Signal::KILL));
        assert_eq!(s.finished, Some(Ending::Code(if is_rank { 137 } else { 125 })));
        is_rank
    };
    for (is_before, why) in [(false, CloseReason::Eof), (true, CloseReason::Eof), (false, CloseReason::Malformed)] {
        let mut s = in_step();
        s.wait(100);
        if is_before {
            dies(&mut s);
            s.wait(100).event(ended());
        } else {
            s.event(ended()).wait(100);
            dies(&mut s);
        }
        closes(&mut s, why);
        assert_eq!(is_rank(&mut s), is_before);
    }
    // The agents are gone before the end of srun is known.
    for (before, expected) in [(1_000, false), (2_000, true)] {
        let mut s = in_step();
        s.wait(100);
        dies(&mut s);
        s.wait(before);
        closes(&mut s, CloseReason::Eof);
        s.wait(1_000).event(ended());
        assert_eq!(is_rank(&mut s), expected, "{before}");
    }
}

/// The same, by `scancel -s KILL JOB.STEP`. The line of srun comes before the loss, or after it.
#[test]
fn rank_killed_with_a_cancelled_step_is_not_the_cause() {
    for (is_line_first, before, is_rank) in [(true, 100, false), (false, 100, false), (false, 2_100, true)] {
        let mut s = in_step();
        s.wait(100);
        let now = s.now;
        s.exits(0, killed(Signal::KILL), (now, now)).wait(before);
        let mut events =
            vec![JobEvent::StepCancelled { nodes: [0, 1].map(NodeId::new).into(), why: StepEndReason::Cancelled }];
        events.extend([0, 1].map(|node| JobEvent::EdgeClosed { node: NodeId::new(node), why: CloseReason::Eof }));
        events.rotate_left(usize::from(!is_line_first));
        for event in events {
            s.event(event);
        }
        s.event(JobEvent::OutputDrained { lost: 0, broken: 0 });
        let Some(What::JobEnd { cause, .. }) = s.log.last() else { panic!("{:?}", s.log.last()) };
        assert_eq!(matches!(cause, Cause::Rank { .. }), is_rank, "{cause:?}");
        assert!(is_rank || matches!(cause, Cause::Scheduler { .. }), "{cause:?}");
        assert_eq!(s.finished, Some(Ending::Code(137)));
    }
}

#[test]
fn agent_lost_long_after_the_end_of_srun_or_alone_has_the_time_of_its_lease() {
    let (kind, end) = (CarrierKind::Srun, CarrierEnd::Signal(9));
    let ended = || JobEvent::StarterEnded { nodes: [0, 1].map(NodeId::new).into(), kind, end };
    let closed = |node| JobEvent::EdgeClosed { node: NodeId::new(node), why: CloseReason::Eof };
    let awaited =
        |s: &Script| s.log.iter().filter(|what| matches!(what, What::News(JobNews::HostAwaited { .. }))).count();
    let mut s = in_step();
    s.event(ended()).wait(5_001);
    s.event(closed(0)).event(closed(1)).wait(1_999);
    assert_eq!(awaited(&s), 0, "words of the scheduler may come");
    s.wait(1);
    assert_eq!((s.finished, awaited(&s)), (None, 2));
    assert!(s.log.iter().any(|what| matches!(what, What::HostLost { lost: Lost::Agent(CloseReason::Eof), .. })));
    let mut s = in_step();
    s.event(ended()).event(closed(0)).wait(2_000);
    assert_eq!((s.finished, awaited(&s)), (None, 1), "one of the two");
}
