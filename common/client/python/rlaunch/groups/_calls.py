"""Connections of this process: they send frames, and return events."""

from __future__ import annotations

import collections
import ctypes
import struct
import sys

from .. import _native as native

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple

CALL, CANCEL, CREDIT, ARENA, END = 1, 2, 3, 4, 5
RETURN, RAISE, ITEM, STOP, FREE, MAPPED = 16, 17, 18, 19, 20, 21
OPENED, CLOSED = 256, 257

WINDOW = 16
"""Items of a generator that may be unread."""

NOBODY = 0xFFFFFFFF
"""Number that stands for no connection."""

SLICE = 0.5
"""Seconds between two checks of workers on lost hosts, whose connections would not end by themselves."""

_SMALL = 64 << 10
"""Bytes up to which a copy is cheaper than a reference."""

_WORD = struct.Struct("<I")
_EVENT = struct.Struct("<IIIIIIQQQQ")
"""``rl_event``"""
_POSTED = struct.Struct("<IIIIQ")
"""The numbers before a text and a part."""
_PART = struct.Struct("<IQQ")
_COUNT = struct.Struct("<Q")
_GATHERED = struct.Struct("<IIIIIIQ")
"""The numbers of frames that differ by their peer only."""
_PEERS = [struct.Struct(f"<{count}I") for count in range(65)]

_HEAD = 64
"""Bytes of a ``_Place`` before its body."""


class _View(ctypes.Structure):
    """``Py_buffer``"""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("rest", ctypes.c_void_p * 12),
    ]


# A separate object: other packages may have set other types for the same functions.
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
        """Releases the memory."""
        if self.is_held:
            self.is_held = False
            _python.PyBuffer_Release(ctypes.byref(self.view))


class Region(collections.namedtuple("Region", "offset len")):
    """Bytes of the shared memory."""

    __slots__ = ()


class Event(collections.namedtuple("Event", "peer kind codec count call texts parts")):
    """Event on a connection. Its texts are bytes; a part is a buffer, or a ``Region``."""

    __slots__ = ()

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


class _Place:
    """Memory for an event: its numbers, and a body that is small."""

    def __init__(self) -> None:
        self.memory = bytearray(_HEAD + _SMALL)
        first = ctypes.c_char.from_buffer(self.memory)
        self.event, self.room = ctypes.byref(first), ctypes.byref(first, _HEAD)


_new = tuple.__new__
"""Constructor of events that takes half of the time."""

_NOTHING: "List[Any]" = []
"""The texts or the parts of a frame without any."""

# Arguments as types of C, made once: making them takes as long as a call.
_SIZE, _FOREVER, _SLICE = ctypes.c_size_t(_SMALL), ctypes.c_int64(-1), ctypes.c_int64(int(SLICE * 1000))
_LENGTHS = [ctypes.c_size_t(length) for length in range(256)]


def _length(frame: bytes) -> Any:
    return _LENGTHS[len(frame)] if len(frame) < 256 else ctypes.c_size_t(len(frame))


def _milliseconds(seconds: float) -> Any:
    return ctypes.c_int64(int(seconds * 1000 + 0.999))


class Calls:
    """All connections of this process, at one epoll instance of the library."""

    def __init__(self) -> None:
        self._lib = native.loaded()
        self._handle = ctypes.c_void_p()
        native.check(self._lib.rl_calls_open(ctypes.byref(self._handle)))
        # Types of arguments are not set, because they would be checked in every call.
        names = ("rl_calls_post", "rl_calls_next", "rl_calls_answer", "rl_calls_gather")
        self._post, self._next, self._answer, self._gather = (self._lib[name] for name in names)
        self._spare: List[_Place] = []
        self._peers: Dict[Tuple[int, ...], Any] = {}

    def __del__(self) -> None:
        # At the end of the interpreter the connections last as long as the process.
        if getattr(self, "_handle", None) and not sys.is_finalizing():
            self._lib.rl_calls_close(self._handle)

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
        is_small = not parts or (type(parts[0]) is bytes and len(parts[0]) <= _SMALL)
        if len(texts) < 2 and len(parts) < 2 and is_small:
            self.post(peers, kind, call, texts[0] if texts else b"", parts[0] if parts else b"", codec, count)
            return
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

    def post(
        self, peers: Sequence[int], kind: int, call: int, text: bytes, data: bytes, codec: int = 0, count: int = 0
    ) -> None:
        """Sends a frame with at most one text and one small part, which are bytes. This takes less work than `send`."""
        key = tuple(peers)
        numbers = self._peers.get(key)
        if numbers is None:
            array = (ctypes.c_uint32 * len(key))(*key)
            numbers = self._peers[key] = (array, ctypes.c_size_t(len(key)))
        frame = _POSTED.pack(kind, codec, count, len(text), call) + text + data
        code = self._post(self._handle, numbers[0], numbers[1], frame, _length(frame))
        if code < 0:
            raise native.error_of(code)

    def next(self, seconds: Optional[float]) -> Optional[Event]:
        """The next event; ``None`` after a time-out or a signal."""
        wait = _FOREVER if seconds is None else _milliseconds(seconds)
        place = self._place()
        return self._taken(place, self._next(self._handle, wait, place.event, place.room, _SIZE))

    def answer(self, peer: int, call: int, data: bytes, table: Dict[bytes, Any]) -> Any:
        """Sends a small result, and waits for the next event as `next` does.

        A plain call whose text and part are in the table is no event: its connection, its number and what the table has of it.
        """
        frame = _POSTED.pack(RETURN, 0, 0, 0, call) + data
        place = self._place()
        code = self._answer(self._handle, peer, frame, _length(frame), _FOREVER, place.event, place.room, _SIZE)
        if code >= 0:
            peer, kind, encoding, _, is_plain, _, call, _, _, length = _EVENT.unpack_from(place.memory)
            if is_plain and kind == CALL and not encoding:
                found = table.get(bytes(place.memory[_HEAD : _HEAD + length]))
                if found is not None:
                    self._spare.append(place)
                    return peer, call, found
        return self._taken(place, code)

    def gather(self, seconds: float, call: int, wanted: int, last: int) -> List[Tuple[Sequence[int], Event]]:
        """Events, as soon as so many workers have returned from a call, or anything else has come.

        Frames that differ by their peer only are one event, with all these peers.
        """
        place = self._place()
        count = _LENGTHS[wanted] if wanted < 256 else ctypes.c_size_t(wanted)
        wait = _SLICE if seconds == SLICE else _milliseconds(seconds)
        code = self._gather(self._handle, wait, ctypes.c_uint64(call), count, last, place.room, _SIZE)
        if code < 0:
            self._taken(place, code)
            return []
        memory, at = place.memory, _HEAD + 8
        gathered: List[Tuple[Sequence[int], Event]] = []
        for _ in range(_COUNT.unpack_from(memory, _HEAD)[0]):
            kind, encoding, items, text_len, part_len, many, number = _GATHERED.unpack_from(memory, at)
            at += 32
            peers = (_PEERS[many] if many < 65 else struct.Struct(f"<{many}I")).unpack_from(memory, at)
            at += 4 * many
            texts = [bytes(memory[at : at + text_len])] if text_len else _NOTHING
            at += text_len
            parts = [memory[at : at + part_len]] if part_len else _NOTHING
            at += part_len
            gathered.append((peers, _new(Event, (peers[0], kind, encoding, items, number, texts, parts))))
        self._spare.append(place)
        if not gathered:
            event = self.next(0)
            if event is not None:
                gathered.append(((event.peer,), event))
        return gathered

    def _place(self) -> _Place:
        try:
            return self._spare.pop()
        except IndexError:
            return _Place()

    def _taken(self, place: _Place, code: int) -> Optional[Event]:
        if code < 0:
            self._spare.append(place)
            if code == native.E_TIMEOUT:
                return None
            raise native.error_of(code)
        memory = place.memory
        peer, kind, encoding, count, is_plain, text_len, call, body_len, data, length = _EVENT.unpack_from(memory)
        if is_plain:
            # Most calls and results are a text and a value.
            at, end = _HEAD + text_len, _HEAD + length
            texts = [bytes(memory[_HEAD:at])] if text_len else _NOTHING
            parts = [memory[at:end]] if at < end else _NOTHING
            self._spare.append(place)
            return _new(Event, (peer, kind, encoding, count, call, texts, parts))
        whole: Any = b"" if data else memoryview(memory[_HEAD : _HEAD + length])
        # The place is not read any more.
        self._spare.append(place)
        if data:
            if kind >= OPENED:
                return Event(peer, kind, 0, 0, 0, [native.taken(native.Buffer(data, length))], [])
            import weakref  # Small values do not need this import.

            taken = (ctypes.c_char * length).from_address(data)
            weakref.finalize(taken, _free, self._lib, data, length).atexit = False
            whole = memoryview(taken).cast("B")
        texts, described = _described(whole[body_len:])
        buffers = [Region(at, size) if where else whole[at : at + size] for where, at, size in described]
        return Event(peer, kind, encoding, count, call, texts, buffers)
