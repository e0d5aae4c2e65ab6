"""The controller of `scripts/bench groups`: prints one figure.

    groups_controller.py one|all|sharded|same|start|shutdown WORKERS SECONDS BEGIN
    groups_controller.py strangers|neighbour 1 SECONDS BEGIN

BEGIN is the time of the start of the job, for `start`. `strangers` and `neighbour` start the worker themselves, with a port for other hosts.
"""

import pathlib
import subprocess
import sys
import time

from rlaunch.groups import NamedSharding, WorkerGroup, get

SHARDED, SAME = 1 << 30, 128 << 20


def median(times):
    return sorted(times)[len(times) // 2]


def timed(call, seconds, least=5):
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < least:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    # The first one makes the pages.
    return median(times[1:])


def disturbed(group, port, seconds):
    """The mean of all calls while 1,000 connections come to a port: a median would not show those that wait."""
    stranger = pathlib.Path(__file__).parent / "groups_stranger.py"
    with subprocess.Popen([sys.executable, stranger, "127.0.0.1", str(port), str(seconds)], stdout=subprocess.PIPE) as other:
        time.sleep(0.2)
        began, calls = time.perf_counter(), 0
        while other.poll() is None:
            group.workers[0].empty().result()
            calls += 1
        took = time.perf_counter() - began
        if other.stdout.read() != b"0\n":
            sys.exit("a stranger got a byte")
    return took / calls * 1e6


def strangers(what, seconds):
    from rlaunch import Store

    group = WorkerGroup("groups_worker.Load", n=1)
    lines = dict(line.split("=", 1) for line in Store().get(f"rlaunch-groups/{group.name}/0").decode().splitlines())
    port = int(lines["tcp"].split(",")[0].rpartition(":")[2])
    print(disturbed(group, port if what == "strangers" else 0, seconds), flush=True)
    group.shutdown()


def main(what, workers, seconds, begin):
    if what in ("strangers", "neighbour"):
        return strangers(what, seconds)
    group = WorkerGroup.attach("bench", sharding=NamedSharding(list(range(workers)), ["data"]))
    get(group.run_all_workers_single_data("empty"))
    started = (time.monotonic() - begin) * 1e3
    if what == "start":
        figure = started
    elif what == "one":
        figure = timed(lambda: group.workers[0].empty().result(), seconds) * 1e6
    elif what == "all":
        figure = timed(lambda: get(group.run_all_workers_single_data("empty")), seconds) * 1e6
    elif what == "sharded":
        import numpy as np  # Only where it is used: a start does not wait for it.

        parts = np.array_split(np.ones(SHARDED // 8), workers)
        call = lambda: group.run_all_workers_sharded_data("take", data=parts, in_sharded_axes=["data"]).get_results()  # noqa: E731
        figure = SHARDED / timed(call, seconds) / 1e9
    elif what == "same":
        import numpy as np

        # Zeros would be one page, which is read from a cache.
        data = np.ones(SAME // 8)
        figure = timed(lambda: get(group.run_all_workers_single_data("take", data=data)), seconds) * 1e3
    else:
        ends = get(group.run_all_workers_single_data("shutdown"))
        group.shutdown()
        figure = (time.monotonic() - max(ends)) * 1e3
    print(figure, flush=True)
    if what != "shutdown":
        group.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
