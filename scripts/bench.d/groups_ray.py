"""The figures of `scripts/bench groups` for Ray: `groups_ray.py one|all|sharded|same|start|shutdown WORKERS SECONDS BEGIN`."""

import os
import sys
import time

import numpy as np
import ray

from groups_controller import SAME, SHARDED, timed
from groups_worker import Load


def main(what, workers, seconds, begin):
    # Ray's own processes print warnings, also after the figure.
    out = os.dup(1)
    os.dup2(2, 1)
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    actors = [ray.remote(num_cpus=1)(Load).remote() for _ in range(workers)]
    ray.get([actor.empty.remote() for actor in actors])
    started = (time.monotonic() - begin) * 1e3
    if what == "start":
        figure = started
    elif what == "one":
        figure = timed(lambda: ray.get(actors[0].empty.remote()), seconds) * 1e6
    elif what == "all":
        figure = timed(lambda: ray.get([actor.empty.remote() for actor in actors]), seconds) * 1e6
    elif what == "sharded":
        parts = np.array_split(np.ones(SHARDED // 8), workers)
        call = lambda: ray.get([actor.take.remote(part) for actor, part in zip(actors, parts)])  # noqa: E731
        figure = SHARDED / timed(call, seconds) / 1e9
    elif what == "same":
        data = np.ones(SAME // 8)
        call = lambda: (lambda ref: ray.get([actor.take.remote(ref) for actor in actors]))(ray.put(data))  # noqa: E731
        figure = timed(call, seconds) * 1e3
    else:
        ends = ray.get([actor.shutdown.remote() for actor in actors])
        for actor in actors:
            ray.kill(actor)
        ray.shutdown()
        figure = (time.monotonic() - max(ends)) * 1e3
    os.write(out, f"{figure}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
