//! The parsed command line: the input of the job machine.

use crate::env::value;
use crate::logs::Logs;
use crate::rounds::Rounds;
use crate::settings::Settings;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, JobId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;
use rlaunch_plan::bind::CpuList;
use rlaunch_plan::place::{Placement, World};
use rlaunch_plan::slices::{Grow, SlicePlan};
use serde::{Deserialize, Serialize};

/// A whole job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobSpec {
    /// Its name.
    pub job: JobId,
    /// Its programs; ranks are numbered through them in this order.
    pub apps: Vec<AppSpec>,
    /// Its hosts, and where each rank runs.
    pub placement: Placement,
    /// Number of hosts that are enough to start: the ranks of missing hosts are dropped. `None`: all have to be ready.
    pub min_hosts: Option<u32>,
    /// The program with which the job ends (`--lead`).
    pub lead: Option<AppIndex>,
    /// The values of options.
    pub settings: Settings,
    /// The CPUs that a rankfile names, by rank; they go before `bind`. Empty: there is none.
    pub rank_cpus: Vec<CpuList>,
    /// The slices of the job (`--slices`); `None`: it runs on all of its hosts. The placement has the ranks of all slots.
    pub slices: Option<SlicePlan>,
    /// The options for the in-process restart of a function.
    pub rounds: Rounds,
}

impl JobSpec {
    /// A job of which nothing is asked that its programs and hosts do not need.
    #[must_use]
    pub fn of(job: JobId, apps: Vec<AppSpec>, placement: Placement) -> Self {
        Self {
            job,
            apps,
            placement,
            min_hosts: None,
            lead: None,
            settings: Settings::default(),
            rank_cpus: Vec::new(),
            slices: None,
            rounds: Rounds::default(),
        }
    }

    /// The same job with other values of options.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Whether all ranks may be started again: after a failure, after a preemption, or on more slices (`--grow now`).
    #[must_use]
    pub fn may_restart(&self) -> bool {
        self.settings.restarts.is_any() || self.slices.as_ref().is_some_and(|plan| plan.grow == Grow::Now)
    }

    /// The number of ranks of all programs.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.apps.iter().fold(0, |sum, app| sum.saturating_add(app.procs))
    }

    /// Whether ranks have `SLURM_JOB_ID`: then they get the other variables of a task of Slurm's as well.
    #[must_use]
    pub fn is_in_slurm(&self) -> bool {
        let id = |app: &AppSpec| value(&app.base.env, b"SLURM_JOB_ID").is_some_and(|id| !id.is_empty());
        self.apps.iter().any(id)
    }
}

/// A program of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppSpec {
    /// How many ranks run it.
    pub procs: u32,
    /// The parts of their start that are the same.
    pub base: AppBase,
}

/// The values that all ranks of a program have in common; sent to each node once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppBase {
    /// Program and arguments, byte-exact.
    pub argv: OsStrings,
    /// `NAME=value` strings: the caller's, minus inherited identities, plus `-x`. The contracts are added per rank.
    pub env: OsStrings,
    /// Names that the user set by `-x NAME=value`: no contract overrides them.
    pub pinned: OsStrings,
    /// Working directory of the ranks; `None`: the agent's own.
    pub wdir: Option<OsBytes>,
    /// Which part of the job it is.
    pub role: Role,
    /// The destinations of its output besides being shown; `None`: none.
    pub logs: Option<Logs>,
    /// Each rank finds its local rank in its arguments (`template`).
    pub filled: bool,
}

impl AppBase {
    /// The user's value of a variable that a contract writes.
    #[must_use]
    pub fn pinned(&self, name: &[u8]) -> Option<&[u8]> {
        let value = |entry: &&[u8]| entry.get(..name.len()) == Some(name) && entry.get(name.len()) == Some(&b'=');
        // The last of several entries is that of `-x`.
        let entry = self.pinned.contains(name).then(|| self.env.iter().filter(value).last())??;
        entry.get(name.len() + 1..)
    }
}

/// A program's part in the job, as far as it is known before all hosts are there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Role {
    /// Its name (`--name`), or `default`.
    pub name: OsBytes,
    /// Programs of the job.
    pub apps: u32,
    /// The world of its ranks.
    pub world: World,
}

impl Role {
    /// The name of a program without a name.
    pub const UNNAMED: &str = "default";

    /// The only program of a job.
    #[must_use]
    pub fn sole() -> Self {
        Self { name: Self::UNNAMED.into(), apps: 1, world: World::default() }
    }
}
