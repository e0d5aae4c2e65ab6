//! A job of ours in Slurm's words: its hosts and the tasks on each, as the variables of a step write them.

use super::counts;
use crate::hostlist::fold_in_order;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use rlaunch_base::os_bytes::OsBytes;
use serde::{Deserialize, Serialize};

/// Longest value of a variable: Linux refuses a process with a longer entry (`MAX_ARG_STRLEN`, 128 KiB with the name). Slurm's tasks
/// would not start; ours start without the list.
const LONGEST: usize = (128 << 10) - 64;

/// Hosts and tasks, as `SLURM_STEP_NODELIST` and `SLURM_STEP_TASKS_PER_NODE` write them. A text that is longer than a variable may be is
/// empty.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepLayout {
    /// The names of the hosts in the order of the nodes, folded. The first is that of rank 0.
    pub hosts: OsBytes,
    /// The number of tasks of each, in the same order.
    pub tasks: OsBytes,
    /// The greatest of these numbers.
    pub most_tasks: u32,
}

impl StepLayout {
    /// The layout of these hosts, each with its tasks.
    #[must_use]
    pub fn new<'a>(hosts: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let (names, counts): (Vec<&str>, Vec<u32>) = hosts.into_iter().unzip();
        let (hosts, tasks) = (fitting(fold_in_order(names)), fitting(counts::write(&counts)));
        Self { hosts, tasks, most_tasks: counts.into_iter().max().unwrap_or_default() }
    }
}

/// A layout, and the tasks of the host that gets it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostStep {
    /// The layout of the whole job.
    pub layout: StepLayout,
    /// The ranks of this host ([`task_ids`]).
    pub task_ids: OsBytes,
}

/// The ranks of a host, as `SLURM_GTIDS` names them: `0,1,2`. Empty where that is longer than a variable may be.
#[must_use]
pub fn task_ids(ranks: impl IntoIterator<Item = u32>) -> OsBytes {
    let ranks: Vec<String> = ranks.into_iter().map(|rank| rank.to_string()).collect();
    fitting(ranks.join(","))
}

fn fitting(text: String) -> OsBytes {
    if text.len() <= LONGEST { text.into() } else { OsBytes::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostlist::{self, Alone};
    use alloc::collections::BTreeSet;
    use alloc::format;
    use proptest::prelude::*;

    fn layout(hosts: &[(&str, u32)]) -> (String, String, u32) {
        let StepLayout { hosts, tasks, most_tasks } = StepLayout::new(hosts.iter().copied());
        (hosts.to_string(), tasks.to_string(), most_tasks)
    }

    #[test]
    fn hosts_and_tasks_have_one_order() {
        let hosts = [("node0", 4), ("node1", 2), ("node2", 1), ("node3", 1)];
        assert_eq!(layout(&hosts), ("node[0-3]".into(), "4,2,1(x2)".into(), 4));
        let hosts = [("node3", 1), ("node0", 4), ("x", 2), ("node1", 2)];
        assert_eq!(layout(&hosts), ("node[3,0],x,node1".into(), "1,4,2(x2)".into(), 4));
    }

    #[test]
    fn ranks_of_a_host_are_named_one_by_one() {
        assert_eq!(task_ids([0, 1, 10]).to_string(), "0,1,10");
        assert_eq!(task_ids([7]).to_string(), "7");
        assert!(task_ids([]).is_empty());
    }

    #[test]
    fn texts_that_no_process_could_have_are_left_out() {
        assert!(task_ids(0..30_000).is_empty() && !task_ids(0..20_000).is_empty());
        let names: Vec<String> = (0..20_000).map(|n| format!("{n}-host")).collect();
        let layout = StepLayout::new(names.iter().map(|name| (name.as_str(), 1)));
        assert_eq!((layout.hosts.len(), layout.tasks.to_string()), (0, "1(x20000)".into()));
        let alike: Vec<String> = (0..20_000).map(|n| format!("host{n}")).collect();
        let layout = StepLayout::new(alike.iter().map(|name| (name.as_str(), 8)));
        assert_eq!((layout.hosts.to_string(), layout.tasks.to_string()), ("host[0-19999]".into(), "8(x20000)".into()));
    }

    fn any_name() -> impl Strategy<Value = String> {
        let number = prop_oneof![
            (0u32..12).prop_map(|n| n.to_string()),
            (0u32..120).prop_map(|n| format!("{n:02}")),
            (0u32..3).prop_map(|n| format!("{n:03}")),
        ];
        (
            prop_oneof![Just("n"), Just("r1n"), Just("gpu-"), Just("10.0.0.")],
            number,
            prop_oneof![Just(""), Just(""), Just(".site"), Just("x")],
        )
            .prop_map(|(stem, number, end)| format!("{stem}{number}{end}"))
    }

    proptest! {
        #[test]
        fn a_list_of_hosts_is_read_back_in_its_order(names in proptest::collection::vec(any_name(), 1..40)) {
            let mut seen = BTreeSet::new();
            let names: Vec<String> = names.into_iter().filter(|name| seen.insert(name.clone())).collect();
            let layout = StepLayout::new(names.iter().map(|name| (name.as_str(), 1)));
            let read = hostlist::lists([("-H", layout.hosts.as_slice())], &mut Alone).unwrap();
            let read: Vec<String> = read.into_iter().map(|entry| entry.host.name).collect();
            prop_assert_eq!(&read, &names, "{}", layout.hosts);
            // As JAX finds its coordinator.
            let text = layout.hosts.to_string();
            let (stem, rest) = text.split_once('[').filter(|(stem, _)| !stem.contains(',')).unwrap_or((&text, ""));
            let first = format!("{}{}", stem.split(',').next().unwrap(), rest.split([',', '-']).next().unwrap());
            prop_assert_eq!(&first, names.first().unwrap());
        }
    }
}
