//! Processors and GPUs of this host: the kernel's facts become the tree by which ranks are bound.

use rlaunch_core::gpus::{Devices, Gpu};
use rlaunch_core::node::Processors;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::topology::{Facts, Topology};
use rlaunch_sys::facts::{gpus, topology};

/// Reads them. Without `devices` the GPUs do not matter.
pub(super) fn processors(devices: Option<Devices>) -> Processors {
    let mut read = topology::processors();
    let (allowed, online) = (std::mem::take(&mut read.allowed), std::mem::take(&mut read.online));
    let numa_numbers = std::mem::take(&mut read.numa_numbers);
    let topology = Topology::new(&Facts { numa_numbers, ..Facts::of(allowed, online, read.groups()) });
    let gpu = |gpu: gpus::Gpu| Gpu { uuid: OsBytes::new(gpu.uuid), cpus: gpu.near.into_iter().collect() };
    let gpus = devices.map(|devices| gpus::gpus(devices.amd).into_iter().map(gpu).collect()).unwrap_or_default();
    Processors { topology, has_quota: topology::has_quota(), gpus }
}
