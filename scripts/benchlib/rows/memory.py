"""rss and slow: memory of the launcher's own processes, while ranks sleep and while their output is not read."""

import os
import tempfile
import time
from functools import partial

from .. import procs
from ..case import Case, Goal
from ..measure import Sample

READY_WITHIN = 30.0
SLOW_RATE = 1_000_000
SLOW_SECONDS = 8.0


def start_idle(bench, launcher, ranks, *words, grace=False, make=procs.Job):
    """A job of sleeping ranks, all of them ready; None if they do not come."""
    place = tempfile.mkdtemp(dir=bench.scratch)
    program = [bench.programs["idle_rank"], place, place, *words]
    job = make(launcher.command(ranks, program, grace=grace), place)
    end = time.monotonic() + READY_WITHIN
    while len(os.listdir(place)) < ranks:
        if time.monotonic() > end or job.process.poll() is not None:
            job.__exit__()
            return None
        time.sleep(0.01)
    return job


def _own_memory(bench, launcher, ranks):
    job = start_idle(bench, launcher, ranks)
    if job is None:
        return None
    with job:
        time.sleep(0.3)  # what is freed after the launch is freed by now
        _, own = job.split()
        parts = [procs.memory(pid) for pid in procs.distinct(own)]
        return {key: sum(part[key] for part in parts) for key in ("peak", "pss")}


def _idle(bench, launcher, ranks, key):
    memory = _own_memory(bench, launcher, ranks)
    return Sample(memory[key] / 1024) if memory else Sample(failure="the ranks did not come up")


def _growth(bench, launcher, few, many):
    small, large = _own_memory(bench, launcher, few), _own_memory(bench, launcher, many)
    if not small or not large:
        return Sample(failure="the ranks did not come up")
    return Sample((large["pss"] - small["pss"]) / (many - few))


def idle_cases(bench):
    """Memory of the launcher's own processes while 256 ranks sleep."""
    many = bench.size(256, 64)

    def case(title, unit, sample, goal):
        contenders = {name: partial(sample, launcher) for name, launcher in bench.launchers.items()}
        return Case(title, unit, contenders, goals=(goal,), max_rounds=3, max_sittings=1)

    return [
        case(f"rss -n {many}, sum of peaks", "MiB", lambda one: _idle(bench, one, many, "peak"), Goal(6)),
        case(f"rss -n {many}, proportional", "MiB", lambda one: _idle(bench, one, many, "pss"), Goal(2.5)),
        case(f"rss per idle rank, 16 to {many}", "KiB", lambda one: _growth(bench, one, 16, many), Goal(1)),
    ]


def _slow(bench, launcher, seconds):
    token = "500"  # the writers wait half a second before they begin: the state that growth is measured from
    read_end, write_end = os.pipe()
    command = launcher.command(4, [bench.programs["writer"], "0", "4000", "format", token])
    try:
        with procs.Job(command, token, stdout=write_end) as job:
            os.close(write_end)
            write_end = -1
            time.sleep(0.3)
            _, own = job.split()
            before = peak = procs.resident(own)
            start, taken = time.monotonic(), 0
            while (now := time.monotonic() - start) < seconds:
                while taken < now * SLOW_RATE:
                    got = len(os.read(read_end, 65536))
                    if not got:
                        return Sample(failure="the output ended")
                    taken += got
                peak = max(peak, procs.resident(own))
                time.sleep(0.05)
            return Sample((peak - before) / 1024)
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)


def slow_cases(bench):
    """Memory of the launcher's own processes while the output is read slowly."""
    seconds = bench.size(SLOW_SECONDS, 2.0)
    contenders = {name: partial(_slow, bench, launcher, seconds) for name, launcher in bench.launchers.items()}
    title = f"growth under a reader of 1 MB/s, {seconds:g} s"
    return [Case(title, "MiB", contenders, goals=(Goal(8),), max_rounds=1, max_sittings=1)]
