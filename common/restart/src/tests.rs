//! The machine of rounds: what must hold whatever happens, and what a round of many ranks costs. Step by step it is in `tests/traces`.

mod awaited;
mod chaos;
mod hosts;
mod late_ranks;
mod size;

use super::*;
use crate::remark::Override;
use alloc::format;
use alloc::vec;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::rank_assign::{Tree, parse};

/// `hosts` hosts with `per` ranks each.
fn setup(hosts: u32, per: u32, policy: &str) -> Setup {
    let site = |n| Site { name: format!("host{n}"), addr: OsBytes::from(format!("host{n}")) };
    Setup {
        ranks: (0..hosts * per).map(|rank| NodeId::new(rank / per)).collect(),
        nodes: (0..hosts).map(|n| (NodeId::new(n), site(n))).collect(),
        rendezvous: (NodeId::new(0), 7000),
        agent_store: true,
        in_slurm: false,
        namespace: 0,
        policy: Some(parse::policy(policy).unwrap()),
        read_policy: |text| parse::policy(text).map_err(|error| format!("{error}")),
        known: Vec::new(),
        limits: Limits::default(),
        fault_window: Span::ZERO,
        yield_within: Span::from_secs(30),
        give_up_after: Span::ZERO,
        respawn: false,
        respawn_timeout: Span::from_secs(300),
    }
}

#[test]
fn keys_that_only_processes_know_are_asked_in_order() {
    let words = "all,shift,group(env:B)==2,group(script/1)==2,group(host)==2,group(env:A)==2,group(env:B)>=1";
    let wanted = [Source::Script(0), Source::Script(1), Source::Env("B".into()), Source::Env("A".into())];
    assert_eq!(asked(&parse::policy(words).unwrap()), wanted);
    assert_eq!(asked(&parse::policy("all,shift,group(script/4000000000)==2").unwrap()).len(), 17);
    assert_eq!(asked(&parse::policy("max=4,shift").unwrap()), []);
}

/// Values that processes send for their keys take precedence over values that are known without them.
#[test]
fn keys_come_from_processes_hosts_and_the_command_line() {
    let groups = |known: &[&str]| {
        let mut setup = setup(2, 2, "all,shift,group(slice)==2");
        setup.known = alloc::vec![(Source::Slice, known.iter().map(|value| Some((*value).into())).collect())];
        setup
    };
    let mut machine = Restart::new(groups(&["a", "b", "a", "b"]));
    hosts::register(&mut machine, 2, 2, &[]);
    assert_eq!(machine.round(), Some(Round::new(0)));
    let mut machine = Restart::new(groups(&["a", "b", "b", "b"]));
    hosts::register(&mut machine, 2, 2, &[]);
    assert_eq!(machine.round(), None, "nobody would be left");

    let script = |keys: &[&str], word: &str, key_count: u32| {
        let setup = Setup { policy: None, ..setup(1, 2, "all,shift") };
        let mut machine = Restart::new(setup);
        let terms = OsBytes::from(format!("policy=all,shift,group({word})==2\nkeys={key_count}\n"));
        let ranks = keys.iter().zip(0..).map(|(key, n)| hosts::enrolled(n, n, &[*key])).collect();
        machine.handle(Mono::default(), RestartEvent::Joined { call: 0, node: NodeId::new(0), ranks, terms });
        machine.round()
    };
    for (word, key_count) in [("script/0", 1), ("env:ZONE", 1), ("env:ZONE", 0)] {
        assert_eq!(script(&["x", "x"], word, key_count), Some(Round::new(0)));
        assert_eq!(script(&["x", "y"], word, key_count), None);
    }
}

/// For the first round they come with the terms: one message for those of a host that say the same, and none of it twice.
#[test]
fn keys_for_the_first_round_come_with_the_terms() {
    let groups = |keys: [&str; 3]| {
        let mut machine = Restart::new(Setup { policy: None, ..setup(1, 3, "all,shift") });
        for (key, n) in keys.into_iter().zip(0..) {
            let text = format!("policy=all,shift,group(script/0)==3\nkeys=1\nkey.0={key}\n");
            let terms = if key.is_empty() { OsBytes::default() } else { OsBytes::from(text) };
            let ranks = alloc::vec![hosts::enrolled(n, n, &[])];
            machine.handle(Mono::default(), RestartEvent::Joined { call: 0, node: NodeId::new(0), ranks, terms });
        }
        machine.round()
    };
    assert_eq!(groups(["x", "x", "x"]), Some(Round::new(0)));
    assert_eq!(groups(["x", "", ""]), Some(Round::new(0)));
    assert_eq!(groups(["x", "x", "y"]), None, "nobody is left of a group of two");
}

#[test]
fn policy_is_refused_when_it_asks_for_more_keys_than_processes_send() {
    let mut machine = Restart::new(Setup { policy: None, ..setup(1, 1, "all,shift") });
    let terms = OsBytes::from("policy=all,shift,group(script/1)==2\nkeys=1\n");
    let ranks = alloc::vec![hosts::enrolled(0, 0, &[])];
    machine.handle(Mono::default(), RestartEvent::Joined { call: 0, node: NodeId::new(0), ranks, terms });
    let Some(RestartAction::Send { msg: RoundDown::Refuse { text, .. }, .. }) = machine.poll_action() else { panic!() };
    let wanted = "the policy all,shift,group(script/1)==2 asks each process for 2 of its own keys, and it tells 1 (the term keys)";
    assert_eq!(format!("{text}"), wanted);
}

#[test]
fn progress_shows_its_stage() {
    let mut machine = Restart::new(setup(1, 2, "all,shift"));
    assert!(!machine.is_open() && !machine.is_used());
    hosts::register(&mut machine, 1, 2, &[]);
    assert!(machine.is_open() && machine.is_used());
    assert_eq!((machine.round(), machine.namespace), (Some(Round::new(0)), 1));
    assert_eq!(machine.terms(), Some(&terms::Terms::default()));
    machine.handle(Mono::default(), RestartEvent::Off);
    assert!(!machine.is_open());
    assert_eq!(machine.poll_timeout(), None);
}

/// The report has words that fit a line.
#[test]
fn overriding_policy_is_reported_when_the_program_has_asked_for_another() {
    let read_policy = |text: &str| match text.strip_prefix("[assign.tree]") {
        Some(layers) => {
            let layers = layers.matches("layer").map(|_| Default::default()).collect();
            Ok(Policy::chain(vec![Stage::Tree(Tree { layers, ..Tree::default() })]))
        }
        None => parse::policy(text).map_err(|error| format!("{error}")),
    };
    let says = |ours: &str, own: &str| {
        let policy = Some(read_policy(ours).unwrap());
        let mut machine = Restart::new(Setup { policy, read_policy, ..setup(1, 1, "all,shift") });
        let terms = terms::lines(&[(OsBytes::from("policy"), OsBytes::from(own))]);
        let ranks = vec![hosts::enrolled(0, 0, &[])];
        machine.handle(Mono::default(), RestartEvent::Joined { call: 0, node: NodeId::new(0), ranks, terms });
        core::iter::from_fn(|| machine.poll_action()).find_map(|action| {
            let RestartAction::Note(RoundNote::Remark(Remark::Overrides { options })) = action else { return None };
            let [Override::Policy { option, program }] = &options[..] else { panic!("{options:?}") };
            Some(format!("{option} (the program: {})", program.clone().unwrap_or_default()))
        })
    };
    let tree = "[assign.tree]\n[[layer]]\n[[layer]]\nkey = \"host\"\n";
    for (ours, own, said) in [
        ("max=1,shift", tree, Some("max=1,shift (the program: a tree of 2 layers)")),
        ("[assign.tree]layer", "max=1,shift", Some("a tree of 1 layer (the program: max=1,shift)")),
        ("all,fill", " max = 1, shift", Some("all,fill (the program: max=1,shift)")),
        ("all,fill", "no such", Some("all,fill (the program: no such)")),
        ("all,fill", "fill", None),
        (tree, tree, None),
        // The default policy of a program that sets none.
        ("max=1,shift", "all,shift", None),
        ("max=1,shift", "shift", None),
    ] {
        assert_eq!(says(ours, own).as_deref(), said, "{ours}, {own}");
    }
}
