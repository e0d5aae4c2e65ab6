"""A controller whose waits do not end by themselves. A wait ends with an error, or prints a line on stderr."""

import asyncio
import sys
import time

import rlaunch
from rlaunch import Refused
from rlaunch.groups import Cancelled, CallTimeout, WorkerGroup, get, wait
from rlaunch.groups import _notice as notice


class Lines:
    """Stream for stderr that calls a function when a line has this text."""

    def __init__(self, text, do):
        self.text, self.do, self.seen = text, do, []

    def write(self, text):
        sys.__stderr__.write(text)
        self.seen.append(text)
        if self.text in text and self.do:
            do, self.do = self.do, None
            do()

    def flush(self):
        sys.__stderr__.flush()


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"{kind} was not raised")


def says(text, do, call):
    """Makes a call that prints this text while it waits. Calls ``do`` then, and returns the result of the call."""
    sys.stderr = lines = Lines(text, do)
    try:
        return call()
    finally:
        sys.stderr = sys.__stderr__
        assert text in "".join(lines.seen), lines.seen


began = time.monotonic()
known = "it has gen; for a group that another rank starts, give start_timeout=SECONDS"
raises(Refused, f"the job has no group 'nogroup': {known}", lambda: WorkerGroup.attach("nogroup"))
assert time.monotonic() - began < 10
raises(CallTimeout, "the job has no group 'nogroup' after 0.1 s: it has gen", lambda: WorkerGroup.attach("nogroup", start_timeout=0.1))

# Started while it is waited for, as another rank would.
notice.START = notice.CALL = 0.1
program = {"argv": [sys.executable, "-m", "rlaunch.groups.worker", "workers.Plain"]}
text = "waiting for group late, which the job does not have yet: it has gen"
late = says(text, lambda: rlaunch.spawn([program], group="late", bound=True), lambda: WorkerGroup.attach("late", start_timeout=60))
assert late.workers[0].add(x=1).result() == 1 and late.shutdown()
raises(Refused, "group late has been shut down", lambda: late.run_all_workers_single_data("add", x=1))
raises(Refused, f"the job has no group 'nogroup': {known}", lambda: WorkerGroup.attach("nogroup"))

# A program that serves no calls.
text = "waiting for rank 0 of group gen, which does not serve calls yet"
raises(CallTimeout, "rank 0 of group gen does not serve after 1 s", lambda: says(text, None, lambda: WorkerGroup.attach("gen", start_timeout=1)))

# Objects that are not made.
text = "__init__ of ranks 0, 1 of group never"
start = lambda: WorkerGroup("workers.Starts", kwargs={"how": "stay"}, n=2, name="never", start_timeout=3)
raises(CallTimeout, f"{text} has not returned after 3 s", lambda: says(f"waiting for {text}", None, start))

# Calls without a time-out.
with WorkerGroup("workers.Mixed", n=2, name="slow") as group:

    async def awaited(future):
        return await future

    text = "waiting for sleep of rank 1 of group slow"
    for call in (lambda one: one.result(), lambda one: get([one]), lambda one: asyncio.run(awaited(one))):
        future = group.workers[1].sleep(seconds=60)
        raises(Cancelled, "sleep of rank 1 was cancelled", lambda: says(text, future.cancel, lambda: call(future)))
    both = group.run_all_workers_single_data("sleep", seconds=60)
    says("1 of these calls: sleep of ranks 0, 1 of group slow", both[0].cancel, lambda: wait(both))
    stream = group.workers[0].silent()
    raises(Cancelled, "", lambda: says("waiting for silent of rank 0 of group slow", stream.cancel, lambda: next(stream)))
    group.shutdown(force=True)
print("all waits are well", flush=True)
