"""ssh-fail: a rank on one of four hosts fails. Measured from that moment until the launcher has exited and every process of the
job, on every host, is gone; hosts of a testbed share the machine's clock and its table of processes, so one observer sees it all."""

import signal
from functools import partial

from .. import hosts as testbed
from ..case import Case, Goal
from . import failure

HOSTS = 4


def cases(bench):
    """How long it takes until all is gone on 4 hosts after one of 64 ranks has failed."""
    hosts = testbed.of(bench, "ssh-fail")
    if not hosts:
        return []
    ranks = bench.size(64, 16)
    far = hosts.bench(HOSTS, ranks // HOSTS)
    how = (signal.SIGUSR1, failure.a_rank, (), False)
    contenders = {name: partial(failure.event, far, launcher, how, ranks, hosts.job) for name, launcher in far.launchers.items()}
    title = f"ssh-fail -n {ranks} on {HOSTS} hosts: a rank exits 3"
    return [Case(title, "ms", contenders, goals=(Goal(25),), max_rounds=5)]
