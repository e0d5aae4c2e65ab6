//! Panics of what the program has given us: they are errors like any other.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs something; what it panicked with, as a text.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        match text {
            Some(text) => format!("panicked: {text}"),
            None => "panicked".to_owned(),
        }
    })
}
