"""The job's store, as torch asks one."""

from __future__ import annotations

import datetime
from typing import Any, List, Optional

import torch.distributed as dist

from ._store import Store


class TorchStore(dist.Store):
    """What ``rlaunch.torch.store`` returns."""

    def __init__(self, prefix: str, timeout: datetime.timedelta = datetime.timedelta(minutes=30)) -> None:
        super().__init__()
        self._store = Store().prefix(f"{prefix}/")
        self._within = timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """How long a wait lasts that says nothing of it."""
        self._within = timeout

    def set(self, key: str, value: Any) -> None:
        """Gives a key a value."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """The value of a key, when there is one."""
        self.wait([key])
        return self._store.get(key) or b""

    def add(self, key: str, by: int) -> int:
        """The sum."""
        return self._store.add(key, by)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        """Sets a key if it is as expected; empty: or does not exist. Its value now."""
        done, now = self._store.compare_set(key, expected, desired)
        if not done and now is None and not expected:
            _, now = self._store.compare_set(key, None, desired)
        return now if now is not None else (expected.encode() if isinstance(expected, str) else bytes(expected))

    def delete_key(self, key: str) -> bool:
        """Whether there was one."""
        return self._store.delete(key)

    def num_keys(self) -> int:
        """How many there are."""
        return len(self._store.keys())

    def check(self, keys: List[str]) -> bool:
        """Whether all exist."""
        return self._store.check(keys)

    def wait(self, keys: List[str], timeout: Optional[datetime.timedelta] = None) -> None:
        """Until all exist."""
        self._store.wait(keys, (timeout or self._within).total_seconds())
