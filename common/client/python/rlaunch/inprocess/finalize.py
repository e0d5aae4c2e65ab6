"""The hook ``finalize``, which runs on each rank between an interrupted round and the next one."""

import abc
import datetime
import os
import sys
import threading
from typing import Any, Callable, Optional

from .. import _cuda
from . import exception
from .state import FrozenState


class Finalize(abc.ABC):
    """Base class of hooks that clean up after an interrupted round. If a hook raises an exception, this rank leaves."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Runs the hook. Returns its argument."""
        raise NotImplementedError


class ThreadedFinalize(Finalize):
    """Hook that calls ``fn`` in a thread of its own. If that takes longer than ``timeout``, this rank leaves.

    If CUDA is used, the thread has the device of ``LOCAL_RANK``, or otherwise the current one.
    """

    def __init__(
        self,
        timeout: datetime.timedelta,
        fn: Callable[..., Any],
        args: Optional[tuple] = (),
        kwargs: Optional[dict] = None,
    ) -> None:
        self.timeout = timeout
        self.fn = fn
        self.args = args or ()
        self.kwargs = kwargs or {}

    def __call__(self, state: FrozenState) -> FrozenState:
        device = cuda_device()
        failed = []

        def call() -> None:
            try:
                if device is not None:
                    sys.modules["torch"].cuda.set_device(device)
                self.fn(*self.args, **self.kwargs)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=call, name=f"{type(self).__name__}-{state.rank}", daemon=True)
        thread.start()
        thread.join(self.timeout.total_seconds())
        if thread.is_alive():
            raise exception.TimeoutError(f"{self.fn!r} has not returned within {self.timeout}")
        if failed:
            raise failed[0]
        return state


def cuda_device() -> Any:
    """The CUDA device of this rank, or ``None`` without CUDA."""
    if not _cuda.is_initialized():
        return None
    torch = sys.modules["torch"]
    local_rank = os.environ.get("LOCAL_RANK")
    return torch.device("cuda", int(local_rank) if local_rank else torch.cuda.current_device())
