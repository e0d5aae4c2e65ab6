//! Chains: losses that cannot be, policies that cannot work, and ranks that come back.

use super::*;
use alloc::vec;
use rlaunch_base::error::Hint as _;

fn play(spec: &str, size: u32, rounds: &[&[u32]]) -> Vec<String> {
    let policy = parse::policy(spec).unwrap();
    let mut world = World::new(size);
    let mut worlds = Vec::new();
    for lost in [&[][..]].iter().chain(rounds) {
        assign(&policy, &mut world, &ranks(lost), &()).unwrap();
        worlds.push(shown(&world));
    }
    worlds
}

#[test]
fn fill_is_as_its_picture() {
    assert_eq!(play("fill", 8, &[&[1, 4, 5]]), ["0 1 2 3 4 5 6 7", "0 . 2 3 . . 1 4"]);
    assert_eq!(play("fill", 4, &[&[3]]).last().unwrap(), "0 1 2 .");
    assert_eq!(play("fill", 4, &[&[0, 1, 2, 3], &[]]).last().unwrap(), ". . . .");
}

#[test]
fn the_active_world_only_shrinks_unless_it_may_regrow() {
    let chain = "divisible=3,divisible=4,shift";
    assert_eq!(play(chain, 16, &[&[]]).last().unwrap(), "0 1 2 3 4 5 6 7 8 9 10 11 r r r r");
    let regrown = play(&(chain.to_string() + ",regrow"), 16, &[&[], &[]]);
    assert_eq!(regrown.last().unwrap(), "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 r");
}

#[test]
fn a_loss_that_cannot_be_changes_nothing() {
    let policy = parse::policy("shift").unwrap();
    let mut world = World::new(3);
    let before = world.clone();
    let error = assign(&policy, &mut world, &ranks(&[0, 3]), &()).unwrap_err();
    assert_eq!(error.to_string(), "there is no rank 3 to be lost: the ranks are 0 to 2");
    let groups = parse::policy("shift,group(host)==2").unwrap();
    let error = assign(&groups, &mut world, &ranks(&[0]), &()).unwrap_err();
    assert_eq!(error.to_string(), "the policy groups ranks by host, which is not known of initial rank 1");
    assert_eq!(world, before);
    let mut empty = World::new(0);
    assign(&policy, &mut empty, &[], &()).unwrap();
    let error = assign(&policy, &mut empty, &ranks(&[0]), &()).unwrap_err();
    assert_eq!(error.to_string(), "there is no rank 0 to be lost: none is left");
}

#[test]
fn chains_that_cannot_work_name_two_policies_and_the_order() {
    for (spec, error, order) in [
        (
            "shift,max=4",
            "max=4 runs before shift (the last one runs first), which changes the numbers by which max=4 has chosen",
            "max=4,shift",
        ),
        (
            "max=4,shift,group(host)==8,divisible=2",
            "divisible=2 runs before shift (the last one runs first), which changes the numbers by which divisible=2 has chosen",
            "max=4,divisible=2,shift,group(host)==8",
        ),
        (
            "all,group(host)==8,shift",
            "group(host)==8 runs after shift (the last one runs first): nothing takes out the ranks that it sends home",
            "all,shift,group(host)==8",
        ),
        ("max=4", "max=4 is there, but neither shift nor fill: nothing takes out ranks that are lost", "max=4,shift"),
        (
            "group(rank/2)%2",
            "all is there, but neither shift nor fill: nothing takes out ranks that are lost",
            "all,shift,group(rank/2)%2",
        ),
        ("all,max=4,fill", "all has every rank work, and max=4 does not: they cannot be combined", "max=4,fill"),
    ] {
        let refused = parse::policy(spec).unwrap_err();
        assert_eq!((refused.to_string().as_str(), refused.hint().as_deref()), (error, Some(order)), "{spec}");
        parse::policy(order).unwrap();
    }
    assert_eq!(Policy::default().check(), Err(IllFormed::Nothing));
    let tree = Stage::Tree(Tree { layers: vec![Layer::default()], ..Tree::default() });
    for (stages, error, hint) in [
        (
            vec![tree.clone(), Stage::Shift],
            "a tree of 1 layer numbers and chooses ranks by itself, and cannot be combined with shift",
            "the tree without shift",
        ),
        (vec![Stage::Tree(Tree::default())], "a tree has no layer", "[[assign.tree.layer]], the root's first"),
    ] {
        let policy = Policy::chain(stages);
        let refused = policy.check().unwrap_err();
        assert_eq!((refused.to_string().as_str(), refused.hint().as_deref()), (error, Some(hint)));
        assert!(assign(&policy, &mut World::new(2), &[], &()).is_err());
    }
}

#[test]
fn returning_rank_is_last_and_waits_for_the_policy() {
    let play = |spec: &str| {
        let policy = parse::policy(spec).unwrap();
        let mut world = World::new(4);
        let round = |world: &mut World, lost: &[u32]| {
            assign(&policy, world, &ranks(lost), &()).unwrap();
            shown(world)
        };
        round(&mut world, &[]);
        let lost = round(&mut world, &[1]);
        world.join(Rank::new(1)).unwrap();
        world.join(Rank::new(4)).unwrap();
        assert_eq!(
            (world.size(), world.at(Rank::new(3)), world.at(Rank::new(4))),
            (5, Some(Rank::new(1)), Some(Rank::new(4)))
        );
        let waiting = shown(&world);
        [lost, waiting, round(&mut world, &[])]
    };
    assert_eq!(play("all,shift"), ["0 . 1 2", "0 r 1 2 r", "0 3 1 2 4"]);
    assert_eq!(play("max=4,shift"), ["0 . 1 2", "0 r 1 2 r", "0 r 1 2 r"]);
    assert_eq!(play("max=4,shift,regrow"), ["0 . 1 2", "0 r 1 2 r", "0 3 1 2 r"]);
    assert_eq!(play("divisible=2,fill,regrow"), ["0 . r 1", "0 r r 1 r", "0 3 2 1 r"]);
    let mut world = World::new(2);
    assert_eq!(
        world.join(Rank::new(0)).unwrap_err().to_string(),
        "initial rank 0 cannot join: it is in the world, as rank 0"
    );
    assert_eq!(world.join(Rank::new(3)).unwrap_err().to_string(), "initial rank 3 cannot join: the next new one is 2");
}
