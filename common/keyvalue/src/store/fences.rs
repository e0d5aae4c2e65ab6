//! Fences: places where named participants meet.
//!
//! Arrivals are a set, not a count. So no rank counts twice, however often it comes, and another can arrive for a dead one. A fence that
//! is complete is forgotten: its name is free for the next one.

use super::quota::Quota;
use super::store_limits::Limits;
use super::{Absent, Refusal};
use alloc::collections::BTreeMap;
use bytes::Bytes;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::rank_set::RankSet;

#[derive(Debug)]
struct Fence {
    all: RankSet,
    arrived: RankSet,
}

impl Fence {
    /// Its bytes, beside those of its name.
    fn weight(&self) -> usize {
        Limits::of_ranks(&self.all) + Limits::of_ranks(&self.arrived)
    }

    /// Some more are here, if there is room for that.
    fn come(&mut self, account: &mut Quota, name: &[u8], who: &RankSet) -> Result<(), Refusal> {
        let old = self.weight();
        if account.fits(Limits::of_ranks(who)) {
            self.arrived.extend(who);
        } else {
            // Ranks beside ranks that are here need no room of their own: near the limit that is worth a copy.
            let mut arrived = self.arrived.clone();
            arrived.extend(who);
            if arrived.len() < self.all.len() {
                let (new, freed) = (Limits::of_ranks(&arrived), Limits::of_ranks(&self.arrived));
                account.has_room(name, 0, new, freed)?;
            }
            self.arrived = arrived;
        }
        account.resize(old, self.weight());
        Ok(())
    }
}

/// The fences at which any rank has arrived.
#[derive(Debug, Default)]
pub(super) struct Fences {
    open: BTreeMap<Bytes, Fence>,
}

impl Fences {
    /// Some arrive; whether the fence is complete now. The cost does not depend on the number of ranks of a host: they are a range.
    pub(super) fn arrive(
        &mut self,
        account: &mut Quota,
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
            fence.come(account, name, who)?;
            if fence.arrived.len() < fence.all.len() {
                return Ok(false);
            }
            account.give_back(name.len() + fence.weight());
            self.open.remove(name);
            return Ok(true);
        }
        let fence = Fence { all: all.clone(), arrived: who.clone() };
        let bytes = name.len().saturating_add(fence.weight());
        account.has_room(name, 1, bytes, 0)?;
        account.take(bytes);
        self.open.insert(Bytes::copy_from_slice(name), fence);
        Ok(false)
    }

    /// Whether a fence is complete when these have arrived.
    pub(super) fn completes(&self, name: &[u8], all: &RankSet, who: &RankSet) -> bool {
        let here = self.open.get(name).map(|fence| &fence.arrived);
        let came = here.map_or(who.len(), |here| here.len() + who.without(here).len());
        came >= all.len()
    }

    pub(super) fn is_open(&self, name: &[u8]) -> bool {
        self.open.contains_key(name)
    }

    /// The ranks that have not arrived.
    pub(super) fn missing(&self, name: &[u8]) -> Absent {
        let missing = self.open.get(name).map_or_else(RankSet::new, |fence| fence.all.without(&fence.arrived));
        Absent::Ranks { name: OsBytes::new(name.to_vec()), missing }
    }
}
