"""One sample: run a command under the small C clock `timed`, with a deadline, leaving nothing behind."""

import dataclasses
import subprocess


@dataclasses.dataclass
class Sample:
    """One measured value, or why there is none."""

    value: float | None = None
    failure: str | None = None
    timed_out: bool = False


class Clock:
    """Runs commands and times them from outside."""

    def __init__(self, programs):
        self.timed = programs["timed"]

    def line(self, words):
        """The command that runs the clock, and its environment (None: ours)."""
        return words, None

    def run(self, command, seconds=10.0, stdin=None, stdout=None):
        """Wall time in seconds, or the failure: a time-out, an exit code that is not 0, a process left behind."""
        files = (["-i", stdin] if stdin else []) + (["-o", stdout] if stdout else [])
        line, environ = self.line([self.timed, str(seconds), *files, "--", *map(str, command)])
        done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=seconds + 60, env=environ)
        wall_ns, _cpu_us, code, left, timed_out = map(int, done.stdout.split())
        if timed_out:
            return Sample(failure=f"no end within {seconds:g} s", timed_out=True)
        if code:
            return Sample(failure=f"exit code {code}")
        if left:
            return Sample(failure=f"{left} processes left running")
        return Sample(wall_ns / 1e9)

    def milliseconds(self, command, **how):
        """Runs a command, and returns its time in milliseconds."""
        sample = self.run(command, **how)
        return sample if sample.value is None else Sample(sample.value * 1e3)
