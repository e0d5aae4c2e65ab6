"""`selftest`: checks that the testbed is what it says, each against testbeds of its own. Exits with 1 if one fails."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

SCRIPT = str(pathlib.Path(__file__).resolve().parent.parent / "testbed")
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
LIMIT = 30
"""Nothing a check waits for takes so long, whatever else the machine does."""
LONGEST = 90
"""No check does."""


def expect(fact, *shown):
    """An assertion that survives `python3 -O`, and shows what was seen."""
    if not fact:
        raise AssertionError(" ".join(str(each) for each in shown) or "it is not so")


class Absent(Exception):
    """This machine lacks what a check needs; the text says what."""


class Bed:
    """Testbed of a check, used by its command line."""

    count = 0

    def __init__(self, hosts, *options, cwd=None, held=True):
        Bed.count += 1
        self.env = {**os.environ, "TESTBED_NAME": f"selftest-{os.getpid()}-{Bed.count}"}
        self.name = self.env["TESTBED_NAME"]
        self.cwd = cwd
        self.started = []
        if hosts is None:
            return
        if not held:
            self.run("up", str(hosts), *options)
            return
        # The testbed ends with its holder, and the holder with the end of its stdin, also when this process is killed.
        holder = self.start("up", str(hosts), "--hold", *options, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        if holder.stdout.readline() != "ready\n":
            raise AssertionError(f"up {hosts} {options}: {holder.communicate()[1]}")

    def start(self, *words, **options):
        """Starts a command; it is ended with the check."""
        process = subprocess.Popen([PYTHON, SCRIPT, *words], env=self.env, cwd=self.cwd,
                                   **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True, **options})
        self.started.append(process)
        return process

    def call(self, *words, **options):
        """Runs a command to its end, whatever its code."""
        return subprocess.run([PYTHON, SCRIPT, *words], env=self.env, timeout=LIMIT, check=False,
                              **{"cwd": self.cwd, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **options})

    def run(self, *words, **options):
        """Runs a command that must succeed; returns its output."""
        done = self.call(*words, **options)
        expect(done.returncode == 0, words, "exited with", done.returncode, done.stderr, done.stdout)
        return done.stdout.strip()

    def sh(self, host, script, user="root"):
        """A shell line on a host."""
        return self.run("exec", "--user", user, "--cwd", "/", host, "sh", "-c", script)

    def python(self, host, program, *words):
        """A Python program that stays, and is spoken to by lines."""
        process = self.start("exec", "--cwd", "/", host, PYTHON, "-Ic", program, *words, stdin=subprocess.PIPE)
        return process

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.call("down")
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def until(fact, what):
    """Waits for something that has no event of its own."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        found = fact()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"never came: {what}")


ECHO = """
import socket, threading
def serve(line):
    try:
        while data := line.recv(65536):
            line.sendall(data)
    except OSError:
        pass
listener = socket.create_server(("", 7777))
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""

CLIENT = """
import errno, select, socket, sys, time
line = None
def name(error):
    return "timeout" if isinstance(error, TimeoutError) else errno.errorcode.get(error.errno, str(error))
for order in sys.stdin:
    verb, _, rest = order.strip().partition(" ")
    start = time.monotonic()
    try:
        if verb == "connect":
            host, limit = rest.split()
            made = socket.create_connection((host, 7777), float(limit))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line = line or made
            said = "connected"
        elif verb == "send":
            line.sendall(rest.encode())
            said = "sent"
        elif verb == "bulk":
            line.settimeout(60)
            sent = got = 0
            total = int(rest)
            line.setblocking(False)
            while got < total:
                readable, writable, _ = select.select([line], [line] if sent < total else [], [])
                if readable:
                    got += len(line.recv(1 << 20))
                if writable:
                    sent += line.send(bytes(min(1 << 18, total - sent)))
            said = "done"
        else:
            line.settimeout(float(rest))
            said = line.recv(65536).decode() or "end"
    except OSError as error:
        said = name(error)
    print(said, time.monotonic() - start, flush=True)
"""


class Talk:
    """A client on one host and an echo on another."""

    def __init__(self, bed, client, server):
        self.server = server
        echo = bed.python(server, ECHO)
        expect(echo.stdout.readline() == "listening\n", "no echo on", server)
        self.client = bed.python(client, CLIENT)

    def ask(self, words):
        """One order; (what was said, seconds)."""
        self.client.stdin.write(words + "\n")
        self.client.stdin.flush()
        said, _, seconds = self.client.stdout.readline().rpartition(" ")
        return said, float(seconds)

    def connect(self, limit=5):
        """A connection; the first one is kept."""
        return self.ask(f"connect {self.server} {limit}")[0]

    def echo(self, text, limit=5):
        """The text that comes back."""
        self.ask(f"send {text}")
        return self.ask(f"recv {limit}")


def _too_long(*_):
    raise TimeoutError(f"the check took longer than {LONGEST} s")


def run(only, with_slurm):
    """All checks of hosts, or of Slurm on them, or those named."""
    from . import checks, checks_net, checks_slurm  # pylint: disable=import-outside-toplevel
    if os.geteuid() != 0:
        print("absent: testbed selftest: needs root", file=sys.stderr)
        return 125
    modules = (checks_slurm,) if with_slurm else (checks, checks_net)
    known = {name: check for module in modules for name, check in vars(module).items()
             if name.startswith("check_")}
    unknown = [name for name in only if f"check_{name}" not in known]
    if unknown:
        print(f"testbed: there is no check {unknown[0]!r}; there are {', '.join(n[6:] for n in known)}", file=sys.stderr)
        return 2
    failed = 0
    signal.signal(signal.SIGALRM, _too_long)
    for name, check in known.items():
        if only and name[6:] not in only:
            continue
        start = time.monotonic()
        signal.alarm(LONGEST)
        try:
            check()
            verdict = "ok"
        except Absent as why:
            verdict = f"absent: {why}"
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            failed += 1
            verdict = "FAILED"
        signal.alarm(0)
        print(f"{time.monotonic() - start:6.2f} s  {name[6:].replace('_', ' '):<60} {verdict}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0
