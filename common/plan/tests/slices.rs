//! The slices that a job takes, and when it may grow, beside what is expected.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test stops at what it did not expect"
)]
#![allow(clippy::disallowed_methods, reason = "reads a file of expected results")]

use rlaunch_base::time::Span;
use rlaunch_plan::slices::{Choice, Growth, Sizes, SlotId, choose, growth};
use serde_json::{Value, json};

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/tpu/sizes.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

#[test]
fn start_takes_waits_or_fails_as_the_vectors_have_it() {
    let all = golden();
    let cases = all["start"].as_array().unwrap();
    assert!(cases.len() >= 12);
    for case in cases {
        let valid = numbers(&case["valid"]);
        let up: Vec<SlotId> =
            numbers(&case["up"]).into_iter().map(|slot| SlotId::new(u32::try_from(slot).unwrap())).collect();
        let is_expired = case["deadline_passed"].as_bool().unwrap();
        let answer = match Sizes::new(&valid, number(&case["slots"])) {
            Err(_) => json!({ "refused": "usage" }),
            Ok(sizes) => match choose(&sizes, &up, &[], is_expired) {
                Choice::Take(slots) => json!({ "take": slots.iter().map(|slot| slot.get()).collect::<Vec<_>>() }),
                Choice::Wait => json!({ "wait": true }),
                Choice::TooFew { up } => json!({ "failed": { "asked": valid, "up": up } }),
            },
        };
        assert_eq!(answer, case["answer"], "{case}");
    }
}

#[test]
fn job_grows_as_the_vectors_have_it() {
    let all = golden();
    let cases = all["grow"].as_array().unwrap();
    assert!(cases.len() >= 6);
    for case in cases {
        let sizes = Sizes::new(&numbers(&case["valid"]), 99).unwrap();
        let since = Span::from_secs(number(&case["seconds_since_last_start_or_change"]).into());
        let answer = match growth(&sizes, number(&case["running"]), number(&case["up"]), since) {
            Growth::To(size) => json!(size),
            Growth::NotYet => json!("not yet"),
            Growth::No => json!("no"),
        };
        assert_eq!(answer, case["answer"], "{case}");
    }
}

#[test]
fn choice_among_1024_slots_takes_at_most_a_millisecond() {
    let sizes = Sizes::new(&[256, 512, 1000], 1024).unwrap();
    let before: Vec<SlotId> = (0..1000).map(SlotId::new).collect();
    let up: Vec<SlotId> = (0..1024).filter(|n| n % 50 != 7).map(SlotId::new).collect();
    let times: Vec<u128> = (0..20)
        .map(|_| {
            let begin = std::time::Instant::now();
            let choice = choose(&sizes, &up, &before, false);
            let micros = begin.elapsed().as_micros();
            assert!(matches!(choice, Choice::Take(_)), "{choice:?}");
            micros
        })
        .collect();
    assert!(times.iter().min().unwrap() <= &1000, "{times:?}");
}
