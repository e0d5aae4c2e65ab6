"""ssh-rss: what a launcher's processes hold on a host while a rank sleeps there, each page divided by those who share it. One host
only, and its binary is a copy of the one that was started (in the user's cache there): what rlaunch's processes there share, they
share among themselves, not with the launcher or with agents of other hosts, as hosts on one machine otherwise would."""

import time
from functools import partial

from .. import hosts as testbed
from .. import procs
from ..case import Case, Goal
from ..measure import Sample
from .memory import start_idle


def _held(hosts, far, launcher):
    job = start_idle(far, launcher, 1, make=hosts.job)
    if job is None:
        return Sample(failure="the rank did not come up")
    with job:
        time.sleep(0.3)  # what is freed after the launch is freed by now
        ranks, _ = job.split()
        there = procs.distinct(hosts.living() - ranks)
        if len(ranks) != 1 or not there:
            return Sample(failure=f"{len(ranks)} ranks and {len(there)} processes beside them were found on the host")
        return Sample(sum(procs.memory(pid)["pss"] for pid in there) / 1024)


def cases(bench):
    """Memory of agent, guardian and init on a host with one idle rank."""
    hosts = testbed.of(bench, "ssh-rss")
    if not hosts:
        return []
    far = hosts.bench(1)
    contenders = {name: partial(_held, hosts, far, launcher) for name, launcher in far.launchers.items()}
    return [Case("ssh-rss on an idle host, proportional", "MiB", contenders, goals=(Goal(3),), max_rounds=3, max_sittings=1)]
