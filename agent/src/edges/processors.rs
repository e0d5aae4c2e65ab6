//! The processors of this host, from the kernel's facts to the tree by which ranks are bound.

use rlaunch_core::node::Processors;
use rlaunch_core::topology::{Facts, Topology};
use rlaunch_sys::facts::topology;

/// Reads the processors of this host.
pub(super) fn processors() -> Processors {
    let mut read = topology::processors();
    let (allowed, online) = (std::mem::take(&mut read.allowed), std::mem::take(&mut read.online));
    let topology = Topology::new(&Facts::of(allowed, online, read.groups()));
    Processors { topology, has_quota: topology::has_quota() }
}
