//! Python's output: it must be visible when it is written, and must not be lost if the rank is killed.

use super::block::Sink;
use super::{Contract, Role, Var};

pub(super) const CONTRACT: Contract = Contract {
    title: "Python",
    about: "Python keeps up to 8 KiB of output in memory before it writes to a pipe. A rank that is killed loses that \
            output.",
    vars: &[Var::new(
        "PYTHONUNBUFFERED",
        Role::Default,
        "`1`: Python writes at once. `-x PYTHONUNBUFFERED=` restores the buffer, for programs with many small \
             writes.",
    )],
    families: &[],
};

pub(super) fn common(out: &mut Sink<'_>) {
    out.number("PYTHONUNBUFFERED", 1);
}
