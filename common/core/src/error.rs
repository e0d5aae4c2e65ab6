//! What every error of rlaunch can add beside its message: the line that says what to try.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt::Display;

/// The "try" line of an error. It is never part of `Display`, so that messages can be nested without repeating advice.
pub trait Hint {
    /// What the user can do about it, if we know.
    fn hint(&self) -> Option<Cow<'static, str>>;
}

/// An error and its "try" line as one sentence, where there is no other place for it.
pub(crate) fn hinted<E: Hint + Display>(error: &E) -> String {
    error.hint().map_or_else(|| error.to_string(), |hint| format!("{error} (try: {hint})"))
}
