//! The meaning of an answer.

use super::maintenance::{self, Planned};
use super::{Answer, Key};
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::WallNs;

/// Longest word that is worth a note.
const LONGEST_WORD: usize = 64;

/// The meaning of an answer for the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reading {
    /// Nothing is about to happen to the host.
    Well,
    /// The host is about to be taken away.
    Warning,
    /// A service of the host is planned. The host is taken away then at the earliest.
    Planned(WallNs),
    /// A word that rlaunch does not know. Nothing follows from it.
    Unknown(OsBytes),
    /// The server has no usable value now.
    None,
}

impl Reading {
    /// The meaning of an answer with the status 200 or 404.
    pub(super) fn of(key: Key, answer: &Answer) -> Self {
        if answer.status != 200 {
            return Self::None;
        }
        let Some(text) = core::str::from_utf8(&answer.body).ok().map(str::trim) else { return Self::None };
        match key {
            Key::Preempted if text.eq_ignore_ascii_case("FALSE") => Self::Well,
            Key::Preempted if text.eq_ignore_ascii_case("TRUE") => Self::Warning,
            // A machine that moves while it runs is paused for less than a second.
            Key::MaintenanceEvent if matches!(text, "NONE" | "MIGRATE_ON_HOST_MAINTENANCE") => Self::Well,
            Key::MaintenanceEvent if text == "TERMINATE_ON_HOST_MAINTENANCE" => Self::Warning,
            Key::Preempted | Key::MaintenanceEvent => word(text),
            Key::UpcomingMaintenance => match maintenance::parse(text) {
                Some(Planned::At(start)) => Self::Planned(start),
                Some(Planned::Ongoing) => Self::Warning,
                None => word(text),
            },
        }
    }
}

/// A word that is not known. Other texts, such as a page of HTML, are no value of the server.
fn word(text: &str) -> Reading {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if (1..=LONGEST_WORD).contains(&text.len()) && text.bytes().all(is_word) {
        Reading::Unknown(OsBytes::from(text))
    } else {
        Reading::None
    }
}

/// The text of an attribute; `None`: the host has none.
#[must_use]
pub fn read_attribute(answer: Answer) -> Option<String> {
    let body: Option<Vec<u8>> = (answer.status == 200).then_some(answer.body);
    String::from_utf8(body?).ok()
}
