"""The hook ``health_check``: whether this rank can take part in another round."""

import abc
import datetime
import sys
import threading
from typing import Optional

from . import exception
from .finalize import cuda_device
from .state import FrozenState


class HealthCheck(abc.ABC):
    """An exception has this rank leave; the others go on."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Does it, and returns the state that it was given."""
        raise NotImplementedError


class CudaHealthCheck(HealthCheck):
    """The rank's GPU comes to an end with what it does, within ``timeout``, and answers after that. Nothing where CUDA is not used."""

    def __init__(self, timeout: datetime.timedelta = datetime.timedelta(seconds=30)) -> None:
        self.timeout = timeout

    def __call__(self, state: FrozenState) -> FrozenState:
        device = cuda_device()
        if device is None:
            return state
        synchronize = sys.modules["torch"].cuda.synchronize
        # A kernel that hangs would hold this thread for ever.
        thread = threading.Thread(target=_quietly, args=(synchronize, device), name="CudaHealthCheckSync", daemon=True)
        thread.start()
        thread.join(self.timeout.total_seconds())
        if thread.is_alive():
            raise exception.TimeoutError(f"{device} has not come to an end within {self.timeout}")
        # What the kernels before it have done wrong is told once; a second failure is the device's own.
        synchronize(device)
        return state


def _quietly(synchronize, device) -> None:
    try:
        synchronize(device)
    except Exception:  # noqa: S110 (the second call tells)
        pass


class FaultCounterExceeded(exception.RestartError):
    """A rank has failed more often than it may."""


class FaultCounter(HealthCheck):
    """A rank whose own function has raised more than ``max_rank_faults`` exceptions leaves."""

    def __init__(self, max_rank_faults: Optional[int] = None) -> None:
        self.max_rank_faults = max_rank_faults
        self.faults_count = 0

    def __call__(self, state: FrozenState) -> FrozenState:
        if state.fn_exception is None:
            return state
        self.faults_count += 1
        if self.max_rank_faults is not None and self.faults_count > self.max_rank_faults:
            raise FaultCounterExceeded(
                f"rank {state.initial_rank} has failed {self.faults_count} times, and max_rank_faults={self.max_rank_faults}"
            )
        return state
