//! From a command line that was understood to the job that the machine runs.

use super::{CliError, Presentation, Reach, Run, Site};
use rlaunch_core::env::{Base, base};
use rlaunch_core::id::{AppIndex, JobId};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::place::Placement;
use rlaunch_core::spec::{AppBase, AppSpec, JobSpec, Role};
use std::sync::Arc;

/// A job, ready for the job machine.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The job.
    pub(crate) job: Arc<JobSpec>,
    /// How other hosts are reached.
    pub(crate) reach: Reach,
    /// What the launcher shows of it.
    pub(crate) presentation: Presentation,
    /// What `-x` asked for and the caller's environment does not have: each is worth a note.
    pub(crate) absent: Vec<OsBytes>,
}

impl Run {
    /// Whether the user chose MASTER_PORT for the program of rank 0.
    pub(crate) fn pins_port(&self, placement: &Placement, caller: &[&[u8]]) -> bool {
        let exports = self.first(placement).map(|program| program.exports.as_slice());
        exports.is_some_and(|exports| base(caller.iter().copied(), exports).pinned.contains(b"MASTER_PORT"))
    }

    /// The job that this is, with the caller's environment: entries as the kernel gave them, also those that are not
    /// `NAME=value`.
    ///
    /// # Errors
    /// Hosts that cannot be understood, or ranks that do not fit.
    pub(crate) fn into_plan<'a>(
        mut self,
        job: JobId,
        caller: impl IntoIterator<Item = &'a [u8]>,
        site: &Site<'_>,
    ) -> Result<Plan, CliError> {
        self.interpret(site)?;
        let placement = self.place(site)?;
        let logs = self.torch.logs(job, site)?;
        let caller: Vec<&[u8]> = caller.into_iter().collect();
        let master_store = self.holder(&placement, self.pins_port(&placement, &caller), site);
        let min_hosts = self.whole.least();
        let mut absent: Vec<OsBytes> = Vec::new();
        let mut apps: Vec<AppSpec> = Vec::new();
        let count = u32::try_from(self.programs.len()).unwrap_or(u32::MAX);
        for (program, index) in self.programs.into_iter().zip((0..).map(AppIndex::new)) {
            let name = program.name.unwrap_or_else(|| Role::UNNAMED.into());
            let Base { env, pinned, absent: gone } = base(caller.iter().copied(), &program.exports);
            for name in gone {
                if !absent.contains(&name) {
                    absent.push(name);
                }
            }
            let role = Role { name, apps: count };
            let base = AppBase {
                argv: program.argv.iter().collect(),
                env,
                pinned,
                wdir: program.wdir,
                role,
                logs: logs.clone(),
            };
            apps.push(AppSpec { procs: placement.procs(index), base });
        }
        let job = JobSpec {
            job,
            apps,
            placement,
            min_hosts,
            contain: self.contain,
            on_failure: self.on_failure,
            grace: self.grace,
            timeout: self.timeout,
            label: self.label,
            stdin: self.stdin,
            lease: self.lease,
            master_store,
        };
        Ok(Plan { job: Arc::new(job), presentation: self.presentation, reach: self.reach, absent })
    }
}
