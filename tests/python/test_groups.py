"""Parts of worker groups that need no job: shared memory, values as bytes, ends of workers, classes by name."""

import contextlib
import importlib.util
import io
import os
import pickle
import random
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock

from rlaunch.groups import End, WorkerDied, WorkerError
from rlaunch.groups import _calls as wire
from rlaunch.groups import _codec as codec
from rlaunch.groups import _controller
from rlaunch.groups import _notice as notice
from rlaunch.groups import worker
from rlaunch.groups._arena import Arena
from rlaunch.groups._mapped import Mapped
from rlaunch.groups._calls import Event
from rlaunch.groups._controller import Controller, Future, rebuilt
from rlaunch.groups._identity import importing
from rlaunch.groups._start import _places, path_of
from rlaunch.groups.worker import class_of, methods_of

PAGE = 4096


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

    def test_a_reader_sees_the_bytes_and_cannot_write(self):
        arena, unused = Arena(16 * PAGE), []
        mapped = Mapped(arena.path, arena.size)
        region = arena.put(memoryview(b"x" * 5000), [0])
        view = mapped.region(region, unused.append)
        again = view[10:20]
        self.assertEqual((bytes(again), view.readonly), (b"x" * 10, True))
        del view
        self.assertEqual(unused, [])
        del again
        self.assertEqual(unused, [region.offset])
        with self.assertRaises(ValueError):
            mapped.region(region._replace(offset=15 * PAGE, len=2 * PAGE), unused.append)

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
        # What it would do if it were taken.
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
    def test_a_thread_that_waits_behind_another_prints_a_line(self):
        waits, lines = Controller(), []
        # As if another thread read the connections.
        waits._is_led = True
        quick = unittest.mock.patch.multiple(notice, CALL=0.0, say=lines.append)
        with quick, unittest.mock.patch.object(_controller, "SLICE", 0.01):
            self.assertTrue(waits.wait(lambda: bool(lines), None, lambda: "train of rank 3"))
        self.assertRegex(lines[0], "waiting for train of rank 3$")


class Classes(unittest.TestCase):
    def test_methods_are_told_by_their_kind(self):
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

    def test_a_worker_without_a_controller_says_so_once(self):
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
        with self.assertRaisesRegex(TypeError, "n is a number of workers, got '2'"):
            _places("2", None, None)
