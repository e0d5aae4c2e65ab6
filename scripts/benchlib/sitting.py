"""Sittings and rounds: contenders are interleaved, so that a change of the machine's mood meets all of them alike."""

import dataclasses
import os
import sys
import time

from . import stats

SHAKY = 0.15
"""A sitting whose floor spreads more than this says nothing: it is void."""


@dataclasses.dataclass
class Result:
    """All samples of one case: contender -> one list of values per sitting, and what went wrong."""

    case: object
    values: dict
    failures: dict
    void: list

    @property
    def all_void(self):
        """True if no sitting counts: the figures are shown for what they are worth, and judge nothing."""
        return all(self.void)

    def medians(self, name):
        """The median of each sitting that counts (None: it does not, or there is no value)."""
        skip = [void and not self.all_void for void in self.void]
        return [None if skipped else stats.median(part) for part, skipped in zip(self.values[name], skip)]

    def ratio(self, name, other):
        """The middle sitting's ratio of medians."""
        if other not in self.values or name not in self.values:
            return None
        return stats.middle([stats.ratio(a, b) for a, b in zip(self.medians(name), self.medians(other))])

    def figure(self, goal):
        """The figure that a goal judges."""
        if goal.who not in self.values:
            return None
        if goal.against is None:
            return stats.middle(self.medians(goal.who))
        return self.ratio(goal.who, goal.against)


def wait_for_idle(limit=0.3):
    """Waits until the load average is below the limit: milliseconds bind on an idle machine only."""
    while os.getloadavg()[0] >= limit:
        time.sleep(2)


def _one_round(case, result, number):
    names = list(case.contenders)
    shift = number % len(names)
    for name in names[shift:] + names[:shift]:
        sample = case.contenders[name]()
        if sample.failure:
            result.failures[name].append(sample.failure)
        if sample.value is not None:
            result.values[name][-1].append(sample.value)


def run(cases, sittings, rounds, idle):
    """All cases, sitting by sitting."""
    results = [Result(c, {n: [] for n in c.contenders}, {n: [] for n in c.contenders}, []) for c in cases]
    for sitting in range(sittings):
        load = os.getloadavg()[0]
        print(f"sitting {sitting + 1} of {sittings}, load average {load:.2f}", file=sys.stderr)
        for result in results:
            case = result.case
            if sitting >= case.max_sittings:
                continue
            for parts in result.values.values():
                parts.append([])
            for number in range(min(rounds, case.max_rounds)):
                if idle:
                    wait_for_idle()
                _one_round(case, result, number)
            shaky = case.floor is not None and stats.spread(result.values[case.floor][-1]) > SHAKY
            result.void.append(shaky)
            print(f"  {case.name}" + ("  (void: the floor is shaky)" if shaky else ""), file=sys.stderr)
    return results
