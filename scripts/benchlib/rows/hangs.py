"""hangs: many short launches in a row; a lost exit event shows as one that never ends."""

from ..case import Case, Goal
from ..measure import Sample

SIZES = (1, 1, 2, 4, 8, 16, 64)
"""Mostly small: the races are in the ends of things, and every launch has one."""


def _sample(bench, launcher, launches):
    failures = []
    for number in range(launches):
        ranks = SIZES[number % len(SIZES)]
        one = bench.clock.run(launcher.command(ranks, ["/bin/true"]), seconds=30 if bench.full else 10)
        if one.failure:
            failures.append(f"-n {ranks}: {one.failure}")
    return Sample(len(failures), failures[0] if failures else None)


def cases(bench):
    """Number of short launches that fail or never end.

    Without rlaunch the loop is tried on Hydra, so that the script itself can be tested."""
    launches = 10_000 if bench.full else bench.size(500, 50)
    name = "rlaunch" if "rlaunch" in bench.launchers else "hydra"
    launcher = bench.launchers[name]
    contenders = {name: lambda: _sample(bench, launcher, launches)}
    return [Case(f"hangs in {launches} launches", "failed", contenders, goals=(Goal(0),), max_rounds=1, max_sittings=1)]
