"""Checks of Slurm on the hosts (`selftest --slurm`): jobs run, hosts fail and come back, daemons die, and nothing stays."""

import os
import pathlib
import re
import subprocess

from . import cgroups
from .selftest import PYTHON, SCRIPT, Absent, Bed, expect, until

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
    """Jobs run as soon as `up` has returned, and with uneven tasks per node."""
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
    """A job is suspended by `scontrol suspend`, and resumed."""
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
    """The command exits with 125 and the daemon's name. Commands that end daemons themselves continue."""
    for name, host in (("slurmctld", "login"), ("slurmd", "node0"), ("munged", "node0")):
        with Bed(1, "--slurm") as bed:
            waits = bed.start("exec", "login", "sleep", "75.5", stderr=-1)
            other = bed.start("exec", "--regardless", "login", "sh", "-c", "echo runs; read line; echo $line", stdin=-1)
            expect(other.stdout.readline() == "runs\n")
            bed.run("exec", "--regardless", host, "sh", "-c", f"kill -9 $(pidof {name})")
            expect(waits.wait(10) == 125, name, waits.returncode)
            error = waits.stderr.read()
            expect(name in error and host in error, error)
            expect(other.communicate("still\n", timeout=10)[0] == "still\n", name)


GROUPED = ("--slurm", "--cgroup")


def _grouped_bed(nodes, *options):
    done = Bed(None).call("possible", str(nodes), *GROUPED)
    if done.returncode:
        raise Absent(done.stdout.strip())
    return Bed(nodes, *GROUPED, *options)


def _groups_of(bed):
    """All control groups of a testbed."""
    tops = [path for each in cgroups.CONTROLLERS for path in pathlib.Path(cgroups.MOUNT, each).glob(f"{cgroups.PREFIX}:{bed.name}:*")]
    return [path for top in tops for path, _, _ in os.walk(top)]


def check_a_step_has_control_groups_and_processors_of_its_own():
    """Steps have control groups, also of an ordinary user, and on a node that was without power meanwhile."""
    with _grouped_bed(2) as bed:
        for again in (False, True):
            if again:
                bed.run("kill-host", "node1")
                expect(not any("/node1" in path for path in _groups_of(bed)), _groups_of(bed))
                bed.run("start-host", "node1")
            words = ("exec", "--user", "tester", "--cwd", "/", "login", "srun", "-N2")
            found = set()
            for line in bed.run(*words, "-n2", "cat", "/proc/self/cgroup").splitlines():
                _, controller, path = line.split(":", 2)
                if controller in cgroups.CONTROLLERS:
                    found.add((controller, re.sub(r".*/(node\d/.*)_\d+(/step_\d+)$", r"\1\2", path)))
            expect(found == {(each, f"{node}/slurm_{node}/uid_2000/job/step_0") for each in cgroups.CONTROLLERS
                             for node in ("node0", "node1")}, found)
            ones = bed.run(*words, "-n2", "-c1", "grep", "Cpus_allowed_list", "/proc/self/status").splitlines()
            expect(len(ones) == 2 and all(re.fullmatch(r"Cpus_allowed_list:\s+\d+", line) for line in ones), ones)
            if os.cpu_count() > 1:
                twos = bed.run(*words, "-n2", "-c2", "grep", "-c", "Cpus_allowed_list:.*[-,]", "/proc/self/status")
                expect(twos.split() == ["1", "1"], twos)


def check_the_end_of_a_job_ends_processes_that_have_left_its_session():
    """proctrack/cgroup finds a daemonised process, which proctrack/linuxproc does not."""
    with _grouped_bed(1) as bed:
        job = _batch(bed, "-N1", "--wrap", "srun sh -c 'setsid sh -c \"sleep 76.5 & \"; sleep 77.5'")
        until(lambda: bed.call("exec", "node0", "pgrep", "-fx", "sleep 76.5").returncode == 0, "the daemonised process")
        bed.run("exec", "login", "scancel", job)
        done = bed.call("strays", "--within", str(ENDED_WITHIN))
        expect(done.returncode == 0, done.stdout)
        until(lambda: not any("/job_" in path for path in _groups_of(bed)), "the end of the job's control groups")


def check_no_control_group_stays():
    """No control group stays after any end of the testbed, though the kernel kills no process of a frozen group."""
    for end in ("down", "kill-host", "kill"):
        with _grouped_bed(1) as bed:
            _batch(bed, "-N1", "--wrap", "sleep 78.5")
            until(lambda bed=bed: bed.call("exec", "node0", "pgrep", "-x", "sleep").returncode == 0, "the job")
            state = next(f"{path}/freezer.state" for path in _groups_of(bed) if "/freezer/" in path and "/job_" in path)
            pathlib.Path(state).write_text("FROZEN")
            if end == "kill":
                bed.started[0].kill()
                until(lambda bed=bed: not _groups_of(bed), "the end of the control groups after the holder's end")
            else:
                bed.run(end, *(["node0"] if end == "kill-host" else []))
                left = [path for path in _groups_of(bed) if end == "down" or "/node0" in path]
                expect(not left, end, left)


def check_up_names_the_control_groups_that_are_missing():
    """`up` names missing control groups, as on a machine with version 2 only, or without the right to write them."""
    _grouped_bed(1).__exit__(None)
    for change, why in ((f"umount {cgroups.MOUNT}/freezer", f"none at {cgroups.MOUNT}/freezer"),
                        (f"mount -o remount,bind,ro {cgroups.MOUNT}/cpuset", "failed: Read-only file system")):
        for verb, code in (("possible", 1), ("up", 125)):
            bed = Bed(None)
            words = ("unshare", "--mount", "sh", "-c", f'{change} && exec "$@"', "sh", PYTHON, SCRIPT, verb, "1", *GROUPED)
            done = subprocess.run(words, env=bed.env, capture_output=True, text=True, check=False)
            expect(done.returncode == code and why in done.stdout + done.stderr, done)
            expect(not _groups_of(bed))


def check_sixteen_nodes_come_and_go():
    """Sixteen nodes start and end twice, under one name. None of their daemons stays."""
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
