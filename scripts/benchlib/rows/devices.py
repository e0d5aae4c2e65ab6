"""devices: what the preparation of TPU chips costs, where there is none and where a process holds one.

The chip is a file: in a mount namespace the PCI bus shows one, and /dev/vfio/0 is another real device. Needs root for that."""

import atexit
import contextlib
import datetime
import os
import re
import subprocess
import sys
from functools import partial

from ..case import Case, Goal
from ..measure import Clock, Sample

DEVICE = (1, 8)
"""/dev/random: hardly any process has it open."""
DESCRIPTORS = 25
PLACE = f"""mount -t tmpfs -o mode=755 none /mnt && cd /mnt && mkdir -p dev/vfio pci/0000:00:04.0 &&
echo 0x1ae0 >pci/0000:00:04.0/vendor && echo 0x0063 >pci/0000:00:04.0/device &&
ln -s ../../../kernel/iommu_groups/0 pci/0000:00:04.0/iommu_group && mount --bind pci /sys/bus/pci/devices &&
mknod -m 666 dev/null c 1 3 && mknod -m 666 dev/zero c 1 5 && mknod -m 666 dev/urandom c 1 9 &&
mknod -m 666 dev/vfio/0 c {DEVICE[0]} {DEVICE[1]} && mount --rbind dev /dev && cd / && echo up && exec cat"""
STALE = {"RLAUNCH_JOB_ID": "0" * 32, "RLAUNCH_SOCKET": "/nonexistent"}
"""A process of a job whose agents have ended."""


class Chip(Clock):
    """A place with a chip, and the clock there: it times the command, and not the way into the namespace."""

    def __init__(self, programs):
        super().__init__(programs)
        self.holder = None

    def within(self, words):
        """The words that run a command there."""
        if self.holder is None:
            # pylint: disable-next=consider-using-with
            self.holder = subprocess.Popen(["unshare", "-m", "sh", "-c", PLACE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if self.holder.stdout.readline() != "up\n":
                sys.exit("bench: no place with a chip can be made")
            atexit.register(self.holder.kill)
        return ["nsenter", "-t", str(self.holder.pid), "-m", "--", *map(str, words)]

    def line(self, words):
        return self.within(words), None

    def output(self, words, **environ):
        """The output of a command there, both streams."""
        done = subprocess.run(self.within(words), env={**os.environ, **environ}, stdin=subprocess.DEVNULL, check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        return done.stdout


@contextlib.contextmanager
def crowd(bench, processes):
    """Starts so many processes."""
    words = [bench.programs["crowd"], str(processes), str(DESCRIPTORS)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as many:
        if many.stdout.readline() != "up\n":
            sys.exit(f"bench: no {processes} processes can be had")
        yield
        many.stdin.close()


def _floor(bench, chip, processes):
    with crowd(bench, processes):
        said = chip.output([bench.programs["proc_scan"], *DEVICE])
    return Sample(float(re.search(r"([0-9.]+) ms", said).group(1)))


def _look(bench, chip, rlaunch, processes):
    """The agent's own measure of its search for holders."""
    with crowd(bench, processes):
        said = chip.output([rlaunch, "-n", 1, "/bin/true"], RLAUNCH_LOG="rlaunch_agent::devices=debug")
    took = re.search(r"searched for holders of devices us=([0-9]+)", said)
    return Sample(int(took.group(1)) / 1e3) if took else Sample(failure="the agent has not looked")


def _stale_once(chip, command):
    """The time that a holder which ends at once adds to a launch, as the difference of two samples."""
    without = chip.milliseconds(command)
    line = chip.within(["sh", "-c", "exec 3</dev/vfio/0; echo up; exec sleep 1000"])
    with subprocess.Popen(line, env={**os.environ, **STALE}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as holder:
        holder.stdout.readline()
        stale = chip.milliseconds(command)
        if stale.failure and holder.poll() is None:
            holder.kill()
    return Sample(failure=stale.failure or without.failure) if None in (stale.value, without.value) else Sample(stale.value - without.value)


def _stale(chip, rlaunch):
    """The middle of five: a difference spreads more than its parts."""
    each = [_stale_once(chip, [rlaunch, "-n", 1, "/bin/true"]) for _ in range(5)]
    failed = [sample for sample in each if sample.failure]
    return failed[0] if failed else sorted(each, key=lambda sample: sample.value)[2]


def _beats(bench, chip, rlaunch, processes, kind):
    """The longest time without a heartbeat until the rank runs, in milliseconds. `tpu` looks at mappings too, for seconds."""
    command = [rlaunch, "--launcher", "exec:env NAME={host}", "-H", "a", "--lease", "2s", "--devices", kind, "/bin/sleep", 1]
    with crowd(bench, processes):
        said = chip.output(command, RLAUNCH_LOG="rlaunch_agent=trace,rlaunch::edges::remote=info")
    stamps = re.findall(r"([-0-9T:.]+)Z TRACE rlaunch_agent::edges: perform action=Beat", said)
    times = [datetime.datetime.fromisoformat(stamp).timestamp() for stamp in stamps]
    if len(times) < 3:
        return Sample(failure=f"{len(times)} heartbeats")
    return Sample(1e3 * max(after - before for before, after in zip(times, times[1:])))


def cases(bench):
    """Cost of the search for TPU chips and their holders for a launch, and the heartbeats meanwhile."""
    rlaunch = bench.launchers.get("rlaunch")
    if rlaunch is None:
        return []
    path, time_of = rlaunch.words[0], partial(partial, bench.clock.milliseconds)
    made = [Case("launch -n 1, no TPU", "ms", {
        "none": time_of([path, "--devices", "none", "-n", 1, "/bin/true"]),
        "rlaunch": time_of([path, "-n", 1, "/bin/true"]),
    }, floor="none", goals=(Goal(1.01, "none"),))]
    if os.geteuid() != 0:
        print("bench: devices: a chip can be shown by root only", file=sys.stderr)
        return made
    chip = Chip(bench.programs)
    some, many = bench.size(2000, 300), bench.size(5000, 600)
    made.append(Case(f"one look, {some} processes", "ms", {
        "scan": partial(_floor, bench, chip, some),
        "rlaunch": partial(_look, bench, chip, path, some),
    }, floor="scan", goals=(Goal(1.3, "scan"),)))
    made.append(Case("a stale holder that obeys", "ms more", {"rlaunch": partial(_stale, chip, path)}, goals=(Goal(50),)))
    made.append(Case(f"longest pause of heartbeats, {many} processes", "ms", {
        "none": partial(_beats, bench, chip, path, many, "none"),
        "rlaunch": partial(_beats, bench, chip, path, many, "tpu"),
    }, goals=(Goal(1.3, "none"),), max_rounds=3))
    return made
