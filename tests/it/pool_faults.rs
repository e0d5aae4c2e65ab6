//! Pools that hang, lose their directory or are killed, and jobs that do not end. Each case takes its pools down.

use crate::bed::Bed;
use crate::pool::done;

/// Stops the main thread of a process by ptrace(2), until the process is killed. SIGCONT does not wake it.
const KEEP_STOPPED: &str = "keep_stopped() { /usr/bin/python3 -c 'import ctypes, os, sys\n\
pid, trace, seize, interrupt, wall = int(sys.argv[1]), ctypes.CDLL(None).ptrace, 0x4206, 0x4207, 0x40000000\n\
assert trace(seize, pid, None, None) == 0 and trace(interrupt, pid, None, None) == 0\nos.waitpid(pid, wall)\nopen(\"stopped\", \"w\").close()\n\
while not os.WIFSIGNALED(os.waitpid(pid, wall)[1]): pass' $1 & LOOP=$!; held stopped; rm stopped; }\n";

#[test]
fn stopped_pool_is_named_with_its_process_and_ended_by_force() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "\"$RL\" pool up p -H node0; expect $? 0 up; \"$RL\" pool up q -H node1; expect $? 0 up\n\
        P=$(pid); kill -STOP $P; echo pid $P\n\
        \"$RL\" pool status; expect $? 125 status\n\
        \"$RL\" --pool p true; expect $? 125 job\n\
        \"$RL\" pool down p; expect $? 125 down\n\
        kill -CONT $P; \"$RL\" --pool p true; expect $? 0 continued; kill -STOP $P\n\
        \"$RL\" pool down p --now; expect $? 0 now\n\
        until ! pgrep -f '^ssh .*-- node0$'; do sleep 0.05; done\n\
        ls -d /tmp/rlaunch-0/pool-p 2>/dev/null; expect $? 2 directory\n\
        \"$RL\" pool status; expect $? 0 status; \"$RL\" pool down q; expect $? 0 down";
    let done = done(&bed, "root", script);
    let pid = done.out().lines().find_map(|line| line.strip_prefix("pid ")).unwrap().to_owned();
    let states = done.out().lines().filter(|line| line.starts_with("q: 1 host (1 free)")).count();
    assert_eq!(states, 2, "{}\n{}", done.out(), done.err());
    done.says(&format!(
        "error: the pool p does not answer: no word of process {pid} for 5 s\n  try     kill -CONT {pid}"
    ));
    done.says("rlaunch pool down p --now");
    done.says(&format!("rlaunch: the pool p did not answer: its process {pid} was killed"));
    bed.down();
}

#[test]
fn stopped_launcher_is_woken_or_killed_on_eviction() {
    let Some(bed) = Bed::up(2) else { return };
    let job = "\"$RL\" --pool p --lease 2s --grace 1s sh -c ': >on$RANK; exec sleep 600' & OLD=$!; held on0; held on1; rm on0 on1";
    let script = format!(
        "{KEEP_STOPPED}\"$RL\" pool up p -H node[0-1] --events log; expect $? 0 up\n\
        {job}; kill -STOP $OLD; \"$RL\" --pool p --evict echo woken; expect $? 0 evict; wait $OLD; expect $? 143 woken\n\
        {job}; keep_stopped $OLD; \"$RL\" --pool p --evict echo killed; expect $? 0 evict-again\n\
        wait $OLD; expect $? 137 killed; wait $LOOP\n\
        {job}; keep_stopped $OLD; \"$RL\" pool down p; expect $? 0 down; wait $OLD; expect $? 137 down-killed; wait $LOOP\n\
        grep -c '\"ev\":\"job.killed\"' log; ! pgrep -f '^ssh '; expect $? 0 ssh"
    );
    let done = done(&bed, "root", &script);
    assert_eq!(done.sorted(), ["2", "killed", "killed", "woken", "woken"], "{}", done.err());
    bed.down();
}

#[test]
fn detached_job_is_named_when_started_or_waiting() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0; expect $? 0 up\n\
        \"$RL\" --pool p sh -c ': >on; while ! [ -e go ]; do sleep 0.05; done' & JOB=$!; held on\n\
        \"$RL\" pool exec p --detach true >id; expect $? 75 busy; [ -s id ] && exit 91; ls -d rlaunch-* 2>/dev/null; expect $? 2 directory\n\
        \"$RL\" pool exec p --wait --detach echo waited >id; expect $? 0 waits; ID=$(cat id); [ -d rlaunch-$ID ] || exit 92\n\
        \"$RL\" pool status p | grep -q '1 job waiting'; expect $? 0 queue\n\
        : >go; wait $JOB; expect $? 0 job; until grep -qs waited rlaunch-$ID/out; do sleep 0.05; done\n\
        \"$RL\" pool exec p --wait --detach echo granted >id; expect $? 0 granted; ID=$(cat id)\n\
        until grep -qs granted rlaunch-$ID/out; do sleep 0.05; done; \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    done.says("error: the pool p is busy: job ");
    done.says("rlaunch: waiting for the pool p: job ");
    bed.down();
}

#[test]
fn pool_ends_when_its_directory_is_removed_or_renamed() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0 --events log; expect $? 0 up\n\
        \"$RL\" --pool p --grace 1s sh -c ': >on; exec sleep 600' & JOB=$!; held on; P=$(pid)\n\
        rm -r /tmp/rlaunch-0; wait $JOB; expect $? 143 job; until ! kill -0 $P 2>/dev/null; do sleep 0.05; done\n\
        \"$RL\" pool up p -H node0 --events log; expect $? 0 again; P=$(pid); mv /tmp/rlaunch-0/pool-p /tmp/moved\n\
        \"$RL\" pool up p -H node0; expect $? 0 third; until ! kill -0 $P 2>/dev/null; do sleep 0.05; done\n\
        \"$RL\" --pool p echo third; expect $? 0 third-job; grep -c 'no command reaches the pool, and it ends' /tmp/moved/log\n\
        rm -r /tmp/moved; P=$(pid); rm /tmp/rlaunch-0/pool-p/lock; until grep -qsx \"$P .*\" /tmp/rlaunch-0/pool-p/lock; do sleep 0.05; done\n\
        \"$RL\" pool up p -H node0; expect $? 125 taken; \"$RL\" pool down p; expect $? 0 down\n\
        grep -c '\"ev\":\"pool.unreachable\"' log; grep -c '\"ev\":\"pool.down\"' log; ! pgrep -f '^ssh '; expect $? 0 ssh";
    let done = done(&bed, "root", script);
    assert_eq!(done.out(), "third\n1\n2\n2\n", "{}", done.err());
    bed.down();
}

#[test]
fn killed_pool_is_the_cause_of_its_jobs_and_leaves_no_file() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0; expect $? 0 up\n\
        \"$RL\" --pool p --lease 4s sh -c ': >on; exec sleep 600' 2>said & JOB=$!; held on; kill -9 $(pid)\n\
        wait $JOB; expect $? 125 job; cat said\n\
        \"$RL\" pool status; ls -d /tmp/rlaunch-0 2>/dev/null; expect $? 2 status-removes\n\
        \"$RL\" pool up p -H node0; expect $? 0 up; kill -9 $(pid); until ! pgrep -f '^ssh '; do sleep 0.05; done\n\
        \"$RL\" --pool p true; expect $? 125 job; ls -d /tmp/rlaunch-0 2>/dev/null; expect $? 2 job-removes";
    let done = done(&bed, "root", script);
    // The connection of the pool and that to the host's agent close at once: either is noticed first.
    assert!(done.out().contains("rlaunch: the pool p is gone, and its connections"), "{}{}", done.out(), done.err());
    assert!(done.out().contains("\nrlaunch: the pool p is gone: lost contact with node0\n"), "{}", done.out());
    bed.down();
}

#[test]
fn waiting_job_names_its_lost_host() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0,nowhere --connect-timeout 5s; expect $? 0 up\n\
        \"$RL\" --pool p --nnodes 2 -n 2 --wait=1s true; expect $? 75 lost\n\
        \"$RL\" --pool p --nnodes 3 -n 3 --wait true; expect $? 75 too-many\n\
        \"$RL\" --pool p -n 1 sh -c ': >on; while ! [ -e go ]; do sleep 0.05; done' & JOB=$!; held on; \"$RL\" pool drain p node0\n\
        \"$RL\" --pool p --nnodes 2 -n 2 --wait true; expect $? 75 drained; : >go; wait $JOB; \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    done.says("rlaunch: waiting for the pool p: it can use 1 of its 2 hosts; nowhere is lost (");
    assert_eq!(done.err().matches("waiting for the pool p").count(), 1, "{}", done.err());
    bed.down();
}

/// A pool whose descriptors were used up took a whole processor, and wrote a line to its log each second.
#[test]
fn pool_without_a_descriptor_is_idle_and_serves_again() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "(ulimit -n 40; exec \"$RL\" pool up p -H node0); expect $? 0 up; P=$(pid)\n\
        /usr/bin/python3 -c 'import socket, sys, time\n\
ticks = lambda: sum(map(int, open(f\"/proc/{sys.argv[1]}/stat\").read().rsplit(\")\", 1)[1].split()[11:13]))\n\
all = [socket.socket(socket.AF_UNIX) for _ in range(60)]\n\
for s in all: s.connect(\"/tmp/rlaunch-0/pool-p/ctl\")\n\
logged = lambda: open(\"/tmp/rlaunch-0/pool-p/log\").read().count(\"no connection can be accepted: too many open files\")\n\
while not logged(): time.sleep(0.05)\n\
before = ticks(); time.sleep(2.5); print(\"idle\" if ticks() - before < 10 else \"busy\", logged())' $P\n\
        \"$RL\" --pool p echo served; expect $? 0 served; \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    assert_eq!(done.out(), "idle 1\nserved\n", "{}", done.err());
    bed.down();
}

/// The answers to a client that asks again and again, and reads none, took memory without a limit.
#[test]
fn client_that_reads_no_answers_is_dropped() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0; expect $? 0 up\n\
        /usr/bin/python3 -c 'import socket\n\
s = socket.socket(socket.AF_UNIX); s.connect(\"/tmp/rlaunch-0/pool-p/ctl\")\n\
s.sendall(bytes([3, 0, 0, 0, 0, 1, 2]))\n\
try:\n for _ in range(200): s.sendall(bytes([1, 0, 0, 0, 2]) * 10000)\n\
except OSError: print(\"dropped\")'\n\
        \"$RL\" --pool p echo served; expect $? 0 served; \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    assert_eq!(done.out(), "dropped\nserved\n", "{}", done.err());
    bed.down();
}

/// A signal left the directory of the output, and none of its lines were printed.
#[test]
fn command_that_a_signal_ends_leaves_no_file_and_its_output_is_printed() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0; expect $? 0 up; mkdir tmp; export TMPDIR=$PWD/tmp\n\
        for S in TERM INT HUP QUIT KILL; do\n\
        env --default-signal=INT,QUIT \"$RL\" pool exec p sh -c 'echo from $RANK; : >on; exec sleep 600' & JOB=$!; held on; rm on\n\
        kill -$S $JOB; wait $JOB; echo $S $? left $(ls tmp | wc -l); done; \"$RL\" pool down p; expect $? 0 down";
    let done = done(&bed, "root", script);
    let expected = "0: from 0\nTERM 143 left 0\n0: from 0\nINT 130 left 0\n0: from 0\nHUP 129 left 0\n0: from 0\nQUIT 131 left 0\n\
                    KILL 137 left 0\n";
    assert_eq!(done.out(), expected, "{}", done.err());
    bed.down();
}

#[test]
fn pool_of_another_directory_is_named() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "mkdir -m 700 /tmp/own; export XDG_RUNTIME_DIR=/tmp/own; \"$RL\" pool status; expect $? 0 none\n\
        env -u XDG_RUNTIME_DIR \"$RL\" pool up p -H node0; expect $? 0 up\n\
        \"$RL\" --pool p true; expect $? 125 elsewhere; \"$RL\" pool status; expect $? 0 status\n\
        unset XDG_RUNTIME_DIR; \"$RL\" pool down p; expect $? 0 down; rmdir /tmp/own";
    let done = done(&bed, "root", script);
    assert!(done.out().starts_with("no pool is up in /tmp/own/rlaunch\n"), "{}", done.out());
    assert!(done.out().contains("these are up in /tmp/rlaunch-0: p"), "{}", done.out());
    done.says(
        "error: there is no pool p in /tmp/own/rlaunch; it is up in /tmp/rlaunch-0\n  try     env -u XDG_RUNTIME_DIR",
    );
    bed.down();
}

/// A stopped guardian keeps the name of its job: the host is never seen empty. A stopped agent wakes no guardian.
#[test]
fn pool_with_a_stopped_guardian_ends_and_names_the_host() {
    let Some(bed) = Bed::up(2) else { return };
    let script = "\"$RL\" pool up p -H node[0-1] --events log; expect $? 0 up\n\
        \"$RL\" --pool p --lease 2s --grace 1s sh -c ': >on$RANK; exec sleep 600' & JOB=$!; held on0; held on1\n\
        ssh node0 'kill -STOP $(pgrep -x rlaunch-guard) $(pgrep -x rlaunch-agent)'\n\
        \"$RL\" pool down p 2>said; expect $? 125 down; cat said; wait $JOB; echo job $?; \"$RL\" pool status\n\
        ssh node0 'kill -CONT $(pgrep -x rlaunch-guard) $(pgrep -x rlaunch-agent)'; while ssh node0 pgrep rlaunch; do sleep 0.05; done; ls -d /tmp/rlaunch-0 2>/dev/null; expect $? 2 directory\n\
        sed -n 's/.*\"host.left\",\"host\":\"\\(node.\\)\",\"job\":\\(....\\).*/\\1 \\2/p' log";
    let out = done(&bed, "root", script).out().to_owned();
    assert!(out.starts_with("rlaunch: waiting for the pool p: "), "{out}");
    assert!(out.contains("\nerror: the pool p has ended, and processes may be left on node0 (job "), "{out}");
    assert!(out.contains(")\n  try     ssh node0 pgrep -l rlaunch\n") && out.contains("no pool is up"), "{out}");
    assert!(out.contains("node1 null\n") && out.contains("node0 \""), "{out}");
    bed.down();
}

/// The pool's process is stopped after it has answered: the job keeps its place, and names the process.
#[test]
fn job_that_waits_for_a_stopped_pool_names_its_process() {
    let Some(bed) = Bed::up(1) else { return };
    let script = "\"$RL\" pool up p -H node0; expect $? 0 up; P=$(pid)\n\
        \"$RL\" --pool p sh -c ': >on; while ! [ -e go ]; do sleep 0.05; done' & FIRST=$!; held on\n\
        \"$RL\" --pool p --wait echo waited 2>said & NEXT=$!; until grep -q 'waiting for the pool' said; do sleep 0.05; done\n\
        kill -STOP $P; until grep -q \"still waiting, because the pool p does not answer: no word of process $P for 5 s\" said; do sleep 0.05; done\n\
        : >go; wait $FIRST; expect $? 0 first; kill -CONT $P; wait $NEXT; expect $? 0 next; rm on go\n\
        \"$RL\" --pool p --grace 60s sh -c 'trap \"\" TERM; : >on; while ! [ -e go ]; do sleep 0.05; done' & JOB=$!; held on\n\
        \"$RL\" pool down p 2>said & DOWN=$!; until grep -q 'down: the pool ends' /tmp/rlaunch-0/pool-p/log; do sleep 0.05; done\n\
        kill -STOP $P; until grep -q \"still waiting, because the pool p .* $P for 5 s\" said; do sleep 0.05; done\n\
        kill -CONT $P; : >go; wait $DOWN; expect $? 0 down; wait $JOB; echo ended";
    let done = done(&bed, "root", script);
    assert_eq!(done.out(), "waited\nended\n", "{}", done.err());
    bed.down();
}
