"""A module whose import takes a while."""

import time

for _ in range(30):
    time.sleep(0.01)
