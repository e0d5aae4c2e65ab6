"""Policies as text, compositions and arguments, tested without a job."""

import contextlib
import functools
import os
import socket
import unittest
import warnings
from datetime import timedelta
from unittest import mock

import rlaunch
import rlaunch.inprocess as ip
from rlaunch import _sockets, _torch_hooks
from rlaunch.inprocess import _policy
from rlaunch.inprocess import rank_assignment as ra


def words(policy, size=8, rank_filter=None):
    return _policy.words(policy, rank_filter, size).text


class Policies(unittest.TestCase):
    def test_chains_keep_their_order(self):
        self.assertEqual(words(ip.Compose(ra.ActivateAllRanks(), ra.ShiftRanks())), "all,shift")
        chain = ip.Compose(
            ip.Compose(ra.ActiveWorldSizeDivisibleBy(2), ra.MaxActiveWorldSize(6)),
            ra.FillGaps(),
            ra.FilterCountGroupedByKey("all", lambda n: n > 4),
        )
        self.assertEqual(words(chain), "divisible=2,max=6,fill,group(const:all)>=5")
        self.assertEqual(words(ra.MaxActiveWorldSize()), "max")

    def test_conditions_are_described_by_their_values(self):
        cases = {
            "==4": lambda n: n == 4,
            ">=3": lambda n: n >= 3,
            "<=6": lambda n: n <= 6,
            "%2": lambda n: n % 2 == 0,
            " in(1-2,5)": lambda n: n in (1, 2, 5),
            "==9": lambda n: n == 16,
            ">=1": lambda n: 8 // n > 0,
        }
        for text, condition in cases.items():
            group = ra.FilterCountGroupedByKey(lambda state: "x", condition)
            self.assertEqual(words(group), f"group(script/0){text}")

    def test_keys_are_asked_on_the_rank(self):
        group = ra.FilterCountGroupedByKey(lambda state: state.rank // 2, lambda n: n == 2)
        chain = _policy.words(ip.Compose(ra.ShiftRanks(), group, ra.FilterCountGroupedByKey(lambda s: "h", bool)), None, 8)
        self.assertEqual(chain.text, "shift,group(script/0)==2,group(script/1)>=1")
        self.assertEqual(chain.values(ip.State(5, 8)), ["2", "h"])

    def test_a_tree_is_a_file_of_its_own(self):
        asked = []

        def host(state):
            asked.append(state.rank)
            return f'h"{state.rank // 4}'

        reserve = ra.LayerFlag.RESERVE
        layers = [ra.Layer(min_ranks=4, flag=reserve), ra.Layer(4, 4, host, reserve | ra.LayerFlag.BACKFILL)]
        tree = _policy.words(ra.Tree(layers, world_size_filter=lambda n: n // 4 * 4), None, 8)
        lines = tree.text.splitlines()
        self.assertEqual(lines[:2], ["[assign.tree]", 'filter = "multiple=4"'])
        self.assertEqual(lines[-4:], ['key = "script/0"', "min_ranks = 4", "max_ranks = 4", 'flags = ["reserve", "backfill"]'])
        # A tree is built only once.
        self.assertEqual(tree.values(ip.State(5, 8)) + tree.values(ip.State(1, 8)), ['h"1', 'h"1'])
        self.assertEqual(asked, [5])

    def test_a_group_may_need_more_ranks_than_are_active(self):
        class Int64:
            def __index__(self):
                return 6

        lines = _policy.words(ra.Tree([ra.Layer(8, Int64())]), None, 8).text.splitlines()
        self.assertEqual(lines[-3:], ["min_ranks = 8", "max_ranks = 6", "flags = []"])

    def test_filters_are_described_by_their_values(self):
        cases = {
            "multiple=3": lambda n: n - n % 3,
            "cap=5": lambda n: min(n, 5),
            "spare=2": lambda n: max(0, n - 2),
            "pow2": lambda n: 1 << (n.bit_length() - 1),
            "table(0,0,2,2,2,5,5,5,5)": lambda n: 5 if n >= 5 else 2 if n >= 2 else 0,
        }
        for text, function in cases.items():
            self.assertIn(f'filter = "{text}"', words(ra.Tree([ra.Layer()], world_size_filter=function)))
        with self.assertRaisesRegex(ValueError, r"world_size_filter\(1\) is 2"):
            words(ra.Tree([ra.Layer()], world_size_filter=lambda n: n + 1))

    def test_a_class_of_the_script_is_refused_by_name(self):
        class Mine(ra.ShiftRanks):
            pass

        with self.assertRaisesRegex(TypeError, "rank_assignment: .*Mine is a class of the script"):
            words(ip.Compose(ra.ActivateAllRanks(), Mine()))
        with self.assertRaisesRegex(ValueError, "a Tree is a whole policy"):
            words(ip.Compose(ra.ActivateAllRanks(), ra.Tree([ra.Layer()])))

    def test_deprecated_filters_run_last(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            old = ip.rank_filter.WorldSizeDivisibleBy(4)
        self.assertTrue(all(one.category is DeprecationWarning for one in caught) and caught)
        self.assertEqual(words(ip.Compose(ra.ActivateAllRanks(), ra.ShiftRanks()), 8, old), "divisible=4,shift")

    def test_simple_policies_can_be_called(self):
        def after(policy, rank, lost, size=8):
            return policy(ra.RankAssignmentCtx(ip.State(rank, size), None, set(lost))).state

        self.assertEqual(after(ra.ShiftRanks(), 6, [1, 4, 7]).rank, 4)
        self.assertEqual([after(ra.FillGaps(), rank, [1, 4, 5]).rank for rank in (0, 2, 3, 6, 7)], [0, 2, 3, 1, 4])
        with self.assertRaises(ra.RankDiscarded):
            after(ra.ShiftRanks(), 1, [1])
        state = after(ra.MaxActiveWorldSize(6), 6, [])
        self.assertEqual((state.mode, state.active_rank, state.active_world_size), (ip.Mode.INACTIVE, None, 6))
        with self.assertRaisesRegex(NotImplementedError, "rlaunch assign"):
            after(ra.Tree([ra.Layer()]), 1, [])


class Arguments(unittest.TestCase):
    def test_compositions_are_instances_of_the_class_of_their_parts(self):
        one, other = ip.abort.AbortTorchDistributed(), ip.nested_restarter.NestedRestarterHandlingStarting()
        whole = ip.Compose(ip.Compose(one, other), ip.Compose(other, one))
        self.assertIsInstance(whole, ip.abort.Abort)
        self.assertEqual(ip.Compose(lambda x: x + 1, lambda x: x * 10)(4), 41)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ip.Compose(lambda x: x, lambda x: None)(1)
        self.assertIn("has returned nothing", str(caught[0].message))

    def test_invalid_arguments_are_reported_with_both_values(self):
        with self.assertRaisesRegex(ValueError, "soft_timeout=0:02:00 and hard_timeout=0:01:30"):
            ip.Wrapper(soft_timeout=timedelta(seconds=120))
        with self.assertRaisesRegex(TypeError, "abort takes an Abort, got 3"):
            ip.Wrapper(abort=3)
        with self.assertRaises(TypeError):
            ip.Wrapper(nothing=1)

    def test_a_function_that_returns_before_its_work_is_refused(self):
        async def coroutine():
            pass

        def generator():
            yield

        async def both():
            yield

        class Called:
            async def __call__(self):
                pass

        for fn, said in (
            (coroutine, "coroutine is `async def`.*asyncio.run"),
            (Called(), "asyncio.run"),
            (functools.partial(coroutine), "asyncio.run"),
            (generator, "generator is a generator .*loops over it"),
            (both, "both is a generator"),
            (3, "is a function, got 3 of type int"),
        ):
            with self.subTest(said), self.assertRaisesRegex(TypeError, said):
                ip.Wrapper()(fn)
        with self.assertRaisesRegex(TypeError, r"@Wrapper\(\), with parentheses"):
            ip.Wrapper(generator)
        ip.Wrapper()(functools.partial(print, 1))
        ip.Wrapper()(int)

    def test_trees_and_compositions_are_checked_on_construction(self):
        with self.assertRaisesRegex(TypeError, "Compose takes callables.*number 2 is 1 of type int"):
            ip.Compose(ra.ShiftRanks(), 1)
        for kind, said, make in (
            (TypeError, "each of layers takes a Layer, got 3 of type int", lambda: ra.Tree([3])),
            (TypeError, "layers takes a list or tuple, got Layer", lambda: ra.Tree(ra.Layer())),
            (ValueError, "layers is empty", lambda: ra.Tree([])),
            (TypeError, "world_size_filter takes a Callable, got 3", lambda: ra.Tree([ra.Layer()], 3)),
            (TypeError, "min_ranks takes an int, got 'a' of type str", lambda: ra.Layer(min_ranks="a")),
            (TypeError, "key_or_fn takes a Callable, got 3", lambda: ra.Layer(key_or_fn=3)),
            (TypeError, "flag takes a LayerFlag, got 'reserve'", lambda: ra.Layer(flag="reserve")),
            (TypeError, "max_ranks takes an int, got 1.5 of type float", lambda: ra.Layer(1, 1.5)),
            (ValueError, "min_ranks is 0 or more, got -1", lambda: ra.Layer(-1)),
        ):
            with self.subTest(said), self.assertRaisesRegex(kind, said):
                make()

    def test_a_group_that_times_out_before_the_wrapper_is_reported_once(self):
        printed = []
        say = mock.patch("builtins.print", lambda text, **_: printed.append(text))
        with mock.patch.object(_torch_hooks, "_hard_timeout", timedelta(seconds=90)), say:
            for timeout in (None, timedelta(minutes=30), timedelta(seconds=11), timedelta(seconds=11)):
                _torch_hooks.compare_timeout("cpu:gloo,cuda:nccl", timeout)
            _torch_hooks.compare_timeout("gloo", timedelta(seconds=12))
        self.assertEqual(len(printed), 1)
        self.assertIn("timeout of 0:00:11 is below the Wrapper's hard_timeout of 0:01:30", printed[0])

    def test_a_wrapper_that_is_off_is_nothing(self):
        def fn():
            pass

        self.assertIs(ip.Wrapper(enabled=False)(fn), fn)

    def test_the_call_is_passed_to_annotated_parameters(self):
        from typing import Optional

        from rlaunch.inprocess.param_utils import substitute_param_value

        def fn(a, call: Optional[ip.CallWrapper] = None, *, b=2):
            pass

        def texts(a, call: "ip.CallWrapper", b=2):
            pass

        self.assertEqual(substitute_param_value(fn, (1,), {}, {ip.CallWrapper: "it"}), ((1, "it"), {"b": 2}))
        self.assertEqual(substitute_param_value(texts, (1,), {"b": 3}, {ip.CallWrapper: "it"}), ((1, "it", 3), {}))
        def unknown(a: "OnlyForTypeCheckers", call: "Optional[ip.CallWrapper]" = None):
            pass

        def either(a, call: "ip.CallWrapper | None" = None):
            pass

        unknown.__globals__.setdefault("Optional", Optional)
        for one in (unknown, either):
            self.assertEqual(substitute_param_value(one, (1,), {}, {ip.CallWrapper: "it"}), ((1, "it"), {}))
        def many(a: "Sequence[int | ip.CallWrapper | str]", call: "Sequence[int | str] | ip.CallWrapper | None" = None):
            pass

        # Names in brackets count as well, even if only type checkers know them.
        self.assertEqual(substitute_param_value(many, (1,), {}, {ip.CallWrapper: "it"}), ((1, "it"), {}))
        with self.assertRaisesRegex(TypeError, "'a'"):
            substitute_param_value(fn, (), {}, {ip.CallWrapper: "it"})

    def test_frozen_states_copy_nothing(self):
        error = ValueError(socket.socket)
        state = ip.State(1, 2, fn_exception=error)
        self.assertIs(state.freeze().fn_exception, error)

    def test_outside_a_job_the_process_is_a_world_of_one(self):
        if "RLAUNCH_JOB_ID" not in os.environ:
            self.assertEqual((rlaunch.world().rank, rlaunch.world().world_size, rlaunch.world().job_id), (0, 1, None))


class Sockets(unittest.TestCase):
    def test_connections_of_a_group_end_and_no_others(self):
        def pair(listener):
            one = socket.create_connection(listener.getsockname())
            return one, listener.accept()[0]

        own = socket.create_server(("127.0.0.1", 0))
        users = pair(own)
        groups = _sockets.Groups()
        added = []
        groups.add = added.append
        making = groups.making()
        next(making)
        listener = socket.create_server(("127.0.0.1", 0))
        early = pair(listener)
        self.assertRaises(StopIteration, next, making)
        late = pair(listener)
        # Another descriptor has this number by now.
        number = early[0].detach()
        os.close(number)
        reused = socket.fromfd(users[0].fileno(), socket.AF_INET, socket.SOCK_STREAM)
        self.assertEqual(reused.fileno(), number)
        groups.shut_down()
        for one in (early[1], *late):
            one.settimeout(5)
            self.assertEqual(one.recv(1), b"")
        users[0].sendall(b"x")
        self.assertEqual(users[1].recv(1), b"x")
        self.assertIn(early[1].fileno(), added)
        # The listener still listens.
        socket.create_connection(listener.getsockname()).close()
        for one in (own, listener, early[1], reused, *users, *late):
            one.close()

    def test_a_connection_of_a_store_that_has_never_carried_a_byte_is_left_alone(self):
        groups = _sockets.Groups()
        added = []
        groups.add = added.append
        with contextlib.contextmanager(groups.making)(is_store=True), socket.create_server(("127.0.0.1", 0)) as listener:
            ends = [socket.create_connection(listener.getsockname()) for _ in range(3)]
            peers = [listener.accept()[0] for _ in ends]
            ends[1].sendall(b"x")
            peers[2].sendall(b"x")
            self.assertEqual(ends[2].recv(1), b"x")
        self.assertEqual(sorted(added), sorted(one.fileno() for one in (*ends[1:], *peers[1:])))
        for one in (*ends, *peers):
            one.close()


if __name__ == "__main__":
    unittest.main()
