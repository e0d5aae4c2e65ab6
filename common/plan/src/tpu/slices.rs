//! From the facts of all hosts of a job to its slices, and to what each host's ranks need to know.

use super::bounds::Bounds;
use super::environment::TpuHost;
use super::facts::{FactsSource, TpuFacts};
use crate::hostlist::Hosts;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::error::Hint;
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// The port of the coordinator of several slices (libtpu).
const MEGASCALE_PORT: u16 = 8081;
/// The address where a job has one host.
const LOCALHOST: &str = "localhost";

/// A host of the job that has chips.
#[derive(Clone, Debug)]
pub struct SliceHost<'a> {
    /// Which.
    pub node: NodeId,
    /// Its facts.
    pub facts: &'a TpuFacts,
    /// Its ranks.
    pub ranks: u32,
}

/// Why a job cannot run on these slices.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum SliceError {
    /// The job has only some hosts of a slice.
    #[error("slice {slice} has {}, and the job has {has} of them: libtpu would wait for the others for ever", Hosts(*of))]
    Partial {
        /// Its name.
        slice: OsBytes,
        /// Hosts of the job.
        has: u32,
        /// Hosts of the slice.
        of: u32,
    },
    /// Two hosts have the same number.
    #[error("two hosts are number {worker} of slice {slice}")]
    Twice {
        /// The slice.
        slice: OsBytes,
        /// The number.
        worker: u32,
    },
    /// A number that the slice has not.
    #[error("a host is number {worker} of slice {slice}, which has {}, from 0 on", Hosts(*of))]
    TooHigh {
        /// The slice.
        slice: OsBytes,
        /// The number.
        worker: u32,
        /// Hosts of the slice.
        of: u32,
    },
    /// Slices of one job have different sizes.
    #[error("slice {slice} has {}, and slice {other} has {of}: all slices of a job have the same size", Hosts(*has))]
    Unequal {
        /// A slice.
        slice: OsBytes,
        /// Its hosts.
        has: u32,
        /// The first slice.
        other: OsBytes,
        /// Its hosts.
        of: u32,
    },
    /// Chips cannot be shared out in this way.
    #[error("{ranks} ranks cannot share the {chips} chips of a host: {works}")]
    Ranks {
        /// Ranks of a host.
        ranks: u32,
        /// Chips of a host.
        chips: u32,
        /// The numbers that work.
        works: OsBytes,
    },
    /// Hosts differ in what all hosts have to have alike.
    #[error("hosts of the job have different numbers of {what} ({one} and {other})")]
    Uneven {
        /// `ranks` or `chips`.
        what: OsBytes,
        /// The number of the first.
        one: u32,
        /// Another number.
        other: u32,
    },
}

impl Hint for SliceError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Partial { .. } => {
                Some("all hosts of the slice; or --allow-partial, for programs that do not wait for the others".into())
            }
            Self::Twice { .. } | Self::TooHigh { .. } => {
                Some("slice=NAME id=N in the hostfile, with the numbers from 0 on".into())
            }
            Self::Ranks { .. } => Some("--ppn, with one of these numbers".into()),
            Self::Unequal { .. } => Some("slices of one size: -H chooses among the hosts of the hostfile".into()),
            Self::Uneven { what, .. } if what.as_slice() == b"ranks" => Some("--ppn, for alike hosts".into()),
            Self::Uneven { .. } => Some("hosts with the same devices=N".into()),
        }
    }
}

/// A slice of the job.
struct Slice<'a> {
    name: OsBytes,
    hosts: BTreeMap<u32, SliceHost<'a>>,
}

impl Slice<'_> {
    fn len(&self) -> u32 {
        u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)
    }

    /// Hosts that the slice has, as its hosts say.
    fn size(&self) -> u32 {
        let says = |host: &SliceHost<'_>| match host.facts.host_bounds {
            _ if !host.facts.peers.is_empty() => u32::try_from(host.facts.peers.len()).unwrap_or(u32::MAX),
            Some(bounds) => bounds.count(),
            None => 0,
        };
        self.hosts.values().map(says).max().unwrap_or(0).max(self.len())
    }

    /// The addresses of its hosts by their numbers, as far as they are known.
    fn addresses(&self) -> Vec<OsBytes> {
        let named = self.hosts.values().find_map(|host| (!host.facts.peers.is_empty()).then_some(&host.facts.peers));
        let own = |host: &SliceHost<'_>| {
            let number = usize::try_from(host.facts.worker).unwrap_or(usize::MAX);
            named.and_then(|peers| peers.get(number)).unwrap_or(&host.facts.address).clone()
        };
        self.hosts.values().map(own).collect()
    }
}

/// The part of each host in the job's slices, in the order of the hosts. Slices are numbered in the order in which the job has them.
///
/// # Errors
/// The hosts are no whole slices of one size, unless `allow_partial`; or their chips cannot be shared among their ranks.
pub fn plan(hosts: &[SliceHost<'_>], allow_partial: bool) -> Result<Vec<(NodeId, TpuHost)>, SliceError> {
    let slices = slices(hosts)?;
    check(&slices, allow_partial)?;
    let (Some(first), Some(head)) = (hosts.first(), slices.first()) else { return Ok(Vec::new()) };
    for host in hosts {
        even("ranks", first.ranks, host.ranks)?;
        even("chips", first.facts.chips, host.facts.chips)?;
    }
    let is_alone = hosts.len() == 1;
    let local: OsBytes = LOCALHOST.into();
    let coordinator = head.addresses().first().cloned().unwrap_or_default();
    let count = u32::try_from(slices.len()).unwrap_or(u32::MAX);
    let mut tpu_hosts = BTreeMap::new();
    for (slice, number) in slices.iter().zip(0u32..) {
        let addresses = if is_alone { Vec::from([local.clone()]) } else { slice.addresses() };
        // Hosts of a part of a slice are numbered anew: for its programs they are all that there are.
        for (host, worker) in slice.hosts.values().zip(0..) {
            let tpu_host = TpuHost { worker, ..tpu_host(host, slice, number, &addresses)? };
            let several = (count > 1).then(|| megascale(&coordinator));
            tpu_hosts
                .insert(host.node, TpuHost { slices: count, coordinator: several.unwrap_or_default(), ..tpu_host });
        }
    }
    Ok(hosts.iter().filter_map(|host| Some((host.node, tpu_hosts.remove(&host.node)?))).collect())
}

/// `10.0.1.1:8081`
fn megascale(coordinator: &OsBytes) -> OsBytes {
    let (open, close): (&[u8], &[u8]) = if coordinator.contains(&b':') { (b"[", b"]") } else { (b"", b"") };
    OsBytes::new([open, coordinator, close, format!(":{MEGASCALE_PORT}").as_bytes()].concat())
}

fn slices<'a>(hosts: &[SliceHost<'a>]) -> Result<Vec<Slice<'a>>, SliceError> {
    let mut slices: Vec<Slice<'a>> = Vec::new();
    for host in hosts {
        let name = &host.facts.slice;
        let at = match slices.iter().position(|slice| slice.name == *name) {
            Some(at) => at,
            None => {
                slices.push(Slice { name: name.clone(), hosts: BTreeMap::new() });
                slices.len() - 1
            }
        };
        let worker = host.facts.worker;
        let known = slices.get_mut(at).and_then(|slice| slice.hosts.insert(worker, host.clone()));
        if known.is_some() {
            return Err(SliceError::Twice { slice: name.clone(), worker });
        }
    }
    Ok(slices)
}

fn check(slices: &[Slice<'_>], allow_partial: bool) -> Result<(), SliceError> {
    let Some(first) = slices.first() else { return Ok(()) };
    for slice in slices {
        let (has, of) = (slice.len(), slice.size());
        let slice_name = || slice.name.clone();
        let last = slice.hosts.keys().next_back().copied().unwrap_or(0);
        if last >= of && !allow_partial {
            return Err(SliceError::TooHigh { slice: slice_name(), worker: last, of });
        }
        if has < of && !allow_partial {
            return Err(SliceError::Partial { slice: slice_name(), has, of });
        }
        if of != first.size() {
            let (other, of_other) = (first.name.clone(), first.size());
            return Err(SliceError::Unequal { slice: slice_name(), has: of, other, of: of_other });
        }
    }
    Ok(())
}

fn even(what: &str, one: u32, other: u32) -> Result<(), SliceError> {
    if one == other { Ok(()) } else { Err(SliceError::Uneven { what: what.into(), one, other }) }
}

/// The shape of the chips of each rank. `None`: a rank has all chips of its host.
fn share(ranks: u32, chips: u32) -> Result<Option<Bounds>, SliceError> {
    match (ranks, chips) {
        (0 | 1, _) => Ok(None),
        (ranks, chips) if ranks == chips => Ok(Some(Bounds::ONE)),
        (2, 4) => Ok(Some(Bounds::new(1, 2, 1))),
        (ranks, chips) => {
            let mut works = String::from("1 rank takes all of them");
            if chips > 1 {
                works.push_str(&format!(", {chips} ranks take one each"));
            }
            if chips == 4 {
                works.push_str(", 2 ranks take two each");
            }
            Err(SliceError::Ranks { ranks, chips, works: works.as_str().into() })
        }
    }
}

fn tpu_host(
    host: &SliceHost<'_>,
    slice: &Slice<'_>,
    number: u32,
    addresses: &[OsBytes],
) -> Result<TpuHost, SliceError> {
    let SliceHost { facts, ranks, .. } = host;
    let here = u16::try_from(slice.len()).unwrap_or(u16::MAX);
    let hosts = facts.host_bounds.filter(|bounds| bounds.count() == slice.len()).unwrap_or(Bounds::new(1, 1, here));
    let chips = facts.chips_bounds.unwrap_or(Bounds::ONE);
    let part = share(*ranks, facts.chips)?;
    let processes = match part {
        Some(part) => chips.divided_by(part).map(|own| own.times(hosts)),
        None => None,
    };
    Ok(TpuHost {
        slice: slice.name.clone(),
        slice_number: number,
        slices: 1,
        coordinator: OsBytes::default(),
        worker: 0,
        addresses: OsBytes::new(addresses.iter().map(|address| address.as_slice()).collect::<Vec<_>>().join(&b',')),
        chips: facts.chips,
        ranks: *ranks,
        part,
        processes,
        accelerator_type: facts.accelerator_type.clone(),
        skips_metadata: facts.source == FactsSource::Hostfile,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostlist::Chips;
    use alloc::string::ToString as _;

    fn host(slice: &str, worker: u32, chips: u32) -> TpuFacts {
        TpuFacts::of_hostfile(slice, worker, chips)
    }

    fn error(facts: &[TpuFacts], ranks: u32) -> String {
        let of = |(facts, n): (&'_ TpuFacts, u32)| (NodeId::new(n), facts.clone());
        let all: Vec<(NodeId, TpuFacts)> = facts.iter().zip(0..).map(of).collect();
        let hosts: Vec<_> = all.iter().map(|(node, facts)| SliceHost { node: *node, facts, ranks }).collect();
        plan(&hosts, false).unwrap_err().to_string()
    }

    #[test]
    fn hosts_that_are_no_whole_slices_are_refused() {
        let mut partial = host("a", 0, 4);
        partial.host_bounds = Some(Bounds::new(1, 1, 4));
        assert_eq!(
            error(&[partial.clone()], 1),
            "slice a has 4 hosts, and the job has 1 of them: libtpu would wait for the others for ever"
        );
        let hosts = [SliceHost { node: NodeId::new(0), facts: &partial, ranks: 1 }];
        assert!(plan(&hosts, true).is_ok(), "--allow-partial");
        let last = TpuFacts::of_words(&Chips { hosts: 4, ..Chips::of("a", 3, 4) });
        let hosts = [SliceHost { node: NodeId::new(0), facts: &last, ranks: 1 }];
        let tpu_host = plan(&hosts, true).unwrap().remove(0).1;
        assert_eq!((tpu_host.worker, tpu_host.addresses), (0, LOCALHOST.into()), "a host of a part is numbered anew");
        assert!(error(&[last], 1).starts_with("slice a has 4 hosts, and the job has 1 of them"));
        assert_eq!(error(&[host("a", 0, 4), host("a", 0, 4)], 1), "two hosts are number 0 of slice a");
        assert_eq!(
            error(&[host("a", 0, 4), host("a", 2, 4)], 1),
            "a host is number 2 of slice a, which has 2 hosts, from 0 on"
        );
        assert_eq!(
            error(&[host("a", 0, 4), host("a", 1, 4), host("b", 0, 4)], 1),
            "slice b has 1 host, and slice a has 2: all slices of a job have the same size"
        );
    }

    #[test]
    fn chips_that_cannot_be_shared_out_are_refused_with_what_works() {
        assert_eq!(
            error(&[host("a", 0, 4)], 3),
            "3 ranks cannot share the 4 chips of a host: 1 rank takes all of them, 4 ranks take one each, 2 ranks take two each"
        );
        assert!(error(&[host("a", 0, 8)], 2).contains("8 ranks take one each"));
        assert!(error(&[host("a", 0, 4), host("a", 1, 8)], 1).contains("different numbers of chips (4 and 8)"));
    }
}
