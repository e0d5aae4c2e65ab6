//! The meaning of a list of hosts for a job on slices: which slices are new, which hosts are missing, and which are back.

use crate::hostlist::{Chips, Entry, Host};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::Serialize;

/// A host that the job knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known<'a> {
    /// Which.
    pub host: &'a Host,
    /// Its slice.
    pub slice: &'a str,
    /// The last list does not have it.
    pub is_drained: bool,
}

/// A whole slice that the job does not know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundSlice {
    /// Its name.
    pub name: String,
    /// Its hosts by their numbers, each with its chips.
    pub hosts: Vec<(Host, Chips)>,
}

/// Why a slice of a list is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ignored {
    /// The slice has more hosts than the others.
    Hosts {
        /// How many.
        has: u32,
        /// How many the others have.
        of: u32,
    },
    /// Its hosts have other numbers of chips than those of the others.
    Chips {
        /// How many.
        has: u32,
        /// How many the others have.
        of: u32,
    },
    /// The job has a slice of this name, with other hosts.
    Name,
    /// The job has no slot left.
    NoSlot {
        /// The slots that it has.
        most: u32,
    },
}

/// The difference between a list and the hosts of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Slices that are new, in the order of the list.
    pub came: Vec<FoundSlice>,
    /// Hosts that the list does not have any more, by their place in the list of known hosts.
    pub gone: Vec<usize>,
    /// Hosts that the list has again.
    pub back: Vec<usize>,
    /// Slices that are not used.
    pub ignored: Vec<(String, Ignored)>,
}

/// Compares a list with the hosts of a job. `size`: the hosts of a slice, and the chips of each. A slice of which hosts are still missing
/// is left for a later list.
#[must_use]
pub fn compare(known: &[Known<'_>], list: &[Entry], size: (u32, u32)) -> Change {
    let listed: BTreeSet<&Host> = list.iter().map(|entry| &entry.host).collect();
    let mut change = Change::default();
    for (known, at) in known.iter().zip(0..) {
        match (listed.contains(known.host), known.is_drained) {
            (true, true) => change.back.push(at),
            (false, false) => change.gone.push(at),
            (true, false) | (false, true) => {}
        }
    }
    let hosts: BTreeSet<&Host> = known.iter().map(|known| known.host).collect();
    let names: BTreeSet<&str> = known.iter().map(|known| known.slice).collect();
    for (name, members) in slices(list) {
        if members.iter().all(|entry| hosts.contains(&entry.host)) {
            continue;
        }
        match whole(&members, &name, names.contains(name.as_str()), size) {
            Ok(Some(hosts)) => change.came.push(FoundSlice { name, hosts }),
            Ok(None) => {}
            Err(why) => change.ignored.push((name, why)),
        }
    }
    change
}

/// The hosts of each slice, in the order of the list. A host without a slice is one by itself.
fn slices(list: &[Entry]) -> Vec<(String, Vec<&Entry>)> {
    let mut at: BTreeMap<&str, usize> = BTreeMap::new();
    let mut slices: Vec<(String, Vec<&Entry>)> = Vec::new();
    for entry in list {
        let named = entry.slice();
        let name = named.unwrap_or(&entry.host.name);
        let index = *at.entry(name).or_insert_with(|| {
            slices.push((name.into(), Vec::new()));
            slices.len().saturating_sub(1)
        });
        slices.get_mut(index).into_iter().for_each(|(_, members)| members.push(entry));
    }
    slices
}

/// The hosts of a new slice by their numbers; `None`: some are missing.
fn whole(
    members: &[&Entry],
    name: &str,
    is_known: bool,
    (hosts, chips): (u32, u32),
) -> Result<Option<Vec<(Host, Chips)>>, Ignored> {
    if is_known {
        return Err(Ignored::Name);
    }
    let has = u32::try_from(members.len()).unwrap_or(u32::MAX);
    if has > hosts {
        return Err(Ignored::Hosts { has, of: hosts });
    }
    let mut by_number: BTreeMap<u32, (Host, Chips)> = BTreeMap::new();
    for entry in members {
        let own = entry.chips.clone().unwrap_or_else(|| Chips::of(name, 0, 0));
        // 0: the list does not have the number.
        if own.devices != chips && own.devices != 0 && chips != 0 {
            return Err(Ignored::Chips { has: own.devices, of: chips });
        }
        let own = Chips { slice: name.into(), hosts, devices: chips, ..own };
        by_number.insert(own.id, (entry.host.clone(), own));
    }
    let is_whole = (0..hosts).all(|number| by_number.contains_key(&number));
    Ok(is_whole.then(|| by_number.into_values().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::read;
    use alloc::borrow::ToOwned as _;
    use alloc::vec;
    use proptest::prelude::*;

    fn host(name: &str) -> Host {
        Host::named(name)
    }

    /// New slices with their hosts, missing hosts, hosts that are back, and lines without effect.
    type Changed = (Vec<String>, Vec<usize>, Vec<usize>, Vec<(String, Ignored)>);

    /// The known hosts `n0` to `n3` are slices `a` and `b`; `n3` is drained.
    fn changed(list: &str) -> Changed {
        let hosts = ["n0", "n1", "n2", "n3"].map(host);
        let slices = ["a", "a", "b", "b"];
        let known: Vec<Known<'_>> = hosts
            .iter()
            .zip(slices)
            .map(|(host, slice)| Known { host, slice, is_drained: host.name == "n3" })
            .collect();
        let Change { came, gone, back, ignored } = compare(&known, &read(list.as_bytes()).unwrap(), (2, 4));
        let came = came.into_iter().map(|slice| {
            let hosts: Vec<String> = slice.hosts.into_iter().map(|(host, _)| host.name).collect();
            slice.name + ":" + &hosts.join(",")
        });
        (came.collect(), gone, back, ignored)
    }

    const KNOWN: &str = "n[0-1] slice=a id=0 devices=4\nn2 slice=b id=0 devices=4\n";

    #[test]
    fn whole_slices_are_new_and_missing_hosts_are_gone() {
        let none = (vec![], vec![], vec![], vec![]);
        assert_eq!(changed(KNOWN), none);
        let (came, gone, back, ignored) = changed(
            &(KNOWN.to_owned()
                + "n3 slice=b id=1 devices=4\nn[8-9] slice=d id=0 devices=4\nn7 slice=c id=0 devices=4\n"),
        );
        assert_eq!(
            (came, gone, back, ignored),
            (vec!["d:n8,n9".into()], vec![], vec![3], vec![]),
            "c has not all of its hosts"
        );
        assert_eq!(changed("n0 slice=a id=0 devices=4"), (vec![], vec![1, 2], vec![], vec![]));
    }

    #[test]
    fn slices_that_differ_are_not_used() {
        for (line, name, why) in [
            ("x[0-2] slice=c id=0 devices=4", "c", Ignored::Hosts { has: 3, of: 2 }),
            ("x[0-1] slice=c id=0 devices=8", "c", Ignored::Chips { has: 8, of: 4 }),
            ("n9 slice=b id=1 devices=4", "b", Ignored::Name),
        ] {
            let (came, _, _, ignored) = changed(&(KNOWN.to_owned() + line));
            assert_eq!((came, ignored), (vec![], vec![(name.into(), why)]), "{line}");
        }
    }

    #[test]
    fn host_without_a_slice_is_one_by_itself() {
        let known = [Known { host: &host("n0"), slice: "n0", is_drained: false }];
        let change = compare(&known, &read(b"n0:2\nn1:2\n").unwrap(), (1, 0));
        assert_eq!(
            change.came,
            [FoundSlice { name: "n1".into(), hosts: vec![(host("n1"), Chips { hosts: 1, ..Chips::of("n1", 0, 0) })] }]
        );
        assert_eq!((change.gone, change.back, change.ignored), (vec![], vec![], vec![]));
    }

    proptest! {
        #[test]
        fn new_slices_are_whole_and_no_host_is_of_two(
            hosts in proptest::collection::vec((0u32..12, 0u32..5, 0u32..3), 1..20),
        ) {
            let entry = |(host, slice, id): &(u32, u32, u32)| Entry {
                chips: Some(Chips::of(&alloc::format!("s{slice}"), *id, 4)),
                ..Entry::plain(Host::named(&alloc::format!("n{host}")))
            };
            let mut list: Vec<Entry> = hosts.iter().map(entry).collect();
            list.sort_by(|a, b| a.host.cmp(&b.host));
            list.dedup_by(|a, b| a.host == b.host);
            let change = compare(&[], &list, (2, 4));
            let all: Vec<&Host> = change.came.iter().flat_map(|slice| slice.hosts.iter().map(|(host, _)| host)).collect();
            let once: BTreeSet<&Host> = all.iter().copied().collect();
            prop_assert_eq!(once.len(), all.len());
            prop_assert!(change.came.iter().all(|slice| slice.hosts.len() == 2));
        }
    }
}
