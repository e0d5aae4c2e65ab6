//! Options of a job: those of the whole job and those of each program, from the command line and from variables.

use super::errors::CliError;
use super::table::Id;
use super::values::{self, Lookup};
use super::{
    Presentation, Program, Run, contradictions, devices, env, faults, hooks, output_options, place, python, reach,
    rounds, run, scan, srun, store_options, torch, worlds,
};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::env::Export;
use rlaunch_protocol::master_store::StorePlan;
use rlaunch_protocol::settings::{OutputPlan, Settings};

/// Options that a program was not given, with values from variables. The first program gets the variables for the whole job. If no program
/// names hosts, the first program also gets the variables that name hosts.
pub(super) fn from_variables(part: &scan::Words, scope: Scope, env: Lookup<'_>) -> Vec<scan::Given> {
    let Scope { first, hosts, torchrun, is_counted } = scope;
    let absent = part.table.rows().filter(|row| part.given.iter().all(|given| given.row.id != row.id));
    let meant = absent.filter(|row| match row.id {
        Id::Place(place::Opt::Hosts | place::Opt::Hostfile) => hosts,
        Id::Place(place::Opt::PerNode) => !is_counted,
        id => first || is_own(id),
    });
    meant
        .filter_map(|row| {
            let own = row.variable().into_iter();
            let mut names = own.chain(torch::variable(row).filter(|_| torchrun));
            let (name, value) = names.find_map(|name| Some((name.clone(), values::variable(env, &name)?)))?;
            Some(scan::Given { row, spelled: name.into(), value, apart: false })
        })
        .collect()
}

/// Which variables stand for options of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// Whether the program is the first, which gets the options of the whole job.
    pub(super) first: bool,
    /// No program names hosts.
    pub(super) hosts: bool,
    /// torchrun's options are used: only then its variables count. Operators set them in every pod, also for programs that are not torch's.
    pub(super) torchrun: bool,
    /// An option gives the number of ranks on each host.
    pub(super) is_counted: bool,
}

/// Whether each program has its own value of an option.
const fn is_own(id: Id) -> bool {
    match id {
        Id::Run(_) | Id::Env(_) => true,
        Id::Place(opt) => opt.is_own(),
        Id::Torch(opt) => opt.is_own(),
        Id::Output(_) | Id::Faults(_) | Id::Reach(_) | Id::Store(_) | Id::Rounds(_) | Id::Hooks(_) => false,
        Id::Devices(_) => false,
        Id::Help(_) | Id::Hosts(_) | Id::Ask(_) | Id::Assign(_) | Id::Report(_) | Id::Pool(_) => false,
    }
}

/// Options for the whole job.
#[derive(Default)]
struct Wide {
    whole: place::Whole,
    output: output_options::Args,
    faults: faults::Args,
    reach: reach::Args,
    store: store_options::Args,
    rounds: rounds::Args,
    hooks: hooks::Args,
    devices: devices::Args,
    torch: torch::Args,
}

impl Wide {
    fn take(&mut self, given: scan::Given) -> Result<(), CliError> {
        match given.row.id {
            Id::Place(opt) => self.whole.take(opt, &given),
            Id::Output(opt) => self.output.take(opt, given),
            Id::Faults(opt) => self.faults.take(opt, given),
            Id::Reach(opt) => self.reach.take(opt, given),
            Id::Store(opt) => self.store.take(opt, given),
            Id::Rounds(opt) => self.rounds.take(opt, given),
            Id::Hooks(opt) => self.hooks.take(opt, &given),
            Id::Devices(opt) => self.devices.take(opt, &given),
            Id::Torch(opt) => self.torch.take(opt, given),
            Id::Run(_) | Id::Env(_) | Id::Help(_) | Id::Hosts(_) | Id::Ask(_) => Ok(()),
            Id::Assign(_) | Id::Report(_) | Id::Pool(_) => Ok(()),
        }
    }

    /// All of a job, with what no flag and no variable of ours said.
    fn into_run(
        mut self,
        mut programs: Vec<Program>,
        variables: Vec<(String, OsBytes)>,
        Seen { same, torchrun }: Seen,
        env: Lookup<'_>,
    ) -> Result<Run, CliError> {
        self.output.fill(env)?;
        self.faults.fill(env)?;
        let asked = worlds::Whole {
            on_failure: self.faults.ending().on_failure,
            restarts: self.faults.restarts().is_any(),
            min_hosts: self.whole.least().is_some(),
            round_option: self.rounds.first(),
        };
        worlds::check(&programs, &asked)?;
        self.rounds.check(&mut programs)?;
        let Wide { whole, mut output, faults, reach, store, rounds, hooks, devices, torch } = self;
        Ok(Run {
            programs,
            whole,
            variables,
            files: output.files(),
            style: output.style(),
            is_preempt_given: faults.is_preempt_given(),
            settings: Settings {
                ending: faults.ending(),
                restarts: faults.restarts(),
                warnings: faults.warnings(),
                hosts: reach.hosts(),
                output: OutputPlan { stdin: output.stdin(), ..OutputPlan::default() },
                store: StorePlan { guard: store.guard, ..StorePlan::default() },
                devices: devices.plan(),
                ..Settings::default()
            },
            reach: reach.reach(),
            in_allocation: None,
            turn: None,
            beside: None,
            master_store: store.master_store,
            framework: store.framework,
            mpi: store.mpi,
            rounds,
            torchrun,
            torch,
            presentation: Presentation {
                verbosity: output.verbosity,
                color: output.color,
                cleans: false,
                is_bare_map: false,
                lead_has_more: false,
                events: output.events,
                same,
                interpreted: Vec::new(),
                files: [None, None],
                directories: Vec::new(),
            },
            hooks: hooks.wanted(),
        })
    }
}

/// Options of other launchers that were seen.
struct Seen {
    same: Vec<OsBytes>,
    torchrun: bool,
}

/// Options that belong to one program.
#[derive(Default)]
struct Own {
    what: run::Args,
    variables: env::Args,
    place: place::Own,
    python: python::Said,
}

impl Own {
    fn take(&mut self, given: scan::Given, wide: &mut Wide) -> Result<(), CliError> {
        match given.row.id {
            Id::Run(opt) => self.what.take(opt, given)?,
            Id::Place(opt) if opt.is_own() => self.place.take(opt, given)?,
            Id::Env(opt) => self.variables.take(opt, given)?,
            Id::Torch(opt) if opt.is_own() => self.python.take(opt),
            _ => wide.take(given)?,
        }
        Ok(())
    }
}

/// Collects the options of all programs, and makes a job of them.
pub(super) fn collect(mut parts: Vec<scan::Words>, env: Lookup<'_>) -> Result<Run, CliError> {
    let mut refused: Vec<CliError> = parts.iter_mut().flat_map(|part| part.refused.drain(..)).collect();
    if let Err(error) = contradictions::check(&parts) {
        refused.push(error);
        return Err(CliError::all(refused));
    }
    let is_counted = contradictions::per_resource(&parts).is_some();
    let named = parts.iter().flat_map(|part| &part.given).any(scan::Given::names_hosts);
    let (mut programs, mut shared): (Vec<Program>, Vec<Export>) = (Vec::new(), Vec::new());
    let (mut variables_used, mut same) = (Vec::new(), Vec::new());
    let mut wide = Wide::default();
    let torchrun = parts.iter().any(torch::is_used);
    if torchrun {
        refused.extend(torch::node_rank(&parts, env).err());
    }
    for part in parts {
        let first = programs.is_empty();
        let variables_given = from_variables(&part, Scope { first, hosts: first && !named, torchrun, is_counted }, env);
        variables_used.extend(variables_given.iter().map(|given| (given.row.typed(), given.spelled.clone())));
        same.extend(part.same);
        let mut options = Own::default();
        for given in part.given.into_iter().chain(variables_given) {
            let taken = if first || is_own(given.row.id) {
                options.take(given, &mut wide)
            } else {
                Err(CliError::WholeJob { option: given.spelled })
            };
            refused.extend(taken.err());
        }
        let Own { what, variables, place: mut own, mut python } = options;
        if first && !named {
            own.fill(env);
        }
        if python.module {
            refused.extend(srun::check_module(&part.argv).err());
        }
        if torchrun {
            python.fill(env);
        }
        let run::Args { n, wdir, name, world } = what;
        let exports = variables.exports;
        programs.push(Program { n, argv: part.argv, wdir, name, exports, place: own, python, world });
        shared.extend(variables.shared);
    }
    if !refused.is_empty() {
        return Err(CliError::all(refused));
    }
    let shared: Vec<Export> = wide.torch.exports().into_iter().chain(shared).collect();
    for program in &mut programs {
        program.exports.splice(0..0, shared.iter().cloned());
    }
    wide.whole.take_common(&programs)?;
    wide.into_run(programs, variables_used, Seen { same, torchrun }, env)
}
