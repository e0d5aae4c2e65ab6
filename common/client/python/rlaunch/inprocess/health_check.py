"""The hooks ``health_check`` and ``restart_health_check``, which check that a rank can take part in another round."""

import abc
import datetime
import sys
import threading
from typing import Optional

from .. import _said
from . import exception
from .finalize import cuda_device
from .state import FrozenState


class HealthCheck(abc.ABC):
    """Base class of health checks. If a check raises an exception, this rank leaves and the others continue."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Runs the check. Returns its argument."""
        raise NotImplementedError


class CudaHealthCheck(HealthCheck):
    """Check that the GPU of the rank finishes its work within ``timeout``, and works after that. Without CUDA it does nothing."""

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
            raise exception.TimeoutError(f"{device} has not finished its work within {self.timeout}")
        # The first call reports errors of earlier kernels. A second failure is one of the device.
        synchronize(device)
        return state


def _quietly(synchronize, device) -> None:
    try:
        synchronize(device)
    except Exception:  # noqa: S110 (the second call reports a lasting error)
        pass


class FaultCounterExceeded(exception.RestartError):
    """Error of a rank that has failed more often than ``max_rank_faults``."""


class FaultCounter(HealthCheck):
    """Check that the function of this rank has raised at most ``max_rank_faults`` exceptions."""

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


class _Unchecked(HealthCheck):
    """Check that NVRx makes with NVML. It has no effect, with one message."""

    def __init__(self, device_index: Optional[int] = None) -> None:
        self.device_index = device_index
        _said.once(f"{type(self).__name__}: without effect; CudaHealthCheck checks the rank's GPU")

    def __call__(self, state: FrozenState) -> FrozenState:
        return state


class ChainedGPUHealthCheck(_Unchecked):
    """NVRx's check of GPUs that need a reset. It has no effect, with one message: use :class:`CudaHealthCheck`."""


class ChainedNVLHealthCheck(_Unchecked):
    """NVRx's check of NVLink. It has no effect, with one message."""


class ChainedNicHealthCheck(_Unchecked):
    """NVRx's check of network cards. It has no effect, with one message."""
