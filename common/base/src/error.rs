//! The line with advice that every error of rlaunch can add beside its message.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt::Display;

/// The "try" line of an error. It is never part of `Display`, so that messages can be nested without repeating advice.
pub trait Hint {
    /// The advice for the user, if there is any.
    fn hint(&self) -> Option<Cow<'static, str>>;
}

/// An error and its "try" line as one sentence, where there is no other place for it.
pub fn hinted<E: Hint + Display>(error: &E) -> String {
    error.hint().map_or_else(|| error.to_string(), |hint| format!("{error} (try: {hint})"))
}
