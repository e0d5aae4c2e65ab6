"""Bindings of librlaunch.so: types and functions of ``rlaunch.h``, and errors as exceptions."""

from __future__ import annotations

import ctypes
import os

from ._errors import ERRORS, Error, LibraryMissing

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, List, Optional

ABI = 1

OK = 0
E_TIMEOUT = -6
E_INTERRUPTED = -8
E_NOT_FOUND = -9
E_ORDER = -12
E_ARGUMENT = -1
E_INDEX = -18
E_LENGTH = -19

FOREIGN_ABORT = 1

NEXT_BEGIN, NEXT_INTERRUPT, NEXT_FINISH, NEXT_DISCARDED, NEXT_GIVEN_UP, NEXT_REFUSED = range(1, 7)

MODE_ACTIVE = 1

FAULTS = (
    "none",
    "exception",
    "hang",
    "ended",
    "overdue",
    "left",
    "host_lost",
    "warned",
    "joined",
    "over",
)

LEAVE_BASE_EXCEPTION, LEAVE_ABORT, LEAVE_UNHEALTHY = range(3)

_TEXT = 2052
_NONE = 2**32 - 1


class Pair(ctypes.Structure):
    """``rl_pair``"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("name_len", ctypes.c_size_t),
        ("value", ctypes.c_char_p),
        ("value_len", ctypes.c_size_t),
    ]


class Bytes(ctypes.Structure):
    """``rl_bytes``"""

    _fields_ = [("data", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class FaultInfo(ctypes.Structure):
    """``rl_fault_info``"""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("initial_rank", ctypes.c_uint32),
        ("code", ctypes.c_int32),
        ("signal", ctypes.c_int32),
        ("text", ctypes.c_char * _TEXT),
    ]


class Round(ctypes.Structure):
    """``rl_round``"""

    _fields_ = [
        ("number", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("world_size", ctypes.c_uint32),
        ("active_rank", ctypes.c_uint32),
        ("active_world_size", ctypes.c_uint32),
        ("initial_rank", ctypes.c_uint32),
        ("initial_world_size", ctypes.c_uint32),
        ("fault", FaultInfo),
    ]


class Next(ctypes.Structure):
    """``rl_next``"""

    _fields_ = [("kind", ctypes.c_uint32), ("round", Round), ("text", ctypes.c_char * _TEXT)]


class Buffer(ctypes.Structure):
    """``rl_buffer``"""

    _fields_ = [("data", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Axis(ctypes.Structure):
    """``rl_axis``"""

    _fields_ = [("name", ctypes.c_char_p), ("name_len", ctypes.c_size_t), ("index", ctypes.c_int64)]


class Peer(ctypes.Structure):
    """``rl_peer``"""

    _fields_ = [
        ("peer", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("world", ctypes.c_uint32),
        ("is_near", ctypes.c_uint32),
        ("host", ctypes.c_char * 256),
    ]


class Frame(ctypes.Structure):
    """``rl_frame``"""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("codec", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("call", ctypes.c_uint64),
    ]


class Part(ctypes.Structure):
    """``rl_part``"""

    _fields_ = [
        ("place", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
    ]


class Event(ctypes.Structure):
    """``rl_event``"""

    _fields_ = [
        ("peer", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("codec", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("call", ctypes.c_uint64),
        ("body_len", ctypes.c_uint64),
        ("bytes", Buffer),
    ]


class Gloo(ctypes.Structure):
    """``rl_gloo``"""

    _fields_ = [
        (name, ctypes.c_void_p) for name in ("wait_recv", "wait_send", "connect", "abort_recv", "abort_send", "close")
    ]


EACH_KEY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
"""Callback of ``rl_store_keys``."""


def bytes_of(data: bytes) -> Bytes:
    """The data as ``rl_bytes``."""
    return Bytes(data, len(data))


def many_bytes(all_: List[bytes]) -> Any:
    """The items as an array of ``rl_bytes``."""
    array = (Bytes * len(all_))(*map(bytes_of, all_))
    array.kept = all_  # The array only points at the items.
    return array


def optional(number: int) -> Optional[int]:
    """The number, or ``None`` for the largest value of its type."""
    return None if number == _NONE else number


_int, _size, _ms = ctypes.c_int, ctypes.c_size_t, ctypes.c_int64
_handle, _bytes = ctypes.c_void_p, ctypes.c_char_p
_out = ctypes.POINTER

_key = [ctypes.c_void_p, _bytes, _size]
_words = _out(ctypes.c_uint32)

_SIGNATURES: dict[str, tuple] = {
    "rl_buffer_free": (None, [_out(Buffer)]),
    "rl_store_open": (_int, [ctypes.c_uint32, _out(_handle)]),
    "rl_store_close": (_int, [_handle]),
    "rl_order": (_int, [_bytes, _size, _out(Buffer)]),
    "rl_store_get": (_int, [*_key, _out(Buffer)]),
    "rl_store_set": (_int, [*_key, _bytes, _size]),
    "rl_store_add": (_int, [*_key, ctypes.c_int64, _out(ctypes.c_int64)]),
    "rl_store_append": (_int, [*_key, _bytes, _size, _out(ctypes.c_int64)]),
    "rl_store_compare_set": (_int, [*_key, _out(Bytes), _out(Bytes), _out(_int), _out(Buffer)]),
    "rl_store_delete": (_int, _key),
    "rl_store_check": (_int, [_handle, _out(Bytes), _size]),
    "rl_store_wait": (_int, [_handle, _out(Bytes), _size, _ms]),
    "rl_store_keys": (_int, [*_key, EACH_KEY, _handle]),
    "rl_store_barrier": (_int, [*_key, _out(ctypes.c_uint32), _size, ctypes.c_uint32, _ms]),
    "rl_error_text": (_bytes, [_int]),
    "rl_last_error": (_bytes, []),
    "rl_abi": (ctypes.c_uint32, []),
    "rl_session_register": (_int, [_out(Pair), _size, ctypes.c_uint32, _out(_handle)]),
    "rl_session_next": (_int, [_handle, _out(Next)]),
    "rl_session_env_count": (_size, [_handle]),
    "rl_session_env": (_int, [_handle, _size, _out(_bytes), _out(_bytes)]),
    "rl_session_enter": (_int, [_handle]),
    "rl_session_exit": (_int, [_handle]),
    "rl_session_fault": (_int, [_handle, _bytes, _size]),
    "rl_session_returned": (_int, [_handle]),
    "rl_session_ready": (_int, [_handle, _out(Bytes), _size]),
    "rl_session_leave": (_int, [_handle, _int, _bytes, _size]),
    "rl_session_end": (_int, [_handle]),
    "rl_session_close": (_int, [_handle]),
    "rl_session_wait_interrupt": (_int, [_handle, _out(FaultInfo)]),
    "rl_session_aborted": (_int, [_handle]),
    "rl_session_due": (_int, [_handle]),
    "rl_session_interrupted": (_int, [_handle]),
    "rl_session_foreign_abort": (_int, [_handle, _int]),
    "rl_session_signal_thread": (_int, [_handle, ctypes.c_int32, _int, _ms]),
    "rl_session_auto_progress": (_int, [_handle, ctypes.c_void_p]),
    "rl_session_ping": (_int, [_handle]),
    "rl_session_section": (_int, [_handle, _ms]),
    "rl_session_hooks": (_int, [_handle, _int]),
    "rl_session_atomic_begin": (_int, [_handle]),
    "rl_session_atomic_end": (_int, [_handle]),
    "rl_session_sockets_add": (_int, [_handle, _int]),
    "rl_session_sockets_shutdown": (_int, [_handle, _out(_size)]),
    "rl_session_gloo": (_int, [_handle, _out(Gloo)]),
    "rl_sharding_open": (
        _int,
        [_out(ctypes.c_uint64), _size, _out(ctypes.c_int64), _size, _out(Bytes), _size, _out(_handle)],
    ),
    "rl_sharding_close": (_int, [_handle]),
    "rl_sharding_coords": (_int, [_handle, ctypes.c_int64, _out(Buffer)]),
    "rl_sharding_by_coord": (_int, [_handle, _out(Axis), _size, _out(Buffer)]),
    "rl_sharding_select": (_int, [_handle, _out(Axis), _size, _out(Buffer)]),
    "rl_plan_sharded": (_int, [_handle, _size, *[_out(Bytes), _size] * 3, _int, _out(Buffer)]),
    "rl_plan_single": (_int, [_handle, _size, _out(Bytes), _size, _out(Buffer)]),
    "rl_plan_multiple": (_int, [_handle, _size, _out(Bytes), _size, _int, _size, _out(Buffer)]),
    "rl_plan_workers": (
        _int,
        [_words, _size, _words, _size, ctypes.c_uint32, _words, _size, _int, _bytes, _size, _out(Buffer)],
    ),
    "rl_calls_open": (_int, [_out(_handle)]),
    "rl_calls_close": (_int, [_handle]),
    "rl_calls_fd": (_int, [_handle, _out(_int)]),
    "rl_calls_serve": (_int, [*_key, _bytes, _size, *[ctypes.c_uint32] * 3, _int]),
    "rl_calls_attach": (_int, [*_key, ctypes.c_uint32, _ms, _out(Peer)]),
    "rl_calls_detach": (_int, [_handle, ctypes.c_uint32]),
    "rl_calls_send": (_int, [_handle, _words, _size, _out(Frame), _out(Bytes), _size, _out(Part), _size]),
    "rl_calls_post": (_int, [_handle, _handle, _size, _bytes, _size]),
    "rl_calls_next": (_int, [_handle, _ms, _handle, _handle, _size]),
    "rl_calls_answer": (_int, [_handle, ctypes.c_uint32, _bytes, _size, _ms, _handle, _handle, _size]),
    "rl_calls_gather": (_int, [_handle, _ms, ctypes.c_uint64, _size, ctypes.c_uint32, _handle, _size]),
}

_REMEDY = "the package is not whole: install the wheel that scripts/build-client makes (pip install --force-reinstall rlaunch-*.whl)"

_loaded: Optional[ctypes.CDLL] = None


def is_main_interpreter() -> bool:
    """Whether this code runs in the interpreter that the process began with."""
    # A separate object: types that are set on `ctypes.pythonapi` would change for all users of it.
    python = ctypes.PyDLL(None)
    states = [python.PyInterpreterState_Get, python.PyInterpreterState_Main]
    for state in states:
        state.restype, state.argtypes = ctypes.c_void_p, []
    return states[0]() == states[1]()


def loaded() -> Any:
    """The library, loaded when it is first needed, and never unloaded."""
    global _loaded
    if _loaded is None:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "librlaunch.so")
        try:
            # A C program that embeds Python may have loaded another copy, with a session of its own.
            lib = ctypes.CDLL(path)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise LibraryMissing(f"cannot load {path}: {error}; {_REMEDY}") from error
        if lib.rl_abi() != ABI:
            raise LibraryMissing(f"{path} has interface {lib.rl_abi()}, and this package is made for {ABI}; {_REMEDY}")
        _loaded = lib
    return _loaded


def check(code: int) -> int:
    """Returns a result code, or raises its exception."""
    if code < 0:
        raise error_of(code)
    return code


def error_of(code: int) -> Error:
    """The exception of a result code that is an error."""
    return ERRORS.get(code, Error)(error_text(code))


def error_text(code: int) -> str:
    """The text of a result code that is an error."""
    lib = loaded()
    return (lib.rl_last_error() or lib.rl_error_text(code) or b"").decode("utf-8", "replace")


def taken(value: Buffer) -> bytes:
    """The bytes of a buffer of the library. The buffer is freed."""
    try:
        return ctypes.string_at(value.data, value.len) if value.data else b""
    finally:
        loaded().rl_buffer_free(ctypes.byref(value))
