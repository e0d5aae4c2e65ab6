"""The controller of `scripts/bench groups`: prints one figure.

    groups_controller.py one|all|sharded|same|start|shutdown WORKERS SECONDS BEGIN

BEGIN is the time of the start of the job, for `start`.
"""

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


def main(what, workers, seconds, begin):
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
