//! Hosts of an allocation that the user has chosen by `-H` or a hostfile.

use super::{AllocatedHost, Allocation};
use crate::hostlist::{Entry, Host};
use crate::place::Here;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// A host that is none of the allocation's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAllocated(pub Host);

impl Allocation {
    /// The chosen hosts, each once, in their order and with the slots that the scheduler has given them. A smaller number of slots that
    /// the user gives counts; a greater one does not: other jobs may have the rest. `localhost` is this host, if it is one of them.
    ///
    /// # Errors
    /// A host is none of the allocation's.
    pub fn select(&self, chosen: Vec<Entry>, here: &Here) -> Result<Vec<Entry>, NotAllocated> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut taken = BTreeSet::new();
        for entry in chosen {
            let host = self.host(&entry.host, here).ok_or_else(|| NotAllocated(entry.host.clone()))?;
            let slots = entry.slots.map_or(host.slots, |slots| slots.min(host.slots));
            if taken.insert(host.name.as_str()) {
                entries.push(Entry {
                    slots: Some(slots),
                    max_slots: entry.max_slots,
                    turns: entry.turns,
                    ..host.entry()
                });
            }
        }
        Ok(entries)
    }

    /// The host of this name, with its domain or without; a user or a port makes it no other.
    fn host(&self, wanted: &Host, here: &Here) -> Option<&AllocatedHost> {
        let plain = Host::named(&wanted.name);
        let is_named = |host: &&AllocatedHost| host.name.eq_ignore_ascii_case(&wanted.name);
        let is_short = |host: &&AllocatedHost| {
            let (one, other) = (short(&host.name), short(&wanted.name));
            (one.len() == host.name.len()) != (other.len() == wanted.name.len()) && one.eq_ignore_ascii_case(other)
        };
        let is_here = |host: &&AllocatedHost| here.is(&plain) && here.is(&Host::named(&host.name));
        let hosts = || self.hosts.iter();
        hosts().find(is_named).or_else(|| hosts().find(is_short)).or_else(|| hosts().find(is_here))
    }
}

impl AllocatedHost {
    /// The host with its slots, as a hostfile would give it.
    #[must_use]
    pub fn entry(&self) -> Entry {
        Entry { slots: Some(self.slots), ..Entry::plain(Host::named(&self.name)) }
    }
}

/// A name without its domain.
fn short(name: &str) -> &str {
    name.split_once('.').map_or(name, |(first, _)| first)
}

/// As `-H` would have named them.
impl core::fmt::Display for NotAllocated {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::find;
    use super::*;
    use crate::hostlist::{self, Alone};
    use alloc::string::{String, ToString as _};

    fn chosen(list: &str, here: &str) -> Result<Vec<(String, u32)>, String> {
        let found = find(&[
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "node[0-2],gpu1.site"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_TASKS_PER_NODE", "4,2,1(x2)"),
        ]);
        let here = Here { name: here.into(), cpus: 2 };
        let entries = hostlist::lists([("-H", list.as_bytes())], &mut Alone).unwrap();
        let entries = found.unwrap().unwrap().select(entries, &here).map_err(|host| host.to_string())?;
        Ok(entries.into_iter().map(|entry| (entry.host.name.clone(), entry.slots())).collect())
    }

    #[test]
    fn chosen_hosts_have_the_slots_of_the_allocation() {
        for (list, here, expected) in [
            ("node2", "login", &[("node2", 1)][..]),
            ("node1,node0", "login", &[("node1", 2), ("node0", 4)]),
            ("node0:2,node1:9", "login", &[("node0", 2), ("node1", 2)]),
            ("node0,node0", "login", &[("node0", 4)]),
            ("node1.site,gpu1", "login", &[("node1", 2), ("gpu1.site", 1)]),
            ("eve@node1", "login", &[("node1", 2)]),
            ("localhost", "node2", &[("node2", 1)]),
        ] {
            let expected: Vec<(String, u32)> =
                expected.iter().map(|(name, slots)| (name.to_string(), *slots)).collect();
            assert_eq!(chosen(list, here), Ok(expected), "{list}");
        }
    }

    #[test]
    fn a_host_outside_the_allocation_is_named() {
        for (list, here, outside) in [
            ("node0,node9", "login", "node9"),
            ("localhost", "login", "localhost"),
            ("gpu1.other", "login", "gpu1.other"),
        ] {
            assert_eq!(chosen(list, here), Err(outside.to_string()));
        }
    }
}
