//! What other launchers have, or later versions will, and this one does not: said so, instead of "unknown option".

/// One such option.
#[derive(Debug)]
pub(super) struct Later {
    short: Option<u8>,
    names: &'static [&'static str],
    /// What does the same now.
    pub(super) hint: Option<&'static str>,
}

const fn later(short: Option<u8>, names: &'static [&'static str], hint: Option<&'static str>) -> Later {
    Later { short, names, hint }
}

const DEFAULT: Option<&str> = Some("leave it out: ranks run wherever the kernel puts them");
const TRAVELS: Option<&str> = Some("leave it out: the whole environment travels; -x VAR=VALUE changes it");

static OPTIONS: &[Later] = &[
    later(None, &["node-rank"], Some("leave it out: one rlaunch starts the ranks of all hosts")),
    later(None, &["rankmap", "distribution"], Some("--map-by slot|node   or   --rank-by slot|node")),
    later(None, &["bind-to", "cpu-bind", "gpu-bind", "nic-bind", "numa-binding", "report-bindings"], DEFAULT),
    later(None, &["oversubscribe", "allow-run-as-root", "standalone"], Some("leave it out: it is not needed")),
    later(
        None,
        &["rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf"],
        Some("leave it out: ranks of one job find each other"),
    ),
    later(None, &["master-addr", "master-port"], Some("-x MASTER_PORT=PORT")),
    later(None, &["genvall", "genvnone", "genvlist", "envall", "envnone", "envlist", "unset-env"], TRAVELS),
    later(None, &["mca", "gmca", "pmixmca", "prtemca"], Some("-x OMPI_MCA_name=value")),
    later(None, &["log-dir", "output", "outfile-pattern", "errfile-pattern", "redirects", "tee"], None),
    later(None, &["fold", "max-restarts", "monitor-interval", "exit-code", "show-config", "as"], None),
    later(None, &["multi-prog", "app", "configfile", "suspend-limit", "enable-recovery", "launcher", "tier"], None),
];

static COMMANDS: &[&str] = &[
    "assign",
    "attach",
    "clean",
    "completions",
    "doctor",
    "kill",
    "logs",
    "man",
    "pool",
    "ps",
    "replay",
    "report",
    "store",
    "top",
];

pub(super) fn by_name(name: &[u8]) -> Option<&'static Later> {
    OPTIONS.iter().find(|row| row.names.iter().any(|own| super::table::same(own, name)))
}

pub(super) fn by_letter(letter: u8) -> Option<&'static Later> {
    OPTIONS.iter().find(|row| row.short == Some(letter))
}

/// A first word that will be a command of rlaunch: refused now, so that no script comes to mean something else later.
pub(super) fn is_command(word: &[u8]) -> bool {
    COMMANDS.iter().any(|name| name.as_bytes() == word)
}

#[cfg(test)]
pub(super) fn all_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().flat_map(|row| row.names.iter().copied())
}

#[cfg(test)]
pub(super) fn all_letters() -> impl Iterator<Item = u8> {
    OPTIONS.iter().filter_map(|row| row.short)
}
