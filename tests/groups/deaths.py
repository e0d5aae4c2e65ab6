"""A controller whose workers die: in a call, in a stream, with a child that holds the connection."""

import os
import sys
import time

from rlaunch.groups import WorkerDied, WorkerGroup, get

group = WorkerGroup.attach("gen", start_timeout=60)
has_reasons = len(sys.argv) > 1


def dies(rank, future, words="these are the last words"):
    began = time.monotonic()
    try:
        future.result(timeout=60)
    except WorkerDied as died:
        took = time.monotonic() - began
        assert died.rank == rank and died.host == group._all[rank].host, died
        if has_reasons:
            assert died.end.signal == 9 and words in died.last_words, died
        print(f"rank {rank} died after {took:.3f} s", flush=True)
        return
    raise AssertionError(f"rank {rank} lives")


waiting = group.workers[0].sleep(seconds=0.2)
dies(1, group.workers[1].die())
dies(1, group.workers[1].add(x=1))
dies(2, group.workers[2].fork_and_die())
stream = group.workers[3].count(n=100, die_at=40)
seen = []
try:
    for number in stream:
        seen.append(number)
except WorkerDied as died:
    assert died.rank == 3
assert len(seen) >= 20 and seen == list(range(len(seen))), seen
# The others continue.
assert waiting.result() == 0.2 and get(group.workers[0].add(x=1)) == 1
assert [group.is_alive(rank) for rank in range(4)] == [True, False, False, False]
try:
    get(group.run_all_workers_single_data("add", x=1))
    raise AssertionError("all of them live")
except WorkerDied as died:
    assert died.rank == 1
assert group.shutdown(cleanup_method="shutdown", timeout=60), group.ends
print("ends", sorted(group.ends), flush=True)
