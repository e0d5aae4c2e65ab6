"""pool: a job that does nothing on warm hosts (rlaunch --pool), beside the same on cold ones (rlaunch -H), which is the floor."""

from functools import partial

from .. import hosts as testbed, procs
from ..case import Case, Goal
from ..measure import Sample

COUNT = 8
LIMIT = 0.2
"""A start on the pool, times a cold one."""
SECONDS = 15


def _up(hosts, names):
    """The pool, once. It ends with the testbed."""
    hosts.up()
    if not getattr(hosts, "has_pool", False):
        hosts.has_pool = True
        hosts.do(hosts.rlaunch, "pool", "up", "bench", "-H", ",".join(names))
        hosts.wait_for_sessions(1)
        hosts.resting |= procs.descendants(hosts.holder.pid)


def _sample(hosts, names, command):
    _up(hosts, names)
    hosts.wait_for_sessions()
    sample = testbed.Inside(hosts).milliseconds(command, seconds=SECONDS)
    return Sample(SECONDS * 1e3, sample.failure) if sample.timed_out else sample


def cases(bench):
    """Time of a job that does nothing on 8 hosts of a pool."""
    hosts = testbed.of(bench, "pool")
    if not hosts:
        return []
    count = bench.size(COUNT, 4)
    names = [f"node{i}" for i in range(count)]
    job = ["-n", str(count), "/bin/true"]
    commands = {"cold": [str(hosts.rlaunch), "-H", ",".join(names), *job], "rlaunch": [str(hosts.rlaunch), "--pool", "bench", *job]}
    contenders = {name: partial(_sample, hosts, names, command) for name, command in commands.items()}
    return [Case(f"pool, {count} hosts", "ms", contenders, floor="cold", goals=(Goal(LIMIT, "cold"),))]
