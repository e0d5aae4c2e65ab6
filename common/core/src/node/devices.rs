//! The device memory of a process that has exited: the process that follows it is not started before that is free.
//!
//! A driver frees memory that was allocated by way of a device file when the last descriptor for that is closed. A process that has been
//! reaped has closed its own. Descriptors that it has passed on, to loaders of data, are closed when these exit. The wait has a limit.

use super::{Cx, NodeAction};
use crate::node::DeviceAction;
use alloc::collections::BTreeMap;
use rlaunch_base::errno::EBUSY;
use rlaunch_base::id::{ProcId, Rank};
use rlaunch_base::machine::earliest_of;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_protocol::wire::to_root::{Found, SpawnError, SpawnStep};

/// The limit of the wait.
const PATIENCE: Span = Span::from_secs(50);

#[derive(Default)]
pub(super) struct Devices {
    /// When each wait ends; `None`: it has ended.
    waits: BTreeMap<ProcId, Option<Mono>>,
    /// The devices that others have taken, where a wait has ended so.
    taken: BTreeMap<ProcId, OsBytes>,
}

impl Devices {
    /// Whether the devices of this process of a rank, which has been reaped, are free. If that is not known, their release is awaited.
    pub(super) fn is_free(&mut self, cx: &mut Cx<'_>, (proc, rank): (ProcId, Rank), pid: u32) -> bool {
        if let Some(wait) = self.waits.get(&proc) {
            return wait.is_none();
        }
        self.waits.insert(proc, Some(cx.now + PATIENCE));
        cx.act(NodeAction::Devices(DeviceAction::AwaitRelease { proc, pid, rank }));
        false
    }

    /// No process of the job holds them any more. `taken`: a device that another process holds. Returns whether that was awaited.
    pub(super) fn on_released(&mut self, proc: ProcId, taken: OsBytes) -> bool {
        let is_awaited = self.waits.get_mut(&proc).is_some_and(|wait| wait.take().is_some());
        if is_awaited && !taken.is_empty() {
            self.taken.insert(proc, taken);
        }
        is_awaited
    }

    /// Ends the wait: the process that follows is to be started. Returns why it cannot be.
    pub(super) fn end_wait(&mut self, proc: ProcId) -> Option<SpawnError> {
        self.waits.remove(&proc);
        let path = self.taken.remove(&proc)?;
        Some(SpawnError { step: SpawnStep::Devices, errno: EBUSY, path, found: Found::Nothing })
    }

    /// Gives up waits that have taken too long. Returns whether there were any.
    pub(super) fn on_timeout(&mut self, now: Mono) -> bool {
        let due = self.waits.values_mut().filter(|wait| wait.is_some_and(|until| until <= now));
        due.fold(false, |_, wait| wait.take().is_some())
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        earliest_of(self.waits.values().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Notice;
    use alloc::collections::VecDeque;

    #[test]
    fn held_devices_are_waited_for_with_a_limit() {
        let (mut out, mut notice) = (VecDeque::new(), VecDeque::<Notice>::new());
        let ((proc, rank), pid) = ((ProcId::new(3), Rank::new(1)), 77);
        let begin = Mono::from_nanos(1_000_000_000);
        let mut devices = Devices::default();
        let mut cx = Cx { now: begin, out: &mut out, notice: &mut notice, facts: &() };
        assert!(!devices.is_free(&mut cx, (proc, rank), pid));
        assert!(!devices.is_free(&mut cx, (proc, rank), pid));
        assert_eq!(out, [NodeAction::Devices(DeviceAction::AwaitRelease { proc, pid, rank })], "once");
        assert_eq!(devices.deadline(), Some(begin + PATIENCE));
        assert!(!devices.on_timeout(begin));
        assert!(devices.on_timeout(begin + PATIENCE), "the wait has a limit");
        assert!(!devices.on_timeout(begin + PATIENCE) && devices.deadline().is_none());
        let mut cx = Cx { now: begin, out: &mut out, notice: &mut notice, facts: &() };
        assert!(devices.is_free(&mut cx, (proc, rank), pid));
        assert_eq!(devices.end_wait(proc), None);
        let none = OsBytes::default;
        assert!(!devices.on_released(proc, none()), "the wait has ended");
        assert!(!devices.is_free(&mut cx, (proc, rank), pid));
        assert!(devices.on_released(proc, none()) && !devices.on_released(proc, "/dev/x".into()));
        assert!(devices.is_free(&mut cx, (proc, rank), pid));
        assert_eq!(devices.end_wait(proc), None);
        assert!(!devices.is_free(&mut cx, (proc, rank), pid));
        assert!(devices.on_released(proc, "/dev/vfio/0".into()));
        let error = devices.end_wait(proc).unwrap();
        assert_eq!((error.step, error.path), (SpawnStep::Devices, "/dev/vfio/0".into()));
    }
}
