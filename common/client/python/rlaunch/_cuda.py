"""CUDA of this process."""

from __future__ import annotations

import sys


def is_initialized() -> bool:
    """Whether torch has initialized CUDA. The function imports nothing."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()
