"""A controller that loses a host of its own group, and one of the group that the command line has started."""

import sys
import time

import rlaunch
from rlaunch.groups import WorkerDied, WorkerGroup, get

given = WorkerGroup.attach("gen", start_timeout=60)
mine = WorkerGroup("workers.Plain", hosts=["node0", "node1"], ppn=1, name="mine")
calls = [given.workers[1].sleep(seconds=600), mine.workers[1].sleep(seconds=600)]
other = mine.workers[0].sleep(seconds=1)
assert get(mine.run_all_workers_single_data("add", x=1)[:1]) == [1]
print("ready", flush=True)
for call in calls:
    try:
        call.result(timeout=120)
        raise AssertionError("it has returned")
    except WorkerDied as died:
        assert (died.rank, died.host, died.end.how) == (1, "node1", "host_lost"), died.end
        print(died, flush=True)
assert other.result() == 1.0 and get(given.workers[0].add(x=2)) == 2
try:
    WorkerGroup("workers.Plain", n=1, hosts=["node1"])
    raise AssertionError("the host is there")
except rlaunch.Error as error:
    print(error, file=sys.stderr)
assert given.shutdown(), given.ends
assert mine.shutdown(cleanup_method="shutdown"), mine.ends
print("the others are well", flush=True)
