//! From a command line that was understood to the job that the machine runs.

use super::{CliError, Presentation, Program, Reach, Run, Site, devices, table};
use rlaunch_base::id::{AppIndex, JobId};
use rlaunch_base::interpreter::{self, Source};
use rlaunch_base::nearest::nearest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::template;
use rlaunch_core::hooks::Wanted;
use rlaunch_plan::allocation::Scheduler;
use rlaunch_plan::gpus::Share;
use rlaunch_plan::place::{Note, Placement};
use rlaunch_protocol::env::{self, Base, base};
use rlaunch_protocol::framework::{Mpi, MpiPlan};
use rlaunch_protocol::guard::devices::DevicePlan;
use rlaunch_protocol::logs::Logs;
use rlaunch_protocol::master_store::StorePlan;
use rlaunch_protocol::restarts::Restarts;
use rlaunch_protocol::settings::{HostPlan, OutputPlan, Settings, StdinPlan};
use rlaunch_protocol::spec::{AppBase, AppSpec, JobSpec, Role};
use rlaunch_sys::slots::Turn;
use std::sync::Arc;

/// A job, ready for the job machine.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The job.
    pub(crate) job: Arc<JobSpec>,
    /// How other hosts are reached.
    pub(crate) reach: Reach,
    /// Whether MPI libraries are served.
    pub(crate) mpi: Mpi,
    /// The turn to choose slots of an allocation.
    pub(crate) turn: Option<Turn>,
    /// The command that prints the hosts that there are; empty: there is none.
    pub(crate) discover: OsBytes,
    /// Commands at restarts and at the end.
    pub(crate) hooks: Wanted,
    /// The launcher's output about it.
    pub(crate) presentation: Presentation,
    /// Names of `-x` that the caller's environment does not have: each is worth a note.
    pub(crate) absent: Vec<OsBytes>,
    /// The rendezvous in the caller's environment: names that are used, and those that are another job's.
    pub(crate) given: Vec<OsBytes>,
    pub(crate) others: Vec<OsBytes>,
    /// Variables of the caller that look like rlaunch's and are not: each with what was probably meant.
    pub(crate) unknown: Vec<(OsBytes, Option<String>)>,
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
        self.use_allocation(site)?;
        self.interpret(site)?;
        self.read_map_file(site)?;
        let mut placement = self.place(site)?;
        self.check_input(&placement, site)?;
        let logs = self.logs(job, &placement, site)?;
        let caller: Vec<&[u8]> = caller.into_iter().collect();
        let holder = self.holder(&placement, &caller, site)?;
        self.hold_stores(&mut placement, &caller, site)?;
        let (lead, jax, is_optional) = (self.lead(), self.is_jax(&placement, site), self.needs_no_tpu(&caller, site));
        let (rounds, gpus) = (self.rounds(&placement, &caller, site)?, self.gpus(jax));
        let (discover, slices) = (self.whole.slices.discover(), self.slice_plan(&placement)?);
        let restarts = Restarts { preempt: self.preempt_retries(), ..self.settings.restarts };
        let programs = Programs { all: self.programs, torchrun: self.torchrun, logs };
        let (apps, [absent, given, others]) = programs.with(&caller, &placement);
        let rank_cpus = self.whole.rank_cpus(&placement);
        let (Settings { hosts, output, store, devices, .. }, allow_partial) =
            (self.settings.clone(), self.whole.allow_partial);
        let settings = Settings {
            restarts,
            hosts: HostPlan { scheduler: self.reach.srun.is_some().then_some(Scheduler::Slurm), ..hosts },
            output: OutputPlan { label: self.style.label(placement.ranks.len()), ..output },
            store: StorePlan { holder, ..store },
            mpi: MpiPlan { served: self.mpi != Mpi::None, library: OsBytes::default() },
            jax,
            gpus,
            devices: DevicePlan { chips: devices::chips(&apps), is_optional, allow_partial, ..devices },
            bind: self.whole.bound(),
            ..self.settings
        };
        let job =
            JobSpec { job, apps, placement, settings, min_hosts: self.whole.least(), lead, rank_cpus, slices, rounds };
        Ok(Plan {
            job: Arc::new(job),
            mpi: self.mpi,
            hooks: self.hooks,
            turn: self.turn,
            discover,
            presentation: self.presentation,
            reach: self.reach,
            absent,
            given,
            others,
            unknown: caller.iter().filter_map(|entry| unknown_variable(entry)).collect(),
        })
    }

    /// Keeps what the launcher prints and opens, and returns the logs of torchrun.
    fn logs(&mut self, job: JobId, placement: &Placement, site: &Site<'_>) -> Result<Option<Logs>, CliError> {
        let is_unused = placement.notes.iter().any(|note| matches!(note, Note::Unused(_)));
        self.presentation.lead_has_more = is_unused || self.has_part_of_pool();
        let files = self.files(job, site)?;
        (self.presentation.files, self.presentation.directories) = (files.here, files.directories);
        self.torch.logs(job, files.there, site)
    }

    /// A program that only rank 0 would get is refused: the other ranks would run an empty one and succeed.
    pub(super) fn check_input(&self, placement: &Placement, site: &Site<'_>) -> Result<(), CliError> {
        let has_others = |app: u32| app > 0 || placement.share(AppIndex::new(app)).size > 1;
        let reads = |program: &Program| match interpreter::parse(program.words()) {
            Some((_, Source::StandardInput { is_asked })) => is_asked || (site.has_input)(),
            Some(_) | None => false,
        };
        let programs = self.programs.iter().zip(0..).filter(|_| self.settings.output.stdin == StdinPlan::Rank0);
        match programs.filter(|(_, app)| has_others(*app)).find(|(program, _)| reads(program)) {
            Some((program, _)) => {
                let words: Vec<&[u8]> = program.words().collect();
                Err(CliError::ProgramFromInput { program: OsBytes::new(words.join(&b' ')) })
            }
            None => Ok(()),
        }
    }

    const fn gpus(&self, jax: bool) -> Share {
        match self.whole.gpus {
            Some(each) => Share::Each(each),
            None if jax => Share::All,
            None => Share::Unset,
        }
    }
}

impl Program {
    /// The number after a `-n` among the program's own arguments.
    pub(super) fn passed_on(&self) -> Option<OsBytes> {
        let pairs = self.argv.iter().zip(self.argv.iter().skip(1)).skip(1);
        let is_count = |word: &OsBytes| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
        let found = pairs.clone().find(|(word, n)| matches!(word.as_slice(), b"-n" | b"-np") && is_count(n));
        found.map(|(_, n)| n.clone())
    }

    pub(super) fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.argv.iter().map(|word| word.as_slice())
    }
}

/// Programs of a job, with what they have in common.
struct Programs {
    all: Vec<Program>,
    torchrun: bool,
    logs: Option<Logs>,
}

/// Names of variables: what is absent, what is given, and what is another job's.
type Names = [Vec<OsBytes>; 3];

impl Programs {
    /// The programs with the caller's environment.
    fn with(self, caller: &[&[u8]], placement: &Placement) -> (Vec<AppSpec>, Names) {
        let [mut absent, mut given, mut others]: Names = Default::default();
        let mut apps: Vec<AppSpec> = Vec::new();
        let count = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        for (program, index) in self.all.into_iter().zip((0..).map(AppIndex::new)) {
            let name = program.name.unwrap_or_else(|| Role::UNNAMED.into());
            let Base { env, pinned, absent: gone, given: here, others: not } =
                base(caller.iter().copied(), &program.exports);
            for (all, own) in [(&mut absent, gone), (&mut given, here), (&mut others, not)] {
                add_new(all, own);
            }
            let world = placement.worlds.get(placement.worlds.of_app(index)).cloned().unwrap_or_default();
            let role = Role { name, apps: count, world };
            let filled = self.torchrun && template::is_in(&program.argv);
            let base = AppBase {
                argv: program.argv.iter().collect(),
                env,
                pinned,
                wdir: program.wdir,
                role,
                logs: self.logs.clone(),
                filled,
            };
            apps.push(AppSpec { procs: placement.procs(index), base });
        }
        (apps, [absent, given, others])
    }
}

/// Variable that begins as rlaunch's own do, and that rlaunch neither reads nor sets; with the variable or the flag that was probably meant.
fn unknown_variable(entry: &[u8]) -> Option<(OsBytes, Option<String>)> {
    const OURS: &[u8] = b"RLAUNCH_";
    let name = entry.split(|b| *b == b'=').next()?;
    let rest = name.strip_prefix(OURS)?;
    if env::lookup(name).is_some() {
        return None;
    }
    let option = rest.to_ascii_lowercase();
    let is_named = |row: &&table::Row| row.names.iter().any(|own| table::same(own, &option));
    let meant = match table::rows().find(is_named) {
        Some(row) => Some(row.variable().unwrap_or_else(|| row.typed())),
        None => {
            let own: Vec<String> = table::rows().filter_map(table::Row::variable).collect();
            nearest(rest, own.iter().filter_map(|own| own.strip_prefix("RLAUNCH_"))).map(|own| format!("RLAUNCH_{own}"))
        }
    };
    Some((name.into(), meant))
}

fn add_new(all: &mut Vec<OsBytes>, names: Vec<OsBytes>) {
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_variables_of_rlaunch_are_found_with_the_probable_name() {
        let meant = |entry: &str| unknown_variable(entry.as_bytes()).map(|(_, meant)| meant.unwrap_or_default());
        for (name, expected) in [
            ("NP", "RLAUNCH_N"),
            ("NTASKS", "RLAUNCH_N"),
            ("TIMOUT", "RLAUNCH_TIMEOUT"),
            ("VERBOSE", "-v"),
            ("QUIET", "-q"),
            ("STRICT", "--strict"),
            ("ENV", "-x"),
            ("SSH_FAST", "--ssh-fast"),
            ("XYZZY", ""),
            ("", ""),
        ] {
            assert_eq!(meant(&format!("RLAUNCH_{name}=1")).as_deref(), Some(expected), "{name}");
        }
        // Options, what a rank has from an outer rlaunch, commands of hooks, and variables of others.
        for entry in ["RLAUNCH_N=1", "RLAUNCH_RANK=0", "RLAUNCH_SOCKET=x", "RLAUNCH_HOOK_KIND=x", "SLURM_NP=1", "=", ""]
        {
            assert_eq!(meant(entry), None, "{entry}");
        }
    }
}
