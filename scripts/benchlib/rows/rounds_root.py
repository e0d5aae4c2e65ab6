"""rounds-root: what the root computes in a round of 16,384 ranks on 2,048 hosts, from the fault to the last begin that it has encoded."""

import re
import subprocess
from functools import partial

from .. import toolbox
from ..case import Case, Goal
from ..measure import Sample


def _figure(program, line, pattern):
    said = subprocess.run([program], stdout=subprocess.PIPE, check=True, timeout=120, text=True).stdout
    found = re.search(rf"^{re.escape(line)} .*?{pattern}", said, re.MULTILINE)
    return Sample(float(found[1])) if found else Sample(failure=f"it says nothing of {line!r}")


def cases(bench):
    """Cost of a round of 16,384 ranks: work of the launcher, bytes to and from each host, and an assignment by a tree."""
    if "rlaunch" not in bench.launchers:
        return []
    rounds, assign = (toolbox.build_example(package, name)
                      for package, name in (("rlaunch-restart", "round_speed"), ("rlaunch-plan", "assign_speed")))
    milliseconds = r"([\d.]+) ms"
    figures = (
        ("root computes", "ms", milliseconds, (Goal(200),)),
        ("told to a host", "bytes", r"(\d+) bytes to a host", ()),
        ("heard from one", "bytes", r"(\d+) from it", ()),
    )
    made = []
    for policy in ("all,shift", "a tree"):
        for what, unit, pattern, goals in figures:
            contenders = {"rlaunch": partial(_figure, rounds, policy, pattern)}
            made.append(Case(f"round of 16384 ranks on 2048 hosts, {policy}: {what}", unit, contenders, goals=goals, max_rounds=3))
    tree = {"rlaunch": partial(_figure, assign, "built, and the first round", milliseconds)}
    made.append(Case("16384 ranks assigned by a tree of 3 layers", "ms", tree, goals=(Goal(5),), max_rounds=3))
    return made
