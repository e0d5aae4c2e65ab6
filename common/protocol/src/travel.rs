//! The settings that ranks on other hosts get from the place in which rlaunch was started, besides their program: its directory, its
//! umask, some of its limits, and its environment without variables that hold for one host only.
//!
//! On the launcher's own host all of this is inherited, and nothing here is used.

use crate::env;
use crate::spec::AppBase;
use rlaunch_base::capped::Capped;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use serde::{Deserialize, Serialize};

/// A limit of a process (getrlimit(2)) that may travel. That on locked memory never does: it belongs to a host and its
/// devices, and a login node's is too small for them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Address space.
    As,
    /// Core files.
    Core,
    /// Processor time.
    Cpu,
    /// Data segment.
    Data,
    /// Size of a file.
    Fsize,
    /// Open descriptors.
    Nofile,
    /// Processes of the user.
    Nproc,
    /// Resident memory.
    Rss,
    /// Stack.
    Stack,
}

impl Resource {
    /// All of them, by name.
    pub const ALL: [Self; 9] =
        [Self::As, Self::Core, Self::Cpu, Self::Data, Self::Fsize, Self::Nofile, Self::Nproc, Self::Rss, Self::Stack];
    /// The limits that travel by default.
    pub const USUAL: [Self; 2] = [Self::Core, Self::Stack];

    /// Its name in lower case, as of the constant `RLIMIT_...`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::As => "as",
            Self::Core => "core",
            Self::Cpu => "cpu",
            Self::Data => "data",
            Self::Fsize => "fsize",
            Self::Nofile => "nofile",
            Self::Nproc => "nproc",
            Self::Rss => "rss",
            Self::Stack => "stack",
        }
    }

    /// The resource of this name.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A soft limit of the launcher; `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// On what.
    pub on: Resource,
    /// The limit.
    pub soft: Option<u64>,
}

/// A limit that a host allows less of than ranks were to get.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Lowered {
    /// On what.
    #[serde(rename = "limit")]
    pub on: Resource,
    /// The ranks' limit: the hard limit there.
    pub to: u64,
}

/// The settings that travel.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Travel {
    /// The file mode creation mask.
    pub umask: u32,
    /// Soft limits.
    pub limits: Capped<Limit, 16>,
    /// The directory in which rlaunch was started.
    pub dir: OsBytes,
}

impl Travel {
    /// A program as its ranks on a host run it whose login has this environment.
    #[must_use]
    pub fn resolve(&self, base: AppBase, login: &OsStrings) -> AppBase {
        let wdir = self.wdir(base.wdir);
        let env = env::abroad(&base.env, &base.pinned, login, wdir.as_deref());
        AppBase { env, wdir, ..base }
    }

    /// The directory of ranks: `--wdir`, from the directory in which rlaunch was started.
    fn wdir(&self, own: Option<OsBytes>) -> Option<OsBytes> {
        let Some(own) = own else { return Some(self.dir.clone()).filter(|dir| !dir.is_empty()) };
        if own.starts_with(b"/") || self.dir.is_empty() {
            return Some(own);
        }
        let between: &[u8] = if self.dir.ends_with(b"/") { b"" } else { b"/" };
        Some(OsBytes::new([self.dir.as_slice(), between, own.as_slice()].concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Role;
    use alloc::vec::Vec;

    fn resolved(wdir: Option<&str>, dir: &str) -> AppBase {
        let base = AppBase {
            argv: ["./train"].iter().collect(),
            env: ["A=1", "PWD=/home/u", "TMPDIR=/scratch/1"].iter().collect(),
            pinned: OsStrings::default(),
            wdir: wdir.map(OsBytes::from),
            role: Role::sole(),
            logs: None,
            filled: false,
        };
        let login = ["TMPDIR=/tmp/there", "PWD=/home/v", "B=2"].iter().collect();
        Travel { dir: dir.into(), ..Travel::default() }.resolve(base, &login)
    }

    #[test]
    fn ranks_start_in_the_launchers_directory() {
        for (wdir, dir, expected) in [
            (None, "/data/a", "/data/a"),
            (Some("run"), "/data/a", "/data/a/run"),
            (Some("run"), "/", "/run"),
            (Some("/scratch"), "/data/a", "/scratch"),
            (Some("run"), "", "run"),
        ] {
            assert_eq!(resolved(wdir, dir).wdir, Some(expected.into()), "{wdir:?} from {dir:?}");
        }
        assert_eq!(resolved(None, "").wdir, None, "the directory has no name");
    }

    #[test]
    fn the_environment_is_the_callers_but_for_what_the_host_knows_better() {
        let env: Vec<Vec<u8>> = resolved(None, "/data/a").env.iter().map(<[u8]>::to_vec).collect();
        assert_eq!(env, [&b"A=1"[..], b"TMPDIR=/tmp/there", b"PWD=/data/a"]);
    }

    #[test]
    fn limits_have_names_and_that_on_locked_memory_has_none() {
        for resource in Resource::ALL {
            assert_eq!(Resource::of_name(resource.name().to_ascii_uppercase().as_bytes()), Some(resource));
        }
        assert!(Resource::ALL.is_sorted() && Resource::of_name(b"memlock").is_none());
    }
}
