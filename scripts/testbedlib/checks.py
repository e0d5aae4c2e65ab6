"""Checks of what hosts are, how commands run on them, and that nothing of them stays."""

import contextlib
import errno
import os
import pathlib
import pty
import signal
import socket
import subprocess
import tempfile

from . import channel
from .selftest import PYTHON, SCRIPT, Bed, expect, until

SPACES = ("mnt", "net", "pid", "uts", "ipc")
HELD = []
"""Descriptors of namespaces that a check has named: as long as they are open nothing else has their numbers."""


def _spaces(bed, host):
    spaces = set(bed.sh(host, "readlink " + " ".join(f"/proc/1/ns/{kind}" for kind in SPACES)).split())
    _hold(spaces)
    return spaces


def _hold(spaces):
    """Keeps their numbers from being given to the namespaces of others, as the kernel does once they have ended."""
    wanted = set(spaces)
    for entry in filter(str.isdigit, os.listdir("/proc")):
        for kind in SPACES:
            with contextlib.suppress(OSError):
                path = f"/proc/{entry}/ns/{kind}"
                if os.readlink(path) in wanted:
                    held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    HELD.append(held)
                    wanted.discard(os.readlink(f"/proc/self/fd/{held}"))
    expect(not wanted, "namespaces that no process is in", wanted)


def _spaces_in_use():
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            for kind in SPACES:
                try:
                    found.add(os.readlink(f"/proc/{entry}/ns/{kind}"))
                except OSError:
                    pass  # gone meanwhile
    return found


def _outside():
    """State of the machine that a testbed must not change: mounts, and files in quiet directories."""
    places = ["/etc", os.path.expanduser("~root"), "/home", "/run"]
    return pathlib.Path("/proc/self/mounts").read_text(), [(p, sorted(os.listdir(p))) for p in places if os.path.isdir(p)]


PLACES = ("/tmp", "/var/tmp", "/run", "/dev/shm", "/etc")
"""Directories that are private to each host."""


def _token():
    return f"testbed-selftest-{os.getpid()}"


def _write_everywhere(bed, host):
    bed.sh(host, " ".join(f"echo x >{place}/{_token()};" for place in PLACES) + f"echo home >~/{_token()}")


def _seen_outside():
    return [place for place in (*PLACES, os.path.expanduser("~root")) if os.path.exists(f"{place}/{_token()}")]


def _pid_here(token):
    """The pid, as this machine numbers it, of a process with this word."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and token.encode() in pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0"):
                return int(entry)
        except OSError:
            pass  # gone meanwhile
    return None


def check_down_leaves_nothing():
    """No mount, no file, no namespace, no process; not of what was started on the hosts either."""
    before = _outside()
    with Bed(2, held=False) as bed:
        spaces = _spaces(bed, "login") | _spaces(bed, "node1")
        expect(len(spaces) == 10 and spaces <= _spaces_in_use(), spaces)
        _write_everywhere(bed, "node0")
        bed.sh("node0", "setsid sleep 41.25 >/dev/null 2>&1 </dev/null &")
        until(lambda: _pid_here("41.25"), "a process on node0")
        expect(bed.call("strays").returncode == 1)
        bed.run("down")
        expect(not spaces & _spaces_in_use(), "namespaces are left")
        expect(not _pid_here("41.25"), "a process is left")
        expect(bed.call("exec", "login", "true").returncode == 125)
    expect(_outside() == before and not _seen_outside(), "something is left outside", _seen_outside())


def check_one_kill_ends_everything():
    """One kill ends all processes, also in namespaces that a program on a host has made."""
    with Bed(2) as bed:
        bed.sh("node1", "setsid unshare -pf --mount-proc sleep 42.25 >/dev/null 2>&1 </dev/null &")
        command = bed.start("exec", "node0", "sleep", "43.25")
        until(lambda: _pid_here("42.25") and _pid_here("43.25"), "processes on the hosts")
        spaces = _spaces(bed, "node1")
        with channel.connect(bed.name) as line:
            fabric = channel.peer(line)[0]
        expect(_comm(fabric) == f"tb-fabric:{bed.name}"[:15], _comm(fabric))
        os.kill(fabric, signal.SIGKILL)
        expect(command.wait(10) == 137)
        until(lambda: not spaces & _spaces_in_use() and not _pid_here("42.25"), "the end of the hosts")
        expect("was not up" in bed.call("down").stderr)


def _comm(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def check_what_is_held_goes_with_its_holder():
    """`up --hold` and `with` end the testbed when their stdin or command ends, and when they are killed."""
    with Bed(None) as bed:
        for way in ("eof", "kill"):
            held = bed.start("up", "1", "--hold", stdin=subprocess.PIPE)
            expect(held.stdout.readline() == "ready\n")
            spaces = _spaces(bed, "node0")
            if way == "eof":
                held.stdin.close()
                expect(held.wait(10) == 0)
                held.stdin = None
                expect(not spaces & _spaces_in_use())
            else:
                held.kill()
                until(lambda: not spaces & _spaces_in_use(), "the end of the hosts")
        done = bed.call("with", "1", "--", "sh", "-c", "ssh node0 hostname; exit 7")
        expect((done.returncode, done.stdout) == (7, "node0\n"), done)
        done = bed.call("with", "1", "--user", "tester", "--bashrc", "--", "id", "-un", cwd="/")
        expect((done.returncode, done.stdout) == (0, "tester\n"), done)
        expect(bed.call("with", "1").returncode == 125)
        expect("was not up" in bed.call("down").stderr)


def check_several_side_by_side():
    """The same addresses, nothing shared."""
    with Bed(1) as one, Bed(1) as two:
        one.sh("node0", "echo one >~/mark")
        two.sh("node0", "echo two >~/mark")
        expect(one.run("exec", "login", "ssh", "10.77.1.1", "cat mark") == "one")
        expect(two.run("exec", "login", "ssh", "10.77.1.1", "cat mark") == "two")
        expect(one.call("up", "1").returncode == 125)
        one.run("down")
        expect(two.run("exec", "login", "ssh", "node0", "cat", "mark") == "two")


def check_ssh_asks_nothing():
    """Root and the ordinary user, from and to everywhere, by name and address."""
    with Bed(2) as bed:
        for user, home in (("root", None), ("tester", "/home/tester")):
            for there in ("node1", "10.77.1.2", "login"):
                said = bed.run("exec", "--user", user, "--cwd", "/", "node0", "ssh", there, "echo $USER $HOSTNAME $(pwd); exit 0")
                words = said.split()
                expect(words[:2] == [user, "node1" if there == "10.77.1.2" else there], said)
                expect(home in (None, words[2]), said)
        expect(bed.call("exec", "--user", "tester", "--cwd", "/", "login", "ssh", "-o", "BatchMode=yes", "root@node1", "id")
               .returncode == 255, "the user's key opens root's account")


def check_exit_codes_pass_through():
    """The command's own; 128 + N for signal N; 127 and 125 if it never ran."""
    with Bed(1) as bed:
        for script, code in (("exit 0", 0), ("exit 77", 77), ("kill -9 $$", 137), ("kill -TERM $$", 143)):
            expect(bed.call("exec", "node0", "sh", "-c", script).returncode == code, script)
        expect(bed.call("exec", "login", "ssh", "node0", "exit 5").returncode == 5)
        done = bed.call("exec", "node0", "no-such-program")
        expect(done.returncode == 127 and "no-such-program" in done.stderr, done)
        for words in (("exec", "node9", "true"), ("exec", "--user", "nobody-here", "node0", "true"),
                      ("exec", "--cwd", "/no/such", "node0", "true"), ("kill-host", "node9"), ("start-host", "node0"),
                      ("up", "1"), ("up", "0", "--slurm")):
            done = bed.call(*words)
            expect(done.returncode == 125 and done.stderr.startswith("testbed: "), words, done)
        for words in (("--cpus", "2"), ("--slurm", "--cpus", "0")):
            done = bed.call("up", "1", *words)
            expect(done.returncode == 125 and "--cpus takes" in done.stderr, words, done)


def check_signals_reach_the_command():
    """TERM, HUP, INT, USR1 are forwarded; SIGKILL of `exec` takes the command along, of an ordinary user too."""
    with Bed(1) as bed:
        script = "trap 'echo TERM' TERM; trap 'echo HUP' HUP; trap 'echo INT' INT; trap 'echo USR1; exit 9' USR1; echo up; " \
                 "while :; do sleep 0.01; done"
        running = bed.start("exec", "node0", "sh", "-c", script)
        expect(running.stdout.readline() == "up\n")
        for name in ("TERM", "HUP", "INT", "USR1"):
            running.send_signal(getattr(signal, f"SIG{name}"))
            expect(running.stdout.readline() == f"{name}\n", name)
        expect(running.wait(10) == 9)
        for user in ("root", "tester"):
            with tempfile.NamedTemporaryFile() as file:
                running = bed.start("exec", "--pidfile", file.name, "--user", user, "--cwd", "/", "node0", "sh", "-c",
                                    "echo up; exec sleep 44.25")
                expect(running.stdout.readline() == "up\n")
                pid = int(until(lambda: pathlib.Path(file.name).read_text().strip(), "a pid"))
                until(lambda: b"44.25" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes(), "the command under its pid")
                running.kill()
                until(lambda: not _pid_here("44.25"), f"the end of {user}'s command")


def check_streams_and_terminals_pass_through():
    """Bytes are exact, and a terminal is one: Ctrl-C reaches the command once."""
    with Bed(1) as bed:
        data = os.urandom(3 << 20)
        done = bed.call("exec", "login", "ssh", "node0", "cat; echo err >&2", input=data, text=False, stdin=None)
        expect((done.stdout == data, done.stderr) == (True, b"err\n"), done.returncode)
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(PYTHON, [PYTHON, SCRIPT, "exec", "node0", PYTHON, "-Ic", TERMINAL], bed.env)
        seen = _read_until(terminal, b"", b"tty True")
        os.write(terminal, b"\x03")
        seen = _read_until(terminal, seen, b"once")
        # Now the command leaves the terminal's group. Only `exec` gets the signal of the terminal, and must not forward it.
        os.kill(pid, signal.SIGUSR1)
        seen = _read_until(terminal, seen, b"apart")
        os.write(terminal, b"\x03")
        while seen.count(b"^C") < 2:
            seen += os.read(terminal, 1024)
        os.kill(pid, signal.SIGTERM)
        seen = _read_until(terminal, seen, b"over")
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(terminal)
        expect(seen.count(b"once") == 1 and code == 3, seen, code)


TERMINAL = """
import os, signal
# No print(): the next handler may run in the midst of it, and Python refuses that.
def say(word):
    os.write(1, word)
def apart(*_):
    os.setpgid(0, 0)
    say(b"apart\\n")
def over(*_):
    say(b"over\\n")
    os._exit(3)
signal.signal(signal.SIGINT, lambda *_: say(b"once\\n"))
signal.signal(signal.SIGUSR1, apart)
signal.signal(signal.SIGTERM, over)
# A signal just before a pause() would not end it: Python runs the handler after the pause.
woken, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker)
print("tty", os.isatty(0) and os.isatty(1), flush=True)
while True:
    os.read(woken, 1)
"""


def _read_until(terminal, seen, word):
    while word not in seen:
        try:
            seen += os.read(terminal, 1024)
        except OSError as error:
            # The terminal hung up with its session, and output on its way may be lost. The exit code shows the rest.
            if error.errno != errno.EIO:
                raise
            return seen
    return seen


def check_hosts_are_hosts_of_their_own():
    """Names, identities, private places; a home for all; the machine sees nothing of it."""
    token = _token()
    before = _outside()
    with Bed(2) as bed:
        ids = []
        for host in ("login", "node0", "node1"):
            said = bed.sh(host, "hostname; cat /etc/hostname /etc/machine-id /proc/sys/kernel/random/boot_id; "
                          "cat /sys/class/net/eth0/address; echo $(ls /proc | grep -c '^[0-9]')").splitlines()
            expect(said[:2] == [host, host] and int(said[5]) < 10, said)
            ids += said[2:5]
        expect(len(set(ids)) == 9, ids)
        _write_everywhere(bed, "node0")
        for place in PLACES:
            expect(bed.call("exec", "node1", "test", "-e", f"{place}/{token}").returncode == 1, place)
        expect(not _seen_outside(), _seen_outside())
        expect(bed.sh("node1", f"cat ~/{token}") == "home")
        expect(bed.sh("node1", "wc -c <~/.bashrc") == "0" and "testbed" in bed.sh("node1", "cat ~/.ssh/id_ed25519.pub"))
        bed.run("exec", "--user", "tester", "--cwd", "/", "node0", "sh", "-c", f"echo mine >~/{token}")
        expect(bed.run("exec", "--user", "tester", "--cwd", "/", "node1", "sh", "-c", f"cat ~/{token}") == "mine")
        expect(bed.call("exec", "--user", "tester", "--cwd", "/", "node0", "touch", "/etc/x").returncode == 1)
        # What an ordinary user's own containment needs: /proc can be mounted in a user namespace.
        expect(bed.run("exec", "--user", "tester", "--cwd", "/", "node0", "unshare", "-Urpfm", "--mount-proc", "echo", "ok") == "ok")
    expect(_outside() == before, "the machine has changed")


def check_options_of_up():
    """--share, the folder of `up`, --private-homes, --tpu, --bashrc, --stock-sshd."""
    with tempfile.TemporaryDirectory() as shared, tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        for place in (shared, folder, other):
            pathlib.Path(place, "mark").write_text(place)
        with Bed(2, "--share", shared, "--private-homes", "--tpu", "2", "--bashrc", "--stock-sshd", cwd=folder) as bed:
            expect(bed.run("exec", "node0", "cat", "mark", f"{shared}/mark") == folder + shared)
            expect(not bed.call("exec", "node0", "cat", f"{other}/mark").stdout)
            bed.run("exec", "node1", "touch", f"{shared}/back")
            expect(os.path.exists(f"{shared}/back"))
            bed.run("exec", "node0", "sh", "-c", "touch ~/own")
            expect(bed.call("exec", "node1", "sh", "-c", "test -e ~/own").returncode == 1)
            expect(bed.run("exec", "node0", "ls", "/dev/vfio") == "0\n1")
            expect(bed.run("exec", "node0", "sh", "-c", "exec 3</dev/accel1; readlink /proc/self/fd/3; readlink /proc/$$/fd/3")
                   .endswith("/dev/accel1"))
            for user in ("root", "tester"):
                expect(bed.run("exec", "--user", user, "--cwd", "/", "login", "ssh", "node1", "echo $USER") == user)
            expect("UsePAM yes" in bed.run("exec", "node0", "cat", "/etc/ssh/sshd_config"))


def check_strays_are_seen():
    """A daemon, a process of a namespace below, a login; and nothing when they are gone."""
    with Bed(2) as bed:
        expect(bed.run("strays") == "")
        bed.sh("node1", "setsid unshare -pf --mount-proc sleep 45.25 >/dev/null 2>&1 </dev/null &")
        until(lambda: _pid_here("45.25"), "a process on node1")
        done = bed.call("strays")
        expect(done.returncode == 1 and "sleep 45.25" in done.stdout and "node1" in done.stdout, done)
        expect(bed.call("strays", "node0").returncode == 0 and bed.call("strays", "node1").returncode == 1)
        bed.sh("node1", "kill -9 $(pgrep -x sleep)")
        bed.run("strays", "--within", "5")
        login = bed.start("exec", "login", "ssh", "node0", "echo up; exec sleep 46.25")
        expect(login.stdout.readline() == "up\n")
        done = bed.call("strays")
        expect("sshd: root" in done.stdout and "sleep 46.25" in done.stdout and "login" in done.stdout, done)
        login.terminate()
        expect(login.wait(10) != 0)
        # What ssh leaves behind when it is killed is the orphan that all of this is for.
        done = bed.call("strays")
        expect(done.returncode == 1 and "sleep 46.25" in done.stdout, done)
        bed.sh("node0", "kill -9 $(pgrep -x sleep)")
        bed.run("strays", "--within", "5")


def check_only_root_may():
    """Another user gets an error, and cannot use a testbed that is up."""
    with Bed(0) as bed:
        with tempfile.TemporaryDirectory() as place:
            # The checkout may be closed to others: the script is handed over by its text.
            os.chmod(place, 0o755)
            copied = subprocess.run(["cp", "-r", SCRIPT, SCRIPT + "lib", place], check=False)
            expect(copied.returncode == 0)
            subprocess.run(["chmod", "-R", "a+rX", place], check=True)
            for words in (("up", "1"), ("exec", "login", "true"), ("down",)):
                done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON, f"{place}/testbed",
                                       *words], env=bed.env, cwd="/", capture_output=True, text=True, check=False)
                expect(done.returncode == 125 and done.stderr.startswith("testbed: "), words, done)
        # A client that sends nothing is answered, and delays no other client.
        mute = "import socket, sys; line = socket.socket(socket.AF_UNIX); line.connect(chr(0) + sys.argv[1]); print(line.recv(99))"
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON, "-c", mute,
                               f"rlaunch-testbed/{bed.name}"], cwd="/", timeout=5, capture_output=True, text=True, check=False)
        expect("only root may" in done.stdout, done)
        with channel.connect(bed.name) as line:
            # The request is refused before its end, so that no read lasts for ever.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                line.sendall(b"x" * (16 * channel.REQUEST))
                expect(line.recv(1) == b"")
        expect(bed.run("exec", "--cwd", "/", "login", "hostname") == "login")


def check_a_line_is_bounded():
    """In bytes and in time, however it comes."""
    for text, limit, seconds, wanted in ((b"x" * 20, 10, 5, "more than 10 bytes"), (b"x" * 5, 10, 0.05, "too long"), (b"x\n", 1, 5, "more")):
        ours, client = socket.socketpair()
        with ours, client:
            client.sendall(text)
            try:
                channel._read_line(ours, limit, seconds)  # pylint: disable=protected-access
            except OSError as error:
                # What the socket says of its own time-out is as good.
                expect(wanted in str(error) or wanted == "too long" and isinstance(error, TimeoutError), error)
            else:
                expect(False, text, "is read")
