//! `--spare-hosts`: the ranks of the last hosts wait, and take the place of lost ranks.
//!
//! Waiting ranks are processes like the others, registered and out of the function. A lost host costs one round, in which no process has
//! to be started. All hosts are filled, spare hosts too, because a spare host replaces all ranks of another.
//!
//! Hosts of a slice are wired to each other. If hosts form slices, the last hosts of each slice are spare, and replace hosts of their own
//! slice alone.

use super::{CliError, ranks, wrong};
use rlaunch_base::id::NodeId;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::place::Placement;
use rlaunch_plan::rank_assign::{Flags, Key, Layer, Policy, Source, Stage, Tree};
use std::collections::BTreeMap;
use std::fmt;

/// The options.
#[derive(Debug)]
pub(super) struct SpareHosts {
    /// How the option was spelled.
    option: OsBytes,
    hosts: u32,
    /// `-n`: how many shall work.
    n: Option<u32>,
}

impl fmt::Display for SpareHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.option, self.hosts)
    }
}

impl SpareHosts {
    pub(super) const fn new(option: OsBytes, hosts: u32) -> Self {
        Self { option, hosts, n: None }
    }

    pub(super) const fn option(&self) -> &OsBytes {
        &self.option
    }

    /// Sets the number of ranks that shall work.
    pub(super) const fn works(&mut self, n: Option<u32>) {
        self.n = n;
    }

    /// A tree by host, of which so many work as the other hosts have ranks. Replacements come from the host's own slice, if it has one.
    pub(super) fn policy(&self, placement: &Placement) -> Result<Policy, CliError> {
        let groups = by_slice(placement);
        let is_sliced = groups.keys().all(Option::is_some);
        let works: Vec<u32> = groups.values().map(|ranks| self.working(ranks, is_sliced)).collect::<Result<_, _>>()?;
        let all = works.iter().fold(0_u32, |sum, works| sum.saturating_add(*works));
        if let Some(n) = self.n.filter(|n| *n != all) {
            let what = format!("the hosts that are not spare have room for {}", ranks(all));
            let hint = format!("-n {all}, or other slots of the hosts (a:4, --ppn 4)");
            return Err(wrong(format!("-n {n} and {self}"), what, Some(hint)));
        }
        if works.iter().any(|own| Some(own) != works.first()) {
            let what = "the slices differ in the ranks of the hosts that are not spare".into();
            return Err(wrong(self.to_string(), what, Some("the same number of ranks on each host".into())));
        }
        let flags = Flags { reserve: true, backfill: false };
        let bounded = Layer { max_ranks: works.first().copied(), flags, ..Layer::default() };
        let host = Layer { key: Key::Of(Source::Host), flags, ..Layer::default() };
        let layers = match is_sliced {
            // The search for a replacement ends below a layer without the flag.
            true => vec![Layer::default(), Layer { key: Key::Of(Source::Slice), ..bounded }, host],
            false => vec![bounded, host],
        };
        Ok(Policy { stages: vec![Stage::Tree(Tree { layers, ..Tree::default() })], regrow: false })
    }

    /// The ranks of the first hosts, which are not spare.
    fn working(&self, hosts: &[u32], is_sliced: bool) -> Result<u32, CliError> {
        match hosts.len().checked_sub(self.hosts as usize) {
            Some(first @ 1..) => Ok(hosts.iter().take(first).fold(0, |sum: u32, ranks| sum.saturating_add(*ranks))),
            Some(0) | None => {
                let hosts = crate::view::phrases::count(hosts.len() as u64, "host");
                let of = if is_sliced { " of each slice" } else { "" };
                let what = format!("of {hosts}{of}, none would be left to work");
                Err(wrong(self.to_string(), what, Some("more hosts".into())))
            }
        }
    }
}

/// The ranks of each host, by slices. If some host has none, all are one group.
fn by_slice(placement: &Placement) -> BTreeMap<Option<&str>, Vec<u32>> {
    let known = || placement.nodes.iter().zip((0..).map(NodeId::new)).filter(|(node, _)| !node.is_unknown());
    let is_sliced = known().all(|(_, node)| placement.slice(node).is_some());
    let mut groups: BTreeMap<Option<&str>, Vec<u32>> = BTreeMap::new();
    for (host, node) in known() {
        groups.entry(placement.slice(node).filter(|_| is_sliced)).or_default().push(host.ranks);
    }
    groups
}
