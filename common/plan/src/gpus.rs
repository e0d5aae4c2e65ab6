//! Which GPUs of a host a program sees, and which of them each of its ranks is to see.
//!
//! Drivers number what there is from 0, and variables of the user's narrow it. A list may name devices in other words than
//! numbers; then these words are what ranks are given.
//!
//! Near a GPU are the CPUs of the NUMA node that it is connected to. They are known by the GPU's number or by its UUID.

use alloc::string::ToString as _;
use alloc::vec::Vec;
use rlaunch_base::cpu_set::CpuSet;
use rlaunch_base::id::LocalRank;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// The variable of CUDA; HIP uses it, too, where its own is not set.
pub const CUDA: &str = "CUDA_VISIBLE_DEVICES";
/// The variable of HIP.
pub const HIP: &str = "HIP_VISIBLE_DEVICES";
/// The variable of ROCr, which is below HIP: the devices that it leaves are numbered anew.
pub const ROCR: &str = "ROCR_VISIBLE_DEVICES";
/// Slurm's lists of the GPUs of a step and of a job on this host.
const SLURM_GPUS: [&str; 2] = ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS"];

/// The GPU variables for the ranks of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Share {
    /// Nothing: each sees all, as under other launchers.
    #[default]
    Unset,
    /// Which there are, where a rank is alone there: its framework would take one only.
    All,
    /// `--gpus-per-rank`: each sees so many of its own, and no other.
    Each(u32),
}

/// The GPUs of a host, as its drivers show them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Devices {
    /// Whether they are AMD's; else NVIDIA's.
    pub amd: bool,
    /// How many; `None`: that cannot be found out.
    pub count: Option<u32>,
}

/// A GPU of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gpu {
    /// Its UUID, as lists may name it; empty: unknown.
    pub uuid: OsBytes,
    /// The CPUs near it; empty: unknown.
    pub cpus: CpuSet,
}

/// The GPUs that a program sees, shared out among the ranks of a host.
#[derive(Clone, Copy, Debug)]
pub struct SharedOut<'a> {
    /// Their words, in the program's order.
    pub seen: &'a [OsBytes],
    /// GPUs of each rank.
    pub each: u32,
    /// Ranks of the host.
    pub ranks: u32,
}

impl Devices {
    /// The GPUs that a program sees with these variables, in its order, as words for a list of them. `None`: unknown.
    #[must_use]
    pub fn seen(self, variable: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Vec<OsBytes>> {
        let words = |there: Option<u32>, list: Option<Vec<u8>>| match list {
            Some(list) => Some(listed(there, &list)),
            None => there.map(|count| (0..count).map(|n| n.to_string().into()).collect()),
        };
        if !self.amd {
            return words(self.count, variable(CUDA));
        }
        let left = match variable(ROCR) {
            Some(list) => u32::try_from(listed(self.count, &list).len()).ok(),
            None => self.count,
        };
        words(left, variable(HIP).or_else(|| variable(CUDA)))
    }

    /// The CPUs near the GPUs of each rank; none: unknown for a rank. `gpus` are those of the host, in the order of their numbers.
    #[must_use]
    pub fn near(self, gpus: &[Gpu], shared: SharedOut<'_>, variable: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<CpuSet> {
        let Some(visible) = self.visible(gpus, variable) else { return Vec::new() };
        let near = |rank: u32| {
            let own = own(shared.seen, shared.each, LocalRank::new(rank));
            let sets: Option<Vec<&CpuSet>> =
                own.map(|word| Some(&find(&visible, word)?.cpus).filter(|cpus| !cpus.is_empty())).collect();
            sets.filter(|sets| !sets.is_empty()).map(CpuSet::union)
        };
        (0..shared.ranks).map(near).collect::<Option<_>>().unwrap_or_default()
    }

    /// The GPUs that a program's numbers count. `None`: some of the host's may be hidden from it.
    fn visible(self, gpus: &[Gpu], variable: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Vec<&Gpu>> {
        // In a cgroup of Slurm's the driver numbers only the GPUs of the job. The device files of all are there.
        let is_partial =
            |name: &&str| variable(name).is_some_and(|list| list.split(|b| *b == b',').count() != gpus.len());
        if self.count != u32::try_from(gpus.len()).ok() || SLURM_GPUS.iter().any(is_partial) {
            return None;
        }
        let all: Vec<&Gpu> = gpus.iter().collect();
        match variable(ROCR).filter(|_| self.amd) {
            Some(list) => listed(self.count, &list).iter().map(|word| find(&all, word)).collect(),
            None => Some(all),
        }
    }

    /// The variables that select the GPUs of ranks.
    #[must_use]
    pub const fn names(self) -> &'static [&'static str] {
        if self.amd { &[CUDA, HIP] } else { &[CUDA] }
    }
}

/// CUDA's rule: numbers, or names of devices; the first word that is neither hides those after it, and an empty list hides all.
fn listed(there: Option<u32>, list: &[u8]) -> Vec<OsBytes> {
    let is_device = |word: &&[u8]| match core::str::from_utf8(word).ok().and_then(|text| text.parse::<u32>().ok()) {
        Some(number) => there.is_none_or(|there| number < there),
        None => word.starts_with(b"GPU-") || word.starts_with(b"MIG-"),
    };
    list.split(|b| *b == b',').map(<[u8]>::trim_ascii).take_while(is_device).map(OsBytes::from).collect()
}

/// The list of a rank that has `each` of these.
#[must_use]
pub fn of_rank(seen: &[OsBytes], each: u32, rank: LocalRank) -> OsBytes {
    OsBytes::new(own(seen, each, rank).map(OsBytes::as_slice).collect::<Vec<_>>().join(&b','))
}

fn own(seen: &[OsBytes], each: u32, rank: LocalRank) -> impl Iterator<Item = &OsBytes> {
    let each = usize::try_from(each).unwrap_or(usize::MAX);
    seen.iter().skip(each.saturating_mul(rank.index())).take(each)
}

/// The GPU of a word in a list: a number, or the beginning of one UUID.
fn find<'a>(gpus: &[&'a Gpu], word: &OsBytes) -> Option<&'a Gpu> {
    if let Some(number) = core::str::from_utf8(word).ok().and_then(|text| text.parse::<usize>().ok()) {
        return gpus.get(number).copied();
    }
    let mut all = gpus.iter().filter(|gpu| gpu.uuid.starts_with(word));
    all.next().copied().filter(|_| all.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn shown(words: Option<Vec<OsBytes>>) -> Option<String> {
        words.map(|words| of_rank(&words, u32::MAX, LocalRank::new(0)).to_string())
    }

    fn seen(count: impl Into<Option<u32>>, amd: bool, variables: &[(&str, &str)]) -> Option<String> {
        let value = |asked: &str| variables.iter().find(|(name, _)| *name == asked).map(|(_, value)| value.as_bytes());
        shown(Devices { amd, count: count.into() }.seen(|name| value(name).map(<[u8]>::to_vec)))
    }

    #[test]
    fn user_list_narrows_the_gpus() {
        for (value, words) in [
            ("0,1", "0,1"),
            ("3", "3"),
            ("", ""),
            ("-1", ""),
            ("0,-1,1", "0"),
            ("0,9,1", "0"),
            (" GPU-8f, MIG-2a ", "GPU-8f,MIG-2a"),
            ("none", ""),
            ("3,1,0", "3,1,0"),
        ] {
            assert_eq!(seen(4, false, &[(CUDA, value)]).as_deref(), Some(words), "{value}");
        }
        assert_eq!(seen(3, false, &[("OTHER", "1")]).as_deref(), Some("0,1,2"));
        assert_eq!(seen(4, false, &[(HIP, "1")]).as_deref(), Some("0,1,2,3"), "CUDA does not look at it");
        assert_eq!(seen(None, false, &[]), None, "nobody knows what is there");
        assert_eq!(seen(None, false, &[(CUDA, "6,GPU-1")]).as_deref(), Some("6,GPU-1"), "but the user does");
    }

    #[test]
    fn amds_runtime_numbers_anew_what_is_left() {
        assert_eq!(seen(8, true, &[(ROCR, "4,5,6,7")]).as_deref(), Some("0,1,2,3"));
        assert_eq!(seen(8, true, &[(ROCR, "4,5"), (HIP, "1,2")]).as_deref(), Some("1"), "there is no third");
        assert_eq!(seen(8, true, &[(HIP, "5"), (CUDA, "1,2")]).as_deref(), Some("5"), "its own goes first");
        assert_eq!(seen(8, true, &[(CUDA, "1,2")]).as_deref(), Some("1,2"));
        assert_eq!(seen(None, true, &[(ROCR, "GPU-a,GPU-b")]).as_deref(), Some("0,1"));
    }

    /// The CPUs near each of two ranks' GPUs, on a host with four GPUs. The CPUs of GPU `n` have the number `n`.
    fn near(amd: bool, words: &str, each: u32, variables: &[(&str, &str)]) -> Vec<String> {
        let gpu = |n: u32| Gpu { uuid: alloc::format!("GPU-{n}a").into(), cpus: CpuSet::of(n) };
        let gpus: Vec<Gpu> = (0..4).map(gpu).collect();
        let seen: Vec<OsBytes> = words.split(',').map(OsBytes::from).collect();
        let value = |asked: &str| variables.iter().find(|(name, _)| *name == asked).map(|(_, value)| value.as_bytes());
        let shared = SharedOut { seen: &seen, each, ranks: 2 };
        let devices = Devices { amd, count: Some(4) };
        let sets = devices.near(&gpus, shared, |name| value(name).map(<[u8]>::to_vec));
        sets.iter().map(alloc::string::ToString::to_string).collect()
    }

    #[test]
    fn cpus_near_a_gpu_are_found_by_its_number_or_its_uuid() {
        assert_eq!(near(false, "0,1,2,3", 1, &[]), ["0", "1"]);
        assert_eq!(near(false, "0,1,2,3", 2, &[]), ["0-1", "2-3"]);
        assert_eq!(near(false, "3,GPU-1", 1, &[(ROCR, "0")]), ["3", "1"], "CUDA does not look at it");
        assert_eq!(near(true, "0,1", 1, &[(ROCR, "3,GPU-2a")]), ["3", "2"]);
        let none: [&str; 0] = [];
        for (words, each, variables) in [
            ("3,MIG-1", 1, &[][..]),
            ("3,GPU-", 1, &[]),
            ("3,4", 1, &[]),
            ("3", 1, &[]),
            ("0,1", 0, &[]),
            ("0,1", 1, &[("SLURM_JOB_GPUS", "2,3")]),
        ] {
            assert_eq!(near(false, words, each, variables), none, "{words}");
        }
        assert_eq!(near(false, "0,1", 1, &[("SLURM_STEP_GPUS", "0,1,2,3")]), ["0", "1"]);
        assert_eq!(near(true, "0", 1, &[(ROCR, "9")]), none);
    }

    #[test]
    fn without_knowledge_of_each_gpu_no_cpus_are_near() {
        let seen: [OsBytes; 1] = ["0".into()];
        let shared = SharedOut { seen: &seen, each: 1, ranks: 1 };
        let near = |count, cpus| {
            let gpu = Gpu { uuid: OsBytes::default(), cpus };
            Devices { amd: false, count }.near(&[gpu], shared, |_| None).len()
        };
        assert_eq!([near(Some(1), CpuSet::of(3)), near(Some(1), CpuSet::default())], [1, 0]);
        assert_eq!([near(Some(2), CpuSet::of(3)), near(None, CpuSet::of(3))], [0, 0]);
    }

    #[test]
    fn ranks_get_their_gpus_in_order() {
        let all: Vec<OsBytes> = ["4", "5", "GPU-6", "7"].map(OsBytes::from).into();
        let of = |each, rank| of_rank(&all, each, LocalRank::new(rank)).to_string();
        assert_eq!([of(1, 0), of(1, 2), of(1, 3)], ["4", "GPU-6", "7"]);
        assert_eq!([of(2, 0), of(2, 1)], ["4,5", "GPU-6,7"]);
        assert_eq!([of(2, 2), of(u32::MAX, u32::MAX)], ["", ""], "there is none for it");
    }
}
