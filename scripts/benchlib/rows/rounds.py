"""rounds: from the moment a rank is killed, or fails, until the last of the others has begun the function again.

Ranks are blocked in a wait, as they are in a collective: with ranks that spin one would measure the scheduler. The floor is a C
program that does as much as has to be done, and nothing else."""

import os
import select
import signal
import subprocess
import tempfile
import time
from functools import partial

from .. import procs, toolbox
from ..case import Case, Goal
from ..measure import Sample

PATIENCE = 30.0


def _floor(bench, ranks):
    done = subprocess.run([bench.programs["round_floor"], str(ranks)], stdout=subprocess.PIPE, check=True, timeout=60)
    return Sample(int(done.stdout) / 1e3)


class _Job:
    """A job whose ranks say when they begin a round: its number, their rank, their pid, and the time."""

    def __init__(self, bench, rank_program, ranks, directory):
        command = bench.launchers["rlaunch"].command(ranks, [rank_program, directory])
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.rest = b""
        self.until = time.monotonic() + PATIENCE

    def begun(self, number, count):
        """The lines of a round, once so many ranks have begun it; None: they did not in time."""
        lines = []
        while len(lines) < count:
            line, found, rest = self.rest.partition(b"\n")
            if found:
                self.rest = rest
                words = [int(word) for word in line.split()]
                lines += [words] if words[0] == number else []
                continue
            left = self.until - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                return None
            more = os.read(self.child.stdout.fileno(), 65536)
            if not more:
                return None
            self.rest += more
        return lines

    def pid_of(self, own):
        """The number here of a rank that says its own."""
        return next(pid for pid in procs.descendants(self.child.pid) if procs.own_number(pid) == own)

    def end(self):
        """Ends it; rlaunch leaves nothing."""
        self.child.terminate()
        self.child.communicate(timeout=PATIENCE)


def _round(bench, rank_program, ranks, fails):
    with tempfile.TemporaryDirectory(dir=bench.scratch) as directory:
        path = os.path.join(directory, "fail")
        os.mkfifo(path)
        job = _Job(bench, rank_program, ranks, directory)
        try:
            first = job.begun(0, ranks)
            if first is None:
                return Sample(failure="the first round did not begin")
            # What the begin of so many has left to do is done by then.
            victim = job.pid_of(next(pid for _, rank, pid, _ in first if rank == 1))
            time.sleep(0.1)
            began = time.monotonic_ns()
            if fails:
                with open(path, "wb") as fifo:
                    began = time.monotonic_ns()
                    fifo.write(b"x")
            else:
                os.kill(victim, signal.SIGKILL)
            second = job.begun(1, ranks if fails else ranks - 1)
        finally:
            job.end()
        if second is None:
            return Sample(failure="the second round did not begin")
        return Sample((max(at for _, _, _, at in second) - began) / 1e6)


def cases(bench):
    """How long the others take to begin again after a rank has died or failed, in the same processes."""
    if "rlaunch" not in bench.launchers:
        return []
    program = toolbox.build_example("rlaunch-client", "blocked_rank")
    made = []
    for ranks, fails, limit in ((64, False, 6), (256, False, 20), (64, True, 4)):
        ranks = bench.size(ranks, min(ranks, 64))
        contenders = {"rlaunch": partial(_round, bench, program, ranks, fails), "bare": partial(_floor, bench, ranks)}
        what = "one returns an error" if fails else "one is killed"
        made.append(Case(f"round -n {ranks}: {what}", "ms", contenders, floor="bare", goals=(Goal(limit),), max_rounds=7))
    return made
