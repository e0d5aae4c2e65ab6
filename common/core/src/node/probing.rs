//! Places at which this host tries to reach rank 0's host, before it is known where the ranks meet. Other hosts may try this one too.
//!
//! The launcher decides how long that may take. All tries end when the launcher sends the rendezvous, or when the end begins.

use super::{Cx, NodeAction};
use crate::node::ProbeAction;
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_protocol::wire::probe::Places;
use rlaunch_protocol::wire::to_node::{Rendezvous, Start};
use rlaunch_protocol::wire::to_root::ToRoot;

/// The state of the probing.
#[derive(Default)]
pub(super) struct Probing {
    /// The rendezvous is known, or the end has begun.
    is_over: bool,
    /// The agent has connections or listeners for the probing.
    is_open: bool,
    /// The addresses of places without a result, by number.
    tried: BTreeMap<u32, OsBytes>,
    /// The address of this host by which each address was reached.
    reached: BTreeMap<OsBytes, IpAddr>,
}

impl Probing {
    pub(super) fn on_begun(&mut self, start: &Start) {
        self.is_open |= !self.is_over && start.find.as_ref().is_some_and(|find| find.probe_key.is_some());
    }

    pub(super) fn on_probe(&mut self, cx: &mut Cx<'_>, places: Places) {
        if self.is_over {
            return;
        }
        for place in places.into_vec() {
            self.is_open = true;
            self.tried.insert(place.number, place.addr.clone());
            cx.act(NodeAction::Probes(ProbeAction::Call(place)));
        }
    }

    /// The outcome for a place: an address of this host, or an errno.
    pub(super) fn on_probed(&mut self, cx: &mut Cx<'_>, number: u32, found: Result<IpAddr, i32>) {
        let Some(addr) = self.tried.remove(&number) else { return };
        if let Ok(by) = found {
            self.reached.insert(addr, by);
        }
        cx.act(NodeAction::ToRoot(ToRoot::Probed { number, found: found.map(Into::into) }));
    }

    /// Returns the address by which this host has reached the one where the ranks meet, if it has tried.
    pub(super) fn on_met(&mut self, cx: &mut Cx<'_>, rendezvous: &Rendezvous) -> Option<IpAddr> {
        self.end(cx);
        self.reached.get(&rendezvous.addr).copied()
    }

    /// Ends all tries, and keeps no other host waiting.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>) {
        self.is_over = true;
        self.tried.clear();
        if core::mem::take(&mut self.is_open) {
            cx.act(NodeAction::Probes(ProbeAction::End));
        }
    }
}
