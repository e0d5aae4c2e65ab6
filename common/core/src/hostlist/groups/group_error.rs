//! Why a group of hosts cannot be looked up.

use crate::error::Hint;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Most names that are listed.
const NAMED: usize = 8;

/// Why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupFault {
    /// No groups are configured.
    #[error("no groups are set up here: there is no {}", .looked.join(", "))]
    NoConfiguration {
        /// The files, in the order in which they count.
        looked: Vec<String>,
    },
    /// A file that cannot be understood.
    #[error("{place}: {why}")]
    Configuration {
        /// The file, and its line.
        place: String,
        /// The error.
        why: String,
    },
    /// No such source.
    #[error("{configuration} has no source of groups called '{source_name}'")]
    NoSource {
        /// The source that was asked for.
        source_name: String,
        /// The group that was asked for, after the colon.
        group: String,
        /// The files that were searched.
        configuration: String,
        /// The known ones.
        known: Vec<String>,
    },
    /// Files, but no source in them.
    #[error("{configuration} has no source of groups")]
    Empty {
        /// The files that were searched.
        configuration: String,
    },
    /// The source has no such group, by its own answer.
    #[error("{place} has no group '{group}'")]
    Unknown {
        /// The group that was asked for.
        group: String,
        /// The source, and where it is.
        place: String,
        /// Groups that it has, as they are asked for.
        known: Vec<String>,
    },
    /// A command that has said nothing: a group without hosts, or no group.
    #[error("{place} says nothing of it: it is unknown there, or has no hosts now (`{command}` printed nothing)")]
    Nothing {
        /// The source, and where it is.
        place: String,
        /// The command that ran.
        command: String,
        /// How to see its groups, if it can tell.
        list: Option<String>,
    },
    /// A command that failed.
    #[error("{place}: `{command}` {why}")]
    Command {
        /// The source, and where it is.
        place: String,
        /// The command that ran.
        command: String,
        /// Its outcome.
        why: String,
    },
    /// `@source:*`
    #[error("{place} cannot tell all its hosts: it has neither 'all' nor 'list'")]
    NoAll {
        /// The source, and where it is.
        place: String,
    },
    /// `@tpu:slice`
    #[error("this host is on no TPU slice whose hosts are known")]
    NoSlice,
    /// There is no command to ask.
    #[error("groups are not looked up here")]
    Nobody,
}

/// Some of them.
fn some(names: &[String]) -> String {
    let more = if names.len() > NAMED { ", ..." } else { "" };
    format!("{}{more}", names.get(..NAMED).unwrap_or(names).join(", "))
}

impl Hint for GroupFault {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NoConfiguration { .. } => {
                Some("groups are ClusterShell's (man groups.conf); CLUSTERSHELL_CFGDIR names another directory".into())
            }
            Self::NoSource { group, source_name, .. } if group.bytes().all(|b| b.is_ascii_digit()) => {
                Some(format!("--ppn {group}, or the line '@{source_name} slots={group}' in a hostfile").into())
            }
            Self::NoSource { known, .. } => Some(format!("a source that there is: {}", some(known)).into()),
            Self::Unknown { known, .. } if !known.is_empty() => {
                Some(format!("a group that there is: {}", some(known)).into())
            }
            Self::Nothing { list: Some(list), .. } => Some(format!("{list}   lists its groups").into()),
            Self::Command { command, .. } => Some(format!("run it by hand: {command}").into()),
            Self::NoSlice => Some("start rlaunch on a TPU VM or in a TPU container of GKE; or name the hosts".into()),
            Self::Configuration { .. }
            | Self::Empty { .. }
            | Self::Unknown { .. }
            | Self::Nothing { list: None, .. }
            | Self::NoAll { .. }
            | Self::Nobody => None,
        }
    }
}
