"""A controller that ends a group whose workers were killed long ago. The launcher has forgotten how they ended."""

import os

from rlaunch import Store, spawn
from rlaunch.groups import WorkerGroup

store, old = Store(), WorkerGroup("workers.Plain", n=2, name="old")
keys = [f"rlaunch/ended/old/{rank}" for rank in range(2)]
for worker in old.workers:
    os.kill(worker.pid, 9)
store.wait(keys, 30)
for _ in range(200):
    if not store.check(keys):
        break
    spawn([{"argv": ["/bin/true"]}], tolerant=True)
else:
    raise AssertionError("the launcher forgets no group")
assert old.shutdown() is False, "workers that were killed have ended well"
assert {end.how for end in old.ends.values()} == {"unknown"}, old.ends
print("the end is unknown")
