//! Trees: roots, order, and what rlaunch adds.

use super::*;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec;
use core::num::NonZeroU32;
use rlaunch_base::error::Hint as _;

/// Four ranks of a host follow each other.
struct Hosts;

impl Keys for Hosts {
    fn value(&self, source: &Source, who: Numbers) -> Option<Cow<'_, str>> {
        (*source == Source::Host).then(|| format!("h{}", who.initial.get() / 4).into())
    }
}

fn layer(key: &str, max_ranks: Option<u32>, flags: &str) -> Layer {
    let mut layer = Layer { key: parse::key(key).unwrap(), max_ranks, ..Layer::default() };
    for flag in flags.split_whitespace() {
        parse::flag(flag, &mut layer.flags).unwrap();
    }
    layer
}

fn tree(layers: Vec<Layer>) -> Tree {
    Tree { layers, ..Tree::default() }
}

/// Each round loses ranks; one that begins with a `+` is a rank that comes back before.
fn play(tree: Tree, regrow: bool, size: u32, rounds: &[&str]) -> Vec<String> {
    let policy = Policy { stages: vec![Stage::Tree(tree)], regrow };
    policy.check().unwrap();
    let mut world = World::new(size);
    let mut worlds = Vec::new();
    for words in [""].iter().chain(rounds) {
        let mut lost = Vec::new();
        for word in words.split_whitespace() {
            match word.strip_prefix('+') {
                Some(initial) => world.join(Rank::new(initial.parse().unwrap())).unwrap(),
                None => lost.push(Rank::new(word.parse().unwrap())),
            }
        }
        assign(&policy, &mut world, &lost, &Hosts).unwrap();
        worlds.push(shown(&world));
    }
    worlds
}

#[test]
fn a_root_that_is_several_names_them_and_changes_nothing() {
    let policy = Policy::chain(vec![Stage::Tree(tree(vec![layer("host", None, "")]))]);
    let mut world = World::new(24);
    let error = assign(&policy, &mut world, &[], &Hosts).unwrap_err();
    assert_eq!(
        error.to_string(),
        "all ranks must share one key at the root of the tree, but they have 6: \
         'h0' (ranks 0-3), 'h1' (ranks 4-7), 'h2' (ranks 8-11), 'h3' (ranks 12-15) and 2 more"
    );
    assert_eq!(error.hint().as_deref(), Some("key = \"\" in the first layer: it is the root, above all others"));
    assert_eq!(world, World::new(24));
}

#[test]
fn another_order_than_the_trees_is_said_once() {
    let policy = Policy::chain(vec![Stage::Tree(tree(vec![layer("", None, ""), layer("rank%2", None, "")]))]);
    let mut world = World::new(6);
    let said = assign(&policy, &mut world, &[], &()).unwrap().misplaced.unwrap();
    assert_eq!(
        said.to_string(),
        "the order of the ranks is not that of the tree, by which 4 of 6 get another number (rank 2 becomes 1)"
    );
    assert_eq!(shown(&world), "0 3 1 4 2 5");
    assert_eq!(assign(&policy, &mut world, &ranks(&[0]), &()).unwrap().misplaced, None);
}

#[test]
fn a_tree_sends_small_groups_home() {
    let mut hosts = layer("host", None, "");
    hosts.min_ranks = 4;
    let policy = Policy::chain(vec![Stage::Tree(tree(vec![layer("", None, ""), hosts]))]);
    let mut world = World::new(10);
    let outcome = assign(&policy, &mut world, &[], &Hosts).unwrap();
    assert_eq!((outcome.discarded, shown(&world)), (ranks(&[8, 9]), "0 1 2 3 4 5 6 7 . .".into()));
    let outcome = assign(&policy, &mut world, &ranks(&[1]), &Hosts).unwrap();
    assert_eq!((outcome.discarded, shown(&world)), (ranks(&[0, 2, 3]), ". . . . 0 1 2 3 . .".into()));
}

#[test]
fn strict_limits_bind_reserves_too() {
    let layers = || vec![layer("", None, "reserve"), layer("host", Some(2), "reserve")];
    // Two of h0 are lost, then two more: a third and a fourth of h1 would have to replace them.
    let rounds = ["0 1", "0 1"];
    let loose = play(tree(layers()), false, 8, &rounds);
    assert_eq!(loose, ["0 1 r r 2 3 r r", ". . 1 0 2 3 r r", ". . . . 2 3 0 1"]);
    let strict = play(Tree { strict: true, ..tree(layers()) }, false, 8, &rounds);
    assert_eq!(strict, ["0 1 r r 2 3 r r", ". . 1 0 2 3 r r", ". . . . 0 1 r r"]);
    // Ranks that were put aside are there when there is room for them.
    let strict = play(Tree { strict: true, ..tree(layers()) }, false, 8, &["0 1", "0 1", "0"]);
    assert_eq!(strict.last().unwrap(), ". . . . . 1 r 0");
}

#[test]
fn minimal_backfill_moves_no_more_than_it_must() {
    let layers = || vec![layer("", None, "backfill")];
    assert_eq!(play(tree(layers()), false, 8, &["3 7"]).last().unwrap(), "0 1 2 . 4 3 5 .");
    let minimal = |rounds: &[&str]| play(Tree { minimal: true, ..tree(layers()) }, false, 8, rounds).pop().unwrap();
    assert_eq!(minimal(&["3 7"]), "0 1 2 . 4 5 3 .");
    assert_eq!(minimal(&["6 7"]), "0 1 2 3 4 5 . .");
    assert_eq!(minimal(&["0 1"]), ". . 2 3 4 5 0 1");
    assert_eq!(minimal(&["0 1 2 3 4 5 6"]), ". . . . . . . 0");
    assert_eq!(minimal(&["0 1 2 3 4 5 6 7"]), ". . . . . . . .");
}

#[test]
fn a_tree_regrows_up_to_its_filter() {
    let filter = Some(Filter::MultipleOf(NonZeroU32::new(4).unwrap()));
    let of = |regrow| {
        play(Tree { filter: filter.clone(), ..tree(vec![layer("", None, "")]) }, regrow, 9, &["0", "0", "+0 +1"])
    };
    assert_eq!(of(false), ["0 1 2 3 4 5 6 7 r", ". 0 1 2 3 r r r r", ". . r r r r r r r", "r r r r r r r r r"]);
    assert_eq!(of(true), ["0 1 2 3 4 5 6 7 r", ". 0 1 2 3 4 5 6 7", ". . 0 1 2 3 r r r", "4 5 0 1 2 3 6 7 r"]);
    let spare = Some(Filter::AllBut(1));
    let of = |regrow| play(Tree { filter: spare.clone(), ..tree(vec![layer("", None, "")]) }, regrow, 4, &["", ""]);
    assert_eq!(of(false), ["0 1 2 r", "0 1 r r", "0 r r r"]);
    assert_eq!(of(true), ["0 1 2 r", "0 1 2 r", "0 1 2 r"]);
}

#[test]
fn a_rank_comes_back_to_its_old_leaf() {
    let layers = || vec![layer("", None, "reserve"), layer("host", Some(3), "reserve")];
    // 0 is replaced by 3 of its host. Back again it waits there, and replaces the next one of that host, as no other has waited for a
    // shorter time.
    let worlds = play(tree(layers()), false, 8, &["0", "+0", "1"]);
    assert_eq!(worlds, ["0 1 2 r 3 4 5 r", ". 1 2 0 3 4 5 r", "r 1 2 0 3 4 5 r", "1 . 2 0 3 4 5 r"]);
    // A new one gets a leaf at its host, which is new too.
    let worlds = play(tree(layers()), true, 4, &["+4 +5"]);
    assert_eq!(worlds, ["0 1 2 r", "0 1 2 r 3 4"]);
}

#[test]
fn a_tree_of_any_depth_costs_no_stack() {
    let mut deep = vec![layer("", None, "reserve"); 2_000];
    deep.push(layer("host", None, "reserve"));
    assert_eq!(play(tree(deep), false, 4, &["1"]), ["0 1 2 3", "0 . 1 2"]);
}

#[test]
fn waiting_lists_stay_short() {
    let policy = Policy {
        stages: vec![Stage::Tree(tree(vec![layer("", Some(4), "reserve"), layer("host", None, "reserve")]))],
        regrow: true,
    };
    let mut world = World::new(8);
    for round in 0..500 {
        assign(&policy, &mut world, &ranks(&[round % 8]), &Hosts).unwrap();
        let back: Vec<u32> = (0..8).filter(|n| world.members()[*n as usize].mode == Mode::Terminated).collect();
        back.into_iter().for_each(|initial| world.join(Rank::new(initial)).unwrap());
    }
    assert!(world.topology.unwrap().longest() <= 17);
}
