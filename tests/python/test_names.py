"""Every public name of NVRx 0.4.1's `inprocess` exists here, and takes the same arguments."""

import contextlib
import dataclasses
import enum
import importlib
import inspect
import io
import unittest
import warnings

import rlaunch.inprocess as ours

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import nvidia_resiliency_ext.inprocess as upstream
except ImportError:
    upstream = None

MODULES = (
    "abort",
    "attribution",
    "completion",
    "compose",
    "exception",
    "finalize",
    "health_check",
    "initialize",
    "monitor_thread",
    "nested_restarter",
    "param_utils",
    "rank_assignment",
    "rank_filter",
    "state",
    "store",
    "terminate",
    "tools.inject_fault",
    "utils",
    "wrap",
)

# Machinery of NVRx that is part of the launcher and its agents here.
NOT_HERE = {
    "": {"monitor_process", "progress_watchdog", "sibling_monitor"},
    "monitor_thread": {"MonitorThread"},
    "rank_assignment": {"Node", "bounded_activate", "propagate_terminations"},
    "utils": {"Logging", "find_nearest_handler"},
    "wrap": {"HealthCheckPassed", "reserve_fn"},
}
# Names of NVRx for arguments without effect.
NO_SIGNATURE = {"StoreMixin", "TCPStore", "PrefixStore", "FileStore", "State", "FrozenState", "NestedRestarterLogger"}
# Faults that arrive before a round is decided belong to it anyway.
OTHER_DEFAULT = {("Wrapper", "last_call_wait")}


def public(module):
    """The names that a module defines itself."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return {one.name: (one.kind, shown(one.default)) for one in found}


def shown(default):
    """The default as a comparable value. Instances are compared by their class."""
    if default is inspect.Parameter.empty or isinstance(default, (str, int, float, tuple, type(None))):
        return default
    if inspect.isclass(default):
        return default.__name__
    return str(default) if type(default).__module__ == "datetime" else type(default).__name__


class Names(unittest.TestCase):
    def setUp(self):
        if upstream is None:
            self.skipTest("this Python has no NVRx; scripts/test --all makes one that has")

    def test_the_package_has_the_same_names(self):
        wanted = {name for name in dir(upstream) if not name.startswith("_")}
        self.assertEqual(wanted - set(dir(ours)) - NOT_HERE[""], set())

    def test_modules_have_the_same_names(self):
        for name in MODULES:
            with self.subTest(name):
                wanted = set(public(importlib.import_module(f"{upstream.__name__}.{name}")))
                found = set(dir(importlib.import_module(f"{ours.__name__}.{name}")))
                self.assertEqual(wanted - found - NOT_HERE.get(name, set()), set())

    def test_functions_take_the_same_arguments(self):
        compared = 0
        for module in MODULES:
            for name, wanted in public(importlib.import_module(f"{upstream.__name__}.{module}")).items():
                found = getattr(importlib.import_module(f"{ours.__name__}.{module}"), name, None)
                without = issubclass_of(wanted, (enum.Enum, BaseException)) or name in NO_SIGNATURE
                if found is None or without or not callable(wanted):
                    continue
                with self.subTest(f"{module}.{name}"):
                    self.same(name, wanted, found)
                    compared += 1
        self.assertGreater(compared, 30)

    def same(self, name, wanted, found):
        computes = name == "Tree"
        for method in ["", *(methods(wanted) if inspect.isclass(wanted) and not computes else [])]:
            one = parameters(getattr(wanted, method) if method else wanted)
            other = parameters(getattr(found, method) if method else found)
            for parameter, what in one.items():
                if (name, parameter) not in OTHER_DEFAULT:
                    self.assertEqual(other.get(parameter), what, f"{name}.{method}({parameter})")
            # Parameters that only our package has need a default.
            more = [what for parameter, what in other.items() if parameter not in one]
            self.assertNotIn(inspect.Parameter.empty, [default for _, default in more], f"{name}.{method}")

    def test_states_have_the_same_fields(self):
        for name in ("State", "FrozenState"):
            one, other = getattr(upstream, name), getattr(ours, name)
            fields = [(field.name, field.default) for field in dataclasses.fields(one) if field.name != "mode"]
            self.assertEqual([(f.name, f.default) for f in dataclasses.fields(other) if f.name != "mode"][: len(fields)], fields)
            self.assertEqual(other.__dataclass_params__.frozen, one.__dataclass_params__.frozen)

    def test_modes_and_kinds_are_the_same(self):
        for one, other in (
            (upstream.Mode, ours.Mode),
            (upstream.attribution.Interruption, ours.attribution.Interruption),
            (upstream.rank_assignment.LayerFlag, ours.rank_assignment.LayerFlag),
        ):
            self.assertEqual({m.name: m.value for m in one}, {m.name: m.value for m in other})

    def test_bases_are_the_same(self):
        for module in MODULES:
            for name, wanted in public(importlib.import_module(f"{upstream.__name__}.{module}")).items():
                found = getattr(importlib.import_module(f"{ours.__name__}.{module}"), name, None)
                if found is None or not inspect.isclass(wanted) or name in NO_SIGNATURE:
                    continue
                bases = {base.__name__ for base in wanted.__mro__} - {"Logger", "RankMonitorLogger"}
                with self.subTest(f"{module}.{name}"):
                    self.assertLessEqual(bases, {base.__name__ for base in found.__mro__})


class Later(unittest.TestCase):
    """Names that NVRx 0.5 to 0.7 have added."""

    def test_arguments_and_checks_of_nvrx_0_7_are_accepted(self):
        checks = ours.health_check
        with contextlib.redirect_stderr(io.StringIO()) as lines:
            added = [checks.ChainedGPUHealthCheck(0), checks.ChainedNVLHealthCheck(device_index=0), checks.ChainedNicHealthCheck()]
            abort = ours.Compose(ours.abort.AbortPersistentCheckpointProcesses(), ours.abort.AbortTorchDistributed("/traces"))
            check = ours.Compose(*added)
            wrapper = ours.Wrapper(health_check=check, abort=abort, monitor_process_pidfile="/run/pid")
        for name in (*(type(one).__name__ for one in added), "torch_fr_trace_path", "monitor_process_pidfile"):
            self.assertRegex(lines.getvalue(), f"rlaunch: .*{name}: without effect")
        self.assertIs(wrapper.restart_health_check, check)
        state = ours.State(rank=0, world_size=1).freeze()
        self.assertIs(check(state), state)
        self.assertIs(abort.instances[0](state), state)

    def test_restart_health_check_is_the_callers(self):
        one, other = ours.health_check.FaultCounter(), ours.health_check.FaultCounter()
        self.assertIs(ours.Wrapper(health_check=one, restart_health_check=other).restart_health_check, other)
        with self.assertRaisesRegex(TypeError, "restart_health_check"):
            ours.Wrapper(restart_health_check=1)


def methods(cls):
    return [name for name, value in vars(cls).items() if inspect.isfunction(value) and (not name.startswith("_") or name == "__call__")]


def issubclass_of(value, base):
    return inspect.isclass(value) and issubclass(value, base)


if __name__ == "__main__":
    unittest.main()
