//! 500 jobs on one host, each of them twice, and 250 on several, 250 whose ranks are started again, 250 of these in a scheduler's step, and
//! 500 whose function is begun again in the same processes, and 500 on slices,
//! and 500 with several worlds: half of them always the same, half named by `RLAUNCH_SIM_SEED` (scripts/test passes the commit).

use rlaunch_sim::{
    run, run_hosts, run_restarts, run_rounds, run_scheduled, run_slices, run_standing, run_worlds, seed_of,
};

fn none_breaks(seeds: impl IntoIterator<Item = u64>, run: fn(u64) -> Result<(), String>) {
    let broken = seeds.into_iter().find_map(|seed| run(seed).err());
    assert!(broken.is_none(), "{}", broken.unwrap_or_default());
}

/// Each as it is, and with a launcher or a host that is suspended meanwhile; every other one also as a job of several hosts.
fn all(seeds: impl IntoIterator<Item = u64> + Clone) {
    none_breaks(seeds.clone(), run);
    none_breaks(seeds.clone(), run_standing);
    none_breaks(seeds.clone().into_iter().step_by(2), run_hosts);
    none_breaks(seeds.clone().into_iter().step_by(2), run_restarts);
    none_breaks(seeds.clone().into_iter().step_by(2), run_scheduled);
    none_breaks(seeds.clone(), run_slices);
    none_breaks(seeds.clone(), run_worlds);
    none_breaks(seeds, run_rounds);
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

/// Each was broken once. In the last one, a rank was killed by a signal that was passed on, and then the agent was lost.
#[test]
fn seeds_to_remember() {
    none_breaks([1_343, 104_832, 56_130_928, 9_125_697_632_052_360_804], run);
}

/// Each of these failed once, with a suspension: output was given up (91), an agent whose grace was not over (745), a lot of output
/// through a narrow edge (1495780638).
#[test]
fn seeds_to_remember_standing_still() {
    none_breaks([91, 745, 1_495_780_638], run_standing);
}

/// With rounds: the only rank was killed while more faults were waited for (60), all were refused before the first round without a report
/// (924).
///
/// The host of a warned rank was lost after the rank had moved there (7020726). A host was lost before the process of a rank that had left
/// its function ended (12930963730144686907).
#[test]
fn seeds_to_remember_with_rounds() {
    none_breaks([60, 924, 7_020_726, 12_930_963_730_144_686_907], run_rounds);
}

/// With restarts: a rank failed by itself in the moment in which its generation was ended, before its start was known.
#[test]
fn seeds_to_remember_with_restarts() {
    none_breaks([7_056_789], run_restarts);
}

/// And these, on several hosts: a rank that was killed by another process before the guardian was lost (1401), an earlier failure on the
/// same host (2267), a failure that was reported together with the request to end (21743).
#[test]
fn seeds_to_remember_on_several_hosts() {
    none_breaks([1_401, 2_267, 21_743], run_hosts);
}

/// In a scheduler's step: warned before the launcher's first message (14), ranks that started after the signal (1899), or when it came
/// again (7443, 13905), or just before it (13714, 22289); a rank that the signal had ended was the first cause (4844).
/// The order to end for it came together with one to end all ranks, which had its signal (1740464236).
#[test]
fn seeds_to_remember_in_a_schedulers_step() {
    none_breaks([14, 1_899, 4_844, 7_443, 13_714, 13_905, 22_289, 1_740_464_236], run_scheduled);
}

/// The lease of a host was over before the scheduler ended the step (258). A host that was given up dials while others are waited for
/// (331). A second agent of a host dials (12).
#[test]
fn seeds_to_remember_of_steps() {
    none_breaks([12, 258, 331], run_scheduled);
}

/// On slices: a host that had come back was rank 0's, and its port was that of the time before (3). The job was over while a host was
/// being reached (7). Rank 0's host was lost while the others looked for it (264).
#[test]
fn seeds_to_remember_on_slices() {
    none_breaks([3, 7, 264], run_slices);
}

/// With worlds: a rank of the program that leads was killed by a signal that was passed on, and its last rank finished (16223).
#[test]
fn seeds_to_remember_with_worlds() {
    none_breaks([16_223], run_worlds);
}
