//! Properties of every policy and every loss.

use super::*;
use alloc::vec;
use core::num::NonZeroU32;
use proptest::prelude::*;

fn divisor(most: u32) -> impl Strategy<Value = NonZeroU32> {
    (1..=most).prop_map(|n| NonZeroU32::new(n).unwrap())
}

fn key() -> impl Strategy<Value = Key> {
    let n = || divisor(8);
    prop_oneof![
        n().prop_map(Key::RankBy),
        n().prop_map(Key::RankEvery),
        n().prop_map(Key::InitialBy),
        n().prop_map(Key::InitialEvery),
        Just(Key::Same(String::new())),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        (0..9_u32).prop_map(Condition::Equal),
        (0..5_u32).prop_map(Condition::AtLeast),
        (2..9_u32).prop_map(Condition::AtMost),
        divisor(4).prop_map(Condition::MultipleOf),
    ]
}

/// Chains that `check` takes.
fn chain() -> impl Strategy<Value = Vec<Stage>> {
    let limit = prop_oneof![(0..40_u32).prop_map(|n| Stage::MaxActive(Some(n))), divisor(9).prop_map(Stage::Divisible)];
    let activates = prop_oneof![
        Just(vec![Stage::ActivateAll]),
        Just(vec![Stage::MaxActive(None)]),
        proptest::collection::vec(limit, 1..3)
    ];
    let mover = || prop_oneof![Just(Stage::Shift), Just(Stage::Fill)];
    let group = (key(), condition()).prop_map(|(key, condition)| Stage::Group(Group { key, condition }));
    let pair = (mover(), proptest::option::of(group)).prop_map(|(mover, group)| [Some(mover), group]);
    (activates, proptest::collection::vec(pair, 1..3))
        .prop_map(|(activates, pairs)| activates.into_iter().chain(pairs.into_iter().flatten().flatten()).collect())
}

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![
        divisor(6).prop_map(Filter::MultipleOf),
        (0..30_u32).prop_map(Filter::AtMost),
        Just(Filter::PowerOfTwo),
        (0..3_u32).prop_map(Filter::AllBut),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let flags = || (any::<bool>(), any::<bool>()).prop_map(|(reserve, backfill)| Flags { reserve, backfill });
    let layer =
        |key: BoxedStrategy<Key>| {
            (key, 0..4_u32, proptest::option::of(0..12_u32), flags())
                .prop_map(|(key, min_ranks, max_ranks, flags)| Layer { key, min_ranks, max_ranks, flags })
        };
    let root = layer(Just(Key::Same(String::new())).boxed());
    let below = proptest::collection::vec(layer(key().boxed()), 0..3);
    (root, below, proptest::option::of(filter()), any::<bool>(), any::<bool>()).prop_map(
        |(root, below, filter, strict, minimal)| Tree {
            layers: core::iter::once(root).chain(below).collect(),
            filter,
            strict,
            minimal,
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let stages = prop_oneof![chain(), tree().prop_map(|tree| vec![Stage::Tree(tree)])];
    (stages, any::<bool>()).prop_map(|(stages, regrow)| Policy { stages, regrow })
}

/// Numbers are 0 to n - 1, each once.
fn dense(mut numbers: Vec<Rank>, n: u32) -> bool {
    numbers.sort_unstable();
    numbers.iter().map(|rank| rank.get()).eq(0..n)
}

fn sound(world: &World) {
    let members = world.members();
    assert!(dense(members.iter().filter_map(|member| member.rank).collect(), world.size()), "{world:?}");
    let active = world.active_size().unwrap();
    assert!(dense(members.iter().filter_map(|member| member.active_rank).collect(), active), "{world:?}");
    for (member, initial) in members.iter().zip((0..).map(Rank::new)) {
        assert_eq!(member.active_rank.is_some(), member.mode == Mode::Active);
        assert_eq!(member.rank.is_none(), member.mode == Mode::Terminated);
        assert!(member.rank.is_none_or(|rank| world.at(rank) == Some(initial)));
    }
}

/// The promise of the last word of a policy.
fn kept(policy: &Policy, world: &World) {
    let active = world.active_size().unwrap();
    match policy.stages.first().unwrap() {
        Stage::ActivateAll => assert_eq!(active, world.size()),
        Stage::MaxActive(max) => assert!(active <= max.unwrap_or(u32::MAX)),
        Stage::Divisible(n) => assert_eq!(active % *n, 0),
        Stage::Tree(Tree { filter: Some(Filter::MultipleOf(n)), .. }) => assert_eq!(active % *n, 0),
        Stage::Tree(Tree { filter: Some(Filter::AtMost(n)), .. }) => assert!(active <= *n),
        Stage::Tree(Tree { filter: Some(Filter::PowerOfTwo), .. }) => assert!(active == 0 || active.is_power_of_two()),
        Stage::Tree(_) | Stage::Shift | Stage::Fill | Stage::Group(_) => {}
    }
    if let [Stage::Tree(tree)] = policy.stages.as_slice()
        && tree.strict
    {
        world.topology.as_ref().unwrap().within(tree, world.members());
    }
}

/// Remaining ranks keep their order, or their numbers.
fn moved(policy: &Policy, before: &World, after: &World) {
    let numbers = before.members().iter().zip(after.members()).filter_map(|(was, is)| Some((was.rank?, is.rank?)));
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    let all = |stage: &Stage| policy.stages.iter().all(|one| one == stage || matches!(one, Stage::ActivateAll));
    if all(&Stage::Shift) {
        assert!(numbers.is_sorted_by_key(|(_, is)| *is));
    }
    if all(&Stage::Fill) {
        assert!(numbers.iter().all(|(was, is)| was.get() >= after.size() || was == is));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_round_leaves_a_whole_world(
        policy in policy(),
        size in 1..48_u32,
        rounds in proptest::collection::vec((proptest::collection::vec(any::<u32>(), 0..6), any::<u64>()), 1..6),
    ) {
        policy.check().unwrap();
        let mut world = World::new(size);
        for (lost, back) in rounds {
            let lost: Vec<Rank> = lost.iter().filter_map(|n| n.checked_rem(world.size())).map(Rank::new).collect();
            let before = world.clone();
            // Twice, and in another order: the same.
            let mut other = world.clone();
            let others: Vec<Rank> = lost.iter().rev().chain(&lost).copied().collect();
            let outcome = assign(&policy, &mut world, &lost, &()).unwrap();
            prop_assert_eq!(&outcome, &assign(&policy, &mut other, &others, &()).unwrap());
            prop_assert_eq!(&world, &other);
            sound(&world);
            kept(&policy, &world);
            moved(&policy, &before, &world);
            for rank in &lost {
                let initial = before.at(*rank).unwrap();
                prop_assert_eq!(world.members()[initial.index()].mode, Mode::Terminated);
                prop_assert!(!outcome.discarded.contains(&initial));
            }
            let gone = before.size() - world.size();
            let lost: alloc::collections::BTreeSet<_> = lost.into_iter().collect();
            prop_assert_eq!(gone as usize, lost.len() + outcome.discarded.len());
            let grows = policy.regrow || policy.stages.contains(&Stage::ActivateAll);
            prop_assert!(grows || before.active_size().is_none_or(|active| world.active_size().unwrap() <= active));
            for initial in (0..size).filter(|n| back >> n & 1 == 1).map(Rank::new) {
                if world.members()[initial.index()].mode == Mode::Terminated {
                    world.join(initial).unwrap();
                }
            }
            sound(&world);
        }
    }
}
