"""Rounds of the Python package, with the agent of these tests: python3 -m unittest discover tests/python

PYTHONPATH names the package with its library in it (scripts/build-client leaves one in target/client/python).
"""

import os
import re
import subprocess
import sys
import time
import unittest

from agent import DISCARDED, GIVEN_UP, JOINED, REFUSED, Agent, fault

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = 60


class Process:
    """Process of a rank."""

    def __init__(self, agent, rank, words):
        env = {**os.environ, **(agent.env(rank) if agent else {}), "PYTHONUNBUFFERED": "1"}
        self.whole = []
        self.child = subprocess.Popen(
            [sys.executable, "-W", "ignore", os.path.join(HERE, "ranks.py"), *words],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, line):
        """Reads until the rank prints this line."""
        for said in self.child.stdout:
            self.whole.append(said.rstrip("\n"))
            if self.whole[-1] == line:
                return
        raise AssertionError(f"{line!r} was not said: {self.whole} {self.child.stderr.read()}")

    def go(self):
        """Writes the line that the rank waits for."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def end(self, code=0):
        """Waits for the exit, and returns the lines of the rank."""
        rest, self.err = self.child.communicate(timeout=LONG)
        self.whole += rest.splitlines()
        assert self.child.returncode == code, (self.child.returncode, self.whole, self.err)
        return self.whole

    def kill(self):
        """Kills the rank."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate()


class Case(unittest.TestCase):
    def agent(self, size, **kwargs):
        agent = Agent(size, **kwargs)
        agent.__enter__()
        self.addCleanup(agent.__exit__)
        return agent

    def ranks(self, agent, *words, size=None):
        all_ = [Process(agent, rank, words) for rank in range(size or agent.size)]
        for process in all_:
            self.addCleanup(process.kill)
        return all_


class Interrupts(Case):
    def leaves(self, name, *words, within, lines=()):
        """Checks that all ranks leave this wait in time. A busy machine may delay that, so the quickest of three runs counts."""
        times = []
        while len(times) < 3 and not any(took < within for took in times):
            times.append(self.left(name, *words, lines=lines))
        self.assertLess(min(times), within, times)

    def left(self, name, *words, lines):
        """Checks that all ranks leave this wait. Returns the time from the failure of rank 0 until the other rank is ready."""
        agent = self.agent(2)
        first, other = self.ranks(agent, name, *words)
        first.until("waits")
        other.until("waits")
        time.sleep(0.05)  # The rank has printed that it will wait. The begin of the wait cannot be seen.
        first.go()
        agent.wait_for(lambda said: any(name == "fault" for _, name, _ in said))
        start = time.monotonic()
        agent.wait_for(lambda said: any((rank, name) == (1, "ready") for rank, name, _ in said))
        took = time.monotonic() - start
        self.assertEqual(other.end()[1:], [*lines, "result 1"])
        self.assertEqual(first.end(), ["waits", "result 1"])
        # There is one fault, and no second fault that follows from it.
        faults = [(rank, fields) for rank, name, fields in agent.said if name == "fault"]
        self.assertEqual(faults, [(0, (0, "ValueError: ordered"))])
        return took

    def test_waits_of_the_main_thread_end_at_once(self):
        for name in ("sleep", "queue", "event", "lock", "receive", "bytecode"):
            with self.subTest(name):
                self.leaves(name, within=0.5)

    def test_another_thread_leaves_when_it_runs_bytecode(self):
        self.leaves("bytecode", "thread", within=0.5)

    def test_an_interrupt_that_deletion_or_callbacks_swallow_is_raised_again(self):
        for name in ("deletion", "garbage"):
            with self.subTest(name):
                self.leaves(name, within=0.5)

    def test_a_deletion_runs_to_its_end(self):
        for words in ((), ("thread",)):
            with self.subTest(words=words):
                self.leaves("careful", *words, within=1.5, lines=["ended"])

    def test_a_rank_that_imports_is_interrupted_after_the_import(self):
        self.leaves("imports", within=0.8)

    def test_an_interrupt_that_the_function_swallows_is_raised_again_after_a_second(self):
        self.leaves("swallow", within=2.5, lines=["swallowed"])

    def test_clean_up_is_not_broken_off(self):
        self.leaves("clean_up", within=1.0, lines=["cleaned up"])

    def test_a_rank_that_leaves_by_itself_is_not_interrupted_during_clean_up(self):
        for name, words in (("pinging", ()), ("going_atomic", ("thread",))):
            with self.subTest(name, words=words):
                self.leaves(name, *words, within=0.9, lines=["cleaned up"])

    def test_nothing_is_interrupted_in_atomic(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "atomic")
        other.until("inside")
        first.go()
        self.assertEqual(other.end(), ["inside", "whole", "result again"])
        first.end()

    def test_nothing_atomic_begins_after_the_decision(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "late_atomic")
        other.until("section")
        first.go()
        self.assertEqual(other.end()[-1], "result again")
        first.end()

    def test_a_planned_round_waits_for_a_ping(self):
        agent = self.agent(1)
        (only,) = self.ranks(agent, "pings")
        only.until("waits")
        with agent.changed:
            agent.interrupt(fault(0, JOINED), within=30)
        only.go()
        self.assertEqual(only.end(), ["waits", "between", "result again"])


class Rounds(Case):
    def test_hooks_run_in_order(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "order")
        first.until("function 0 0 2")
        other.until("function 0 1 2")
        other.go()
        begin = ["initialize 0 None None", "health_check 0 None None", "function 0 {} 2", "abort 0 None {}"]
        end = ["initialize 1 None exception", "health_check 1 None exception", "function 1 {} 2", "completion 1 None exception"]
        for process, rank, own in ((first, 0, None), (other, 1, "ordered")):
            lines = process.end()
            out = [f"finalize 0 {own} exception", f"health_check 0 {own} exception"]
            wanted = [line.format(rank) for line in [*begin[:3], "abort 0 None None", *out, *end]]
            self.assertEqual(lines, [*wanted, "result value"])
        self.assertIn("ValueError: ordered", other.err)
        self.assertNotIn("Traceback", first.err)

    def test_a_rank_in_reserve_waits_and_takes_over(self):
        agent = self.agent(3, active=2)
        first, second, third = self.ranks(agent, "reserve")
        first.until("works 0 0 2")
        second.until("works 0 1 2")
        third.until("INACTIVE None None None")
        first.kill()
        self.assertEqual(second.end()[-1], "result value")
        lines = third.end()
        self.assertEqual(lines[:2], ["INACTIVE None None None", "ACTIVE 1 2 1"])
        self.assertEqual(lines[-1], "result value")

    def test_a_base_exception_makes_the_rank_leave(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "leave")
        self.assertEqual(other.end(3), ["terminate 0 None None"])
        self.assertEqual(first.end(), ["result 1"])
        self.assertIn((1, "leave", (0, "SystemExit: 3")), agent.said)

    def test_exception_of_a_signal_handler_between_rounds_costs_no_rank(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "handlers")
        first.until("waits")
        other.go()
        other.until("signalled")
        first.go()
        self.assertEqual(other.end(), ["signalled", "result 1"])
        self.assertEqual(first.end(), ["waits", "result 1"])
        self.assertGreaterEqual(other.err.count("Handled: 3"), 3, other.err)
        faults = [(rank, fields) for rank, name, fields in agent.said if name in ("fault", "leave")]
        self.assertEqual(faults, [(1, (0, "ConnectionResetError: Connection reset by peer"))])

    def test_a_signal_handler_that_raises_a_base_exception_makes_the_rank_leave(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "leaving_handler")
        first.until("waits")
        other.go()
        agent.wait_for(lambda said: any(name == "leave" for _, name, _ in said))
        first.go()
        self.assertIn("terminate 0 None exception", other.end(3))
        self.assertEqual(first.end(), ["waits", "result 1"])
        self.assertIn((1, "leave", (0, "SystemExit: 3")), agent.said)

    def test_a_rank_that_returned_runs_again(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "returned")
        agent.wait_for(lambda said: (0, "returned", (0,)) in said)
        other.go()
        self.assertEqual(first.end(), ["runs 0", "runs 1", "result 1"])
        self.assertEqual(other.end(), ["runs 0", "runs 1", "result 1"])

    def test_failed_health_checks_and_finalize_leave(self):
        for name, raised in (("unhealthy", "HealthCheckError: OSError: ill"), ("bad_finalize", "OSError: ill")):
            with self.subTest(name):
                agent = self.agent(2)
                first, other = self.ranks(agent, name)
                self.assertIn("terminate 0 None exception", other.end(1))
                self.assertIn(raised, other.err)
                self.assertEqual(first.end(), ["result 1"])
                self.assertIn((1, "leave", (2, raised)), agent.said)

    def test_a_health_check_that_the_rounds_end_breaks_is_no_bad_health(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "interrupted_check")
        first.until("waits")
        other.until("checks")
        first.go()
        self.assertEqual(other.end(), ["checks", "result 1"])
        self.assertEqual(first.end(), ["waits", "result 1"])

    def test_the_collector_comes_to_an_end(self):
        (only,) = self.ranks(None, "phoenix", size=1)
        self.assertEqual(only.end(), ["result 1"])

    def test_a_failed_initialize_begins_another_round(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "bad_start")
        first.until("initialize 0")
        other.go()
        for process in (first, other):
            self.assertEqual(process.end(), ["initialize 0", "initialize 1", "result 2"])

    def test_a_failed_abort_is_only_reported(self):
        agent = self.agent(2)
        for process in self.ranks(agent, "bad_abort"):
            self.assertEqual(process.end(), ["result 1"])
            self.assertIn("the abort hook has failed", process.err)

    def test_a_hang_is_interrupted(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "hang")
        agent.wait_for(lambda said: {rank for rank, name, _ in said if name == "alive"} == {0, 1} or len(agent.ranks) == 2)
        agent.hang(1)
        for process in (first, other):
            self.assertEqual(process.end(), ["result 2"])

    def test_an_abort_hook_may_be_atomic(self):
        agent = self.agent(2)
        first, other = self.ranks(agent, "saves")
        for process in (first, other):
            process.until("waits")
        first.go()
        for process in (first, other):
            self.assertEqual(process.end(), ["waits", "saved", "result 1"])

    def test_an_exception_that_cannot_be_written_is_a_fault_as_any(self):
        agent = self.agent(1)
        (only,) = self.ranks(agent, "wordless")
        self.assertEqual(only.end(), ["result 1"])
        self.assertIn((0, "fault", (0, "Wordless: Wordless()")), agent.said)

    def alive(self, name):
        """The number of automatic reports of progress of a rank that does this for two seconds, with an interval of 0.1 s."""
        agent = self.agent(1)
        (only,) = self.ranks(agent, name)
        self.assertEqual(only.end()[-1], "result 0")
        return agent.said.count((0, "alive", (0, False)))

    def test_bytecode_that_never_gives_up_the_interpreter_makes_progress(self):
        # Half of them would do: other processes may have the processor.
        self.assertGreater(self.alive("busy_loop"), 8)

    def test_a_rank_that_holds_the_interpreter_in_c_makes_no_progress(self):
        # Reports come from the code before that, and from the begin of the round.
        self.assertLessEqual(self.alive("holds_the_lock"), 3)

    def test_after_a_section_the_outer_limit_applies_again(self):
        agent = self.agent(1)
        (only,) = self.ranks(agent, "sections")
        self.assertEqual(only.end(), ["result 1"])
        limits = [fields for _, name, fields in agent.said if name == "section"]
        nested = [9, 7, None, None, 9, 0]
        self.assertEqual(limits, [(0, limit) for limit in (*nested, 5, 0)] + [(1, limit) for limit in nested])

    def test_limits_of_the_script_end_ranks(self):
        for name, left, raised in (
            ("abort_restarts", (1, "RestartAbort"), "RestartAbort"),
            ("fault_counter", (2, "HealthCheckError"), "FaultCounterExceeded"),
        ):
            with self.subTest(name):
                agent = self.agent(1)
                (only,) = self.ranks(agent, name)
                only.end(1)
                self.assertIn(raised, only.err)
                why, text = next(fields for _, name, fields in agent.said if name == "leave")
                self.assertEqual((why, text.split(":")[0]), left)

    def test_jax_is_refused_without_another_round(self):
        agent = self.agent(1)
        (only,) = self.ranks(agent, "jax")
        only.end(1)
        why, text = next(fields for _, name, fields in agent.said if name == "leave")
        self.assertEqual((why, agent.round), (1, 0))
        self.assertIn("in a wrapped function: its processes cannot be restarted from within", text)

    def test_a_dismissed_rank_gets_the_reason(self):
        for why, raised in ((DISCARDED, "RankDiscarded"), (GIVEN_UP, "RestartGivenUp"), (REFUSED, "RestartRefused")):
            with self.subTest(raised):
                agent = self.agent(1)
                (only,) = self.ranks(agent, "always")
                only.go()
                only.until("about to")
                agent.dismiss(0, why, "because of this")
                only.end(1)
                self.assertIn(f"{raised}: because of this", only.err)

    def test_the_end_of_the_agent_ends_the_call(self):
        agent = self.agent(1)
        (only,) = self.ranks(agent, "always")
        only.go()
        only.until("about to")
        with agent.changed:
            agent.ranks[0].sock.shutdown(2)
        only.end(1)
        self.assertIn("ConnectionFailed", only.err)

    def test_a_forked_child_is_no_rank(self):
        agent = self.agent(1)
        (only,) = self.ranks(agent, "forks")
        self.assertEqual(only.end(), ["child 7", "result 0"])
        self.assertNotIn((0, "alive", (0, True)), agent.said)

    def test_a_forked_child_exits_with_its_own_code(self):
        agent = self.agent(1)
        (only,) = self.ranks(agent, "child_leaves")
        self.assertEqual(only.end(), ["child 7", "result 0"])
        self.assertEqual(only.err, "")

    def test_nothing_of_a_round_is_kept(self):
        # A single rank needs no launcher.
        (only,) = self.ranks(None, "keeps", size=1)
        self.assertEqual(only.end().count("living 1"), 6)

    def test_terms_equal_the_terms_that_the_launcher_reads(self):
        agent = self.agent(1)
        (only,) = self.ranks(agent, "forks")
        only.end()
        terms = next(fields for _, name, fields in agent.said if name == "register")
        self.assertEqual(terms["policy"], "all,shift")
        self.assertEqual(terms["soft_timeout"], "60000ms")
        self.assertTrue(all(re.fullmatch(r"\d+ms", terms[name]) for name in terms if name.endswith("_timeout")))


if __name__ == "__main__":
    unittest.main()
