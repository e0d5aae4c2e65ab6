"""The hook ``finalize``: what is done on each rank after the function was left, and before another round."""

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
    """Brings the process to where the function can begin again. An exception has this rank leave."""

    @abc.abstractmethod
    def __call__(self, state: FrozenState) -> FrozenState:
        """Does it, and returns the state that it was given."""
        raise NotImplementedError


class ThreadedFinalize(Finalize):
    """Calls ``fn`` in a thread of its own, and leaves if that takes longer than ``timeout``.

    The thread has the CUDA device of ``LOCAL_RANK``, or the current one, where CUDA is used.
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
    """The CUDA device of this rank, where CUDA is used."""
    if not _cuda.is_initialized():
        return None
    torch = sys.modules["torch"]
    local_rank = os.environ.get("LOCAL_RANK")
    return torch.device("cuda", int(local_rank) if local_rank else torch.cuda.current_device())
