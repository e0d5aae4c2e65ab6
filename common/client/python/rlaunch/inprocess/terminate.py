"""The hook ``terminate``."""

import abc

from .state import FrozenState


class Terminate(abc.ABC):
    """Runs once on a rank that leaves, before the exception that it leaves by is raised."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Does it, and returns the state that it was given."""
        raise NotImplementedError
