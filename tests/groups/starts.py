"""A controller whose workers do not start."""

import sys

from rlaunch.groups import WorkerDied, WorkerGroup

how = sys.argv[1]
try:
    WorkerGroup.attach("gen", kwargs={"how": how}, start_timeout=60)
    raise AssertionError("it has started")
except RuntimeError as error:
    assert how == "raise" and str(error) == "no object here", error
    assert error.__cause__.rank == 1
except WorkerDied as died:
    assert how == "die" and died.rank == 1, died
print("not started", flush=True)
