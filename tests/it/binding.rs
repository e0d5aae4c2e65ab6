//! The CPUs of ranks: what rlaunch reports is what the kernel has.

use crate::case::{Case, Done};
use crate::place;
use crate::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};

/// Prints the rank and the CPUs that it may use.
const ALLOWED: &str = "sh -c 'echo $RANK $(grep Cpus_allowed_list /proc/self/status | cut -f2)'";

pub(crate) fn has_two_cores() -> bool {
    let has = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    if !has {
        place::absent("binding", "needs two CPUs");
    }
    has
}

/// The CPUs of each rank of a job on this host, as the kernel has them and as rlaunch reports them.
fn cpus(options: &str, before: &str) -> [BTreeMap<String, String>; 2] {
    cpus_of(&Plan::alone(&format!("{before} \"$RL\" --report-bindings {options} {ALLOWED}")).start().code(0))
}

/// The CPUs of each rank, as the rank has printed them (after its number) and as rlaunch has reported them.
pub(crate) fn cpus_of(done: &Done) -> [BTreeMap<String, String>; 2] {
    let pair = |line: &str| line.split_once(' ').map(|(rank, cpus)| (rank.to_owned(), cpus.to_owned()));
    let kernel = done.out().lines().filter_map(pair).collect();
    let reported = |line: &str| {
        let (rank, rest) = line.strip_prefix("rlaunch: rank ")?.split_once(" on ")?;
        let (_, cpus) = rest.split_once("CPUs ")?;
        Some((rank.to_owned(), cpus.split_once(" (")?.0.to_owned()))
    };
    [kernel, done.err().lines().filter_map(reported).collect()]
}

#[test]
fn reported_cpus_equal_the_cpus_of_the_kernel() {
    if !has_two_cores() {
        return;
    }
    for options in
        ["-n 1", "-n 2", "-n 9", "-n 2 --bind-to none", "-n 2 --bind-to core", "-n 1 -c 1", "-n 2 --bind-to package"]
    {
        let [kernel, reported] = cpus(options, "");
        assert_eq!(kernel, reported, "{options}");
        assert!(!kernel.is_empty(), "{options}");
    }
}

#[test]
fn two_ranks_have_different_cpus_and_one_rank_all() {
    if !has_two_cores() {
        return;
    }
    let own = Plan::shell("grep Cpus_allowed_list /proc/self/status | cut -f2").start().code(0).out().trim().to_owned();
    assert_eq!(cpus("-n 1", "")[0]["0"], own);
    assert_eq!(cpus("-n 2 --bind-to none", "")[0]["1"], own);
    let [kernel, _] = cpus("-n 2 --bind-to core", "");
    assert_ne!(kernel["0"], kernel["1"]);
}

#[test]
fn ranks_of_one_cpu_get_a_warning_with_the_cause() {
    if !has_two_cores() || !place::has("taskset") {
        return;
    }
    let [kernel, reported] = cpus("-n 2", "taskset -c 0");
    assert_eq!((&kernel, kernel["1"].as_str()), (&reported, "0"));
    let done = Plan::alone("taskset -c 0 \"$RL\" -n 2 true").start().code(0);
    done.says("2 ranks on ").says(" share CPU 0 of ").says("try     a look at taskset");
}

#[test]
fn cores_that_cannot_be_had_are_refused_before_any_rank_starts() {
    for (options, says) in [
        (vec!["-n", "1", "-c", "4000"], "1 rank with 4000 cores each does not fit: "),
        (vec!["--bind-to", "rank-list:60000"], "CPU 60000 is offline or does not exist: the host has CPUs 0"),
    ] {
        let done = Case::start(options.into_iter().chain(["echo", "ran"])).code(125);
        assert_eq!(done.out(), "");
        done.says(says);
    }
    if has_two_cores() && place::has("taskset") {
        let done = Plan::shell("taskset -c 0 \"$RL\" --bind-to rank-list:1 echo ran").start().code(125);
        done.says("CPU 1 may not be used: allowed are CPUs 0");
    }
}

#[test]
fn rankfile_names_the_cores_of_each_rank() {
    if !has_two_cores() {
        return;
    }
    let write = |slots: [&str; 2]| {
        format!("printf 'rank 0=localhost slot={}\\nrank 1=localhost slot={}\\n' >$DIR/rf;", slots[0], slots[1])
    };
    let [kernel, reported] = cpus("-n 2 --map-by rankfile:FILE=$DIR/rf", &write(["0:1", "0"]));
    assert_eq!(kernel, reported);
    assert_ne!(kernel["0"], kernel["1"]);
    let done = Plan::shell(&format!("{} \"$RL\" --map-by rankfile:FILE=$DIR/rf echo ran", write(["0", "999"])))
        .start()
        .code(125);
    done.says("there is no core 999: the host has ");
    let done = Case::start(["--map-by", "rankfile:FILE=/no/such/file", "true"]).code(2);
    done.says("error: --map-by takes a file that can be used (no such file or directory), got '/no/such/file'");
    let [kernel, reported] = cpus("-n 2 --map-by pe-list=1", "");
    assert_eq!((&kernel, &kernel["0"]), (&reported, &kernel["1"]));
    let map = Plan::shell("\"$RL\" map --map-by ppr:2:node -H localhost:8 true").start().code(0).out();
    assert!(map.starts_with("2 ranks on 1 host"), "{map}");
}

#[test]
fn threads_are_the_cpus_of_the_rank() {
    let threads = |options: &str| {
        let plan = Plan::shell(&format!("\"$RL\" {options} sh -c 'echo ${{OMP_NUM_THREADS-unset}}'"));
        plan.env("OMP_NUM_THREADS", "").start().code(0).sorted()
    };
    assert_eq!(threads("-n 1 -x OMP_NUM_THREADS=7 -c 1"), ["7"]);
    let plan = Plan::shell("unset OMP_NUM_THREADS; \"$RL\" -n 1 --bind-to hwthread sh -c 'echo $OMP_NUM_THREADS'");
    assert_eq!(plan.start().code(0).sorted(), ["1"]);
}

#[test]
fn map_shows_the_report_of_a_job() {
    let map = Plan::alone("\"$RL\" map --report-bindings -n 2 -H localhost:2 true").start().code(0);
    let job = Plan::alone("\"$RL\" --report-bindings -n 2 -H localhost:2 true").start().code(0);
    let lines = |text: &str, prefix: &str| {
        let of = |line: &str| line.strip_prefix(prefix).filter(|line| line.starts_with("rank ")).map(str::to_owned);
        let mut all: Vec<String> = text.lines().filter_map(of).filter(|line| line.contains("CPUs")).collect();
        all.sort();
        all
    };
    assert_eq!(lines(&map.out(), ""), lines(&job.err(), "rlaunch: "));
    let many =
        Plan::shell("\"$RL\" map --report-bindings -n 2 -H localhost:2 --map-by slot:PE=9999 true").start().code(0);
    assert_eq!(many.out().matches("do not fit").count(), 1, "{}", many.out());
    let map = Plan::shell("\"$RL\" map --report-bindings -H node9 true").start().code(0);
    assert!(map.out().contains("rank 0 on node9: decided there\n"));
    let map =
        Plan::shell("\"$RL\" map --json --bind -H localhost,node9 && \"$RL\" map --json -n 1").start().code(0).out();
    let lines: Vec<serde_json::Value> = map.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bindings = lines[0]["bindings"].as_array().unwrap();
    assert!(bindings[0]["cpus"].is_string() && bindings[0]["bound"].is_boolean(), "{map}");
    assert_eq!(bindings[1], serde_json::json!({ "rank": 1, "bound": null, "cpus": null }));
    assert_eq!(
        (&lines[1]["bindings"], &lines[1]["apps"][0]["argv"]),
        (&serde_json::Value::Null, &serde_json::json!([]))
    );
}

/// Two jobs of one user, started at the same time. Each needs one of the two cores.
#[test]
fn two_jobs_of_one_host_take_different_cores() {
    if !has_two_cores() {
        return;
    }
    // Each job waits for the other.
    let script = r#"
        job() { taskset -c 0,1 "$RL" -n 1 -c 1 sh -c "
            : > '$DIR/$1'; while ! [ -e '$DIR/one' ] || ! [ -e '$DIR/two' ]; do sleep 0.01; done
            grep Cpus_allowed_list /proc/self/status"; }
        for n in 1 2 3 4 5 6 7 8; do
            job one > "$DIR/first" & job two; wait; cat "$DIR/first"; rm "$DIR/one" "$DIR/two"; echo
        done"#;
    if !place::has("taskset") {
        return;
    }
    let done = Plan::alone(script).start().code(0);
    let out = done.out();
    let rounds: Vec<BTreeSet<&str>> = out.split("\n\n").map(|round| round.split('\n').collect()).collect();
    let (last, rounds) = rounds.split_last().unwrap();
    assert_eq!((last.len(), rounds.len()), (1, 8), "{out}");
    for round in rounds {
        assert_eq!(round.len(), 2, "both jobs had the same core: {out}");
    }
}

/// The cores of a job are free when it has ended, and a job without room shares them.
#[test]
fn cores_are_shared_only_where_there_is_no_room() {
    if !has_two_cores() || !place::has("taskset") {
        return;
    }
    let allowed = "grep Cpus_allowed_list /proc/self/status | cut -f2";
    let script = format!(
        r#"taskset -c 0,1 "$RL" -n 1 -c 1 sh -c '
            {allowed}; taskset -c 0,1 env -u RLAUNCH_JOB_ID "$RL" -n 2 --bind-to core -l sh -c "{allowed}"'
        taskset -c 0,1 "$RL" -n 1 -c 1 sh -c '{allowed}'"#
    );
    let done = Plan::alone(&script).start().code(0);
    assert_eq!(done.sorted(), ["0", "0", "0: 0", "1: 1"], "{}", done.err());
}
