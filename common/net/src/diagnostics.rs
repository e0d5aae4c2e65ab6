//! Diagnostics for us, off by default. Both ends of an edge write them the same way.
//!
//! `tracing-subscriber` reads a filter too, but takes any word for the name of a target: a typing error would show nothing
//! and say nothing.

use std::io;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The modules with diagnostics.
const TARGETS: [&str; 3] = ["rlaunch", "rlaunch_agent", "rlaunch_net"];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The values of a filter, for messages.
#[must_use]
pub fn takes() -> String {
    format!("LEVEL or TARGET=LEVEL, separated by commas; LEVEL: {}; TARGET: {}", LEVELS.join(", "), TARGETS.join(", "))
}

/// A filter, divided into what can be followed and what cannot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Directives that mean something, as they were written.
    pub right: String,
    /// Words without a meaning.
    pub wrong: Vec<String>,
}

/// Reads a filter.
#[must_use]
pub fn read(filter: &[u8]) -> Filter {
    let mut read = Filter::default();
    let text = String::from_utf8_lossy(filter);
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        if directive(word).is_none() {
            read.wrong.push(word.to_owned());
            continue;
        }
        if !read.right.is_empty() {
            read.right.push(',');
        }
        read.right.push_str(word);
    }
    read
}

/// Writes diagnostics to stderr from now on. Directives that mean nothing are left out.
pub fn start(filter: &[u8]) {
    let text = String::from_utf8_lossy(filter);
    let targets =
        text.split(',').filter_map(|word| directive(word.trim())).fold(Targets::new(), |targets, one| match one {
            (None, level) => targets.with_default(level),
            (Some(target), level) => targets.with_target(target, level),
        });
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false);
    // It can only have been started before; then it stays as it was.
    let _started = tracing_subscriber::registry().with(lines).with(targets).try_init();
}

/// `LEVEL`, `TARGET=LEVEL`, or `TARGET` for all that it says.
fn directive(word: &str) -> Option<(Option<&str>, LevelFilter)> {
    let level =
        |word: &str| LEVELS.iter().any(|own| own.eq_ignore_ascii_case(word)).then(|| word.parse().ok()).flatten();
    let target = |word: &str| TARGETS.contains(&word.split("::").next().unwrap_or_default());
    match word.split_once('=') {
        Some((name, word)) if target(name) => level(word).map(|level| (Some(name), level)),
        Some(_) => None,
        None if target(word) => Some((Some(word), LevelFilter::TRACE)),
        None => level(word).map(|level| (None, level)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_that_means_nothing_is_named() {
        for right in ["debug", "TRACE", "off", "rlaunch_agent=debug", "rlaunch::edges=trace,warn", "rlaunch_net"] {
            assert_eq!(read(right.as_bytes()), Filter { right: right.into(), wrong: vec![] });
        }
        for wrong in
            ["nonsense", "debgu", "tokio=debug", "rlaunch_agent=loud", "rlaunch_agent=", "=debug", "7", "rlaunchx"]
        {
            assert_eq!(read(wrong.as_bytes()), Filter { right: String::new(), wrong: vec![wrong.into()] });
        }
        let mixed = read(b" nonsense, debug,,rlaunch_net=no,rlaunch=info");
        assert_eq!(mixed.right, "debug,rlaunch=info");
        assert_eq!(mixed.wrong, ["nonsense", "rlaunch_net=no"]);
    }
}
