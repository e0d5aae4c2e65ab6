//! Messages about hosts that are about to be taken away.

use super::log_view::Line;
use super::{Tone, phrases};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::time::WallNs;
use rlaunch_core::warnings::{Response, WarningNote, WarningSource};

/// A host was warned.
pub(super) fn warned(host: &OsBytes, source: WarningSource, response: Response) -> String {
    let what = match response {
        Response::Drains => "the restart continues without its ranks".to_owned(),
        Response::Ends(grace) => format!("sent SIGTERM to all ranks, SIGKILL in {}", phrases::wait(grace)),
        Response::Noted => "it gets no other ranks".to_owned(),
    };
    format!("{host} is about to be taken away ({source}); {what}")
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
