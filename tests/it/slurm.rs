//! Jobs within an allocation of a real Slurm: its hosts and tasks, started by srun.

use crate::bed::Bed;
use crate::case::{Case, Done};
use crate::place;
use crate::plan::Plan;
use serde_json::Value;
use std::collections::BTreeSet;

/// `$RL` with these words in an allocation of these options, on login.
pub(crate) fn salloc(bed: &Bed, user: &str, options: &str, script: &str) -> Plan {
    let line = format!("salloc -Q {options} sh -c '{script}'");
    bed.plan(user, "login", ["sh", "-c", &line]).with_events()
}

fn hosts_of(done: &Done) -> Vec<String> {
    let mut lines: Vec<String> = done.out().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn a_job_has_the_hosts_and_the_tasks_of_its_allocation() {
    let Some(bed) = Bed::slurm(4) else { return };
    for user in ["root", "tester"] {
        let done = salloc(&bed, user, "-N4 -n8", r#"exec "$RL" -l hostname"#).start().code(0);
        let expected: Vec<String> =
            [0, 0, 0, 0, 1, 1, 2, 3].iter().zip(0..).map(|(host, rank)| format!("{rank}: node{host}")).collect();
        assert_eq!(hosts_of(&done), expected, "{}", done.err());
        assert_eq!(done.err(), "", "nothing is to be said");
    }
    // A batch script runs on the first host, which is reached as the others are.
    let batch = r#"printf '#!/bin/sh\nexec "$RL" -l hostname\n' >job; sbatch -Q -W -N2 -n3 -o out job; cat out"#;
    let done = bed.plan("tester", "login", ["sh", "-c", batch]).start().code(0);
    assert_eq!(hosts_of(&done), ["0: node0", "1: node0", "2: node1"], "{}", done.err());
    // One task with a terminal of srun's.
    let pty = r#"script -qec "srun -Q -N2 -n4 --pty $RL -l hostname" /dev/null"#;
    let done = salloc(&bed, "tester", "-N2 -n4", pty).start().code(0);
    assert_eq!(done.out().matches("node").count(), 4, "{}", done.out());
    let het = salloc(&bed, "tester", "-N1 -n1 : -N2 -n4", r#"exec "$RL" -l hostname"#).start().code(0);
    assert_eq!(hosts_of(&het).len(), 5, "{}", het.err());
    let names: BTreeSet<String> =
        het.out().lines().filter_map(|line| line.split(' ').nth(1).map(str::to_owned)).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    bed.clean(10);
    bed.down();
}

#[test]
fn hosts_and_numbers_are_chosen_within_the_allocation() {
    let Some(bed) = Bed::slurm(4) else { return };
    let map = |options: &str, words: &str| salloc(&bed, "tester", options, &format!(r#"exec "$RL" {words}"#)).start();
    let done = map("-N4 -n8", "map --json -H node2 true").code(0);
    let shown: Value = serde_json::from_str(&done.out()).unwrap();
    assert_eq!(shown["hosts"], serde_json::json!([{"host": "node2", "slots": 1, "ranks": 1}]));
    assert_eq!(
        (&shown["allocation"]["scheduler"], &shown["allocation"]["launcher"]),
        (&"Slurm".into(), &"srun".into())
    );
    let outside = map("-N2 -n2", "-H node9 true").code(2);
    assert!(outside.err().contains("error: node9 (-H) is not in Slurm job "), "{}", outside.err());
    assert!(outside.err().contains(", whose hosts are node[0-1]\n  try     --launcher ssh"), "{}", outside.err());
    let one_each = map("-N3", "-l hostname").code(0);
    assert_eq!(hosts_of(&one_each), ["0: node0", "1: node1", "2: node2"]);
    one_each.says("names no number of tasks: starting 1 rank on each of its 3 hosts (-n N for another number)");
    let here = map("-N2 -n2", "--launcher local -n 2 hostname").code(0);
    assert_eq!(here.out(), "login\nlogin\n");
    let many = salloc(&bed, "tester", "-N2 -n4", r#"srun -Q -n 4 "$RL" -n 2 true"#).start().code(2);
    assert_eq!(many.err().matches("error: srun has started 4 copies of rlaunch").count(), 1, "{}", many.err());
    bed.clean(10);
    bed.down();
}

/// Names of a step or task of srun that no rank of ours has.
const OF_THE_STEP: [&str; 4] = ["SLURM_STEP_ID", "SLURM_STEPID", "SLURM_TASK_PID", "SLURM_LAUNCH_NODE_IPADDR"];

/// A rank's line about itself: its numbers and its host, then what all ranks have in common.
const NUMBERS: &str = "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_GTIDS $(hostname): \
                       $SLURM_NTASKS $SLURM_NPROCS $SLURM_STEP_NUM_TASKS $SLURM_NNODES $SLURM_STEP_NUM_NODES \
                       $SLURM_STEP_NODELIST $SLURM_TASKS_PER_NODE $SLURM_STEP_TASKS_PER_NODE \
                       $SLURM_NTASKS_PER_NODE ${SLURM_STEP_ID-none}";

/// The lines that ranks print by this script, where `$ASK` is another script.
fn asked(bed: &Bed, script: &str, ask: &str) -> Vec<String> {
    hosts_of(&salloc(bed, "tester", "-N4 -n8", script).env("ASK", ask).start().code(0))
}

fn numbers(ranks: &[&str], all: &str) -> Vec<String> {
    ranks.iter().map(|own| format!("{own}: {all}")).collect()
}

#[test]
fn ranks_have_the_variables_of_a_task_of_srun_with_their_own_numbers() {
    let Some(bed) = Bed::slurm(4) else { return };
    let ranks = [
        "0 0 0 0,1,2,3 node0",
        "1 1 0 0,1,2,3 node0",
        "2 2 0 0,1,2,3 node0",
        "3 3 0 0,1,2,3 node0",
        "4 0 1 4,5 node1",
        "5 1 1 4,5 node1",
        "6 0 2 6 node2",
        "7 0 3 7 node3",
    ];
    let all = "8 8 8 4 4 node[0-3] 4,2,1(x2) 4,2,1(x2)";
    let ours = asked(&bed, r#"exec "$RL" sh -c "$ASK""#, NUMBERS);
    assert_eq!(ours, numbers(&ranks, &format!("{all} 4 none")));
    // Tasks of srun have the same and the number of the step. The most tasks of a host are there only if they were asked for.
    let own = asked(&bed, r#"exec srun -Q sh -c "$ASK""#, NUMBERS);
    assert_eq!(own, numbers(&ranks, &format!("{all} 0")));
    // A part of the allocation, in another order than Slurm's.
    let part = asked(&bed, r#"exec "$RL" -H node3,node0 -n 3 sh -c "$ASK""#, NUMBERS);
    let ranks = ["0 0 0 0 node3", "1 0 1 1,2 node0", "2 1 1 1,2 node0"];
    assert_eq!(part, numbers(&ranks, "3 3 3 2 2 node[3,0] 1,2 1,2 2 none"));
    let expand = "[ $SLURM_PROCID != 0 ] || scontrol show hostnames $SLURM_STEP_NODELIST | tr '\\n' ' '";
    let script = r#"exec "$RL" -H node[2-3],node[0-1] --ppn 1 sh -c "$ASK""#;
    assert_eq!(asked(&bed, script, expand), ["node2 node3 node0 node1 "]);
    let kept = "echo $SLURM_JOB_NODELIST $SLURM_JOB_NUM_NODES $SLURM_NODELIST";
    assert_eq!(asked(&bed, r#"exec "$RL" -H node3 -n 1 sh -c "$ASK""#, kept), ["node[0-3] 4 node[0-3]"]);
    bed.clean(10);
    bed.down();
}

#[test]
fn variables_of_an_outer_step_or_job_do_not_reach_ranks() {
    let Some(bed) = Bed::slurm(4) else { return };
    let pty = r#"script -qec "srun -Q -N2 -n4 --pty $RL -n 2 sh -c \"\$ASK\"" /dev/null"#;
    // The terminal also shows the report of rlaunch, and the end of its input (`^@`).
    let shown = asked(&bed, pty, NUMBERS);
    let lines: BTreeSet<String> = shown
        .iter()
        .filter(|line| line.contains("node0: "))
        .map(|line| line.trim_start_matches("^@").trim_end().to_owned())
        .collect();
    let expected = numbers(&["0 0 0 0,1 node0", "1 1 0 0,1 node0"], "2 2 2 1 1 node0 2 2 2 none");
    assert_eq!(lines, expected.into_iter().collect(), "of {shown:#?}");
    // A job of a rank has its own. With `--launcher slurm` it has the hosts of the outer job.
    let script = r#"exec "$RL" -H node[2-3] -n 2 sh -c "$ASK""#;
    let inner = r#"[ $SLURM_PROCID = 1 ] || "$RL" -n 2 sh -c 'echo $SLURM_NTASKS $SLURM_TASKS_PER_NODE'"#;
    assert_eq!(asked(&bed, script, inner), ["2 2", "2 2"]);
    let inner = r#"[ $SLURM_PROCID = 1 ] || "$RL" --launcher slurm -l hostname"#;
    assert_eq!(asked(&bed, script, inner), ["0: node2", "1: node3"]);
    bed.clean(10);
    bed.down();
}

#[test]
fn variables_of_a_task_that_are_set_by_hand_do_not_reach_ranks() {
    let set = [
        "SLURM_GTIDS",
        "SLURM_LOCALID",
        "SLURM_NNODES",
        "SLURM_NODEID",
        "SLURM_NPROCS",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_PROCID",
        "SLURM_STEP_NODELIST",
        "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
    ];
    let plan = |options: &str| {
        let script = format!(r#"exec "$RL" --launcher local {options} -n 2 sh -c 'env | grep ^SLURM_ | sort'"#);
        set.into_iter().chain(OF_THE_STEP).fold(Plan::shell(&script), |plan, name| plan.env(name, "77"))
    };
    assert_eq!(plan("").start().code(0).out(), "", "outside Slurm");
    let lines = plan("-x SLURM_PROCID").env("SLURM_JOB_ID", "7").start().code(0).sorted();
    let by_hand: Vec<&String> = lines.iter().filter(|line| line.ends_with("=77")).collect();
    assert_eq!(by_hand, ["SLURM_PROCID=77"; 2], "`-x` keeps the caller's");
    let names: BTreeSet<&str> = lines.iter().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    assert_eq!(names, set.into_iter().chain(["SLURM_JOB_ID"]).collect());
    for own in ["SLURM_TASKS_PER_NODE=2", "SLURM_GTIDS=0,1", "SLURM_LOCALID=1", "SLURM_NODEID=0"] {
        assert!(lines.iter().any(|line| line == own), "{own} in {lines:?}");
    }
}

/// Such a value would change what srun does, or how it passes bytes on.
#[test]
fn variables_of_srun_do_not_reach_the_step_of_the_agents() {
    let Some(bed) = Bed::slurm(2) else { return };
    for set in [
        "SLURM_STDINMODE=none",
        "SLURM_STDINMODE=0",
        "SLURM_STDOUTMODE=none",
        "SLURM_LABELIO=1",
        "SLURM_EXCLUSIVE=1",
        "SLURM_NO_KILL=1",
        "SLURM_DEBUG=3",
        "SLURM_CONSTRAINT=x",
        "SLURM_HOSTFILE=/nosuch",
        "SLURM_GPUS_PER_TASK=1",
        "SLURM_STEP_GRES=gpu:1",
        "SRUN_CPUS_PER_TASK=1",
        "SLURM_EXACT=1",
        "SLURM_TIMELIMIT=1",
        "SLURM_EXPORT_ENV=NONE",
        "SLURM_MPI_TYPE=pmix",
    ] {
        let done =
            salloc(&bed, "tester", "-N2 -n2", &format!(r#"export {set} MINE=7; exec "$RL" sh -c "echo \$MINE""#));
        let done = done.start().code(0);
        assert_eq!(done.out(), "7\n7\n", "{set}: {}", done.err());
    }
    bed.clean(10);
    bed.down();
}

/// Slurm signals each process of a step here (proctrack/linuxproc). Ranks must not get the signal from rlaunch as well.
#[test]
fn the_schedulers_signals_reach_each_rank_once() {
    let Some(bed) = Bed::slurm(2) else { return };
    signals_reach_each_rank_once(&bed);
    bed.down();
}

/// TERM, USR1 and INT of `scancel`, to four ranks on two hosts.
/// The script ends its salloc: some salloc of Slurm 22.05 run forever after `scancel -s INT`.
pub(crate) fn signals_reach_each_rank_once(bed: &Bed) {
    let ranks = r#"trap "echo TERM \$RANK; exit 0" TERM; for sig in USR1 INT; do trap "echo $sig \$RANK" $sig; done; echo up; while :; do sleep 0.1; done"#;
    for (end, first, transport) in [
        ("scancel -u tester", None, "tcp"),
        ("scancel -s USR1 -u tester", Some("USR1"), "tcp"),
        ("scancel -s INT -u tester", Some("INT"), "tcp"),
        ("scancel -s INT -u tester", Some("INT"), "stdio"),
    ] {
        let case = salloc(
            bed,
            "tester",
            "-N2 -n4",
            &format!(
                r#""$RL" --transport {transport} --events events sh -c '"'"'{ranks}'"'"'; echo code $?; kill -s KILL $PPID"#
            ),
        );
        let case = case.start();
        case.says_on_stdout("up", 4);
        bed.run(["exec", "login", "sh", "-c", end]);
        if let Some(sig) = first {
            case.says_on_stdout(sig, 4);
            bed.run(["exec", "login", "scancel", "-u", "tester"]);
        }
        let done = case.end();
        let expected = |sig: &str| -> Vec<String> { (0..4).map(|rank| format!("{sig} {rank}")).collect() };
        let got =
            |sig: &str| -> Vec<String> { done.sorted().into_iter().filter(|line| line.starts_with(sig)).collect() };
        assert_eq!(got("TERM"), expected("TERM"), "{}", done.err());
        if let Some(sig) = first {
            assert_eq!(got(sig), expected(sig), "{transport}: {}", done.err());
            done.says(&format!("rlaunch: Slurm sent SIG{sig} (--signal or scancel -s); each rank gets it once"));
        }
        // KillWait is 5 s here, so a grace of 5 s is cut.
        done.says("rlaunch: Slurm ends the job: SIGTERM, SIGKILL in 3s");
        done.says("rlaunch: Slurm ended the job by SIGTERM after ");
        done.says("  job      ranks 0-3 stopped by Slurm (SIGTERM, ");
        assert_eq!(got("code"), ["code 143"]);
    }
    bed.clean(10);
}

/// `scontrol suspend` stops all processes of the step, for longer than a lease.
#[test]
fn suspended_job_continues_when_resumed() {
    let Some(bed) = Bed::slurm(2) else { return };
    for transport in ["tcp", "stdio"] {
        let job = format!(
            r#""$RL" --transport {transport} --lease 2s sh -c "echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done"; echo code $?"#
        );
        let case = salloc(&bed, "tester", "-N2 -n4", &job).start();
        case.says_on_stdout("up", 4);
        let suspend = "job=$(squeue -h -o %A); scontrol suspend $job; sleep 6; scontrol resume $job";
        bed.run(["exec", "login", "sh", "-c", suspend]);
        case.says_on_stderr("Slurm has resumed the job");
        for node in ["node0", "node1"] {
            bed.run(["exec", node, "touch", "/tmp/go"]);
        }
        let done = case.end();
        done.says("rlaunch: Slurm suspends the job");
        assert!(done.out().ends_with("code 0\n"), "{}", done.out());
        for node in ["node0", "node1"] {
            bed.run(["exec", node, "rm", "/tmp/go"]);
        }
        bed.clean(10);
    }
    bed.down();
}

/// A rank without a handler is killed by the signal before rlaunch receives it. That is no failure.
#[test]
fn ranks_that_the_scheduler_ends_are_no_failures() {
    let Some(bed) = Bed::slurm(2) else { return };
    let case = salloc(&bed, "tester", "-N2 -n4", r#""$RL" sh -c "echo up; exec sleep 1000"; echo code $?"#).start();
    case.says_on_stdout("up", 4);
    bed.run(["exec", "login", "scancel", "-u", "tester"]);
    let done = case.end();
    done.says("rlaunch: Slurm ended the job by SIGTERM after ");
    done.says("ranks 0-3 stopped by Slurm (SIGTERM, ");
    assert!(done.out().ends_with("code 143\n"), "{}", done.out());
    bed.clean(10);
    bed.down();
}

/// The last words of rlaunch in a batch job on two hosts, which ends by this command on login.
fn ended_batch_job(bed: &Bed, options: &str, end: &str) -> Done {
    let batch = format!(
        r#"printf '#!/bin/sh\nexec "$RL" sh -c "echo up; exec sleep 1000"\n' >job
           id=$(sbatch --parsable -N2 -n4 {options} --open-mode=append -o out job)
           until [ "$(grep -c up out 2>/dev/null)" = 4 ]; do sleep 0.1; done; echo "$id"
           until grep -q "^  exit" out; do sleep 0.1; done; scancel "$id"; cat out"#
    );
    let case = bed.plan("tester", "login", ["sh", "-c", &batch]).start();
    case.says_on_stdout("\n", 1);
    bed.run(["exec", "login", "sh", "-c", end]);
    case.code(0)
}

#[test]
fn report_names_slurm_as_the_cause_of_the_end() {
    let Some(bed) = Bed::slurm(2) else { return };
    let job = "$(squeue -h -o %A)";
    let down = "scontrol update nodename=node1 state=down reason=test";
    for (options, end) in [("--requeue", format!("scontrol requeue {job}")), ("--no-requeue", down.to_owned())] {
        let out = ended_batch_job(&bed, options, &end).out();
        assert!(out.contains("rlaunch: Slurm ended the job by SIGTERM after "), "{out}");
        assert!(out.contains("  exit     143\n"), "{out}");
        bed.clean(10);
    }
    bed.run(["exec", "login", "scontrol", "update", "nodename=node1", "state=idle"]);
    bed.down();
}

/// Kills one process of the job, or of Slurm, of a job that runs for so many seconds. Returns what it has printed.
fn kill_one(bed: &Bed, transport: &str, seconds: u32, victim: &str) -> String {
    let job =
        format!(r#""$RL" --transport {transport} --lease 4s sh -c "echo up; exec sleep {seconds}"; echo code $?"#);
    let case = salloc(bed, "tester", "-N2 -n4", &job).start();
    case.says_on_stdout("up", 4);
    let kill = match victim {
        // The launcher is older than its guardian and agent.
        "rlaunch" => ("login", "kill -9 $(pgrep -o -u tester -f /rlaunch)"),
        "srun" => ("login", "kill -9 $(pgrep -o -x srun)"),
        // Neither must see the other's end.
        "sruns" => ("login", "all=$(pgrep -x srun); kill -STOP $all; kill -9 $all 2>/dev/null || true"),
        _ => ("node0", "kill -9 $(pgrep -x slurmstepd)"),
    };
    bed.run(["exec", kill.0, "sh", "-c", kill.1]);
    case.end().out()
}

#[test]
fn nothing_is_left_if_any_part_is_killed() {
    let Some(bed) = Bed::slurm(2) else { return };
    // The code of the shell: 137 for a launcher that was killed, 125 for a host that was lost.
    for (transport, victim, within, code) in [
        ("tcp", "rlaunch", "4", 137),
        ("tcp", "srun", "4", 125),
        ("stdio", "rlaunch", "4", 137),
        ("stdio", "srun", "4", 125),
        ("stdio", "sruns", "12", 125),
        ("stdio", "slurmstepd", "12", 125),
    ] {
        let out = kill_one(&bed, transport, 1000, victim);
        assert!(out.ends_with(&format!("code {code}\n")), "{transport}, {victim}: {out}");
        let left = bed.call(["strays", "--within", within]);
        assert!(left.status.success(), "{transport}, {victim}: {}", String::from_utf8_lossy(&left.stdout));
    }
    bed.down();
}

/// All processes of a task are killed, as by the kernel when its memory is used up. srun ends when the other tasks have ended, before the
/// lease of the host.
#[test]
fn last_lines_of_srun_are_shown_when_a_host_is_lost() {
    let Some(bed) = Bed::slurm(2) else { return };
    let job = r#""$RL" --lease 4s sh -c "echo up; exec sleep 1000"; echo code $?"#;
    let case = salloc(&bed, "tester", "-N2 -n4", job).start();
    case.says_on_stdout("up", 4);
    // pkill ends one process after the other: none must see the end of another.
    bed.run(["exec", "node1", "sh", "-c", "pkill -STOP -u tester; pkill -KILL -u tester"]);
    let done = case.end();
    done.says("rlaunch: srun ended before the job (exit code 137): ");
    done.says("srun: error: node1: task 1: Killed");
    done.says("rlaunch: the agent on node1 was lost (it was killed or crashed)\n");
    assert!(done.out().ends_with("code 125\n"), "{}", done.out());
    bed.clean(10);
    bed.down();
}

/// Over TCP no message goes through srun: the job outlives a lease without it.
#[test]
fn job_over_tcp_goes_to_its_end_without_srun_or_slurmstepd() {
    let Some(bed) = Bed::slurm(2) else { return };
    for victim in ["sruns", "slurmstepd"] {
        let out = kill_one(&bed, "tcp", 7, victim);
        assert!(out.ends_with("code 0\n"), "{victim}: {out}");
        bed.clean(10);
    }
    bed.down();
}

/// The hellos of agents are lost on their way, or answered with a reset: srun's own streams are used instead.
#[test]
fn hosts_that_cannot_connect_are_reached_over_the_streams_of_srun() {
    // A TCP header of 32 bytes, and then the first bytes of a hello.
    const SHUT: &str = "nft add table inet t && nft add chain inet t o '{ type filter hook output priority 0; }' && \
                        nft add rule inet t o meta l4proto tcp @th,256,64 0x726c61756e636803";
    let Some(bed) = Bed::slurm(2) else { return };
    let on_all = |script: &str| {
        for node in ["node0", "node1"] {
            bed.run(["exec", node, "sh", "-c", script]);
        }
    };
    let job = |transport: &str, within: u32| {
        let job = format!(r#""$RL" --transport {transport} --connect-timeout {within}s -l hostname; echo code $?"#);
        salloc(&bed, "tester", "-N2 -n2", &job).start().end()
    };
    for verdict in ["reject with tcp reset", "drop"] {
        on_all(&format!("{SHUT} {verdict}"));
        assert_eq!(hosts_of(&job("auto", 12)), ["0: node0", "1: node1", "code 0"], "{verdict}");
        let done = job("tcp", 4);
        done.says("its agent has not connected to port ").says("--transport stdio");
        assert!(done.out().ends_with("code 125\n"), "{}", done.out());
        on_all("nft delete table inet t");
    }
    bed.clean(10);
    bed.down();
}

/// `sbatch` of an example with these options besides its own, and these words for its program; what it has written.
pub(crate) fn sbatch(bed: &Bed, example: &str, options: &[&str], words: &str) -> Plan {
    let path = place::root().join("examples/slurm").join(example);
    // The hosts do not see the repository.
    let options = options.join(" ");
    // The state of the job is the sign of life while it waits.
    let script = format!(
        "cp \"$RL\" rlaunch; cat >job; PATH=$PWD:$PATH sbatch -Q -W -o out {options} job {words} & \
         while kill -0 $! 2>/dev/null; do squeue -h -o %T >&2; sleep 0.5; done; wait $!; echo \"code $?\"; cat out"
    );
    bed.plan("tester", "login", ["sh", "-c", &script]).stdin(std::fs::File::open(path).unwrap())
}

#[test]
fn batch_scripts_of_the_examples_run_unchanged() {
    let Some(bed) = Bed::slurm(3) else { return };
    for (example, expected) in [
        ("one_node.sbatch", &["0: node0", "1: node0", "2: node0", "3: node0"][..]),
        ("many_nodes.sbatch", &["0: node0", "1: node0", "2: node1", "3: node1"]),
        ("heterogeneous.sbatch", &["0: node0", "1: node1", "2: node1", "3: node2", "4: node2"]),
    ] {
        let done = sbatch(&bed, example, &[], "hostname").start().code(0);
        let lines: Vec<String> = done.sorted().into_iter().filter(|line| line.contains(": ")).collect();
        assert_eq!(lines, expected, "{example}: {}", done.out());
        assert!(done.out().contains("code 0\n"), "{example}: {}", done.out());
    }
    bed.clean(10);
    bed.down();
}

#[test]
fn a_job_of_the_examples_outlives_a_node() {
    let Some(bed) = Bed::slurm(3) else { return };
    let words = r#"sh -c "[ \$RLAUNCH_RESTART_COUNT = 1 ] || exec sleep 1000""#;
    let case = sbatch(&bed, "lost_node.sbatch", &[], words).env("RLAUNCH_LEASE", "4s").with_events().start();
    case.events("rank.started", 3);
    bed.run(["kill-host", "node1"]);
    let done = case.code(0);
    assert!(done.out().contains("code 0\n") && done.out().contains("node1 is lost; "), "{}", done.out());
    bed.clean(10);
    bed.down();
}

/// srun starts the binary itself if no other user can put a file at its path. Where that is not our file, a shell looks for it.
#[test]
fn srun_starts_the_binary_itself_if_possible() {
    let Some(bed) = Bed::slurm(3) else { return };
    let on = |host: &str, script: &str| bed.run(["exec", host, "sh", "-c", script]);
    let own = format!("mkdir /run/own; cp {} /run/own/rlaunch", bed.rlaunch());
    let job = |path: &str, transport: &str, words: &str| {
        let job = format!(r#""$RL" --transport {transport} -l {words}; echo code $?"#);
        salloc(&bed, "root", "-N3 -n3", &job).env("RL", path).start()
    };
    ["login", "node0", "node1", "node2"].into_iter().for_each(|host| drop(on(host, &own)));
    let expected = ["0: node0", "1: node1", "2: node2", "code 0"];
    let case = job("/run/own/rlaunch", "tcp", r#"sh -c "echo up; while [ ! -e /tmp/go ]; do sleep 0.1; done""#);
    case.says_on_stdout("up", 3);
    for host in ["node0", "node1", "node2"] {
        on(host, "pgrep -f '^/run/own/rlaunch agent direct [0-9a-f]* [0-9a-f]*$'");
        on(host, "touch /tmp/go");
    }
    assert!(case.end().out().ends_with("code 0\n"));
    // Another build, and another program.
    on("node1", "echo >>/run/own/rlaunch");
    on("node2", "printf '#!/bin/sh\\nexit 3\\n' >/run/own/rlaunch");
    for _ in 0..2 {
        assert_eq!(hosts_of(&job("/run/own/rlaunch", "auto", "hostname").end()), expected);
    }
    on("node1", "rm /run/own/rlaunch");
    let done = job("/run/own/rlaunch", "tcp", "hostname").end();
    assert_eq!((hosts_of(&done), done.err()), (expected.map(str::to_owned).into(), String::new()), "from the caches");
    bed.clean(10);
    bed.down();
}

/// A job without an end of its own, whose ranks run. After the job, the shell prints the code of rlaunch.
fn endless(bed: &Bed, options: &str, words: &str, ranks: usize) -> Case {
    let job = format!(r#""$RL" {words} sh -c "echo up; exec sleep 1000"; echo code $?"#);
    let case = salloc(bed, "tester", options, &job).start();
    case.says_on_stdout("up", ranks);
    case
}

/// Slurm kills the processes of a step one after the other: an agent that runs in between reports its ranks, or ends in good order.
fn stop_agents(bed: &Bed, nodes: &[&str]) {
    for node in nodes {
        bed.run(["exec", node, "sh", "-c", "kill -STOP $(pgrep -x 'rlaunch-(guard|agent)')"]);
    }
}

/// Slurm ends the step of an srun that was killed.
#[test]
fn job_whose_srun_was_killed_names_that() {
    let Some(bed) = Bed::slurm(2) else { return };
    for (options, hosts, ranks) in [("-N2 -n4", "agents on node[0-1]", 4), ("-N1 -n1 -w node0", "agent on node0", 1)] {
        let case = endless(&bed, options, "--transport tcp --lease 4s", ranks);
        stop_agents(&bed, if ranks == 4 { &["node0", "node1"] } else { &["node0"] });
        bed.run(["exec", "login", "sh", "-c", "kill -9 $(pgrep -o -x srun)"]);
        let done = case.end();
        done.says("rlaunch: srun ended before the job (signal 9)");
        done.says(&format!("rlaunch: srun ended (signal 9), and with it the {hosts}\n"));
        assert!(done.out().ends_with("code 125\n"), "{}", done.out());
        bed.clean(10);
    }
    bed.down();
}

/// Slurm sends SIGKILL to the processes of the step at once.
#[test]
fn job_whose_step_was_cancelled_names_the_end_of_srun() {
    let Some(bed) = Bed::slurm(2) else { return };
    for (options, ranks, transport, hosts) in [
        ("-N2 -n4", 4, "tcp", "agents on node[0-1]"),
        ("-N1 -n2", 2, "tcp", "agent on node0"),
        ("-N1 -n2", 2, "stdio", "agent on node0"),
    ] {
        for signal in ["", "-s KILL"] {
            let case = endless(&bed, options, &format!("--transport {transport} --lease 4s --max-restarts 3"), ranks);
            stop_agents(&bed, if ranks == 4 { &["node0", "node1"] } else { &["node0"] });
            let cancel = format!("scancel {signal} $(squeue -h -s -o %i -u tester | grep -v extern)");
            bed.run(["exec", "login", "sh", "-c", &cancel]);
            let done = case.end();
            done.says(&format!("rlaunch: srun ended (exit code 137), and with it the {hosts}\n"));
            assert!(done.out().ends_with("code 137\n"), "{options} {transport}: {}", done.out());
            bed.clean(10);
        }
    }
    bed.down();
}
