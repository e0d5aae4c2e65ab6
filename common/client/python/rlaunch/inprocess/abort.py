"""The hook ``abort``: what gets a rank out of what it waits for."""

import abc
import sys
from typing import Any

from .state import FrozenState


class Abort(abc.ABC):
    """Called in a thread of its own, while the function may still run: makes whatever that waits for fail.

    It is given what the round is. An exception is reported, and does not stop the restart.
    """

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Does it, and returns the state that it was given."""
        raise NotImplementedError


class AbortTorchDistributed(Abort):
    """Ends all process groups of torch, those of gloo as well. Nothing where torch is not loaded."""

    @staticmethod
    def shutdown_all_process_group_backends() -> None:
        """Makes all operations of all groups fail."""
        if "torch" in sys.modules:
            from rlaunch import torch as groups

            groups.shut_down_all()

    @staticmethod
    def shutdown_process_group_backend(group: Any, device: Any) -> None:
        """Makes all operations of a group of NCCL on this device fail."""
        from rlaunch import torch as groups

        groups.shut_down_nccl(group, device)

    def __call__(self, state: FrozenState) -> FrozenState:
        self.shutdown_all_process_group_backends()
        return state

    def forget(self) -> None:
        """Once the function was left: torch forgets its groups, so that they can be made anew."""
        if "torch" in sys.modules:
            from rlaunch import torch as groups

            groups.forget_all()


class AbortTransformerEngine(Abort):
    """Ends the user buffers of Transformer Engine, where it is loaded."""

    def __call__(self, state: FrozenState) -> FrozenState:
        if "transformer_engine" in sys.modules:
            import transformer_engine.pytorch as engine

            engine.module.base.destroy_ub()
        return state
