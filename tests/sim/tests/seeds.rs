//! 500 jobs, each of them twice: half of them always the same, half named by `RLAUNCH_SIM_SEED` (scripts/test passes the commit).

use rlaunch_sim::{run, run_standing, seed_of};

fn none_breaks(seeds: impl IntoIterator<Item = u64>, run: fn(u64) -> Result<(), String>) {
    let broken = seeds.into_iter().find_map(|seed| run(seed).err());
    assert!(broken.is_none(), "{}", broken.unwrap_or_default());
}

/// Each as it is, and with a launcher or a host that stands still meanwhile.
fn all(seeds: impl IntoIterator<Item = u64> + Clone) {
    none_breaks(seeds.clone(), run);
    none_breaks(seeds, run_standing);
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
    none_breaks([1_343, 104_832, 56_130_928], run);
}

/// So was each of these, while something stood still: output was given up (91), an agent whose grace was not over (745).
#[test]
fn seeds_to_remember_standing_still() {
    none_breaks([91, 745], run_standing);
}
