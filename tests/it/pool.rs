//! Pools: hosts that stay ready between jobs, on a testbed. Each case takes its pool down: a process of it would be left.

use crate::bed::Bed;
use crate::case::Done;
use crate::place;
use crate::python::{client, with_client};

/// A script on the login host.
pub(crate) fn done(bed: &Bed, user: &str, script: &str) -> Done {
    bed.plan(user, "login", ["sh", "-c", &format!("{TOOLS}\n{script}")]).start().code(0)
}

/// `held FILE`: waits for a file of a rank. `pid`: the pool's process.
const TOOLS: &str = "held() { until [ -e \"$1\" ]; do sleep 0.05; done; }\n\
    pid() { \"$RL\" pool status p | sed -n 's/^p: .*, pid \\([0-9]*\\), up .*/\\1/p'; }\n\
    expect() { [ \"$1\" = \"$2\" ] || { echo \"code $1, not $2: $3\"; exit 90; }; }";

#[test]
fn jobs_run_one_after_the_other_and_nothing_is_left_of_the_pool() {
    let Some(bed) = Bed::up(3) else { return };
    let script = "\"$RL\" pool up p -H node[0-2]:2; expect $? 0 up\n\
        \"$RL\" pool up p -H node0; expect $? 125 second\n\
        i=0; while [ $i -lt 10 ]; do \"$RL\" --pool p -n 4 sh -c 'echo $(hostname) $RANK'; expect $? 0 job; i=$((i+1)); done\n\
        \"$RL\" --pool p sh -c 'echo all $(hostname) $RANK'; expect $? 0 all\n\
        until \"$RL\" pool status p | grep '(3 free)'; do sleep 0.05; done; \"$RL\" --pool q true; expect $? 125 none\n\
        \"$RL\" pool drain p node2; \"$RL\" --pool p -n 5 true; until \"$RL\" pool status | grep '(2 free)'; do sleep 0.05; done\n\
        \"$RL\" pool down p; expect $? 0 down; \"$RL\" pool status\n\
        ls -d /tmp/rlaunch-$(id -u) 2>/dev/null; expect $? 2 directory";
    for user in ["root", "tester"] {
        let done = done(&bed, user, script);
        let out = done.out();
        let of_four = |rank: u32| out.lines().filter(|line| *line == format!("node{} {rank}", rank / 2)).count();
        assert_eq!((0..4).map(of_four).collect::<Vec<_>>(), [10; 4], "{out}\n{}", done.err());
        assert_eq!(out.lines().filter(|line| line.starts_with("all node")).count(), 6, "{out}");
        assert!(out.contains("p: 3 hosts (3 free)") && out.contains("p: 2 hosts (2 free)"), "{out}");
        assert!(out.contains("no pool is up"), "{out}");
        done.says("the pool p is up with 3 hosts");
        done.says("error: the pool p is up already: pid ");
        done.says("error: there is no pool q in /tmp/rlaunch-");
        done.says("; these are up: p");
    }
    bed.down();
}

#[test]
fn busy_pool_names_its_job_and_jobs_wait_or_evict() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "\"$RL\" pool up p -H node[0-1]; expect $? 0 up\n\
        \"$RL\" --pool p sh -c ': >held$RANK; while ! [ -e go ]; do sleep 0.05; done' & FIRST=$!\n\
        held held0; held held1; \"$RL\" --pool p -n 1 true; expect $? 75 busy\n\
        \"$RL\" map --pool p -n 1 --evict --wait true; expect $? 75 map\n\
        \"$RL\" pool remove p node0; expect $? 125 remove\n\
        \"$RL\" --pool p -n 1 --wait=1s true; expect $? 75 waited\n\
        \"$RL\" --pool p --wait echo waited & NEXT=$!\n\
        until \"$RL\" pool status p | grep -q '1 job waiting'; do sleep 0.05; done; : >go\n\
        wait $FIRST; expect $? 0 first; wait $NEXT; expect $? 0 next\n\
        \"$RL\" --pool p --grace 1s sh -c 'trap \"\" TERM; : >stay$RANK; while :; do sleep 0.05; done' & OLD=$!\n\
        held stay0; held stay1; \"$RL\" --pool p --evict echo evicted; expect $? 0 evict\n\
        wait $OLD; expect $? 143 evicted\n\
        \"$RL\" pool up i -H node0; expect $? 125 taken; \"$RL\" pool down p; expect $? 0 down\n\
        \"$RL\" pool up i -H node0 --idle 1s; expect $? 0 idle\n\
        until \"$RL\" pool status | grep -q 'no pool is up'; do sleep 0.05; done";
    let done = done(&bed, "root", script);
    assert_eq!(done.sorted(), ["evicted", "evicted", "waited", "waited"], "{}", done.err());
    done.says("error: the pool p is busy: job ");
    done.says("error: the pool p keeps node0: a job has it");
    done.says("error: node0 is in the pool p");
    bed.down();
}

/// A job of another build runs beside one of ours: each has its own agents.
#[test]
fn jobs_of_two_builds_run_on_one_pool_and_a_detached_job_leaves_its_output() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "cp \"$RL\" other; printf x >>other\n\
        \"$RL\" pool up p -H node[0-1] --events log; expect $? 0 up\n\
        \"$RL\" --pool p -n 1 sh -c ': >held; while ! [ -e go ]; do sleep 0.05; done; echo first build' & FIRST=$!\n\
        held held; ./other --pool p -n 1 echo other build; expect $? 0 other; : >go; wait $FIRST; expect $? 0 first\n\
        ID=$(\"$RL\" pool exec p --wait --detach sh -c 'echo out of $(hostname); echo err >&2; while ! [ -e end ]; do sleep 0.05; done')\n\
        expect $? 0 detach; until grep -qs 'node1' rlaunch-$ID/out; do sleep 0.05; done\n\
        \"$RL\" pool status p | grep -q \"job $ID\"; expect $? 0 status; : >end\n\
        until \"$RL\" pool status p | grep '(2 free)'; do sleep 0.05; done; sort rlaunch-$ID/out rlaunch-$ID/err; ! grep fatal rlaunch-$ID/log; expect $? 0 log\n\
        grep -c '\"ev\":\"job.end\"' rlaunch-$ID/events; \"$RL\" pool exec q --detach true; expect $? 125 none\n\
        \"$RL\" pool down p; expect $? 0 down; echo; sed 's/.*\"ev\":\"\\([a-z.]*\\)\".*/\\1/' log | sort | uniq -c | tr -d '\\n '";
    let done = done(&bed, "root", script);
    let out = done.out();
    assert!(out.ends_with("\n4host.empty2host.left2host.up3job.began3job.ended1pool.down1pool.up"), "{out}");
    assert!(out.contains("first build\n") && out.contains("other build\n"), "{out}\n{}", done.err());
    assert!(out.contains("0: err\n0: out of node0\n1: err\n1: out of node1\n1\n"), "{out}\n{}", done.err());
    done.says("rlaunch: output of job ").says("error: there is no pool q");
    bed.down();
}

/// SIGKILL to a part of a pool, or of a job on it, at any moment, again and again; several pools side by side.
#[test]
fn storm_of_kills_leaves_nothing() {
    let (lanes, kills, jobs) = if place::full() { (4, 50, 13) } else { (1, 8, 5) };
    let threads: Vec<_> = (0..lanes)
        .map(|lane| std::thread::spawn(move || storm(kills, jobs, place::seed().wrapping_add(lane))))
        .collect();
    let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
    crate::census::say_kills("pools");
    assert_eq!(failed, 0, "lanes failed; RLAUNCH_TEST_SEED={}", place::seed());
}

fn storm(kills: u32, jobs: u32, seed: u64) {
    let Some(bed) = Bed::up(2) else { return };
    let script = format!("exec /usr/bin/python3 storm.py {kills} {jobs} {seed}");
    let plan = bed.plan("root", "login", ["sh", "-c", &script]);
    std::fs::copy(place::root().join("tests/it/storm.py"), plan.scratch().path("storm.py")).unwrap();
    let done = plan.start().code(0);
    assert!(done.out().ends_with(&format!("{kills} kills, {jobs} jobs: nothing is left\n")), "{}", done.out());
    crate::census::count_kills(kills);
    bed.down();
}

#[test]
fn killed_pool_job_and_agent_leave_nothing() {
    let Some(bed) = Bed::up(2) else { return };
    let job = "--lease 4s --contain auto sh -c ': >on$RANK; exec sleep 600'";
    let script = format!(
        "\"$RL\" pool up p -H node[0-1]; expect $? 0 up\n\
        \"$RL\" --pool p {job} & JOB=$!; held on0; held on1; kill -9 $JOB; wait $JOB\n\
        \"$RL\" --pool p --wait=30s true; expect $? 0 after-job; rm on0 on1\n\
        for PART in rlaunch-agent rlaunch-guard; do\n\
          \"$RL\" --pool p {job} & JOB=$!; held on0; held on1; rm on0 on1\n\
          ssh node0 \"kill -9 \\$(pgrep -x $PART)\"; expect $? 0 kill; wait $JOB; expect $? 125 $PART\n\
          \"$RL\" --pool p --wait=60s true; expect $? 0 after-$PART\n\
        done\n\
        \"$RL\" --pool p {job} & JOB=$!; held on0; held on1\n\
        kill -9 $(pid); wait $JOB; expect $? 125 job-of-killed-pool\n\
        \"$RL\" pool status; \"$RL\" pool up p -H node[0-1]; expect $? 0 up-again\n\
        \"$RL\" --pool p --wait=30s true; expect $? 0 again; \"$RL\" pool down p; expect $? 0 down"
    );
    let done = done(&bed, "root", &script);
    assert!(done.out().contains("no pool is up"), "{}", done.out());
    done.says("rlaunch: the pool p is gone");
    bed.down();
}

/// Parts of a killed job stay on a host, because they are stopped. The kernel wakes the binary there at their end: nothing looks for it.
#[test]
fn end_of_a_job_is_awaited_by_the_binary_that_the_job_has_left() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0; expect $? 0 up\n\
        \"$RL\" --pool p sh -c ': >on; exec sleep 600' & JOB=$!; held on\n\
        ssh node0 'kill -STOP $(pgrep -x rlaunch-guard) $(pgrep -x rlaunch-agent)'; kill -9 $JOB\n\
        until ssh node0 \"pgrep -f 'agent en[d] '\"; do sleep 0.05; done; ! ssh node0 pgrep -x grep; expect $? 0 grep\n\
        \"$RL\" pool status p | grep -q 'node0 .*emptying'; expect $? 0 emptying\n\
        ssh node0 'kill -CONT $(pgrep -x rlaunch-guard) $(pgrep -x rlaunch-agent)'\n\
        \"$RL\" --pool p --wait=30s echo free; expect $? 0 free; \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    assert!(done.out().ends_with("free\n"), "{}{}", done.out(), done.err());
    bed.down();
}

#[test]
fn lost_host_is_left_out_and_comes_back() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "\"$RL\" pool up p -H node0,node1,nowhere --connect-timeout 5s; expect $? 0 up\n\
        \"$RL\" --pool p hostname; expect $? 0 job\n\
        \"$RL\" --pool p -n 3 true 2>said; expect $? 0 lacking; grep -c 'leaves these hosts out, which it cannot use now: nowhere' said\n\
        \"$RL\" --pool p -n 3 --nnodes 3 true; expect $? 75 few\n\
        kill $(pgrep -f '^ssh -T -N .*-- node1$'); expect $? 0 kill\n\
        until grep -q 'node1: lost' /tmp/rlaunch-0/pool-p/log; do sleep 0.05; done\n\
        until \"$RL\" pool status p | grep -q 'node1 .*free'; do sleep 0.05; done\n\
        \"$RL\" --pool p --nnodes 2 -n 2 hostname; expect $? 0 back\n\
        \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    assert_eq!(done.sorted(), ["1", "node0", "node0", "node1", "node1"], "{}", done.err());
    done.says("nowhere: lost: ");
    done.says("the pool p leaves these hosts out, which it cannot use now: nowhere");
    bed.down();
}

#[test]
fn another_user_gets_nothing_of_a_pool() {
    let Some(bed) = Bed::up(1) else { return };
    let connect = "import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"/tmp/rlaunch-0/pool-p/ctl\")";
    let script = format!(
        "\"$RL\" pool up p -H node0; expect $? 0 up\n\
         setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c '{connect}' 2>refused; expect $? 1 connect\n\
         grep -c PermissionError refused\n\
         other() {{ setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"; }}; mkdir -m 777 /tmp/rlaunch-65534\n\
         other \"$RL\" pool status p; expect $? 125 other; other \"$RL\" pool status 2>said; expect $? 125 all; grep -c 'belongs to root' said\n\
         other \"$RL\" pool up q -H node0 2>said; expect $? 125 up; grep -c 'XDG_RUNTIME_DIR=' said; other \"$RL\" --pool p true 2>said; expect $? 125 job; grep -c 'belongs to root' said\n\
         rmdir /tmp/rlaunch-65534; \"$RL\" pool down p; expect $? 0 down"
    );
    let done = done(&bed, "root", &script);
    assert_eq!(done.out(), "1\n1\n1\n1\n", "{}", done.err());
    done.says("error: the pool p is not used: /tmp/rlaunch-65534 belongs to root (uid 0), and not to you\n  try     ");
    bed.down();
}

#[test]
fn process_with_fewer_rights_orders_nothing_of_a_pool() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0; expect $? 0 up\n\
        setpriv --no-new-privs \"$RL\" --pool p true; expect $? 125 nnp; setpriv --inh-caps -all --bounding-set -net_raw \"$RL\" pool exec p true; expect $? 125 caps\n\
        for order in 'down p --now' 'drain p node0' 'remove p node0' 'add p -H node1'; do\n\
        setpriv --no-new-privs \"$RL\" pool $order; expect $? 125 \"$order\"; done\n\
        setpriv --no-new-privs \"$RL\" pool status p; expect $? 0 status; \"$RL\" --pool p true; expect $? 0 whole\n\
        \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    done.says(
        "the pool p takes no order of a process with other rights: its NoNewPrivs is 1, and that of the job is 0",
    );
    done.says("its CapBnd is ");
    bed.down();
}

#[test]
fn command_on_each_host_has_its_results_in_slot_order() {
    let Some(bed) = Bed::up(3) else { return };
    let script = "\"$RL\" pool up p -H node2,node0,node1:4; expect $? 0 up\n\
        \"$RL\" pool exec p hostname; expect $? 0 exec\n\
        \"$RL\" pool exec p sh -c 'echo out $RANK; echo err $RANK >&2; [ $RANK = 0 ] || exit 3'; expect $? 3 failed\n\
        \"$RL\" pool exec p --json sh -c 'printf x; [ $RANK = 0 ] || exit 3'; expect $? 3 json\n\
        \"$RL\" pool exec q true; expect $? 125 none; \"$RL\" pool exec p; expect $? 2 no-command\n\
        \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    let out = done.out();
    assert!(out.starts_with("0: node2\n1: node0\n2: node1\n0: out 0\n1: out 1\n2: out 2\n{"), "{out}");
    let json: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let results = json["results"].as_array().unwrap();
    let shown = |name: &str| results.iter().map(|result| result[name].to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!((shown("host"), shown("code")), ("\"node2\" \"node0\" \"node1\"".into(), "0 3 3".into()));
    assert_eq!(results[2]["output"], "x\n");
    done.says("0: err 0\n1: err 1\n2: err 2\n");
    done.says("node0: exit 3\nnode1: exit 3\n");
    bed.down();
}

#[test]
fn function_of_python_runs_on_each_host_and_its_result_comes_back() {
    let Some(client) = client() else { return };
    let Some(bed) = Bed::up(2) else { return };
    let script = "printf 'node[0-1] slice=a id=0 devices=4\\n' >hosts; \"$RL\" pool up p -f hosts; expect $? 0 up\n\
        PATH=${RL%/*}:$PATH /usr/bin/python3 \"$SCRIPT\"; expect $? 0 python; \"$RL\" pool down p; expect $? 0 down";
    let plan = bed.plan("root", "login", ["sh", "-c", &format!("{TOOLS}\n{script}")]);
    let done = with_client(plan, &client).env("SCRIPT", place::root().join("tests/groups/pool.py")).start().code(0);
    let shown = "node0: pair for me\nnode1: pair for me\n\
        ('node0', True, True, {'left': 'node0', 'right': 2})\n('node1', True, True, {'left': 'node1', 'right': 2})\n\
        {'a': {'node0': '0', 'node1': '1'}}\n\
        {'node0': ('', False), 'node1': ('', False)}\n\
        node1: KeyError: 'no such key' {'node0': 5} KeyError\n\
        node1: the function returned no result: its process exited with code 3 {'node0': 4} Error('t\n\
        node1: the function returned no result: its process was killed by SIGKILL {'node0': 4} Error('t\n";
    assert!(done.out().starts_with(shown), "{}{}", done.out(), done.err());
    let refused: Vec<String> = done.out().lines().skip(9).map(str::to_owned).collect();
    assert!(refused[0].starts_with("Refused error: there is no pool q"), "{refused:?}");
    bed.down();
}

/// A program that spawns others has the hosts of its job. With `--lead` these are all hosts of the pool.
#[test]
fn program_that_leads_spawns_on_all_hosts_of_the_pool_and_a_note_names_the_option_to_others() {
    let Some(client) = client() else { return };
    let Some(bed) = Bed::up(2) else { return };
    let spawn = "import rlaunch; print(*rlaunch.spawn([{\"argv\": [\"sleep\", \"0.5\"], \"ranks\": 3}]).hosts)";
    let script = format!(
        "\"$RL\" pool up p -H node[0-1]:2; expect $? 0 up\n\
        \"$RL\" --pool p -n 1 --lead /usr/bin/python3 -c '{spawn}'; expect $? 0 lead\n\
        \"$RL\" --pool p --wait -n 1 /usr/bin/python3 -c '{spawn}'; expect $? 0 alone\n\
        \"$RL\" pool down p; expect $? 0 down"
    );
    let plan = bed.plan("root", "login", ["sh", "-c", &format!("{TOOLS}\n{script}")]);
    let done = with_client(plan, &client).start().code(0);
    assert_eq!(done.out(), "node0 node1 node1\nnode0 node0 node0\n", "{}", done.err());
    let note =
        "has more ranks than there are free slots: ranks share processors\n  try     --lead, with which all hosts";
    assert_eq!(done.err().matches(note).count(), 1, "{}", done.err());
    bed.down();
}

#[test]
fn job_takes_whole_slices_that_are_free() {
    let Some(bed) = Bed::up(4) else { return };
    let script = "printf 'node[0-1] slice=a id=0 devices=4\\nnode[2-3] slice=b id=0 devices=4\\n' >hosts\n\
        \"$RL\" pool up p -f hosts; expect $? 0 up\n\
        JOB='echo \"$WORLD_SIZE $TPU_NAME $RANK\"'\n\
        \"$RL\" --pool p --slices 1,2 sh -c \"$JOB\"; expect $? 0 both\n\
        \"$RL\" --pool p --slices 1 sh -c ': >held$RANK; while ! [ -e go ]; do sleep 0.05; done' & FIRST=$!\n\
        held held0; held held1; \"$RL\" --pool p --slices 1,2 sh -c \"$JOB\"; expect $? 0 one\n\
        \"$RL\" --pool p --slices 2 true; expect $? 75 busy; : >go; wait $FIRST; expect $? 0 first\n\
        \"$RL\" pool exec --wait p --by-slice hostname; expect $? 0 exec\n\
        \"$RL\" pool down p; expect $? 0 down; \"$RL\" -l -f hosts hostname | sort";
    let done = done(&bed, "root", script);
    let lines: Vec<String> = done.out().lines().map(str::to_owned).collect();
    let mut jobs = lines[..6].to_vec();
    jobs[..4].sort();
    jobs[4..].sort();
    assert_eq!(jobs, ["4 a 0", "4 a 1", "4 b 2", "4 b 3", "2 b 0", "2 b 1"], "{}", done.err());
    let all = ["slice a", "0: node0", "1: node1", "slice b", "2: node2", "3: node3"];
    assert_eq!(lines[6..12], all, "{}", done.err());
    let labelled: Vec<&String> = lines[6..12].iter().filter(|line| !line.starts_with("slice ")).collect();
    assert_eq!(labelled, lines[12..].iter().collect::<Vec<_>>(), "the lines of rlaunch -l");
    bed.down();
}

#[test]
fn slices_are_shown_and_leave_as_a_whole() {
    let Some(bed) = Bed::up(6) else { return };
    let script = "printf 'node[0-1] slice=a id=0 devices=4\\nnode[2-3] slice=b id=0 devices=4\\nnode[4-5] slice=node0 id=0 devices=4\\n' >hosts\n\
        \"$RL\" pool up p -f hosts --slices 4; expect $? 2 too-many\n\
        sed 's/node.2-3./node2/' hosts >uneven; \"$RL\" pool up p -f uneven; expect $? 2 uneven\n\
        \"$RL\" pool up p -f hosts --slices 1,2; expect $? 0 up\n\
        \"$RL\" --pool p sh -c 'echo job $RANK of $WORLD_SIZE, slice $MEGASCALE_SLICE_ID $TPU_NAME'; expect $? 0 job\n\
        until \"$RL\" pool status p | grep -q '3 slices (3 free)'; do sleep 0.05; done\n\
        \"$RL\" --pool p --slices 4 true; expect $? 2 four; \"$RL\" --pool p --wait --slices 3 --spare-slices 1 true; expect $? 2 spare\n\
        \"$RL\" --pool p --slices 2 --spare-slices 1 sh -c ': >held$RANK; while ! [ -e go ]; do sleep 0.05; done' & JOB=$!\n\
        held held3; \"$RL\" pool remove p a; expect $? 125 remove; \"$RL\" pool drain p z; expect $? 125 unknown\n\
        \"$RL\" pool drain p 1; \"$RL\" pool status p --json; : >go; wait $JOB; expect $? 0 held\n\
        until \"$RL\" pool status p | grep -q '2 slices (2 free)'; do sleep 0.05; done; \"$RL\" pool drain p b; expect $? 125 again\n\
        \"$RL\" pool remove p node0; expect $? 0 host; until \"$RL\" pool status p | grep -q '(3 free)'; do sleep 0.05; done\n\
        \"$RL\" pool status p; \"$RL\" pool remove p a 2; expect $? 0 slices\n\
        until \"$RL\" pool status p | grep '^p: 0 hosts'; do sleep 0.05; done; \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    let out = done.out();
    let mut jobs: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("job ")).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, ["0 of 4, slice 0 a", "1 of 4, slice 0 a", "2 of 4, slice 1 b", "3 of 4, slice 1 b"], "{out}");
    let json: serde_json::Value =
        serde_json::from_str(out.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
    let second = serde_json::json!({ "slot": 1, "slice": "b", "state": "held", "hosts": ["node2", "node3"] });
    assert_eq!(json["p"]["slices"][1], second, "{out}");
    let host = &json["p"]["hosts"][2];
    assert_eq!((&host["slice"], &host["note"]), (&"b".into(), &"leaves when it is empty".into()), "{out}");
    let lines: Vec<String> = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let shown = ["slice a (0) incomplete", "node1 free", "slice node0 (2) free", "node4 free", "node5 free"];
    assert!(lines.windows(5).any(|window| window == shown), "{out}");
    done.says("--slices: 4 slices are wanted, and the hosts form 3");
    done.says("-f: slice b has 1 host, and slice a has 2");
    done.says("rlaunch: the pool p is up with 6 hosts of 3 slices");
    done.says("error: the pool p has 3 slices, and 4 are wanted");
    done.says("error: the pool p keeps a: a job has it");
    done.says("error: the pool p has no host or slice z; its hosts are node[0-5], its slices a,b,node0");
    bed.down();
}

#[test]
fn host_with_a_warning_gets_no_new_job() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "\"$RL\" pool up p -H node[0-1]; expect $? 0 up\n\
        \"$RL\" --pool p --on-warning note --preempt-probe 'test $(hostname) = node1' \\\n\
          sh -c ': >held$RANK; while ! [ -e go ]; do sleep 0.05; done' & JOB=$!; held held0; held held1\n\
        until grep -q 'node1: is about to be taken away' /tmp/rlaunch-0/pool-p/log; do sleep 0.05; done\n\
        : >go; wait $JOB; expect $? 0 job; \"$RL\" --pool p hostname; expect $? 0 next\n\
        until \"$RL\" pool status p | grep -q 'node1 .*warned'; do sleep 0.05; done\n\
        \"$RL\" --pool p --nnodes 2 -n 2 true; expect $? 75 few; \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    assert_eq!(done.out(), "node0\n", "{}", done.err());
    done.says("the pool p leaves these hosts out, which it cannot use now: node1");
    bed.down();
}
