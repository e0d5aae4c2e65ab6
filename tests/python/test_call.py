"""Edge cases of a call that need no agent."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import rlaunch
from rlaunch.inprocess._call import Call, _Frozen
from rlaunch.inprocess.exception import HealthCheckError
from rlaunch.inprocess.monitor_thread import RankShouldRestart


class Frozen(unittest.TestCase):
    def setUp(self):
        gc.unfreeze()
        gc.collect()
        self.addCleanup(gc.unfreeze)

    def test_nothing_stays_frozen_after_a_call(self):
        before = gc.get_freeze_count()
        frozen = _Frozen()
        if before == 0:
            self.assertGreater(gc.get_freeze_count(), 0)
        else:
            # The collector of 3.12 freezes immortal objects, so objects that the script froze cannot be distinguished.
            self.assertEqual(sys.version_info[:2], (3, 12))
        frozen.end()
        self.assertEqual(gc.get_freeze_count(), before)

    def test_objects_that_the_script_froze_before_stay_frozen(self):
        gc.freeze()
        before = gc.get_freeze_count()
        _Frozen().end()
        self.assertEqual(gc.get_freeze_count(), before)

    def test_objects_that_the_function_froze_stay_frozen(self):
        frozen = _Frozen()
        kept = [[] for _ in range(1000)]
        gc.freeze()
        frozen.end()
        self.assertGreater(gc.get_freeze_count(), len(kept))


class Library(unittest.TestCase):
    def test_a_package_without_its_library_reports_only_the_remedy(self):
        package = os.path.dirname(os.path.abspath(rlaunch.__file__))
        with tempfile.TemporaryDirectory() as home:
            broken = os.path.join(home, "rlaunch", "librlaunch.so")
            shutil.copytree(package, os.path.dirname(broken), ignore=shutil.ignore_patterns("*.so", "__pycache__"))
            with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
                another = next(line.split()[-1] for line in maps if "libc" in line and ".so" in line)
            for what, make in (
                ("none", lambda: None),
                ("no library", lambda: shutil.copy(__file__, broken)),
                ("another library", lambda: shutil.copy(another, broken)),
            ):
                make()
                with self.subTest(what):
                    done = subprocess.run(
                        [sys.executable, "-c", "import rlaunch.inprocess as ip; ip.Wrapper()(print)()"],
                        env={**os.environ, "PYTHONPATH": home},
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                        check=False,
                    )
                    self.assertEqual(done.returncode, 1)
                    said = done.stderr.splitlines()[-1]
                    self.assertIn("LibraryMissing: cannot load ", said)
                    self.assertIn("install the wheel", said)
                    self.assertNotIn("Exception ignored", done.stderr)


SUBINTERPRETER = """
import sys
# With the lock of all: those with one of their own cannot import ctypes.
try:
    import _interpreters as made
    one = made.create("legacy")
except ImportError:
    import _xxsubinterpreters as made
    one = made.create() if sys.version_info < (3, 12) else made.create(isolated=False)
print(made.run_string(one, '''
import rlaunch.inprocess as ip
try:
    ip.Wrapper()(print)()
except RuntimeError as error:
    print(error)
'''))
"""


class Interpreters(unittest.TestCase):
    def test_a_subinterpreter_is_refused(self):
        done = subprocess.run([sys.executable, "-c", SUBINTERPRETER], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertIn("this is a subinterpreter: call it in the main one", done.stdout)


class Interrupted:
    """Session and interrupter of a round that has ended."""

    def enter(self):
        return True

    def exit(self):
        return False

    def is_forked(self):
        return False


class Once(unittest.TestCase):
    def once(self, inside, interrupter=None):
        call = Call.__new__(Call)
        call._session, call._interrupter = Interrupted(), interrupter or Interrupted()
        call._inside = inside
        return call._once(None, (), {})

    def interrupted_before_note(self, error):
        """The result of an error of the function if the interrupt comes before the error was noted."""

        def inside(*_):
            try:
                raise error
            except BaseException:
                raise RankShouldRestart("before it was noted")

        return self.once(inside)

    def test_an_interrupt_keeps_an_exception_that_ends_the_rank(self):
        for error in (SystemExit(3), HealthCheckError("ill")):
            with self.subTest(error=error), self.assertRaises(type(error)):
                self.interrupted_before_note(error)

    def handled_in(self, where, error, fails=None):
        """The result of a function if a signal handler of the program raises this error at the end of the function."""

        class Round(Interrupted):
            times = 0

            def exit(self):
                self.times += 1
                if self.times == 1:
                    raise error
                return False

        class Entered(Interrupted):
            def enter(self):
                raise error

        def inside(fn, args, kwargs, end):
            end.fatal = fails

        return self.once(inside, {"exit": Round, "enter": Entered}[where]())

    def test_exception_of_a_signal_handler_at_the_end_counts_as_one_of_the_function(self):
        error = OSError("a handler's")
        self.assertIs(self.handled_in("exit", error).why, error)
        with self.assertRaises(SystemExit):
            self.handled_in("exit", error, SystemExit(3))
        with self.assertRaises(KeyboardInterrupt):
            self.handled_in("exit", KeyboardInterrupt())

    def test_error_of_the_library_at_the_end_is_no_fault_of_the_function(self):
        for where in ("enter", "exit"):
            with self.subTest(where), self.assertRaises(rlaunch.Error):
                self.handled_in(where, rlaunch.Error("the agent is gone"))

    def test_an_interrupt_replaces_an_exception_that_makes_a_round(self):
        self.assertIsInstance(self.interrupted_before_note(ValueError("a fault")).why, RankShouldRestart)

    def test_exception_that_was_handled_around_the_call_is_not_of_the_function(self):
        def inside(*_):
            raise RankShouldRestart("between two lines")

        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            self.assertIsInstance(self.once(inside).why, RankShouldRestart)


NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "LOCAL_RANK")

OUTSIDE = f"""
import os, sys, types
names, asked = {NAMES!r}, []
sys.modules["jax"] = types.SimpleNamespace(distributed=types.SimpleNamespace(initialize=lambda **given: asked.append(given)))
import rlaunch.inprocess as ip
import rlaunch.jax

def show():
    rlaunch.jax.initialize()
    print(*(os.environ.get(name) for name in names), len(asked))

@ip.Wrapper()
def train(call: ip.CallWrapper):
    show()
    if call.iteration == 0 and "SETS" in os.environ:
        os.environ["RANK"] = "5"
        raise ValueError("again")

train()
show()
if "SETS" in os.environ:
    sys.exit()
train()
child = os.fork()
if child == 0:
    os.environ["RANK"] = "3"
    train()
    os._exit(0)
os.waitpid(child, 0)
"""


class Outside(unittest.TestCase):
    """Environment of a world of one, and number of calls that ask JAX to look for other processes."""

    def printed(self, **env):
        clean = {name: value for name, value in os.environ.items() if name not in (*NAMES, "MASTER_PORT", "LOCAL_WORLD_SIZE")}
        done = subprocess.run([sys.executable, "-u", "-c", OUTSIDE], env={**clean, **env}, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        return done.stdout.splitlines()

    def test_a_world_of_one_has_its_identity_until_the_script_changes_it(self):
        alone = "0 1 127.0.0.1 0 0"
        self.assertEqual(self.printed(), [alone, alone, alone, "3 1 127.0.0.1 0 1"])
        self.assertEqual(self.printed(SETS=""), [alone, "5 1 127.0.0.1 0 1", "5 1 127.0.0.1 0 2"])

    def test_variables_of_the_environment_stay(self):
        self.assertEqual(self.printed(LOCAL_RANK="1")[0], "0 1 127.0.0.1 1 0")
        self.assertEqual(self.printed(MASTER_ADDR="elsewhere")[0], "None None elsewhere None 0")


ASKED = """
import os, sys, types
def asked(**given):
    print(*(given[name] for name in ("coordinator_address", "num_processes", "process_id", "local_device_ids")))
sys.modules["jax"] = types.SimpleNamespace(distributed=types.SimpleNamespace(initialize=asked))
import rlaunch.jax
rlaunch.jax.initialize()
"""


class OthersWorld(unittest.TestCase):
    """Arguments for JAX if another launcher has started the processes."""

    DEVICES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "JAX_LOCAL_DEVICE_IDS")

    def asked(self, **env):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RLAUNCH_") and name not in self.DEVICES}
        env = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", **env}
        done = subprocess.run([sys.executable, "-c", ASKED], env={**clean, **env}, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        return done.stdout.strip()

    def test_jax_gets_the_place_that_another_launcher_has_given(self):
        place = "10.0.0.1:29501 8 3"
        self.assertEqual(self.asked(), f"{place} None")
        self.assertEqual(self.asked(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1"), f"{place} None")
        # Each of several processes on a host has the device of its local rank, or the device that it was given.
        several = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
        self.assertEqual(self.asked(**several), f"{place} [1]")
        self.assertEqual(self.asked(**several, CUDA_VISIBLE_DEVICES="5"), f"{place} [0]")
        self.assertEqual(self.asked(**several, CUDA_VISIBLE_DEVICES="2,3"), f"{place} None")
        # JAX itself finds values that are not set.
        self.assertEqual(self.asked(WORLD_SIZE=""), "10.0.0.1:29501 None 3 None")


ALONE = """
import os, threading
import rlaunch
import rlaunch.inprocess as ip

store, here = rlaunch.Store(), rlaunch.Store(space="round").prefix("p/")
store.set("a", "1")
threading.Timer(0.01, lambda: rlaunch.Store().set("late", "")).start()
store.wait(["late"])
store.barrier("all", 1)
try:
    store.wait(["never"], 0.01)
except rlaunch.StoreTimeout as error:
    print(error)

@ip.Wrapper()
def train(call: ip.CallWrapper):
    print(store.add("a"), here.add("n"), here.keys())
    if call.iteration == 0:
        raise ValueError("again")

train()
child = os.fork()
if child == 0:
    try:
        store.get("a")
    except rlaunch.Error as error:
        print(error)
    print(rlaunch.Store().get("a"))
    os._exit(0)
os.waitpid(child, 0)
"""


class OwnStore(unittest.TestCase):
    def test_outside_the_store_is_the_processs_own(self):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RLAUNCH_") or name == "RLAUNCH_CLIENT"}
        done = subprocess.run([sys.executable, "-u", "-c", ALONE], env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        fork = "this process is a fork of the one that opened the store outside rlaunch (try: open another store here)"
        wanted = ["after 0.01 s: nobody has set 'never'", "2 1 [b'n']", "3 1 [b'n']", fork, "None"]
        self.assertEqual(done.stdout.splitlines(), wanted, done.stderr)
        self.assertEqual(done.stderr.count("it is a world of one"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
