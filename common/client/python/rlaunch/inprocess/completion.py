"""The hook ``completion``."""

import abc

from .state import FrozenState


class Completion(abc.ABC):
    """Runs once on each rank when the work is done, before the call returns."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Does it, and returns the state that it was given."""
        raise NotImplementedError
