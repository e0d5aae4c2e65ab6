"""ssh-fail: a rank on one of four hosts fails. Measured from that moment until the launcher has exited and no rank is left on any
host, which must not come later; and until agents, guardians and ssh are gone too. Hosts of a testbed share the machine's clock and
its table of processes, so one observer sees it all."""

import signal
from functools import partial

from .. import hosts as testbed
from ..case import Case, Goal
from . import failure

HOSTS = 4


def cases(bench):
    """Time until all processes on 4 hosts are gone after one of 64 ranks has failed."""
    hosts = testbed.of(bench, "ssh-fail")
    if not hosts:
        return []
    ranks = bench.size(64, 16)
    far = hosts.bench(HOSTS, ranks // HOSTS)
    how = (signal.SIGUSR1, failure.a_rank, (), False)

    def case(what, watched, *goals):
        contenders = {name: partial(failure.event, far, launcher, how, ranks, hosts.job, watched)
                      for name, launcher in far.launchers.items()}
        return Case(f"ssh-fail -n {ranks} on {HOSTS} hosts: a rank exits 3, {what}", "ms", contenders, goals=goals, max_rounds=5)

    return [case("to the end of launcher and ranks", lambda own: set(), Goal(25)),
            case("to that of all processes", lambda own: own)]
