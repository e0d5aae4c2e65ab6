//! Checks of the words of hostfiles about TPU slices: `slice=a id=0 devices=4`.

use super::{Chips, Fault, HostlistError, Item, Merged};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};

/// Two lines about one host agree.
pub(super) fn check_same(item: &Item, here: &Chips, other: &Item) -> Result<(), HostlistError> {
    match &other.chips {
        Some(there) if there != here => Err(item.spot.fault(Fault::OtherChips {
            host: item.host.name.as_str().into(),
            here: words(here).into(),
            there: words(there).into(),
            other: Box::new(other.spot.clone()),
        })),
        Some(_) | None => Ok(()),
    }
}

/// `slice=a id=0 devices=4`
fn words(chips: &Chips) -> String {
    let Chips { slice, id, devices, hosts: _ } = chips;
    let slice = if slice.is_empty() { String::new() } else { format!("slice={slice} id={id} ") };
    let devices = if *devices == 0 { String::new() } else { format!("devices={devices}") };
    (slice + &devices).trim_end().to_string()
}

impl Merged<'_> {
    /// Sets the sizes of the slices. Each number is that of one host, and a slice has no gaps.
    pub(super) fn check_slices(&mut self, slices: &BTreeMap<String, BTreeSet<u32>>) -> Result<(), HostlistError> {
        let mut known: BTreeMap<(String, u32), usize> = BTreeMap::new();
        for (at, item) in &self.chips_by {
            let Some(chips) = self.entries.get_mut(*at).and_then(|entry| entry.chips.as_mut()) else { continue };
            let Some(ids) = slices.get(&chips.slice) else { continue };
            let (slice, id, host) = (chips.slice.clone(), chips.id, item.host.name.clone());
            chips.hosts = u32::try_from(ids.len()).unwrap_or(u32::MAX);
            if id >= chips.hosts {
                let hosts = chips.hosts;
                return Err(item.spot.fault(Fault::HighId { slice, id, host, hosts }));
            }
            if let Some(other) = known.insert((slice.clone(), id), *at).and_then(|at| self.chips_by.get(&at)) {
                let (one, other) = (other.host.name.as_str().into(), Box::new(other.spot.clone()));
                let (slice, host) = (slice.into(), host.into());
                return Err(item.spot.fault(Fault::SameId { slice, id, host, one, other }));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Alone, Entry, files, lists};
    use super::*;
    use alloc::vec::Vec;

    fn of(text: &str) -> Result<Vec<Entry>, String> {
        files([("hosts", text.as_bytes())], &mut Alone).map_err(|error| error.to_string())
    }

    #[test]
    fn slice_has_all_hosts_of_its_file_also_those_that_are_taken_out() {
        let all = of("n[0-3] slice=a id=0 devices=4\nn4 slice=b id=0\nn5 devices=8\n").unwrap();
        let hosts = |all: &[Entry]| all.iter().map(|entry| entry.chips.as_ref().unwrap().hosts).collect::<Vec<_>>();
        assert_eq!(hosts(&all), [4, 4, 4, 4, 1, 0]);
        let some = lists([("-H", &b"n3,n1"[..])], &mut Alone).unwrap();
        assert_eq!(hosts(&super::super::select(&all, some).unwrap()), [4, 4]);
    }

    #[test]
    fn contradictions_about_slices_name_both_lines() {
        let error = |text| of(text).unwrap_err().lines().next().unwrap().to_string();
        assert_eq!(
            error("n0 slice=a id=0\nn0 slice=b id=0 devices=4"),
            "hosts:2:1: n0 has slice=b id=0 devices=4 here, but slice=a id=0 at hosts:1:1"
        );
        assert!(of("n0 slice=a id=0\nn0 slice=a id=0\nn0").is_ok(), "twice the same is no contradiction");
        assert_eq!(
            error("n0 slice=a id=0\nn1 slice=a id=1\nn2 slice=a id=1\n"),
            "hosts:3:1: two hosts are number 1 of slice a: n2 here, and n1 at hosts:2:1"
        );
        assert_eq!(
            error("n0 slice=a id=0\nn1 slice=a id=2\n"),
            "hosts:2:1: n1 is number 2 of slice a, which has 2 hosts, from 0 on"
        );
    }
}
