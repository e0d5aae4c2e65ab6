//! The lock file of libtpu, where it is in the way.

use super::block::Sink;
use super::{Contract, Role, Var};

pub(super) const CONTRACT: Contract = Contract {
    title: "libtpu's lock file",
    about: "Set on hosts with TPU chips if the lock file belongs to another user or is not a file. libtpu would fail there.",
    vars: &[Var::new("ALLOW_MULTIPLE_LIBTPU_LOAD", Role::Default, "`1`: libtpu does not lock its lock file.")],
    families: &[],
};

pub(super) fn common(out: &mut Sink<'_>) {
    out.number("ALLOW_MULTIPLE_LIBTPU_LOAD", 1);
}
