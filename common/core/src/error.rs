//! What every error of rlaunch can add beside its message: the line that says what to try.

use alloc::borrow::Cow;

/// The "try" line of an error. It is never part of `Display`, so that messages can be nested without repeating advice.
pub trait Hint {
    /// What the user can do about it, if we know.
    fn hint(&self) -> Option<Cow<'static, str>>;
}
