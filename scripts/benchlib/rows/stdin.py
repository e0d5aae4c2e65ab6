"""stdin: a large input to rank 0, exact to the last byte and with an end of file, beside plain `cat`."""

import os
import subprocess
import tempfile
from functools import partial

from ..case import Case, Goal
from ..measure import Sample


class Input:
    """A file of random bytes and what a reader must have seen of it."""

    def __init__(self, bench):
        self.bench = bench
        self.size = min(bench.stdin_bytes, 1 << 26) if bench.quick else bench.stdin_bytes
        self.path = None
        self.expected = None

    def make(self):
        """The file is made by the first sample that needs it, in memory."""
        if self.path:
            return
        descriptor, self.path = tempfile.mkstemp(dir=self.bench.scratch)
        with os.fdopen(descriptor, "wb") as file:
            left = self.size
            while left:
                left -= file.write(os.urandom(min(left, 1 << 24)))
        place = tempfile.mkdtemp(dir=self.bench.scratch)
        with open(self.path, "rb") as file:
            subprocess.run([self.bench.programs["sink"], place], stdin=file, check=True, timeout=300)
        self.expected = self.seen(place)

    @staticmethod
    def seen(place):
        """The input that each sink received, by rank."""
        return {name: open(os.path.join(place, name), encoding="ascii").read() for name in sorted(os.listdir(place))}

    def rate(self, command_of):
        """MB/s of one run; a sum that differs is a failure."""
        self.make()
        place = tempfile.mkdtemp(dir=self.bench.scratch)
        command = command_of([self.bench.programs["sink"], place])
        sample = self.bench.clock.run(command, seconds=30 + self.size / 50e6, stdin=self.path)
        if sample.value is None:
            return sample
        if self.seen(place).get("0") != self.expected["0"]:
            return Sample(failure="rank 0 did not get what was sent")
        return Sample(self.size / 1e6 / sample.value)


def cases(bench):
    """Rate of a large input to rank 0, exact to the last byte.

    The peers are left out: Hydra aborts above 64 KB, prterun never passes the end of file on."""
    given = Input(bench)
    contenders = {"cat": partial(given.rate, lambda sink: ["sh", "-c", 'cat | "$@"', "sh", *sink])}
    if "rlaunch" in bench.launchers:
        contenders["rlaunch"] = partial(given.rate, lambda sink: bench.launchers["rlaunch"].command(2, sink))
    return [Case(f"stdin, {given.size >> 20} MiB to rank 0", "MB/s", contenders, floor="cat",
                 goals=(Goal(0.7, "cat", at_least=True),), max_rounds=5)]
