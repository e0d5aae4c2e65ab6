"""rounds-python: the same of ranks in Python, wherever they are when another rank is killed; and NVRx, where a Python has it.

RLAUNCH_CLIENT names our package (scripts/build-client leaves one in target/client/python), RLAUNCH_TORCH a Python that has torch and
NVRx; else Debian's is asked. Ranks in bytecode spin, more of them than processors: that line has the scheduler in it.
"""

import os
import pathlib
import subprocess
import sys
import time
from functools import partial

from ..case import Case, Goal
from ..measure import Sample
from .rounds import Job, SIGKILL

RANKS = 8
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench.d" / "blocked_rank.py"
ROOT = SCRIPT.parents[2]


class _Killed:
    """A job in which rank 1 was killed while the others were in something, and what was said of it."""

    def __init__(self, bench, python, package, how, ranks, words=()):
        command = bench.launchers["rlaunch"].with_words("rlaunch", *words).command(ranks, [python, SCRIPT, package, how])
        # Eight that import torch take their time.
        job = Job(command, environment(), patience=120)
        try:
            last = "met" if how == "gloo" else "begin"
            self.first = job.lines(last, 0, ranks)
            pids = {rank: pid for rank, pid, _ in job.lines("begin", 0, ranks) or []}
            if not pids or self.first is None:
                raise TimeoutError("the first round did not begin")
            if how == "gloo" and job.lines("here", 0, ranks) is None:
                raise TimeoutError("the first all-reduce did not end")
            victim = job.pid_of(pids[1])
            # The work that follows the begin of so many ranks is done by then.
            time.sleep(0.5)
            self.began = time.monotonic_ns()
            os.kill(victim, SIGKILL)
            self.out = job.lines("out", 0, ranks - 1)
            self.begin = job.lines("begin", 1, ranks - 1)
            self.met = job.lines("met", 1, ranks - 1) if how == "gloo" else self.begin
            if None in (self.out, self.begin, self.met):
                raise TimeoutError("the second round did not begin")
        finally:
            job.end()


def environment():
    """The environment of this process, with the package."""
    client = os.environ.get("RLAUNCH_CLIENT") or str(ROOT / "target" / "client" / "python")
    # torch's server looks up the name of each client: seconds each where nobody answers.
    return {**os.environ, "PYTHONPATH": client, "PYTHONWARNINGS": "ignore", "RES_OPTIONS": "timeout:1 attempts:1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def _sample(figure, *words):
    try:
        return Sample(figure(_Killed(*words)) / 1e6)
    except TimeoutError as late:
        return Sample(failure=str(late))


def _begun(job):
    return max(at for _, _, at in job.begin) - job.began


def _out(job):
    return max(at for _, at in job.out) - job.began


def _met_again(job):
    return max(took for _, took in job.met)


def _met_first(job):
    return max(took for _, took in job.first)


def _has(python, module):
    done = subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL, env=environment(), check=False)
    return done.returncode == 0


def cases(bench):
    """Rounds of ranks in Python: in bytecode, asleep, in a queue, in an all-reduce of gloo; and NVRx."""
    python = os.environ.get("RLAUNCH_TORCH") or "/usr/bin/python3"
    if "rlaunch" not in bench.launchers:
        return []
    if not _has(python, "rlaunch._native"):
        print("rounds-python: no package for Python; scripts/build-client makes it", file=sys.stderr)
        return []
    sample = partial(partial, _sample)
    made = []
    for how, what in (("sleep", "time.sleep"), ("queue", "Queue.get"), ("bytecode", "bytecode")):
        contenders = {"rlaunch": sample(_begun, bench, python, "rlaunch.inprocess", how, RANKS)}
        made.append(Case(f"Python, round -n {RANKS}, in {what}: one is killed", "ms", contenders, goals=(Goal(10),), max_rounds=5))
    if not _has(python, "torch.distributed"):
        return made
    gloo = (bench, python, "rlaunch.inprocess", "gloo", RANKS)
    made.append(Case(f"gloo, round -n {RANKS}, in an all-reduce: all out", "ms", {"rlaunch": sample(_out, *gloo)}, goals=(Goal(50),), max_rounds=5))
    again = {"rlaunch": sample(_met_again, *gloo), "fresh": sample(_met_first, *gloo)}
    made.append(Case("gloo, init_process_group in a second round", "ms", again, goals=(Goal(1.2, "fresh"),), max_rounds=5))
    if _has(python, "nvidia_resiliency_ext.inprocess"):
        nvrx = (bench, python, "nvidia_resiliency_ext.inprocess", "sleep", 3, ("--on-failure", "continue", "--master-store", "agent"))
        contenders = {"rlaunch": sample(_begun, bench, python, "rlaunch.inprocess", "sleep", 3), "nvrx": sample(_begun, *nvrx)}
        made.append(Case("Python, round -n 3, asleep: one is killed", "ms", contenders, max_rounds=5))
    return made
