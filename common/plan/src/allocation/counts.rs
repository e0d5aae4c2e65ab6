//! Numbers of hosts in a row, as Slurm abbreviates them: `2(x3),1` is 2, 2, 2, 1. They are read and written.

use crate::hostlist::MOST_HOSTS;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use rlaunch_base::os_bytes::Visible;
use thiserror::Error;

/// Why such a text cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CountsError {
    /// A part that is no number, nor a number with `(xN)`.
    #[error("'{}' is no count: it reads 4, or 2(x3) for three hosts with 2 each", Visible(.0.as_bytes()))]
    Part(String),
    /// More hosts than a list may have.
    #[error("it is for more than {MOST_HOSTS} hosts")]
    TooMany,
}

/// The count for each host.
pub(super) fn read(text: &str) -> Result<Vec<u32>, CountsError> {
    let mut counts = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (count, times) = part_of(part).ok_or_else(|| CountsError::Part(part.to_string()))?;
        if counts.len().saturating_add(times) > MOST_HOSTS {
            return Err(CountsError::TooMany);
        }
        counts.extend(core::iter::repeat_n(count, times));
    }
    Ok(counts)
}

/// The short form of the count for each host.
pub(super) fn write(counts: &[u32]) -> String {
    let part = |alike: &[u32]| match alike {
        [] => None,
        [count] => Some(count.to_string()),
        [count, ..] => Some(format!("{count}(x{})", alike.len())),
    };
    let parts: Vec<String> = counts.chunk_by(PartialEq::eq).filter_map(part).collect();
    parts.join(",")
}

/// Deals tasks to hosts in turn, as srun does, until each has as many as it takes. `most`: by host.
pub(super) fn deal(tasks: u64, most: &[u32]) -> Vec<u32> {
    let dealt = |rounds: u32| -> u64 { most.iter().map(|most| u64::from(rounds.min(*most))).sum() };
    // The whole rounds for which there are enough tasks.
    let (mut rounds, mut too_many) = (0_u32, u32::MAX);
    while rounds.saturating_add(1) < too_many {
        let middle = rounds.midpoint(too_many);
        if dealt(middle) <= tasks { rounds = middle } else { too_many = middle }
    }
    let mut rest = tasks.saturating_sub(dealt(rounds));
    let mut take = |most: &u32| {
        let has_more = *most > rounds && rest > 0;
        rest = rest.saturating_sub(u64::from(has_more));
        rounds.min(*most).saturating_add(u32::from(has_more))
    };
    most.iter().map(&mut take).collect()
}

fn part_of(part: &str) -> Option<(u32, usize)> {
    let Some((count, times)) = part.split_once('(') else { return Some((digits(part)?, 1)) };
    let times = usize::try_from(digits(times.strip_prefix('x')?.strip_suffix(')')?)?).ok()?;
    (times > 0).then_some(())?;
    Some((digits(count)?, times))
}

fn digits(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_repeated_as_they_say() {
        for (text, counts) in [
            ("4", &[4][..]),
            ("3,1(x3)", &[3, 1, 1, 1]),
            ("4(x2),1(x2)", &[4, 4, 1, 1]),
            ("4,2,1(x2)", &[4, 2, 1, 1]),
            ("72(x2), 36", &[72, 72, 36]),
            ("0,1", &[0, 1]),
        ] {
            assert_eq!(read(text).as_deref(), Ok(counts), "{text}");
        }
    }

    #[test]
    fn counts_are_written_in_short() {
        for (counts, text) in
            [(&[4][..], "4"), (&[4, 2, 1, 1], "4,2,1(x2)"), (&[2, 2, 2], "2(x3)"), (&[1, 2, 1], "1,2,1"), (&[], "")]
        {
            assert_eq!(write(counts), text);
        }
    }

    /// As srun of 22.05 has done, in batch jobs with `--ntasks-per-node`.
    #[test]
    fn tasks_are_dealt_to_hosts_in_turn() {
        for (tasks, most, dealt) in [
            (4, &[3, 3, 3][..], &[2, 1, 1][..]),
            (6, &[4, 4], &[3, 3]),
            (7, &[3, 3, 3], &[3, 2, 2]),
            (5, &[2, 2, 2, 2], &[2, 1, 1, 1]),
            (6, &[4, 1, 2], &[3, 1, 2]),
            (1, &[0, 2], &[0, 1]),
            (0, &[1, 1], &[0, 0]),
            (9, &[2, 2], &[2, 2]),
            (u64::from(u32::MAX), &[u32::MAX, u32::MAX], &[1 << 31, (1 << 31) - 1]),
        ] {
            assert_eq!(deal(tasks, most), dealt, "{tasks} to {most:?}");
        }
    }

    proptest! {
        #[test]
        fn all_tasks_are_dealt(most in proptest::collection::vec(0u32..9, 1..20), part in 0u64..200) {
            let room: u64 = most.iter().map(|most| u64::from(*most)).sum();
            let tasks = part.min(room);
            let dealt = deal(tasks, &most);
            prop_assert_eq!(dealt.iter().map(|count| u64::from(*count)).sum::<u64>(), tasks);
            let highest = dealt.iter().copied().max().unwrap_or_default();
            let is_fair = |(has, most): (&u32, &u32)| has <= most && (has == most || has.saturating_add(1) >= highest);
            prop_assert!(dealt.iter().zip(&most).all(is_fair), "{:?}", dealt);
        }

        #[test]
        fn written_counts_are_read_back(counts in proptest::collection::vec(0u32..4, 1..40)) {
            prop_assert_eq!(read(&write(&counts)), Ok(counts));
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_part() {
        for (text, part) in [
            ("", ""),
            ("1,", ""),
            ("2(x", "2(x"),
            ("2(x0)", "2(x0)"),
            ("2(3)", "2(3)"),
            ("(x2)", "(x2)"),
            ("1,+2", "+2"),
            ("4294967296", "4294967296"),
            ("1(x2)3", "1(x2)3"),
        ] {
            assert_eq!(read(text), Err(CountsError::Part(part.into())), "{text}");
        }
        assert_eq!(read("1(x65536),1"), Err(CountsError::TooMany));
        assert_eq!(read("1(x4294967295)"), Err(CountsError::TooMany));
        assert_eq!(read("1(x65536)").map(|counts| counts.len()), Ok(65_536));
    }
}
