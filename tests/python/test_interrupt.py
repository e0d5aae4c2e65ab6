"""What the two threads of a call do when they meet at an unlucky moment: the pieces alone, without a library.

    PYTHONPATH=common/client/python python3 -m unittest discover tests/python
"""

import os
import signal
import sys
import tempfile
import threading
import unittest
from unittest import mock

from rlaunch import _native as native
from rlaunch import inprocess as ip
from rlaunch._session import FaultNews, News
from rlaunch.inprocess import _call, _interrupt
from rlaunch.inprocess._interrupt import FIRST_PAUSE
from rlaunch.inprocess.monitor_thread import RankShouldRestart


def session(**says):
    """One that wants the function left."""
    return mock.Mock(**{"due.return_value": True, "interrupted.return_value": True, "enter.return_value": True, **says})


class Interrupts(unittest.TestCase):
    def setUp(self):
        self.interrupter = _interrupt.Interrupter(session())
        self.interrupter.__enter__()
        self.addCleanup(self.interrupter.__exit__)
        self.interrupter.enter()

    def signal(self):
        signal.raise_signal(_interrupt._signo)

    def test_a_second_comes_only_when_it_is_time_and_each_later_than_the_one_before(self):
        now = 100.0
        with mock.patch.object(_interrupt.time, "monotonic", lambda: now):
            for pause in (1.0, 2.0, 4.0):
                with self.assertRaises(RankShouldRestart):
                    self.signal()
                now += pause * 0.8
                self.signal()
                now += pause * 0.2
            # Another round has nothing to wait for.
            for _ in range(2):
                with self.assertRaises(RankShouldRestart):
                    self.signal()
                self.interrupter.enter()

    def test_who_has_raised_by_itself_is_not_signalled_as_well(self):
        self.interrupter.told()
        self.signal()
        self.interrupter._not_before = 0.0
        with self.assertRaises(RankShouldRestart):
            self.signal()

    def test_who_cleans_up_behind_the_abort_is_not_told_at_once(self):
        now = 100.0
        with mock.patch.object(_interrupt.time, "monotonic", lambda: now):
            self.interrupter.before_abort()
            try:
                raise RuntimeError("aborted")
            except RuntimeError:
                self.signal()
                now += FIRST_PAUSE
                with self.assertRaises(RankShouldRestart):
                    self.signal()

    def test_who_handles_something_while_nothing_was_aborted_is_told_at_once(self):
        try:
            raise RuntimeError("no such module")
        except RuntimeError:
            with self.assertRaises(RankShouldRestart):
                self.signal()

    def test_who_was_in_a_handler_before_the_abort_is_told_at_once(self):
        try:
            raise RuntimeError("no such module")
        except RuntimeError:
            self.interrupter.before_abort()
            with self.assertRaises(RankShouldRestart):
                self.signal()

    def test_who_imports_is_told_behind_that(self):
        with tempfile.TemporaryDirectory() as directory, mock.patch.object(sys, "path", [directory, *sys.path]):
            with open(os.path.join(directory, "imported_meanwhile.py"), "w", encoding="ascii") as file:
                file.write(f"import signal\nsignal.raise_signal({int(_interrupt._signo)})\nwhole = True\n")
            with mock.patch.object(_interrupt, "_call_module", __name__):
                self.assertFalse(_interrupt._is_importing(sys._getframe()))
            imported = __import__("imported_meanwhile")
            self.assertTrue(imported.whole)
        with self.assertRaises(RankShouldRestart):
            self.signal()

    def test_another_thread_that_imports_is_told_behind_that(self):
        raised, was_raised, looked, let_go = [], threading.Event(), threading.Event(), threading.Event()

        def note(tid, exc_type):
            raised.append(exc_type)
            was_raised.set()

        def importing(frame):
            looked.set()
            return not let_go.is_set()

        with mock.patch.object(_interrupt, "async_raise", note), mock.patch.object(_interrupt, "_is_importing", importing):
            self.interrupter._is_main = False
            chase = threading.Thread(target=self.interrupter.chase, args=(self.interrupter.left,))
            chase.start()
            looked.wait()
            self.assertEqual(raised, [])
            let_go.set()
            was_raised.wait()
            self.interrupter.exit()
            chase.join()
        self.assertEqual(raised, [RankShouldRestart, None])

    def test_one_that_comes_while_another_is_swallowed_is_raised_behind_that(self):
        frames = []
        with mock.patch.object(self.interrupter, "_raise_again", lambda: frames.append(sys._getframe())):
            sys.unraisablehook(mock.Mock(exc_type=RankShouldRestart))
        with mock.patch.object(_interrupt._thread, "start_new_thread") as start:
            self.interrupter.signalled(frames[0])
        start.assert_called_once()

    def test_another_threads_is_raised_once_and_taken_back_at_its_end(self):
        raised, was_raised = [], threading.Event()

        def note(tid, exc_type):
            raised.append(exc_type)
            was_raised.set()

        with mock.patch.object(_interrupt, "async_raise", note):
            self.interrupter._is_main = False
            left = self.interrupter.left
            chase = threading.Thread(target=self.interrupter.chase, args=(left,))
            chase.start()
            was_raised.wait()
            self.assertTrue(self.interrupter.exit())
            chase.join()
        self.assertEqual(raised, [RankShouldRestart, None])


class Calls(unittest.TestCase):
    def begin(self, call):
        came = native.Round()
        came.mode, came.world_size, came.active_world_size, came.initial_world_size = native.MODE_ACTIVE, 1, 1, 1
        call._begin(News(native.NEXT_BEGIN, came, {}, ""))

    def test_a_session_that_ends_while_a_round_is_about_to_begin_ends_it(self):
        call = _call.Call(ip.Wrapper(), None)
        call._session = session()
        call._session.wait_interrupt.side_effect = [FaultNews("over", 0, "no more"), None]
        call._monitor()
        self.begin(call)
        self.assertTrue(call._round.over.is_set() and call._round.aborted.is_set())
        self.assertEqual(call._round.fault.text, "no more")
        call._session.aborted.assert_called_once()


if __name__ == "__main__":
    unittest.main()
