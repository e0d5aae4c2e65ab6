"""The job's store with torch's interface."""

from __future__ import annotations

import datetime
from typing import Any, List, Optional

import torch.distributed as dist

from ._store import Store


class TorchStore(dist.Store):
    """Store that ``rlaunch.torch.store`` returns."""

    def __init__(self, prefix: str, timeout: datetime.timedelta = datetime.timedelta(minutes=30)) -> None:
        super().__init__()
        self._store = Store().prefix(f"{prefix}/")
        self._within = timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Sets the time-out of waits that give none."""
        self._within = timeout

    def set(self, key: str, value: Any) -> None:
        """Sets the value of a key."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """Waits for a key, and returns its value."""
        self.wait([key])
        return self._store.get(key) or b""

    def add(self, key: str, by: int) -> int:
        """Adds to a number. Returns the sum."""
        return self._store.add(key, by)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        """Sets a key if its value is as expected (empty: or if there is no such key). Returns the value after that."""
        done, now = self._store.compare_set(key, expected, desired)
        if not done and now is None and not expected:
            _, now = self._store.compare_set(key, None, desired)
        return now if now is not None else (expected.encode() if isinstance(expected, str) else bytes(expected))

    def delete_key(self, key: str) -> bool:
        """Removes a key. Returns whether it existed."""
        return self._store.delete(key)

    def num_keys(self) -> int:
        """The number of keys."""
        return len(self._store.keys())

    def check(self, keys: List[str]) -> bool:
        """Whether all of these keys exist."""
        return self._store.check(keys)

    def wait(self, keys: List[str], timeout: Optional[datetime.timedelta] = None) -> None:
        """Waits until all of these keys exist."""
        self._store.wait(keys, (timeout or self._within).total_seconds())
