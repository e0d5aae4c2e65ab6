"""Servers of a key-value store and a load beside each, as contenders of the `store` rows: each is started for one sample.

Each is a context of the load's process and a function that says which processes serve it.
"""

import contextlib
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time

from . import procs

PATIENCE = 120.0
TORCH = """
import os, sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, 1, True)
os.write(1, f"{store.port}\\n".encode())
sys.stdin.read()
os._exit(0)
"""


class Target:
    """The processes that serve."""

    def __init__(self, pids):
        self.pids = pids

    def cpu(self):
        """Processor time of all their threads so far, in seconds."""
        files = (path for pid in self.pids for path in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"))
        return sum(int(path.read_text().split()[0]) for path in files) / 1e9

    def resident(self):
        """Memory of the processes now, in MiB."""
        return sum(procs.memory(pid)["rss"] for pid in self.pids) / 1024


@contextlib.contextmanager
def _started(command, environ=None):
    """A process with pipes, ended when it is late, and in the end anyhow."""
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True, env=environ, start_new_session=True)
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    try:
        yield process
    finally:
        late.cancel()
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _load(bench, words):
    return [bench.programs["store_load"], *words]


@contextlib.contextmanager
def beside(bench, server, words, path=None):
    """A load beside a server of its own process, which says its port; `path`: it is a unix socket."""
    with _started(server()) as serving:
        environ = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": serving.stdout.readline().strip()}
        if path:
            environ["STORE_SOCKET"] = path
        with _started(_load(bench, words), environ) as load:
            yield load, lambda: [serving.pid]


def torch():
    """torch's own server."""
    return [os.environ["RLAUNCH_TORCH"], "-W", "ignore", "-c", TORCH]


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(port, process):
    """Waits until a process listens at the port, or this one has ended."""
    end = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.002)


@contextlib.contextmanager
def redis(bench, words):
    """redis-server on a port of its own, in a directory of its own, and nothing kept on disk."""
    port = _free_port()
    with tempfile.TemporaryDirectory(dir=bench.scratch) as own:
        options = {"--port": port, "--bind": "127.0.0.1", "--dir": own, "--save": "", "--appendonly": "no", "--daemonize": "no",
                   "--tcp-backlog": 4096, "--logfile": "/dev/null"}
        with _started(["redis-server", *(word for option in options.items() for word in option)]) as serving:
            try:
                _wait_for(port, serving)
                with _started(_load(bench, words), {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) as load:
                    yield load, lambda: [serving.pid]
            finally:
                # redis-server ignores its stdin.
                serving.terminate()


@contextlib.contextmanager
def in_job(bench, ranks, words):
    """A load as rank 0 of a job: the agent serves it, and for what concerns the whole job the launcher."""
    launcher = bench.launchers["rlaunch"].with_words("rlaunch", "--master-store", "agent")
    of_torch = words[0] == "torch"
    with _started(launcher.command(ranks, _load(bench, words))) as job:

        def serving():
            agent = next(pid for pid in procs.descendants(job.pid) if procs.name(pid) == "rlaunch-agent")
            return [agent] if of_torch else [agent, job.pid]

        yield job, serving


def step(load, count):
    """Lets the load continue. Returns so many words of its answer, or None without an answer."""
    load.stdin.write("\n")
    load.stdin.flush()
    said = load.stdout.readline().split()
    return said if len(said) == count else None
