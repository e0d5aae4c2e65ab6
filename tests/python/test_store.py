"""Arguments that the store refuses because they are ambiguous, tested without a job."""

import datetime
import os
import unittest
from unittest import mock

from rlaunch import Store
from rlaunch._errors import StoreTimeout
from rlaunch._store import _ranks

ASKED = ("get", "set", "add", "append", "compare_set", "delete", "check", "wait", "keys", "barrier")


def store(**answers):
    """Store whose library returns the given results, and receives no other call."""
    made = Store.__new__(Store)
    lib = mock.Mock(spec=[f"rl_store_{name}" for name in ASKED], **{f"rl_store_{name}.side_effect": one for name, one in answers.items()})
    made._handle, made._prefix = mock.Mock(lib=lib), b""
    return made


class Refused(unittest.TestCase):
    def setUp(self):
        self.store = store()
        self.addCleanup(lambda: self.assertEqual(self.store._handle.lib.mock_calls, []))

    def refuses(self, kind, said, name, *args, **kwargs):
        with self.subTest(name, args=args), self.assertRaisesRegex(kind, said):
            getattr(self.store, name)(*args, **kwargs)

    def test_a_number_is_no_text(self):
        value, key = r"a value is bytes or a str, got 5 of type int: write str\(", r"a key is bytes or a str, got 1 of type int"
        self.refuses(TypeError, value, "set", "rank", 5)
        self.refuses(TypeError, value, "append", "rank", 5)
        self.refuses(TypeError, value, "compare_set", "rank", "4", 5)
        self.refuses(TypeError, value, "compare_set", "rank", 5, "4")
        self.refuses(TypeError, "a value is bytes or a str, got None", "set", "rank", None)
        self.refuses(TypeError, "a value is bytes", "set", "huge", 2**62)
        self.refuses(TypeError, "a prefix is bytes or a str, got 3", "prefix", 3)
        for name in ("get", "delete", "keys", "add"):
            self.refuses(TypeError, key, name, 1)
        self.refuses(TypeError, key, "set", 1, "x")
        self.refuses(TypeError, key, "wait", [1])

    def test_a_number_that_does_not_fit_is_not_added(self):
        for by in (10**30, 2**63, -(2**63) - 1):
            self.refuses(OverflowError, r"by takes a number of 64 bits.*from -2\*\*63", "add", "n", by)
        self.refuses(TypeError, "by takes a whole number, got 'x' of type str", "add", "n", "x")
        self.refuses(TypeError, "by takes a whole number, got 1.5", "add", "n", 1.5)

    def test_one_key_is_not_many_of_a_letter(self):
        self.refuses(TypeError, r"got the one key 'no': write wait\(\['no'\]\)", "wait", "no", 0.2)
        self.refuses(TypeError, r"write check\(\[b'no'\]\)", "check", b"no")

    def test_time_outs_that_are_none(self):
        for timeout, kind in (
            (float("nan"), ValueError),
            (-1, ValueError),
            (datetime.timedelta(seconds=-1), ValueError),
            (float("-inf"), ValueError),
            ("1", TypeError),
            ([], TypeError),
        ):
            self.refuses(kind, "Store.wait: timeout", "wait", ["a"], timeout)
            self.refuses(kind, "Store.barrier: timeout", "barrier", "b", 1, timeout)

    def test_more_ranks_than_there_can_be(self):
        self.refuses(ValueError, "no job has 10000000000 ranks", "barrier", "b", 10**10, 0.2)
        self.refuses(ValueError, "numbers from 0, got -1", "barrier", "b", [0, -1])
        self.refuses(ValueError, "numbers from 0, got 4294967296", "barrier", "b", [0, 2**32])
        self.refuses(TypeError, "ranks takes a number", "barrier", "b", "01")
        with mock.patch.dict(os.environ, RLAUNCH_RANK="3"):
            self.refuses(ValueError, r"rank 3 is not among .*\[0, 1\]", "barrier", "b", 2)


class Asked(unittest.TestCase):
    def test_a_time_out_is_seconds_or_a_timedelta(self):
        for timeout in (0.001, datetime.timedelta(milliseconds=1)):
            with self.subTest(timeout):
                asked = []

                def wait(_, names, count, ms, asked=asked):
                    asked.append((count, ms))
                    raise StoreTimeout("after 1ms: nobody has set 'a'")

                with self.assertRaises(StoreTimeout):
                    store(wait=wait).wait(["a"], timeout)
                self.assertLessEqual(asked[0][1], 1)
        # The longest time that can be encoded, without an overflow.
        for timeout, wanted in ((1e300, 1 << 62), (float("inf"), -1), (None, -1), (datetime.timedelta(seconds=2), 2000)):
            with self.subTest(timeout):
                one = store(barrier=lambda *_: 0)
                with mock.patch.dict(os.environ, RLAUNCH_RANK="0"):
                    one.barrier("b", 1, timeout)
                self.assertEqual(one._handle.lib.rl_store_barrier.call_args.args[-1], wanted)

    def test_a_deadline_that_has_passed_is_no_mistake(self):
        def late(*given):
            asked.append(given[-1])
            raise StoreTimeout("after 0ms: nobody has set 'a'")

        asked = []
        with mock.patch.dict(os.environ, RLAUNCH_RANK="0"):
            for timeout in (-0.003, -2, datetime.timedelta(milliseconds=-5)):
                for ask in (lambda: store(wait=late).wait(["a"], timeout), lambda: store(barrier=late).barrier("b", 1, timeout)):
                    with self.subTest(timeout), self.assertRaises(StoreTimeout):
                        with mock.patch("rlaunch._store._interruptible", lambda call: call()):
                            ask()
        self.assertEqual(asked, [0] * 6)

    def test_ranks_may_be_an_array(self):
        class Array(list):
            def __index__(self):
                raise TypeError("only integer scalar arrays can be converted to a scalar index")

        self.assertEqual(_ranks(Array([2, 0])), [0, 2])
        self.assertEqual([_ranks(3), _ranks(range(2)), _ranks(n for n in (1, 0))], [[0, 1, 2], [0, 1], [0, 1]])
        for none in (1.5, None):
            with self.assertRaises(TypeError):
                _ranks(none)

    def test_a_barrier_and_a_wait_report_time_in_the_same_words(self):
        def late(*_):
            raise StoreTimeout("after 300ms: rank 1 has not come")

        with mock.patch.dict(os.environ, RLAUNCH_RANK="0"), self.assertRaisesRegex(StoreTimeout, "^after 0.3 s: rank 1 has not come$"):
            with mock.patch("rlaunch._store._interruptible", lambda call: call()):
                store(barrier=late).barrier("b", 2, 0.3)

    def test_texts_and_bytes_stay_unchanged(self):
        one = store(set=lambda *_: 0)
        for value in (b"x\0", bytearray(b"x\0"), memoryview(b"x\0"), "x\0"):
            one.set("k", value)
            self.assertEqual(one._handle.lib.rl_store_set.call_args.args[1:], (b"k", 1, b"x\0", 2))


if __name__ == "__main__":
    unittest.main()
