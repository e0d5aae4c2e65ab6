"""strangers: a job's time while another user tries everything against it, beside its time without, and beside one who is
as busy with something else: what a busy neighbour costs is the kernel's business."""

import os
import pathlib
import shutil
import subprocess
import sys
from functools import partial

from .. import stranger
from ..case import Case, Goal
from ..measure import Sample

NOBODY = 65534
WORK = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; seq 100000"


PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin")
"""Python that other users may run: our own may be in a home directory."""


def _sample(bench, command, aim):
    if aim is None:
        return bench.clock.milliseconds(command)
    text = pathlib.Path(stranger.__file__).read_text(encoding="utf-8")
    with subprocess.Popen([PYTHON, "-c", text, str(os.getpid()), aim], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[]) as other:
        if other.stdout.readline() != "ready\n":
            return Sample(failure="the stranger did not come up")
        sample = bench.clock.milliseconds(command)
        passes, _held, succeeded = other.communicate()[0].rstrip("\n").split(" ", 2)
    if int(passes) == 0:
        return Sample(failure="the stranger had no time for a single pass")
    return Sample(failure=f"a stranger could {succeeded}") if succeeded and aim == "job" else sample


def cases(bench):
    """Time of a job while another user attacks it (root only).

    There is no case without root, which can start processes of other users, or without rlaunch."""
    if os.geteuid() != 0 or PYTHON is None or "rlaunch" not in bench.launchers:
        print("strangers: absent: needs root, rlaunch, and the system's python3", file=sys.stderr)
        return []
    command = bench.launchers["rlaunch"].command(1, ["sh", "-c", WORK], label=True)
    aims = {"rlaunch": None, "neighbour": "else", "attacked": "job"}
    contenders = {name: partial(_sample, bench, command, aim) for name, aim in aims.items()}
    goals = (Goal(1.05, "neighbour", who="attacked"), Goal(1.05, "rlaunch", who="attacked"))
    return [Case("a job while another user attacks", "ms", contenders, floor="rlaunch", goals=goals)]
