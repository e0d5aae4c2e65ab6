//! Which GPUs of a host a program sees, and which of them each of its ranks is to see.
//!
//! Drivers number what there is from 0, and variables of the user's narrow it. A list may name devices in other words than
//! numbers; then these words are what ranks are given.

use crate::id::LocalRank;
use crate::os_bytes::OsBytes;
use alloc::string::ToString as _;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The variable of CUDA; HIP uses it, too, where its own is not set.
pub const CUDA: &str = "CUDA_VISIBLE_DEVICES";
/// The variable of HIP.
pub const HIP: &str = "HIP_VISIBLE_DEVICES";
/// The variable of ROCr, which is below HIP: the devices that it leaves are numbered anew.
pub const ROCR: &str = "ROCR_VISIBLE_DEVICES";

/// The GPU variables for the ranks of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Share {
    /// Nothing: each sees all, as under other launchers.
    #[default]
    Untold,
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
    let each = usize::try_from(each).unwrap_or(usize::MAX);
    let own = seen.iter().skip(each.saturating_mul(rank.index())).take(each);
    OsBytes::new(own.map(OsBytes::as_slice).collect::<Vec<_>>().join(&b','))
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

    #[test]
    fn ranks_get_what_is_theirs_in_order() {
        let all: Vec<OsBytes> = ["4", "5", "GPU-6", "7"].map(OsBytes::from).into();
        let of = |each, rank| of_rank(&all, each, LocalRank::new(rank)).to_string();
        assert_eq!([of(1, 0), of(1, 2), of(1, 3)], ["4", "GPU-6", "7"]);
        assert_eq!([of(2, 0), of(2, 1)], ["4,5", "GPU-6,7"]);
        assert_eq!([of(2, 2), of(u32::MAX, u32::MAX)], ["", ""], "there is none for it");
    }
}
