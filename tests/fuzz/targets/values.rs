//! Values of options: lengths of time, prefixes, exports, patterns, and any bytes made visible.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_core::duration;
use rlaunch_core::env::{Export, base};
use rlaunch_core::error::Hint as _;
use rlaunch_core::id::{AppIndex, LocalRank, Rank, Std};
use rlaunch_core::os_bytes::{OsBytes, Visible};
use rlaunch_core::stream::label::{MAX_LABEL, Prefix, Who};
use std::time::{Duration, Instant};

fn prefix(format: &[u8]) {
    match Prefix::parse(format) {
        Ok(prefix) => {
            for host in [None, Some(&b"a-host"[..]), Some(&[0xff; 300])] {
                let ids = (Rank::new(u32::MAX), LocalRank::new(7), AppIndex::new(0));
                let (rank, local_rank, app) = ids;
                let who = Who { rank, local_rank, app, host, pid: Some(1), std: Std::Err };
                if let Ok(label) = prefix.render(&who) {
                    assert!(label.as_slice().len() <= MAX_LABEL);
                }
            }
        }
        Err(error) => drop(format!("{error}{}", error.hint().unwrap_or_default())),
    }
}

/// Exports against an environment, none of which may take long.
fn exports(data: &[u8]) {
    let mut words = data.split(|b| *b == b'\n');
    let export = words.next().map(Export::parse);
    if let Some(Err(error)) = &export {
        drop(format!("{error}{}", error.hint().unwrap_or_default()));
    }
    let exports: Vec<Export> = export.into_iter().flatten().collect();
    let start = Instant::now();
    drop(base(words, &exports));
    assert!(start.elapsed() < Duration::from_secs(2), "a pattern that takes for ever");
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind {
        b'd' => {
            if let Some(span) = duration::parse(rest) {
                drop(span.to_string());
            }
        }
        b'p' => prefix(rest),
        b'x' => exports(rest),
        b'v' => {
            let shown = format!("{}{}", Visible(rest), OsBytes::from(rest));
            assert!(!shown.chars().any(char::is_control), "a terminal must not see {shown:?}");
        }
        _ => {}
    }
});
