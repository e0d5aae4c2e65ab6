"""Addresses in torch's gloo that end waits which gloo itself would never end (`rl_gloo` in rlaunch.h has the reason).

gloo is a library of its own or part of one of torch's, and exports its symbols in both cases. Virtual tables are found by their symbols,
and entries in them by the functions that they hold. A gloo that was built otherwise is not changed.
"""

from __future__ import annotations

import ctypes
from typing import Iterator, Optional, Tuple

from . import _native as native

_LIBRARIES = ("libgloo.so", "libtorch_cpu.so", "libtorch.so")
_TCP = "_ZN4gloo9transport3tcp"
_TIMES = "EPiNSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"
_TABLES = {
    "_ZTVN4gloo9transport3tcp13UnboundBufferE": {
        "wait_recv": f"{_TCP}13UnboundBuffer8waitRecv{_TIMES}",
        "wait_send": f"{_TCP}13UnboundBuffer8waitSend{_TIMES}",
        "abort_recv": f"{_TCP}13UnboundBuffer13abortWaitRecvEv",
        "abort_send": f"{_TCP}13UnboundBuffer13abortWaitSendEv",
    },
    "_ZTVN4gloo9transport3tcp4PairE": {
        "connect": f"{_TCP}4Pair7connectERKSt6vectorIcSaIcEE",
        "close": f"{_TCP}4Pair5closeEv",
    },
}
_PLACES = ("wait_recv", "wait_send", "connect")
_LONGEST = 24
"""Machine words of a virtual table that contain all of these entries."""


_found: Optional[native.Gloo] = None


def find() -> Optional[native.Gloo]:
    """The addresses, if gloo is loaded and has the known layout."""
    global _found
    if _found is None:
        # Only once: afterwards the entries hold other functions.
        for path in _loaded():
            try:
                _found = _of(ctypes.CDLL(path))
                break
            except (OSError, ValueError, AttributeError):
                continue  # Another library has gloo, or none has it.
    return _found


def _loaded() -> Iterator[str]:
    seen = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").split(None, 5)[5:]
            if path and path[0].rsplit("/", 1)[-1].startswith(_LIBRARIES) and path[0] not in seen:
                seen.add(path[0])
                yield path[0]


def _of(library: ctypes.CDLL) -> native.Gloo:
    found = native.Gloo()
    for table, functions in _TABLES.items():
        start = ctypes.addressof(ctypes.c_char.in_dll(library, table))
        words = (ctypes.c_size_t * _LONGEST).from_address(start)
        for name, symbol in functions.items():
            place, function = _place(words, ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value)
            setattr(found, name, start + place if name in _PLACES else function)
    return found


def _place(words: "ctypes.Array[ctypes.c_size_t]", function: Optional[int]) -> Tuple[int, Optional[int]]:
    """The offset of a function in a virtual table; ``ValueError`` if the table lacks it."""
    return list(words).index(function or 0) * ctypes.sizeof(ctypes.c_size_t), function
