"""Layouts and plans of worker groups in Python, against NeMo-RL's own results: those of the Rust test ``sharding``."""

import json
import os
import pathlib
import unittest

from rlaunch.groups import MultiWorkerFuture, NamedSharding
from rlaunch.groups._sharding import plan_multiple, plan_sharded, plan_single, plan_workers

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "vectors" / "named_sharding.json"


class Generated:
    """Result of a fake worker's generator."""

    def __init__(self, worker):
        self.items = [[worker, 0], [worker, 1]]


def shape_of(dims, at=()):
    """Nested lists whose leaves are their own indices."""
    if not dims:
        return list(at)
    return [shape_of(dims[1:], (*at, index)) for index in range(dims[0])]


def sharding_of(scenario):
    return NamedSharding(scenario["layout"], scenario["names"]) if "layout" in scenario else None


def sharded(scenario):
    opts = dict(scenario["opts"])
    opts.pop("common_kwargs", None)
    plan = plan_sharded(sharding_of(scenario), scenario["num_workers"], **opts)
    data = shape_of(scenario["data_dims"])
    calls = []
    for worker, at in plan.calls:
        share = None if at is None else data
        for index in at or ():
            share = share[index]
        calls.append([worker, share])
    called = [worker for worker, _ in calls]
    returned = MultiWorkerFuture(called, plan.return_from, called)._returned(called)
    results = [item for worker in called for item in Generated(worker).items] if scenario.get("generators") else returned
    return {
        "calls": calls,
        "called_workers": called,
        "return_from_workers": plan.return_from,
        "results": results,
        "proxies": returned,
    }


def single_data(scenario):
    axes = scenario["opts"].get("run_rank_0_only_axes")
    return {"called_workers": plan_single(sharding_of(scenario), scenario["num_workers"], axes).return_from}


def multiple_data(scenario):
    axes = scenario["opts"].get("run_rank_0_only_axes")
    plan = plan_multiple(sharding_of(scenario), scenario["num_workers"], scenario["data_len"], axes)
    return {"calls": [[worker, at[0]] for worker, at in plan.calls]}


def named_sharding(scenario):
    sharding = sharding_of(scenario)
    name, *rest = scenario["query"]
    if name == "shape":
        return {"ok": sharding.shape}
    if name == "coords":
        return {"ok": sharding.get_worker_coords(*rest)}
    if name == "by_coord":
        return {"ok": sharding.get_ranks_by_coord(**rest[0])}
    if name == "axis_zero":
        worker, axes = rest
        return {"ok": sharding.is_axis_zero(sharding.get_worker_coords(worker), axes)}
    found = sharding.get_ranks(**rest[0])
    return {"ok": found if isinstance(found, int) else {"layout": found.layout, "names": found.names}}


def worker_group(scenario):
    workers = plan_workers(
        scenario["bundles_per_pg"], scenario.get("workers_per_node"), scenario.get("bundle_indices_list"), "w"
    )
    leaders = [rank for rank, worker in enumerate(workers) if worker.rank_in_shard == 0]
    described = []
    for rank, worker in enumerate(workers):
        identity = {
            "RANK": rank,
            "LOCAL_RANK": worker.slot,
            "WORLD_SIZE": len(workers),
            "NODE_RANK": worker.host,
            "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "1400",
        }
        env = {"USERVAR": "os", "PATHX": "os", **scenario.get("env_vars", {})}
        env.update((name, str(value)) for name, value in identity.items())
        described.append(
            {
                "name": worker.name,
                "bundle": worker.slot,
                "num_gpus": round(1 / scenario["max_colocated"], 6) if scenario["use_gpus"] else 0,
                "bundle_indices": list(worker.bundle_indices) if worker.bundle_indices else None,
                "dp_shard_idx": worker.shard,
                "local_rank_in_group": worker.rank_in_shard,
                "env": env,
            }
        )
    return {"world_size": len(workers), "dp_leader_worker_indices": leaders, "dp_size": len(leaders), "workers": described}


KINDS = {
    "sharded": sharded,
    "single_data": single_data,
    "multiple_data": multiple_data,
    "named_sharding": named_sharding,
    "worker_group": worker_group,
}


class Vectors(unittest.TestCase):
    def test_results_equal_the_results_of_nemo_rl(self):
        path = os.environ.get("RLAUNCH_SHARDING_VECTORS") or GOLDEN
        with open(path) as file:
            scenarios = json.load(file)["scenarios"]
        self.assertTrue(scenarios)
        for scenario in scenarios:
            try:
                got = KINDS[scenario["kind"]](scenario)
            except (ValueError, IndexError, AssertionError) as error:
                got = {"error": type(error).__name__, "message": str(error)}
            expected = {name: value for name, value in scenario["expect"].items() if name != "calls_before_error"}
            with self.subTest(scenario["id"]):
                self.assertEqual({name: got.get(name) for name in expected}, expected)


class Layouts(unittest.TestCase):
    def refuses(self, text, layout, names):
        with self.subTest(layout=layout), self.assertRaisesRegex(ValueError, text):
            NamedSharding(layout, names)

    def test_invalid_layout_is_refused(self):
        self.refuses("different lengths", [[0, 1], [2]], ["a", "b"])
        self.refuses("different (depths|lengths)", [[0, 1], 2], ["a", "b"])
        self.refuses("only integer", [0.5, 1], ["a"])
        self.refuses("only integer", ["x"], ["a"])
        self.refuses("only integer", [1 << 70], ["a"])
        self.refuses("Duplicate axis names", [[0], [1]], ["a", "a"])

    def test_numbers_that_are_whole_are_ranks(self):
        self.assertEqual(NamedSharding([1.0, 0.0], ["a"]), NamedSharding([1, 0], ["a"]))

    def test_plan_for_4096_workers_is_quick(self):
        import time

        layout = NamedSharding([[[[d * 64 + p * 8 + c * 4 + t for t in range(4)] for c in range(2)] for p in range(8)] for d in range(64)], list("dpct"))
        best = min(self.seconds(time, layout) for _ in range(5))
        # The goal is 2 ms for the plan itself; here are lists of Python, a debug build, and other tests beside it.
        self.assertLess(best, 0.2)

    def seconds(self, time, layout):
        began = time.perf_counter()
        plan = plan_sharded(layout, 4096, ["d"], ["p", "c", "t"], ["p", "c", "t"])
        self.assertEqual((len(plan.calls), len(plan.return_from)), (4096, 64))
        return time.perf_counter() - began
