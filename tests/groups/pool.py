"""Functions on the hosts of the pool p. The functions and a class of this program are known there."""

import os
import socket
import sys

from rlaunch import Error, Refused, pool


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right


def pair(left, right=0):
    print("pair for", os.environ["WHO"], end="")
    return Pair(left, Pair(socket.gethostname(), right))


def has_input_or_is_in_a_command(data):
    """Whether the function has input, or its arguments are words of a command, which other users can read."""
    longest = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                longest = max(longest, len(file.read()))
        except OSError:
            pass  # It has exited.
    return sys.stdin.read(), longest == 0 or longest >= len(data)


def fail_on(host, how):
    if socket.gethostname() == host:
        how == "raise" and {}["no such key"]
        sys.stdout.flush()
        os._exit(3) if how == "exit" else os.kill(os.getpid(), 9)
    return len(how)


if __name__ == "__main__":
    found = pool.execute_on_each_host("p", pair, b"x" * 5000, right=2, env={"WHO": "me"}, wait=30)
    shown = [(host, type(value) is Pair, value.left == b"x" * 5000, vars(value.right)) for host, value in found.items()]
    print(*shown, sep="\n")
    print(pool.execute_on_each_slice("p", os.getenv, "RANK", wait=True))
    print(pool.execute_on_each_host("p", has_input_or_is_in_a_command, os.urandom(50_000), wait=True))
    for how in ("raise", "exit", "kill"):
        try:
            pool.execute_on_each_host("p", fail_on, "node1", how, wait=True)
        except pool.HostsFailed as error:
            print(error, error.results, repr(error.__cause__)[:8])
    try:
        pool.execute_on_each_host("q", len, ())
    except Refused as error:
        print(type(error).__name__, str(error).splitlines()[0])
    assert issubclass(pool.HostsFailed, Error)
