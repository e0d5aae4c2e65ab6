//! Lists of hosts that the command of `--discover` prints: new slices get slots after the last one, and missing hosts are drained.
//!
//! A job has slots in reserve, whose hosts are unknown at its start. A host becomes known with its name, and is reached then.

use super::super::{JobAction, Parts, Step};
use crate::events::{JobNews, SliceNews, What};
use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::discover::{Change, FoundSlice, Ignored, Known, compare};
use rlaunch_plan::hostlist::Entry;
use rlaunch_plan::place::Placement;

impl Parts {
    /// The job starts without the hosts that it does not know yet.
    pub(in crate::job) fn leave_out_unknown(&mut self, step: &mut Step<'_>, placement: &Placement) {
        let unknown = placement.nodes.iter().zip((0..).map(NodeId::new)).filter(|(node, _)| node.is_unknown());
        for (_, node) in unknown {
            self.forget(step, node);
        }
    }

    /// A list of the hosts that there are.
    pub(super) fn discovered(&mut self, step: &mut Step<'_>, list: &[Entry]) {
        let Some(slices) = self.recovery.slices().filter(|_| !self.is_over()) else { return };
        let nodes = &step.facts.whole().nodes;
        let chips = nodes.first().and_then(|node| node.chips.as_ref()).map_or(0, |chips| chips.devices);
        let size = slices.plan().slots.first().map_or(1, |slot| u32::try_from(slot.hosts.len()).unwrap_or(u32::MAX));
        let hosts = slices.known_hosts();
        let of = |node: NodeId| nodes.get(node.index()).map(|node| &node.host);
        let known = hosts
            .iter()
            .filter_map(|(node, slice, is_drained)| Some(Known { host: of(*node)?, slice, is_drained: *is_drained }));
        let Change { came, gone, back, ignored } = compare(&known.collect::<Vec<_>>(), list, (size, chips));
        let all: Vec<NodeId> = hosts.iter().map(|(node, ..)| *node).collect();
        let node = |at: &usize| all.get(*at).copied();
        gone.iter().filter_map(node).for_each(|node| self.drain(step, node));
        back.iter().filter_map(node).for_each(|node| self.undrain(step, node));
        came.into_iter().for_each(|slice| self.slice_came(step, slice));
        ignored.into_iter().for_each(|(name, why)| self.ignore_slice(step, &name, why));
    }

    /// A slice is new: its hosts are reached.
    fn slice_came(&mut self, step: &mut Step<'_>, slice: FoundSlice) {
        let FoundSlice { name, hosts } = slice;
        let Some(table) = self.recovery.slices_mut() else { return };
        let most = u32::try_from(table.plan().slots.len()).unwrap_or(u32::MAX);
        let Some(nodes) = table.name_slot(&name) else {
            return self.ignore_slice(step, &name, Ignored::NoSlot { most });
        };
        let names = hosts.iter().map(|(host, _)| alloc::format!("{host}").as_str().into()).collect();
        let news =
            JobNews::Slices(SliceNews::Found { slice: name.as_str().into(), nodes: nodes.clone(), hosts: names });
        self.log.write(&mut step.cx(), What::News(news));
        for (node, (host, chips)) in nodes.into_iter().zip(hosts) {
            step.facts.name(node, &host, &chips);
            self.bringup.name(node, &host, &chips);
            step.act(JobAction::Know { node, host });
            self.redial(step, node);
        }
    }

    fn ignore_slice(&mut self, step: &mut Step<'_>, name: &str, why: Ignored) {
        if self.recovery.slices_mut().is_some_and(|slices| slices.ignore(name)) {
            self.log.write(&mut step.cx(), What::News(JobNews::Slices(SliceNews::Ignored { slice: name.into(), why })));
        }
    }

    /// A host is not there any more, by the list.
    fn drain(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.recovery.slices_mut().into_iter().for_each(|slices| slices.drain(node, true));
        self.warned(step, node, WarningSource::Discovery);
    }

    /// The list has a host again.
    fn undrain(&mut self, step: &mut Step<'_>, node: NodeId) {
        self.recovery.slices_mut().into_iter().for_each(|slices| slices.drain(node, false));
        step.facts.hosts.clear_discovery_warning(node);
        self.log.write(&mut step.cx(), What::News(JobNews::Slices(SliceNews::HostBack { node })));
        if self.bringup.is_away(node) {
            self.redial_later(step, node);
        }
    }
}
