"""A process whose CUDA is initialized has a device open, and cannot be given another one."""

from __future__ import annotations

import sys


def is_initialized() -> bool:
    """Whether torch has. (Nothing is imported for that.)"""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()


def refuse_relocal() -> None:
    """LOCAL_RANK is to change, and what it names cannot."""
    if is_initialized():
        raise RuntimeError(
            "relocal=True changes LOCAL_RANK, and CUDA is initialized already: its device would not move with it;"
            " leave relocal out, or use CUDA in the wrapped function only, and in other processes"
        )
