//! Options that other launchers have, or that later versions will have: each gets what to use here, instead of "unknown option".

use super::foreign::{FAMILIES, OPTIONS};
use rlaunch_base::nearest::nearest;

/// A such option.
#[derive(Debug)]
pub(super) struct Later {
    short: Option<u8>,
    names: &'static [&'static str],
    /// The present replacement.
    pub(super) hint: Option<&'static str>,
    /// When it asks for nothing but what happens anyway: then it is taken.
    pub(super) same: Option<Same>,
}

/// With which value an option changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Same {
    /// An option that takes no value.
    Flag,
    /// With any.
    Any,
    /// With one of these.
    Only(&'static [&'static str]),
    /// Without one, or with `=` and one of these.
    Attached(&'static [&'static str]),
}

impl Same {
    /// Whether this value is one of them.
    pub(super) fn allows(self, value: &[u8]) -> bool {
        match self {
            Self::Flag => false,
            Self::Any => true,
            Self::Only(words) | Self::Attached(words) => {
                words.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(value))
            }
        }
    }
}

pub(super) const fn later(short: Option<u8>, names: &'static [&'static str], hint: Option<&'static str>) -> Later {
    Later { short, names, hint, same: None }
}

/// An option that is accepted where it changes nothing; else the hint is given.
pub(super) const fn same(names: &'static [&'static str], same: Same, hint: Option<&'static str>) -> Later {
    Later { short: None, names, hint, same: Some(same) }
}

/// Words that users may try, and our own for them.
static MEANT: &[(&[&str], &str)] = &[
    (&["num-procs", "procs", "num-proc", "ranks", "nranks", "num-ranks", "processes"], "--np"),
    (&["nproc", "nprocs"], "--nproc-per-node N, the ranks of each host   or   -n N, all ranks"),
    (&["cwd", "workdir", "work-dir", "workingdir", "working-dir", "dir"], "--wdir"),
    (&["time-limit", "walltime"], "--timeout"),
    (
        &["config", "conf", "settings"],
        "RLAUNCH_GRACE=10s, a variable for each option   or   --configfile FILE, a file of programs",
    ),
    (&["restart", "restarts", "retries", "retry"], "--max-restarts"),
];

/// Our options for a word that is no option here, but easily meant.
pub(super) fn meant(name: &[u8]) -> Option<&'static str> {
    MEANT.iter().find(|(words, _)| words.iter().any(|word| word.as_bytes() == name)).map(|(_, own)| *own)
}

/// The same for a mistyped one.
pub(super) fn nearly_meant(name: &[u8]) -> Option<&'static str> {
    nearest(name, MEANT.iter().flat_map(|(words, _)| words.iter().copied())).and_then(|word| meant(word.as_bytes()))
}

static COMMANDS: &[&str] = &["attach", "kill", "logs", "ps", "replay", "top"];

/// Commands of FireWorks, another package whose program is called rlaunch.
static FIREWORKS: &[&str] = &["rapidfire", "singleshot"];

pub(super) fn by_name(name: &[u8]) -> Option<&'static Later> {
    let exact = OPTIONS.iter().find(|row| row.names.iter().any(|own| super::table::same(own, name)));
    let begins = |own: &&str| name.get(..own.len()).is_some_and(|begin| super::table::same(own, begin));
    exact.or_else(|| FAMILIES.iter().find(|row| row.names.iter().any(|own| name.len() > own.len() && begins(own))))
}

pub(super) fn by_letter(letter: u8) -> Option<&'static Later> {
    OPTIONS.iter().find(|row| row.short == Some(letter))
}

/// A first word that will be a command of rlaunch: refused now, so that no script comes to mean something else later.
pub(super) fn is_command(word: &[u8]) -> bool {
    COMMANDS.iter().any(|name| name.as_bytes() == word) || is_fireworks(word)
}

/// A first word that the rlaunch of FireWorks takes.
pub(super) fn is_fireworks(word: &[u8]) -> bool {
    FIREWORKS.iter().any(|name| name.as_bytes() == word)
}

#[cfg(test)]
pub(super) fn all_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().flat_map(|row| row.names.iter().copied())
}

#[cfg(test)]
pub(super) fn all_letters() -> impl Iterator<Item = u8> {
    OPTIONS.iter().filter_map(|row| row.short)
}
