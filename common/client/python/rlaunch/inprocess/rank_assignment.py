"""Policies, which assign ranks for the next round and select the active ranks.

Classes of this module describe policies. The launcher computes them once for all ranks; ``rlaunch assign`` tries a policy without a job.
Each rank sends the values of a script's functions. Simple policies can also be called.
"""

import abc
import collections.abc
import dataclasses
import datetime
import enum
import operator
from typing import Any, Callable, List, Optional, Set, Union

from . import exception
from .param_utils import require_type
from .state import Mode, State


class RankDiscarded(exception.RestartError):
    """Exception on a rank that the policy has discarded. Its process runs to its end."""


@dataclasses.dataclass
class RankAssignmentCtx:
    """Argument of a policy."""

    state: State
    store: Any
    terminated_ranks: Set[int]


class RankAssignment(abc.ABC):
    """Base class of policies. The launcher knows those of this module and their compositions. It cannot call a class of a script."""

    @abc.abstractmethod
    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        """The state of a rank after the policy."""
        raise NotImplementedError


class RankFilter(RankAssignment):
    """Base class of policies that select the active ranks, and change no order."""

    @abc.abstractmethod
    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        """The state of a rank after the policy."""
        raise NotImplementedError


class ActivateAllRanks(RankFilter):
    """Policy that makes every rank active."""

    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        state = ctx.state
        ctx.state = dataclasses.replace(
            state, mode=Mode.ACTIVE, active_rank=state.rank, active_world_size=state.world_size
        )
        return ctx


def _could_work(state: State) -> int:
    return state.world_size if state.active_world_size is None else min(state.active_world_size, state.world_size)


def _first_work(ctx: RankAssignmentCtx, count: int) -> RankAssignmentCtx:
    works = ctx.state.rank is not None and ctx.state.rank < count
    ctx.state = dataclasses.replace(
        ctx.state,
        mode=Mode.ACTIVE if works else Mode.INACTIVE,
        active_rank=ctx.state.rank if works else None,
        active_world_size=count,
    )
    return ctx


class MaxActiveWorldSize(RankFilter):
    """Policy that keeps at most so many ranks active."""

    def __init__(self, max_active_world_size: Optional[int] = None) -> None:
        self.max_active_world_size = max_active_world_size

    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        could, most = _could_work(ctx.state), self.max_active_world_size
        return _first_work(ctx, could if most is None else min(could, most))


class ActiveWorldSizeDivisibleBy(RankFilter):
    """Policy that makes the number of active ranks a multiple of the divisor."""

    def __init__(self, divisor: int = 1) -> None:
        self.divisor = divisor

    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        could = _could_work(ctx.state)
        return _first_work(ctx, could - could % self.divisor)


class LayerFlag(enum.Flag):
    """Source of replacements for a layer of a :class:`Tree`."""

    RESERVE = enum.auto()
    """Replacements are ranks in reserve."""
    BACKFILL = enum.auto()
    """Replacements are the last active ranks of the layer."""


@dataclasses.dataclass
class Layer:
    """Layer of a :class:`Tree`: the key that its groups have in common, and how many ranks a group needs and takes.

    A group with fewer than ``min_ranks`` healthy ranks is discarded. At most ``max_ranks`` of a group are active, and the others are its
    own spares.
    """

    min_ranks: int = 1
    max_ranks: Optional[int] = None
    key_or_fn: Union[str, Callable[[State], str]] = ""
    flag: Optional[LayerFlag] = None

    def __post_init__(self) -> None:
        self.min_ranks = _count("min_ranks", self.min_ranks)
        self.max_ranks = None if self.max_ranks is None else _count("max_ranks", self.max_ranks)
        require_type("Layer: flag", self.flag, (LayerFlag, type(None)))
        if not isinstance(self.key_or_fn, str):
            require_type("Layer: key_or_fn", self.key_or_fn, collections.abc.Callable)


def _count(name: str, value: Any) -> int:
    """The value as an ``int``. Numbers of numpy are accepted."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"Layer: {name} takes an int, got {value!r} of type {type(value).__name__}") from None
    if count < 0:
        raise ValueError(f"Layer: {name} is 0 or more, got {count}")
    return count


class Tree(RankAssignment):
    """Policy for groups within groups, the outermost first. A function as ``key_or_fn`` is called once, at the beginning of the call."""

    def __init__(
        self, layers: List[Layer], world_size_filter: Optional[Callable[[int], int]] = None
    ) -> None:
        require_type("Tree: layers", layers, (list, tuple))
        if not layers:
            raise ValueError("Tree: layers is empty: the first one is all ranks, Layer()")
        for layer in layers:
            require_type("Tree: each of layers", layer, Layer)
        if world_size_filter is not None:
            require_type("Tree: world_size_filter", world_size_filter, collections.abc.Callable)
        self.layers = layers
        self.world_size_filter = world_size_filter

    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        """Always raises: one rank's result depends on all ranks."""
        raise NotImplementedError("a Tree is computed by the launcher, which knows all ranks: try it with `rlaunch assign`")


def _is_out(ctx: RankAssignmentCtx) -> bool:
    if ctx.state.rank in ctx.terminated_ranks:
        raise RankDiscarded(f"rank {ctx.state.rank} is among the terminated ranks {sorted(ctx.terminated_ranks)}")
    return False


def _moved(ctx: RankAssignmentCtx, rank: int) -> RankAssignmentCtx:
    world_size = ctx.state.world_size - len(ctx.terminated_ranks)
    ctx.state = dataclasses.replace(ctx.state, rank=rank, world_size=world_size)
    ctx.terminated_ranks = set()
    return ctx


class FillGaps(RankAssignment):
    """Policy that gives the numbers of lost ranks to the last ranks. All other ranks keep their numbers."""

    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        _is_out(ctx)
        rank, lost = ctx.state.rank, ctx.terminated_ranks
        size = ctx.state.world_size - len(lost)
        if rank < size:
            return _moved(ctx, rank)
        movers = [mover for mover in range(size, ctx.state.world_size) if mover not in lost]
        gaps = [gap for gap in sorted(lost) if gap < size]
        return _moved(ctx, gaps[movers.index(rank)])


class ShiftRanks(RankAssignment):
    """Policy that moves up the ranks after a lost one."""

    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        _is_out(ctx)
        return _moved(ctx, ctx.state.rank - sum(lost < ctx.state.rank for lost in ctx.terminated_ranks))


class FilterCountGroupedByKey(RankAssignment):
    """Policy that discards the ranks of each group whose number of healthy ranks does not meet the condition."""

    instance_count = 0

    def __init__(
        self,
        key_or_fn: Union[str, Callable[[State], str]],
        condition: Callable[[int], bool],
        timeout: datetime.timedelta = datetime.timedelta(seconds=60),
    ) -> None:
        self.key_or_fn = key_or_fn
        self.condition = condition
        self.timeout = timeout

    def __call__(self, ctx: RankAssignmentCtx) -> RankAssignmentCtx:
        """Always raises: the size of a group depends on all ranks."""
        raise NotImplementedError(
            "groups are counted by the launcher, which knows all ranks: try it with `rlaunch assign`"
        )
