//! Words: what the values of `rlaunch_core::report` look like on stderr. Rendering is pure. Its facts about the surroundings (a file that
//! is nearly called like the missing program) are looked up before, in [`around`].

pub(crate) mod assign;
pub(crate) mod binding;
mod carrier_messages;
mod device_messages;
pub(crate) mod hook_messages;
mod host_messages;
mod launch;
pub(crate) mod log_view;
mod lost;
pub(crate) mod map;
mod mpi_messages;
pub(crate) mod notices;
pub(crate) mod path_search;
pub(crate) mod phrases;
mod preemption;
pub(crate) mod progress;
mod remark;
pub(crate) mod report;
mod round_messages;
mod slice_messages;
mod store_messages;
pub(crate) mod timeline;

/// How much rlaunch says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Tone {
    /// `-q`: failures only.
    Quiet,
    /// Neither.
    Normal,
    /// `-v`.
    Verbose,
}
