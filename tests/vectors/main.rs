//! Compares rank assignment with recorded results: those of NVRx's own code (`rank_assignment.json`), and of what it does not have
//! (`beyond.json`: ranks that come back, and rlaunch's own options).
//!
//! `RLAUNCH_VECTORS=FILE` compares another file of the first kind. A program and no list of tests: it says how much it compared.
#![allow(clippy::print_stdout, reason = "says what it did")]

mod policy;

use rlaunch_base::id::Rank;
use rlaunch_plan::rank_assign::{Mode, Outcome, World, assign};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The results of the scenarios of a file.
#[derive(Default)]
struct Tally {
    scenarios: u32,
    rounds: u32,
    /// By the first tag that says why.
    skipped: BTreeMap<&'static str, u32>,
    /// Scenarios that must be refused, and are.
    refused: u32,
    failed: Vec<String>,
}

/// How a scenario went.
enum Went {
    Equal(u32),
    /// The scenario had to be refused, and was.
    Refused,
    Failed(String),
}

/// Scenarios with these tags show what well-formed policies do not do.
const SKIPPED: [&str; 2] = ["misordered", "misuse"];

fn main() -> ExitCode {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/vectors");
    let upstream = std::env::var_os("RLAUNCH_VECTORS").map_or(golden.join("rank_assignment.json"), PathBuf::from);
    let mut good = true;
    for (file, least) in [(upstream, 1), (golden.join("beyond.json"), 1)] {
        match compare(&file) {
            Ok(tally) => good &= tally.report(&file, least),
            Err(why) => {
                println!("vectors: {}: {why}", file.display());
                good = false;
            }
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Tally {
    fn report(&self, file: &Path, least: u32) -> bool {
        let skipped: Vec<String> = self.skipped.iter().map(|(tag, n)| format!("{n} {tag}")).collect();
        let skipped = if skipped.is_empty() { "none".to_owned() } else { skipped.join(", ") };
        println!(
            "vectors: {}: {} scenarios, {} rounds compared; {} refused as they must be; skipped by tag: {skipped}; failed: {}",
            file.display(),
            self.scenarios,
            self.rounds,
            self.refused,
            self.failed.len()
        );
        self.failed.iter().take(20).for_each(|failure| println!("  {failure}"));
        self.failed.is_empty() && self.scenarios >= least
    }
}

fn compare(file: &Path) -> Result<Tally, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let all: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mut tally = Tally::default();
    for scenario in all["scenarios"].as_array().ok_or("no scenarios")? {
        let id = scenario["id"].as_str().unwrap_or("?");
        let tags: BTreeSet<&str> =
            scenario["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if let Some(tag) = SKIPPED.into_iter().find(|tag| tags.contains(tag)) {
            *tally.skipped.entry(tag).or_default() += 1;
            if policy::read(&scenario["policy"]).is_ok_and(|(policy, _)| policy.check().is_ok()) {
                tally.failed.push(format!("{id}: is ill-formed, and not refused"));
            }
            continue;
        }
        match play(scenario) {
            Went::Equal(rounds) => {
                tally.scenarios += 1;
                tally.rounds += rounds;
            }
            Went::Refused => tally.refused += 1,
            Went::Failed(why) => tally.failed.push(format!("{id}: {why}")),
        }
    }
    Ok(tally)
}

/// Whether a parameter is a number that no rlaunch takes.
fn has_negative(value: &Value) -> bool {
    match value {
        Value::Number(n) => n.as_i64().is_some_and(|n| n < 0),
        Value::Array(all) => all.iter().any(has_negative),
        Value::Object(all) => all.values().any(has_negative),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn play(scenario: &Value) -> Went {
    let fixed = scenario.get("fixed_results").unwrap_or(&scenario["results"]);
    let Some(expected) = fixed.as_array() else { return Went::Failed("no results".into()) };
    let is_error = |result: &Value| result.get("error").is_some();
    let (policy, lists) = match policy::read(&scenario["policy"]) {
        Ok(read) => read,
        Err(_) if expected.first().is_some_and(is_error) || has_negative(&scenario["policy"]) => return Went::Refused,
        Err(why) => return Went::Failed(why),
    };
    let mut world = World::new(u32::try_from(scenario["world_size"].as_u64().unwrap_or_default()).unwrap_or_default());
    let rounds = scenario["rounds"].as_array().into_iter().flatten();
    let mut compared = 0;
    for (round, expected) in rounds.zip(expected) {
        // A list of lost ranks; or `{"join": …, "lost": …}`.
        let lost = policy::ranks(round.get("lost").unwrap_or(round));
        for initial in policy::ranks(&round["join"]) {
            if let Err(error) = world.join(initial) {
                return Went::Failed(format!("round {compared}: {error}"));
            }
        }
        let before = world.clone();
        match (assign(&policy, &mut world, &lost, &lists), is_error(expected)) {
            (Err(_), true) if world == before => return Went::Refused,
            (Err(error), true) => return Went::Failed(format!("round {compared}: {error}, and the world has changed")),
            (Ok(_), true) => return Went::Failed(format!("round {compared}: {} is expected", expected["error"])),
            (Err(error), false) => return Went::Failed(format!("round {compared}: {error}")),
            (Ok(outcome), false) => {
                let calls = scenario["call_terminated"] == true;
                if let Some(difference) = difference(expected, &described(&before, &world, &outcome, &lost, calls)) {
                    return Went::Failed(format!("round {compared}: {difference}"));
                }
            }
        }
        compared += 1;
    }
    Went::Equal(compared)
}

/// The world in the form of the vectors.
fn described(before: &World, world: &World, outcome: &Outcome, lost: &[Rank], calls: bool) -> Value {
    let lost: BTreeSet<usize> = lost.iter().filter_map(|rank| before.at(*rank)).map(Rank::index).collect();
    let discarded: BTreeSet<usize> = outcome.discarded.iter().map(|rank| rank.index()).collect();
    let mode = |(at, mode): (usize, Mode)| match mode {
        Mode::Initialized => 'N',
        Mode::Active => 'A',
        Mode::Inactive => 'I',
        Mode::Terminated if discarded.contains(&at) => 'D',
        Mode::Terminated if lost.contains(&at) => {
            if calls {
                'D'
            } else {
                'T'
            }
        }
        Mode::Terminated => 'X',
    };
    let number = |rank: Option<Rank>| rank.map(Rank::get);
    let mut described = json!({
        "world_size": world.size(),
        "active_world_size": world.active_size().filter(|_| world.size() > 0),
        "rank": world.members().iter().map(|member| number(member.rank)).collect::<Vec<_>>(),
        "active_rank": world.members().iter().map(|member| number(member.active_rank)).collect::<Vec<_>>(),
        "mode": world.members().iter().map(|member| member.mode).enumerate().map(mode).collect::<String>(),
    });
    if let (Some(misplaced), Some(fields)) = (outcome.misplaced, described.as_object_mut()) {
        fields.insert("topology_warnings".into(), misplaced.count.into());
    }
    described
}

/// The first difference from the expected value.
fn difference(expected: &Value, got: &Value) -> Option<String> {
    let names: BTreeSet<&String> =
        [expected, got].iter().filter_map(|value| value.as_object()).flat_map(|all| all.keys()).collect();
    let name = names.into_iter().find(|name| expected[name.as_str()] != got[name.as_str()])?;
    Some(format!("{name}: {} is expected, got {}", expected[name.as_str()], got[name.as_str()]))
}
