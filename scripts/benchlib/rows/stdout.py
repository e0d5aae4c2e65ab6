"""stdout: megabytes per second from four ranks, plain, raw and labelled, to nowhere and to a file; and whether every line arrived."""

import os
import subprocess
import tempfile

from ..case import Case, Goal
from ..measure import Sample

RANKS = 4
LINE = 80


class Output:
    """The runs of one writer."""

    def __init__(self, bench, style, write_bytes, seconds=120):
        self.bench = bench
        self.seconds = seconds
        self.lines = bench.size(bench.megabytes_per_rank, 5) * 1_000_000 // LINE
        self.program = [bench.programs["writer"], str(self.lines), str(write_bytes), style]
        self.style = style

    def _rate(self, command, target):
        sample = self.bench.clock.run(command, seconds=self.seconds, stdout=target)
        if sample.value is None:
            return sample
        return Sample(RANKS * self.lines * LINE / 1e6 / sample.value)

    def nowhere(self, command):
        """Runs a command with output to /dev/null."""
        return self._rate(command, "/dev/null")

    def file(self, command, labelled):
        """Runs a command with output to a file in memory, and checks each line."""
        descriptor, path = tempfile.mkstemp(dir=self.bench.scratch)
        os.close(descriptor)
        try:
            sample = self._rate(command, path)
            fault = None if sample.value is None or self.style == "ready" else self.faults(path, labelled)
            return Sample(sample.value, fault) if fault else sample
        finally:
            os.unlink(path)

    def faults(self, path, labelled):
        """The error that the checker found, or None."""
        check = [self.bench.programs["checker"], str(RANKS), str(self.lines), "labelled" if labelled else "plain"]
        with open(path, "rb") as text:
            done = subprocess.run(check, stdin=text, stdout=subprocess.PIPE, check=False, timeout=300)
        if done.returncode == 0:
            return None
        _whole, torn, missing, reordered, _bytes = done.stdout.split()
        return f"{torn.decode()} torn, {missing.decode()} missing, {reordered.decode()} out of order"

    def cat(self):
        """The same writers through one pipe and `cat`: the least that brings four outputs together."""
        writers = "".join(f'RANK={rank} "$@" & ' for rank in range(RANKS))
        return ["sh", "-c", f"{{ {writers}wait; }} | cat", "sh", *self.program]


def case(bench, title, output, to_file, labelled, goals, floor=None, words=()):
    """One case; `floor` is the name and the command of what brings the same bytes together at least, `words` are rlaunch's options."""
    def take(command):
        return lambda: output.file(command, labelled) if to_file else output.nowhere(command)

    contenders = {floor[0]: take(floor[1])} if floor else {}
    for name, launcher in bench.launchers.items():
        own = words if name == "rlaunch" else ()
        contenders[name] = take(launcher.with_words(name, *own).command(RANKS, output.program, label=labelled))
    return Case(title, "MB/s", contenders, floor=floor[0] if floor else None, goals=goals)


def cases(bench):
    """Rate of the output of 4 ranks, plain, raw and labelled, and whether each line arrives."""
    def plain(title, output, to_file, goals, words=()):
        return case(bench, title, output, to_file, False, goals, floor=("cat", output.cat()), words=words)

    lines, ready, odd = Output(bench, "format", 4000), Output(bench, "ready", 4000), Output(bench, "format", 4097)

    def faster(limit):
        return (Goal(limit, "hydra", at_least=True),)

    return [
        plain("stdout to /dev/null", lines, False, faster(0.95)),
        plain("stdout to a file", lines, True, faster(0.95)),
        plain("stdout, ready buffers, to /dev/null", ready, False, faster(1.2)),
        plain("stdout raw, ready buffers, to /dev/null", ready, False, faster(1.2), words=("--raw",)),
        case(bench, "stdout labelled to /dev/null", lines, False, True, faster(3.5)),
        case(bench, "stdout labelled to a file", lines, True, True, faster(9)),
        case(bench, "stdout labelled, writes of 4097, to a file", odd, True, True, ()),
    ]
