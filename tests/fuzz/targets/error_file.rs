//! A rank's error file: written by any program, shown in one line of the report.
#![no_main]
#![allow(dead_code, reason = "the launcher's own modules, of which not all is used here")]

#[path = "../../../launcher/src/command_names.rs"]
mod command_names;
#[path = "../../../launcher/src/view/mod.rs"]
mod view;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(text) = view::report::message(data) {
        assert!(!text.chars().any(char::is_control), "a terminal must not see {text:?}");
    }
});
