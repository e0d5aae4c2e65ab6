//! Signals of a scheduler to the processes of its step.

use super::*;
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_protocol::wire::beat::Beat;

const USR1: Signal = Signal::USR1;

/// A node in a step, whose ranks run.
fn in_step(count: u32) -> Rig {
    Rig::running_by(start().with(|settings| settings.hosts.scheduler = Some(Scheduler::Slurm)), count)
}

fn to(part: SignalledPart, sig: Signal) -> NodeEvent {
    NodeEvent::Signal { sig, to: part }
}

fn reports(sig: Signal, to_ranks: bool) -> NodeAction {
    says(ToRoot::HostSignal { sig, to_ranks })
}

use SignalledPart::{Agent, Guardian};

#[test]
fn a_signal_to_guardian_and_agent_was_sent_to_the_ranks_too() {
    for (first, second) in [(Guardian, Agent), (Agent, Guardian)] {
        for sig in [TERM, USR1, Signal::INT, HUP, Signal::QUIT] {
            let mut rig = in_step(2);
            assert_eq!(rig.receive(to(first, sig)), []);
            assert_eq!(rig.wait(40), []);
            assert_eq!(rig.receive(to(second, sig)), [reports(sig, true)], "no rank is signalled again");
            assert_eq!(rig.wait(90), []);
        }
    }
}

#[test]
fn a_signal_to_one_of_them_alone_has_reached_no_rank() {
    for part in [Guardian, Agent] {
        let mut rig = in_step(2);
        assert_eq!(rig.receive(to(part, USR1)), []);
        assert_eq!(rig.receive(to(part, USR1)), [], "it is one");
        assert_eq!(rig.wait(99), []);
        assert_eq!(rig.wait(1), [reports(USR1, false)]);
        assert_eq!(rig.root(ToNode::Signal { sig: USR1 }), [group(0, USR1), group(1, USR1)]);
        rig.wait(100);
        rig.receive(to(part, USR1));
        assert_eq!(rig.wait(100), [reports(USR1, false)], "another one");
    }
}

/// Slurm signals each process, and a shell dies of it before the agent has looked.
#[test]
fn a_rank_that_the_schedulers_signal_kills_is_reported_after_it() {
    let mut rig = in_step(2);
    assert_eq!(rig.exited(0, by(TERM)), [], "it may be the scheduler's");
    let said = rig.receive(to(Agent, TERM));
    assert_eq!(said[0], reports(TERM, true));
    assert!(matches!(said[1], NodeAction::ToRoot(ToRoot::Exited(_))), "{said:?}");
    assert_eq!(rig.receive(to(Guardian, TERM)), [], "the same one");
    let said = rig.exited(1, by(TERM));
    assert!(matches!(said[0], NodeAction::ToRoot(ToRoot::Exited(_))), "{said:?}");
}

#[test]
fn a_rank_that_another_process_kills_is_reported_soon() {
    let mut rig = in_step(1);
    assert_eq!(rig.exited(0, by(TERM)), []);
    assert_eq!(rig.wait(99), []);
    assert!(matches!(rig.wait(1)[0], NodeAction::ToRoot(ToRoot::Exited(_))));
    let mut rig = in_step(1);
    assert!(matches!(rig.exited(0, by(Signal::SEGV))[0], NodeAction::ToRoot(ToRoot::Exited(_))), "at once");
    let mut rig = in_step(1);
    rig.root(ToNode::End { sig: TERM, grace: Span::from_secs(5) });
    assert!(matches!(rig.exited(0, by(TERM))[0], NodeAction::ToRoot(ToRoot::Exited(_))), "we have sent it");
}

#[test]
fn ranks_get_the_last_signal_once() {
    let ends = || ToNode::SchedulerEnds { sig: TERM, grace: Span::from_secs(5) };
    // The scheduler has sent it here.
    let mut rig = in_step(1);
    rig.wait(50);
    rig.receive(to(Guardian, TERM));
    rig.receive(to(Agent, TERM));
    assert_eq!(rig.root(ends()), []);
    assert_eq!(rig.wait(4_999), []);
    assert_eq!(rig.wait(1)[..2], [says(ToRoot::Killing), group(0, KILL)], "the grace began with the order");
    // The scheduler's signal comes after the order of the launcher.
    let mut rig = in_step(1);
    assert_eq!(rig.root(ends()), []);
    rig.receive(to(Agent, TERM));
    assert_eq!(rig.receive(to(Guardian, TERM)), [reports(TERM, true)]);
    assert_eq!(rig.wait(400), []);
    // It does not come.
    let mut rig = in_step(1);
    rig.root(ends());
    assert_eq!(rig.wait(299), []);
    assert_eq!(rig.wait(1), [group(0, TERM)]);
}

#[test]
fn sigterm_outside_a_step_is_a_warning_that_is_reported_once() {
    for first in [Guardian, Agent] {
        let mut rig = Rig::running(1);
        for event in [to(Guardian, USR1), to(Agent, USR1)] {
            assert_eq!(rig.receive(event), []);
        }
        assert_eq!(rig.receive(to(first, TERM)), [says(ToRoot::Warned(WarningSource::Signal))]);
        for event in [to(Guardian, TERM), to(Agent, TERM), NodeEvent::Warned(WarningSource::Preempted)] {
            assert_eq!(rig.receive(event), []);
        }
        assert!(rig.receive(to(first, Signal::INT)).contains(&group(0, KILL)), "another signal ends the agent at once");
    }
    let mut rig = in_step(1);
    assert_eq!(rig.receive(to(Agent, HUP)), []);
    assert_eq!(rig.wait(100), [reports(HUP, false)], "in a step it is for the ranks");
}

/// systemd ends a session of sshd as a whole: SIGTERM to all, then SIGHUP, and the connection is gone.
#[test]
fn ranks_of_a_host_that_shuts_down_have_the_grace_of_the_warning_without_a_connection() {
    let grace = Span::from_secs(3);
    let remote = |lease| {
        Rig::running_by(
            Start { has_lease: true, ..start() }.with(|settings| {
                settings.hosts.lease = lease;
                settings.warnings.grace = grace;
            }),
            2,
        )
    };
    let kills = |said: &[NodeAction]| said.contains(&group(1, KILL));
    let ignored = |rig: &mut Rig, said: &[NodeAction]| {
        assert!(said.contains(&NodeAction::Lease(LeaseAction::Spare(rig.now + grace))), "{said:?}");
        for event in [to(Guardian, TERM), to(Agent, HUP), to(Guardian, HUP), NodeEvent::EdgeLost] {
            assert!(!kills(&rig.receive(event)));
        }
    };
    let mut rig = remote(Span::from_secs(36));
    let said = rig.receive(to(Agent, TERM));
    ignored(&mut rig, &said);
    assert!(!kills(&rig.wait(2_999)));
    assert!(kills(&rig.wait(1)), "the time has expired");
    // All ranks have ended: nothing else is waited for.
    let mut rig = remote(Span::from_secs(36));
    let said = rig.receive(to(Agent, TERM));
    ignored(&mut rig, &said);
    rig.exited(0, exit(0));
    let said = rig.exited(1, exit(0));
    assert!(said.contains(&NodeAction::Sweep), "{said:?}");
    // The launcher may start other ranks when the lease has expired.
    let mut rig = remote(Span::from_secs(1));
    let said = rig.receive(to(Agent, TERM));
    ignored(&mut rig, &said);
    assert!(kills(&rig.wait(1_000)), "the lease has expired");
    // The launcher's own host: its end is known, and not that of a connection.
    let mut rig = Rig::running(2);
    rig.receive(to(Agent, TERM));
    assert!(kills(&rig.receive(NodeEvent::EdgeLost)));
}

/// Slurm may end a job that has just begun.
#[test]
fn a_signal_before_the_launchers_first_message_counts_when_that_comes() {
    let mut rig = Rig::new();
    assert_eq!(rig.receive(to(Guardian, TERM)), []);
    assert_eq!(rig.wait(200), []);
    rig.root(ToNode::Start(start().with(|settings| settings.hosts.scheduler = Some(Scheduler::Slurm))));
    assert!(rig.wait(100).contains(&reports(TERM, false)));
    let mut rig = Rig::new();
    assert_eq!(rig.receive(to(Agent, TERM)), []);
    let said = rig.root(ToNode::Start(start()));
    let warned = says(ToRoot::Warned(WarningSource::Signal));
    assert!(said.contains(&warned), "outside a step the host shuts down: {said:?}");
}

/// The scheduler has sent its signal to the guardian alone: it sends no other.
#[test]
fn ranks_get_last_signal_at_once_when_this_host_has_reported_it() {
    let mut rig = in_step(1);
    rig.receive(to(Guardian, TERM));
    assert_eq!(rig.wait(100), [reports(TERM, false)]);
    rig.root(ToNode::SchedulerEnds { sig: TERM, grace: Span::from_secs(5) });
    assert_eq!(rig.wait(0), [group(0, TERM)]);
}

#[test]
fn ranks_that_start_about_the_schedulers_last_signal_get_it_once() {
    let ends = || ToNode::SchedulerEnds { sig: TERM, grace: Span::from_secs(5) };
    let starting = || {
        let mut rig = Rig::new();
        rig.root(ToNode::Start(start().with(|settings| settings.hosts.scheduler = Some(Scheduler::Slurm))));
        rig.receive(NodeEvent::SandboxReady(sandbox()));
        rig.root(app_of(0, &base()));
        rig.root(spawn(0..2, true));
        rig.spawned(0);
        rig
    };
    let signal = |said: Vec<NodeAction>| -> Vec<NodeAction> {
        said.into_iter().filter(|action| matches!(action, NodeAction::Signal { .. })).collect()
    };
    // The second one starts after the scheduler has signalled the first.
    let mut rig = starting();
    rig.wait(50);
    rig.receive(to(Guardian, TERM));
    rig.receive(to(Agent, TERM));
    rig.wait(1);
    rig.receive(NodeEvent::Spawned { proc: ProcId::new(1), pid: 1, at: at(1051) });
    rig.root(ends());
    assert_eq!(rig.wait(0), [group(1, TERM)]);
    // The rank starts after the order, and the scheduler signals nothing here.
    let mut rig = starting();
    rig.root(ends());
    let said = rig.receive(NodeEvent::Spawned { proc: ProcId::new(1), pid: 1, at: at(1000) });
    assert_eq!(signal(said), [group(1, TERM)]);
    assert_eq!(signal(rig.wait(300)), [group(0, TERM)]);
}

/// The scheduler's announcement was followed by no stop: the lease is the usual one again.
#[test]
fn lease_is_the_usual_one_when_launcher_answers_after_announced_suspension() {
    let lease = Span::from_secs(8);
    let mut rig = Rig::running_by(
        Start { has_lease: true, ..start() }.with(|settings| {
            settings.hosts.scheduler = Some(Scheduler::Slurm);
            settings.hosts.lease = lease;
        }),
        1,
    );
    let leases = |said: Vec<NodeAction>| -> Vec<Mono> {
        said.into_iter()
            .filter_map(
                |action| if let NodeAction::Lease(LeaseAction::Until(until)) = action { Some(until) } else { None },
            )
            .collect()
    };
    let limit = Span::from_secs(3_600);
    let until = rig.now + limit;
    assert_eq!(leases(rig.root(ToNode::HoldLease(limit))), [until]);
    let beat = |now: Mono| NodeEvent::Beat(Beat { own: 1, echo: now.nanos() });
    let now = rig.now;
    assert!(leases(rig.receive(beat(now))).is_empty(), "it may be stopped yet");
    rig.wait(6_000);
    let now = rig.now;
    assert_eq!(leases(rig.receive(beat(now))), [now + lease]);
}

#[test]
fn command_that_warns_runs_from_the_start_on() {
    let watch = NodeAction::WatchPreemption { command: "test -e /run/preempted".into() };
    let actions = |probe: &str| {
        let preempt_probe = Box::new(OsBytes::from(probe));
        Rig::new().root(ToNode::Start(start().with(|settings| settings.warnings.probe = *preempt_probe)))
    };
    assert!(actions("test -e /run/preempted").contains(&watch));
    assert!(!actions("").iter().any(|action| matches!(action, NodeAction::WatchPreemption { .. })));
}

/// A node of a step over a network, whose ranks run.
fn remote_in_step(grace: Span) -> Rig {
    Rig::running_by(
        Start { has_lease: true, ..start() }.with(|settings| {
            settings.hosts.scheduler = Some(Scheduler::Slurm);
            settings.hosts.lease = Span::from_secs(36);
            settings.ending.grace = grace;
        }),
        2,
    )
}

fn count(said: &[NodeAction], of: &NodeAction) -> usize {
    said.iter().filter(|action| *action == of).count()
}

/// Under proctrack/cgroup a batch shell that dies of the scheduler's SIGTERM takes the launcher along, before or after the agents get it.
#[test]
fn ranks_get_the_schedulers_signal_once_and_the_grace_when_the_launcher_is_gone() {
    let grace = Span::from_secs(4);
    for (before, between, parts) in
        [(true, 0, 1), (true, 250, 1), (true, 900, 1), (false, 0, 1), (false, 500, 1), (false, 999, 1), (true, 50, 2)]
    {
        let mut rig = remote_in_step(grace);
        let mut said = Vec::new();
        let mut events = vec![NodeEvent::EdgeLost, to(Guardian, TERM)];
        if before {
            events.reverse();
        }
        for (event, pause) in events.into_iter().zip([between, 0]) {
            said.extend(rig.receive(event));
            said.extend(rig.wait(pause));
        }
        if parts == 2 {
            said.extend(rig.receive(to(Agent, TERM)));
        }
        // The agent gets both events: the guardian must not end the ranks before.
        assert!(
            said.iter()
                .any(|action| matches!(action, NodeAction::Lease(LeaseAction::Spare(at)) if *at >= rig.now + grace)),
            "{said:?}"
        );
        said.extend(rig.wait(100));
        said.extend(rig.wait(0));
        for proc in 0..2 {
            let sent = count(&said, &group(proc, TERM));
            assert_eq!(
                sent,
                usize::from(parts == 1),
                "{before} {between}: the scheduler signals all processes or one: {said:?}"
            );
            assert_eq!(count(&said, &group(proc, KILL)), 0, "{before} {between}");
        }
        let said = rig.wait(3_889);
        assert_eq!(count(&said, &group(0, TERM)) + count(&said, &group(0, KILL)), 0, "{said:?}");
        assert_eq!(count(&rig.wait(111), &group(0, KILL)), 1, "the grace has expired");
    }
}

#[test]
fn host_is_done_when_all_ranks_have_saved_after_the_loss_of_the_launcher() {
    let mut rig = remote_in_step(Span::from_secs(20));
    rig.receive(to(Guardian, TERM));
    rig.receive(NodeEvent::EdgeLost);
    rig.wait(100);
    rig.exited(0, exit(0));
    let said = rig.exited(1, exit(0));
    assert!(said.contains(&NodeAction::Sweep), "{said:?}");
}

#[test]
fn ranks_are_killed_soon_when_the_launcher_is_gone_and_the_scheduler_ends_nothing() {
    let mut rig = remote_in_step(Span::from_secs(20));
    assert_eq!(count(&rig.receive(NodeEvent::EdgeLost), &group(0, KILL)), 0);
    assert_eq!(rig.wait(999), []);
    assert_eq!(count(&rig.wait(1), &group(0, KILL)), 1);
    // No rank runs.
    let mut rig = Rig::new();
    let start = Start { has_lease: true, ..start() }.with(|settings| {
        settings.hosts.scheduler = Some(Scheduler::Slurm);
        settings.hosts.lease = Span::from_secs(36);
    });
    let hold = NodeAction::Lease(LeaseAction::HoldAfterCut(Span::from_millis(1_300)));
    assert!(rig.root(ToNode::Start(start)).contains(&hold), "the guardian waits as well");
    rig.receive(NodeEvent::SandboxReady(sandbox()));
    assert!(rig.receive(NodeEvent::EdgeLost).contains(&NodeAction::Sweep));
}

/// A launcher without its two srun processes is there as far as the agent knows.
#[test]
fn ranks_get_the_schedulers_signal_when_the_launcher_does_not_answer() {
    let mut rig = remote_in_step(Span::from_secs(4));
    rig.receive(to(Guardian, TERM));
    let said = rig.wait(999);
    assert_eq!((count(&said, &reports(TERM, false)), count(&said, &group(0, TERM))), (1, 0));
    let said = rig.wait(1);
    assert_eq!(count(&said, &group(0, TERM)) + count(&rig.wait(0), &group(0, TERM)), 1);
    // The order comes late: it is no second signal, and no longer grace.
    let said = rig.root(ToNode::SchedulerEnds { sig: TERM, grace: Span::from_secs(9) });
    assert_eq!(count(&said, &group(0, TERM)) + count(&rig.wait(400), &group(0, TERM)), 0);
    assert_eq!(count(&rig.wait(3_600), &group(0, KILL)), 1);
}

/// The launcher was killed after its order.
#[test]
fn grace_of_the_launchers_order_ends_when_it_would_have_with_the_launcher() {
    let mut rig = remote_in_step(Span::from_secs(4));
    rig.receive(to(Guardian, TERM));
    rig.wait(100);
    rig.root(ToNode::SchedulerEnds { sig: TERM, grace: Span::from_secs(3) });
    rig.wait(10);
    let said = rig.receive(NodeEvent::EdgeLost);
    assert_eq!(count(&said, &group(0, KILL)), 0, "{said:?}");
    assert_eq!(count(&rig.wait(2_989), &group(0, KILL)), 0);
    assert_eq!(count(&rig.wait(1), &group(0, KILL)), 1);
}

/// `--grace 20s` where Slurm kills 5 s after its SIGTERM.
#[test]
fn ranks_without_a_launcher_are_killed_before_the_scheduler_kills() {
    let start = || {
        Start { has_lease: true, scheduler_grace: Some(Span::from_secs(3)), ..start() }.with(|settings| {
            settings.hosts.scheduler = Some(Scheduler::Slurm);
            settings.hosts.lease = Span::from_secs(36);
            settings.ending.grace = Span::from_secs(20);
        })
    };
    // The launcher is gone, or does not answer.
    for is_cut in [true, false] {
        let mut rig = Rig::running_by(start(), 2);
        rig.receive(to(Guardian, TERM));
        if is_cut {
            let said = rig.receive(NodeEvent::EdgeLost);
            assert!(
                said.contains(&NodeAction::Lease(LeaseAction::Spare(rig.now + Span::from_millis(3_100)))),
                "{said:?}"
            );
        }
        assert_eq!(count(&rig.wait(2_999), &group(0, KILL)), 0, "{is_cut}");
        assert_eq!(count(&rig.wait(1), &group(0, KILL)), 1, "3 s after SIGTERM, {is_cut}");
    }
}
