"""The worker of `scripts/bench groups`."""

import time


class Load:
    """Worker whose methods do nothing, without arguments or with large ones."""

    def empty(self):
        return None

    def take(self, data):
        return data[-1] if len(data) else None

    def shutdown(self):
        return time.monotonic()
