//! Whether this host has the GPUs that its ranks are to have: known when its devices are, and of each program when it is
//! complete, because its environment may narrow what there is. No rank is started before.

use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::errno::ENODEV;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::gpus::{Devices, Share};
use rlaunch_protocol::env;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::to_node::Start;
use rlaunch_protocol::wire::to_root::{Found, NodeRefusal, SpawnError, SpawnStep};

#[derive(Default)]
pub(super) struct Gpus {
    each: u32,
    needed: u32,
    devices: Option<Devices>,
    /// Programs that came before the devices were known.
    early: Vec<Arc<AppBase>>,
}

impl Gpus {
    pub(super) fn on_start(&mut self, start: &Start) {
        if let Share::Each(each) = start.settings.gpus {
            self.each = each;
            self.needed = each.saturating_mul(start.local_size);
        }
    }

    /// A program is complete; why its ranks cannot have what they need.
    pub(super) fn on_program(&mut self, base: &Arc<AppBase>) -> Option<NodeRefusal> {
        if self.each == 0 {
            return None;
        }
        let Some(devices) = self.devices else {
            self.early.push(Arc::clone(base));
            return None;
        };
        self.lack(devices, base)
    }

    /// The devices are known; the same for the first program that lacks some.
    pub(super) fn on_devices(&mut self, devices: Devices) -> Option<NodeRefusal> {
        self.devices = Some(devices);
        let early = core::mem::take(&mut self.early);
        early.iter().find_map(|base| self.lack(devices, base))
    }

    fn lack(&self, devices: Devices, base: &AppBase) -> Option<NodeRefusal> {
        let has = seen(devices, base).map(|words| u32::try_from(words.len()).unwrap_or(u32::MAX));
        let enough = has.is_some_and(|has| has >= self.needed);
        (!enough).then_some(NodeRefusal::Gpus { each: self.each, needed: self.needed, has })
    }
}

/// Why a rank of another host is not started here.
pub(super) fn too_few() -> SpawnError {
    SpawnError { step: SpawnStep::Gpus, errno: ENODEV, path: OsBytes::default(), found: Found::Nothing }
}

/// The GPUs that ranks of a program see here; `None`: unknown.
pub(super) fn seen(devices: Devices, base: &AppBase) -> Option<Vec<OsBytes>> {
    devices.seen(|name| env::value(&base.env, name.as_bytes()).map(<[u8]>::to_vec))
}
