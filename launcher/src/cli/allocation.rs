//! The allocation of a scheduler in which rlaunch runs: the hosts that a job may have, and what reaches them (`--launcher`).

use super::errors::CliError;
use super::place::Said;
use super::site::Site;
use super::{Program, Run, values};
use rlaunch_base::error::Hint;
use rlaunch_base::nearest::nearest;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::allocation::{Allocation, AllocationError, Scheduler, TaskOrder};
use rlaunch_plan::bootstrap::srun::PASSED;
use rlaunch_plan::bootstrap::{CommandTemplate, SrunPlan, Transport};
use rlaunch_plan::hostlist::Entry;
use rlaunch_plan::place::{Note, Placement};
use rlaunch_sys::slots::Turn;
use std::borrow::Cow;
use std::os::unix::ffi::OsStringExt as _;

/// `--launcher`: what starts the agents of other hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Launcher {
    /// srun for hosts of a Slurm allocation; ssh for other hosts.
    #[default]
    Auto,
    /// Nothing: all ranks run on this host.
    Local,
    /// ssh.
    Ssh,
    /// srun.
    Slurm,
    /// A command of the user's.
    Exec(CommandTemplate),
}

/// The allocation of a job, and how its hosts are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct InAllocation {
    /// The allocation.
    pub(crate) allocation: Allocation,
    /// Other hosts may be named too: the user has chosen what reaches them.
    pub(super) open: bool,
}

/// Why an allocation cannot be used as asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum AllocationUseError {
    /// Its variables.
    #[error("{0}")]
    Unreadable(#[from] AllocationError),
    /// `-H node9`
    #[error("{host} ({option}) is not in {job}, whose hosts are {hosts}")]
    Outside { option: OsBytes, host: String, job: String, hosts: String },
    /// `--launcher slurm` on a laptop.
    #[error("--launcher slurm needs an allocation of Slurm, and there is none here (SLURM_JOB_ID is not set)")]
    NoSlurm,
    /// `--launcher local -H node1`
    #[error("--launcher local runs all ranks on this host, and {option} names {host}")]
    Elsewhere { option: OsBytes, host: String },
    /// `srun -n 4 rlaunch`
    #[error("srun has started {tasks} copies of rlaunch, and one copy starts all ranks")]
    ManyTasks { tasks: u32, is_first: bool },
    /// `srun -n 4 --pty rlaunch`: srun starts four, and all but the first have no terminal (srun(1)). These exit with 0.
    #[error("srun has given its terminal to task 0, and that one starts all ranks")]
    WithoutTerminal,
}

impl Hint for AllocationUseError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::Unreadable(_) => {
                "--launcher local, or --launcher ssh -H LIST, which do without the allocation".into()
            }
            Self::Outside { .. } => "--launcher ssh, to use other hosts too; they are not the scheduler's then".into(),
            Self::NoSlurm => "salloc -N 2 rlaunch ...   or   sbatch".into(),
            Self::Elsewhere { option, .. } => format!("leave {option} out, or --launcher ssh").into(),
            Self::ManyTasks { .. } | Self::WithoutTerminal => "rlaunch without srun, in salloc or sbatch".into(),
        })
    }
}

impl Launcher {
    /// Reads the value of the option; also as Hydra calls them.
    pub(super) fn parse(option: &OsBytes, value: &OsBytes) -> Result<Self, CliError> {
        let refuse = |hint: Option<Cow<'static, str>>| CliError::Value {
            option: option.clone(),
            takes: "auto, local, ssh, slurm or exec:COMMAND".into(),
            got: value.clone(),
            hint,
        };
        match value.as_slice() {
            b"auto" => Ok(Self::Auto),
            b"local" | b"fork" => Ok(Self::Local),
            b"ssh" => Ok(Self::Ssh),
            b"slurm" | b"srun" => Ok(Self::Slurm),
            other => {
                let meant = || nearest(other, ["auto", "local", "ssh", "slurm"].into_iter()).unwrap_or("ssh");
                let template =
                    other.strip_prefix(b"exec:").ok_or_else(|| refuse(Some(values::spell(option, meant()).into())))?;
                CommandTemplate::parse(template).map(Self::Exec).map_err(|error| {
                    let hint = error.hint().map(|hint| format!("{}: {error}", values::spell(option, &hint)).into());
                    refuse(hint)
                })
            }
        }
    }
}

impl Launcher {
    /// Finds the allocation that is used. `names_hosts`: the user names hosts.
    ///
    /// # Errors
    /// Its variables cannot be read, or rlaunch is one of several tasks of srun.
    pub(super) fn allocation(&self, names_hosts: bool, site: &Site<'_>) -> Result<Option<InAllocation>, CliError> {
        let env = |name: &str| (site.env)(name).and_then(|value| value.into_string().ok());
        let read = |path: &str| {
            let text = (site.is_file)(&path.into()).then(|| (site.read)(&path.into()).ok()).flatten()?;
            String::from_utf8(text).ok()
        };
        let open = match self {
            Self::Local => return Ok(None),
            // A rank that starts a job of its own: that one stays on the rank's host.
            Self::Auto if env("RLAUNCH_JOB_ID").is_some() => return Ok(None),
            Self::Auto | Self::Slurm => false,
            Self::Ssh | Self::Exec(_) => true,
        };
        if let Some(tasks) = many_tasks(&env) {
            let is_first = env("SLURM_PROCID").is_none_or(|rank| rank == "0");
            match (env("SLURM_PTY_PORT").is_some(), is_first) {
                (true, true) => {}
                (true, false) => return Err(AllocationUseError::WithoutTerminal.into()),
                // Each task gets here. The first reports the error for all.
                (false, _) => return Err(AllocationUseError::ManyTasks { tasks, is_first }.into()),
            }
        }
        match Allocation::find(&env, &read) {
            Ok(found) => Ok(found.map(|allocation| InAllocation { allocation, open })),
            // The user has said which hosts there are, and how they are reached.
            Err(_) if open && names_hosts => Ok(None),
            Err(error) => Err(AllocationUseError::from(error).into()),
        }
    }

    /// How srun is called, if it reaches the hosts.
    ///
    /// # Errors
    /// srun is asked for, and there is no allocation of Slurm.
    pub(super) fn srun(
        &self,
        found: Option<&InAllocation>,
        transport: Transport,
        site: &Site<'_>,
    ) -> Result<Option<SrunPlan>, CliError> {
        let slurm = found.filter(|found| found.allocation.scheduler == Scheduler::Slurm);
        match (self, slurm) {
            (Self::Auto | Self::Slurm, Some(found)) => Ok(Some(srun(&found.allocation, transport, site))),
            (Self::Slurm, None) => Err(AllocationUseError::NoSlurm.into()),
            (Self::Auto | Self::Local | Self::Ssh | Self::Exec(_), _) => Ok(None),
        }
    }

    /// The hosts that are named, or those of the allocation; empty: none is named, and there is no allocation.
    ///
    /// # Errors
    /// A named host is not one that may be used.
    pub(super) fn hosts(
        &self,
        found: Option<&InAllocation>,
        named: Named,
        site: &Site<'_>,
    ) -> Result<Vec<Entry>, CliError> {
        let Named { entries, is_any, option } = named;
        match found {
            None if *self == Self::Local => match entries.iter().find(|entry| !site.here.is(&entry.host)) {
                Some(entry) => {
                    let host = entry.host.to_string();
                    Err(AllocationUseError::Elsewhere { option, host }.into())
                }
                None => Ok(entries),
            },
            None => Ok(entries),
            Some(found) if entries.is_empty() && !is_any => Ok(found.allocation.entries()),
            Some(found) if found.open => {
                let known = |entry: Entry| {
                    let own =
                        found.allocation.select(vec![entry.clone()], &site.here).ok().and_then(|mut own| own.pop());
                    own.unwrap_or(entry)
                };
                Ok(entries.into_iter().map(known).collect())
            }
            Some(InAllocation { allocation, .. }) => allocation.select(entries, &site.here).map_err(|host| {
                AllocationUseError::Outside {
                    option,
                    host: host.to_string(),
                    job: allocation.title(),
                    hosts: allocation.folded(),
                }
                .into()
            }),
        }
    }
}

/// Hosts that the user names.
pub(super) struct Named {
    /// The numbers of a program.
    pub(super) entries: Vec<Entry>,
    /// Whether any program names some.
    pub(super) is_any: bool,
    /// The first option that does.
    pub(super) option: OsBytes,
}

impl Run {
    /// Finds the allocation that the job uses, and what reaches its hosts.
    ///
    /// # Errors
    /// Its variables cannot be read, or it cannot be used as asked for.
    pub(crate) fn use_allocation(&mut self, site: &Site<'_>) -> Result<(), CliError> {
        let found = self.reach.launcher.allocation(self.names_hosts(), site)?;
        self.reach.srun = self.reach.launcher.srun(found.as_ref(), self.reach.transport, site)?;
        self.whole.bind.task_cpus = found.as_ref().and_then(|found| found.allocation.cpus_per_task);
        self.in_allocation = found;
        self.leave_slots(site);
        Ok(())
    }

    /// Leaves out the slots of the allocation that other jobs of rlaunch have, where the rest is enough for the ranks that were asked for.
    fn leave_slots(&mut self, site: &Site<'_>) {
        let names_hosts = self.names_hosts();
        let Some(InAllocation { allocation, .. }) = &mut self.in_allocation else { return };
        // Without a turn, launchers do not see each other: on a host without abstract names.
        self.turn = (site.turn)(&allocation.job).ok();
        let is_late = self.turn.as_ref().is_some_and(Turn::is_late);
        self.beside = is_late.then(|| Note::NoTurn { job: allocation.title() });
        let lists = self.turn.as_ref().and_then(|turn| turn.others().ok()).unwrap_or_default();
        let (rest, taken) = allocation.beside(&lists);
        let ranks = self.programs.iter().try_fold(0u32, |sum, program| Some(sum.saturating_add(program.n?)));
        let slots = rest.hosts.iter().fold(0u32, |sum, host| sum.saturating_add(host.slots));
        if taken == 0 || names_hosts {
            return;
        }
        if !matches!(allocation.tasks, TaskOrder::Listed(_)) && ranks.is_some_and(|ranks| ranks <= slots) {
            *allocation = rest;
        } else {
            self.beside = Some(Note::Beside { taken, job: allocation.title() });
        }
    }

    fn names_hosts(&self) -> bool {
        self.programs.iter().any(|program| program.place.names_hosts())
    }

    /// The hosts of a program; empty: it names none, and there is no allocation.
    pub(super) fn hosts(
        &self,
        program: &Program,
        site: &Site<'_>,
        notes: &mut Vec<Note>,
    ) -> Result<Vec<Entry>, CliError> {
        let entries = site.hosts(&program.place)?;
        let option = first(&program.place.lists, &program.place.files);
        if let Some(InAllocation { allocation, open: false }) = &self.in_allocation {
            notes.extend(fewer_slots(allocation, &entries, site));
        }
        let named = Named { entries, is_any: self.names_hosts(), option };
        self.reach.launcher.hosts(self.in_allocation.as_ref(), named, site)
    }

    /// Whether each host gets one rank, because neither the user nor the scheduler has named a number.
    pub(super) fn is_one_per_host(&self, program: &Program) -> bool {
        let unasked = self.in_allocation.as_ref().is_some_and(|found| !found.allocation.tasks_were_asked_for);
        unasked && program.n.is_none() && program.place.ppn.is_none()
    }

    /// The note about one rank on each host.
    pub(super) fn one_per_host(&self, placement: &Placement, site: &Site<'_>) -> Option<Note> {
        let found = self.in_allocation.as_ref()?;
        let is_so = self.programs.iter().any(|program| self.is_one_per_host(program));
        let tasks = uncounted_tasks(self, found, site).filter(|tasks| *tasks as usize != placement.ranks.len());
        (is_so || tasks.is_some()).then(|| Note::OnePerHost {
            job: found.allocation.title(),
            hosts: u32::try_from(placement.nodes.len()).unwrap_or(u32::MAX),
            tasks,
        })
    }
}

/// The number of tasks of a Slurm job without the number for each host, if this number decides about the ranks.
fn uncounted_tasks(run: &Run, found: &InAllocation, site: &Site<'_>) -> Option<u32> {
    let is_asked =
        |program: &Program| program.n.is_some() || program.place.ppn.is_some() || program.place.names_hosts();
    let is_other = found.allocation.scheduler != Scheduler::Slurm || run.programs.iter().any(is_asked);
    let env = |name: &str| variable(site, name);
    if is_other || env("SLURM_TASKS_PER_NODE").or_else(|| env("SLURM_STEP_TASKS_PER_NODE")).is_some() {
        return None;
    }
    env("SLURM_NTASKS")?.parse().ok()
}

/// The note about the first host of which the user has named more slots than the scheduler gives.
fn fewer_slots(allocation: &Allocation, named: &[Entry], site: &Site<'_>) -> Option<Note> {
    named.iter().find_map(|entry| {
        let named = entry.slots?;
        let given = allocation.select(vec![entry.clone()], &site.here).ok()?.pop()?.slots?;
        (given < named).then(|| Note::FewerSlots {
            host: entry.host.to_string(),
            named,
            given,
            job: allocation.title(),
        })
    })
}

/// A variable that is not empty.
fn variable(site: &Site<'_>, name: &str) -> Option<String> {
    (site.env)(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
}

/// The note about a job of a scheduler whose hosts are not known.
pub(super) fn without_hosts(run: &Run, site: &Site<'_>) -> Option<Note> {
    let env = |name: &str| variable(site, name);
    if run.in_allocation.is_some() || run.reach.launcher != Launcher::Auto || run.names_hosts() {
        return None;
    }
    // A rank has the number of the job for its own program.
    if env("RLAUNCH_JOB_ID").is_some() {
        return None;
    }
    let set = |name: &str| env(name).map(|value| format!("{name}={value}"));
    let note = |set, lacks: &str| Some(Note::NoHosts { set, lacks: lacks.to_owned() });
    if let Some(job) = set("SLURM_JOB_ID") {
        let components = env("SLURM_HET_SIZE").and_then(|size| size.parse::<u32>().ok()).filter(|size| *size > 1);
        return match components.and_then(|_| set("SLURM_HET_SIZE")) {
            Some(size) => note(size, "SLURM_JOB_NODELIST_HET_GROUP_0"),
            None => note(job, "SLURM_JOB_NODELIST"),
        };
    }
    match (set("PBS_JOBID"), set("PBS_NODEFILE")) {
        (Some(job), None) => return note(job, "PBS_NODEFILE"),
        (Some(job), Some(file)) => return note(job, &format!("hosts in {file}")),
        (None, _) => {}
    }
    match (set("LSB_JOBID"), set("PE_HOSTFILE")) {
        (Some(job), _) => note(job, "LSB_MCPU_HOSTS"),
        (None, Some(file)) => note(file, "hosts in that file"),
        (None, None) => None,
    }
}

/// How many tasks srun has started, of which we are one.
fn many_tasks(env: &dyn Fn(&str) -> Option<String>) -> Option<u32> {
    let in_step = env("SLURM_STEP_ID").is_some();
    let tasks: u32 = env("SLURM_STEP_NUM_TASKS").filter(|_| in_step)?.parse().ok()?;
    (tasks > 1).then_some(tasks)
}

/// How srun is called for an allocation.
fn srun(allocation: &Allocation, transport: Transport, site: &Site<'_>) -> SrunPlan {
    let pair = |name: &&str| {
        let value = (site.env)(name)?.into_vec();
        Some(OsBytes::new([name.as_bytes(), b"=", &value].concat()))
    };
    let component = |host: &rlaunch_plan::allocation::AllocatedHost| Some((host.name.clone(), host.component?));
    SrunPlan {
        transport,
        environment: PASSED.iter().filter_map(pair).collect(),
        components: allocation.hosts.iter().filter_map(component).collect(),
    }
}

/// The first option that names hosts.
pub(super) fn first(lists: &[Said], files: &[Said]) -> OsBytes {
    lists.iter().chain(files).map(|said| said.option.clone()).next().unwrap_or_default()
}
