//! A host on which other jobs have cores. A second job takes others, if there are enough.

use super::{Bind, BindTo, Host, Spread};
use crate::topology::{Level, Topology};
use rlaunch_base::cpu_set::CpuSet;

impl Bind {
    /// The host without the cores of other jobs. `None`: the user has named the CPUs, or the rest has too few cores or units.
    #[must_use]
    pub fn beside(&self, host: Host<'_>, taken: &CpuSet) -> Option<Topology> {
        let Host { topology, ranks, .. } = host;
        if matches!(self.to, BindTo::None | BindTo::Lists(_)) {
            return None;
        }
        let is_taken = |core: &&CpuSet| !core.and(taken).is_empty();
        let rest = topology.without(&CpuSet::union(topology.all(Level::Core).iter().filter(is_taken)));
        let each = self.cores.or(self.task_cpus).unwrap_or(1).max(1);
        if rest.count(Level::Core) < ranks.saturating_mul(each) {
            return None;
        }
        let place = match self.spread {
            Spread::Deal(level) | Spread::Each(_, level) => Some(level),
            Spread::Blocks | Spread::Fill => None,
        };
        let to = if let BindTo::Unit(level) = self.to { Some(level) } else { None };
        let has_units = |level: Level| rest.count(level) >= ranks.min(topology.count(level));
        if ![place, to].into_iter().flatten().all(has_units) {
            return None;
        }
        let bound = self.ranks_of(Host { topology: &rest, ..host }).ok()?;
        (bound.unbound.is_none() && !bound.masks.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::tests::smt;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    /// The CPUs of the ranks of a job beside others. The host has 8 cores with two threads each.
    fn beside(bind: &Bind, ranks: u32, taken: &str) -> Option<String> {
        let topology = Topology::new(&smt(1, 2, 4));
        let host = Host { topology: &topology, ranks, has_quota: false, near: &[] };
        let rest = bind.beside(host, &set(taken))?;
        let bound = bind.ranks_of(Host { topology: &rest, ..host }).unwrap();
        Some(bound.masks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn second_job_takes_other_cores_where_there_are_enough() {
        let each = |cores| Bind { cores: Some(cores), ..Bind::default() };
        assert_eq!(beside(&each(1), 2, "0-1").as_deref(), Some("2,10 3,11"));
        assert_eq!(beside(&each(2), 2, "0-3").as_deref(), Some("4-5,12-13 6-7,14-15"));
        assert_eq!(beside(&each(2), 3, "0-3"), None, "no room for three");
        let core = Bind { to: BindTo::Unit(Level::Core), ..Bind::default() };
        assert_eq!(
            beside(&core, 2, "8").as_deref(),
            Some("1,9 2,10"),
            "the other thread of its core is left free, too"
        );
        assert_eq!(
            beside(&Bind::default(), 2, "0-3").as_deref(),
            Some("4-5,12-13 6-7,14-15"),
            "a share of the free cores"
        );
    }

    #[test]
    fn cpus_that_the_user_has_named_are_taken_in_any_case() {
        let named =
            Bind { to: BindTo::Lists(alloc::vec![super::super::CpuList::Cpus(alloc::vec![0])]), ..Bind::default() };
        assert_eq!(beside(&named, 1, "0"), None);
        assert_eq!(beside(&Bind { to: BindTo::None, ..Bind::default() }, 1, "0"), None);
    }
}
