"""A controller that starts a group again under the name of one that has ended."""

import os

from rlaunch.groups import WorkerDied, WorkerGroup, get

seen = set()
for size in (3, 1, 4):
    with WorkerGroup("workers.Plain", n=size, name="gen") as group:
        found = get(group.run_all_workers_single_data("world"))
        assert found == [[str(rank), str(size), "gen"] for rank in range(size)], found
        assert group.ended_ranks() == [] and not seen & {worker.pid for worker in group.workers}, group.ended_ranks()
        seen |= {worker.pid for worker in group.workers}
        try:
            WorkerGroup("workers.Plain", n=1, name="gen")
        except Exception as error:
            assert "the job has a group gen already" in str(error), error
        else:
            raise AssertionError("two groups of one name")
    assert sorted(group.ended_ranks()) == list(range(size)), group.ended_ranks()

# After the death of all of its workers the name is free too.
group = WorkerGroup("workers.Plain", n=1, name="gen")
try:
    os.kill(group.workers[0].pid, 9)
    group.workers[0].noted().result()
except WorkerDied as error:
    assert error.end.signal == 9, error
with WorkerGroup("workers.Plain", n=2, name="gen") as other:
    assert len(get(other.run_all_workers_single_data("world"))) == 2
group.shutdown()
print("the name was free each time")
