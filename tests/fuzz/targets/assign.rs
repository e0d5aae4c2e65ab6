//! Policies as words and as files, and any losses: an error that fits a terminal, or ranks that are numbered 0 to n - 1.
#![no_main]
#![allow(dead_code, reason = "the launcher's own module, of which not all is used here")]

#[path = "../../../launcher/src/cli/assign/file.rs"]
mod file;

use libfuzzer_sys::fuzz_target;
use rlaunch_base::error::Hint as _;
use rlaunch_base::id::Rank;
use rlaunch_plan::rank_assign::{Keys, Numbers, Policy, Source, World, assign, parse};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// Four ranks share whatever is asked for.
struct Fours;

impl Keys for Fours {
    fn value(&self, _source: &Source, who: Numbers) -> Option<Cow<'_, str>> {
        Some((who.initial.get() / 4).to_string().into())
    }
}

fn for_a_terminal(text: &str) {
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "a terminal must not see {text:?}");
}

/// Each byte loses a rank; one above 0xf0 begins a round.
fn play(policy: &Policy, losses: &[u8]) {
    let mut world = World::new(24);
    for round in losses.split(|b| *b > 0xf0).take(64) {
        let lost: Vec<Rank> =
            round.iter().filter_map(|n| u32::from(*n).checked_rem(world.size())).map(Rank::new).collect();
        if let Err(error) = assign(policy, &mut world, &lost, &Fours) {
            return for_a_terminal(&format!("{error}{}", error.hint().unwrap_or_default()));
        }
        let mut ranks: Vec<Rank> = world.members().iter().filter_map(|member| member.rank).collect();
        ranks.sort_unstable();
        assert!(ranks.iter().map(|rank| rank.get()).eq(0..world.size()));
        let mut active: Vec<Rank> = world.members().iter().filter_map(|member| member.active_rank).collect();
        active.sort_unstable();
        assert!(active.iter().map(|rank| rank.get()).eq(0..world.active_size().unwrap_or_default()));
        if let Some(initial) = (0..24).map(Rank::new).find(|initial| world.join(*initial).is_ok()) {
            assert!(world.members()[initial.index()].rank.is_some());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |b| *b == 0);
    let (text, losses) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return };
    let start = Instant::now();
    match kind {
        b'w' => match parse::policy(text) {
            Ok(policy) => {
                assert_eq!(parse::policy(&policy.to_string()).as_ref(), Ok(&policy));
                for_a_terminal(&policy.to_string());
                play(&policy, losses);
            }
            Err(error) => for_a_terminal(&format!("{error}{}", error.hint().unwrap_or_default())),
        },
        b'f' => match file::policy(text) {
            Ok(policy) => play(&policy, losses),
            Err(fault) => for_a_terminal(&format!("{}{}", fault.what, fault.hint.unwrap_or_default())),
        },
        _ => {}
    }
    assert!(start.elapsed() < Duration::from_secs(2), "this took for ever");
});
