"""slurm, slurm-stdout and slurm-fence: jobs in an allocation of Slurm. The floor is the srun that starts rlaunch's agents, with /bin/true in the
agents' place; srun -n and Hydra's `-bootstrap slurm` start the same ranks."""

import dataclasses
import pathlib
import shutil
import subprocess
from functools import partial

from .. import hosts as testbed
from .. import procs
from ..case import Case, Goal
from ..measure import Sample
from . import stdout

COUNTS = (4, 16)
RANKS_PER_HOST = 2
SECONDS = 30
ROUNDS = 5
FENCES = 500
DAEMONS = ("slurmctld", "slurmd", "munged")
AGENTS = ("--overlap", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--cpu-bind=none", "--mem=0",
          "--mpi=none", "--quiet")
"""Options of the srun that starts agents."""


class Allocation(testbed.Inside):
    """The clock, in an allocation of so many hosts: it times the command within salloc, and not salloc."""

    def __init__(self, hosts, count):
        super().__init__(hosts)
        self.count = count

    def line(self, words):
        self.hosts.up()
        ask = ["salloc", "--quiet", f"-N{self.count}", f"-n{self.count * RANKS_PER_HOST}"]
        return self.hosts.exec(*ask, *words), self.hosts.environ


class Cluster(testbed.Hosts):
    """Hosts that are nodes of Slurm."""

    name = "cluster"
    options = ("--slurm",)

    def __init__(self, bench):
        super().__init__(bench)
        self.built, self.rlaunch = self.rlaunch, pathlib.Path.home() / "rlaunch"
        self.fences = self.scratch / "fence_ranks"
        shutil.copy(bench.programs["fence_ranks"], self.fences)

    def warm_up(self):
        """The binary lies in the home of the hosts, as it does for users: srun itself can start it there."""
        self.do("cp", self.built, self.rlaunch)

    def living(self):
        """Processes on the hosts, without the daemons of Slurm, which outlive each sample."""
        return {pid for pid in super().living() if procs.name(pid) not in DAEMONS}


def _cluster(bench, row):
    if not testbed.are_possible(bench, row):
        return None
    if bench.cluster is None:
        bench.cluster = Cluster(bench)
    return bench.cluster


def _sample(clock, command):
    sample = clock.milliseconds(command, seconds=SECONDS)
    return Sample(SECONDS * 1e3, sample.failure) if sample.timed_out else sample


def _case(cluster, count):
    ranks = count * RANKS_PER_HOST
    clock = Allocation(cluster, count)
    rlaunch = str(cluster.rlaunch)
    commands = {
        "agents": ["srun", f"--nodes={count}", f"--ntasks={count}", *AGENTS, "/bin/true"],
        "srun": ["srun", "-n", ranks, "/bin/true"],
        "rlaunch": [rlaunch, "-n", ranks, "/bin/true"],
        "stdio": [rlaunch, "--transport", "stdio", "-n", ranks, "/bin/true"],
    }
    hydra = cluster.own_bench.launchers.get("hydra")
    if hydra:
        commands["hydra"] = hydra.with_words("hydra", "-bootstrap", "slurm").command(ranks, ["/bin/true"])
    goals = [Goal(1.3, "agents")] + ([Goal(1.15, "hydra")] if hydra else [])
    contenders = {name: partial(_sample, clock, command) for name, command in commands.items()}
    return Case(f"slurm, {count} hosts, {ranks} ranks", "ms", contenders, floor="agents", goals=tuple(goals))


def launch_cases(bench):
    """Time of a job that does nothing in an allocation of 4 and 16 hosts."""
    cluster = _cluster(bench, "slurm")
    return [_case(cluster, count) for count in COUNTS if count <= bench.size(16, 4)] if cluster else []


def stdout_cases(bench):
    """Rate of labelled output of ranks in an allocation, over TCP and over srun's own streams."""
    cluster = _cluster(bench, "slurm-stdout")
    if not cluster:
        return []
    clock = Allocation(cluster, stdout.RANKS)
    launcher = dataclasses.replace(cluster.own_bench.launchers["rlaunch"], words=(str(cluster.rlaunch),))
    far = dataclasses.replace(bench, clock=clock, scratch=str(cluster.scratch))
    lines = stdout.Output(far, "format", 4000, seconds=SECONDS)
    over_stdio = launcher.with_words("stdio", "--transport", "stdio")
    contenders = {
        each.name: partial(lines.nowhere, each.command(stdout.RANKS, lines.program, label=True)) for each in (launcher, over_stdio)
    }
    goals = (Goal(10, "stdio", at_least=True),)
    return [Case(f"slurm-stdout of {stdout.RANKS} hosts, labelled", "MB/s", contenders, goals=goals, max_rounds=ROUNDS)]


def _fences(cluster, words, count):
    """The p99 of a fence of all ranks, as rank 0 sees it."""
    ranks = stdout.RANKS * RANKS_PER_HOST
    command = [*words, "-n", ranks, cluster.fences, count]
    line, environ = Allocation(cluster, stdout.RANKS).line([str(word) for word in command])
    try:
        done = subprocess.run(line, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SECONDS + 60, text=True,
                              check=False)
    except subprocess.TimeoutExpired:
        cluster.clear()
        return Sample(failure=f"no end within {SECONDS + 60} s", timed_out=True)
    said = done.stdout.split()
    return Sample(float(said[1])) if done.returncode == 0 and len(said) == 2 else Sample(failure=f"exit code {done.returncode}")


def fence_cases(bench):
    """Time of a fence of all ranks of an allocation, over TCP and over srun's own streams."""
    cluster = _cluster(bench, "slurm-fence")
    if not cluster:
        return []
    words = {"rlaunch": [cluster.rlaunch], "stdio": [cluster.rlaunch, "--transport", "stdio"]}
    contenders = {name: partial(_fences, cluster, each, bench.size(FENCES, 100)) for name, each in words.items()}
    title = f"slurm-fence of {stdout.RANKS * RANKS_PER_HOST} ranks on {stdout.RANKS} hosts, p99"
    return [Case(title, "µs", contenders, goals=(Goal(0.3, "stdio"),), max_rounds=ROUNDS)]
