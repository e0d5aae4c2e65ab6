//! The facts of this host about its TPU chips.

use super::metadata;
use rlaunch_plan::metadata::Attribute;
use rlaunch_plan::tpu::chips::{VENDOR, generation};
use rlaunch_plan::tpu::{Attributes, TpuFacts};
use rlaunch_protocol::guard::devices::DeviceKind;
use rlaunch_protocol::wire::to_node::Start;
use rlaunch_sys::devices;

/// The words of the hostfile, else the variables of a container of GKE, else the attributes of a TPU VM. `None`: nothing says which slice
/// this host belongs to.
///
/// A rank that starts rlaunch has the variables of its own job. They say nothing about a job within it.
pub(super) fn find(start: &Start) -> Option<TpuFacts> {
    if start.settings.devices.kind == DeviceKind::None {
        return None;
    }
    let facts = match &start.chips {
        Some(given) => Some(TpuFacts::clone(given)),
        None => of_here(),
    };
    facts.map(|facts| if facts.chips == 0 { facts.with_chips(count_chips()) } else { facts })
}

/// The facts that need no word of the user's.
#[must_use]
pub fn of_here() -> Option<TpuFacts> {
    of_container().or_else(of_virtual_machine)
}

fn of_container() -> Option<TpuFacts> {
    let env = |name: &str| std::env::var(name).ok();
    if env("RLAUNCH_JOB_ID").is_some() { None } else { TpuFacts::of_gke(&env) }
}

/// The metadata server is asked only on a host with accelerators, and has a second in all.
fn of_virtual_machine() -> Option<TpuFacts> {
    let server = if devices::has_accelerators() { metadata::server() } else { None }?;
    let mut texts = metadata::read_attributes(server, &Attribute::ALL);
    TpuFacts::of_attributes(&Attributes {
        worker_number: texts.remove(&Attribute::AgentWorkerNumber),
        endpoints: texts.remove(&Attribute::WorkerNetworkEndpoints),
        instance_id: texts.remove(&Attribute::InstanceId),
        accelerator_type: texts.remove(&Attribute::AcceleratorType),
        tpu_env: texts.remove(&Attribute::TpuEnv),
    })
}

fn count_chips() -> u32 {
    let is_chip = |device: &devices::PciDevice| generation(device.device).is_some();
    let count = if devices::has_accelerators() {
        devices::devices_of(VENDOR).iter().filter(|one| is_chip(one)).count()
    } else {
        0
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}
