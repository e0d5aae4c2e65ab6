"""Injected faults for tests of a script's own resilience. All ranks draw the failing ranks from the same seed.

A thread makes each fault after a delay, so it meets the function at any point. No process is forked for a fault: a forked child of a
process that has used a GPU is unreliable, and the failing process can signal itself.
"""

from __future__ import annotations

import ctypes
import enum
import logging
import os
import random
import re
import signal as signals
import sys
import threading
import time
from typing import Any, Callable, Dict, Optional, Tuple, Union

from .. import monitor_thread

log = logging.getLogger("rlaunch.inprocess")

Callback = Optional[Callable[[], Any]]


class Fault(enum.Enum):
    """Kind of an injected fault."""

    GPU_ERROR = enum.auto()
    GPU_SLEEP = enum.auto()
    WORKLOAD_EXC = enum.auto()
    ASYNC_EXC = enum.auto()
    SIGNAL_EXC = enum.auto()
    OS_ABORT = enum.auto()
    LOCK_GIL = enum.auto()
    SEGFAULT = enum.auto()
    SIGINT = enum.auto()
    SIGKILL = enum.auto()
    SIGTERM = enum.auto()
    SIGSTOP = enum.auto()


class InjectedException(Exception):
    """Exception of an injected fault."""


_makers: Dict[Fault, Callable[[float, Callback], Any]] = {}
_ordered = threading.Event()


def register_fault(fault_name_or_enum: Union[str, Fault], handler: Callable) -> Fault:
    """Sets the handler of a fault, called as ``handler(delay, callback)``. A name defines a fault of the script's own."""
    fault = fault_name_or_enum
    if not isinstance(fault, Fault):
        fault = object.__new__(Fault)
        fault._name_, fault._value_ = str(fault_name_or_enum), len(Fault.__members__) + 1
        Fault._member_map_[fault._name_] = Fault._value2member_map_[fault._value_] = fault
        Fault._member_names_.append(fault._name_)
    _makers[fault] = handler
    return fault


def dispatch_fault_injection(fault: Fault, delay: float, callback: Callback) -> None:
    """Makes a fault in this process."""
    if fault not in _makers:
        raise RuntimeError(f"nothing makes the fault {fault}: register_fault says what does")
    _makers[fault](delay, callback)


def _comes(what: str, delay: float, callback: Callback) -> None:
    time.sleep(delay)
    log.critical("injected fault: %s", what)
    if callback is not None:
        callback()


def async_raise(tid: int, exc_type: Any) -> None:
    """Raises an exception in another thread when that next runs bytecode."""
    if not sys.is_finalizing():
        monitor_thread.async_raise(tid, exc_type)


def termination_signal_handler(signum: int, frame: Any) -> None:
    """Handler of a signal that raises an exception."""
    if not sys.is_finalizing():
        raise InjectedException


def workload_exception(delay: float, callback: Callback) -> None:
    """Makes the next ``maybe_raise_workload_exception`` raise."""
    _comes("an exception at the next place for one", delay, callback)
    _ordered.set()


def maybe_raise_workload_exception() -> None:
    """Raises a pending exception. A script calls this at a place of its own, such as the end of a step."""
    if _ordered.is_set():
        _ordered.clear()
        raise InjectedException


def clear_workload_exception() -> None:
    """Discards a pending exception."""
    _ordered.clear()


def async_raise_exception(tid: int, delay: float, callback: Callback) -> None:
    """Raises an exception wherever a thread is."""
    _comes("an exception in the main thread", delay, callback)
    async_raise(tid, InjectedException)


def raise_gpu_error(delay: float, callback: Callback) -> None:
    """Makes a GPU error by an index out of range."""
    import torch

    _comes("an error of the GPU", delay, callback)
    ones = torch.ones(1, dtype=torch.int64, device="cuda")
    ones[ones] = 0


def gpu_sleep(delay: float, device: Any, callback: Callback) -> None:
    """Makes the GPU busy for ever."""
    import torch

    _comes("the GPU sleeps", delay, callback)
    torch.cuda.set_device(device)
    torch.cuda._sleep(1 << 62)


def lock_gil(delay: float, callback: Callback) -> None:
    """Holds the interpreter lock for ever, by a call into C."""
    _comes("the interpreter lock is held", delay, callback)
    re.match(r"(a?){40}a{40}", "a" * 40)


def segfault(delay: float, callback: Callback) -> None:
    """Reads from an invalid address."""
    _comes("SIGSEGV", delay, callback)
    ctypes.string_at(1)


def send_signal(pid: int, signal: int, delay: float, callback: Callback) -> None:
    """Sends a signal to a process."""
    _comes(f"signal {int(signal)}", delay, callback)
    os.kill(pid, signal)


def abort(delay: float, callback: Callback) -> None:
    """Calls ``abort()`` of C."""
    _comes("abort()", delay, callback)
    os.abort()


def inject_fault(
    faults: Tuple[Fault],
    num_faults: Union[int, Tuple[int, int]],
    keep_alive: int,
    delay: Union[float, Tuple[float, float]],
    seed: int,
    callback: Optional[Callable[[], Any]] = None,
) -> None:
    """Makes a fault on ``num_faults`` ranks after ``delay`` seconds; both may be ranges. The first ``keep_alive`` ranks are spared.

    All ranks draw the same with the same seed.
    """
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    draw = random.Random(seed)
    least, most = (num_faults, num_faults) if isinstance(num_faults, int) else num_faults
    after = float(delay) if isinstance(delay, (int, float)) else draw.uniform(*delay)
    count = max(0, min(draw.randint(least, most), world_size - keep_alive))
    ranks = draw.sample(range(keep_alive, world_size), count)
    fault = draw.sample(list(faults), 1)[0]
    if rank in ranks:
        log.info("fault %s on ranks %s in %.3f s (seed %s)", fault, ranks, after, seed)
        dispatch_fault_injection(fault, after, callback)


def _in_a_thread(function: Callable[..., None], *words: Any) -> Callable[[float, Callback], None]:
    def make(delay: float, callback: Callback) -> None:
        threading.Thread(target=function, args=(*words, delay, callback), daemon=True).start()

    return make


def _by_signal(delay: float, callback: Callback) -> None:
    signals.signal(signals.SIGUSR1, termination_signal_handler)
    _in_a_thread(send_signal, os.getpid(), signals.SIGUSR1)(delay, callback)


def _to_itself(signal: int) -> Callable[[float, Callback], None]:
    # The pid is read when the fault is made, because a forked process has another one.
    return lambda delay, callback: _in_a_thread(send_signal, os.getpid(), signal)(delay, callback)


def _gpu_sleeps(delay: float, callback: Callback) -> None:
    import torch

    # The device of this thread: a new thread may have no device yet.
    device = torch.cuda.current_device()
    threading.Thread(target=gpu_sleep, args=(delay, device, callback), daemon=True).start()


register_fault(Fault.WORKLOAD_EXC, _in_a_thread(workload_exception))
register_fault(Fault.ASYNC_EXC, lambda delay, callback: _in_a_thread(async_raise_exception, threading.main_thread().ident)(delay, callback))
register_fault(Fault.GPU_ERROR, _in_a_thread(raise_gpu_error))
register_fault(Fault.GPU_SLEEP, _gpu_sleeps)
register_fault(Fault.LOCK_GIL, _in_a_thread(lock_gil))
register_fault(Fault.SEGFAULT, _in_a_thread(segfault))
register_fault(Fault.SIGNAL_EXC, _by_signal)
register_fault(Fault.OS_ABORT, _in_a_thread(abort))
for _name in ("SIGINT", "SIGKILL", "SIGTERM", "SIGSTOP"):
    register_fault(Fault[_name], _to_itself(signals.Signals[_name]))
