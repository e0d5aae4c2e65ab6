//! The parameters of a tree.

use super::filter::Filter;
use crate::rank_assign::key::Key;
use alloc::string::String;
use alloc::vec::Vec;

/// The possible sources of replacements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// A rank in reserve below this layer may take the place of a lost one there.
    pub reserve: bool,
    /// The last active ranks below this layer take the numbers of lost ones there.
    pub backfill: bool,
}

/// A layer: all groups of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    /// The value that the ranks of a group share; looked up once, when a rank is first seen.
    pub key: Key,
    /// A group with fewer healthy ranks is discarded.
    pub min_ranks: u32,
    /// How many of a group work at first; `None`: as many as there are.
    pub max_ranks: Option<u32>,
    /// The possible sources of replacements.
    pub flags: Flags,
}

impl Default for Layer {
    fn default() -> Self {
        Self { key: Key::Same(String::new()), min_ranks: 1, max_ranks: None, flags: Flags::default() }
    }
}

/// A tree, root first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// Its layers; all ranks share the key of the first.
    pub layers: Vec<Layer>,
    /// How many of those that could work do.
    pub filter: Option<Filter>,
    /// `max_ranks` binds replacements too. With NVRx a reserve may bring a group above it.
    pub strict: bool,
    /// Backfill moves as few ranks as it can. NVRx also moves ranks whose numbers need not change.
    pub minimal: bool,
}
