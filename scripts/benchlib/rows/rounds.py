"""rounds: from the moment a rank is killed, or fails, until the last of the others has begun the function again.

Ranks are blocked in a wait, as they are in a collective: with ranks that spin one would measure the scheduler. The floor is a C
program that does as much as has to be done, and nothing else."""

import os
import select
import subprocess
import tempfile
import time
from functools import partial
from signal import SIGKILL

from .. import procs, toolbox
from ..case import Case, Goal
from ..measure import Sample

PATIENCE = 30.0


def _floor(bench, ranks):
    done = subprocess.run([bench.programs["round_floor"], str(ranks)], stdout=subprocess.PIPE, check=True, timeout=60)
    return Sample(int(done.stdout) / 1e3)


class Job:
    """A job whose ranks say what they do, in lines: a word, the number of the round, their rank, and more numbers."""

    def __init__(self, command, environ=None, patience=PATIENCE):
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.child = subprocess.Popen(command, env=environ, **streams)
        self.rest = b""
        self.said = {}
        self.until = time.monotonic() + patience

    def lines(self, word, number, count):
        """The lines of so many ranks with this word about a round, from the rank on; None after a time-out."""
        while len(found := self.said.get((word, number), [])) < count:
            line, ended, rest = self.rest.partition(b"\n")
            if ended:
                self.rest = rest
                what, of, *numbers = line.decode().split()
                self.said.setdefault((what, int(of)), []).append([int(text) for text in numbers])
                continue
            left = self.until - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                return None
            more = os.read(self.child.stdout.fileno(), 65536)
            if not more:
                return None
            self.rest += more
        return found

    def pid_of(self, own):
        """The pid on this host of a rank, by the pid that the rank prints."""
        return next(pid for pid in procs.descendants(self.child.pid) if procs.own_number(pid) == own)

    def end(self):
        """Ends the job. rlaunch leaves no process."""
        self.child.terminate()
        self.child.communicate(timeout=PATIENCE)


def _round(bench, rank_program, ranks, fails):
    with tempfile.TemporaryDirectory(dir=bench.scratch) as directory:
        path = os.path.join(directory, "fail")
        os.mkfifo(path)
        job = Job(bench.launchers["rlaunch"].command(ranks, [rank_program, directory]))
        try:
            first = job.lines("begin", 0, ranks)
            if first is None:
                return Sample(failure="the first round did not begin")
            # The work that follows the begin of so many ranks is done by then.
            victim = job.pid_of(next(pid for rank, pid, _ in first if rank == 1))
            time.sleep(0.1)
            began = time.monotonic_ns()
            if fails:
                with open(path, "wb") as fifo:
                    began = time.monotonic_ns()
                    fifo.write(b"x")
            else:
                os.kill(victim, SIGKILL)
            second = job.lines("begin", 1, ranks if fails else ranks - 1)
        finally:
            job.end()
        if second is None:
            return Sample(failure="the second round did not begin")
        return Sample((max(at for _, _, at in second) - began) / 1e6)


def cases(bench):
    """Time until the other ranks begin again in the same processes after a rank was killed or failed."""
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
