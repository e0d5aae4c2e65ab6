"""groups: calls of worker groups, beside bare sockets and memcpy in Python, and beside Ray where RLAUNCH_RAY names a Python that has it.

Needs our package (scripts/build-client leaves one in target/client/python) and a Python with NumPy: RLAUNCH_TORCH, else Debian's.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time
from functools import partial

from ..case import Case, Goal
from ..measure import Sample
from .rounds_python import environment

DIRECTORY = pathlib.Path(__file__).resolve().parents[2] / "bench.d"
PATIENCE = 180


def _compiled(bench, python):
    """A copy of our package and of the programs, with their bytecode, as pip leaves a package."""
    home = pathlib.Path(bench.scratch) / "groups"
    shutil.copytree(pathlib.Path(environment()["PYTHONPATH"]) / "rlaunch", home / "rlaunch")
    for program in DIRECTORY.glob("groups_*.py"):
        shutil.copy(program, home)
    subprocess.run([python, "-m", "compileall", "-q", home], check=True)
    return home


def _run(command, scale=1.0, home=DIRECTORY):
    env = environment()
    env["PYTHONPATH"] = str(home)
    try:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return Sample(failure="did not end", timed_out=True)
    try:
        return Sample(float(done.stdout.split()[-1]) * scale)
    except (IndexError, ValueError):
        return Sample(failure=f"exit {done.returncode}: {done.stderr.strip()[-200:]}")


def _rlaunch(bench, home, python, what, workers, seconds):
    words = [python, DIRECTORY / "groups_controller.py", what, workers, seconds, time.monotonic()]
    group = [":", "--group", "bench", "-n", workers, python, "-m", "rlaunch.groups.worker", "groups_worker.Load"]
    command = bench.launchers["rlaunch"].with_words("rlaunch", "--oversubscribe").command(1, ["--lead", *words, *group])
    return _run([*map(str, command)], home=home)


def _disturbed(bench, home, python, what, seconds):
    words = [python, DIRECTORY / "groups_controller.py", what, 1, seconds, 0]
    command = bench.launchers["rlaunch"].with_words("rlaunch", "--oversubscribe").command(1, ["--lead", *words])
    return _run([*map(str, command)], home=home)


def _ray(python, what, workers, seconds):
    return _run([python, str(DIRECTORY / "groups_ray.py"), what, str(workers), str(seconds), str(time.monotonic())])


def _bare(python, *words, scale=1.0):
    return _run([python, str(DIRECTORY / "groups_bare.py"), *map(str, words)], scale)


def _has(python, module):
    done = subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, env=environment(), check=False)
    return done.returncode == 0


def cases(bench):
    """Cost of calls of one or all workers of a group, of large values, and of start and end."""
    python = os.environ.get("RLAUNCH_TORCH") or "/usr/bin/python3"
    if "rlaunch" not in bench.launchers:
        return []
    if not (_has(python, "rlaunch._native") and _has(python, "numpy")):
        print("groups: no package for Python, or no NumPy; scripts/build-client makes the package", file=sys.stderr)
        return []
    ray = os.environ.get("RLAUNCH_RAY")
    seconds = bench.size(1.0, 0.3)
    home = _compiled(bench, python)

    def case(title, unit, what, workers, bare, *goals):
        contenders = {"rlaunch": partial(_rlaunch, bench, home, python, what, workers, seconds)}
        if bare is not None:
            contenders["bare"] = bare
        if ray:
            contenders["ray"] = partial(_ray, ray, what, workers, seconds)
        goals = tuple(goal for goal in goals if goal.against in contenders or goal.against is None)
        return Case(f"groups: {title}", unit, contenders, goals=goals, max_rounds=5)

    def call(workers):
        return partial(_bare, python, "call", workers, seconds)

    def copy(size, parts, scale=1.0):
        return _bare(python, "memcpy", size, parts, scale=scale)

    # Connections cost the host something as well: the neighbour makes as many, to a port of its own.
    words = {"rlaunch": "strangers", "neighbour": "neighbour"}
    busy = {name: partial(_disturbed, bench, home, python, what, 2 * seconds) for name, what in words.items()}
    strangers = Case("groups: mean call while 1,000 strangers connect", "µs", busy, goals=(Goal(1.05, "neighbour"),), max_rounds=5)
    gigabyte = 1 << 30
    return [
        case("empty call of 1 worker", "µs", "one", 1, call(1), Goal(0.1, "ray")),
        case("empty call of all of 8", "µs", "all", 8, call(8), Goal(1.3, "bare"), Goal(0.08, "ray")),
        case("empty call of all of 64", "µs", "all", 64, call(64), Goal(1.3, "bare"), Goal(0.05, "ray")),
        case("1 GiB sharded over 8", "GB/s", "sharded", 8, partial(_rate, partial(copy, gigabyte, 8), gigabyte), Goal(0.8, "bare", True), Goal(1.5, "ray", True)),
        case("128 MiB for all of 8", "ms", "same", 8, partial(copy, 128 << 20, 1, 1e3), Goal(1.3, "bare")),
        case("start of 8 to the first answer", "ms", "start", 8, partial(_bare, python, "start", 8), Goal(1.3, "bare"), Goal(0.1, "ray")),
        case("start of 64 to the first answer", "ms", "start", 64, partial(_bare, python, "start", 64), Goal(1.3, "bare"), Goal(0.1, "ray")),
        case("shutdown of 64, after the workers' own", "ms", "shutdown", 64, None, Goal(100)),
        strangers,
    ]


def _rate(copy, size):
    """GB/s of a copy."""
    took = copy()
    return took if took.value is None else Sample(size / took.value / 1e9)
