"""store: what torch's TCPStore costs where the agent holds it, beside a bare epoll server of the same wire and redis-server; and
store-own: what rlaunch's own store costs, beside a bare server on a unix socket.

The load generator is a rank of the job, so the guard asks the kernel about each of its connections, as it does for any program.
redis-server takes part where it is installed, but in the barrier, for which it has no word. RLAUNCH_TORCH, a Python with torch 2.x, adds
torch's own server (its look-up of every client's name is part of its connects).
"""

import itertools
import os
import shutil
from functools import partial

from .. import servers
from ..case import Case, Goal
from ..measure import Sample
from ..servers import Target

NUMBERS = itertools.count()


def _measure(key, clients, start):
    """One figure of one load: connects/s, µs of the server per connect (each adds once) or operation, µs of an operation, or MiB."""
    with start() as (load, serving):
        if load.stdout.readline() != "here\n":
            return Sample(failure="the load did not come up")
        target = Target(serving())
        before = target.cpu()
        ready = servers.step(load, 2)
        if ready is None:
            return Sample(failure="the clients did not connect")
        between = target.cpu()
        if key in ("connects", "connect cpu"):
            return Sample(float(ready[1]) if key == "connects" else (between - before) / clients * 1e6)
        done = servers.step(load, 4)
        if done is None:
            return Sample(failure="the load was cut off")
        figures = {"cpu": (target.cpu() - between) / int(done[1]) * 1e6, "p50": float(done[2]), "p99": float(done[3]),
                   "rss": target.resident()}
        return Sample(figures[key])


def _case(title, unit, key, clients, starts, *goals):
    contenders = {name: partial(_measure, key, clients, start) for name, start in starts.items()}
    return Case(title, unit, contenders, floor="bare", goals=goals, max_rounds=5)


def _torch_wire(bench, operation, clients, seconds):
    """Servers of torch's wire, and redis: all over TCP."""
    words = ["torch", operation, clients, seconds]
    starts = {"bare": partial(servers.beside, bench, lambda: [bench.programs["store_floor"]], words)}
    if "rlaunch" in bench.launchers:
        starts["rlaunch"] = partial(servers.in_job, bench, 1, words)
    if shutil.which("redis-server") and operation != "barrier":
        starts["redis"] = partial(servers.redis, bench, ["redis", *words[1:]])
    if os.environ.get("RLAUNCH_TORCH"):
        starts["torch"] = partial(servers.beside, bench, servers.torch, words)
    return starts


def cases(bench):
    """Cost of operations of the TCPStore for the agent, of its connects, and its memory."""
    seconds = bench.size(1.0, 0.3)

    def case(title, unit, key, operation, clients, *goals):
        return _case(f"store: {title}", unit, key, clients, _torch_wire(bench, operation, clients, seconds), *goals)

    return [
        case("server's CPU per get, 64 clients", "µs", "cpu", "get", 64, Goal(1.15, "bare")),
        case("server's CPU per add, 64 clients", "µs", "cpu", "add", 64, Goal(1.15, "bare")),
        case("get, 64 clients, p99", "µs", "p99", "get", 64),
        case("add, 64 clients, p99", "µs", "p99", "add", 64),
        case("barrier of 256, p50", "µs", "p50", "barrier", 256, Goal(1.1, "bare")),
        case("barrier of 256, p99", "µs", "p99", "barrier", 256),
        case("connects, 256", "1/s", "connects", "get", 256, Goal(15000, at_least=True)),
        case("server's CPU per connect, 256", "µs", "connect cpu", "get", 256),
        case("server resident, 256 clients", "MiB", "rss", "add", 256, Goal(8)),
    ]


def _own(bench, space, operation, clients, seconds):
    """A space of rlaunch's own store; a bare server of torch's wire on a unix socket."""
    floor = {"fence": "barrier"}.get(operation, operation)
    ranks = clients if operation == "fence" else 1

    def bare():
        path = f"{bench.scratch}/floor-{next(NUMBERS)}"
        words = ["torch", floor, clients, seconds]
        return servers.beside(bench, lambda: [bench.programs["store_floor"], path], words, path)

    starts = {"bare": bare}
    if "rlaunch" in bench.launchers:
        starts["rlaunch"] = partial(servers.in_job, bench, ranks, [space, operation, clients, seconds])
    return starts


def own_cases(bench):
    """Cost of operations of rlaunch's own store for agent and launcher, and of a fence of 256 ranks."""
    seconds = bench.size(1.0, 0.3)

    def case(title, unit, key, space, operation, clients, *goals):
        starts = _own(bench, space, operation, clients, seconds)
        return _case(f"own store, {space}: {title}", unit, key, clients, starts, *goals)

    return [
        case("servers' CPU per get, 64 clients", "µs", "cpu", "job", "get", 64, Goal(1.2, "bare")),
        case("servers' CPU per add, 64 clients", "µs", "cpu", "generation", "add", 64, Goal(1.2, "bare")),
        case("servers' CPU per add, 64 clients", "µs", "cpu", "job", "add", 64),
        case("get, 64 clients, p99", "µs", "p99", "job", "get", 64),
        case("fence of 256 (bare: add and wait), p50", "µs", "p50", "generation", "fence", 256, Goal(1200), Goal(0.8, "bare")),
        case("fence of 256 (bare: add and wait), p50", "µs", "p50", "job", "fence", 256, Goal(1200), Goal(0.8, "bare")),
        case("connects, 256", "1/s", "connects", "generation", "get", 256),
        case("servers resident, 256 clients", "MiB", "rss", "generation", "add", 256),
    ]
