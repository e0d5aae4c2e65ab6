"""The hook ``terminate``, which runs on a rank that leaves."""

import abc

from .state import FrozenState


class Terminate(abc.ABC):
    """Base class of hooks that run once on a rank that leaves, before its exception is raised."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Runs the hook. Returns its argument."""
        raise NotImplementedError
