//! Slices of one job (`--slices`): the slots that hosts form, and the decision which slices take part in each start of ranks.
//!
//! A *slice* is a group of hosts that start, fail and come back as a whole. A *slot* is its place in the order of the hostfile. The
//! decisions here are pure: the router of the job asks them, and acts.

mod sizes;
mod slots;

pub use sizes::{Choice, GROW_AFTER, Growth, Sizes, SizesError, choose, growth};
pub use slots::{Slot, SlotError, SlotId, slots};
