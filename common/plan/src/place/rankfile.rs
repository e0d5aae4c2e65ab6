//! Files that name the host of each rank: `seq` has a host on each line, a rankfile also the rank and its cores.

use crate::bind::CpuList;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::cpu_set::{self, CpuListError};

/// A line of such a file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RankfileError {
    /// Not `rank N=HOST slot=CORES`.
    #[error("line {line} is not 'rank N=HOST slot=CORES'")]
    Form {
        /// Its number, from 1.
        line: usize,
    },
    /// Its cores.
    #[error("line {line}: {error}")]
    Cores {
        /// Its number, from 1.
        line: usize,
        /// Why they are none.
        error: CpuListError,
    },
    /// A rank is named on two lines.
    #[error("line {line} names rank {rank} again")]
    Twice {
        /// The number of the line, from 1.
        line: usize,
        /// Which.
        rank: u32,
    },
    /// A rank is missing.
    #[error("rank {rank} is missing, and rank {last} is there")]
    Missing {
        /// Which.
        rank: u32,
        /// The last rank of the file.
        last: u32,
    },
    /// No line names a rank.
    #[error("it names no rank")]
    Empty,
}

/// The ranks of a rankfile, in their order: the host of each, and its cores.
///
/// # Errors
/// A line cannot be read, or a rank is missing.
pub fn rankfile(text: &str) -> Result<Vec<(String, CpuList)>, RankfileError> {
    let mut ranks: BTreeMap<u32, (String, CpuList)> = BTreeMap::new();
    for (words, line) in lines(text) {
        let (rank, host, cores) = words_of(words).ok_or(RankfileError::Form { line })?;
        let cores = cores_of(cores).map_err(|error| RankfileError::Cores { line, error })?;
        if ranks.insert(rank, (host.into(), cores)).is_some() {
            return Err(RankfileError::Twice { line, rank });
        }
    }
    let last = ranks.keys().next_back().copied().ok_or(RankfileError::Empty)?;
    match (0..=last).zip(ranks.keys()).find(|(rank, named)| rank != *named) {
        Some((rank, _)) => Err(RankfileError::Missing { rank, last }),
        None => Ok(ranks.into_values().collect()),
    }
}

/// The hosts of a file that has one on each line: the first word counts.
///
/// # Errors
/// The file names no host.
pub fn sequence(text: &str) -> Result<Vec<String>, RankfileError> {
    let hosts: Vec<String> =
        lines(text).filter_map(|(words, _)| words.split_whitespace().next()).map(String::from).collect();
    if hosts.is_empty() { Err(RankfileError::Empty) } else { Ok(hosts) }
}

/// Lines with their numbers, without comments and empty ones.
fn lines(text: &str) -> impl Iterator<Item = (&str, usize)> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .zip(1..)
        .filter(|(line, _)| !line.is_empty())
}

/// `rank 0=node1 slot=1:0-2`.
fn words_of(line: &str) -> Option<(u32, &str, &str)> {
    let rest = line.strip_prefix("rank")?.trim_start();
    let (rank, rest) = rest.split_once('=')?;
    let (host, slot) = rest.trim().split_once(char::is_whitespace)?;
    let (name, cores) = slot.trim().split_once('=')?;
    let is_slot = matches!(name.trim(), "slot" | "slots");
    let rank = rank.trim().parse::<u32>().ok().filter(|rank| *rank < super::MOST_RANKS)?;
    (is_slot && !host.is_empty()).then_some((rank, host, cores.trim()))
}

/// `1:0-2` (cores of package 1) or `0-2` (of the host).
fn cores_of(text: &str) -> Result<CpuList, CpuListError> {
    match text.split_once(':') {
        None => cpu_set::numbers(text).map(CpuList::Cores),
        Some((package, cores)) => match (cpu_set::numbers(package)?.as_slice(), cpu_set::numbers(cores)?) {
            ([package], cores) => Ok(CpuList::OfPackage { package: *package, cores }),
            (_, _) => Err(CpuListError::NoNumber(package.into())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;
    use alloc::vec;

    #[test]
    fn lines_may_stand_in_any_order() {
        let text = "# mine\nrank 1=b slots=0-1,4\n\nrank 0=a slot=1:2 # first\n";
        let expected = vec![
            ("a".to_string(), CpuList::OfPackage { package: 1, cores: vec![2] }),
            ("b".to_string(), CpuList::Cores(vec![0, 1, 4])),
        ];
        assert_eq!(rankfile(text), Ok(expected));
        assert_eq!(sequence("b slots=2\n\na # x\n"), Ok(vec!["b".to_string(), "a".to_string()]));
    }

    #[test]
    fn unusable_lines_are_named() {
        for (text, error) in [
            ("", "it names no rank"),
            ("rank 0=a\n", "line 1 is not 'rank N=HOST slot=CORES'"),
            ("\nrank x=a slot=0", "line 2 is not 'rank N=HOST slot=CORES'"),
            ("rank 0=a slot=p0:1", "line 1: \"p0\" is no number and no range of numbers"),
            ("rank 0=a slot=0-1:1", "line 1: \"0-1\" is no number and no range of numbers"),
            ("rank 0=a slot=0\nrank 0=b slot=0", "line 2 names rank 0 again"),
            ("rank 0=a slot=0\nrank 2=b slot=0", "rank 1 is missing, and rank 2 is there"),
        ] {
            assert_eq!(rankfile(text).map_err(|error| error.to_string()), Err(error.into()), "{text}");
        }
        assert_eq!(sequence("#\n"), Err(RankfileError::Empty));
    }
}
