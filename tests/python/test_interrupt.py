"""Races between the two threads of a call, tested on single parts without the library.

    PYTHONPATH=common/client/python python3 -m unittest discover tests/python
"""

import functools
import os
import signal
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from rlaunch import _native as native
from rlaunch import inprocess as ip
from rlaunch._flag import Flag
from rlaunch._session import FaultNews, News
from rlaunch.inprocess import _call, _interrupt
from rlaunch.inprocess._interrupt import FIRST_PAUSE
from rlaunch.inprocess.monitor_thread import RankShouldRestart


def session(**says):
    """Session that wants the function to be left."""
    return mock.Mock(**{"due.return_value": True, "interrupted.return_value": True, "enter.return_value": True, **says})


class Half:
    """Lock like those of Python's own modules. It is taken in Python code, after which an exception leaves it taken."""

    def __init__(self, taken, times=1):
        self.lock, self.taken, self.times = threading.Lock(), taken, times

    def __enter__(self):
        self.lock.acquire()
        for _ in range(self.times):
            self.taken()

    def __exit__(self, *_):
        self.lock.release()


class Interrupts(unittest.TestCase):
    def setUp(self):
        self.interrupter = _interrupt.Interrupter(session())
        self.interrupter.__enter__()
        self.addCleanup(self.interrupter.__exit__)
        self.interrupter.enter()

    def signal(self):
        signal.raise_signal(_interrupt._signo)

    def test_repeated_interrupts_come_after_growing_pauses(self):
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

    def test_a_thread_that_has_raised_by_itself_is_not_signalled_as_well(self):
        self.interrupter.mark_interrupted()
        self.signal()
        self.interrupter._not_before = 0.0
        with self.assertRaises(RankShouldRestart):
            self.signal()

    def test_a_thread_that_cleans_up_after_the_abort_is_not_interrupted_at_once(self):
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

    def test_a_thread_in_a_handler_without_an_abort_is_interrupted_at_once(self):
        try:
            raise RuntimeError("no such module")
        except RuntimeError:
            with self.assertRaises(RankShouldRestart):
                self.signal()

    def test_a_thread_in_a_handler_from_before_the_abort_is_interrupted_at_once(self):
        try:
            raise RuntimeError("no such module")
        except RuntimeError:
            self.interrupter.before_abort()
            with self.assertRaises(RankShouldRestart):
                self.signal()

    def test_a_thread_that_imports_is_interrupted_after_the_import(self):
        with tempfile.TemporaryDirectory() as directory, mock.patch.object(sys, "path", [directory, *sys.path]):
            with open(os.path.join(directory, "imported_meanwhile.py"), "w", encoding="ascii") as file:
                file.write(f"import signal\nsignal.raise_signal({int(_interrupt._signo)})\nwhole = True\n")
            with mock.patch.object(_interrupt, "_call_module", __name__):
                self.assertFalse(_interrupt._is_importing(sys._getframe()))
            self.addCleanup(sys.modules.pop, "imported_meanwhile", None)
            # The interrupt comes soon, without another signal.
            with self.assertRaises(RankShouldRestart):
                __import__("imported_meanwhile")
                time.sleep(60)
            self.assertTrue(sys.modules["imported_meanwhile"].whole)

    def test_a_thread_that_deletes_is_interrupted_after_the_deletion_or_its_limit(self):
        signalled, now, looks = self.signal, time.monotonic(), []

        class Deleted:
            def __del__(self):
                signalled()
                looks.append(sys._getframe())

        with mock.patch.object(_interrupt._thread, "start_new_thread") as start:
            for _ in range(2):
                Deleted()
            self.assertEqual(len(looks), 2)
            # One thread waits for the end of all deletions.
            start.assert_called_once_with(self.interrupter._again, (self.interrupter.left,))
        # If no thread can be started, the deletion is not disturbed, and the next deletion tries again.
        self.interrupter.enter()
        with mock.patch.object(_interrupt._thread, "start_new_thread", side_effect=RuntimeError) as start:
            for _ in range(2):
                Deleted()
            self.assertEqual((len(looks), start.call_count), (4, 2))
        self.assertTrue(self.interrupter._is_amid(looks[0]))
        with mock.patch.object(_interrupt.time, "monotonic", lambda: now + _interrupt.LONGEST_DELETION + 60):
            self.assertFalse(self.interrupter._is_amid(looks[0]))
            # Another round waits for its own deletions.
            self.interrupter.enter()
            self.assertTrue(self.interrupter._is_amid(looks[0]))

    def test_a_repeated_interrupt_counts_only_for_its_round(self):
        def next_round():
            self.interrupter.exit()
            self.interrupter.enter()
            return True

        self.interrupter.session.due.side_effect = next_round
        self.interrupter._is_main = False
        with mock.patch.object(_interrupt, "async_raise") as raised:
            self.interrupter._again(self.interrupter.left)
        raised.assert_not_called()
        # The interrupt of the next round is not delayed by it.
        self.assertEqual(self.interrupter._not_before, 0.0)

    def test_a_thread_that_takes_a_lock_is_interrupted_in_the_with_of_the_lock(self):
        # No Python code runs between this function and the signal.
        signalled = functools.partial(signal.raise_signal, _interrupt._signo)
        half = Half(signalled)
        again = []
        with mock.patch.object(_interrupt._thread, "start_new_thread", lambda function, args: again.append(function)):
            with self.assertRaises(RankShouldRestart), half:
                self.signal()
            self.assertFalse(half.lock.locked())
            # Interrupted again at once, before the library signals again.
            self.assertEqual(again, [self.interrupter._again])
            self.assertEqual(threading.Condition.__enter__.__code__.co_name, Half.__enter__.__code__.co_name)
            # A thread that stays there waits for its lock, and the delays have a limit.
            self.interrupter.enter()
            with self.assertRaises(RankShouldRestart), Half(signalled, _interrupt.HOLDS + 1):
                self.fail("the lock was had")
            self.assertEqual(len(again), 1 + _interrupt.HOLDS)

    def test_another_thread_that_imports_or_takes_a_lock_is_interrupted_after_that(self):
        for holds in ("_is_importing", "_is_held"):
            with self.subTest(holds):
                self.interrupter.enter()
                raised, was_raised, looked, let_go = [], threading.Event(), threading.Event(), threading.Event()

                def note(tid, exc_type, raised=raised, was_raised=was_raised):
                    raised.append(exc_type)
                    was_raised.set()

                def holding(*_, looked=looked, let_go=let_go):
                    looked.set()
                    return not let_go.is_set()

                where = _interrupt if holds == "_is_importing" else self.interrupter
                with mock.patch.object(_interrupt, "async_raise", note), mock.patch.object(where, holds, holding):
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

    def test_an_interrupt_during_a_dropped_one_is_raised_after_that(self):
        frames = []
        with mock.patch.object(self.interrupter, "_raise_again", lambda: frames.append(sys._getframe())):
            sys.unraisablehook(mock.Mock(exc_type=RankShouldRestart))
        with mock.patch.object(_interrupt._thread, "start_new_thread") as start:
            self.interrupter.signalled(frames[0])
        start.assert_called_once()

    def test_interrupt_of_another_thread_is_raised_once_and_taken_back_at_the_end(self):
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


class Ends(unittest.TestCase):
    def test_an_exit_that_was_broken_off_leaves_nothing_armed(self):
        raised, was_raised = [], threading.Event()

        def note(tid, exc_type):
            raised.append(exc_type)
            was_raised.set()

        interrupter = _interrupt.Interrupter(session(**{"exit.side_effect": SystemExit(15)}))
        interrupter._is_main = False
        with mock.patch.object(_interrupt, "async_raise", note):
            with self.assertRaises(SystemExit), interrupter:
                interrupter.enter()
                chase = threading.Thread(target=interrupter.chase, args=(interrupter.left,), daemon=True)
                chase.start()
                was_raised.wait()
                # A signal handler of the program raises in this call.
                interrupter.exit()
            chase.join(FIRST_PAUSE * 4)
            self.assertFalse(chase.is_alive())
        self.assertEqual(raised, [RankShouldRestart, None])
        self.assertFalse(interrupter.is_training())


    def test_an_interrupt_after_a_lock_does_not_keep_the_function_from_being_left(self):
        class Taken:
            """Lock as in Python 3.14: the exception comes between the taking of the lock in C and its `with`, so the lock stays taken."""

            def __init__(self):
                self.lock = threading.Lock()

            def __enter__(self):
                if not self.lock.acquire(timeout=1):
                    raise SystemExit("taken for ever")
                raise RankShouldRestart

            def __exit__(self, *_):
                self.lock.release()

        interrupter = _interrupt.Interrupter(session())
        with interrupter:
            interrupter.enter()
            for name in [name for name, value in vars(interrupter).items() if isinstance(value, type(threading.Lock()))]:
                setattr(interrupter, name, Taken())
            interrupter.exit()
        self.assertTrue(interrupter.left.is_set())

    def test_an_end_that_is_broken_off_leaves_the_next_call_alone(self):
        hook = sys.unraisablehook
        interrupter = _interrupt.Interrupter(session())
        with mock.patch.object(interrupter, "_disarm", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt), interrupter:
            pass
        _interrupt.refuse_a_second()
        self.assertIs(sys.unraisablehook, hook)


class Flags(unittest.TestCase):
    def test_a_thread_that_is_interrupted_in_a_wait_blocks_no_other_thread(self):
        flag, others, came = Flag(), [], []

        def interrupt(*_):
            if not came:
                came.append(True)
                raise RankShouldRestart("")

        earlier = signal.signal(signal.SIGUSR1, interrupt)
        self.addCleanup(signal.signal, signal.SIGUSR1, earlier)

        def disturb():
            while not flag._waiting:
                os.sched_yield()
            # An exception between the last bytecode and the wait does not wake the wait.
            while not came:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
                time.sleep(0.01)

        threading.Thread(target=disturb).start()
        with self.assertRaises(RankShouldRestart):
            flag.wait()
        for _ in range(2):
            others.append(threading.Thread(target=flag.wait))
            others[-1].start()
        while len(flag._waiting) < 3:
            os.sched_yield()
        flag.set()
        for other in others:
            other.join()
        self.assertTrue(flag.is_set() and flag.wait() and flag.wait(0.0))

    def test_time_runs_out(self):
        flag = Flag()
        self.assertFalse(flag.is_set() or flag.wait(0.0) or flag.wait(0.001))

    def test_a_set_at_the_begin_of_a_wait_is_noticed(self):
        for _ in range(200):
            flag = Flag()
            setter = threading.Thread(target=flag.set)
            setter.start()
            self.assertTrue(flag.wait())
            setter.join()


class Calls(unittest.TestCase):
    def begin(self, call):
        came = native.Round()
        came.mode, came.world_size, came.active_world_size, came.initial_world_size = native.MODE_ACTIVE, 1, 1, 1
        call._begin(News(native.NEXT_BEGIN, came, {}, ""))

    def test_the_end_of_a_session_ends_a_round_that_is_about_to_begin(self):
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
