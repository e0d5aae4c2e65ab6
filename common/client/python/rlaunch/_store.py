"""The store that all processes of a job share."""

from __future__ import annotations

import _thread
import ctypes
import math
import operator
import os
import threading
import time

from . import _native as native
from ._errors import StoreTimeout

TYPE_CHECKING = False

if TYPE_CHECKING:
    import datetime
    from typing import Any, Callable, Iterable, List, Optional, Tuple, Union

    Bytes = Union[bytes, str]

    Timeout = Union[float, datetime.timedelta, None]
    """Time-out in seconds or as ``timedelta``; ``None``: as long as the job runs."""

SLICE = 1.0
"""Seconds of one wait in the library. Between two waits Python checks for Ctrl-C."""


MOST_RANKS = 1 << 20
"""Limit for numbers of ranks. No job has so many."""

_LONGEST_MS = 1 << 62

_BETWEEN = range(-(1 << 63), 1 << 63)


def _encoded(what: str, text: Any) -> bytes:
    """The bytes of a key or value. Numbers are refused: ``bytes(5)`` would be five zeros."""
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise TypeError(f"Store: a {what} is bytes or a str, got {text!r:.80} of type {type(text).__name__}: write str(...), or encode it")


def _of_keys(method: str, keys: Any) -> List[Any]:
    """A list of keys. A single key is refused, because its letters would be taken for keys."""
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"Store.{method} takes several keys, got the one key {keys!r:.80}: write {method}([{keys!r:.80}])")
    return list(keys)


def _seconds(method: str, timeout: Any) -> Optional[float]:
    """A time-out in seconds; ``None``: there is none."""
    if timeout is None:
        return None
    if hasattr(timeout, "total_seconds"):
        timeout = timeout.total_seconds()
    try:
        seconds = float(timeout) if not isinstance(timeout, (str, bytes)) else None
    except (TypeError, OverflowError):
        seconds = None
    if seconds is None:
        raise TypeError(f"Store.{method}: timeout takes seconds, a timedelta or None, got {timeout!r:.80} of type {type(timeout).__name__}")
    if math.isnan(seconds) or seconds in (-1, -math.inf):
        raise ValueError(f"Store.{method}: timeout is a number of seconds (None: as long as the job runs), got {timeout}")
    # The remainder of a deadline is negative after the deadline.
    return None if math.isinf(seconds) else max(seconds, 0.0)


def _ms(seconds: float) -> int:
    return min(max(0, int(seconds * 1000)), _LONGEST_MS)


def _ranks(ranks: Any) -> List[int]:
    """Ranks in order, without duplicates."""
    if isinstance(ranks, (str, bytes)):
        raise TypeError(f"Store.barrier: ranks takes a number, or several of them, got {ranks!r:.80}")
    try:
        iter(ranks)
    except TypeError:
        # Tried second: arrays have `__index__` as well, and most of them raise there.
        ranks = range(operator.index(ranks))
    if isinstance(ranks, range) and (ranks.stop > MOST_RANKS or len(ranks) > MOST_RANKS):
        raise ValueError(f"Store.barrier: no job has {ranks.stop} ranks")
    numbers = sorted({operator.index(rank) for rank in ranks})
    if numbers and not (0 <= numbers[0] and numbers[-1] < MOST_RANKS):
        raise ValueError(f"Store.barrier: ranks are numbers from 0, got {numbers[0] if numbers[0] < 0 else numbers[-1]}")
    return numbers


def _after(seconds: Optional[float], error: StoreTimeout) -> StoreTimeout:
    """The error with the time-out as the caller gave it."""
    return StoreTimeout(f"after {seconds:g} s: {str(error).split(': ', 1)[-1]}")


def _interruptible(call: Callable[[], int]) -> None:
    """Makes a call that may take for ever, while the main thread still runs signal handlers.

    A barrier cannot be waited for in slices of time: between two slices it may let all other ranks through.
    """
    if threading.current_thread() is not threading.main_thread():
        native.check(call())
        return
    from ._flag import Flag

    over = Flag()
    failed: List[Optional[Exception]] = []

    def run() -> None:
        code = call()
        # Only the thread in which the call failed can read its error.
        failed.append(None if code == native.OK else native.error_of(code))
        over.set()

    # Not `threading.Thread`: an interrupt of its start may leave a lock taken.
    _thread.start_new_thread(run, ())
    over.wait()
    if failed[0] is not None:
        raise failed[0]


class _Handle:
    """Handle of a store, shared by all prefixes. The library has a connection for each thread that calls."""

    def __init__(self, space: int) -> None:
        self.lib = native.loaded()
        self.value = ctypes.c_void_p()
        native.check(self.lib.rl_store_open(space, ctypes.byref(self.value)))

    def __del__(self) -> None:
        if getattr(self, "value", None):
            self.lib.rl_store_close(self.value)


class Store:
    """Keys and values of the job. Values are bytes, and a ``str`` is encoded as UTF-8. Threads may share a store.

    The store outlives every process, and every host but the launcher's. Outside rlaunch it belongs to this process alone. ``space="round"`` is
    a store of this round or generation. In a wrapped function, waits end with the round, by ``Interrupted``. A ``timeout`` is seconds or a
    ``timedelta``. ``None`` waits as long as the job runs.
    """

    def __init__(self, space: str = "job") -> None:
        spaces = ("job", "round")
        if space not in spaces:
            raise ValueError(f"there is no space {space!r}: job or round")
        self._handle = _Handle(spaces.index(space))
        self._prefix = b""

    def prefix(self, prefix: Bytes) -> "Store":
        """A store in which every key has this prefix."""
        part = Store.__new__(Store)
        part._handle, part._prefix = self._handle, self._prefix + _encoded("prefix", prefix)
        return part

    def get(self, key: Bytes) -> Optional[bytes]:
        """Returns the value of a key, or ``None``."""
        name, value = self._key(key), native.Buffer()
        code = self._lib.rl_store_get(self._raw, name, len(name), ctypes.byref(value))
        return native.taken(value) if self._found(code) else None

    def set(self, key: Bytes, value: Bytes) -> None:
        """Sets the value of a key."""
        name, data = self._key(key), _encoded("value", value)
        native.check(self._lib.rl_store_set(self._raw, name, len(name), data, len(data)))

    def add(self, key: Bytes, by: int = 1) -> int:
        """Adds to a decimal number, which is 0 at first. Returns the sum."""
        try:
            number = operator.index(by)
        except TypeError:
            raise TypeError(f"Store.add: by takes a whole number, got {by!r:.80} of type {type(by).__name__}") from None
        if number not in _BETWEEN:
            raise OverflowError(f"Store.add: by takes a number of 64 bits with a sign, from -2**63 to 2**63-1, got one of {number.bit_length()} bits")
        name, total = self._key(key), ctypes.c_int64()
        native.check(self._lib.rl_store_add(self._raw, name, len(name), number, ctypes.byref(total)))
        return total.value

    def append(self, key: Bytes, more: Bytes) -> int:
        """Appends to a value. Returns its length."""
        name, data, length = self._key(key), _encoded("value", more), ctypes.c_int64()
        native.check(self._lib.rl_store_append(self._raw, name, len(name), data, len(data), ctypes.byref(length)))
        return length.value

    def compare_set(self, key: Bytes, expected: Optional[Bytes], desired: Bytes) -> Tuple[bool, Optional[bytes]]:
        """Sets a key if its value is as expected (``None``: no such key). Returns whether it was, and the value after that."""
        name, is_set, now = self._key(key), ctypes.c_int(), native.Buffer()
        was = None if expected is None else ctypes.byref(native.bytes_of(_encoded("value", expected)))
        wanted = ctypes.byref(native.bytes_of(_encoded("value", desired)))
        call = self._lib.rl_store_compare_set
        native.check(call(self._raw, name, len(name), was, wanted, ctypes.byref(is_set), ctypes.byref(now)))
        # Without data there is no such key. An empty value has data.
        return bool(is_set.value), native.taken(now) if now.data else None

    def delete(self, key: Bytes) -> bool:
        """Removes a key. Returns whether it existed."""
        name = self._key(key)
        return self._found(self._lib.rl_store_delete(self._raw, name, len(name)))

    def check(self, keys: Iterable[Bytes]) -> bool:
        """Returns whether all of these keys exist."""
        names = native.many_bytes([self._key(key) for key in _of_keys("check", keys)])
        return self._found(self._lib.rl_store_check(self._raw, names, len(names)))

    def wait(self, keys: Iterable[Bytes], timeout: Timeout = None) -> None:
        """Waits until each of these keys has existed. ``StoreTimeout`` names the missing keys."""
        names = native.many_bytes([self._key(key) for key in _of_keys("wait", keys)])
        self._in_slices(_seconds("wait", timeout), lambda ms: self._lib.rl_store_wait(self._raw, names, len(names), ms))

    def keys(self, prefix: Bytes = b"") -> List[bytes]:
        """Returns all keys with this prefix in order, without the prefix of this store."""
        found: List[bytes] = []

        def each(data: int, length: int, _: Optional[int]) -> int:
            found.append(ctypes.string_at(data, length))
            return 0

        name = self._key(prefix)
        native.check(self._lib.rl_store_keys(self._raw, name, len(name), native.EACH_KEY(each), None))
        return [key[len(self._prefix) :] for key in found]

    def barrier(self, name: Bytes, ranks: Union[int, Iterable[int]], timeout: Timeout = None) -> None:
        """Waits for these ranks. A number stands for the ranks from 0 below it. ``StoreTimeout`` names the missing ranks.

        Ranks are numbers of ``RLAUNCH_RANK``. After the barrier its name can be used again.
        """
        numbers, seconds = _ranks(ranks), _seconds("barrier", timeout)
        own = int(os.environ.get("RLAUNCH_RANK") or 0)
        if own not in numbers:
            raise ValueError(f"rank {own} is not among those that the barrier is for: {str(numbers):.200}")
        full, all_ = self._key(name), (ctypes.c_uint32 * len(numbers))(*numbers)
        ms = -1 if seconds is None else _ms(seconds)
        try:
            _interruptible(lambda: self._lib.rl_store_barrier(self._raw, full, len(full), all_, len(numbers), own, ms))
        except StoreTimeout as error:
            raise _after(seconds, error) from None

    def _in_slices(self, seconds: Optional[float], ask: Callable[[int], int]) -> None:
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = SLICE if end is None else min(SLICE, end - time.monotonic())
            code = ask(_ms(left))
            if code == native.OK:
                return
            error = native.error_of(code)
            if not isinstance(error, StoreTimeout):
                raise error
            if end is not None and time.monotonic() >= end:
                raise _after(seconds, error)

    @property
    def _lib(self) -> ctypes.CDLL:
        return self._handle.lib

    @property
    def _raw(self) -> ctypes.c_void_p:
        return self._handle.value

    def _key(self, key: Bytes) -> bytes:
        return self._prefix + _encoded("key", key)

    @staticmethod
    def _found(code: int) -> bool:
        if code == native.E_NOT_FOUND:
            return False
        native.check(code)
        return True
