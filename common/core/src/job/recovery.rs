//! Survival of a job when a rank fails or a host is lost. It is one value, chosen when the job starts. The command line has refused
//! options that contradict each other.
//!
//! A program that restarts within itself comes first in every kind of recovery: a fault that its rounds absorb is no fault of the job.
//! The router asks this value in `losses`, where the consequences stand side by side, and in `next_generation`.

use super::facts::JobFacts;
use super::shrink_rule::{self, Means, ShrinkRule};
use super::slices::SliceTable;
use alloc::boxed::Box;
use alloc::sync::Arc;
use rlaunch_base::id::NodeId;
use rlaunch_base::time::Mono;
use rlaunch_plan::place::Placement;
use rlaunch_protocol::settings::OnFailure;
use rlaunch_protocol::spec::JobSpec;

/// Consequence of a fault for the job.
#[derive(Debug)]
pub(super) enum Recovery {
    /// The job ends.
    EndJob,
    /// The program that leads the job continues without a lost host (`--lead`).
    Lead,
    /// All ranks start again, on the hosts that remain (`--max-restarts`).
    Remaining(ShrinkRule),
    /// All ranks start again, on slices that are up (`--slices`).
    Slices(Box<SliceTable>),
}

impl Recovery {
    pub(super) fn new(now: Mono, spec: &Arc<JobSpec>) -> Self {
        match spec.slices.clone().filter(|_| !spec.placement.is_here()) {
            Some(plan) => Self::Slices(Box::new(SliceTable::new(plan, now, spec.placement.nodes.len(), seed(spec)))),
            None if spec.lead.is_some() => Self::Lead,
            None if starts_again(spec) => Self::Remaining(ShrinkRule::new(Arc::clone(spec))),
            None => Self::EndJob,
        }
    }

    /// The slices, if hosts of them come and go.
    pub(super) fn slices(&self) -> Option<&SliceTable> {
        if let Self::Slices(slices) = self { Some(slices) } else { None }
    }

    /// The same, to be changed.
    pub(super) fn slices_mut(&mut self) -> Option<&mut SliceTable> {
        if let Self::Slices(slices) = self { Some(slices) } else { None }
    }

    /// Whether a generation may have fewer hosts than the one before, or others.
    pub(super) const fn may_shrink(&self, means: &Means) -> bool {
        match self {
            Self::EndJob | Self::Lead => false,
            Self::Remaining(_) => means.may_shrink(),
            Self::Slices(_) => true,
        }
    }

    /// Whether the hosts that are left, without these, are enough for another generation.
    pub(super) fn can_do_without(&self, facts: &JobFacts, means: &Means, also: &[NodeId]) -> bool {
        match self {
            Self::EndJob | Self::Lead => false,
            Self::Remaining(rule) => rule.can_do_without(facts, means, also),
            Self::Slices(_) => true,
        }
    }

    /// The placement on the hosts that remain, if hosts were lost in this generation. Slices are chosen when the next one starts.
    pub(super) fn remaining(&self, facts: &JobFacts, means: &Means) -> Option<Placement> {
        match self {
            Self::EndJob | Self::Lead | Self::Slices(_) => None,
            Self::Remaining(_) => shrink_rule::next_placement(facts, means),
        }
    }
}

/// Whether all ranks may be started again.
pub(super) fn starts_again(spec: &JobSpec) -> bool {
    spec.may_restart() && spec.settings.ending.on_failure == OnFailure::Kill
}

/// A number that other jobs do not have.
pub(super) fn seed(spec: &JobSpec) -> u64 {
    spec.job.0.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
