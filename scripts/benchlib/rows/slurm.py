"""slurm and slurm-stdout: jobs in an allocation of Slurm. The floor is the srun that starts rlaunch's agents, with /bin/true in the
agents' place; srun -n and Hydra's `-bootstrap slurm` start the same ranks."""

import dataclasses
import pathlib
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

    def warm_up(self):
        """The binary lies in the home of the hosts, as it does for users: srun itself can start it there."""
        self.do("cp", self.built, self.rlaunch)

    def living(self):
        """Without the daemons of Slurm: they outlive each sample."""
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
    """How long a job that does nothing takes in an allocation of 4 and 16 hosts."""
    cluster = _cluster(bench, "slurm")
    return [_case(cluster, count) for count in COUNTS if count <= bench.size(16, 4)] if cluster else []


def stdout_cases(bench):
    """How fast labelled output comes from ranks in an allocation, over TCP and over srun's own streams."""
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
