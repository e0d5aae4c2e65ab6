"""fail: from the moment something dies until the launcher has exited and every process of the job is gone."""

import signal
import subprocess
from functools import partial

from .. import procs
from ..case import Case, Goal
from ..measure import Sample
from .memory import start_idle

GRACE_MS = 500


def a_rank(ranks, _launcher):
    """The target is one of the ranks."""
    return sorted(ranks)[3]


def _launcher(_ranks, launcher):
    return launcher


def event(bench, launcher, how, ranks, make=procs.Job, watched=lambda own: own):
    """One sample: `how` says which signal goes to whom, after what preparations. `make` starts the job; `watched` says whose end
    is waited for besides that of the launcher and its ranks."""
    sig, target, words, grace = how
    job = start_idle(bench, launcher, ranks, *words, grace=grace, make=make)
    if job is None:
        return Sample(failure="the ranks did not come up")
    with job:
        found, own = job.split()
        if len(found) != ranks:
            return Sample(failure=f"{len(found)} of {ranks} ranks were found")
        main = job.launcher
        aim = target(found, main)
        everybody = [main, *sorted(watched(own - {main})), *sorted(found)]
        limit = bench.size(10, 5)
        watch = [bench.programs["watch"], str(limit), str(int(sig)), str(aim), *map(str, everybody)]
        done = subprocess.run(watch, stdout=subprocess.PIPE, check=False, timeout=limit + 30)
        if done.returncode:
            return Sample(failure="the job ended before the event")
        out_us, all_us, left = map(int, done.stdout.split())
        if left:
            return Sample(failure=f"{left} processes left after {limit} s")
        if len(everybody) == ranks + 1 and out_us < all_us and aim != main:
            return Sample(failure="the launcher had exited, and a rank had not")
        return Sample(all_us / 1e3)


def cases(bench):
    """Time until all processes are gone after a failure, a signal, or the loss of the launcher."""
    ranks = bench.size(64, 16)
    events = {
        "a rank exits 3": ((signal.SIGUSR1, a_rank, (), False), Goal(8)),
        "a rank is killed": ((signal.SIGKILL, a_rank, (), False), Goal(8)),
        "Ctrl-C": ((signal.SIGINT, _launcher, (), False), Goal(7)),
        "Ctrl-C, ranks ignore it, grace 500 ms": ((signal.SIGINT, _launcher, ("stubborn",), True), Goal(GRACE_MS + 20)),
        "the launcher is killed": ((signal.SIGKILL, _launcher, (), False), Goal(7)),
    }
    made = []
    for title, (how, goal) in events.items():
        launchers = {**bench.launchers, **({"torchrun": bench.torchrun} if bench.torchrun else {})}
        contenders = {name: partial(event, bench, launcher, how, ranks) for name, launcher in launchers.items()}
        made.append(Case(f"fail -n {ranks}: {title}", "ms", contenders, goals=(goal,), max_rounds=5))
    return made
