//! Slurm's allocation, by the variables that salloc, sbatch and srun set (`man salloc`, "OUTPUT ENVIRONMENT VARIABLES").
//!
//! Three sets of names, never mixed: those of a step (`SLURM_STEP_…`), of each component of a heterogeneous job (`…_HET_GROUP_i`), and
//! the plain ones. In a heterogeneous job the plain names are missing, or are those of the first component only.

use super::counts;
use super::{AllocatedHost, Allocation, AllocationError, Files, Scheduler, TaskOrder, Variables, expanded, number};
use crate::hostlist::MOST_HOSTS;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The step of a shell that salloc starts on the first host (`LaunchParameters=use_interactive_step` of slurm.conf(5)): its number is
/// `SLURM_INTERACTIVE_STEP` of slurm.h. The job's hosts are those of the allocation.
const INTERACTIVE_STEP: &str = "4294967290";

/// The names of the variables of one set of hosts.
struct Names {
    hosts: String,
    tasks: String,
    cpus: String,
    cpus_per_task: String,
    /// Set where the user asked for a number of tasks. The first is their number.
    asked: [String; 2],
    /// The component of a heterogeneous job.
    component: Option<u32>,
}

impl Names {
    fn job(suffix: &str) -> Self {
        let with = |name: &str| format!("{name}{suffix}");
        Self {
            hosts: with("SLURM_JOB_NODELIST"),
            tasks: with("SLURM_TASKS_PER_NODE"),
            cpus: with("SLURM_JOB_CPUS_PER_NODE"),
            cpus_per_task: with("SLURM_CPUS_PER_TASK"),
            asked: [with("SLURM_NTASKS"), with("SLURM_NTASKS_PER_NODE")],
            component: None,
        }
    }

    fn component(number: u32) -> Self {
        Self { component: Some(number), ..Self::job(&format!("_HET_GROUP_{number}")) }
    }

    fn step() -> Self {
        Self {
            hosts: "SLURM_STEP_NODELIST".into(),
            tasks: "SLURM_STEP_TASKS_PER_NODE".into(),
            // The job's hosts may be others.
            cpus: String::new(),
            cpus_per_task: "SLURM_CPUS_PER_TASK".into(),
            asked: ["SLURM_STEP_NUM_TASKS".into(), String::new()],
            component: None,
        }
    }
}

/// The hosts of the job, or of the step, in which we run.
pub(super) fn find(env: &Variables<'_>, read: &Files<'_>) -> Result<Option<Allocation>, AllocationError> {
    let Some(job) = env("SLURM_JOB_ID").filter(|id| !id.is_empty()) else { return Ok(None) };
    let mut components = Vec::new();
    let mut missing = None;
    for names in sets(env)? {
        match component(env, &names)? {
            Some(found) => components.push(found),
            None => drop(missing.get_or_insert(names)),
        }
    }
    let has_plain = || env("SLURM_JOB_NODELIST").is_some_and(|text| !text.is_empty());
    if let Some(Names { hosts: variable, component: Some(component), .. }) = missing
        && (!components.is_empty() || has_plain())
    {
        let size = env("SLURM_HET_SIZE").unwrap_or_default();
        return Err(AllocationError::NoComponent { size, component, variable });
    }
    if components.is_empty() {
        return Ok(None);
    }
    let asked = components.iter().any(|component| component.asked);
    let mut per_task = components.iter().map(|component| component.cpus_per_task);
    let first = per_task.next().flatten();
    let cpus_per_task = first.filter(|_| per_task.all(|other| other == first)).filter(|cpus| *cpus > 0);
    let hosts = components.into_iter().flat_map(|component| component.into_hosts(asked)).collect();
    let tasks = order(env, read);
    Ok(Some(Allocation { scheduler: Scheduler::Slurm, job, hosts, tasks_were_asked_for: asked, cpus_per_task, tasks }))
}

/// The order of `-m`: the word before the first colon is about hosts, the others are about processors.
fn order(env: &Variables<'_>, read: &Files<'_>) -> TaskOrder {
    let said = env("SLURM_DISTRIBUTION").unwrap_or_default().to_ascii_lowercase();
    let word = said.split([':', ',']).next().unwrap_or_default();
    let plane = || word.strip_prefix("plane=").map(String::from).or_else(|| env("SLURM_DIST_PLANESIZE"));
    let is_name = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines = |text: String| text.lines().map(str::trim).filter(is_name).map(String::from).collect();
    match word {
        "cyclic" => TaskOrder::Plane(1),
        "arbitrary" => env("SLURM_HOSTFILE")
            .and_then(|path| read(&path))
            .map_or_else(TaskOrder::default, |text| TaskOrder::Listed(lines(text))),
        word if word.starts_with("plane") => {
            plane().and_then(|size| size.parse().ok()).map_or_else(TaskOrder::default, TaskOrder::Plane)
        }
        _ => TaskOrder::Block,
    }
}

fn sets(env: &Variables<'_>) -> Result<Vec<Names>, AllocationError> {
    // Ranks of ours have the names of a step without its number: the plain ones are those of the outer job, too.
    let in_step = || env("SLURM_STEP_ID").is_some_and(|id| id != INTERACTIVE_STEP) || env("RLAUNCH_JOB_ID").is_some();
    if env("SLURM_STEP_NODELIST").is_some() && in_step() {
        return Ok(vec![Names::step()]);
    }
    let most = u32::try_from(MOST_HOSTS).unwrap_or(u32::MAX);
    match number(env, "SLURM_HET_SIZE", most)? {
        Some(size) if size > 1 => Ok((0..size).map(Names::component).collect()),
        Some(_) | None => Ok(vec![Names::job("")]),
    }
}

/// The hosts of one set of variables.
struct Component {
    hosts: Vec<String>,
    /// By host. Slurm says 1 each where the user asked for no number.
    tasks: Option<Vec<u32>>,
    /// By host.
    cpus: Option<Vec<u32>>,
    cpus_per_task: Option<u32>,
    asked: bool,
    number: Option<u32>,
}

/// Reads a set. `None`: its list of hosts is missing or empty.
fn component(env: &Variables<'_>, names: &Names) -> Result<Option<Component>, AllocationError> {
    let Some(text) = env(&names.hosts).filter(|text| !text.is_empty()) else { return Ok(None) };
    let hosts = expanded(&names.hosts, &text)?;
    let list = HostList { variable: &names.hosts, text: &text, len: hosts.len() };
    let tasks = per_host(env, &names.tasks, &list)?;
    Ok(Some(Component {
        tasks: asked_for(env, names, tasks)?,
        cpus: per_host(env, &names.cpus, &list)?,
        cpus_per_task: number(env, &names.cpus_per_task, u32::MAX)?,
        asked: names.asked.iter().any(|name| env(name).is_some()),
        number: names.component,
        hosts,
    }))
}

impl Component {
    /// `any_asked`: a number of tasks was asked for here, or for another component.
    fn into_hosts(self, any_asked: bool) -> impl Iterator<Item = AllocatedHost> {
        let Self { hosts, tasks, cpus, cpus_per_task, asked, number } = self;
        let per_task = cpus_per_task.unwrap_or(1).max(1);
        hosts.into_iter().enumerate().map(move |(at, name)| {
            let of = |counts: &Option<Vec<u32>>| counts.as_ref().and_then(|counts| counts.get(at)).copied();
            let cpus = of(&cpus);
            let slots = match (asked, any_asked) {
                (true, _) => of(&tasks).unwrap_or(1),
                (false, true) => 1,
                (false, false) => cpus.map_or(1, |cpus| (cpus / per_task).max(1)),
            };
            AllocatedHost { name, slots, cpus, component: number }
        })
    }
}

/// A list of hosts, for messages.
struct HostList<'a> {
    variable: &'a str,
    text: &'a str,
    len: usize,
}

/// Counts for each host of a list, if the variable is set.
fn per_host(env: &Variables<'_>, variable: &str, list: &HostList<'_>) -> Result<Option<Vec<u32>>, AllocationError> {
    let Some(text) = env(variable).filter(|text| !text.is_empty()) else { return Ok(None) };
    let counts = counts::read(&text).map_err(|why| AllocationError::Counts {
        variable: variable.into(),
        value: text.clone(),
        why,
    })?;
    if counts.len() == list.len {
        return Ok(Some(counts));
    }
    Err(AllocationError::Different {
        counts: format!("{variable}={text}"),
        entries: counts.len(),
        list: format!("{}={}", list.variable, list.text),
        hosts: list.len,
    })
}

/// The tasks of each host, no more in all than the user has asked for. In a batch job `--ntasks-per-node` is the most that a host takes,
/// and Slurm counts so many for each.
fn asked_for(env: &Variables<'_>, names: &Names, tasks: Option<Vec<u32>>) -> Result<Option<Vec<u32>>, AllocationError> {
    let [total, _] = &names.asked;
    let (Some(asked), Some(counts)) = (number(env, total, u32::MAX)?, &tasks) else { return Ok(tasks) };
    let sum: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    if u64::from(asked) > sum || asked == 0 && sum > 0 {
        let text = env(&names.tasks).unwrap_or_default();
        let (total, per_host) = (format!("{total}={asked}"), format!("{}={text}", names.tasks));
        return Err(AllocationError::Sum { total, per_host, tasks: sum });
    }
    Ok(Some(counts::deal(asked.into(), counts)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::find;
    use super::*;
    use alloc::string::ToString as _;

    const JOB: (&str, &str) = ("SLURM_JOB_ID", "7");

    fn hosts(found: &Allocation) -> Vec<(&str, u32)> {
        found.hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect()
    }

    #[test]
    fn total_above_the_tasks_of_all_hosts_is_refused() {
        let error = find(&[
            JOB,
            ("SLURM_JOB_NODELIST", "node[0-3]"),
            ("SLURM_TASKS_PER_NODE", "4,2,1(x2)"),
            ("SLURM_NTASKS", "12"),
        ]);
        let text = error.unwrap_err().to_string();
        assert_eq!(text, "SLURM_NTASKS=12 and SLURM_TASKS_PER_NODE=4,2,1(x2) differ: the second adds up to 8");
    }

    /// `sbatch -N2 -n3 --ntasks-per-node=2` (22.05).
    #[test]
    fn tasks_of_a_host_are_a_limit_where_fewer_were_asked_for() {
        let of = |asked, per_host| {
            let vars = [
                JOB,
                ("SLURM_JOB_NODELIST", "node[0-2]"),
                ("SLURM_TASKS_PER_NODE", per_host),
                ("SLURM_NTASKS", asked),
                ("SLURM_NTASKS_PER_NODE", "2"),
            ];
            find(&vars).unwrap().unwrap()
        };
        let found = of("4", "2(x3)");
        assert_eq!((hosts(&found), found.default_ranks()), (vec![("node0", 2), ("node1", 1), ("node2", 1)], 4));
        assert_eq!(hosts(&of("6", "2(x3)")), [("node0", 2), ("node1", 2), ("node2", 2)]);
    }

    #[test]
    fn a_number_of_tasks_is_given_by_host() {
        let found = find(&[
            JOB,
            ("SLURM_JOB_NODELIST", "node[0-3]"),
            ("SLURM_TASKS_PER_NODE", "4,2,1(x2)"),
            ("SLURM_JOB_CPUS_PER_NODE", "4(x4)"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_CPUS_PER_TASK", "1"),
        ]);
        let found = found.unwrap().unwrap();
        assert_eq!(hosts(&found), [("node0", 4), ("node1", 2), ("node2", 1), ("node3", 1)]);
        assert_eq!((found.tasks_were_asked_for, found.default_ranks(), found.cpus_per_task), (true, 8, Some(1)));
    }

    #[test]
    fn without_one_the_slots_are_those_of_the_processors_and_a_rank_runs_on_each_host() {
        let found = find(&[
            JOB,
            ("SLURM_JOB_NODELIST", "n[01-02],x"),
            ("SLURM_TASKS_PER_NODE", "1(x3)"),
            ("SLURM_JOB_CPUS_PER_NODE", "8(x2),3"),
            ("SLURM_CPUS_PER_TASK", "2"),
        ]);
        let found = found.unwrap().unwrap();
        assert_eq!(hosts(&found), [("n01", 4), ("n02", 4), ("x", 1)]);
        assert_eq!((found.tasks_were_asked_for, found.default_ranks()), (false, 3));
    }

    /// salloc sets no plain list, sbatch that of the first component.
    #[test]
    fn all_components_of_a_heterogeneous_job_count_in_their_order() {
        let groups = [
            JOB,
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_JOB_NODELIST_HET_GROUP_0", "node0"),
            ("SLURM_TASKS_PER_NODE_HET_GROUP_0", "1"),
            ("SLURM_NTASKS_HET_GROUP_0", "1"),
            ("SLURM_JOB_NODELIST_HET_GROUP_1", "node[1-2]"),
            ("SLURM_TASKS_PER_NODE_HET_GROUP_1", "2(x2)"),
            ("SLURM_NTASKS_HET_GROUP_1", "4"),
        ];
        let plain = [("SLURM_JOB_NODELIST", "node0"), ("SLURM_TASKS_PER_NODE", "1"), ("SLURM_NTASKS", "1")];
        for vars in [groups.to_vec(), [&groups[..], &plain].concat()] {
            let found = find(&vars).unwrap().unwrap();
            assert_eq!(hosts(&found), [("node0", 1), ("node1", 2), ("node2", 2)]);
            assert_eq!(found.default_ranks(), 5);
            assert_eq!(found.cpus_per_task, None);
            let components: Vec<_> = found.hosts.iter().map(|host| host.component).collect();
            assert_eq!(components, [Some(0), Some(1), Some(1)]);
        }
    }

    /// As in a container that passes only some variables on.
    #[test]
    fn heterogeneous_job_without_the_hosts_of_a_component_is_refused() {
        let size = ("SLURM_HET_SIZE", "2");
        let first = ("SLURM_JOB_NODELIST_HET_GROUP_0", "node0");
        let second = ("SLURM_JOB_NODELIST_HET_GROUP_1", "node1");
        let plain = ("SLURM_JOB_NODELIST", "node0");
        for (vars, component) in [
            (&[JOB, size, first][..], 1),
            (&[JOB, size, first, plain], 1),
            (&[JOB, size, second], 0),
            (&[JOB, size, plain], 0),
            (&[JOB, size, first, ("SLURM_JOB_NODELIST_HET_GROUP_1", "")], 1),
        ] {
            let expected = format!(
                "SLURM_HET_SIZE=2, and SLURM_JOB_NODELIST_HET_GROUP_{component} is not set: \
                 the hosts of component {component} are unknown"
            );
            assert_eq!(find(vars).unwrap_err().to_string(), expected, "{vars:?}");
        }
        assert_eq!(find(&[JOB, size]), Ok(None));
        assert_eq!(hosts(&find(&[JOB, ("SLURM_HET_SIZE", "1"), plain]).unwrap().unwrap()), [("node0", 1)]);
    }

    #[test]
    fn processors_of_a_task_are_known_where_all_components_have_the_same() {
        let of = |one, other| {
            let found = find(&[
                JOB,
                ("SLURM_HET_SIZE", "2"),
                ("SLURM_JOB_NODELIST_HET_GROUP_0", "node0"),
                ("SLURM_CPUS_PER_TASK_HET_GROUP_0", one),
                ("SLURM_JOB_NODELIST_HET_GROUP_1", "node1"),
                ("SLURM_CPUS_PER_TASK_HET_GROUP_1", other),
            ]);
            found.unwrap().unwrap().cpus_per_task
        };
        assert_eq!(
            [of("2", "2"), of("2", "4"), of("2", ""), of("", "2"), of("0", "0")],
            [Some(2), None, None, None, None]
        );
    }

    #[test]
    fn in_a_step_its_names_count_and_none_of_the_jobs() {
        let found = find(&[
            JOB,
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NODELIST", "node[2-3]"),
            ("SLURM_STEP_TASKS_PER_NODE", "3,1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_JOB_NODELIST", "node[0-3]"),
            ("SLURM_JOB_CPUS_PER_NODE", "4(x4)"),
            ("SLURM_TASKS_PER_NODE", "3,1"),
        ]);
        assert_eq!(hosts(&found.unwrap().unwrap()), [("node2", 3), ("node3", 1)]);
    }

    #[test]
    fn shell_of_salloc_on_the_first_host_has_the_hosts_of_the_job() {
        let found = find(&[
            JOB,
            ("SLURM_STEP_ID", "4294967290"),
            ("SLURM_STEP_NODELIST", "node0"),
            ("SLURM_STEP_TASKS_PER_NODE", "1"),
            ("SLURM_STEP_NUM_TASKS", "1"),
            ("SLURM_JOB_NODELIST", "node[0-3]"),
            ("SLURM_TASKS_PER_NODE", "2(x4)"),
            ("SLURM_NTASKS", "8"),
        ]);
        assert_eq!(found.unwrap().unwrap().default_ranks(), 8);
    }

    #[test]
    fn in_a_rank_of_ours_the_hosts_and_ranks_of_its_job_count() {
        let found = find(&[
            JOB,
            ("RLAUNCH_JOB_ID", "ab"),
            ("SLURM_STEP_NODELIST", "node[3,0]"),
            ("SLURM_STEP_TASKS_PER_NODE", "1,4"),
            ("SLURM_STEP_NUM_TASKS", "5"),
            ("SLURM_JOB_NODELIST", "node[0-3]"),
            ("SLURM_TASKS_PER_NODE", "1,4"),
        ]);
        assert_eq!(hosts(&found.unwrap().unwrap()), [("node3", 1), ("node0", 4)]);
    }

    #[test]
    fn counts_that_do_not_fit_are_refused_with_both_strings() {
        let with = |hosts, tasks| {
            let vars = [JOB, ("SLURM_JOB_NODELIST", hosts), ("SLURM_TASKS_PER_NODE", tasks)];
            find(&vars).unwrap_err().to_string()
        };
        let error = with("node[0-3]", "2(x3)");
        assert!(
            error.contains("SLURM_JOB_NODELIST=node[0-3]") && error.contains("SLURM_TASKS_PER_NODE=2(x3)"),
            "{error}"
        );
        assert!(with("node[0-3]", "4").starts_with("SLURM_TASKS_PER_NODE=4 counts 1 host, and "));
        assert!(with("node[0-1]", "2(x3)").starts_with("SLURM_TASKS_PER_NODE=2(x3) counts 3 hosts, and "));
        for (hosts, tasks) in
            [("node[1-", "1"), ("n0", "2(x"), ("n0", "2(x0)"), ("n0", "x"), ("n0", "1,"), ("n0", "(x2)")]
        {
            let error = with(hosts, tasks);
            assert!(error.contains("SLURM_"), "{hosts} {tasks}: {error}");
        }
        assert!(with("n[0-65536]", "1").contains("more than 65536 hosts"));
        assert!(with("n0", "1(x70000)").contains("65536"), "{}", with("n0", "1(x70000)"));
    }

    #[test]
    fn order_of_tasks_is_that_of_the_users_distribution() {
        let of = |distribution, more| {
            let hosts = ("SLURM_JOB_NODELIST", "n[1-3]");
            let vars = [JOB, hosts, ("SLURM_NTASKS", "6"), ("SLURM_TASKS_PER_NODE", "3,2,1"), distribution, more];
            let sequence = find(&vars).unwrap().unwrap().sequence();
            sequence.map(|hosts| hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>().join(" "))
        };
        let none = ("", "");
        for (words, more, expected) in [
            ("block", none, None),
            ("*", none, None),
            ("cyclic", none, Some("n1 n2 n3 n1 n2 n1")),
            ("cyclic:block,NoPack", none, Some("n1 n2 n3 n1 n2 n1")),
            ("plane", ("SLURM_DIST_PLANESIZE", "2"), Some("n1 n1 n2 n2 n3 n1")),
            ("plane=9", none, Some("n1 n1 n1 n2 n2 n3")),
            ("plane", none, None),
            ("plane=x", none, None),
            ("arbitrary", ("SLURM_HOSTFILE", "/tasks"), Some("n2 n1 n2")),
            ("arbitrary", ("SLURM_HOSTFILE", "/gone"), None),
        ] {
            assert_eq!(of(("SLURM_DISTRIBUTION", words), more).as_deref(), expected, "{words}");
        }
        let huge =
            [JOB, ("SLURM_JOB_NODELIST", "n1"), ("SLURM_TASKS_PER_NODE", "4000000000"), ("SLURM_NTASKS", "4000000000")];
        let found = find(&[huge.as_slice(), &[("SLURM_DISTRIBUTION", "cyclic")]].concat());
        assert_eq!(found.unwrap().unwrap().sequence(), None);
    }

    #[test]
    fn a_job_without_hosts_is_none() {
        assert_eq!(find(&[JOB]), Ok(None));
        assert_eq!(find(&[("SLURM_JOB_NODELIST", "n0")]), Ok(None));
        assert_eq!(find(&[("SLURM_JOB_ID", ""), ("SLURM_JOB_NODELIST", "n0")]), Ok(None));
    }
}
