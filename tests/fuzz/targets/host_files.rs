//! Files of /proc and of cgroups, and names of core files: parsed from any bytes, soon.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_sys::facts::fuzzing;
use std::time::{Duration, Instant};

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |b| *b == 0);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let start = Instant::now();
    match kind {
        b'm' => fuzzing::memory_cgroups(first, second),
        b'f' => fuzzing::counter(first, second),
        // The kernel keeps patterns of 127 bytes, file systems names of 255.
        b'c' => fuzzing::core_file(first.get(..127).unwrap_or(first), second.get(..255).unwrap_or(second)),
        b's' => fuzzing::process(first),
        _ => {}
    }
    assert!(start.elapsed() < Duration::from_secs(2), "this took for ever");
});
