//! Variables that a rank gets anew for a round, of all contracts: the same that a process started for the round would get.

use super::block::{Host, RankVariables, common, of_rank};
use super::{Role, lookup, own};
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::os_strings::OsStrings;

type Pair = (OsBytes, OsBytes);

/// The variables of one round on one host.
#[derive(Debug)]
pub struct OfRound {
    /// The variables that all ranks share.
    shared: Vec<Pair>,
    /// Names of what each has for itself, in their order, and whether a round changes it: they are looked up for the first rank.
    known: Vec<(OsBytes, bool)>,
    pinned: OsStrings,
}

impl OfRound {
    /// `host` is what those that work in it share. Values that the user pinned stay. But the rendezvous after the first round is another
    /// one, whatever set the first.
    #[must_use]
    pub fn new(host: &Host<'_>, pinned: &OsStrings) -> Self {
        let moves = |name: &&[u8]| host.round > 0 && lookup(name).is_some_and(|var| var.role == Role::Meeting);
        let pinned: OsStrings = pinned.iter().filter(|name| !moves(name)).collect();
        let block = common(host, &pinned);
        let shared = named(&block).filter(|(name, _)| changes(name)).map(|(name, value)| (name.into(), value.into()));
        Self { shared: shared.collect(), known: Vec::new(), pinned }
    }

    /// Variables to set and to remove for a rank. A rank in reserve has none of the variables about active ranks.
    #[must_use]
    pub fn of(&mut self, values: &RankVariables<'_>, works: bool) -> Vec<(OsBytes, Option<OsBytes>)> {
        let mut block = OsStrings::default();
        of_rank(values, &self.pinned, &mut block);
        let Self { shared, known, .. } = self;
        let mut all = Vec::with_capacity(shared.len() + known.len());
        let is_set = |name: &[u8]| works || own::CONTRACT.vars.iter().any(|var| var.name.as_bytes() == name);
        all.extend(shared.iter().map(|(name, value)| (name.clone(), is_set(name).then(|| value.clone()))));
        for (at, (name, value)) in named(&block).enumerate() {
            let changes = match known.get(at) {
                Some((same, changes)) if **same == *name => *changes,
                Some(_) | None => {
                    known.truncate(at);
                    let changes = changes(name);
                    known.push((name.into(), changes));
                    changes
                }
            };
            if changes {
                all.push((name.into(), is_set(name).then(|| value.into())));
            }
        }
        all
    }
}

fn named(block: &OsStrings) -> impl Iterator<Item = (&[u8], &[u8])> {
    block.iter().filter_map(|entry| {
        let (name, value) = entry.split_at(entry.iter().position(|b| *b == b'=')?);
        Some((name, value.get(1..).unwrap_or_default()))
    })
}

/// Whether a round does.
fn changes(name: &[u8]) -> bool {
    lookup(name).is_some_and(|var| var.each_round)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{HOST, VALUES};
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::{String, ToString};

    fn env(round: u32, pinned: &[&str], works: bool) -> Vec<(String, Option<String>)> {
        let all = OfRound::new(&Host { round, ..HOST }, &pinned.iter().collect()).of(&VALUES, works);
        all.into_iter().map(|(name, value)| (name.to_string(), value.map(|value| value.to_string()))).collect()
    }

    fn value(env: &[(String, Option<String>)], name: &str) -> Option<Option<String>> {
        env.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn only_flagged_variables_are_sent() {
        let sent: BTreeSet<String> = env(1, &[], true).into_iter().map(|(name, _)| name).collect();
        let flagged = super::super::REGISTRY.iter().flat_map(|contract| contract.vars).filter(|var| var.each_round);
        assert_eq!(sent, flagged.map(|var| var.name.to_string()).collect());
        assert!(!sent.contains("LOCAL_RANK") && !sent.contains("CUDA_VISIBLE_DEVICES"), "devices stay");
    }

    #[test]
    fn reserve_has_own_variables_and_none_of_active_ranks() {
        let (works, waits) = (env(1, &[], true), env(1, &[], false));
        assert!(works.iter().all(|(_, value)| value.is_some()));
        let set: Vec<&str> = waits.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.as_str()).collect();
        assert_eq!(set, ["RLAUNCH_WORLD_SIZE", "RLAUNCH_ROUND", "RLAUNCH_RANK"]);
    }

    #[test]
    fn first_round_uses_the_users_rendezvous() {
        let pinned = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"];
        let (first, later) = (env(0, &pinned, true), env(1, &pinned, true));
        assert_eq!((value(&first, "MASTER_PORT"), value(&first, "WORLD_SIZE")), (None, None));
        assert_eq!(value(&later, "MASTER_PORT"), Some(Some("20000".into())));
        assert_eq!(value(&later, "MASTER_ADDR"), Some(Some("127.0.0.1".into())));
        assert_eq!(value(&later, "WORLD_SIZE"), None, "the rest stays as the user has it");
    }
}
