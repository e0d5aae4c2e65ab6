//! Names of the commands.

use rlaunch_base::nearest::nearest;

/// All of them, in the order of `rlaunch --help`.
pub(crate) const NAMES: [&str; 13] = [
    "run",
    "map",
    "doctor",
    "pool",
    "hosts",
    "report",
    "assign",
    "store",
    "clean",
    "completions",
    "man",
    "help",
    "version",
];

/// The command that a word was probably meant as.
pub(crate) fn like(word: &[u8]) -> Option<&'static str> {
    nearest(word, NAMES.into_iter())
}
