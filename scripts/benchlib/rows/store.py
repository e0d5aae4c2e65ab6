"""store: what torch's TCPStore costs where the agent holds it, beside a bare epoll server of the same wire.

The load generator is a rank of the job, so the guard asks the kernel about each of its connections, as it does for any program.
RLAUNCH_TORCH, a Python with torch 2.x, adds torch's own server (its look-up of every client's name is part of its connects).
"""

import contextlib
import os
import pathlib
import subprocess
import threading
from functools import partial

from .. import procs
from ..case import Case, Goal
from ..measure import Sample

PATIENCE = 120.0
TORCH = """
import os, sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, 1, True)
os.write(1, f"{store.port}\\n".encode())
sys.stdin.read()
os._exit(0)
"""


def _cpu(pid):
    """Processor time of all threads of a process so far, in seconds."""
    spent = (path.read_text().split()[0] for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(map(int, spent)) / 1e9


@contextlib.contextmanager
def _started(command, environ=None):
    """A process with pipes, ended when it is late, and in the end anyhow."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env=environ, start_new_session=True)
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    try:
        yield process
    finally:
        late.cancel()
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _load(bench, words):
    return [bench.programs["store_load"], *map(str, words)]


@contextlib.contextmanager
def _beside(bench, server, words):
    """A load beside a server of its own process, whose pid comes along."""
    with _started(server) as serving:
        port = serving.stdout.readline().strip()
        environ = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with _started(_load(bench, words), environ) as load:
            yield load, lambda: serving.pid


@contextlib.contextmanager
def _in_job(bench, words):
    """The same as a rank, and the agent's pid."""
    launcher = bench.launchers["rlaunch"].with_words("rlaunch", "--master-store", "agent")
    with _started(launcher.command(1, _load(bench, words))) as job:
        yield job, lambda: next(pid for pid in procs.descendants(job.pid) if procs.name(pid) == "rlaunch-agent")


def _step(load, count):
    """Lets the load go on; what it says then, so many words; None if it does not."""
    load.stdin.write("\n")
    load.stdin.flush()
    said = load.stdout.readline().split()
    return said if len(said) == count else None


def _measure(key, clients, start):
    """One figure of one load: connects/s, µs of the server per connect (each adds once) or operation, µs of an operation, or MiB."""
    with start() as (load, server):
        if load.stdout.readline() != "here\n":
            return Sample(failure="the load did not come up")
        pid = server()
        before = _cpu(pid)
        ready = _step(load, 2)
        if ready is None:
            return Sample(failure="the clients did not connect")
        between = _cpu(pid)
        if key in ("connects", "connect cpu"):
            return Sample(float(ready[1]) if key == "connects" else (between - before) / clients * 1e6)
        done = _step(load, 4)
        if done is None:
            return Sample(failure="the load was cut off")
        figures = {"cpu": (_cpu(pid) - between) / int(done[1]) * 1e6, "p50": float(done[2]), "p99": float(done[3]),
                   "rss": procs.memory(pid)["rss"] / 1024}
        return Sample(figures[key])


def _contenders(bench, key, words):
    starts = {"bare": partial(_beside, bench, [bench.programs["store_floor"]], words)}
    if "rlaunch" in bench.launchers:
        starts["rlaunch"] = partial(_in_job, bench, words)
    if os.environ.get("RLAUNCH_TORCH"):
        starts["torch"] = partial(_beside, bench, [os.environ["RLAUNCH_TORCH"], "-W", "ignore", "-c", TORCH], words)
    return {name: partial(_measure, key, words[1], start) for name, start in starts.items()}


def cases(bench):
    """What an operation of the TCPStore costs the agent, and its connects and memory."""
    seconds = bench.size(1.0, 0.3)

    def case(title, unit, key, words, *goals):
        return Case(title, unit, _contenders(bench, key, [*words, seconds]), floor="bare", goals=goals, max_rounds=5)

    return [
        case("store: server's CPU per get, 64 clients", "µs", "cpu", ["get", 64], Goal(1.15, "bare")),
        case("store: server's CPU per add, 64 clients", "µs", "cpu", ["add", 64], Goal(1.15, "bare")),
        case("store: get, 64 clients, p99", "µs", "p99", ["get", 64]),
        case("store: barrier of 256, p50", "µs", "p50", ["barrier", 256], Goal(1.1, "bare")),
        case("store: connects, 256", "1/s", "connects", ["get", 256], Goal(15000, at_least=True)),
        case("store: server's CPU per connect, 256", "µs", "connect cpu", ["get", 256]),
        case("store: server resident, 256 clients", "MiB", "rss", ["add", 256], Goal(8)),
    ]
