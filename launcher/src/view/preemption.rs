//! Messages about hosts that are about to be taken away.

use super::log_view::Line;
use super::{Tone, phrases};
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::WallNs;
use rlaunch_base::warnings::{Response, WarningNote, WarningSource};
use rlaunch_core::events::NoRestart;

/// A host was warned.
pub(super) fn warned(host: &OsBytes, source: WarningSource, response: Response) -> String {
    let what = match response {
        Response::Drains => "the restart continues without its ranks".to_owned(),
        Response::Ends { grace } => format!("sent SIGTERM to all ranks, SIGKILL in {}", phrases::wait(grace)),
        Response::Noted => "it gets no other ranks".to_owned(),
    };
    format!("{host} is about to be taken away ({source}); {what}")
}

/// Ranks are not started again after a host was warned or lost.
pub(super) fn not_started_again(why: &NoRestart) -> String {
    let why = match why {
        NoRestart::NoRetries => "--preempt-retries is 0".to_owned(),
        NoRestart::UsedUp => "all --preempt-retries are used up".to_owned(),
        NoRestart::OwnHost => "rlaunch itself runs on this host".to_owned(),
        NoRestart::NoLimit { hosts, of, ranks } => {
            format!("{hosts} of {of} hosts remain; give --min-world {ranks}")
        }
        NoRestart::TooFew { hosts, of, ranks } => {
            format!("{hosts} of {of} hosts remain, with {ranks} ranks; too few for --min-world or --min-active")
        }
        NoRestart::Slices { reason: error } => {
            let hint = error.hint().map_or_else(String::new, |hint| format!("\n  try     {hint}"));
            format!("{error}{hint}")
        }
    };
    format!("not started again: {why}")
}

/// A fact about the near future of a host.
pub(super) fn note(host: &OsBytes, note: &WarningNote) -> Line {
    match note {
        WarningNote::Planned(start) => (Tone::Normal, format!("a service of {host} is planned for {}", utc(*start))),
        WarningNote::NoProbe(code) => (
            Tone::Normal,
            format!("the command of --preempt-probe cannot run on {host} (exit code {code} of sh); try a full path"),
        ),
        WarningNote::Unknown { path, word } => {
            (Tone::Normal, format!("the metadata server of {host} has an unknown value of {path}: {word}"))
        }
    }
}

/// Seconds since 1970, as `date -d @SECONDS` reads them.
fn utc(at: WallNs) -> String {
    format!("@{} (date -d shows it)", at.0 / 1_000_000_000)
}
