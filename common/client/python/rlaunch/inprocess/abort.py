"""The hook ``abort``, which ends the operations that a rank waits for."""

import abc
import sys
from typing import Any, Optional

from .. import _said
from .state import FrozenState


class Abort(abc.ABC):
    """Base class of abort hooks. A hook runs in a thread of its own while the function may still run, and makes blocking operations fail.

    Its argument is the state of the round. An exception of the hook is reported, and does not stop the restart.
    """

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Runs the hook. Returns its argument."""
        raise NotImplementedError


class AbortTorchDistributed(Abort):
    """Hook that ends all process groups of torch, those of gloo as well. Without torch it does nothing.

    ``torch_fr_trace_path`` has no effect, with one message: torch writes the traces of its Flight Recorder itself.
    """

    def __init__(self, torch_fr_trace_path: Optional[str] = None) -> None:
        self.torch_fr_trace_path = torch_fr_trace_path
        if torch_fr_trace_path is not None:
            _said.once("AbortTorchDistributed: torch_fr_trace_path: without effect; set TORCH_NCCL_DUMP_ON_TIMEOUT=1")

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
        """Makes torch forget its groups after the function was left, so that they can be made anew."""
        if "torch" in sys.modules:
            from rlaunch import torch as groups

            groups.forget_all()


class AbortTransformerEngine(Abort):
    """Hook that ends the user buffers of Transformer Engine, if it is loaded."""

    def __call__(self, state: FrozenState) -> FrozenState:
        if "transformer_engine" in sys.modules:
            import transformer_engine.pytorch as engine

            engine.module.base.destroy_ub()
        return state


class AbortPersistentCheckpointProcesses(Abort):
    """Hook that ends the processes of NVRx's asynchronous checkpoints, if that module is loaded."""

    def __call__(self, state: FrozenState) -> FrozenState:
        checkpoints = sys.modules.get("nvidia_resiliency_ext.checkpointing.async_ckpt.core")
        if hasattr(checkpoints, "abort_nvrx_checkpoint"):
            checkpoints.abort_nvrx_checkpoint()
        return state
