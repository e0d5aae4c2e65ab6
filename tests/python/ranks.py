"""Ranks of the tests: `python ranks.py NAME` runs a function of this file under the Wrapper, and prints its result."""

import ctypes
import datetime
import gc
import os
import queue
import signal
import socket
import sys
import threading
import time

import rlaunch
import rlaunch.inprocess as ip
from rlaunch.inprocess import _call, _interrupt

FIRST = int(os.environ.get("RLAUNCH_RANK", "0"))
raised_at = None


def out(*words):
    """Prints a line in one write, so that lines of ranks do not mix."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def seconds(number):
    return datetime.timedelta(seconds=number)


def busy(span):
    """Runs bytecode for so many seconds."""
    end = time.monotonic() + span
    while time.monotonic() < end:
        pass


def blocked(wait):
    """In the first round all ranks wait with this function; rank 0 fails when all others are about to wait."""

    def fn(call: ip.CallWrapper):
        if call.iteration > 0:
            return call.iteration
        out("waits")
        if FIRST == 0:
            sys.stdin.readline()
            raise ValueError("ordered")
        wait(call)

    return fn


def forever():
    while True:
        pass


def lock_twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def receive():
    one, other = socket.socketpair()
    one.recv(1)
    other.close()


class Tough:
    """Object whose deletion waits, and whose exceptions Python drops."""

    def __del__(self):
        time.sleep(60)


def deletion():
    _interrupt.LONGEST_DELETION = 0.2
    Tough()
    time.sleep(60)


class Careful:
    """Object whose deletion does work that takes a while."""

    def __del__(self):
        busy(0.2)
        time.sleep(0.1)
        out("ended")


def careful():
    Careful()
    forever()


def imports():
    import takes_long  # noqa: F401

    time.sleep(60)


def swallow():
    try:
        time.sleep(60)
    except BaseException:
        out("swallowed")
    time.sleep(60)


def clean_up():
    try:
        time.sleep(60)
    finally:
        busy(0.3)
        out("cleaned up")


def garbage():
    """Waits in a callback of the collector."""

    def called(phase, info):
        if phase == "start":
            time.sleep(60)

    gc.callbacks.append(called)
    try:
        gc.collect()
        time.sleep(60)
    finally:
        gc.callbacks.remove(called)


WAITS = {
    "sleep": lambda: time.sleep(60),
    "queue": lambda: queue.Queue().get(),
    "event": lambda: threading.Event().wait(),
    "lock": lock_twice,
    "receive": receive,
    "bytecode": forever,
    "deletion": deletion,
    "careful": careful,
    "imports": imports,
    "swallow": swallow,
    "clean_up": clean_up,
    "garbage": garbage,
}


def hooks(**named):
    """Functions as hooks."""
    kinds = {
        "initialize": ip.initialize.Initialize,
        "abort": ip.abort.Abort,
        "finalize": ip.finalize.Finalize,
        "health_check": ip.health_check.HealthCheck,
        "completion": ip.completion.Completion,
        "terminate": ip.terminate.Terminate,
    }

    def hook(name, function):
        def call(self, state):
            function(state)
            return state

        return type(name, (kinds[name],), {"__call__": call})()

    return {name: hook(name, function) for name, function in named.items()}


def said(name):
    return lambda state: out(name, state.iteration, state.fn_exception, state.fault and state.fault.kind)


def order(call: ip.CallWrapper = None):
    out("function", call.iteration, call.state.active_rank, call.state.world_size)
    if call.iteration == 0:
        if FIRST == 1:
            sys.stdin.readline()
            raise ValueError("ordered")
        time.sleep(60)
    return "value"


ORDER = hooks(
    initialize=said("initialize"),
    abort=said("abort"),
    finalize=said("finalize"),
    health_check=said("health_check"),
    completion=said("completion"),
    terminate=said("terminate"),
)


def reserve(call: ip.CallWrapper):
    out("works", call.iteration, os.environ.get("RANK"), os.environ.get("WORLD_SIZE"))
    if call.iteration == 0:
        sys.stdin.readline()
        raise ValueError("ordered")
    return "value"


def show_env(state):
    out(state.mode.name, os.environ.get("RANK"), os.environ.get("WORLD_SIZE"), rlaunch.world().rank)


def leave(call: ip.CallWrapper):
    if call.iteration == 0:
        if FIRST == 1:
            sys.exit(3)
        time.sleep(60)
    return call.state.world_size


def atomic(call: ip.CallWrapper):
    if call.iteration > 0:
        return "again"
    if FIRST == 0:
        sys.stdin.readline()
        raise ValueError("ordered")
    with call.atomic():
        out("inside")
        # The work takes long enough for an interrupt, and consists of waits that an interrupt would wake.
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            time.sleep(0.01)
        out("whole")
    time.sleep(60)


def late_atomic(call: ip.CallWrapper):
    """An atomic part does not begin after the decision."""
    if call.iteration > 0:
        return "again"
    if FIRST == 0:
        sys.stdin.readline()
        raise ValueError("ordered")
    while True:
        with call.atomic():
            out("section")
            time.sleep(0.05)  # The work: the decision falls into it.


def returned(call: ip.CallWrapper):
    """The first rank has returned, and runs again."""
    out("runs", call.iteration)
    if call.iteration == 0 and FIRST == 1:
        sys.stdin.readline()
        raise ValueError("ordered")
    return call.iteration


def always(call: ip.CallWrapper):
    """Waits in every round."""
    if FIRST == 0:
        sys.stdin.readline()
    out("about to")
    time.sleep(60)


def once(call: ip.CallWrapper):
    if call.iteration == 0 and FIRST == 0:
        raise ValueError("ordered")
    if call.iteration == 0:
        time.sleep(60)
    return call.iteration


def forks(call: ip.CallWrapper):
    """A forked child has all state of its parent, and is no rank."""
    child = os.fork()
    if child == 0:
        call.ping()
        with call.atomic():
            os._exit(7)
    out("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if sys.version_info >= (3, 9) else 7)
    return call.iteration


def child_leaves(call: ip.CallWrapper):
    """A forked child leaves the call by an exception that is no fault of a round."""
    child = os.fork()
    if child == 0:
        sys.exit(7)
    out("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return call.iteration


def pings(call: ip.CallWrapper):
    """A planned round: interrupted at a ping, and nowhere else."""
    if call.iteration > 0:
        return "again"
    out("waits")
    sys.stdin.readline()
    busy(0.3)
    out("between")
    call.ping()
    out("not reached")


def cleans_up(wait):
    """Repeats a wait, and takes long to clean up."""

    def again(call):
        try:
            while True:
                wait(call)
        finally:
            busy(0.3)
            out("cleaned up")

    return blocked(again)


def nothing_atomic(call):
    with call.atomic():
        pass


def interrupted_check(state):
    """Waits until the end of the round."""
    if state.iteration == 0 and FIRST == 1 and state.fault is None:
        out("checks")
        try:
            time.sleep(60)
        except BaseException:
            raise OSError("the round has ended") from None


def phoenix(call: ip.CallWrapper):
    """Fails with an object whose deletion makes another such object."""
    if call.iteration == 0:
        Phoenix()
        raise ValueError("ordered")
    Phoenix.again = False
    return call.iteration


class Phoenix:
    again = True

    def __init__(self):
        self.itself = self

    def __del__(self):
        if Phoenix.again:
            Phoenix()


def sections(call: ip.CallWrapper):
    """Nested sections that may be silent."""
    with call.section("outer", seconds(9)):
        with call.section("inner", seconds(7)):
            call.hang_protection(False)
        call.hang_protection(True)
    if call.iteration == 0:
        with call.section("left open", seconds(5)):
            raise ValueError("ordered")
    return call.iteration


class Wordless(Exception):
    """Exception that has no text."""

    def __str__(self):
        raise TypeError("no words")


def wordless(call: ip.CallWrapper):
    if call.iteration == 0:
        raise Wordless()
    return call.iteration


def saves(call: ip.CallWrapper):
    """Function whose abort hook uses the call."""
    saves.call = call
    if call.iteration == 0:
        out("waits")
        sys.stdin.readline()
        raise ValueError("ordered")
    return call.iteration


def save(state):
    with saves.call.atomic():
        out("saved")


def jax(call: ip.CallWrapper):
    import rlaunch.jax

    sys.modules["jax"] = None
    rlaunch.jax.initialize()


class Handled(Exception):
    """Exception that a signal handler of the program raises."""


def waits_in(where):
    """Returns when the main thread waits in this function of the package."""
    main = threading.main_thread().ident
    while True:
        frame, names = sys._current_frames()[main], []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        if names[0] == "wait" and where in names:
            return
        time.sleep(0.001)


def handlers(kind, *places):
    """Rank 1 fails as if its peer had, and a signal handler raises wherever the rank waits after that."""

    def signals():
        for where in places:
            waits_in(where)
            # A signal right before the wait does not wake it.
            while not handled:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
                time.sleep(0.01)
            handled.clear()
        out("signalled")

    def handler(*_):
        handled.append(True)
        raise kind(3)

    def fn(call: ip.CallWrapper):
        if call.iteration > 0:
            return call.iteration
        if FIRST == 1:
            sys.stdin.readline()
            # The thread that checks may come late.
            _call.VICTIM_WAIT = 1.0
            signal.signal(signal.SIGUSR1, handler)
            threading.Thread(target=signals, daemon=True).start()
            raise ConnectionResetError("Connection reset by peer")
        with call.atomic():
            out("waits")
            sys.stdin.readline()
        time.sleep(60)

    handled = []
    return fn


def in_thread(function):
    """Trains in another thread than the main one."""
    result = []

    def run():
        result.append(function())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return result[0]


def keeps(call: ip.CallWrapper):
    """Objects of the function of a round are gone when the next round begins."""
    kept = Kept()
    kept.itself = kept
    out("living", Kept.living)
    if call.iteration < 5:
        raise ValueError(kept)
    return call.iteration


class Kept:
    living = 0

    def __init__(self):
        Kept.living += 1

    def __del__(self):
        Kept.living -= 1


def unhealthy(state):
    if FIRST == 1 and state.iteration == 0 and state.fault is not None:
        raise OSError("ill")


def bad_start(state):
    out("initialize", state.iteration)
    if state.iteration == 0 and FIRST == 1:
        sys.stdin.readline()
        raise OSError("not yet")


def bad_abort(state):
    raise OSError("cannot")


def simple(call: ip.CallWrapper):
    if call.iteration == 0:
        time.sleep(60)
    return call.state.world_size


def busy_loop(call: ip.CallWrapper):
    """Runs bytecode, and never gives up the interpreter lock."""
    end = time.time() + 2
    while time.time() < end:
        pass
    return call.iteration


def holds_the_lock(call: ip.CallWrapper):
    """Runs in C with the interpreter lock, so no other thread runs bytecode."""
    out("waits")
    ctypes.PyDLL(None).usleep(2_000_000)
    return call.iteration


CASES = {
    "busy_loop": (busy_loop, {}),
    "wordless": (wordless, {}),
    "saves": (saves, hooks(abort=save)),
    "holds_the_lock": (holds_the_lock, {}),
    "order": (order, ORDER),
    "reserve": (reserve, hooks(initialize=show_env)),
    "leave": (leave, hooks(terminate=said("terminate"))),
    "atomic": (atomic, {}),
    "late_atomic": (late_atomic, {}),
    "returned": (returned, {}),
    "always": (always, {}),
    "forks": (forks, {}),
    "child_leaves": (child_leaves, hooks(terminate=said("terminate"))),
    "pings": (pings, {}),
    "keeps": (keeps, {}),
    "unhealthy": (once, hooks(health_check=unhealthy, terminate=said("terminate"))),
    "bad_finalize": (once, hooks(finalize=unhealthy, terminate=said("terminate"))),
    "bad_start": (simple, hooks(initialize=bad_start)),
    "bad_abort": (once, hooks(abort=bad_abort)),
    "hang": (simple, {}),
    "sections": (sections, {}),
    "pinging": (cleans_up(lambda call: call.ping()), {}),
    "going_atomic": (cleans_up(nothing_atomic), {}),
    "interrupted_check": (cleans_up(lambda call: call.ping()), hooks(health_check=interrupted_check)),
    "phoenix": (phoenix, {}),
    "jax": (jax, {}),
    "handlers": (handlers(Handled, "_own_fault", "next", "next"), {}),
    "leaving_handler": (handlers(SystemExit, "next"), hooks(terminate=said("terminate"))),
    "abort_restarts": (once, {"initialize": ip.initialize.RetryController(max_iterations=1)}),
    "fault_counter": (once, {"health_check": ip.health_check.FaultCounter(max_rank_faults=0)}),
}


def main():
    name, thread = sys.argv[1], "thread" in sys.argv[2:]
    fn, named = (blocked(lambda call: WAITS[name]()), {}) if name in WAITS else CASES[name]
    wrapped = ip.Wrapper(progress_watchdog_interval=seconds(0.1), **named)(fn)

    def call():
        if "call" in fn.__annotations__:
            return wrapped(call=None)
        return wrapped()

    result = in_thread(call) if thread else call()
    out("result", result)


if __name__ == "__main__":
    # The signal handler of the program stays in place.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    ctypes.pythonapi.Py_IncRef  # noqa: B018 (loaded)
    main()
