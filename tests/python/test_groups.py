"""Parts of worker groups that need no job: shared memory, values as bytes, ends of workers, classes by name."""

import asyncio
import contextlib
import importlib.util
import io
import json
import mmap
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

from rlaunch.groups import End, WorkerDied, WorkerError, WorkerGroup
from rlaunch.groups import _calls as wire
from rlaunch.groups import _codec as codec
from rlaunch.groups import _controller
from rlaunch.groups import _notice as notice
from rlaunch.groups import _sessions as sessions
from rlaunch.groups import _start
from rlaunch.groups import worker
from rlaunch.groups._arena import Arena
from rlaunch.groups._mapped import Mapped
from rlaunch.groups._calls import Event
from rlaunch.groups._controller import Controller, Future, rebuilt
from rlaunch.groups._group import Worker
from rlaunch.groups._identity import importing
from rlaunch.groups._start import _places, path_of
from rlaunch.groups.worker import class_of, methods_of

PAGE = mmap.PAGESIZE


class SharedMemory(unittest.TestCase):
    def test_regions_are_used_again_when_all_holders_have_given_them_back(self):
        arena = Arena(8 * PAGE)
        first = arena.put(memoryview(b"a" * PAGE), [1, 2])
        second = arena.put(memoryview(b"b" * (6 * PAGE)), [1])
        self.assertEqual((first.offset, second.offset, arena.used), (0, PAGE, 7 * PAGE))
        self.assertIsNone(arena.put(memoryview(bytes(2 * PAGE)), [1]))
        arena.release(first.offset, 1)
        self.assertEqual(arena.put(memoryview(b"c"), [1]).offset, 7 * PAGE)
        arena.release(first.offset, 2)
        self.assertEqual(arena.put(memoryview(b"d"), [3]).offset, 0)
        arena.forget(1)
        arena.forget(3)
        self.assertEqual((arena.used, arena._free), (0, [(0, 8 * PAGE)]))

    def test_any_order_leaves_no_gap(self):
        arena, held, luck = Arena(64 * PAGE), [], random.Random(7)
        for _ in range(2000):
            region = arena.put(memoryview(bytes(luck.randrange(1, 5 * PAGE))), [0])
            if region is not None:
                held.append(region)
            if held and (region is None or luck.random() < 0.5):
                arena.release(held.pop(luck.randrange(len(held))).offset, 0)
        for region in held:
            arena.release(region.offset, 0)
        self.assertEqual(arena._free, [(0, 64 * PAGE)])

    def test_a_reader_gives_an_unused_region_back(self):
        arena, unused = Arena(16 * PAGE), []
        mapped = Mapped(arena.path, arena.size)
        region = arena.put(memoryview(b"x" * 5000), [0])
        view = mapped.region(region, unused.append)
        again = view[10:20]
        self.assertEqual(bytes(again), b"x" * 10)
        del view
        self.assertEqual(unused, [])
        del again
        self.assertEqual(unused, [region.offset])
        with self.assertRaises(ValueError):
            mapped.region(region._replace(offset=15 * PAGE, len=2 * PAGE), unused.append)

    def test_writes_of_a_reader_are_private_and_end_with_the_value(self):
        arena, unused = Arena(16 * PAGE), []
        readers = [Mapped(arena.path, arena.size) for _ in range(2)]
        region = arena.put(memoryview(b"x" * (3 * PAGE)), [0, 1])
        one, other = (reader.region(region, unused.append) for reader in readers)
        for at in (0, 2 * PAGE + 7):
            one[at] = ord("w")
        self.assertEqual((one[0], bytes(one[2 * PAGE : 2 * PAGE + 9])), (ord("w"), b"x" * 7 + b"wx"))
        self.assertEqual(bytes(other), b"x" * (3 * PAGE))
        del one, other
        for holder in range(2):
            arena.release(region.offset, holder)
        again = arena.put(memoryview(b"y" * (3 * PAGE)), [0])
        self.assertEqual(again.offset, region.offset)
        self.assertEqual(bytes(readers[0].region(again, unused.append)), b"y" * (3 * PAGE))

    def test_no_memory_is_no_error(self):
        self.assertIsNone(Arena(0).put(memoryview(b"x"), [0]))


class Values(unittest.TestCase):
    def test_large_bytes_are_not_copied(self):
        large = b"y" * (1 << 20)
        parts = codec.encode({"a": large, "b": 1}, codec.PICKLE)
        self.assertEqual(len(parts), 2)
        self.assertLess(len(parts[0]), 1000)
        self.assertEqual(codec.decode([bytes(parts[0]), bytes(parts[1])], codec.PICKLE), {"a": large, "b": 1})
        self.assertEqual(codec.decode(codec.encode([1, None], codec.JSON), codec.JSON), [1, None])

    def test_unknown_encodings_are_refused(self):
        with self.assertRaisesRegex(ValueError, "no serializer 'xml'"):
            codec.codec_of("xml")
        with self.assertRaisesRegex(ValueError, "later version"):
            codec.decode([b""], 9)
        if "msgpack" not in sys.modules:
            try:
                import msgpack  # noqa: F401
            except ImportError:
                with self.assertRaisesRegex(ImportError, "pip install msgpack"):
                    codec.codec_of("msgpack")

    def test_an_exception_that_cannot_be_rebuilt_travels_as_text(self):
        class Local(Exception):
            pass

        self.assertEqual(codec.encode_error(Local("x"), codec.PICKLE), [])
        self.assertEqual(codec.encode_error(ValueError(threading.Lock()), codec.PICKLE), [])
        self.assertEqual(len(codec.encode_error(ValueError("x"), codec.PICKLE)), 1)
        self.assertEqual(codec.encode_error(ValueError("x"), codec.JSON), [])
        self.assertEqual(codec.described(KeyError("k"))[:2], [b"KeyError", b"'k'"])


class NoText(Exception):
    def __str__(self):
        return self.message


class NoRepr(Exception):
    def __repr__(self):
        raise SystemExit(3)


class NoPickle(Exception):
    def __reduce__(self):
        raise KeyboardInterrupt


class Faulty:
    """Methods whose calls cannot be answered in the plain way."""

    def fail(self, make):
        raise make()

    async def fail_later(self, make):
        raise make()

    async def cancel_itself(self):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    def value(self):
        return NoPickle()


class Answers(unittest.TestCase):
    """Each call of a worker has one answer."""

    def setUp(self):
        self.sent = []
        fake = unittest.mock.Mock(send=lambda *frame: self.sent.append(frame), next=lambda seconds: None)
        with unittest.mock.patch.object(worker, "Calls", lambda: fake):
            self.worker = worker.Worker(Faulty)
        self.worker.object = Faulty()

    def answer(self, method, **kwargs):
        """The texts and the parts of the answer. The values of the call do not travel: some cannot be pickled."""
        kind = self.worker.methods[method]
        call = worker._bare(1, 2, method.encode())
        with unittest.mock.patch.object(self.worker, "arguments", lambda _: kwargs):
            if kind == "async":
                asyncio.run(self.worker.run_async(call, kind))
            else:
                self.worker.run(call)
        ((_, frame, number, texts, parts, _),) = self.sent
        self.sent.clear()
        self.assertEqual((frame, number), (wire.RAISE, 2))
        return [text.decode() for text in texts], parts

    def test_exceptions_whose_methods_fail_are_sent_as_texts(self):
        for method in ("fail", "fail_later"):
            for make, text in [(NoText, "<no text: its method failed>"), (NoRepr, ""), (NoPickle, ""), (lambda: BaseException("b"), "b"), (GeneratorExit, "")]:
                with self.subTest(method, make=make):
                    texts, parts = self.answer(method, make=make)
                    self.assertEqual((texts[1], parts), (text, []))
                    self.assertIn("in fail", texts[2])
                    event = Event(1, wire.RAISE, codec.PICKLE, 0, 2, [one.encode() for one in texts], parts)
                    self.assertIn(text, str(rebuilt(event, 1, "node1", codec.PICKLE)))

    def test_an_exception_that_ends_loops_or_tasks_is_an_error_for_the_caller(self):
        self.assertEqual(self.answer("fail", make=lambda: StopIteration(3))[1], [])
        self.assertIn("coroutine raised StopIteration", self.answer("fail_later", make=lambda: StopIteration(3))[0][1])
        self.assertEqual(self.answer("cancel_itself")[0][0].rpartition(".")[2], "CancelledError")

    def test_a_result_whose_pickling_fails_is_an_error(self):
        self.assertEqual(self.answer("value")[0][0], "TypeError")
        self.assertEqual(len(self.answer("fail", make=lambda: MemoryError("m"))[1]), 1)

    def test_an_exit_ends_the_worker(self):
        with self.assertRaisesRegex(SystemExit, "3"):
            self.answer("fail", make=lambda: SystemExit(3))

    def test_an_exit_of_a_task_ends_the_worker(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        event = Event(1, wire.CALL, codec.PICKLE, 0, 2, [b"fail_later"], codec.encode({"make": SystemExit}, codec.PICKLE))
        events = [event]
        self.worker.calls.next = lambda seconds: events.pop() if events else None
        self.worker.calls.fileno = lambda: reader
        with self.assertRaises(SystemExit):
            self.worker.serve_with_loop()


class Programs(unittest.TestCase):
    """The words that start a worker."""

    def paths(self, controller, directory, **env):
        """Where a controller and its worker look for modules."""
        code = "import json, os, sys; from rlaunch.groups import _start; print(json.dumps([sys.path, _start.program('m.C', '', None, '')]))"
        if controller is not None:
            with open(controller, "w", encoding="utf-8") as file:
                file.write("import sys; sys.path.insert(0, '/first'); sys.path.append('/last')\n" + code)
        words = ["-c", code] if controller is None else [controller]
        env = {**os.environ, **env}
        out = subprocess.run([sys.executable, *words], cwd=directory, env=env, stdout=subprocess.PIPE, check=True).stdout
        own, words = json.loads(out)
        at = words.index("-c") + 1
        words[at] = words[at].replace("from rlaunch.groups.worker import main", "import json, queue, threading; print(json.dumps(sys.path)); main = len")
        done = subprocess.run(words, cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, b""))
        return own, json.loads(done.stdout)

    def test_a_worker_looks_for_modules_where_its_controller_does(self):
        with tempfile.TemporaryDirectory() as shared, tempfile.TemporaryDirectory() as home:
            for name in ("gc", "sys", "queue", "threading", "json", "encodings", "rlaunch"):
                with open(os.path.join(shared, f"{name}.py"), "w", encoding="utf-8") as file:
                    file.write("raise SystemExit('a module of another user was imported')\n")
            own, found = self.paths(os.path.join(home, "controller.py"), shared)
            self.assertEqual(found, own)
            self.assertNotIn(shared, found)
            self.assertEqual((found[:2], found[-1]), (["/first", home], "/last"))
            own, found = self.paths(None, home)
            self.assertEqual(found, [home, *own[1:]], "the controller has the current directory itself")

    def test_another_pythonpath_or_interpreter_has_its_own_library(self):
        with unittest.mock.patch.object(sys, "path", ["/script", "/old", *sys.path[1:]]):
            words = _start.program("m.C", "/main", ["nsys", "profile", "python4"], "/old")
        self.assertEqual(words[:4], ["nsys", "profile", "python4", "-c"])
        self.assertEqual((words[5:8], words[-1]), (["m.C", "/main", "/script"], ""))
        self.assertNotIn("/old", words)
        self.assertNotIn(os.path.dirname(os.__file__), words)


class Sessions(unittest.TestCase):
    def test_a_process_that_has_got_the_number_of_a_worker_is_not_ended(self):
        before = sessions.now() - 1
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
            try:
                self.assertEqual(sessions.members({other.pid: before}), [])
                sessions.end({other.pid: before}, 1.0)
                self.assertIsNone(other.poll())
                sessions.end({other.pid: sessions.now()}, 60.0)
                self.assertEqual(other.wait(), -signal.SIGTERM)
            finally:
                other.kill()


class Serializers(unittest.TestCase):
    def future_of(self, kind, event):
        worker = types.SimpleNamespace(rank=1, codec=kind, rebuilt=lambda event: rebuilt(event, 1, "node1", kind))
        future = Future(types.SimpleNamespace(failures=0), worker, 1, "method")
        future._on_event(event)
        return future

    def test_a_group_with_another_serializer_takes_no_pickle(self):
        class Trap:
            def __reduce__(self):
                return exec, ("import sys; sys.trapped = True",)

        stub = types.SimpleNamespace(packb=lambda value: repr(value).encode(), unpackb=lambda data, **_: int(bytes(data)))
        with unittest.mock.patch.dict(sys.modules, msgpack=stub):
            kind = codec.codec_of("msgpack")
            self.assertEqual(codec.decode(codec.encode(3, kind), kind), 3)
            event = Event(1, wire.RETURN, kind, 0, 1, [], [b"17"])
            self.assertEqual(self.future_of(kind, event)._decoded(), 17)
        # The pickle would run this if it were accepted.
        parts = [pickle.dumps(Trap())]
        with self.assertRaises(Exception):
            codec.decode(parts, codec.JSON)
        for kind in (codec.JSON, codec.MSGPACK):
            event = Event(1, wire.RETURN, codec.PICKLE, 0, 1, [], parts)
            with self.assertRaisesRegex(WorkerError, "it is sent as pickle, and the group takes"):
                self.future_of(kind, event)._decoded()
            event = Event(1, wire.RAISE, codec.PICKLE, 0, 1, [b"Odd", b"text", b"trace"], parts)
            with self.assertRaisesRegex(WorkerError, "rank 1: Odd: text"):
                self.future_of(kind, event)._decoded()
        self.assertFalse(hasattr(sys, "trapped"))


@unittest.skipUnless(importlib.util.find_spec("msgpack"), "there is no msgpack")
class Msgpack(unittest.TestCase):
    def test_values_come_back_as_msgpack_has_them(self):
        kind = codec.codec_of("msgpack")
        for value in (None, 1.5, "text", b"bytes", [1, [2]], {"args": [], "kwargs": {"by": {1: "one", b"k": None}}}, b"z" * (1 << 20)):
            parts = codec.encode(value, kind)
            self.assertEqual(codec.decode([memoryview(parts[0])], kind), value)
        with self.assertRaises(TypeError):
            codec.encode(object(), kind)
        with self.assertRaises(ValueError):
            codec.decode([b"\xc1"], kind)


class Ends(unittest.TestCase):
    def test_an_entry_of_the_launcher_is_read(self):
        entry = b"how=signal\ncode=137\nsignal=9\ncore=0\nasked=0\noom=-\nhost=node1\npid=812\nerror=\nlater=1\n\nlast\nwords"
        end = End.parse(entry)
        self.assertEqual((str(end), end.host, end.last_words), ("was killed by signal 9", "node1", "last\nwords"))
        self.assertEqual(str(End.parse(b"")), "ended for an unknown reason")
        self.assertEqual(str(End.parse(b"how=exit\ncode=3\n\n")), "exited with code 3")

    def test_errors_can_be_pickled(self):
        died = pickle.loads(pickle.dumps(WorkerDied("gen", 3, "node1", lambda: End("exit", 3, host="node1", last_words="oh"))))
        self.assertEqual(str(died), "rank 3 of group gen on node1 exited with code 3; its last words:\noh")
        error = pickle.loads(pickle.dumps(WorkerError(1, "Odd", "text", "trace")))
        self.assertEqual(str(error), "rank 1: Odd: text")


class Waits(unittest.TestCase):
    def test_a_thread_that_waits_for_another_prints_a_line(self):
        waits, lines = Controller(), []
        # As if another thread read the connections.
        waits._is_led = True
        quick = unittest.mock.patch.multiple(notice, CALL=0.0, say=lines.append)
        with quick, unittest.mock.patch.object(_controller, "SLICE", 0.01):
            self.assertTrue(waits.wait(lambda: bool(lines), None, lambda: "train of rank 3"))
        self.assertRegex(lines[0], "waiting for train of rank 3$")


class Silent:
    """Connections on which no event comes."""

    def __init__(self):
        self.ends, self.detached = os.pipe(), []

    def fileno(self):
        return self.ends[0]

    def next(self, seconds):
        return None

    def send(self, *frame):
        pass

    def detach(self, peer):
        self.detached.append(peer)


class Launcher:
    """Store of a launcher with the ends of workers. A suspended launcher answers after `resumed`."""

    def __init__(self):
        self.ended, self.threads, self.resumed = [], [], threading.Event()
        self.resumed.set()

    def prefix(self, prefix):
        return self

    def keys(self):
        self.threads.append(threading.get_ident())
        if not self.resumed.wait(5):
            self.resumed.set()  # The requests after this one are answered at once.
        return self.ended

    def wait(self, keys, timeout):
        pass

    def get(self, key):
        return b"how=host_lost\n\n"


class Looks(unittest.TestCase):
    """Looks for workers that have ended, while the tasks of an event loop await results."""

    TASKS = 100

    def setUp(self):
        for patch in (
            unittest.mock.patch.object(_controller, "Calls", Silent),
            unittest.mock.patch.object(_controller, "SLICE", 0.02),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.controller, self.launcher = Controller(), Launcher()
        for end in self.controller.calls.ends:
            self.addCleanup(os.close, end)
        group = WorkerGroup.__new__(WorkerGroup)
        group.name, group._codec, group._store = "gen", codec.PICKLE, self.launcher
        worker = Worker(group, 0, types.SimpleNamespace(peer=7, pid=1, world=1, host=b"node1", is_near=0), None)
        self.controller.workers[7] = worker
        calls = [self.controller.call([worker], "train", [b""], codec.PICKLE, Future, None) for _ in range(self.TASKS)]
        self.futures = [future for futures in calls for future in futures]

    def awaited(self, body):
        """The results of all futures. Each has a task, and `body` runs in the same event loop."""

        async def main():
            async def result(future):
                return await future

            tasks = [asyncio.ensure_future(result(future)) for future in self.futures]
            await body()
            return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

        return asyncio.run(main())

    def test_tasks_share_looks_on_a_thread(self):
        async def body():
            while len(self.launcher.threads) < 5:
                await asyncio.sleep(0.005)
            began, before = time.monotonic(), len(self.launcher.threads)
            await asyncio.sleep(0.2)
            self.looks, self.most = len(self.launcher.threads) - before, (time.monotonic() - began) / 0.02 + 2
            self.launcher.ended.append(b"0")

        results = self.awaited(body)
        self.assertLessEqual(self.looks, self.most)
        self.assertNotIn(threading.get_ident(), self.launcher.threads)
        self.assertEqual({str(error) for error in results}, {"rank 0 of group gen on node1 was lost with its host"})
        self.assertEqual((len(results), self.controller.calls.detached), (self.TASKS, [7]))

    def test_a_suspended_launcher_gets_one_request_and_blocks_no_event_loop(self):
        self.launcher.resumed.clear()
        self.launcher.ended.append(b"0")

        async def body():
            while not self.launcher.threads:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.2)
            self.looks, self.is_suspended = len(self.launcher.threads), not self.launcher.resumed.is_set()
            self.launcher.resumed.set()

        results = self.awaited(body)
        self.assertEqual((self.looks, self.is_suspended), (1, True))
        self.assertEqual({type(error) for error in results}, {WorkerDied})

    def test_a_result_that_is_unread_counts_more_than_the_end_of_its_worker(self):
        events = [Event(7, wire.RETURN, codec.PICKLE, 0, future._call, [], codec.NONE_PARTS) for future in self.futures]
        self.launcher.ended.append(b"0")
        with unittest.mock.patch.object(Silent, "next", lambda calls, seconds: events.pop() if events else None):
            self.controller._look_for_ends()
        self.assertEqual([future.result() for future in self.futures], [None] * self.TASKS)
        self.assertEqual(self.controller.calls.detached, [7])


class Classes(unittest.TestCase):
    def test_methods_are_recognised_by_their_kind(self):
        class Some:
            constant = 1

            def plain(self):
                pass

            def items(self):
                yield 1

            async def wait(self):
                pass

            async def tokens(self):
                yield 1

            def _own(self):
                pass

        kinds = {"plain": "plain", "items": "generator", "wait": "async", "tokens": "async generator", "_own": "plain"}
        self.assertEqual(methods_of(Some), kinds)

    def test_classes_that_do_not_exist_are_named(self):
        module = types.ModuleType("some_workers")
        module.Gen = type("Gen", (), {"__module__": "some_workers"})
        sys.modules["some_workers"] = module
        self.addCleanup(sys.modules.pop, "some_workers")
        self.assertIs(class_of("some_workers.Gen"), module.Gen)
        for path, text in [("Gen", "names no module"), ("no_such.Gen", "no module 'no_such'"), ("some_workers.Get", "it has Gen")]:
            with self.subTest(path), self.assertRaisesRegex(SystemExit, text):
                class_of(path)

    def test_a_module_that_starts_a_group_is_refused_by_its_workers(self):
        with tempfile.TemporaryDirectory() as directory, unittest.mock.patch.dict(os.environ, RLAUNCH_JOB_ID="1"):
            with open(os.path.join(directory, "own_controller.py"), "w", encoding="utf-8") as file:
                file.write("import os, rlaunch.groups as g\nclass W: pass\neval(os.environ['START'])\n")
            sys.path.insert(0, directory)
            self.addCleanup(sys.path.remove, directory)
            for start in ("g.WorkerGroup('own_controller.W', n=1)", "g.WorkerGroup.attach('gen')"):
                with self.subTest(start), unittest.mock.patch.dict(os.environ, START=start):
                    with self.assertRaisesRegex(SystemExit, "imports own_controller.*__main__"):
                        class_of("own_controller.W")
                    self.assertEqual(importing, [])

    def test_a_worker_without_a_controller_prints_one_line(self):
        events = [None, None, Event(1, wire.OPENED, 0, 0, 0, [], [])]
        fake = unittest.mock.Mock(next=lambda seconds: events.pop(0))
        stderr = io.StringIO()
        with unittest.mock.patch.object(worker, "Calls", lambda: fake), unittest.mock.patch.object(worker, "_UNCALLED", 0.0):
            with contextlib.redirect_stderr(stderr):
                worker.Worker(int).await_controller("gen", True)
        self.assertEqual(stderr.getvalue(), "rlaunch: after 0 s: group gen waits for a controller, which calls WorkerGroup.attach('gen')\n")

    def test_paths_of_classes(self):
        self.assertEqual(path_of("pkg.Gen"), ("pkg.Gen", ""))
        self.assertEqual(path_of(unittest.TestCase), ("unittest.case.TestCase", ""))
        with self.assertRaisesRegex(TypeError, "at the top of a module"):
            path_of(3)

    def test_places_of_workers(self):
        self.assertEqual(_places(None, 2, ["a", "b"]), [(2, ["a"]), (2, ["b"])])
        self.assertEqual(_places(3, [0, 3], ["a", "b"]), [(3, ["b"])])
        self.assertEqual(_places(3, None, None), [(3, [])])
        self.assertEqual(_places(3, None, ["a", "b"]), [(3, ["a", "b"])])
        for wrong in [(0, None, None), (None, 2, None), (3, 2, ["a"]), (None, [1], ["a", "b"]), (None, 0, ["a"])]:
            with self.subTest(wrong), self.assertRaises(ValueError):
                _places(*wrong)
        for wrong, text in [
            (("2", None, None), "n is a number of workers, got '2'"),
            ((None, ["2"], ["a"]), "ppn is a number of workers for each host, .*, got '2'"),
            ((2, None, "node1"), "hosts is a list of names, got 'node1'"),
            ((2, None, [1]), "hosts is a list of names"),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, text):
                _places(*wrong)

    def test_arguments_of_another_kind_are_named(self):
        with unittest.mock.patch.dict(os.environ, RLAUNCH_JOB_ID="1"):
            for more, text in [({"tied": [2, 1]}, r"tied is a number: .*, got \[2, 1\]"), ({"env": [{}, {}]}, "env is one dict for all workers")]:
                with self.subTest(more), self.assertRaisesRegex(TypeError, text):
                    WorkerGroup("workers.Plain", n=2, **more)
            with self.assertRaisesRegex(ValueError, "tied is a number: .*, got -1"):
                WorkerGroup.attach("gen", tied=-1)
