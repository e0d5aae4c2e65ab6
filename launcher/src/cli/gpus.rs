//! How many of a machine's GPUs a program would see.

use super::values::Lookup;
use std::os::unix::ffi::OsStrExt as _;

/// Which GPUs the drivers show is said by these; HIP looks at the first two, ROCr at the last.
const NARROW: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

/// Of so many, those that the caller's variables leave.
pub(crate) fn visible(there: Option<u32>, env: Lookup<'_>) -> Option<u32> {
    let there = there?;
    let left = NARROW.iter().filter_map(|name| env(name)).map(|value| listed(there, value.as_bytes()));
    Some(left.fold(there, u32::min))
}

/// CUDA's rule: numbers, or names of devices; the first that is none hides those behind it, and an empty list hides all.
fn listed(there: u32, list: &[u8]) -> u32 {
    let is_device = |one: &&[u8]| {
        let one = one.trim_ascii();
        let number = std::str::from_utf8(one).ok().and_then(|text| text.parse::<u32>().ok());
        number.map_or(one.starts_with(b"GPU-") || one.starts_with(b"MIG-"), |number| number < there)
    };
    list.split(|b| *b == b',').take_while(is_device).fold(0, |sum, _| sum + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn the_callers_variables_narrow_what_is_counted() {
        let seen = |there: Option<u32>, name: &str, value: &str| {
            visible(there, &|asked| (asked == name).then(|| OsString::from(value)))
        };
        for (value, count) in
            [("0,1", 2), ("3", 1), ("", 0), ("-1", 0), ("0,-1,1", 1), ("0,9,1", 1), ("GPU-8f, MIG-2a", 2), ("none", 0)]
        {
            assert_eq!(seen(Some(4), "CUDA_VISIBLE_DEVICES", value), Some(count), "{value}");
        }
        assert_eq!(seen(Some(4), "ROCR_VISIBLE_DEVICES", "1"), Some(1));
        assert_eq!(seen(Some(4), "OTHER", "1"), Some(4));
        assert_eq!(seen(None, "CUDA_VISIBLE_DEVICES", "1"), None, "nobody knows what is there");
    }
}
