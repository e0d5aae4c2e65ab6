//! What other launchers have, or later versions will, and this one does not: said so, instead of "unknown option".

/// One such option.
#[derive(Debug)]
pub(super) struct Later {
    short: Option<u8>,
    names: &'static [&'static str],
    /// What does the same now.
    pub(super) hint: Option<&'static str>,
    /// When it asks for nothing but what happens anyway: then it is taken.
    pub(super) same: Option<Same>,
}

/// With which value an option changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Same {
    /// It has none.
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

const fn later(short: Option<u8>, names: &'static [&'static str], hint: Option<&'static str>) -> Later {
    Later { short, names, hint, same: None }
}

/// One that is taken where it changes nothing; else the hint is given.
const fn same(names: &'static [&'static str], same: Same, hint: Option<&'static str>) -> Later {
    Later { short: None, names, hint, same: Some(same) }
}

const DEFAULT: Option<&str> = Some("leave it out: ranks run wherever the kernel puts them");
const TRAVELS: Option<&str> = Some("leave it out: the whole environment travels; -x VAR=VALUE changes it");
const SHOWN: Option<&str> = Some("rlaunch map ... shows where ranks run");
const LABELS: Option<&str> = Some("-l   or   --prefix FMT");
const GOES_ON: Option<&str> = Some("--on-failure continue");

/// torchrun's default, and what its documentation adds to it for Slurm: ranks get all of them.
const SIGNALS: &[&str] = &[
    "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
    "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
];

static OPTIONS: &[Later] = &[
    same(&["oversubscribe", "allow-run-as-root", "standalone", "run-path", "use-env"], Same::Flag, None),
    same(&["unbuffered", "enable-auto-cleanup", "genvall", "envall"], Same::Flag, None),
    // Ranks of one job find each other, and are not polled.
    same(&["rdzv-backend", "rdzv-endpoint", "rdzv-conf", "monitor-interval"], Same::Any, None),
    same(
        &["bind-to", "cpu-bind", "mem-bind", "gpu-bind", "nic-bind", "numa-binding"],
        Same::Only(&["none", "no"]),
        DEFAULT,
    ),
    same(&["node-rank"], Same::Only(&["0"]), Some("leave it out: one rlaunch starts the ranks of all hosts")),
    same(&["mpi"], Same::Only(&["none"]), Some("--mpi none, or leave it out")),
    same(&["launcher", "bootstrap"], Same::Only(&["ssh"]), Some("leave it out: other hosts are reached by ssh")),
    same(&["distribution"], Same::Only(&["block"]), Some("--map-by slot|node   or   --rank-by slot|node")),
    same(&["kill-on-bad-exit"], Same::Attached(&["1"]), GOES_ON),
    later(None, &["rankmap"], Some("--map-by slot|node   or   --rank-by slot|node")),
    later(None, &["nooversubscribe", "no-oversubscribe"], Some("--strict")),
    later(None, &["report-bindings", "display-map", "display-allocation", "print-rank-map"], SHOWN),
    later(None, &["display"], SHOWN),
    later(None, &["do-not-launch", "test-only", "dryrun"], Some("--dry-run")),
    later(None, &["pernode"], Some("--ppn 1")),
    later(Some(b'c'), &["cpus-per-task", "cpus-per-proc"], DEFAULT),
    later(None, &["prepend-rank", "prepend-pattern"], LABELS),
    later(None, &["output"], LABELS),
    later(None, &["enable-recovery", "disable-auto-cleanup", "no-kill"], GOES_ON),
    same(&["start-method"], Same::Only(&["spawn", "fork", "forkserver"]), None),
    same(&["event-log-handler"], Same::Only(&["null"]), Some("--events FILE")),
    same(&["logs-specs"], Same::Only(&["default"]), Some("--log-dir DIR -r 3   or   --log-dir DIR -t 3")),
    same(&["signals-to-handle"], Same::Only(SIGNALS), Some("leave it out: docs/signals.md lists what ranks get")),
    later(None, &["local-addr"], Some("--interface NAME, if other hosts find rank 0 at a wrong address")),
    later(None, &["log-line-prefix-template"], Some("--prefix FMT   with %r rank, %l local rank, %h host")),
    later(None, &["duplicate-stdout-filters", "duplicate-stderr-filters"], Some("-t 3, and grep in the files")),
    later(None, &["virtual-local-rank"], Some("--gpus-per-rank 1, where LOCAL_RANK stays and the device is 0")),
    later(None, &["genvnone", "genvlist", "envnone", "envlist", "unset-env"], TRAVELS),
    later(None, &["mca", "gmca", "pmixmca", "prtemca"], Some("-x OMPI_MCA_name=value")),
    later(None, &["outfile-pattern", "errfile-pattern"], Some("--log-dir DIR -r 3   or   --log-dir DIR -t 3")),
    later(None, &["fold", "exit-code", "show-config", "as"], None),
    later(None, &["multi-prog", "app", "configfile", "suspend-limit", "tier"], None),
];

/// Words that somebody may try, and our own for them.
static MEANT: &[(&[&str], &str)] = &[
    (&["nprocs", "nproc", "num-procs", "procs", "num-proc", "ranks", "nranks", "num-ranks", "processes"], "np"),
    (&["cwd", "workdir", "work-dir", "workingdir", "working-dir", "dir"], "wdir"),
    (&["time", "time-limit", "walltime"], "timeout"),
];

/// Our word for one that is nobody's option here, but easily meant.
pub(super) fn meant(name: &[u8]) -> Option<&'static str> {
    MEANT.iter().find(|(words, _)| words.iter().any(|word| word.as_bytes() == name)).map(|(_, own)| *own)
}

static COMMANDS: &[&str] =
    &["attach", "clean", "completions", "kill", "logs", "man", "pool", "ps", "replay", "report", "top"];

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
