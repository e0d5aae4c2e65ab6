"""ssh-stdout and ssh-stdin: the rows stdout and stdin with ranks on other hosts. rlaunch's bytes travel in ssh, and so do the
floor's; Hydra's and prterun's in connections of their own, in clear."""

import dataclasses
import hashlib
import os
import tempfile
from functools import partial

from .. import hosts as testbed
from ..case import Case, Goal
from ..measure import Sample
from . import stdin, stdout

INPUT_BYTES = 256 << 20
SECONDS = 40
ROUNDS = 5


def stdout_cases(bench):
    """Rate of the output of ranks on 4 hosts, labelled and plain."""
    hosts = testbed.of(bench, "ssh-stdout")
    if not hosts:
        return []
    far = hosts.bench(stdout.RANKS)
    lines = stdout.Output(far, "format", 4000, seconds=SECONDS)
    one = f"ssh node%d RANK=%d {' '.join(lines.program)} &"
    bare = ["sh", "-c", " ".join(one % (rank, rank) for rank in range(stdout.RANKS)) + " wait"]

    def case(title, to_file, labelled, goals=()):
        made = stdout.case(far, title, lines, to_file, labelled, goals, floor=None if labelled else ("ssh", bare))
        return dataclasses.replace(made, max_rounds=ROUNDS)

    ahead = (Goal(1, "hydra", at_least=True),)
    return [
        case("ssh-stdout of 4 hosts, labelled, to /dev/null", False, True, ahead),
        case("ssh-stdout of 4 hosts, labelled, to a file", True, True, ahead),
        case("ssh-stdout of 4 hosts, to /dev/null", False, False),
    ]


def _differs(far, given):
    """Whether SHA-256 of what rank 0 has read is not that of what was sent."""
    given.make()
    descriptor, answer = tempfile.mkstemp(dir=far.scratch)
    with os.fdopen(descriptor, "rb"):
        command = far.launchers["rlaunch"].command(1, ["sha256sum"])
        sample = far.clock.run(command, seconds=SECONDS, stdin=given.path, stdout=answer)
    if sample.failure:
        return sample
    with open(given.path, "rb") as sent, open(answer, "rb") as seen:
        return Sample(int(seen.read().split()[0].decode() != hashlib.sha256(sent.read()).hexdigest()))


def stdin_cases(bench):
    """Rate of a large input to rank 0 on another host, exact to the last byte."""
    hosts = testbed.of(bench, "ssh-stdin")
    if not hosts:
        return []
    far = dataclasses.replace(hosts.bench(1), stdin_bytes=min(bench.stdin_bytes, INPUT_BYTES))
    given = stdin.Input(far)
    contenders = {
        "ssh": partial(given.rate, lambda sink: ["ssh", "node0", *sink]),
        "rlaunch": partial(given.rate, lambda sink: far.launchers["rlaunch"].command(1, sink)),
    }
    size = f"{given.size >> 20} MiB to rank 0 on another host"
    return [
        Case(f"ssh-stdin, {size}", "MB/s", contenders, floor="ssh", max_rounds=ROUNDS),
        Case(f"ssh-stdin, {size}: SHA-256 differs", "times", {"rlaunch": partial(_differs, far, given)}, goals=(Goal(0),),
             max_rounds=1),
    ]
