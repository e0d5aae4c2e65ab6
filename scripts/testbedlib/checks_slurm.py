"""Checks of Slurm on the hosts (`selftest --slurm`): jobs run, hosts fail and come back, daemons die, and nothing stays."""

import os
import pathlib
import re

from .selftest import Bed, expect, until

DAEMONS = ("munged", "slurmctld", "slurmd")
ENDED_WITHIN = 15
"""Seconds in which Slurm has ended the processes of a job: its KillWait is 5."""


def _states(bed):
    """States of all nodes, as sinfo names them: {state: how many}."""
    return dict(line.split() for line in bed.run("exec", "login", "sinfo", "-ho", "%T %D").splitlines())


def _state_of(bed, job):
    return bed.run("exec", "login", "squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T")


def _batch(bed, *words):
    """Submits a job that runs; returns its number."""
    job = bed.run("exec", "login", "sbatch", "--parsable", "--output=/dev/null", *words)
    until(lambda: _state_of(bed, job) == "RUNNING", f"the start of job {job}")
    return job


def _variables(text):
    return dict(line.split("=", 1) for line in text.splitlines() if line.startswith("SLURM_"))


def check_a_cluster_serves_root_and_user():
    """As soon as `up` has returned, and with uneven tasks per node."""
    with Bed(4, "--slurm") as bed:
        expect(_states(bed) == {"idle": "4"}, _states(bed))
        for user in ("root", "tester"):
            words = ("exec", "--user", user, "--cwd", "/", "login")
            names = bed.run(*words, "srun", "-N4", "hostname").split()
            expect(sorted(names) == ["node0", "node1", "node2", "node3"], user, names)
            found = _variables(bed.run(*words, "salloc", "-N4", "-n8", "env"))
            expect(found["SLURM_TASKS_PER_NODE"] == "4,2,1(x2)" and found["SLURM_JOB_NODELIST"] == "node[0-3]", user, found)
        several = _variables(bed.run("exec", "login", "salloc", "-N1", "-n1", ":", "-N2", "-n4", "env"))
        expect(several["SLURM_HET_SIZE"] == "2" and several["SLURM_JOB_NODELIST_HET_GROUP_1"] == "node[1-2]", several)
        expect(bed.call("strays").returncode == 0, bed.call("strays").stdout)


def check_cpus_are_those_that_were_named():
    """Slurm gives away as many processors as `--cpus` says, whatever this machine has."""
    with Bed(2, "--slurm", "--cpus", "24") as bed:
        text = bed.run("exec", "login", "salloc", "-N2", "-n48", "env")
        expect(_variables(text)["SLURM_JOB_CPUS_PER_NODE"] == "24(x2)", text)
        expect(bed.call("exec", "login", "srun", "--immediate=1", "-N2", "-n49", "true").returncode != 0)


def check_a_batch_job_ends_and_nothing_of_it_stays():
    """Its steps are no strays while it runs. What ignores SIGTERM is ended by Slurm after its KillWait."""
    with Bed(2, "--slurm") as bed:
        job = _batch(bed, "-N2", "--wrap", "srun sh -c 'trap : TERM; touch /tmp/runs; sleep 71.5; sleep 71.5'")
        until(lambda: all(bed.call("exec", node, "test", "-e", "/tmp/runs").returncode == 0 for node in ("node0", "node1")),
              "the tasks of the job")
        strays = bed.call("strays").stdout
        expect("slurmstepd" not in strays, strays)
        bed.run("exec", "login", "scancel", job)
        done = bed.call("strays", "--within", str(ENDED_WITHIN))
        expect(done.returncode == 0, done.stdout)


def check_a_job_is_suspended_and_resumed():
    """As `scontrol suspend` does it."""
    with Bed(1, "--slurm") as bed:
        job = _batch(bed, "-N1", "--wrap", "sleep 72.5")
        bed.run("exec", "login", "scontrol", "suspend", job)
        until(lambda: _state_of(bed, job) == "SUSPENDED", "the suspension")
        until(lambda: "T" in bed.sh("node0", "ps -o stat= -C sleep"), "a stopped task")
        bed.run("exec", "login", "scontrol", "resume", job)
        until(lambda: "T" not in bed.sh("node0", "ps -o stat= -C sleep"), "a task that runs again")
        bed.run("exec", "login", "scancel", job)


def check_a_requeued_job_starts_again_soon():
    """The wait for the end of its credential is short here."""
    with Bed(1, "--slurm") as bed:
        job = _batch(bed, "--requeue", "-N1", "--wrap", "sleep 73.5")
        bed.run("exec", "login", "scontrol", "requeue", job)
        until(lambda: _state_of(bed, job) == "PENDING", "the return into the queue")
        until(lambda: _state_of(bed, job) == "RUNNING", "the second start")
        restarts = re.search(r"Restarts=(\d+)", bed.run("exec", "login", "scontrol", "show", "job", job))
        expect(restarts and restarts[1] == "1", restarts)


def check_a_node_without_power_is_missed_and_comes_back():
    """Slurm's own verdict comes after SlurmdTimeout; the node serves again as soon as `start-host` has returned."""
    with Bed(2, "--slurm") as bed:
        bed.run("kill-host", "node1")
        expect(bed.call("exec", "node1", "true").returncode == 125)
        expect(bed.run("exec", "login", "srun", "-N1", "-w", "node0", "hostname") == "node0")
        bed.run("start-host", "node1")
        expect(bed.run("exec", "login", "srun", "-N1", "-w", "node1", "hostname") == "node1")
        expect(_states(bed) == {"idle": "2"}, _states(bed))


def check_jobs_are_known_after_a_power_cut_of_login():
    """slurmctld knows them when it is back. It writes its state some seconds late, so it may take a start for not done yet."""
    with Bed(2, "--slurm") as bed:
        job = _batch(bed, "-N1", "--wrap", "sleep 74.5")
        bed.run("kill-host", "login")
        bed.run("start-host", "login")
        expect(_state_of(bed, job) in ("RUNNING", "PENDING"), _state_of(bed, job))
        bed.run("exec", "login", "scancel", job)
        until(lambda: _state_of(bed, job) == "CANCELLED", "its end")


def check_the_end_of_a_daemon_ends_a_command():
    """With 125 and the daemon's name; not a command that says that it ends daemons itself."""
    for name, host in (("slurmctld", "login"), ("slurmd", "node0"), ("munged", "node0")):
        with Bed(1, "--slurm") as bed:
            waits = bed.start("exec", "login", "sleep", "75.5", stderr=-1)
            other = bed.start("exec", "--regardless", "login", "sh", "-c", "echo runs; read line; echo $line", stdin=-1)
            expect(other.stdout.readline() == "runs\n")
            bed.run("exec", "--regardless", host, "sh", "-c", f"kill -9 $(pidof {name})")
            expect(waits.wait(10) == 125, name, waits.returncode)
            told = waits.stderr.read()
            expect(name in told and host in told, told)
            expect(other.communicate("still\n", timeout=10)[0] == "still\n", name)


def check_sixteen_nodes_come_and_go():
    """Twice, under one name. No daemon of theirs stays."""
    for _ in range(2):
        before = set(_daemons())
        with Bed(16, "--slurm") as bed:
            names = bed.run("exec", "login", "srun", "-N16", "hostname").split()
            expect(len(set(names)) == 16, names)
            ours = set(_daemons()) - before
            expect(len(ours) >= 34, "17 munged, 16 slurmd and a slurmctld were to be found", ours)
            bed.run("down")
            expect(not ours & set(_daemons()), "daemons are left", ours & set(_daemons()))


def _daemons():
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if pathlib.Path(f"/proc/{entry}/comm").read_text().strip() in DAEMONS:
                yield entry
        except OSError:
            pass  # gone meanwhile
