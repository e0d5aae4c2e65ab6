//! Which processes hold the devices of this host.

use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::Span;
use rlaunch_plan::tpu::chips::{self, Generation};
use rlaunch_protocol::guard::devices::{
    CleanPolicy, DeviceHolder, DeviceKind, HolderFacts, JobState, Kept, Treatment, fold_paths, treat, unit_of,
};
use rlaunch_sys::devices::{self, Ancestors, Found, Node, Process, Targets, user_name};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Devices of this host that are looked at together.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Their device files.
    nodes: Vec<Node>,
    /// The TPU chips, by PCI address.
    chips: Vec<(String, Generation)>,
    targets: Targets,
}

impl Site {
    /// The TPU chips with these numbers; none: all.
    fn tpu(chips: &[u32]) -> Self {
        let all = devices::devices_of(chips::VENDOR).into_iter();
        let all = all.filter_map(|found| Some((chips::generation(found.device)?, found)));
        let is_named = |number: u32| chips.is_empty() || chips.contains(&number);
        let all: Vec<_> = (0..).zip(all).filter_map(|(number, chip)| is_named(number).then_some(chip)).collect();
        let node = |path: &PathBuf| Node::at(path);
        let nodes: Vec<Node> = all.iter().flat_map(|(_, found)| found.nodes.iter().filter_map(node)).collect();
        let group = |found: &devices::PciDevice| {
            let group = found.nodes.iter().filter_map(node).find(is_group)?;
            Some((found.address.clone(), group.rdev))
        };
        let groups = all.iter().filter_map(|(_, found)| group(found)).collect();
        let targets = Targets::new(&nodes, groups);
        Self { nodes, chips: all.into_iter().map(|(of, found)| (found.address, of)).collect(), targets }
    }

    /// A single device file that only this user can open, for tests.
    #[cfg(test)]
    pub(crate) fn of_file(path: &str) -> Self {
        let node = Node::at(std::path::Path::new(path)).map(|node| Node { is_open_to_others: false, ..node });
        let nodes: Vec<Node> = node.into_iter().collect();
        let targets = Targets::new(&nodes, Vec::new());
        Self { nodes, chips: Vec::new(), targets }
    }

    /// NVIDIA's GPUs.
    #[must_use]
    pub fn gpus() -> Self {
        let nodes = devices::nvidia();
        let targets = Targets::new(&nodes, Vec::new());
        Self { nodes, chips: Vec::new(), targets }
    }

    /// The devices of a kind. `None`: this host has none.
    #[must_use]
    pub fn of(kind: DeviceKind) -> Option<Self> {
        Self::of_chips(kind, &[])
    }

    /// The devices that a job prepares: the chips with these numbers, or all. `None`: this host has none.
    #[must_use]
    pub fn of_chips(kind: DeviceKind, chips: &[u32]) -> Option<Self> {
        match kind {
            DeviceKind::None => None,
            DeviceKind::Tpu => Some(Self::tpu(chips)),
            DeviceKind::Auto => {
                let site = if devices::has_accelerators() { Self::tpu(chips) } else { Self::default() };
                (!site.chips.is_empty() || is_tpu_container()).then_some(site)
            }
        }
    }

    /// The device files.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The TPU chips: PCI address and generation.
    #[must_use]
    pub fn chips(&self) -> &[(String, Generation)] {
        &self.chips
    }

    pub(crate) const fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The paths of these devices, in short.
    #[must_use]
    pub fn paths(&self, rdevs: &BTreeSet<u64>) -> String {
        let named = self.nodes.iter().filter(|node| rdevs.contains(&node.rdev));
        fold_paths(named.filter_map(|node| node.path.to_str()))
    }

    /// Searches for holders. `job`: this job.
    ///
    /// # Errors
    /// /proc cannot be read, or there is no descriptor left to read it.
    pub fn look(&self, job: &str) -> io::Result<Look> {
        if self.nodes.is_empty() {
            return Ok(Look::default());
        }
        let start = Instant::now();
        let scan = devices::scan(&self.targets)?;
        tracing::debug!(us = start.elapsed().as_micros(), unseen = scan.unseen, "searched for holders of devices");
        let (unsure, mut sure): (Vec<Found>, Vec<Found>) =
            scan.found.into_iter().partition(|found| found.rdevs.is_empty());
        sure.iter_mut().for_each(|found| found.is_unsure = false);
        let busy = |sure: &[Found]| {
            let is_known = |node: &&Node| sure.iter().any(|found| found.rdevs.contains(&node.rdev));
            self.nodes.iter().filter(|node| is_group(node)).find(|node| !is_known(node) && devices::is_busy(node))
        };
        // The kernel does not report which device these processes hold. Other devices of a host may be lent to virtual machines.
        let mut hidden = busy(&sure);
        if let Some(node) = hidden.filter(|_| !unsure.is_empty()) {
            // Each of them may hold it. They are named, and never ended.
            sure.extend(unsure.into_iter().map(|found| Found { rdevs: BTreeSet::from([node.rdev]), ..found }));
            hidden = None;
        } else if hidden.is_some() {
            sure.extend(devices::scan_mappings(&self.targets)?);
            hidden = busy(&sure);
        }
        let ancestors = Ancestors::of_this_process();
        let holders = sure.into_iter().filter_map(|found| Holder::read(self, found, job, &ancestors)).collect();
        Ok(Look { holders, hidden: hidden.map(|node| node.path.clone()) })
    }

    /// Holders by mappings alone are found too. That takes several times as long.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub fn look_closely(&self, job: &str) -> io::Result<Look> {
        let mut look = self.look(job)?;
        if self.nodes.is_empty() {
            return Ok(look);
        }
        let ancestors = Ancestors::of_this_process();
        for found in devices::scan_mappings(&self.targets)? {
            if look.holders.iter().all(|holder| holder.process.pid != found.pid) {
                look.holders.extend(Holder::read(self, found, job, &ancestors));
            }
        }
        Ok(look)
    }
}

/// A VFIO group, which can be opened by one process at a time.
fn is_group(node: &Node) -> bool {
    node.path.starts_with("/dev/vfio")
}

/// Whether this process runs in a container of Google's Kubernetes on a TPU host.
pub(crate) fn is_tpu_container() -> bool {
    chips::HOST_VARIABLES.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The holders that this user may see.
    pub holders: Vec<Holder>,
    /// A device that is held, and no holder is seen.
    pub hidden: Option<PathBuf>,
}

/// A process that holds devices.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The process.
    pub process: Process,
    devices: String,
    unit: OsBytes,
    facts: HolderFacts,
}

impl Holder {
    fn read(site: &Site, Found { pid, rdevs, is_unsure }: Found, job: &str, ancestors: &Ancestors) -> Option<Self> {
        let process = Process::read(pid)?;
        let own_unit = unit_of(&std::fs::read("/proc/self/cgroup").unwrap_or_default());
        let unit = Some(unit_of(&process.cgroup)).filter(|unit| *unit != own_unit).unwrap_or_default();
        let facts = HolderFacts {
            job: job_state(&process, job),
            is_init: pid == 1,
            is_ancestor: ancestors.contains(pid),
            is_same_user: process.uid == rlaunch_sys::facts::host::user().0,
            is_same_namespace: process.pid_namespace.is_some() && process.pid_namespace == ancestors.pid_namespace,
            is_in_unit: !unit.is_empty(),
            is_unsure,
            is_open_to_others: site.nodes.iter().any(|node| node.is_open_to_others && rdevs.contains(&node.rdev)),
            is_foreign: !devices::is_own_proc(),
        };
        Some(Self { devices: site.paths(&rdevs), process, unit, facts })
    }

    /// Its treatment under this policy.
    #[must_use]
    pub fn treatment(&self, policy: CleanPolicy) -> Treatment {
        treat(policy, rlaunch_sys::ns::is_root(), self.facts)
    }

    /// The report for the launcher.
    #[must_use]
    pub fn report(&self, kept: Kept) -> DeviceHolder {
        let Process { pid, uid, age, command, job, state, wchan, .. } = &self.process;
        DeviceHolder {
            devices: OsBytes::from(self.devices.as_str()),
            pid: *pid,
            user: OsBytes::from(user_name(*uid)),
            command: OsBytes::from(command.as_slice()),
            age: Span::from_secs(age.as_secs()),
            unit: self.unit.clone(),
            job: job.as_ref().map(|signs| OsBytes::from(signs.job.as_slice())).unwrap_or_default(),
            kept,
            state: *state,
            wchan: OsBytes::from(wchan.as_slice()),
        }
    }

    /// The device files that it holds, in short.
    #[must_use]
    pub fn devices(&self) -> &str {
        &self.devices
    }
}

fn job_state(process: &Process, own: &str) -> JobState {
    match &process.job {
        None => JobState::None,
        Some(signs) if signs.job.is_empty() && signs.is_ours && !own.is_empty() => JobState::Own,
        Some(signs) if !signs.job.is_empty() && signs.job == own.as_bytes() => JobState::Own,
        Some(signs) if !signs.is_supervised && signs.is_answered == Some(false) => JobState::Dead,
        Some(_) => JobState::Living,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_sys::devices::JobSigns;

    /// Each sign of life alone protects a holder.
    #[test]
    fn job_is_dead_only_without_any_sign_of_life() {
        let state = |is_supervised, is_answered| {
            let signs = JobSigns { job: b"other".to_vec(), rank: None, is_supervised, is_ours: false, is_answered };
            let process = Process { job: Some(signs), ..Process::read(std::process::id()).unwrap() };
            (job_state(&process, "own"), job_state(&process, "other"))
        };
        for (is_supervised, is_answered, expected) in [
            (false, Some(false), JobState::Dead),
            (true, Some(false), JobState::Living),
            (false, Some(true), JobState::Living),
            (false, None, JobState::Living),
        ] {
            assert_eq!(state(is_supervised, is_answered), (expected, JobState::Own), "{is_supervised} {is_answered:?}");
        }
        // The environment of a rank may be cleared.
        for (is_ours, expected) in [(true, JobState::Own), (false, JobState::Living)] {
            let signs = JobSigns { job: Vec::new(), rank: None, is_supervised: true, is_ours, is_answered: None };
            let process = Process { job: Some(signs), ..Process::read(std::process::id()).unwrap() };
            assert_eq!((job_state(&process, "own"), job_state(&process, "")), (expected, JobState::Living));
        }
    }
}
