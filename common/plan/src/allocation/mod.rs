//! Hosts that a scheduler has given to the job in which rlaunch runs: Slurm, PBS, LSF or Grid Engine, by the variables that they set.
//! Pure: variables and the text of files come in, hosts with their slots go out.

mod chosen_hosts;
mod counts;
mod other_schedulers;
mod slurm;
mod slurm_config;
mod step_layout;

pub use chosen_hosts::NotAllocated;
pub use counts::CountsError;
pub use slurm_config::SlurmConfig;
pub use step_layout::{HostStep, StepLayout, task_ids};

use crate::hostlist::{self, Alone, Entry, Host, HostlistError, fold};
use crate::place::MOST_RANKS;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::iter::repeat_n;
use rlaunch_base::os_bytes::Visible;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A look at a variable of our environment.
pub type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;
/// The text of a file; `None`: it cannot be read.
pub type Files<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// A kind of scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Scheduler {
    /// Slurm: `SLURM_JOB_ID` and others.
    Slurm,
    /// PBS, Torque: `PBS_NODEFILE`.
    Pbs,
    /// LSF: `LSB_MCPU_HOSTS`, `LSB_HOSTS`.
    Lsf,
    /// Grid Engine: `PE_HOSTFILE`.
    GridEngine,
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slurm => "Slurm",
            Self::Pbs => "PBS",
            Self::Lsf => "LSF",
            Self::GridEngine => "Grid Engine",
        })
    }
}

/// Hosts of a scheduler's job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The scheduler.
    pub scheduler: Scheduler,
    /// The scheduler's name for the job; empty: unknown.
    pub job: String,
    /// Its hosts, each once, in the scheduler's order.
    pub hosts: Vec<AllocatedHost>,
    /// The user has asked the scheduler for a number of tasks. Otherwise the default is one rank on each host.
    pub tasks_were_asked_for: bool,
    /// The processors that the user has asked for, for each task. `None`: no number, or not the same for all components.
    pub cpus_per_task: Option<u32>,
    /// The order of its tasks.
    pub tasks: TaskOrder,
}

/// The order of tasks that the user has asked the scheduler for (`salloc -m`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum TaskOrder {
    /// Host by host.
    #[default]
    Block,
    /// A number of tasks on each host in turn.
    Plane(u32),
    /// The host of each.
    Listed(Vec<String>),
}

/// A host of an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllocatedHost {
    /// Its name, as the scheduler writes it.
    pub name: String,
    /// Ranks that it takes before it is oversubscribed.
    pub slots: u32,
    /// Processors of the job there, if the scheduler names their number.
    pub cpus: Option<u32>,
    /// Which component of a heterogeneous job has it.
    pub component: Option<u32>,
}

impl Allocation {
    /// The allocation that these variables name.
    ///
    /// # Errors
    /// A scheduler's variables contradict each other, or cannot be read.
    pub fn find(env: &Variables<'_>, read: &Files<'_>) -> Result<Option<Self>, AllocationError> {
        match slurm::find(env, read)? {
            Some(found) => Ok(Some(found)),
            None => other_schedulers::find(env, read),
        }
    }

    /// Ranks that run where the user names no number.
    #[must_use]
    pub fn default_ranks(&self) -> u32 {
        let of = |host: &AllocatedHost| if self.tasks_were_asked_for { host.slots } else { 1 };
        self.hosts.iter().map(of).fold(0, u32::saturating_add)
    }

    /// `Slurm job 7`
    #[must_use]
    pub fn title(&self) -> String {
        let Self { scheduler, job, .. } = self;
        match job.as_str() {
            "" => format!("the job of {scheduler}"),
            job => format!("{scheduler} job {}", Visible(job.as_bytes())),
        }
    }

    /// The names of the hosts, as `-H` takes them.
    #[must_use]
    pub fn folded(&self) -> String {
        fold(self.hosts.iter().map(|host| host.name.as_str()))
    }

    /// The slots without those that jobs have, by lists of a host and its ranks on each line; and how many are taken.
    #[must_use]
    pub fn beside(&self, lists: &[String]) -> (Self, u32) {
        let mut rest = self.clone();
        let lines = lists.iter().flat_map(|list| list.lines());
        for (name, ranks) in lines.filter_map(|line| line.rsplit_once(' ')) {
            let host = rest.hosts.iter_mut().find(|host| host.name == name);
            host.into_iter().for_each(|host| host.slots = host.slots.saturating_sub(ranks.parse().unwrap_or(0)));
        }
        let slots = |all: &Self| all.hosts.iter().fold(0u32, |sum, host| sum.saturating_add(host.slots));
        let taken = slots(self).saturating_sub(slots(&rest));
        rest.hosts.retain(|host| host.slots > 0);
        (rest, taken)
    }

    /// The host of each task, where the user has asked for another order than host by host.
    #[must_use]
    pub fn sequence(&self) -> Option<Vec<Host>> {
        let mut left: Vec<(&AllocatedHost, u32)> = self.hosts.iter().map(|host| (host, host.slots)).collect();
        let sum: u64 = left.iter().map(|(_, slots)| u64::from(*slots)).sum();
        match &self.tasks {
            TaskOrder::Block => None,
            TaskOrder::Listed(names) => Some(names.iter().map(|name| Host::named(name)).collect()),
            TaskOrder::Plane(_) if sum > u64::from(MOST_RANKS) => None,
            TaskOrder::Plane(plane) => {
                let mut order = Vec::new();
                while !left.is_empty() {
                    left.retain_mut(|(host, slots)| {
                        let tasks = (*plane).max(1).min(*slots);
                        order.extend(repeat_n(Host::named(&host.name), tasks as usize));
                        *slots -= tasks;
                        *slots > 0
                    });
                }
                Some(order)
            }
        }
    }

    /// The hosts with their slots, as a hostfile would give them.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.hosts.iter().map(AllocatedHost::entry).collect()
    }
}

/// Why an allocation cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AllocationError {
    /// A list of hosts that cannot be read.
    #[error("cannot read the hosts of the allocation: {0}")]
    Hosts(HostlistError),
    /// A list of counts that cannot be read.
    #[error("cannot read {variable}={}: {why}", Visible(value.as_bytes()))]
    Counts {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// Why.
        why: CountsError,
    },
    /// A number that cannot be read.
    #[error("cannot read {variable}={}: it takes a number from 0 to {most}", Visible(value.as_bytes()))]
    Number {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// The largest that is read.
        most: u32,
    },
    /// A word that is no name of a host.
    #[error("cannot read {variable}: '{}' is no name of a host", Visible(name.as_bytes()))]
    Name {
        /// The variable that has the word, or names the file that has it.
        variable: &'static str,
        /// The word.
        name: String,
    },
    /// A host without a number of slots, or with a word that is none.
    #[error("cannot read {variable}: {}", no_slots(host, word))]
    Slots {
        /// The variable that has the word, or names the file that has it.
        variable: &'static str,
        /// The host.
        host: String,
        /// The word; empty: there is none.
        word: String,
    },
    /// Counts for more or fewer hosts than there are.
    #[error("{} counts {entries} host{}, and {} has {hosts}", Visible(counts.as_bytes()), if *entries == 1 { "" } else { "s" }, Visible(list.as_bytes()))]
    Different {
        /// The variable with its value.
        counts: String,
        /// Number of hosts that it counts.
        entries: usize,
        /// The list with its value.
        list: String,
        /// Number of hosts in the list.
        hosts: usize,
    },
    /// A number of tasks above the sum of the tasks by host.
    #[error("{total} and {} differ: the second adds up to {tasks}", Visible(per_host.as_bytes()))]
    Sum {
        /// The variable of the number with its value.
        total: String,
        /// The variable of the tasks by host with its value.
        per_host: String,
        /// Their sum.
        tasks: u64,
    },
    /// A component of a heterogeneous job that has no list of hosts.
    #[error("SLURM_HET_SIZE={size}, and {variable} is not set: the hosts of component {component} are unknown")]
    NoComponent {
        /// The number of components.
        size: String,
        /// The number of the component.
        component: u32,
        /// The variable that is not set.
        variable: String,
    },
}

fn no_slots(host: &str, word: &str) -> String {
    match (Visible(host.as_bytes()), word) {
        (host, "") => format!("{host} has no number of slots"),
        (host, word) => format!("'{}' is no number of slots of {host}", Visible(word.as_bytes())),
    }
}

/// The names of a list of hosts, in their order. `variable` is where it comes from.
fn expanded(variable: &str, text: &str) -> Result<Vec<String>, AllocationError> {
    let entries = hostlist::lists([(variable, text.as_bytes())], &mut Alone).map_err(AllocationError::Hosts)?;
    Ok(entries.into_iter().map(|entry| entry.host.name).collect())
}

/// A variable with a number of at most so much, if it is set.
fn number(env: &Variables<'_>, variable: &str, most: u32) -> Result<Option<u32>, AllocationError> {
    let Some(value) = env(variable).filter(|value| !value.is_empty()) else { return Ok(None) };
    match value.parse::<u32>() {
        Ok(number) if number <= most => Ok(Some(number)),
        Ok(_) | Err(_) => Err(AllocationError::Number { variable: variable.to_string(), value, most }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With these variables, and a file `/nodes` of a host for each slot.
    pub(super) fn find(vars: &[(&str, &str)]) -> Result<Option<Allocation>, AllocationError> {
        let env = |name: &str| vars.iter().find(|(own, _)| *own == name).map(|(_, value)| value.to_string());
        let read = |path: &str| match path {
            "/nodes" => Some("n1\nn1\nn2\n\nn3\n".to_string()),
            "/odd" => Some("n1 n2\n".to_string()),
            "/pe-odd" => Some("a1 4 all.q@a1 UNDEFINED\na2 two all.q@a2 <NULL>\n".to_string()),
            "/tasks" => Some("n2\nn1\n# none\nn2\n".to_string()),
            "/pe" => Some("a1 4 all.q@a1 UNDEFINED\na2 2 all.q@a2 <NULL>\n".to_string()),
            _ => None,
        };
        Allocation::find(&env, &read)
    }

    #[test]
    fn each_scheduler_names_its_hosts_and_their_slots() {
        let slurm = [("SLURM_JOB_ID", "1"), ("SLURM_JOB_NODELIST", "n[01-04]"), ("SLURM_NTASKS", "4")];
        for (vars, scheduler, hosts, ranks) in [
            (&slurm[..], "Slurm", "n[01-04]", 4),
            (&[("PBS_NODEFILE", "/nodes")], "PBS", "n[1-3]", 4),
            (&[("LSB_MCPU_HOSTS", "a1 4 a2 4")], "LSF", "a[1-2]", 8),
            (&[("LSB_HOSTS", "a1 a1 a2")], "LSF", "a[1-2]", 3),
            (&[("PE_HOSTFILE", "/pe")], "Grid Engine", "a[1-2]", 6),
        ] {
            let found = find(vars).unwrap().unwrap();
            let seen = (found.scheduler.to_string(), found.folded(), found.default_ranks());
            assert_eq!(seen, (scheduler.to_string(), hosts.to_string(), ranks));
            assert_eq!(found.entries().len(), found.hosts.len());
        }
    }

    #[test]
    fn messages_show_no_control_characters() {
        let hosts = [("SLURM_JOB_ID", "1"), ("SLURM_JOB_NODELIST", "a")];
        for (variable, value, shown) in [
            ("SLURM_TASKS_PER_NODE", "\u{1b}[1m", "'\\u{1b}[1m' is no count"),
            ("SLURM_CPUS_PER_TASK", "\n", "SLURM_CPUS_PER_TASK=\\n:"),
            ("SLURM_TASKS_PER_NODE", "1,\t1", "SLURM_TASKS_PER_NODE=1,\\t1 counts 2 hosts"),
        ] {
            let error = find(&[hosts[0], hosts[1], (variable, value)]).unwrap_err().to_string();
            assert!(error.contains(shown) && !error.chars().any(char::is_control), "{error}");
        }
        let job = find(&[("SLURM_JOB_ID", "1\r"), hosts[1]]).unwrap().unwrap();
        assert_eq!(job.title(), "Slurm job 1\\r");
    }

    #[test]
    fn without_a_scheduler_there_is_none() {
        for vars in [&[][..], &[("PBS_NODEFILE", "/gone")], &[("LSB_HOSTS", "")], &[("LSB_MCPU_HOSTS", "")]] {
            assert_eq!(find(vars), Ok(None), "{vars:?}");
        }
    }
}
