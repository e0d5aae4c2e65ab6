//! Values of options: each is understood completely or refused with what would have been.

use super::errors::CliError;
use super::nearest::nearest;
use super::table::{JOB, Takes};
use rlaunch_base::duration;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// How the caller's environment is asked.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The value of a variable that stands for an option; set but empty is not set.
pub(super) fn variable(env: Lookup<'_>, name: &str) -> Option<OsBytes> {
    env(name).map(|value| OsBytes::new(value.into_vec())).filter(|value| !value.is_empty())
}

/// A whole number from 1 to `most`.
pub(super) fn count(option: &OsBytes, value: &OsBytes, most: u32) -> Result<u32, CliError> {
    let refuse = |takes: String, hint: String| {
        Err(CliError::Value {
            option: option.clone(),
            takes: takes.into(),
            got: value.clone(),
            hint: Some(hint.into()),
        })
    };
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value).ok().filter(|_| digits).map(str::parse::<u32>);
    match number {
        Some(Ok(number)) if (1..=most).contains(&number) => Ok(number),
        Some(Ok(0)) | None => refuse("a whole number above 0".into(), spell(option, "4")),
        Some(_) => refuse(format!("at most {most}"), "a smaller number".into()),
    }
}

/// The same, or 0.
pub(super) fn count_or_none(option: &OsBytes, value: &OsBytes, most: u32) -> Result<u32, CliError> {
    if value.as_slice() == b"0" {
        return Ok(0);
    }
    count(option, value, most).map_err(|error| match error {
        CliError::Value { option, takes: Cow::Owned(takes), got, hint } if takes.ends_with(" above 0") => {
            CliError::Value { option, takes: "a whole number".into(), got, hint }
        }
        error => error,
    })
}

/// The option, or the variable that stands for it, with a value.
pub(super) fn spell(option: &OsBytes, value: &str) -> String {
    // As a word of its own, a value that may be left out would be the program.
    let takes_maybe = |name: &[u8]| JOB.by_name(name).is_some_and(|row| matches!(row.takes, Takes::Maybe(_)));
    let is_apart = option.starts_with(b"-") && !option.strip_prefix(b"--").is_some_and(takes_maybe);
    let between = if is_apart { ' ' } else { '=' };
    format!("{option}{between}{value}")
}

/// One of a few words.
pub(super) fn choice<T: Copy>(option: &OsBytes, value: &OsBytes, words: &[(&'static str, T)]) -> Result<T, CliError> {
    if let Some((_, chosen)) = words.iter().find(|(word, _)| value.eq_ignore_ascii_case(word.as_bytes())) {
        return Ok(*chosen);
    }
    let names: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
    let takes = match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    };
    let meant = nearest(value, names.iter().copied()).or(names.first().copied()).unwrap_or_default();
    Err(CliError::Value {
        option: option.clone(),
        takes: takes.into(),
        got: value.clone(),
        hint: Some(spell(option, meant).into()),
    })
}

/// A length of time that is not shorter than `least`.
pub(super) fn span_from(option: &OsBytes, value: &OsBytes, least: Span) -> Result<Span, CliError> {
    let span = span(option, value)?;
    if span >= least {
        return Ok(span);
    }
    let least = least.to_string();
    Err(CliError::Value {
        option: option.clone(),
        takes: format!("{}, at least {least}", duration::TAKES).into(),
        got: value.clone(),
        hint: Some(spell(option, &least).into()),
    })
}

/// A length of time.
pub(super) fn span(option: &OsBytes, value: &OsBytes) -> Result<Span, CliError> {
    duration::parse(value).ok_or_else(|| CliError::Value {
        option: option.clone(),
        takes: duration::TAKES.into(),
        got: value.clone(),
        hint: Some(spell(option, "90s").into()),
    })
}
