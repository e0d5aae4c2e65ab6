"""The connections of this process: frames out, events in."""

from __future__ import annotations

import ctypes
import struct
import weakref
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from .. import _native as native

CALL, CANCEL, CREDIT, ARENA, END = 1, 2, 3, 4, 5
RETURN, RAISE, ITEM, STOP, FREE, MAPPED = 16, 17, 18, 19, 20, 21
OPENED, CLOSED = 256, 257

WINDOW = 16
"""Items of a generator that may be unread."""

_SMALL = 64 << 10
"""Bytes up to which a copy is cheaper than a reference."""

_WORD = struct.Struct("<I")
_PART = struct.Struct("<IQQ")

_LONGEST_MS = 1 << 31


class _View(ctypes.Structure):
    """``Py_buffer``"""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("rest", ctypes.c_void_p * 12),
    ]


# Of our own: other packages may have set other types for the same functions.
_python = ctypes.PyDLL(None)
_python.PyObject_GetBuffer.argtypes = [ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int]
_python.PyBuffer_Release.argtypes = [ctypes.POINTER(_View)]
_python.PyBuffer_Release.restype = None


class _Pinned:
    """Memory of an object, read-only or not, which stays where it is."""

    def __init__(self, data: Any) -> None:
        self.view = _View()
        self.is_held = False
        _python.PyObject_GetBuffer(data, ctypes.byref(self.view), 0)
        self.is_held = True

    def release(self) -> None:
        """The memory is not needed any more."""
        if self.is_held:
            self.is_held = False
            _python.PyBuffer_Release(ctypes.byref(self.view))


class Region(NamedTuple):
    """Bytes of the shared memory."""

    offset: int
    len: int


class Event(NamedTuple):
    """Something that happened on a connection."""

    peer: int
    kind: int
    codec: int
    count: int
    call: int
    texts: List[bytes]
    parts: List[Any]
    """A buffer, or a ``Region``."""

    def text(self, at: int) -> str:
        """One of the texts; empty if there are fewer."""
        return self.texts[at].decode("utf-8", "replace") if at < len(self.texts) else ""


def _free(lib: Any, address: int, length: int) -> None:
    lib.rl_buffer_free(ctypes.byref(native.Buffer(address, length)))


def _described(described: Any) -> Tuple[List[bytes], List[Tuple[int, int, int]]]:
    """Texts and parts. The library has checked them."""
    (count,) = _WORD.unpack_from(described, 0)
    at, texts = 4, []
    for _ in range(count):
        (length,) = _WORD.unpack_from(described, at)
        texts.append(bytes(described[at + 4 : at + 4 + length]))
        at += 4 + length
    (count,) = _WORD.unpack_from(described, at)
    return texts, [_PART.unpack_from(described, at + 4 + 20 * number) for number in range(count)]


class Calls:
    """All connections of this process, at one epoll of the library's."""

    def __init__(self) -> None:
        self._lib = native.loaded()
        self._handle = ctypes.c_void_p()
        native.check(self._lib.rl_calls_open(ctypes.byref(self._handle)))
        self._close = weakref.finalize(self, self._lib.rl_calls_close, self._handle)
        self._close.atexit = False

    def fileno(self) -> int:
        """A descriptor that can be read when there may be an event."""
        fd = ctypes.c_int()
        native.check(self._lib.rl_calls_fd(self._handle, ctypes.byref(fd)))
        return fd.value

    def serve(self, group: str, host: str, rank: int, size: int, world: int, is_far: bool) -> None:
        """Serves as a worker of a group."""
        name, place = group.encode(), host.encode("utf-8", "replace")
        arguments = [name, len(name), place, len(place), rank, size, world, int(is_far)]
        native.check(self._lib.rl_calls_serve(self._handle, *arguments))

    def attach(self, group: str, rank: int, seconds: float) -> native.Peer:
        """Connects to a worker, as soon as it serves."""
        name, peer = group.encode(), native.Peer()
        milliseconds = max(1, int(seconds * 1000))
        native.check(
            self._lib.rl_calls_attach(self._handle, name, len(name), rank, milliseconds, ctypes.byref(peer))
        )
        return peer

    def detach(self, peer: int) -> None:
        """Closes a connection."""
        self._lib.rl_calls_detach(self._handle, peer)

    def send(
        self,
        peers: Sequence[int],
        kind: int,
        call: int = 0,
        texts: Sequence[bytes] = (),
        parts: Sequence[Any] = (),
        codec: int = 0,
        count: int = 0,
    ) -> None:
        """Sends a frame to all of these connections. A part is a buffer or a ``Region``."""
        numbers = (ctypes.c_uint32 * len(peers))(*peers)
        frame = native.Frame(kind, codec, count, call)
        names = native.many_bytes(list(texts))
        described = (native.Part * len(parts))()
        pinned = []
        try:
            for at, part in enumerate(parts):
                if isinstance(part, Region):
                    described[at] = native.Part(1, part.offset, None, part.len)
                else:
                    held = _Pinned(part)
                    pinned.append(held)
                    described[at] = native.Part(0, 0, held.view.buf, held.view.len)
            native.check(
                self._lib.rl_calls_send(
                    self._handle,
                    numbers,
                    len(peers),
                    ctypes.byref(frame),
                    names,
                    len(texts),
                    described,
                    len(parts),
                )
            )
        finally:
            for held in pinned:
                held.release()

    def next(self, seconds: Optional[float]) -> Optional[Event]:
        """The next event; ``None``: none came in time, or a signal did."""
        came = native.Event()
        milliseconds = -1 if seconds is None else min(int(seconds * 1000 + 0.999), _LONGEST_MS)
        code = self._lib.rl_calls_next(self._handle, milliseconds, ctypes.byref(came))
        if code == native.E_TIMEOUT:
            return None
        native.check(code)
        buffer, body_len = came.bytes, came.body_len
        if came.kind >= OPENED:
            return Event(came.peer, came.kind, 0, 0, 0, [native.taken(buffer)], [])
        if buffer.len <= _SMALL:
            whole: Any = memoryview(native.taken(buffer))
        else:
            memory = (ctypes.c_char * buffer.len).from_address(buffer.data)
            weakref.finalize(memory, _free, self._lib, buffer.data, buffer.len).atexit = False
            whole = memoryview(memory).cast("B")
        texts, described = _described(whole[body_len:])
        parts = [Region(at, size) if place else whole[at : at + size] for place, at, size in described]
        return Event(came.peer, came.kind, came.codec, came.count, came.call, texts, parts)
