"""The worker of `scripts/bench groups`."""

import time


class Load:
    """Does nothing, with nothing or with a lot."""

    def empty(self):
        return None

    def take(self, data):
        return data[-1] if len(data) else None

    def shutdown(self):
        return time.monotonic()
