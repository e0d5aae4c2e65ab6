"""Classes of workers for the tests of worker groups."""

import asyncio
import gc
import os
import signal
import sys
import threading
import time


class Plain:
    """Plain methods and generators."""

    def __init__(self, base=0):
        self.base, self.rank = base, int(os.environ["RANK"])
        self.order, self.closed = [], 0

    def add(self, x):
        return self.base + x + self.rank

    def world(self):
        return [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "RLAUNCH_GROUP")]

    def echo(self, **values):
        return values

    def size(self, data):
        return len(data)

    def keep(self, data):
        self.kept = data
        return bytes(data[:4])

    def drop(self):
        self.kept = None

    def scale(self, data):
        """Changes each page of an argument in place."""
        view = memoryview(data)
        for at in range(0, len(view), 4096):
            view[at] += 2
        return bytes(view[:2])

    def note(self, what):
        self.order.append(what)

    def noted(self):
        return self.order

    def fail(self, text):
        raise ValueError(text)

    def fail_oddly(self):
        class Odd(Exception):
            """Object that cannot be pickled."""

        raise Odd("odd")

    def collects(self):
        return gc.isenabled(), gc.get_freeze_count() > 0

    def lock(self):
        return threading.Lock()

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds

    def die(self):
        print("these are the last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self, code):
        sys.exit(code)

    def fork_and_die(self):
        """Leaves a child that holds the connection."""
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        self.die()

    def start_child(self):
        """Starts a child in the worker's session, like an engine."""
        import subprocess

        return subprocess.Popen(["sleep", "600"]).pid

    def count(self, n, die_at=-1):
        try:
            for number in range(n):
                if number == die_at:
                    self.die()
                yield number
        finally:
            self.closed += 1

    def closings(self):
        return self.closed

    def reduce(self):
        import torch
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        sum_ = torch.ones(1) * (self.rank + 1)
        torch.distributed.all_reduce(sum_)
        torch.distributed.destroy_process_group()
        return sum_.item()

    def variables(self, *, names):
        return [os.environ.get(name) for name in names]

    def pid(self):
        return os.getpid()

    def memory(self):
        """Bytes of this process that are in memory."""
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def shutdown(self):
        return True

    def shutdown_slowly(self):
        time.sleep(60)

    def shutdown_badly(self):
        raise RuntimeError("no")


class Mixed(Plain):
    """Asynchronous methods, too."""

    def __init__(self, base=0):
        super().__init__(base)
        self.produced, self.finished = 0, 0

    async def pause(self, seconds):
        await asyncio.sleep(seconds)
        return seconds

    async def tokens(self, n):
        try:
            for number in range(n):
                self.produced = number + 1
                yield number
        finally:
            self.finished += 1

    async def blocks(self, n, size):
        try:
            for number in range(n):
                self.produced = number + 1
                yield b"%08d" % number + bytes(size)
        finally:
            self.finished += 1

    async def fail_without_text(self):
        class NoText(Exception):
            def __str__(self):
                return self.message

        raise NoText

    async def cancel_itself(self):
        raise asyncio.CancelledError

    async def stop_loop(self):
        asyncio.get_running_loop().stop()

    async def exit(self, code):
        sys.exit(code)

    async def silent(self):
        await asyncio.sleep(600)
        yield 0

    async def state(self):
        return self.produced, self.finished


class Chosen(Plain):
    """Worker with variables of its own: defaults, and variables that depend on its place."""

    _default_options = {"runtime_env": {"env_vars": {"BY_CLASS": "class", "BY_CALLER": "class"}}}

    @staticmethod
    def configure_worker(num_gpus, bundle_indices):
        return {}, {"BY_WORKER": "worker", "RANK": "77", "MASTER_PORT": "1"}, {"base": 100}


class Starts:
    """Worker whose object cannot be made on one rank, for which the other ranks wait."""

    def __init__(self, how):
        if how == "stay" or os.environ["RANK"] == "0":
            time.sleep(600)
        if os.environ["RANK"] == "1":
            if how == "raise":
                raise RuntimeError("no object here")
            print("cannot begin", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
