//! From a command line that was understood to the job that the machine runs.

use super::{CliError, Presentation, Reach, Run, Site};
use rlaunch_core::env::{Base, base};
use rlaunch_core::gpus::Share;
use rlaunch_core::hooks::Wanted;
use rlaunch_core::id::{AppIndex, JobId};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::spec::{AppBase, AppSpec, JobSpec, Role};
use rlaunch_core::template;
use std::sync::Arc;

/// A job, ready for the job machine.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The job.
    pub(crate) job: Arc<JobSpec>,
    /// How other hosts are reached.
    pub(crate) reach: Reach,
    /// Commands at restarts and at the end.
    pub(crate) hooks: Wanted,
    /// What the launcher shows of it.
    pub(crate) presentation: Presentation,
    /// What `-x` asked for and the caller's environment does not have: each is worth a note.
    pub(crate) absent: Vec<OsBytes>,
    /// Where ranks meet, as the caller's environment says: names that are used, and those that are another job's.
    pub(crate) given: Vec<OsBytes>,
    pub(crate) others: Vec<OsBytes>,
}

impl Run {
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
        let master_store = self.holder(&placement, &caller, site)?;
        let jax = self.is_jax(&placement, site);
        let rounds = self.rounds(&placement, &caller, site)?;
        let gpus = self.gpus(jax);
        let min_hosts = self.whole.least();
        let [mut absent, mut given, mut others]: [Vec<OsBytes>; 3] = Default::default();
        let mut apps: Vec<AppSpec> = Vec::new();
        let count = u32::try_from(self.programs.len()).unwrap_or(u32::MAX);
        for (program, index) in self.programs.into_iter().zip((0..).map(AppIndex::new)) {
            let name = program.name.unwrap_or_else(|| Role::UNNAMED.into());
            let Base { env, pinned, absent: gone, given: here, others: not } =
                base(caller.iter().copied(), &program.exports);
            for (all, own) in [(&mut absent, gone), (&mut given, here), (&mut others, not)] {
                add_new(all, own);
            }
            let role = Role { name, apps: count };
            let filled = self.torchrun && template::is_in(&program.argv);
            let base = AppBase {
                argv: program.argv.iter().collect(),
                env,
                pinned,
                wdir: program.wdir,
                role,
                logs: logs.clone(),
                filled,
            };
            apps.push(AppSpec { procs: placement.procs(index), base });
        }
        let job = JobSpec {
            job,
            apps,
            label: self.style.label(placement.seats.len()),
            placement,
            min_hosts,
            contain: self.contain,
            on_failure: self.on_failure,
            restarts: self.restarts,
            grace: self.grace,
            timeout: self.timeout,
            stdin: self.stdin,
            lease: self.lease,
            master_store,
            store_guard: self.store_guard,
            jax,
            gpus,
            rounds,
        };
        Ok(Plan {
            job: Arc::new(job),
            hooks: self.hooks,
            presentation: self.presentation,
            reach: self.reach,
            absent,
            given,
            others,
        })
    }

    const fn gpus(&self, jax: bool) -> Share {
        match self.whole.gpus {
            Some(each) => Share::Each(each),
            None if jax => Share::All,
            None => Share::Untold,
        }
    }
}

fn add_new(all: &mut Vec<OsBytes>, names: Vec<OsBytes>) {
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
}
