"""Policies of a script as text in the syntax of ``rlaunch --assign``.

The launcher computes policies for all ranks, and cannot call a function of the script. For the function of a key, each rank sends its own
value. A condition or filter is a function of a number of ranks: the text has its values for all possible numbers.
"""

from __future__ import annotations

import json
from typing import Any, Callable, List, NamedTuple, Optional

from . import rank_assignment as policies
from . import rank_filter as filters
from .compose import Compose
from .state import State


class Words(NamedTuple):
    """Policy as text."""

    text: str
    keys: List[Callable[[State], str]]
    """Functions of keys, with the names ``script/0``, ``script/1`` and so on in the text."""

    def values(self, state: State) -> List[str]:
        """The values of the keys for this rank."""
        return [str(key(state)) for key in self.keys]


def words(policy: Any, rank_filter: Any, world_size: int) -> Words:
    """The text of a policy, and of a deprecated filter that runs after it."""
    keys: List[Callable[[State], str]] = []
    parts = _flat(policy)
    if rank_filter is not None:
        parts = [_of_filter(part) for part in _flat(rank_filter)] + [
            part for part in parts if type(part) is not policies.ActivateAllRanks
        ]
    for part in parts:
        if type(part) is policies.Tree:
            if len(parts) > 1:
                raise ValueError("a Tree is a whole policy: nothing can be composed with it, and no rank_filter given")
            return Words(_tree(part, keys, world_size), keys)
    return Words(",".join(_part(part, keys, world_size) for part in parts), keys)


def _flat(policy: Any) -> List[Any]:
    if isinstance(policy, Compose):
        return [part for instance in policy.instances for part in _flat(instance)]
    return [policy]


def _of_filter(part: Any) -> policies.RankAssignment:
    known = (filters.MaxActiveWorldSize, filters.ActiveWorldSizeDivisibleBy, filters.WorldSizeDivisibleBy)
    if type(part) not in known:
        raise TypeError(_not_ours(part, "rank_filter"))
    return part.impl


def _not_ours(part: Any, argument: str) -> str:
    return (
        f"{argument}: {type(part).__module__}.{type(part).__qualname__} is a class of the script, and the launcher, which decides for"
        " all ranks, cannot call it: compose policies of rlaunch.inprocess.rank_assignment, with functions for keys and conditions"
    )


def _part(part: Any, keys: List[Callable[[State], str]], world_size: int) -> str:
    kind = type(part)
    if kind is policies.ActivateAllRanks:
        return "all"
    if kind is policies.ShiftRanks:
        return "shift"
    if kind is policies.FillGaps:
        return "fill"
    if kind is policies.MaxActiveWorldSize:
        most = part.max_active_world_size
        return "max" if most is None else f"max={most}"
    if kind is policies.ActiveWorldSizeDivisibleBy:
        return f"divisible={part.divisor}"
    if kind is policies.FilterCountGroupedByKey:
        return f"group({_key(part.key_or_fn, keys)}){_condition(part.condition, world_size)}"
    raise TypeError(_not_ours(part, "rank_assignment"))


def _key(key_or_fn: Any, keys: List[Callable[[State], str]]) -> str:
    if not callable(key_or_fn):
        return f"const:{key_or_fn}"
    keys.append(key_or_fn)
    return f"script/{len(keys) - 1}"


def _condition(condition: Callable[[int], bool], world_size: int) -> str:
    """The text of a condition, from its values for 1 rank to all ranks."""
    holds = [count for count in range(1, world_size + 1) if condition(count)]
    if not holds:
        return f"=={world_size + 1}"
    first, last = holds[0], holds[-1]
    if len(holds) == 1:
        return f"=={first}"
    if holds == list(range(first, world_size + 1)):
        return f">={first}"
    if holds == list(range(1, last + 1)):
        return f"<={last}"
    if holds == list(range(first, world_size + 1, first)):
        return f"%{first}"
    return f" in({_ranges(holds)})"


def _ranges(numbers: List[int]) -> str:
    ranges: List[List[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _filter(function: Callable[[int], int], world_size: int) -> str:
    values = [0] + [int(function(could)) for could in range(1, world_size + 1)]
    for could, works in enumerate(values):
        if not 0 <= works <= could:
            raise ValueError(f"world_size_filter({could}) is {works}: it may ask for fewer ranks, and not for more")
    first = next((could for could, works in enumerate(values) if works), 0)
    last = values[-1]
    forms = [
        (f"multiple={first}", lambda could: could - could % first) if first else ("cap=0", lambda could: 0),
        (f"cap={last}", lambda could: min(could, last)),
        (f"spare={first - 1}", lambda could: max(0, could - first + 1)),
        ("pow2", lambda could: 1 << (could.bit_length() - 1) if could else 0),
    ]
    for form, same in forms:
        if all(works == same(could) for could, works in enumerate(values)):
            return form
    return f"table({','.join(map(str, values))})"


def _tree(tree: policies.Tree, keys: List[Callable[[State], str]], world_size: int) -> str:
    lines = ["[assign.tree]"]
    if tree.world_size_filter is not None:
        lines.append(f"filter = {_quoted(_filter(tree.world_size_filter, world_size))}")
    for layer in tree.layers:
        lines.append("[[assign.tree.layer]]")
        key = layer.key_or_fn
        named = _key(_once(key) if callable(key) else key, keys) if key != "" else ""
        lines.append(f"key = {_quoted(named)}")
        lines.append(f"min_ranks = {layer.min_ranks}")
        if layer.max_ranks is not None:
            lines.append(f"max_ranks = {layer.max_ranks}")
        flags = [flag.name.lower() for flag in policies.LayerFlag if layer.flag is not None and flag in layer.flag]
        lines.append(f"flags = [{', '.join(map(_quoted, flags))}]")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # JSON escapes strings in the same way as TOML.
    return json.dumps(text)


def _once(key: Callable[[State], str]) -> Callable[[State], str]:
    """The function of a key that keeps its first value, because a tree is built once."""
    answered: List[Optional[str]] = [None]

    def asked(state: State) -> str:
        if answered[0] is None:
            answered[0] = str(key(state))
        return answered[0]

    return asked
