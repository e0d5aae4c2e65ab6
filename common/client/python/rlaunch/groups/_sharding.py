"""Workers on named axes, and plans of calls: one code for Rust, C and Python."""

from __future__ import annotations

import array
import collections
import ctypes
import operator

from .. import _native as native

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

REPLICATED_AXES = ("tensor_parallel", "context_parallel", "pipeline_parallel")
"""Axes on which all ranks have the same data, by NeMo-RL's names."""

_EXCEPTIONS = {native.E_ARGUMENT: ValueError, native.E_INDEX: IndexError, native.E_LENGTH: AssertionError}


def check(code: int) -> None:
    """Raises the exception that NeMo-RL raises for a refused layout or call."""
    if code in _EXCEPTIONS:
        raise _EXCEPTIONS[code](native.error_text(code))
    native.check(code)


def _texts(names: Optional[Sequence[str]]) -> Tuple[Any, int]:
    encoded = [str(name).encode() for name in names or ()]
    return native.many_bytes(encoded), len(encoded)


def _numbers(kind: str, buffer: native.Buffer) -> List[int]:
    numbers = array.array(kind)
    numbers.frombytes(native.taken(buffer))
    return numbers.tolist()


def _flat(layout: Any) -> Tuple[List[int], List[int]]:
    """Sizes and ranks of nested sequences."""
    if hasattr(layout, "tolist"):
        layout = layout.tolist()
    sizes: List[int] = []
    level: List[Any] = [layout]
    while level and isinstance(level[0], (list, tuple, range)):
        if len({len(part) if isinstance(part, (list, tuple, range)) else -1 for part in level}) != 1:
            raise ValueError("Could not create NumPy array from layout: its lists have different lengths")
        sizes.append(len(level[0]))
        level = [value for part in level for value in part]
    ranks = []
    for value in level:
        if isinstance(value, (list, tuple, range)):
            raise ValueError("Could not create NumPy array from layout: its lists have different depths")
        is_whole = isinstance(value, float) and value.is_integer()
        try:
            ranks.append(int(value) if is_whole else operator.index(value))
        except TypeError:
            raise ValueError("Layout must contain only integer rank IDs.") from None
    return sizes, ranks


def _nested(sizes: Sequence[int], ranks: Sequence[int]) -> Any:
    if not sizes:
        return ranks[0]
    width = len(ranks) // sizes[0] if sizes[0] else 0
    return [_nested(sizes[1:], ranks[at * width : (at + 1) * width]) for at in range(sizes[0])]


class NamedSharding:
    """An arrangement of ranks with named axes: ``NamedSharding([[0, 1], [2, 3]], ["data_parallel", "tensor_parallel"])``.

    Names and results are those of NeMo-RL's class. The layout is nested lists or a NumPy array. A name or a rank that occurs twice is
    refused.
    """

    def __init__(self, layout: Any, names: Sequence[str]) -> None:
        sizes, ranks = _flat(layout)
        self._names = list(names)
        self._sizes, self._ranks = sizes, ranks
        self._lib = native.loaded()
        self._handle = ctypes.c_void_p()
        texts, count = _texts(self._names)
        try:
            # An array of ctypes would cut numbers that are too large.
            packed = array.array("q", ranks)
        except OverflowError:
            raise ValueError("Layout must contain only integer rank IDs.") from None
        numbers = (ctypes.c_int64 * len(ranks)).from_buffer_copy(packed)
        axes = (ctypes.c_uint64 * len(sizes))(*sizes)
        handle = ctypes.byref(self._handle)
        check(self._lib.rl_sharding_open(axes, len(sizes), numbers, len(ranks), texts, count, handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.rl_sharding_close(self._handle)

    def __reduce__(self) -> Tuple[Any, ...]:
        return NamedSharding, (self.layout, self._names)

    @property
    def shape(self) -> Dict[str, int]:
        """The size of each axis."""
        return dict(zip(self._names, self._sizes))

    @property
    def names(self) -> List[str]:
        """The names of the axes, from the outermost."""
        return list(self._names)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._sizes)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self._ranks)

    @property
    def layout(self) -> Any:
        """The ranks as nested lists."""
        return _nested(self._sizes, self._ranks)

    def get_worker_coords(self, worker_id: int) -> Dict[str, int]:
        """The coordinates of a worker by the names of the axes."""
        coords = native.Buffer()
        check(self._lib.rl_sharding_coords(self._handle, worker_id, ctypes.byref(coords)))
        return dict(zip(self._names, _numbers("I", coords)))

    @staticmethod
    def is_axis_zero(coords: Dict[str, int], axes: Sequence[str] = REPLICATED_AXES) -> bool:
        """Whether coordinates are 0 on each of these axes. Axes without a coordinate count as 0."""
        return all(coords.get(axis, 0) == 0 for axis in axes)

    def contains_worker_id(self, worker_id: int) -> bool:
        """Whether a worker is in the layout."""
        return worker_id in self._ranks

    def get_ranks_by_coord(self, **coords: int) -> List[int]:
        """All ranks at these coordinates, sorted; none if a coordinate is outside of its axis."""
        ranks = native.Buffer()
        check(self._lib.rl_sharding_by_coord(self._handle, *_axes(coords), ctypes.byref(ranks)))
        return _numbers("q", ranks)

    def get_ranks(self, **coords: int) -> Union["NamedSharding", int]:
        """The rank at these coordinates, or the layout of the other axes."""
        ranks = native.Buffer()
        check(self._lib.rl_sharding_select(self._handle, *_axes(coords), ctypes.byref(ranks)))
        found = _numbers("q", ranks)
        left = [name for name in self._names if name not in coords]
        if not left:
            return found[0]
        return NamedSharding(_nested([self.shape[name] for name in left], found), left)

    def get_axis_index(self, name: str) -> int:
        """The number of an axis."""
        if name not in self._names:
            raise ValueError(f"Invalid axis name: '{name}'. Valid names are: {self._names}")
        return self._names.index(name)

    def get_axis_size(self, name: str) -> int:
        """The size of an axis."""
        return self._sizes[self.get_axis_index(name)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedSharding):
            return NotImplemented
        return (self._names, self._sizes, self._ranks) == (other._names, other._sizes, other._ranks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shape = ", ".join(str(size) for size in self._sizes)
        return f"NamedSharding(shape=({shape}), names={self._names}, layout={self.layout})"


def _axes(coords: Dict[str, int]) -> Tuple[Any, int]:
    encoded = [(name.encode(), index) for name, index in coords.items()]
    axes = (native.Axis * len(encoded))(*(native.Axis(name, len(name), index) for name, index in encoded))
    axes.kept = encoded  # The array only points at the texts.
    return axes, len(encoded)


class Plan(collections.namedtuple("Plan", "calls return_from")):
    """Plan of a call: the workers that are called, and their parts of the data.

    ``calls``: worker and indices of its data; ``None`` instead of indices: a call without data. ``return_from``: workers whose results are
    returned, if they are called.
    """

    __slots__ = ()


def _plan(buffer: native.Buffer) -> Plan:
    words = _numbers("I", buffer)
    count, results, width = words[:3]
    end = 3 + count * (width + 2)
    step = width + 2
    calls: List[Tuple[int, Optional[List[int]]]] = [
        (words[at], None if words[at + 1] else words[at + 2 : at + step]) for at in range(3, end, step)
    ]
    return Plan(calls, words[end : end + results])


def _handle(sharding: Optional[NamedSharding]) -> Any:
    return None if sharding is None else sharding._handle


def plan_sharded(
    sharding: Optional[NamedSharding],
    workers: int,
    in_sharded_axes: Optional[Sequence[str]] = None,
    replicate_on_axes: Optional[Sequence[str]] = None,
    output_is_replicated: Optional[Sequence[str]] = None,
    make_dummy_calls_to_free_axes: bool = False,
) -> Plan:
    """The plan of a call with sharded data."""
    plan = native.Buffer()
    axes = [*_texts(in_sharded_axes), *_texts(replicate_on_axes), *_texts(output_is_replicated)]
    dummy = int(make_dummy_calls_to_free_axes)
    check(native.loaded().rl_plan_sharded(_handle(sharding), workers, *axes, dummy, ctypes.byref(plan)))
    return _plan(plan)


def plan_single(sharding: Optional[NamedSharding], workers: int, only: Optional[Sequence[str]] = None) -> Plan:
    """The plan of a call with the same data for all."""
    plan = native.Buffer()
    check(native.loaded().rl_plan_single(_handle(sharding), workers, *_texts(only), ctypes.byref(plan)))
    return _plan(plan)


def plan_multiple(
    sharding: Optional[NamedSharding], workers: int, values: int, only: Optional[Sequence[str]] = None
) -> Plan:
    """The plan of a call with one value for each worker: the index of a call is that of its value."""
    plan = native.Buffer()
    names = _texts(only)
    has_only = int(only is not None)
    check(native.loaded().rl_plan_multiple(_handle(sharding), workers, *names, has_only, values, ctypes.byref(plan)))
    return _plan(plan)


class PlannedWorker(collections.namedtuple("PlannedWorker", "name host slot shard rank_in_shard bundle_indices")):
    """Worker on its slot. ``bundle_indices``: host and slots of its tied group, for the leader alone."""

    __slots__ = ()


def plan_workers(
    slots: Sequence[int],
    workers_per_node: Any = None,
    bundle_indices_list: Optional[Sequence[Tuple[int, Sequence[int]]]] = None,
    name_prefix: str = "",
) -> List[PlannedWorker]:
    """The workers of a group on the slots of its hosts."""
    if workers_per_node is None:
        kind, per_node = 0, []
    elif isinstance(workers_per_node, int):
        kind, per_node = 1, [workers_per_node]
    elif isinstance(workers_per_node, list):
        kind, per_node = 2, workers_per_node
    else:
        kind, per_node = 3, []
    if any(number < 0 for number in per_node):
        raise ValueError(f"workers_per_node takes numbers from 0, got {workers_per_node!r}")
    groups = [(host, list(indices)) for host, indices in bundle_indices_list or ()]
    tied = [word for host, indices in groups for word in (host, len(indices), *indices)]
    lists = []
    for words in (slots, per_node, tied):
        lists += [(ctypes.c_uint32 * len(words))(*words), len(words)]
    prefix = name_prefix.encode()
    plan = native.Buffer()
    has_tied = int(bundle_indices_list is not None)
    arguments = [*lists[:4], kind, *lists[4:], has_tied, prefix, len(prefix), ctypes.byref(plan)]
    check(native.loaded().rl_plan_workers(*arguments))
    workers = []
    for line in native.taken(plan).decode().splitlines():
        host, slot, shard, rank, name = line.split(" ", 4)
        indices = None
        if rank == "0":
            indices = groups[int(shard)] if bundle_indices_list is not None else (int(host), [int(slot)])
        workers.append(PlannedWorker(name, int(host), int(slot), int(shard), int(rank), indices))
    return workers
