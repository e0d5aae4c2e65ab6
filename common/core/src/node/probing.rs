//! Places at which this host tries to reach rank 0's, before it is known where the ranks meet; or at which it is tried itself.
//!
//! How long that may take is the launcher's to decide: whatever is not answered when it says where they meet, or when the end begins,
//! is given up.

use super::{Cx, NodeAction, Notice};
use crate::os_bytes::OsBytes;
use crate::wire::probe::Probe;
use crate::wire::to_node::{Rendezvous, Start};
use crate::wire::to_root::ToRoot;
use alloc::collections::BTreeMap;
use alloc::format;
use core::net::IpAddr;

/// Most places that may be tried: those of many hosts that may come to have rank 0, one after the other.
const MOST: usize = 4096;

/// The state of the probing.
#[derive(Default)]
pub(super) struct Probing {
    stage: Stage,
    /// Something is tried, or others are waited for.
    open: bool,
    /// By number.
    places: BTreeMap<u32, Place>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// The launcher has not said anything.
    #[default]
    Before,
    /// The node may ask.
    Now,
    /// The rendezvous is known, or the end has begun.
    Over,
}

struct Place {
    addr: OsBytes,
    found: Found,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// By this address of ours.
    By(IpAddr),
    Unreachable,
}

impl Probing {
    pub(super) fn on_begun(&mut self, start: &Start) {
        match self.stage {
            Stage::Before => {
                self.open = start.find.as_ref().is_some_and(|find| find.probe_key.is_some());
                self.stage = Stage::Now;
            }
            Stage::Now | Stage::Over => {}
        }
    }

    pub(super) fn on_probe(&mut self, cx: &mut Cx<'_>, probe: Probe) {
        match self.stage {
            Stage::Before => return cx.notify(Notice::Violation),
            // The end has begun meanwhile.
            Stage::Over => return,
            Stage::Now => {}
        }
        for place in probe.places.into_vec() {
            if self.places.len() >= MOST || self.places.contains_key(&place.number) {
                return cx.notify(Notice::Violation);
            }
            self.open = true;
            self.places.insert(place.number, Place { addr: place.addr.clone(), found: Found::Nothing });
            cx.act(NodeAction::Probe { place, key: probe.key.clone() });
        }
    }

    pub(super) fn on_reached(&mut self, cx: &mut Cx<'_>, number: u32, by: IpAddr) {
        self.found(cx, number, Found::By(by), 0);
    }

    pub(super) fn on_unreached(&mut self, cx: &mut Cx<'_>, number: u32, errno: i32) {
        self.found(cx, number, Found::Unreachable, errno);
    }

    /// The first answer counts.
    fn found(&mut self, cx: &mut Cx<'_>, number: u32, found: Found, errno: i32) {
        let Some(place) = self.places.get_mut(&number) else { return };
        match (self.stage, place.found) {
            (Stage::Now, Found::Nothing) => {
                place.found = found;
                let by = if let Found::By(by) = found { OsBytes::from(format!("{by}")) } else { OsBytes::default() };
                cx.act(NodeAction::ToRoot(ToRoot::Probed { number, errno, by }));
            }
            (Stage::Before | Stage::Over, _) | (Stage::Now, Found::By(_) | Found::Unreachable) => {}
        }
    }

    /// Returns the address by which this host has reached the one where the ranks meet, if it has tried.
    pub(super) fn on_met(&mut self, cx: &mut Cx<'_>, rendezvous: &Rendezvous) -> Option<IpAddr> {
        self.end(cx);
        let by = |place: &Place| if let Found::By(by) = place.found { Some(by) } else { None };
        self.places.values().filter(|place| place.addr == rendezvous.addr).find_map(by)
    }

    pub(super) fn on_ending(&mut self, cx: &mut Cx<'_>) {
        self.end(cx);
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        self.stage = Stage::Over;
        if core::mem::take(&mut self.open) {
            cx.act(NodeAction::EndProbes);
        }
    }
}
