"""A controller that starts, uses and ends groups until it is killed, or has done so a few times."""

import sys

from rlaunch.groups import WorkerGroup, get

for number in range(int(sys.argv[1])):
    group = WorkerGroup("workers.Mixed", n=2, name=f"g{number}")
    stream = group.workers[0].tokens(n=10**9)
    group.workers[1].start_child().result()
    calls = group.run_all_workers_single_data("add", x=1)
    assert [next(stream) for _ in range(100)] == list(range(100))
    assert get(calls) == [1, 2]
    if number % 2:
        group.workers[1].sleep(seconds=600)
        group.shutdown(force=True)
    else:
        stream.cancel()
        assert group.shutdown(cleanup_method="shutdown"), group.ends
