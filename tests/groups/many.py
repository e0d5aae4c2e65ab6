"""Groups of `true` that start and end one after the other: a stop after FIRST workers and one after LAST, at which the test looks at the memory."""

import random
import sys

import rlaunch

first, last, go = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store, numbers, count = rlaunch.Store(), random.Random(1), 0
for stop in (first, last):
    while count < stop:
        # Many groups have the name of one before them.
        ranks, name = numbers.randint(1, 10), numbers.choice(["", "again"])
        world = rlaunch.spawn([{"argv": ["true"], "ranks": ranks}], group=name, tolerant=True)
        store.wait([f"rlaunch/ended/{world.group}/{rank}" for rank in range(ranks)], 60)
        count += ranks
    sys.stdout.write(f"round {stop}\n")
    sys.stdout.flush()
    with open(go) as file:
        file.read(1)
