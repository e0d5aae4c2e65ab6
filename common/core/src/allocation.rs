//! Hosts that a scheduler has given to the job in which rlaunch runs: Slurm, PBS or LSF, by the variables that they set.

use crate::hostlist::fold;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// Hosts of a scheduler's job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// Name of the scheduler.
    pub scheduler: &'static str,
    /// Its hosts, as `-H` takes them.
    pub hosts: String,
}

impl Allocation {
    /// Allocation of several hosts that these variables name. `read`: the content of a file.
    ///
    /// A process of an srun step with several tasks is one of many, each with its own rlaunch: it gets none.
    #[must_use]
    pub fn find(env: &dyn Fn(&str) -> Option<String>, read: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        slurm(env).or_else(|| pbs(env, read)).or_else(|| lsf(env))
    }
}

fn slurm(env: &dyn Fn(&str) -> Option<String>) -> Option<Allocation> {
    let number = |name: &str| env(name).and_then(|value| value.parse::<u32>().ok());
    let hosts = env("SLURM_JOB_NODELIST").filter(|hosts| !hosts.is_empty())?;
    let nodes = number("SLURM_JOB_NUM_NODES").or_else(|| number("SLURM_NNODES")).unwrap_or(0);
    let is_task = number("SLURM_STEP_NUM_TASKS").is_some_and(|tasks| tasks > 1);
    (nodes > 1 && !is_task).then_some(Allocation { scheduler: "Slurm", hosts })
}

fn pbs(env: &dyn Fn(&str) -> Option<String>, read: &dyn Fn(&str) -> Option<String>) -> Option<Allocation> {
    let text = read(&env("PBS_NODEFILE")?)?;
    several("PBS", text.lines().map(str::trim))
}

fn lsf(env: &dyn Fn(&str) -> Option<String>) -> Option<Allocation> {
    match env("LSB_MCPU_HOSTS") {
        // Each host is followed by its number of processors.
        Some(text) => several("LSF", text.split_whitespace().step_by(2)),
        None => several("LSF", env("LSB_HOSTS")?.split_whitespace()),
    }
}

fn several<'a>(scheduler: &'static str, hosts: impl Iterator<Item = &'a str>) -> Option<Allocation> {
    let mut seen = BTreeSet::new();
    let hosts: Vec<String> =
        hosts.filter(|host| !host.is_empty() && seen.insert(*host)).map(|host| host.to_string()).collect();
    (hosts.len() > 1).then(|| Allocation { scheduler, hosts: fold(hosts.iter().map(String::as_str)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(vars: &[(&str, &str)]) -> Option<(&'static str, String)> {
        let env = |name: &str| vars.iter().find(|(own, _)| *own == name).map(|(_, value)| value.to_string());
        let read = |path: &str| (path == "/nodes").then(|| "n1\nn1\nn2\nn3\n".to_string());
        Allocation::find(&env, &read).map(|found| (found.scheduler, found.hosts))
    }

    #[test]
    fn each_scheduler_names_its_hosts() {
        let slurm = [("SLURM_JOB_NODELIST", "node[01-04]"), ("SLURM_JOB_NUM_NODES", "4")];
        assert_eq!(found(&slurm), Some(("Slurm", "node[01-04]".into())));
        assert_eq!(found(&[("PBS_NODEFILE", "/nodes")]), Some(("PBS", "n[1-3]".into())));
        assert_eq!(found(&[("LSB_MCPU_HOSTS", "a1 4 a2 4")]), Some(("LSF", "a[1-2]".into())));
        assert_eq!(found(&[("LSB_HOSTS", "a1 a1 a2")]), Some(("LSF", "a[1-2]".into())));
    }

    #[test]
    fn one_host_is_used_anyway_and_a_task_of_a_step_is_one_of_many() {
        assert_eq!(found(&[("SLURM_JOB_NODELIST", "node01"), ("SLURM_JOB_NUM_NODES", "1")]), None);
        let task = [("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_NNODES", "2"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(found(&task), None);
        assert!(found(&task[..2]).is_some());
        assert_eq!(found(&[("PBS_NODEFILE", "/gone"), ("LSB_HOSTS", "a a")]), None);
        assert_eq!(found(&[]), None);
    }
}
