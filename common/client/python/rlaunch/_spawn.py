"""Other programs of the same job, which a rank starts and ends."""

from __future__ import annotations

import collections
import ctypes
import os
import struct

from . import _native as native

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Optional, Sequence, Union

    Text = Union[str, bytes, "os.PathLike[str]"]

_NONE = 2**64 - 1


class SpawnedWorld(collections.namedtuple("SpawnedWorld", "number group hosts")):
    """World that was started, with all of its ranks. ``hosts`` has the host of each rank, in their order."""

    __slots__ = ()


def _bytes(text: Text) -> bytes:
    data = os.fsencode(text)
    return struct.pack("<I", len(data)) + data


def _list(items: Iterable[bytes]) -> bytes:
    all_ = list(items)
    return struct.pack("<I", len(all_)) + b"".join(all_)


def _program(argv: Sequence[Text], ranks: int = 1, env: Optional[Mapping[str, Text]] = None, wdir: Optional[Text] = None, hosts: Sequence[str] = ()) -> bytes:
    if isinstance(argv, (str, bytes)):
        raise TypeError(f"spawn: argv is a list of words, got {argv!r:.80}")
    pairs = _list(_bytes(name) + _bytes(value) for name, value in (env or {}).items())
    directory = b"\0" if wdir is None else b"\1" + _bytes(wdir)
    return struct.pack("<I", ranks) + _list(map(_bytes, argv)) + pairs + directory + _list(map(_bytes, hosts))


def _order(words: bytes) -> bytes:
    answer = native.Buffer()
    native.check(native.loaded().rl_order(words, len(words), ctypes.byref(answer)))
    return native.taken(answer)


def spawn(
    programs: Sequence[Mapping[str, Any]],
    group: str = "",
    share: str = "",
    tied: int = 0,
    tolerant: bool = False,
    bound: bool = False,
) -> SpawnedWorld:
    """Starts programs as a new world of this job, whose ranks have numbers, MASTER_PORT and keys of their own.

    Each program has ``argv``, and may have ``ranks``, ``env``, ``wdir`` and ``hosts``. The function returns when all ranks run. If one cannot be
    started, none remains. ``share``: a group on whose slots the ranks run. ``tolerant``: a rank that fails does not end the job. ``bound``: the
    world ends with this rank.
    """
    flags = (1 if tolerant else 0) | (2 if bound else 0)
    words = b"\1" + struct.pack("<II", flags, tied) + _bytes(group) + _bytes(share)
    value = _order(words + _list(_program(**program) for program in programs))
    (number, length), at = struct.unpack_from("<II", value), 8
    name, at = value[at : at + length], at + length
    (count,), at = struct.unpack_from("<I", value, at), at + 4
    hosts = []
    for _ in range(count):
        (length,) = struct.unpack_from("<I", value, at)
        hosts.append(os.fsdecode(value[at + 4 : at + 4 + length]))
        at += 4 + length
    return SpawnedWorld(number, os.fsdecode(name), hosts)


def end_world(number: int, grace: Optional[float] = None) -> None:
    """Ends the ranks of a world: SIGTERM, and SIGKILL for all of their sessions after ``grace`` seconds (``None``: the job's ``--grace``).

    The function returns at once. Keys ``rlaunch/ended/GROUP/RANK`` of the store have the end of each rank.
    """
    nanoseconds = _NONE if grace is None else min(int(max(grace, 0.0) * 1e9), _NONE - 1)
    _order(b"\2" + struct.pack("<IQ", number, nanoseconds))
