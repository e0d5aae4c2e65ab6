"""The hook ``initialize``, which runs at the beginning of each round."""

import abc
from typing import Optional

from . import exception
from .state import FrozenState


class Initialize(abc.ABC):
    """Base class of hooks for the beginning of a round. After an exception another round begins; after ``RestartAbort`` this rank leaves."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Runs the hook. Returns its argument."""
        raise NotImplementedError


class RetryController(Initialize):
    """Hook that allows at most ``max_iterations`` rounds, and none with fewer ranks than the given sizes."""

    def __init__(
        self, max_iterations: Optional[int] = None, min_world_size: int = 1, min_active_world_size: int = 1
    ) -> None:
        self.max_iterations = max_iterations
        self.min_world_size = min_world_size
        self.min_active_world_size = min_active_world_size

    def __call__(self, state: FrozenState) -> FrozenState:
        if self.max_iterations is not None and state.iteration >= self.max_iterations:
            raise exception.RestartAbort(f"{state.iteration} restarts are as many as max_iterations={self.max_iterations} allows")
        sizes = (
            ("world_size", state.world_size, "min_world_size", self.min_world_size),
            ("active_world_size", state.active_world_size, "min_active_world_size", self.min_active_world_size),
        )
        for name, size, limit, least in sizes:
            if size < least:
                raise exception.RestartAbort(f"{name} is {size}, below {limit}={least}")
        return state
