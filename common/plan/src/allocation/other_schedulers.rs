//! PBS, LSF and Grid Engine: hosts and slots only.

use super::{AllocatedHost, Allocation, AllocationError, Files, Scheduler, TaskOrder, Variables};
use crate::hostlist::name;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

pub(super) fn find(env: &Variables<'_>, read: &Files<'_>) -> Result<Option<Allocation>, AllocationError> {
    if let Some(text) = env("PBS_NODEFILE").and_then(|path| read(&path)) {
        let job = env("PBS_JOBID").unwrap_or_default();
        return of(Scheduler::Pbs, job, "PBS_NODEFILE", text.lines().map(|line| (line.trim(), 1)));
    }
    let lsf = env("LSB_JOBID").unwrap_or_default();
    if let Some(text) = env("LSB_MCPU_HOSTS") {
        return of(Scheduler::Lsf, lsf, "LSB_MCPU_HOSTS", pairs("LSB_MCPU_HOSTS", &text)?.into_iter());
    }
    if let Some(text) = env("LSB_HOSTS") {
        return of(Scheduler::Lsf, lsf, "LSB_HOSTS", text.split_whitespace().map(|host| (host, 1)));
    }
    let Some(path) = env("PE_HOSTFILE") else { return Ok(None) };
    let Some(text) = read(&path) else { return Ok(None) };
    let mut hosts = Vec::new();
    // A line: host, slots, queue, processors.
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (host, slots) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        hosts.push((host, slots_of("PE_HOSTFILE", host, slots)?));
    }
    of(Scheduler::GridEngine, env("JOB_ID").unwrap_or_default(), "PE_HOSTFILE", hosts.into_iter())
}

/// Each host is followed by its number of slots.
fn pairs<'a>(variable: &'static str, text: &'a str) -> Result<Vec<(&'a str, u32)>, AllocationError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pair = |pair: &[&'a str]| {
        let (host, slots) = (pair.first().copied().unwrap_or_default(), pair.get(1).copied().unwrap_or_default());
        slots_of(variable, host, slots).map(|slots| (host, slots))
    };
    words.chunks(2).map(pair).collect()
}

fn slots_of(variable: &'static str, host: &str, word: &str) -> Result<u32, AllocationError> {
    let error = |_| AllocationError::Slots { variable, host: host.to_string(), word: word.to_string() };
    word.parse().map_err(error)
}

/// The hosts in the order in which they are named first, each with the sum of its slots. `variable`: where the names come from.
fn of<'a>(
    scheduler: Scheduler,
    job: String,
    variable: &'static str,
    named: impl Iterator<Item = (&'a str, u32)>,
) -> Result<Option<Allocation>, AllocationError> {
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    let mut hosts: Vec<AllocatedHost> = Vec::new();
    for (name, slots) in named.filter(|(name, _)| !name.is_empty()) {
        name::host(name).map_err(|_| AllocationError::Name { variable, name: name.to_string() })?;
        let at = *index.entry(name).or_insert(hosts.len());
        match hosts.get_mut(at) {
            Some(host) => host.slots = host.slots.saturating_add(slots),
            None => hosts.push(AllocatedHost { name: name.to_string(), slots, cpus: None, component: None }),
        }
    }
    let found =
        Allocation { scheduler, job, hosts, tasks_were_asked_for: true, cpus_per_task: None, tasks: TaskOrder::Block };
    Ok((!found.hosts.is_empty()).then_some(found))
}

#[cfg(test)]
mod tests {
    use super::super::tests::find;
    use alloc::format;
    use alloc::string::ToString as _;

    #[test]
    fn number_of_slots_that_is_none_is_refused_with_its_host() {
        for (variable, value, why) in [
            ("LSB_MCPU_HOSTS", "a1 x", "'x' is no number of slots of a1"),
            ("LSB_MCPU_HOSTS", "a1 4 a2", "a2 has no number of slots"),
            ("PE_HOSTFILE", "/pe-odd", "'two' is no number of slots of a2"),
        ] {
            let error = find(&[(variable, value)]).unwrap_err().to_string();
            assert_eq!(error, format!("cannot read {variable}: {why}"));
        }
    }

    /// A name that begins with a dash would be an option of ssh.
    #[test]
    fn a_word_that_is_no_name_of_a_host_is_refused() {
        for (variable, value, word) in [
            ("LSB_HOSTS", "a1 -oProxyCommand=x", "-oProxyCommand=x"),
            ("LSB_MCPU_HOSTS", "a1 4 a[2 1", "a[2"),
            ("LSB_HOSTS", "a1 a\u{1b}2", "a\\u{1b}2"),
            ("PBS_NODEFILE", "/odd", "n1 n2"),
        ] {
            let error = find(&[(variable, value)]).unwrap_err().to_string();
            assert_eq!(error, format!("cannot read {variable}: '{word}' is no name of a host"));
        }
    }
}
