//! Variables of schedulers, with the files that they name, and Slurm's short counts: no allocation, or hosts whose slots add up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_plan::allocation::{Allocation, AllocationError, Scheduler, StepLayout};
use rlaunch_plan::hostlist::{self, Alone, MOST_HOSTS};
use rlaunch_plan::place::Here;
use std::collections::BTreeSet;

fn for_a_terminal(text: &str) {
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "a terminal must not see {text:?}");
}

/// Each word is `NAME=VALUE`. A file is a variable with the name of its path.
fn variables(data: &str) {
    let words: Vec<(&str, &str)> = data.split('\0').filter_map(|word| word.split_once('=')).collect();
    let value = |name: &str| words.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
    let found = match Allocation::find(&value, &value) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return for_a_terminal(&error.to_string()),
    };
    let in_slurm = value("SLURM_JOB_ID").is_some_and(|id| !id.is_empty());
    assert!(found.scheduler != Scheduler::Slurm || in_slurm);
    assert!(!found.hosts.is_empty() && found.hosts.iter().all(|host| !host.name.is_empty()));
    let of = |slots: u32| if found.tasks_were_asked_for { slots } else { 1 };
    let ranks: u64 = found.hosts.iter().map(|host| u64::from(of(host.slots))).sum();
    assert_eq!(found.default_ranks(), u32::try_from(ranks).unwrap_or(u32::MAX));
    names(&found);
}

/// The names of the hosts are those of a list, and each can be chosen by its name.
fn names(found: &Allocation) {
    let names: Vec<&str> = found.hosts.iter().map(|host| host.name.as_str()).collect();
    let folded = found.folded();
    for_a_terminal(&folded);
    for_a_terminal(&found.title());
    if names.len() > MOST_HOSTS {
        return;
    }
    let listed = hostlist::lists([("-H", folded.as_bytes())], &mut Alone);
    let listed: BTreeSet<String> = listed.into_iter().flatten().map(|entry| entry.host.name).collect();
    assert_eq!(listed, names.iter().map(|name| (*name).to_owned()).collect(), "{folded}");
    // Each is looked for among all.
    if names.len() > 1000 {
        return;
    }
    let chosen = found.select(found.entries(), &Here { name: "here".to_owned(), cpus: 2 });
    let chosen: Vec<_> = chosen.into_iter().flatten().map(|entry| (entry.host.name.clone(), entry.slots())).collect();
    let mut seen = BTreeSet::new();
    let own = found.hosts.iter().filter(|host| seen.insert(host.name.to_ascii_lowercase()));
    assert!(own.map(|host| (host.name.clone(), host.slots)).eq(chosen), "{folded}");
}

/// Hosts `n1` to `nN` with these tasks.
fn counted(text: &str, hosts: usize) -> Result<Vec<u32>, AllocationError> {
    let value = |name: &str| match name {
        "SLURM_JOB_ID" | "SLURM_NTASKS_PER_NODE" => Some("1".to_owned()),
        "SLURM_JOB_NODELIST" => Some(format!("n[1-{hosts}]")),
        "SLURM_TASKS_PER_NODE" => Some(text.to_owned()),
        _ => None,
    };
    let found = Allocation::find(&value, &|_| None)?;
    Ok(found.into_iter().flat_map(|found| found.hosts).map(|host| host.slots).collect())
}

/// The sum of the counts and the number of hosts, read in another way. `None`: the text has a part that is no count.
fn sums(text: &str) -> Option<(u64, u64)> {
    let mut sums = (0, 0);
    for part in text.split(',').map(str::trim) {
        let words: Vec<&str> = part.split(['(', ')']).collect();
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().ok().map(u64::from),
            false => None,
        };
        let (count, times) = match words.as_slice() {
            [count] => (number(count)?, 1),
            [count, times, ""] if part.ends_with(')') && part.matches(')').count() == 1 => {
                (number(count)?, number(times.strip_prefix('x')?).filter(|times| *times > 0)?)
            }
            _ => return None,
        };
        sums = (sums.0 + count * times, sums.1 + times);
    }
    Some(sums)
}

fn counts(text: &str) {
    // No count at all: the variable is as good as not set.
    let Some((sum, hosts)) = sums(text).filter(|_| !text.is_empty()) else {
        return match counted(text, 1) {
            Ok(_) => assert!(text.is_empty(), "{text:?} is no list of counts"),
            Err(error) => assert!(matches!(error, AllocationError::Counts { .. }), "{error:?}"),
        };
    };
    let most = MOST_HOSTS as u64;
    let counts = match counted(text, usize::try_from(hosts.min(most)).unwrap_or(1)) {
        Ok(counts) => counts,
        Err(error) => return assert!(hosts > most, "{text:?}: {error}"),
    };
    assert_eq!((counts.len() as u64, counts.iter().map(|count| u64::from(*count)).sum::<u64>()), (hosts, sum));
    let names: Vec<String> = (1..=counts.len()).map(|n| format!("n{n}")).collect();
    let layout = StepLayout::new(names.iter().map(String::as_str).zip(counts.iter().copied()));
    let written = layout.tasks.to_string();
    // A text that no variable could hold is left out.
    if !written.is_empty() {
        assert_eq!(counted(&written, counts.len()).as_ref(), Ok(&counts));
    }
    assert_eq!(Some(layout.most_tasks), counts.iter().copied().max());
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match kind {
        b'v' => variables(text),
        b'c' => counts(text),
        _ => {}
    }
});
