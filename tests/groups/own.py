"""A controller that starts its own groups: environment, failures at the start, deaths, ends."""

import importlib.util
import os
import signal
import sys
import time

import rlaunch
from ends import has_ended
from rlaunch.groups import CallTimeout, WorkerDied, WorkerError, WorkerGroup, get

NAMES = ["GIVEN", "BY_CALLER", "BY_CLASS", "BY_WORKER", "RANK", "WORLD_SIZE"]


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return error
    raise AssertionError(f"{kind} was not raised")


def workers_left(name):
    """Processes of the job that are in a group."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"RLAUNCH_GROUP={name}".encode() in file.read().split(b"\0"):
                    pids.append(int(pid))
        except OSError:
            pass
    return pids


def environment():
    os.environ["CHANGED"], os.environ["CUDA_VISIBLE_DEVICES"] = "by the controller", "7"
    env = {"GIVEN": "by env", "BY_CALLER": "env", "RANK": "9", "MASTER_PORT": "2"}
    with WorkerGroup("workers.Chosen", n=2, name="chosen", env=env, tied=2, python=["env", "OF_ARGV=1", sys.executable]) as group:
        changed = group.workers[0].variables(names=["CHANGED", "CUDA_VISIBLE_DEVICES", "OF_ARGV"]).result()
        assert changed == ["by the controller", None, "1"], changed
        assert [one["bundle_indices"] for one in group.worker_metadata] == [(0, [0, 1]), None], group.worker_metadata
        assert env == {"GIVEN": "by env", "BY_CALLER": "env", "RANK": "9", "MASTER_PORT": "2"}, "no argument is changed"
        found = get(group.run_all_workers_single_data("variables", names=NAMES))
        assert found == [["by env", "env", "class", "worker", str(rank), "2"] for rank in range(2)], found
        assert get(group.run_all_workers_single_data("add", x=1)) == [101, 102]
        ports = get(group.run_all_workers_single_data("variables", names=["MASTER_PORT"]))
        assert ports[0] == ports[1] and int(ports[0][0]) > 2, ports


def starts():
    """Starts all workers or none, and reports the first failure with its last words."""
    died = raises(WorkerDied, "rank 1 of group broken", lambda: WorkerGroup("workers.Starts", kwargs={"how": "die"}, n=3, name="broken"))
    assert died.end.signal == signal.SIGKILL and "cannot begin" in died.last_words, died
    error = raises(RuntimeError, "no object here", lambda: WorkerGroup("workers.Starts", kwargs={"how": "raise"}, n=3, name="odd"))
    assert error.__cause__.rank == 1
    error = raises(WorkerDied, "has no class 'None'", lambda: WorkerGroup("workers.None", n=2, name="none"))
    raises(rlaunch.Error, "cannot be started", lambda: WorkerGroup("workers.Plain", n=2, name="absent", python="./absent"))
    raises(CallTimeout, "", lambda: WorkerGroup("workers.Starts", kwargs={"how": "stay"}, n=2, name="late", start_timeout=2))
    for name in ("broken", "odd", "none", "absent", "late"):
        assert workers_left(name) == [], name


def deaths():
    """Kills workers in a call and in a stream, during calls of other workers."""
    group = WorkerGroup("workers.Plain", n=3, name="mortal")
    other, call, stream = group.workers[0].sleep(seconds=0.3), group.workers[1].sleep(seconds=60), group.workers[2].count(n=10**9)
    assert next(stream) == 0
    os.kill(group.workers[1].pid, signal.SIGKILL)
    began = time.monotonic()
    died = raises(WorkerDied, "was killed by signal 9", lambda: call.result(timeout=60))
    print(f"the death was known after {(time.monotonic() - began) * 1000:.0f} ms", file=sys.stderr, flush=True)
    assert (died.rank, died.host) == (1, group.workers[1].host) and time.monotonic() - began < 5
    os.kill(group.workers[2].pid, signal.SIGSEGV)
    assert raises(WorkerDied, "signal 11", lambda: [None for _ in stream]).rank == 2
    assert other.result(timeout=60) == 0.3 and group.workers[0].add(x=1).result() == 1
    raises(WorkerDied, "rank 2", lambda: group.workers[2].add(x=1).result())
    # Workers that are dead already are no failure of the end, also not of the second.
    assert group.shutdown(cleanup_method="shutdown") and group.shutdown()
    ends = {rank: (end.how, end.signal) for rank, end in group.ends.items()}
    assert ends == {0: ("exit", 0), 1: ("signal", 9), 2: ("signal", 11)}, ends


def serializers():
    """Uses groups without pickle: values of JSON or msgpack, and exceptions as texts."""
    names = ["json", "msgpack"]
    if importlib.util.find_spec("msgpack") is None:
        raises(ImportError, "pip install msgpack", lambda: WorkerGroup("workers.Plain", n=1, serializer=names.pop()))
    for name in names:
        with WorkerGroup("workers.Plain", kwargs={"base": 1}, n=1, name=f"by-{name}", serializer=name) as group:
            group._codec = 0  # What a caller that chooses pickle sends.
            call = group.run_single_worker_single_data("add", 0, x=2)
            raises(WorkerError, f"cannot be rebuilt in the worker: ValueError: it is sent as pickle, and the group takes {name}", lambda: get(call))
            group._codec = group.workers[0].codec
            first = group.workers[0]
            assert first.add(x=2).result() == 3 and first.echo(a=[1, None]).result() == {"a": [1, None]}
            assert list(first.count(n=3)) == [0, 1, 2]
            raises(WorkerError, "ValueError: no", first.fail(text="no").result)
            raises(WorkerError, "cannot be sent", first.lock().result)
            raises(TypeError, "serializ", lambda: first.echo(a=object()))
            if name == "msgpack":
                large = {"a": {1: b"z" * (1 << 20)}}
                assert first.echo(**large).result() == large


def errors():
    """Checks that each call is answered, and ends the worker only if its method does."""
    with WorkerGroup("workers.Mixed", n=2, name="faulty") as group:
        first = group.workers[0]
        raises(WorkerError, "NoText: <no text", lambda: first.fail_without_text().result(timeout=60))
        raises(WorkerError, "CancelledError", lambda: first.cancel_itself().result(timeout=60))
        assert first.stop_loop().result(timeout=60) is None and first.pause(seconds=0).result(timeout=60) == 0
        raises(WorkerDied, "exited with code 3", lambda: first.exit(code=3).result(timeout=60))
        raises(WorkerDied, "exited with code 4", lambda: group.workers[1].leave(code=4).result(timeout=60))


def shutdowns():
    group = WorkerGroup("workers.Plain", n=2, name="slow")
    child = group.workers[0].start_child().result()
    waiting = group.workers[0].sleep(seconds=60)
    began = time.monotonic()
    # The cleanup waits for the call before it.
    assert not group.shutdown(cleanup_method="shutdown", timeout=0.5)
    assert time.monotonic() - began < 30 and has_ended(child)
    raises(WorkerDied, "rank 0", lambda: waiting.result(timeout=60))
    with WorkerGroup("workers.Plain", n=1, name="bad") as group:
        assert not group.shutdown(cleanup_method="shutdown_badly")
    # Results that are never read are no hindrance.
    group = WorkerGroup("workers.Plain", n=1, name="unread")
    unread = [group.workers[0].echo(x=bytes(8 << 20)) for _ in range(8)]
    assert group.shutdown(force=True), group.ends
    assert sum(future.done() for future in unread) == 8
    group = WorkerGroup("workers.Plain", n=2, name="forced")
    waiting = group.workers[1].sleep(seconds=60)
    assert group.shutdown(cleanup_method="shutdown_slowly", force=True), group.ends
    assert all(end.asked for end in group.ends.values()), group.ends
    raises(WorkerDied, "was ended", lambda: waiting.result(timeout=60))


for part in (environment, starts, deaths, errors, serializers, shutdowns):
    began = time.monotonic()
    part()
    print(f"{part.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
print("all groups are well", flush=True)
