//! Slices of one job (`--slices`): the slots that hosts form, and the decision which slices take part in each start of ranks.
//!
//! A *slice* is a group of hosts that start, fail and come back as a whole. A *slot* is its place in the order of the hostfile. The
//! decisions here are pure: the router of the job asks them, and acts.

mod sizes;
mod slots;

pub use sizes::{Choice, GROW_AFTER, Growth, Sizes, SizesError, choose, growth};
pub use slots::{Property, Slot, SlotError, SlotId, slots};

use alloc::vec::Vec;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::Span;

/// The request for slices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicePlan {
    /// `--slices`.
    pub sizes: Sizes,
    /// The slots, by their `SlotId`.
    pub slots: Vec<Slot>,
    /// `--spare-slices`.
    pub spares: u32,
    /// `--scale-timeout`.
    pub timeout: Span,
    /// `--grow`.
    pub grow: Grow,
}

/// When a job takes a larger valid number of slices that is up (`--grow`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grow {
    /// At the next start of ranks, whatever its cause.
    #[default]
    Next,
    /// At once: all ranks are ended and started again.
    Now,
}

impl SlicePlan {
    /// The hosts of these slots, in their order.
    #[must_use]
    pub fn hosts(&self, slots: impl IntoIterator<Item = SlotId>) -> Vec<NodeId> {
        let hosts = |slot: SlotId| self.slots.get(slot.index()).into_iter().flat_map(|slot| slot.hosts.iter().copied());
        slots.into_iter().flat_map(hosts).collect()
    }

    /// The hosts of a job of the largest size, where all slices are up.
    #[must_use]
    pub fn first_hosts(&self) -> Vec<NodeId> {
        self.hosts((0..self.sizes.largest()).map(SlotId::new))
    }
}
