"""Parts of scripts/bench. Nothing here is imported by rlaunch; Python's standard library is all it needs."""
