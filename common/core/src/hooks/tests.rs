//! A script of restarts and ends, on a clock that only the test moves.

use super::*;
use crate::events::{Cause, What};
use alloc::string::ToString as _;
use alloc::vec;
use rlaunch_base::exit::Ending;
use rlaunch_base::id::{AppIndex, LocalRank, NodeId, Rank, Round};
use rlaunch_base::rank_set::RankSet;
use rlaunch_base::signal::Signal;
use rlaunch_base::time::WallNs;
use rlaunch_plan::hostlist::Host;
use rlaunch_plan::place::{Node, Processes, RankPlacement, Worlds};
use rlaunch_protocol::rank_fault::{Fault, FaultKind};
use rlaunch_restart::RoundNote;

const KILLED: Status = Status::Signaled { sig: Signal::KILL, core: false };

fn at(ms: u64) -> Mono {
    Mono::from_nanos(ms * 1_000_000)
}

/// Three ranks, of which the last is on a host of its own.
fn hooks(on_restart: bool, on_exit: bool) -> Hooks {
    let node = |name| Node::of(Host::named(name), 2);
    let placed = |rank: u32| {
        let (node, local) = if rank < 2 { (0, rank) } else { (1, 0) };
        RankPlacement { node: NodeId::new(node), local_rank: LocalRank::new(local), app: AppIndex::new(0) }
    };
    let placement = Placement {
        nodes: vec![node("a"), node("b")],
        ranks: (0..3).map(placed).collect(),
        notes: vec![],
        processes: Processes::default(),
        order: vec![],
        worlds: Worlds::default(),
    };
    let wanted = Wanted {
        on_restart: on_restart.then(|| "r".into()),
        on_exit: on_exit.then(|| "e".into()),
        within: Span::from_secs(3),
    };
    Hooks::new(wanted, Arc::new(placement), vec!["one".into(), "two".into()])
}

fn record_event(what: What) -> HookEvent {
    let record = Record { t: Span::ZERO, wall: WallNs(0), generation: 1, round: Some(Round::new(4)), what };
    HookEvent::Record(Box::new(record))
}

fn round(round: u32, gone: &[u32], left: u32) -> HookEvent {
    let fault = |rank: &u32| Fault { initial: Rank::new(*rank), kind: FaultKind::Ended(KILLED), text: "why".into() };
    let note = RoundNote::Began {
        round: Round::new(round),
        faults: gone.iter().map(fault).collect(),
        world_size: left,
        active_world_size: left,
        discarded: RankSet::new(),
        reserve: RankSet::new(),
        phases: [Span::ZERO; 3],
    };
    record_event(What::Round { node: None, note: Box::new(note) })
}

fn end() -> HookEvent {
    let cause = Cause::Rank { rank: Rank::new(2), status: KILLED };
    record_event(What::JobEnd { cause, exit: Ending::Code(137), left: Some(0), launch: None, never_started: None })
}

fn drain(hooks: &mut Hooks) -> Vec<HookAction> {
    core::iter::from_fn(|| hooks.poll_action()).collect()
}

/// Returns the command that is started, by its variables.
fn started(hooks: &mut Hooks) -> Vec<(&'static str, String)> {
    let actions = drain(hooks);
    let [HookAction::Start { vars, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    vars.iter().map(|(name, value)| (*name, value.to_string())).collect()
}

fn value_of<'a>(vars: &'a [(&'static str, String)], name: &str) -> &'a str {
    vars.iter().find(|(own, _)| *own == name).map_or("unset", |(_, value)| value.as_str())
}

#[test]
fn restart_round_runs_a_command_and_first_round_does_not() {
    let mut hooks = hooks(true, false);
    hooks.handle(at(0), round(0, &[], 3));
    assert_eq!(drain(&mut hooks), [], "nothing has happened");
    hooks.handle(at(1), round(1, &[2, 0], 1));
    let vars = started(&mut hooks);
    for (name, value) in [
        ("RLAUNCH_HOOK", "restart"),
        ("RLAUNCH_HOOK_LEVEL", "round"),
        ("RLAUNCH_HOOK_GENERATION", "1"),
        ("RLAUNCH_HOOK_ROUND", "1"),
        ("RLAUNCH_HOOK_KIND", "ended"),
        ("RLAUNCH_HOOK_RANKS", "0,2"),
        ("RLAUNCH_HOOK_HOSTS", "two,one"),
        ("RLAUNCH_HOOK_TEXT", "why"),
        ("RLAUNCH_HOOK_WORLD_BEFORE", "3"),
        ("RLAUNCH_HOOK_WORLD", "1"),
        ("RLAUNCH_HOOK_SKIPPED", "0"),
    ] {
        assert_eq!(value_of(&vars, name), value, "{name}");
    }
}

#[test]
fn complaining_rank_is_not_named() {
    let mut hooks = hooks(true, false);
    let of = |rank, kind| Fault { initial: Rank::new(rank), kind, text: OsBytes::default() };
    let note = RoundNote::Began {
        round: Round::new(1),
        faults: vec![of(2, FaultKind::Ended(KILLED)), of(0, FaultKind::Exception)],
        world_size: 2,
        active_world_size: 2,
        discarded: RankSet::new(),
        reserve: RankSet::new(),
        phases: [Span::ZERO; 3],
    };
    hooks.handle(at(1), record_event(What::Round { node: None, note: Box::new(note) }));
    let vars = started(&mut hooks);
    assert_eq!((value_of(&vars, "RLAUNCH_HOOK_RANKS"), value_of(&vars, "RLAUNCH_HOOK_HOSTS")), ("2", "two"));
}

#[test]
fn every_hook_variable_is_registered() {
    let mut all = vec![];
    let mut hooks = hooks(true, true);
    hooks.handle(at(0), round(1, &[2], 2));
    all.extend(started(&mut hooks));
    hooks.handle(at(1), HookEvent::Ended(Status::Exited(0)));
    hooks.handle(at(1), end());
    let vars = started(&mut hooks);
    assert_eq!(value_of(&vars, "RLAUNCH_HOOK_EXIT_CODE"), "137");
    assert_eq!(value_of(&vars, "RLAUNCH_HOOK_HOSTS"), "two");
    all.extend(vars);
    let document = rlaunch_protocol::env::document();
    for (name, _) in &all {
        assert!(document.contains(&alloc::format!("| `{name}` | ")), "{name}");
    }
    let listed = document.matches("| for commands |").count();
    let names: alloc::collections::BTreeSet<_> = all.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed + 1, names.len(), "and RLAUNCH_JOB_ID, which ranks have too");
}

#[test]
fn restarts_wait_for_the_command_and_those_that_are_too_many_are_counted() {
    let mut hooks = hooks(true, false);
    for n in 1..=12 {
        hooks.handle(at(0), round(n, &[2], 2));
    }
    assert_eq!(value_of(&started(&mut hooks), "RLAUNCH_HOOK_ROUND"), "1", "one at a time");
    hooks.handle(at(1), HookEvent::Ended(Status::Exited(0)));
    let actions = drain(&mut hooks);
    assert!(matches!(actions[0], HookAction::Say(HookNote::Skipped(3))), "{actions:?}");
    let HookAction::Start { vars, .. } = &actions[1] else { panic!("{actions:?}") };
    assert!(vars.contains(&("RLAUNCH_HOOK_SKIPPED", "3".into())));
    for n in 3..=9 {
        hooks.handle(at(n), HookEvent::Ended(Status::Exited(0)));
        assert_eq!(value_of(&started(&mut hooks), "RLAUNCH_HOOK_ROUND"), n.to_string());
    }
    hooks.handle(at(20), HookEvent::Ended(Status::Exited(1)));
    assert_eq!(drain(&mut hooks), [HookAction::Say(HookNote::Failed(On::Restart, Status::Exited(1)))]);
}

/// Time passes in steps, as it does for a driver that is called when it asked for it.
fn pass(hooks: &mut Hooks, from: Mono, until: Mono) -> Vec<(u64, HookAction)> {
    let mut done = vec![];
    let mut now = from;
    while let Some(due) = hooks.poll_timeout().filter(|due| *due <= until) {
        now = now.max(due);
        hooks.handle_timeout(now);
        done.extend(drain(hooks).into_iter().map(|action| (now.nanos() / 1_000_000, action)));
    }
    done
}

#[test]
fn hook_is_terminated_then_killed_then_left() {
    let mut hooks = hooks(true, false);
    hooks.handle(at(0), round(1, &[2], 2));
    let _one = started(&mut hooks);
    let expected = [
        (3_000, HookAction::Say(HookNote::Late(On::Restart, Span::from_secs(3)))),
        (3_000, HookAction::End { hard: false }),
        (5_000, HookAction::End { hard: true }),
        (6_000, HookAction::Leave),
        (6_000, HookAction::Say(HookNote::Stuck(On::Restart))),
    ];
    assert_eq!(pass(&mut hooks, at(0), at(60_000)), expected);
    assert_eq!(hooks.poll_timeout(), None);
    hooks.handle(at(60_000), round(2, &[1], 1));
    assert_eq!(value_of(&started(&mut hooks), "RLAUNCH_HOOK_ROUND"), "2", "the next one is not held up for ever");
}

#[test]
fn at_the_end_what_waits_has_one_limit_together_and_the_last_one_its_own() {
    let mut hooks = hooks(true, true);
    hooks.handle(at(0), round(1, &[2], 2));
    hooks.handle(at(0), round(2, &[1], 1));
    let _first = started(&mut hooks);
    assert_eq!(pass(&mut hooks, at(0), at(1_000)), []);
    hooks.handle(at(1_000), end());
    assert!(!hooks.is_over());
    // It ignores SIGTERM.
    let done = pass(&mut hooks, at(1_000), at(5_000));
    assert_eq!(done.last().unwrap().1, HookAction::End { hard: true });
    hooks.handle(at(5_000), HookEvent::Ended(KILLED));
    let actions = drain(&mut hooks);
    assert!(matches!(actions[0], HookAction::Say(HookNote::Skipped(1))), "the limit has expired: {actions:?}");
    assert!(matches!(actions[1], HookAction::Start { on: On::Exit, .. }), "{actions:?}");
    hooks.handle(at(5_001), HookEvent::Ended(Status::Exited(0)));
    assert!(hooks.is_over());
}

#[test]
fn queued_hooks_are_dropped_before_the_last_one() {
    let mut hooks = hooks(true, true);
    hooks.handle(at(0), round(1, &[2], 2));
    hooks.handle(at(0), round(2, &[1], 1));
    let _first = started(&mut hooks);
    hooks.handle(at(1_000), end());
    hooks.handle(at(1_000), HookEvent::Ended(Status::Exited(0)));
    assert_eq!(value_of(&started(&mut hooks), "RLAUNCH_HOOK_ROUND"), "2");
    // It has what is left of the time since the end, and not a time of its own.
    hooks.handle_timeout(at(1_100));
    let done = pass(&mut hooks, at(1_100), at(5_000));
    assert_eq!(done.first(), Some(&(4_000, HookAction::Say(HookNote::Late(On::Restart, Span::from_secs(3))))));
    hooks.handle(at(5_000), HookEvent::Ended(KILLED));
    assert_eq!(value_of(&started(&mut hooks), "RLAUNCH_HOOK"), "exit");
}

#[test]
fn a_signal_after_the_end_waits_for_nothing() {
    let mut hooks = hooks(true, true);
    hooks.handle(at(0), round(1, &[2], 2));
    hooks.handle(at(0), round(2, &[1], 1));
    let _first = started(&mut hooks);
    hooks.handle(at(1), HookEvent::Signal);
    assert_eq!(drain(&mut hooks), [], "it is about the job");
    hooks.handle(at(2), end());
    hooks.handle(at(3), HookEvent::Signal);
    assert_eq!(drain(&mut hooks), [HookAction::End { hard: false }]);
    hooks.handle(at(4), HookEvent::Signal);
    assert_eq!(drain(&mut hooks), [HookAction::End { hard: true }]);
    hooks.handle(at(5), HookEvent::Ended(KILLED));
    let actions = drain(&mut hooks);
    assert_eq!(actions[0], HookAction::Say(HookNote::Skipped(1)));
    assert!(matches!(actions[1], HookAction::Start { on: On::Exit, .. }), "the last one is run: {actions:?}");
    hooks.handle(at(6), HookEvent::Unstarted(2));
    assert_eq!(drain(&mut hooks), [HookAction::Say(HookNote::Unstarted(On::Exit, 2))]);
    assert!(hooks.is_over());
}

#[test]
fn unneeded_places_are_not_waited_for() {
    let mut restart_only = hooks(true, false);
    restart_only.handle(at(0), end());
    assert!(restart_only.is_over());
    let mut exit_only = hooks(false, true);
    exit_only.handle(at(0), round(1, &[2], 2));
    assert_eq!(drain(&mut exit_only), []);
}
