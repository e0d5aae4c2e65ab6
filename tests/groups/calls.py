"""A controller that calls its workers in every way."""

import threading
import time

from ends import has_ended
from rlaunch import groups
from rlaunch.groups import CallTimeout, NamedSharding, WorkerError, WorkerGroup, get, wait

layout = NamedSharding([[0, 1], [2, 3]], ["data_parallel", "tensor_parallel"])
group = WorkerGroup.attach("gen", kwargs={"base": 10}, sharding=layout, start_timeout=60)
first = group.workers[0]

assert len(group.workers) == 4 and group.dp_size == 4, group.workers
assert get(group.run_all_workers_single_data("world")) == [[str(rank), "4", "gen"] for rank in range(4)]
assert get(group.run_all_workers_single_data("add", x=5)) == [15, 16, 17, 18]
assert get(group.run_all_workers_single_data("add", x=5, run_rank_0_only_axes=["tensor_parallel"])) == [15, 17]
assert get(group.run_all_workers_multiple_data("add", x=[1, 2, 3, 4])) == [11, 13, 15, 17]
assert get(group.run_all_workers_multiple_data("echo", a=[1, 2], common_kwargs={"b": 3}, run_rank_0_only_axes=["tensor_parallel"])) == [
    {"a": 1, "b": 3},
    {"a": 2, "b": 3},
]
bundle = group.run_all_workers_sharded_data(
    "echo",
    x=["left", "right"],
    in_sharded_axes=["data_parallel"],
    replicate_on_axes=["tensor_parallel"],
    output_is_replicated=["tensor_parallel"],
)
assert bundle.called_workers == [0, 1, 2, 3] and bundle.return_from_workers == [0, 2]
assert group.get_all_worker_results(bundle) == [{"x": "left"}, {"x": "right"}]
bundle = group.run_all_workers_sharded_data("count", n=[2, 3], in_sharded_axes=["data_parallel"])
assert group.get_all_worker_results(bundle) == [0, 1, 0, 1, 2]


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return error
    raise AssertionError(f"{kind} was not raised")


# No worker is called before all arguments are checked.
raises(IndexError, "out of range", lambda: group.run_all_workers_sharded_data("note", what=["x"], in_sharded_axes=["data_parallel"]))
raises(TypeError, "pickle", lambda: group.run_all_workers_multiple_data("note", what=["x", threading.Lock(), "x", "x"]))
raises(ValueError, "Axis 'no' not found", lambda: group.run_all_workers_sharded_data("note", in_sharded_axes=["no"], what=[1]))
raises(AssertionError, "number of workers = 4", lambda: group.run_all_workers_multiple_data("note", what=[1]))
raises(AssertionError, "use kwargs instead", lambda: group.run_all_workers_single_data("note", 1))
raises(AttributeError, "they have add, closings", lambda: group.run_all_workers_single_data("nothing"))
raises(IndexError, "Valid range is [0, 3]", lambda: group.get_dp_leader_worker_idx(4))
assert get(group.run_all_workers_single_data("noted")) == [[]] * 4
# Collections are on, and pass over the modules that the worker has imported itself.
assert first.collects().result() == (True, True)

error = raises(ValueError, "over there", group.workers[2].fail(text="over there").result)
assert error.__cause__.rank == 2 and "in fail" in error.__cause__.traceback, error.__cause__
error = raises(WorkerError, "rank 1: workers.Plain.fail_oddly.<locals>.Odd: odd", group.workers[1].fail_oddly().result)
raises(TypeError, "the result of lock cannot be sent", first.lock().result)
raises(TypeError, "unexpected keyword", first.add(y=1).result)

# In order, and a call that has not begun is not made when it is cancelled.
slow = first.sleep(seconds=0.5)
noted = [first.note(what=number) for number in range(5)]
assert noted[2].cancel() and not noted[2].cancel() is None and noted[2].cancelled()
raises(CallTimeout, "sleep of rank 0 has not returned after 0.05 s", lambda: slow.result(timeout=0.05))
done, pending = wait([slow, group.workers[1].add(x=1)], num_returns=1)
assert [future.rank for future in done] == [1] and len(pending) == 1
assert first.noted().result() == [0, 1, 3, 4] and slow.result() == 0.5
began = time.monotonic()
both = [group.workers[3].sleep(seconds=12), group.workers[1].fail(text="first")]
raises(ValueError, "first", lambda: get(both))
assert time.monotonic() - began < 10
assert raises(CallTimeout, "results have not come", lambda: get(both[:1], timeout=0.05))

# On this host large values lie in shared memory, which is used again.
large = bytearray(range(256)) * (16 << 10)
import pickle

for _ in range(3):
    assert get([group.workers[rank].size(data=pickle.PickleBuffer(large)) for rank in range(3)]) == [4 << 20] * 3
assert first.size(data=bytes(large)).result() == 4 << 20
until = time.monotonic() + 30
while group._arena.used and time.monotonic() < until:
    first.noted().result()
assert group._arena.used == 0, group._arena.used
assert first.keep(data=pickle.PickleBuffer(large)).result() == bytes(range(4))
assert group._arena.used == (4 << 20 if first.has_arena else 0)
# Each worker writes to a copy of its own, and the next value is whole.
assert get(group.run_all_workers_single_data("scale", data=pickle.PickleBuffer(large))) == [b"\x02\x01"] * 4
assert first.keep(data=pickle.PickleBuffer(large)).result() == bytes(range(4)) and large[0] == 0
first.drop().result()
first.noted().result()
assert group._arena.used == 0, group._arena.used
assert first.echo(x=bytes(large)).result()["x"] == large

# Several threads wait at the same time.
threads = [threading.Thread(target=lambda rank=rank: [group.workers[rank].add(x=n).result() for n in range(100)]) for rank in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

assert groups.get(first.add(x=1)) == 11
# An engine that a worker has started ends with it.
child, is_near = group.workers[1].start_child().result(), group.workers[1].is_near
assert group.shutdown(cleanup_method="shutdown", timeout=60) and group.shutdown()
assert group.workers == [] and (not is_near or has_ended(child))
print("all calls are well", flush=True)
