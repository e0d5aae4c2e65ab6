//! The characters of user and host names: one rule for lists and for the messages of ssh, so that a list that was read names hosts that
//! can be reached. No more than ssh takes, and nothing that the shell of a ProxyCommand takes for something else.

use core::net::Ipv6Addr;

/// An error in a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// The name is empty.
    Missing,
    /// ssh would take it for an option.
    Dash,
    /// A forbidden character, so many bytes into the name.
    Character(usize, char),
}

/// A user name: ssh gets it as a word of its own. Some are those of a directory: `eve@corp.example`, `CORP\eve`, `host$`.
pub(crate) fn user(name: &str) -> Result<(), Flaw> {
    let end = name.char_indices().next_back().map_or(0, |(at, _)| at);
    let fits = |at: usize, c: char| match c {
        '@' => at > 0 && at < end,
        // ssh refuses it at the end.
        '\\' => at < end,
        // Before anything else a shell would look for a variable.
        '$' => at == end && at > 0,
        c => c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'),
    };
    check(name, fits)
}

/// A host: a name, or an address without brackets.
pub(crate) fn host(name: &str) -> Result<(), Flaw> {
    if is_address(name) { Ok(()) } else { check(name, |_, c| is_of_host(c)) }
}

/// Whether a character may be in the name of a host.
pub(crate) const fn is_of_host(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// An IPv6 address, with or without a zone.
pub(crate) fn is_address(text: &str) -> bool {
    let (digits, zone) = text.split_once('%').unwrap_or((text, "0"));
    digits.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && zone.chars().all(is_of_host)
}

fn check(name: &str, fits: impl Fn(usize, char) -> bool) -> Result<(), Flaw> {
    match name.char_indices().find(|(at, c)| !fits(*at, *c)) {
        _ if name.is_empty() => Err(Flaw::Missing),
        _ if name.starts_with('-') => Err(Flaw::Dash),
        Some((at, c)) => Err(Flaw::Character(at, c)),
        None => Ok(()),
    }
}
