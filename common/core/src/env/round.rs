//! What a rank gets anew for a round, of all contracts: what a process that is started for it would get.

use super::block::{Host, Seat, common, of_rank};
use super::{Role, lookup, own};
use crate::os_bytes::OsBytes;
use crate::os_strings::OsStrings;
use alloc::vec::Vec;

type Pair = (OsBytes, OsBytes);

/// The variables of one round on one host.
#[derive(Debug)]
pub struct OfRound {
    /// What all ranks share.
    shared: Vec<Pair>,
    pinned: OsStrings,
}

impl OfRound {
    /// `host` is what those that work in it share. What the user pinned stays; but where they meet after the first round is another
    /// place, whoever has said where the first would be.
    #[must_use]
    pub fn new(host: &Host<'_>, pinned: &OsStrings) -> Self {
        let moves = |name: &&[u8]| host.round > 0 && lookup(name).is_some_and(|var| var.role == Role::Meeting);
        let pinned: OsStrings = pinned.iter().filter(|name| !moves(name)).collect();
        Self { shared: pairs(&common(host, &pinned)), pinned }
    }

    /// What a rank gets, and what is not to be set: of one in reserve all that is about those that work.
    #[must_use]
    pub fn of(&self, seat: &Seat<'_>, works: bool) -> Vec<(OsBytes, Option<OsBytes>)> {
        let mut block = OsStrings::default();
        of_rank(seat, &self.pinned, &mut block);
        let own = |name: &[u8]| own::CONTRACT.vars.iter().any(|var| var.name.as_bytes() == name);
        let all = self.shared.iter().cloned().chain(pairs(&block));
        all.map(|(name, value)| {
            let value = Some(value).filter(|_| works || own(&name));
            (name, value)
        })
        .collect()
    }
}

/// Those that a round changes.
fn pairs(block: &OsStrings) -> Vec<Pair> {
    let pair = |entry: &[u8]| {
        let at = entry.iter().position(|b| *b == b'=')?;
        let (name, value) = entry.split_at(at);
        let changes = lookup(name).is_some_and(|var| var.each_round);
        changes.then(|| (OsBytes::from(name), OsBytes::from(value.get(1..).unwrap_or_default())))
    };
    block.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{HOST, SEAT};
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::{String, ToString};

    fn env(round: u32, pinned: &[&str], works: bool) -> Vec<(String, Option<String>)> {
        let all = OfRound::new(&Host { round, ..HOST }, &pinned.iter().collect()).of(&SEAT, works);
        all.into_iter().map(|(name, value)| (name.to_string(), value.map(|value| value.to_string()))).collect()
    }

    fn value(env: &[(String, Option<String>)], name: &str) -> Option<Option<String>> {
        env.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn what_is_flagged_is_what_is_told_and_nothing_else() {
        let told: BTreeSet<String> = env(1, &[], true).into_iter().map(|(name, _)| name).collect();
        let flagged = super::super::REGISTRY.iter().flat_map(|contract| contract.vars).filter(|var| var.each_round);
        assert_eq!(told, flagged.map(|var| var.name.to_string()).collect());
        assert!(!told.contains("LOCAL_RANK") && !told.contains("CUDA_VISIBLE_DEVICES"), "devices stay");
    }

    #[test]
    fn one_in_reserve_knows_itself_and_nothing_of_those_that_work() {
        let (works, waits) = (env(1, &[], true), env(1, &[], false));
        assert!(works.iter().all(|(_, value)| value.is_some()));
        let set: Vec<&str> = waits.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.as_str()).collect();
        assert_eq!(set, ["RLAUNCH_WORLD_SIZE", "RLAUNCH_ROUND", "RLAUNCH_RANK"]);
    }

    #[test]
    fn where_the_user_has_ranks_meet_is_where_the_first_round_meets() {
        let pinned = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"];
        let (first, later) = (env(0, &pinned, true), env(1, &pinned, true));
        assert_eq!((value(&first, "MASTER_PORT"), value(&first, "WORLD_SIZE")), (None, None));
        assert_eq!(value(&later, "MASTER_PORT"), Some(Some("20000".into())));
        assert_eq!(value(&later, "MASTER_ADDR"), Some(Some("127.0.0.1".into())));
        assert_eq!(value(&later, "WORLD_SIZE"), None, "the rest stays as the user has it");
    }
}
