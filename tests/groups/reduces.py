"""Two groups that a controller has started use gloo at the same time, with nothing but the environment."""

from rlaunch.groups import WorkerGroup, get

first = WorkerGroup("workers.Plain", n=2, name="first")
second = WorkerGroup("workers.Plain", n=2, name="second", share="first")
sums = first.run_all_workers_single_data("reduce") + second.run_all_workers_single_data("reduce")
assert get(sums) == [3.0] * 4
assert first.shutdown() and second.shutdown()
print("both groups have reduced", flush=True)
