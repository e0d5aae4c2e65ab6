//! Groups of hosts, `@group` in a list: those that a site has set up for ClusterShell, whose `nodeset` looks them up, and the hosts of the own
//! TPU slice.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use rlaunch_base::error::Hint;

/// The commands of this machine, and its TPU slice.
pub trait Commands {
    /// The output of a shell command that runs in a directory.
    ///
    /// # Errors
    /// The command failed: "exited with 1", with its last words.
    fn run(&self, command: &str, directory: &str) -> Result<Vec<u8>, String>;

    /// Names or addresses of the hosts of the TPU slice that this host belongs to, by their numbers. Empty: no slice is known.
    fn slice(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The group that needs no configuration: the hosts of the TPU slice that this host belongs to.
const SLICE: (&str, &str) = ("tpu", "slice");

/// `source:group`; `*` are all hosts of the source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupName {
    /// The source; `None`: the default.
    pub source: Option<String>,
    /// The group.
    pub group: String,
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "@{source}:{}", self.group),
            None => write!(f, "@{}", self.group),
        }
    }
}

/// Why a group of hosts cannot be looked up.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupFault {
    /// There is no `nodeset`.
    #[error("nodeset, which looks up groups of hosts, is not installed here")]
    NoNodeset,
    /// `nodeset` has failed.
    #[error("`{command}` {why}")]
    Command {
        /// The command that ran.
        command: String,
        /// Its outcome.
        why: String,
        /// The number that was given as a group, as if it were slots.
        slots: Option<String>,
    },
    /// `nodeset` calls a group without hosts and an unknown group the same.
    #[error("no such group, or it has no hosts now (`{command}` printed nothing)")]
    Nothing {
        /// The command that ran.
        command: String,
    },
    /// `@tpu:slice`
    #[error("this host is on no TPU slice whose hosts are known")]
    NoSlice,
    /// There is no command to ask.
    #[error("groups are not looked up here")]
    NotHere,
}

/// The hosts of a group, as a list; empty: it has none now, or is unknown.
///
/// # Errors
/// `nodeset` is not installed, fails, or prints something else.
pub fn hosts(name: &GroupName, commands: &dyn Commands) -> Result<String, GroupFault> {
    if (name.source.as_deref(), name.group.as_str()) == (Some(SLICE.0), SLICE.1) {
        let hosts = commands.slice();
        // Another machine has sent them: nothing in a list of hosts but names and addresses.
        return match !hosts.is_empty() && hosts.iter().all(|host| is_name(host)) {
            true => Ok(hosts.join(" ")),
            false => Err(GroupFault::NoSlice),
        };
    }
    let command = command(name);
    let fault = |why: String| {
        if why.starts_with("exited with 127") {
            return GroupFault::NoNodeset;
        }
        let is_number = name.source.is_some() && name.group.bytes().all(|byte| byte.is_ascii_digit());
        let slots = is_number.then(|| name.group.clone());
        GroupFault::Command { command: command.clone(), why, slots }
    };
    let printed = String::from_utf8(commands.run(&command, ".").map_err(fault)?);
    let hosts = printed.map_err(|_| fault("prints what is no text".into()))?;
    match hosts.split_whitespace().find(|host| !is_name(host)) {
        Some(odd) => Err(fault(format!("prints '{odd}', which is no host name"))),
        None => Ok(hosts.split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

/// The command that prints the hosts of a group. [`is_of_group`] lets nothing pass that ends the quotes.
pub(super) fn command(name: &GroupName) -> String {
    format!("nodeset -e '{name}'")
}

/// Whether ssh takes it for a host, and not for an option.
fn is_name(host: &str) -> bool {
    host.starts_with(|c: char| c.is_ascii_alphanumeric())
        && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

/// Whether a character may be in the name of a group. A shell is going to read it: nothing that it takes for more than a word.
pub(super) fn is_of_group(c: char) -> bool {
    c.is_alphanumeric() || "-_.+=%/:".contains(c)
}

impl Hint for GroupFault {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::NoNodeset => Some("ClusterShell (pip install ClusterShell), or the names of the hosts".into()),
            Self::Command { slots: Some(slots), .. } => {
                Some(format!("--ppn {slots}, or the line '@GROUP slots={slots}' in a hostfile").into())
            }
            Self::Command { command, .. } => Some(format!("run it by hand: {command}").into()),
            Self::Nothing { .. } => Some("nodeset -L   lists the groups".into()),
            Self::NoSlice => Some("start rlaunch on a TPU VM or in a TPU container of GKE; or name the hosts".into()),
            Self::NotHere => None,
        }
    }
}
