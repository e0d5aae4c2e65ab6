//! The workers of a group on the slots of its hosts: numbers, names, tied groups and shares of devices.
//!
//! A host of the group is what NeMo-RL calls a placement group, a slot is its bundle.

use crate::sharding::ErrorClass;
use alloc::string::String;
use alloc::vec::Vec;

/// How many workers each host has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum WorkersPerNode {
    /// One for each slot.
    #[default]
    All,
    /// The same number on each host.
    Each(usize),
    /// A number for each host.
    Listed(Vec<usize>),
}

/// A tied group: workers on one host that process the same data.
pub type Tied = (usize, Vec<usize>);

/// Hosts and slots of a group, and what is asked of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Slots of each host.
    pub slots: Vec<usize>,
    /// Workers of each host; not used if there are tied groups.
    pub workers_per_node: WorkersPerNode,
    /// Host and slots of each tied group.
    pub tied: Option<Vec<Tied>>,
    /// The begin of the workers' names.
    pub name_prefix: String,
}

/// A worker on its slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// The host, among those of the group.
    pub host: usize,
    /// The slot on the host.
    pub slot: usize,
    /// Number of its tied group, which is its data-parallel shard.
    pub shard: usize,
    /// Its number in its tied group; number 0 leads.
    pub rank_in_shard: usize,
    /// Host and slots of its tied group, for the leader alone.
    pub bundle_indices: Option<Tied>,
}

/// A request that does not fit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RequestError {
    /// Another number of entries than of hosts.
    #[error("workers_per_node list length ({listed}) must match number of placement groups ({hosts})")]
    Length {
        /// Entries of the list.
        listed: usize,
        /// Hosts of the group.
        hosts: usize,
    },
    /// More workers than slots.
    #[error("Placement group {host} has {slots} bundles, but {workers} workers were requested")]
    TooMany {
        /// Number of the host.
        host: usize,
        /// Its slots.
        slots: usize,
        /// Workers that it should have.
        workers: usize,
    },
    /// Neither a number nor a list of numbers.
    #[error("workers_per_node must be None (for default distribution), an int, or a list")]
    Kind,
    /// A tied group on a host that the group does not have.
    #[error("tied group {group} is on host {host}, and the group has {hosts} hosts")]
    NoHost {
        /// Number of the tied group.
        group: usize,
        /// Number of the host.
        host: usize,
        /// Hosts of the group.
        hosts: usize,
    },
}

impl RequestError {
    /// The exception that upstream raises.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Length { .. } | Self::TooMany { .. } | Self::Kind | Self::NoHost { .. } => ErrorClass::Value,
        }
    }
}

impl Request {
    /// The tied groups: those that were asked for, or one for each worker.
    fn groups(&self) -> Result<Vec<Tied>, RequestError> {
        let hosts = self.slots.len();
        if let Some(tied) = &self.tied {
            // One placement group spans all hosts: its bundles are not numbered by host.
            let is_absent = |(_, (host, _)): &(usize, &Tied)| hosts > 1 && *host >= hosts;
            return match tied.iter().enumerate().find(is_absent) {
                Some((group, (host, _))) => Err(RequestError::NoHost { group, host: *host, hosts }),
                None => Ok(tied.clone()),
            };
        }
        let counts = match &self.workers_per_node {
            WorkersPerNode::All => self.slots.clone(),
            WorkersPerNode::Each(count) => alloc::vec![*count; hosts],
            WorkersPerNode::Listed(list) if list.len() == hosts => list.clone(),
            WorkersPerNode::Listed(list) => return Err(RequestError::Length { listed: list.len(), hosts }),
        };
        let mut groups = Vec::new();
        for (host, (slots, workers)) in self.slots.iter().copied().zip(counts).enumerate() {
            if workers > slots {
                return Err(RequestError::TooMany { host, slots, workers });
            }
            groups.extend((0..workers).map(|slot| (host, alloc::vec![slot])));
        }
        Ok(groups)
    }

    /// All workers, by their ranks.
    ///
    /// # Errors
    /// More workers than slots are asked for, or hosts that the group does not have.
    pub fn workers(&self) -> Result<Vec<Worker>, RequestError> {
        let mut all = Vec::new();
        for (shard, group) in self.groups()?.into_iter().enumerate() {
            let (host, slots) = &group;
            for (rank_in_shard, slot) in slots.iter().enumerate() {
                let prefix = &self.name_prefix;
                let name = if slots.len() > 1 {
                    alloc::format!("{prefix}-grp{shard}-{rank_in_shard}")
                } else {
                    alloc::format!("{prefix}-{host}-{slot}")
                };
                let bundle_indices = (rank_in_shard == 0).then(|| group.clone());
                all.push(Worker { name, host: *host, slot: *slot, shard, rank_in_shard, bundle_indices });
            }
        }
        Ok(all)
    }
}
