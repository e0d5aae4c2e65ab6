//! Fences: places where named participants meet.
//!
//! Who arrives is a set, not a count, so that nobody counts twice, however often he comes, and the dead can be brought by
//! others. A fence that is complete is forgotten: its name is free for the next one.

use super::error::{Absent, Refusal};
use super::kv::Account;
use crate::os_bytes::OsBytes;
use crate::rank_set::RankSet;
use alloc::collections::BTreeMap;
use bytes::Bytes;

#[derive(Debug)]
struct Fence {
    all: RankSet,
    arrived: RankSet,
}

/// The fences at which somebody has arrived.
#[derive(Debug, Default)]
pub(super) struct Fences {
    open: BTreeMap<Bytes, Fence>,
}

impl Fences {
    /// Some arrive; whether the fence is complete now. What it costs does not depend on how many there are on a host: a host's
    /// ranks are a range.
    pub(super) fn arrive(
        &mut self,
        account: &mut Account,
        name: &[u8],
        all: &RankSet,
        who: &RankSet,
    ) -> Result<bool, Refusal> {
        account.key_fits(name)?;
        let named = || OsBytes::new(name.to_vec());
        if !all.covers(who) {
            return Err(Refusal::NoParticipant { name: named(), who: who.without(all) });
        }
        if who.len() == all.len() && !self.open.contains_key(name) {
            return Ok(true);
        }
        if let Some(fence) = self.open.get_mut(name) {
            if fence.all != *all {
                return Err(Refusal::OtherFence { name: named(), open: fence.all.clone(), asked: all.clone() });
            }
            fence.arrived.extend(who);
            if fence.arrived.len() < fence.all.len() {
                return Ok(false);
            }
            self.open.remove(name);
            account.give_back(name.len());
            return Ok(true);
        }
        account.has_room(name, 1, name.len(), 0)?;
        account.take(name.len());
        self.open.insert(Bytes::copy_from_slice(name), Fence { all: all.clone(), arrived: who.clone() });
        Ok(false)
    }

    /// Whether a fence is complete when these have arrived.
    pub(super) fn completes(&self, name: &[u8], all: &RankSet, who: &RankSet) -> bool {
        let here = self.open.get(name).map(|fence| &fence.arrived);
        let came = here.map_or(who.len(), |here| here.len() + who.without(here).len());
        came >= all.len()
    }

    /// Who has not arrived.
    pub(super) fn missing(&self, name: &[u8]) -> Absent {
        let missing = self.open.get(name).map_or_else(RankSet::new, |fence| fence.all.without(&fence.arrived));
        Absent::Ranks { name: OsBytes::new(name.to_vec()), missing }
    }
}
