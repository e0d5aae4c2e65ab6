//! `--spare-hosts`: the ranks of the last hosts wait, and take the place of those that are lost.
//!
//! They are processes like the others, registered and out of the function: so a lost host costs one round, and nothing has to be started
//! in it. All hosts are filled, a spare one too, or it could not replace another.

use super::{CliError, ranks, wrong};
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::place::Placement;
use rlaunch_core::rank_assign::{Flags, Key, Layer, Policy, Source, Stage, Tree};
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

    /// A tree by host, of which so many work as the other hosts have ranks.
    pub(super) fn policy(&self, placement: &Placement) -> Result<Policy, CliError> {
        let all = placement.nodes.len();
        let works = match all.checked_sub(self.hosts as usize) {
            Some(first @ 1..) => {
                placement.nodes.iter().take(first).fold(0_u32, |sum, node| sum.saturating_add(node.ranks))
            }
            Some(0) | None => {
                let hosts = crate::view::phrases::count(all as u64, "host");
                return Err(wrong(
                    self.to_string(),
                    format!("of {hosts}, none would be left to work"),
                    Some("more hosts".into()),
                ));
            }
        };
        if let Some(n) = self.n.filter(|n| *n != works) {
            let what = format!("the hosts that are not spare have room for {}", ranks(works));
            let hint = format!("-n {works}, or other slots of the hosts (a:4, --ppn 4)");
            return Err(wrong(format!("-n {n} and {self}"), what, Some(hint)));
        }
        let flags = Flags { reserve: true, backfill: false };
        let root = Layer { max_ranks: Some(works), flags, ..Layer::default() };
        let host = Layer { key: Key::Of(Source::Host), flags, ..Layer::default() };
        let tree = Tree { layers: vec![root, host], ..Tree::default() };
        Ok(Policy { stages: vec![Stage::Tree(tree)], regrow: false })
    }
}
