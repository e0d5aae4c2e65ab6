"""The hook ``completion``, which runs when the work is done."""

import abc

from .state import FrozenState


class Completion(abc.ABC):
    """Base class of hooks that run once on each rank when the work is done, before the call returns."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Runs the hook. Returns its argument."""
        raise NotImplementedError
