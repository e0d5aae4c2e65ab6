"""Filters of ranks, which NVRx has deprecated: policies replace them."""

import abc
import warnings
from typing import Any, Optional

from . import rank_assignment
from .state import State


class RankFilter(abc.ABC):
    """Base class of filters, which select the active ranks."""

    @abc.abstractmethod
    def __call__(self, state: State) -> State:
        """The state of this rank."""
        raise NotImplementedError


def _deprecated(name: str, now: str) -> None:
    text = f"rank_filter.{name} is deprecated: rank_assignment.{now} does the same"
    warnings.warn(text, DeprecationWarning, stacklevel=3)


class _Filter(RankFilter):
    impl: rank_assignment.RankAssignment

    def __call__(self, state: State) -> State:
        ctx = rank_assignment.RankAssignmentCtx(state=state, store=None, terminated_ranks=set())
        return self.impl(ctx).state


class MaxActiveWorldSize(_Filter):
    """Filter that keeps at most so many ranks active."""

    def __init__(self, max_active_world_size: Optional[int] = None) -> None:
        _deprecated("MaxActiveWorldSize", "MaxActiveWorldSize")
        self.impl = rank_assignment.MaxActiveWorldSize(max_active_world_size)


class ActiveWorldSizeDivisibleBy(_Filter):
    """Filter that makes the number of active ranks a multiple of the divisor."""

    def __init__(self, divisor: int = 1) -> None:
        _deprecated("ActiveWorldSizeDivisibleBy", "ActiveWorldSizeDivisibleBy")
        self.impl = rank_assignment.ActiveWorldSizeDivisibleBy(divisor)


class WorldSizeDivisibleBy(ActiveWorldSizeDivisibleBy):
    """Former name of :class:`ActiveWorldSizeDivisibleBy`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _deprecated("WorldSizeDivisibleBy", "ActiveWorldSizeDivisibleBy")
        super().__init__(*args, **kwargs)
