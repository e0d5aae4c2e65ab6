//! The device memory of a process that has ended: the one that follows it is not started before it is free.
//!
//! A driver frees what was allocated by way of a device file when the last descriptor for that is closed. A process that has been reaped
//! has closed its own; those that it has passed on, to loaders of data, are closed when these end. For that it is not waited for ever.

use super::{Cx, NodeAction};
use crate::id::ProcId;
use crate::machine::earliest_of;
use crate::time::{Mono, Span};
use alloc::collections::BTreeMap;

/// For so long.
const PATIENCE: Span = Span::from_secs(50);
/// Between two looks.
const PAUSE: Span = Span::from_millis(100);

#[derive(Default)]
pub(super) struct Devices {
    waits: BTreeMap<ProcId, Wait>,
}

struct Wait {
    pid: u32,
    until: Mono,
    look: Look,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// A look is under way.
    Asked,
    /// The next look is due at this time.
    At(Mono),
    /// No look is needed any more.
    Over,
}

impl Devices {
    /// Whether the devices of this process, which has been reaped, are free. If that is not known, a look is ordered.
    pub(super) fn is_free(&mut self, cx: &mut Cx<'_>, proc: ProcId, pid: u32) -> bool {
        if let Some(wait) = self.waits.get(&proc) {
            return wait.look == Look::Over;
        }
        self.waits.insert(proc, Wait { pid, until: cx.now + PATIENCE, look: Look::Asked });
        cx.act(NodeAction::LookAtDevices { proc, pid });
        false
    }

    /// Takes the result of a look; whether the wait is over.
    pub(super) fn on_looked(&mut self, cx: &Cx<'_>, proc: ProcId, held: bool) -> bool {
        let Some(wait) = self.waits.get_mut(&proc).filter(|wait| wait.look == Look::Asked) else { return false };
        let over = !held || cx.now >= wait.until;
        wait.look = if over { Look::Over } else { Look::At(cx.now + PAUSE) };
        over
    }

    /// Ends the wait: the process that follows it is being started.
    pub(super) fn forget(&mut self, proc: ProcId) {
        self.waits.remove(&proc);
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        for (proc, wait) in &mut self.waits {
            if let Look::At(at) = wait.look
                && at <= cx.now
            {
                wait.look = Look::Asked;
                cx.act(NodeAction::LookAtDevices { proc: *proc, pid: wait.pid });
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        let at = |wait: &Wait| match wait.look {
            Look::At(at) => Some(at),
            Look::Asked | Look::Over => None,
        };
        earliest_of(self.waits.values().map(at))
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
        let (proc, pid) = (ProcId::new(3), 77);
        let at = |now: Span| Mono::from_nanos(1_000_000_000) + now;
        let mut devices = Devices::default();
        let mut cx = |now: Span, act: &mut dyn FnMut(&mut Cx<'_>) -> bool| {
            let done = act(&mut Cx { now: at(now), out: &mut out, notice: &mut notice, facts: &() });
            (done, core::mem::take(&mut out).len())
        };
        assert_eq!(cx(Span::ZERO, &mut |cx| devices.is_free(cx, proc, pid)), (false, 1), "somebody has to look");
        assert_eq!(cx(Span::ZERO, &mut |cx| devices.is_free(cx, proc, pid)), (false, 0), "once");
        assert!(!cx(Span::ZERO, &mut |cx| devices.on_looked(cx, proc, true)).0);
        assert_eq!(devices.deadline(), Some(at(PAUSE)));
        let mut again = |cx: &mut Cx<'_>| {
            devices.on_timeout(cx);
            devices.deadline().is_none()
        };
        assert_eq!(cx(Span::from_millis(99), &mut again), (false, 0));
        assert_eq!(cx(PAUSE, &mut again), (true, 1));
        assert!(cx(PATIENCE, &mut |cx| devices.on_looked(cx, proc, true)).0, "it has been long enough");
        assert!(cx(PATIENCE, &mut |cx| devices.is_free(cx, proc, pid)).0);
        cx(PATIENCE, &mut |cx| {
            devices.forget(proc);
            devices.waits.is_empty() && !devices.on_looked(cx, proc, false)
        });
        let other = ProcId::new(4);
        assert!(!cx(Span::ZERO, &mut |cx| devices.on_looked(cx, other, false)).0, "nobody has asked");
        cx(Span::ZERO, &mut |cx| devices.is_free(cx, other, pid));
        assert!(cx(Span::ZERO, &mut |cx| devices.on_looked(cx, other, false)).0, "nobody holds it");
    }
}
