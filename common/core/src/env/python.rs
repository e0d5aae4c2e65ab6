//! Python's output: it must be visible when it is written, and must not be lost if the rank is killed.

use super::block::Sink;
use super::{Anew, Contract, Role, Var};

pub(super) const CONTRACT: Contract = Contract {
    title: "Python",
    about: "Python holds back up to 8 KiB of its output into a pipe. A rank that is killed loses them.",
    vars: &[Var {
        name: "PYTHONUNBUFFERED",
        role: Role::Default,
        doc: "`1`: Python writes at once. Set it to nothing (`-x PYTHONUNBUFFERED=`) for a program that writes much in small pieces.",
        anew: Anew::Never,
    }],
    families: &[],
};

pub(super) fn common(out: &mut Sink<'_>) {
    out.number("PYTHONUNBUFFERED", 1);
}
