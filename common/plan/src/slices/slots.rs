//! The slots of a job: which hosts form which slice, by the hostfile.

use crate::hostlist::{Chips, Hosts};
use crate::place::Node;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;

/// A place for a slice in the order of the hostfile. Slot s is slice s for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotId(u32);

impl SlotId {
    /// Wraps a number.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number as an index into a vector.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A slot with its slice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The name of the slice.
    pub name: String,
    /// Its hosts. Host k in it is host k for ever.
    pub hosts: Vec<NodeId>,
}

/// Hosts that form no slices of one size.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SlotError {
    /// A host without a slice.
    #[error("{host} has no slice")]
    Unnamed {
        /// The host.
        host: String,
    },
    /// Two hosts have the same number.
    #[error("two hosts are number {id} of slice {slice}: {one} and {other}")]
    Twice {
        /// The slice.
        slice: String,
        /// The number.
        id: u32,
        /// The first host.
        one: String,
        /// The second host.
        other: String,
    },
    /// A number is missing.
    #[error("slice {slice} has {}, and none of them is number {id}", Hosts(*has))]
    Missing {
        /// The slice.
        slice: String,
        /// Its hosts.
        has: u32,
        /// The number.
        id: u32,
    },
    /// Two slices differ.
    #[error("slice {slice} has {}, and slice {other} has {of}", what.counted(*has))]
    Unequal {
        /// A slice.
        slice: String,
        /// The property.
        what: Property,
        /// How many of them.
        has: u32,
        /// The slice that it was compared with.
        other: String,
        /// How many of them that one has.
        of: u32,
    },
}

/// The property in which two slices differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    /// The number of hosts.
    Hosts,
    /// The number of chips of a host.
    Chips,
    /// The number of ranks of a host.
    Ranks,
}

impl Property {
    /// A number of them in words.
    fn counted(self, count: u32) -> String {
        let (noun, place) = match self {
            Self::Hosts => ("host", ""),
            Self::Chips => ("chip", " on a host"),
            Self::Ranks => ("rank", " on a host"),
        };
        let plural = if count == 1 { "" } else { "s" };
        alloc::format!("{count} {noun}{plural}{place}")
    }
}

/// A host of a slice: chips and ranks.
struct Member {
    node: NodeId,
    chips: u32,
    ranks: u32,
}

/// The slots that these hosts form, in their order.
///
/// # Errors
/// They form no slices, or slices that differ.
pub fn slots(nodes: &[Node]) -> Result<Vec<Slot>, SlotError> {
    let host = |node: NodeId| nodes.get(node.index()).map(|node| node.host.to_string()).unwrap_or_default();
    let mut order: Vec<&str> = Vec::new();
    let mut slices: BTreeMap<&str, BTreeMap<u32, Member>> = BTreeMap::new();
    for (node, id) in nodes.iter().zip((0..).map(NodeId::new)) {
        let Some(Chips { slice, id: number, devices, hosts: _ }) =
            node.chips.as_ref().filter(|chips| !chips.slice.is_empty())
        else {
            return Err(SlotError::Unnamed { host: host(id) });
        };
        let members = slices.entry(slice).or_insert_with(|| {
            order.push(slice);
            BTreeMap::new()
        });
        let member = Member { node: id, chips: *devices, ranks: node.ranks };
        if let Some(known) = members.insert(*number, member) {
            let (one, other) = (host(known.node), host(id));
            return Err(SlotError::Twice { slice: slice.clone(), id: *number, one, other });
        }
    }
    let all: Vec<(&str, BTreeMap<u32, Member>)> =
        order.into_iter().filter_map(|name| Some((name, slices.remove(name)?))).collect();
    check(&all)?;
    let slot = |(name, members): (&str, BTreeMap<u32, Member>)| Slot {
        name: name.into(),
        hosts: members.into_values().map(|member| member.node).collect(),
    };
    Ok(all.into_iter().map(slot).collect())
}

/// All slices are whole and alike.
fn check(all: &[(&str, BTreeMap<u32, Member>)]) -> Result<(), SlotError> {
    let Some((first, model)) = all.first() else { return Ok(()) };
    let (of, chips, ranks) = (count(model), largest(model, |m| m.chips), largest(model, |m| m.ranks));
    for (name, members) in all {
        let has = count(members);
        let unequal =
            |what, has, of| Err(SlotError::Unequal { slice: (*name).into(), what, has, other: (*first).into(), of });
        if let Some(id) = (0..has).find(|id| !members.contains_key(id)) {
            return Err(SlotError::Missing { slice: (*name).into(), has, id });
        }
        if has != of {
            return unequal(Property::Hosts, has, of);
        }
        for member in members.values() {
            if member.chips != chips {
                return unequal(Property::Chips, member.chips, chips);
            }
            if member.ranks != ranks {
                return unequal(Property::Ranks, member.ranks, ranks);
            }
        }
    }
    Ok(())
}

fn count(members: &BTreeMap<u32, Member>) -> u32 {
    u32::try_from(members.len()).unwrap_or(u32::MAX)
}

fn largest(members: &BTreeMap<u32, Member>, of: impl Fn(&Member) -> u32) -> u32 {
    members.values().map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostlist::Host;

    fn nodes(chips: &[(&str, u32, u32)]) -> Vec<Node> {
        let node = |(n, (slice, id, devices)): (usize, &(&str, u32, u32))| Node {
            chips: Some(Chips::of(slice, *id, *devices)),
            ..Node::of(Host::named(&alloc::format!("n{n}")), 1)
        };
        chips.iter().enumerate().map(node).collect()
    }

    #[test]
    fn slots_follow_the_hostfile_and_hosts_their_ids() {
        let slots = slots(&nodes(&[("b", 1, 4), ("a", 0, 4), ("b", 0, 4), ("a", 1, 4)])).unwrap();
        let shown: Vec<(&str, Vec<u32>)> =
            slots.iter().map(|slot| (slot.name.as_str(), slot.hosts.iter().map(|node| node.get()).collect())).collect();
        assert_eq!(shown, [("b", [2, 0].to_vec()), ("a", [1, 3].to_vec())]);
    }

    #[test]
    fn hosts_that_form_no_equal_slices_are_refused_with_both() {
        let error = |chips: &[(&str, u32, u32)]| slots(&nodes(chips)).unwrap_err().to_string();
        assert_eq!(error(&[("a", 0, 4), ("", 0, 4)]), "n1 has no slice");
        assert_eq!(error(&[("a", 0, 4), ("a", 0, 4)]), "two hosts are number 0 of slice a: n0 and n1");
        assert_eq!(error(&[("a", 0, 4), ("a", 2, 4)]), "slice a has 2 hosts, and none of them is number 1");
        assert_eq!(error(&[("a", 0, 4), ("b", 0, 4), ("b", 1, 4)]), "slice b has 2 hosts, and slice a has 1");
        let reversed = [("a", 0, 4), ("a", 1, 4), ("b", 0, 4)];
        assert_eq!(error(&reversed), "slice b has 1 host, and slice a has 2");
        assert_eq!(error(&[("a", 0, 4), ("b", 0, 8)]), "slice b has 8 chips on a host, and slice a has 4");
        let mut uneven = nodes(&[("a", 0, 4), ("b", 0, 4)]);
        uneven[1].ranks = 2;
        assert_eq!(slots(&uneven).unwrap_err().to_string(), "slice b has 2 ranks on a host, and slice a has 1");
    }
}
