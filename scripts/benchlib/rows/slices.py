"""slices: a slice that loses a host is replaced by a spare one (--spare-slices), beside a restart after the failure of a rank
(--max-restarts). Measured in the event log, from the loss of the host or the exit of the rank until all ranks run again."""

import json
import subprocess
import time
from functools import partial

from .. import hosts as testbed
from ..case import Case, Goal
from ..measure import Sample

SLICES = 5
LIMIT = 1.2
"""A replacement, times a restart."""
SECONDS = 60
IDLE = '[ "$RLAUNCH_RESTART_COUNT" = 0 ] || exit 0; '
PROGRAMS = {"restart": IDLE + '[ "$RANK" = 0 ] || exec sleep 600; while ! [ -e go ]; do sleep 0.02; done; exit 1',
            "rlaunch": IDLE + "exec sleep 600"}
"""The ranks wait in the first generation, and end in the second one."""
RETRIES = {"restart": ["--max-restarts", "1"], "rlaunch": ["--preempt-retries", "1"]}


class SliceHosts(testbed.Hosts):
    """A testbed of its own: hosts lose their power."""

    name = "slices"


def _events(path):
    """The whole lines of an event log, so far."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _times(events, name, **fields):
    return [event["t"] for event in events if event["ev"] == name and all(event.get(key) == value for key, value in fields.items())]


def _is_up(events, slices):
    return len(_times(events, "rank.started")) >= 2 * (slices - 1) and len(_times(events, "host.ready")) >= 2 * slices


def _host(events):
    """The second host of the last slice that ranks run on."""
    taken = next(event["slices"] for event in events if event["ev"] == "slices")
    return f"node{2 * int(taken[-1][1:]) + 1}"


def _verb(hosts, *words):
    subprocess.run([testbed.TESTBED, *words], env=hosts.environ, check=True, stdout=subprocess.DEVNULL)


def _sample(hosts, slices, kind):
    hosts.up()
    folder = hosts.scratch
    go, log = folder / "go", folder / "events"
    for path in (go, log):
        path.unlink(missing_ok=True)
    (folder / "hostfile").write_text("".join(f"node[{2 * n}-{2 * n + 1}] slice=s{n} id=0\n" for n in range(slices)))
    options = ["--ssh-fast", "-f", "hostfile", "--lease", "4s", "--slices", slices - 1, "--spare-slices", 1, "--events", log]
    words = hosts.exec(hosts.rlaunch, *options, *RETRIES[kind], "sh", "-c", PROGRAMS[kind])
    words[words.index("--cwd") + 1] = str(folder)
    deadline = time.monotonic() + SECONDS
    with subprocess.Popen(words, env=hosts.environ, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        try:
            while not _is_up(_events(log), slices):
                if job.poll() is not None or time.monotonic() > deadline:
                    return Sample(failure="the slices did not come up")
                time.sleep(0.05)
            host = _host(_events(log))
            if kind == "restart":
                go.touch()
            else:
                _verb(hosts, "kill-host", host)
            try:
                code = job.wait(SECONDS)
            finally:
                if kind != "restart":
                    _verb(hosts, "start-host", host)
        except subprocess.TimeoutExpired:
            return Sample(failure=f"no end within {SECONDS} s", timed_out=True)
        finally:
            job.kill()
    events = _events(log)
    began = _times(events, "rank.exited", code=1) if kind == "restart" else _times(events, "host.lost")
    starts = _times(events, "rank.started")[2 * (slices - 1):]
    if code or not began or len(starts) != 2 * (slices - 1):
        return Sample(failure=f"exit code {code}, {len(starts)} ranks were started again")
    return Sample((max(starts) - min(began)) / 1e6)


def cases(bench):
    """Time until ranks run again after the loss of a slice."""
    if not testbed.are_possible(bench, "slices"):
        return []
    hosts, slices = SliceHosts(bench), bench.size(SLICES, 2)
    contenders = {kind: partial(_sample, hosts, slices, kind) for kind in PROGRAMS}
    what = f"slices: one of {slices - 1} is replaced" if slices > 2 else "slices: one is replaced"
    return [Case(what, "ms", contenders, floor="restart", goals=(Goal(LIMIT, "restart"),), max_rounds=5)]
