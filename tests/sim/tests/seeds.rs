//! 500 jobs: half of them always the same, half named by `RLAUNCH_SIM_SEED` (scripts/test passes the commit).

use rlaunch_sim::{run, seed_of};

fn all(seeds: impl IntoIterator<Item = u64>) {
    let broken = seeds.into_iter().find_map(|seed| run(seed).err());
    assert!(broken.is_none(), "{}", broken.unwrap_or_default());
}

#[test]
fn fixed_seeds() {
    all(0..250);
}

#[test]
fn fresh_seeds() {
    let text = std::env::var("RLAUNCH_SIM_SEED").unwrap_or_else(|_| "rlaunch".to_owned());
    let first = seed_of(&text);
    eprintln!("RLAUNCH_SIM_SEED={text} (250 seeds from {first})");
    all((0..250).map(|n| first.wrapping_add(n)));
}

/// Each was broken once.
#[test]
fn seeds_to_remember() {
    all([1_343, 104_832]);
}
