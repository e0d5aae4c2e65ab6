//! Jobs within an allocation of a scheduler: their hosts, and what starts the agents there.

use super::{at_site_with, run_with};
use crate::cli::{Run, Site};
use crate::view::map;
use rlaunch_plan::bootstrap::{CarrierKind, Target};
use rlaunch_plan::place::Placement;
use rlaunch_sys::slots::Turn;
use std::time::Duration;

const SALLOC: [(&str, &str); 7] = [
    ("PATH", "/usr/bin"),
    ("SLURM_JOB_ID", "7"),
    ("SLURM_JOB_NODELIST", "node[0-2],me"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_TASKS_PER_NODE", "4,2,1(x2)"),
    ("SLURM_JOB_CPUS_PER_NODE", "4(x4)"),
    ("SLURM_LABELIO", "1"),
];

/// Without a number of tasks.
const PLAIN: [(&str, &str); 3] =
    [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "node[0-1]"), ("SLURM_JOB_CPUS_PER_NODE", "4(x2)")];

fn placed(line: &str, variables: &[(&str, &str)]) -> Result<(Run, Placement), String> {
    let mut run = run_with(line, variables);
    let placement = at_site_with(variables, Some(0), |site| {
        run.use_allocation(site)?;
        run.place(site)
    });
    placement.map(|placement| (run, placement)).map_err(|error| error.render())
}

/// `node0:4 node1:2, srun`: hosts with their ranks, and what reaches them.
fn shown(line: &str, variables: &[(&str, &str)]) -> String {
    let (run, placement) = placed(line, variables).unwrap_or_else(|error| panic!("{line}: {error}"));
    let host = |node: &rlaunch_plan::place::Node| {
        format!("{}{}:{}", node.host, if node.local { " (here)" } else { "" }, node.ranks)
    };
    let hosts: Vec<String> = placement.nodes.iter().map(host).collect();
    format!("{}, {}", hosts.join(" "), run.reach.carrier(false).kind())
}

#[test]
fn ranks_are_in_the_order_that_the_user_asked_the_scheduler_for() {
    let cyclic = [&SALLOC[..], &[("SLURM_DISTRIBUTION", "cyclic")]].concat();
    let order = |line: &str| {
        let (_, placement) = placed(line, &cyclic).unwrap();
        placement.ranks.iter().map(|rank| rank.node.to_string()).collect::<String>()
    };
    assert_eq!(order("a"), "01230100");
    assert_eq!((order("-n 3 a"), order("-n 9 a")), ("012".into(), "012301000".into()));
    assert_eq!(order("-n 2 a : -n 3 b"), "01230");
    assert_eq!((order("--map-by slot a"), order("-n 2 -H node0 a")), ("00001123".into(), "00".into()));
}

#[test]
fn slots_of_other_jobs_are_not_used() {
    let found = |line: &str| placed(line, &SALLOC).unwrap().0.in_allocation.unwrap().allocation;
    let (rest, taken) = found("a").beside(&["node0 3\nnode1 2\nother 9\n".into(), "me 1\nnode0 x\n".into()]);
    assert_eq!((taken, rest.hosts.iter().map(|host| host.slots).collect::<Vec<_>>()), (6, vec![1, 1]));
    let allocation = format!("t{}", std::process::id());
    let vars = [&[("SLURM_JOB_ID", allocation.as_str())], &SALLOC[..1], &SALLOC[2..]].concat();
    let _other = Turn::take(&allocation).unwrap().leave("node0 3\nnode1 1\n").unwrap();
    let shown = |line: &str| {
        let mut run = run_with(line, &vars);
        let placement = at_site_with(&vars, Some(0), |site| {
            let site = Site { turn: &Turn::take, here: site.here.clone(), ..*site };
            run.use_allocation(&site)?;
            run.place(&site)
        });
        let placement = placement.map_err(|error| error.render()).unwrap();
        let hosts: Vec<_> = placement.nodes.iter().map(|node| format!("{}:{}", node.host, node.ranks)).collect();
        let notes: String =
            placement.notes.iter().filter(|note| map::is_news(note)).map(|note| map::note(note, 1)).collect();
        format!("{} {notes}", hosts.join(" "))
    };
    assert_eq!(shown("-n 3 a"), "node0:1 node1:1 node2:1 ");
    assert_eq!(shown("-n 2 -H node0 a"), "node0:2 ", "hosts that the user names are used");
    let all = shown("a");
    assert!(
        all.starts_with("node0:4 node1:2 node2:1 me:1 rlaunch: other jobs of rlaunch have 4 slots of Slurm job t"),
        "{all}"
    );
}

#[test]
fn launcher_that_gets_no_turn_prints_that_other_jobs_may_have_its_slots() {
    let allocation = format!("late{}", std::process::id());
    let vars = [&[("SLURM_JOB_ID", allocation.as_str())], &SALLOC[..1], &SALLOC[2..]].concat();
    let _first = Turn::take(&allocation).unwrap();
    let mut run = run_with("-n 2 a", &vars);
    let placement = at_site_with(&vars, Some(0), |site| {
        let turn = |allocation: &str| Turn::take_within(allocation, Duration::ZERO);
        let site = Site { turn: &turn, here: site.here.clone(), ..*site };
        run.use_allocation(&site)?;
        run.place(&site)
    });
    let notes = placement.map_err(|error| error.render()).unwrap().notes;
    let notes: String = notes.iter().filter(|note| map::is_news(note)).map(|note| map::note(note, 1)).collect();
    assert!(notes.starts_with("rlaunch: another rlaunch is placing its ranks in Slurm job late"), "{notes}");
}

#[test]
fn an_allocation_gives_a_job_its_hosts_and_tasks() {
    for (line, expected) in [
        ("a", "node0:4 node1:2 node2:1 me:1, srun"),
        ("-n 5 a", "node0:4 node1:1, srun"),
        ("-n 9 a", "node0:5 node1:2 node2:1 me:1, srun"),
        ("--ppn 1 a", "node0:1 node1:1 node2:1 me:1, srun"),
        ("-H node2,node0 a", "node2:1 node0:4, srun"),
        ("-H localhost a", "me:1, srun"),
        ("-n 2 -H node1 a", "node1:2, srun"),
        ("--launcher ssh a", "node0:4 node1:2 node2:1 me (here):1, ssh"),
        ("--launcher ssh -H node1,far:3 a", "node1:2 far:3, ssh"),
        ("--launcher local -n 3 a", "me (here):3, ssh"),
        ("-bootstrap slurm -n 1 a", "node0:1, srun"),
        ("-n 1 a : -n 5 b", "node0:4 node1:2, srun"),
    ] {
        assert_eq!(shown(line, &SALLOC), expected, "{line}");
    }
    let (_, beyond) = placed("-n 9 a", &SALLOC).unwrap();
    assert!(!beyond.notes.is_empty(), "more ranks than slots");
    assert!(placed("--strict -n 9 a", &SALLOC).is_err());
}

#[test]
fn without_a_number_of_tasks_a_rank_runs_on_each_host() {
    for (line, expected, notes) in [
        ("a", "node0:1 node1:1, srun", 1),
        ("-n 6 a", "node0:4 node1:2, srun", 0),
        ("--ppn 2 a", "node0:2 node1:2, srun", 0),
        ("-H node1 a", "node1:1, srun", 1),
    ] {
        assert_eq!(shown(line, &PLAIN), expected, "{line}");
        assert_eq!(placed(line, &PLAIN).unwrap().1.notes.len(), notes, "{line}");
    }
}

/// The notes of a placement, in words.
fn noted(line: &str, variables: &[(&str, &str)]) -> String {
    let (run, placement) = placed(line, variables).unwrap_or_else(|error| panic!("{line}: {error}"));
    placement.notes.iter().map(|note| map::note(note, run.programs.len())).collect()
}

#[test]
fn parts_of_an_allocation_that_are_not_used_are_noted() {
    let here = "all ranks run on this host (--launcher local: no note)\n";
    let of = |variables: &[(&str, &str)]| noted("-n 1 a", variables);
    for (variables, why) in [
        (&[("SLURM_JOB_ID", "7")][..], "SLURM_JOB_ID=7 is set without SLURM_JOB_NODELIST"),
        (&[("PBS_JOBID", "5.s")], "PBS_JOBID=5.s is set without PBS_NODEFILE"),
        (&[("PBS_JOBID", "5"), ("PBS_NODEFILE", "/gone")], "PBS_JOBID=5 is set without hosts in PBS_NODEFILE=/gone"),
        (&[("LSB_JOBID", "5")], "LSB_JOBID=5 is set without LSB_MCPU_HOSTS"),
        (&[("PE_HOSTFILE", "/gone")], "PE_HOSTFILE=/gone is set without hosts in that file"),
    ] {
        assert_eq!(of(variables), format!("rlaunch: {why}: {here}"));
        assert_eq!(of(&[variables, &[("RLAUNCH_JOB_ID", "x")]].concat()), "", "a rank of ours");
    }
    let uncounted = [&SALLOC[..4], &[("SLURM_JOB_CPUS_PER_NODE", "4(x4)")]].concat();
    let why = "SLURM_NTASKS=8 is set without SLURM_TASKS_PER_NODE";
    assert_eq!(
        noted("a", &uncounted),
        format!("rlaunch: {why}: starting 1 rank on each of its 4 hosts (-n 8 for as many)\n")
    );
    assert_eq!(
        noted("-H node1:7 a", &SALLOC),
        "rlaunch: Slurm job 7 gives 2 slots of node1, and not the 7 that are named\n"
    );
    assert_eq!((noted("-H node1:2 a", &SALLOC), noted("a", &SALLOC)), (String::new(), String::new()));
}

#[test]
fn cores_of_a_rank_default_to_cores_of_a_task() {
    let variables = [&SALLOC[..], &[("SLURM_CPUS_PER_TASK", "2")]].concat();
    let of = |line: &str, variables: &[(&str, &str)]| {
        let bind = placed(line, variables).unwrap().0.whole.bound();
        (bind.cores, bind.task_cpus)
    };
    assert_eq!((of("a", &variables), of("a", &SALLOC)), ((None, Some(2)), (None, None)));
    assert_eq!(of("-c 1 a", &variables).0, Some(1), "which goes first");
    assert_eq!(of("--launcher local a", &variables), (None, None));
}

#[test]
fn a_rank_s_own_job_and_other_schedulers_use_no_srun() {
    let nested = [&SALLOC[..], &[("RLAUNCH_JOB_ID", "x")]].concat();
    assert_eq!(shown("-n 2 a", &nested), "me (here):2, ssh");
    let lsf = [("LSB_MCPU_HOSTS", "b1 2 b2 1")];
    assert_eq!(shown("a", &lsf), "b1:2 b2:1, ssh");
}

#[test]
fn command_of_the_user_reaches_all_hosts_and_this_host() {
    let (run, placement) = placed("--launcher=exec:reach-{host} -H me,b -n 2 a", &[]).unwrap();
    assert!(placement.nodes.iter().all(|node| !node.local));
    let carrier = run.reach.carrier(false);
    let words = carrier.command(&Target::parse(b"b", None).unwrap(), b"LINE");
    assert_eq!((carrier.kind(), words[0].to_string()), (CarrierKind::Exec, "reach-b".into()));
}

#[test]
fn srun_gets_few_variables() {
    let (run, _) = placed("a", &SALLOC).unwrap();
    let words = run.reach.carrier(false).command(&Target::parse(b"node1", None).unwrap(), b"LINE");
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    assert_eq!(words[..5], ["env", "-i", "PATH=/usr/bin", "SLURM_JOB_ID=7", "srun"]);
}

#[test]
fn job_that_an_allocation_does_not_allow_is_refused() {
    let step = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
    let pty = [&step[..], &[("SLURM_PTY_PORT", "1"), ("SLURM_STEP_NODELIST", "n1"), ("SLURM_NTASKS", "4")]].concat();
    let broken = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "node[0-3]"), ("SLURM_TASKS_PER_NODE", "2(x3)")];
    for (line, variables, says) in [
        ("-H node9 a", &SALLOC[..], "error: node9 (-H) is not in Slurm job 7, whose hosts are me,node[0-2]\n"),
        ("--launcher slurm a", &[], "error: --launcher slurm needs an allocation of Slurm"),
        (
            "--launcher local -H node1 a",
            &SALLOC,
            "error: --launcher local runs all ranks on this host, and -H names node1",
        ),
        ("-n 2 a", &step, "error: srun has started 4 copies of rlaunch"),
        ("a", &broken, "SLURM_TASKS_PER_NODE=2(x3) counts 3 hosts, and SLURM_JOB_NODELIST=node[0-3] has 4\n"),
    ] {
        let error = placed(line, variables).err().unwrap_or_else(|| panic!("{line} is accepted"));
        assert!(error.contains(says) && error.contains("\n  try     "), "{line}: {error}");
    }
    assert!(placed("--launcher ssh -H far a", &broken).is_ok() && placed("--launcher local a", &broken).is_ok());
    assert!(placed("--launcher ssh a", &broken).is_err(), "no host is named");
    assert!(placed("a", &pty).is_ok());
    let others = [&pty[..], &[("SLURM_PROCID", "1")]].concat();
    let refused = placed("a", &others).err().unwrap();
    assert!(refused.contains("srun has given its terminal to task 0"), "{refused}");
    let code = crate::cli::CliError::Allocation(crate::cli::AllocationUseError::WithoutTerminal).exit_code();
    assert_eq!(code, 0, "srun would report the task as failed");
    for value in ["rsh", "exec:", "exec:docker", ""] {
        let refused = super::with(&format!("--launcher={value} a"), &[]).unwrap_err().render();
        assert!(refused.contains("takes auto, local, ssh, slurm or exec:COMMAND"), "{refused}");
    }
}

/// `rlaunch map` shows hosts without a program. A path after -H is the program.
#[test]
fn map_needs_no_program() {
    use crate::cli::{Answer, Command, NO_FILES, parse};
    let map = |line: &str| -> Result<bool, String> {
        let words = ["map"].into_iter().chain(line.split_whitespace()).map(Into::into).collect();
        match parse(words, &|_| None, NO_FILES).map_err(|error| error.render())? {
            Command::Answer(Answer::Map { run, .. }) => Ok(run.presentation.is_bare_map),
            other => panic!("{other:?}"),
        }
    };
    for line in ["", "-n 4", "--json -H node2", "-f hosts"] {
        assert_eq!(map(line), Ok(true), "{line}");
    }
    assert_eq!(map("-H node2 ./train"), Ok(false));
    for line in ["-H ./train", "-x true", "-n 2 : ./b"] {
        let error = map(line).unwrap_err();
        assert!(error.contains("no program given"), "{line}: {error}");
    }
}
