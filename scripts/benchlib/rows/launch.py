"""launch: how long it takes to start N programs that end at once, and to see all of them end."""

from functools import partial

from ..case import Case, Goal

LIMITS = {1: (1.6, 0.65), 16: (1.2, 0.62), 256: (1.05, 0.66)}
"""ranks -> (times the floor, times Hydra)."""


def _case(bench, ranks, program, goals):
    time = partial(partial, bench.clock.milliseconds)
    contenders = {"floor": time([bench.programs["spawn_floor"], str(ranks), program])}
    for name, launcher in bench.launchers.items():
        if name == "prterun" and ranks > 256 and not bench.full:
            continue  # quadratic: takes longer than everything else together
        contenders[name] = time(launcher.command(ranks, [program]))
    if bench.torchrun and ranks <= 16:  # seconds, whatever the number of ranks
        contenders["torchrun"] = time(bench.torchrun.command(ranks, [program]))
    rlaunch = bench.launchers.get("rlaunch")
    if rlaunch and ranks == 1:
        weak = rlaunch.with_words("rlaunch t3", "--contain", "t3")
        contenders[weak.name] = time(weak.command(ranks, [program]))
    name = program.rsplit("/", 1)[-1]
    return Case(f"launch -n {ranks} {name}", "ms", contenders, floor="floor", goals=goals)


def cases(bench):
    """Time of 1, 16, 256 and 1024 programs that end at once."""
    made = []
    for ranks, (floor, hydra) in LIMITS.items():
        goals = [Goal(floor, "floor"), Goal(hydra, "hydra")]
        if ranks == 1:
            goals.append(Goal(1.4, "floor", who="rlaunch t3"))
        made.append(_case(bench, ranks, "/bin/true", tuple(goals)))
    made.append(_case(bench, bench.size(1024, 64), bench.programs["static_true"], (Goal(0.2, "hydra"),)))
    return made
