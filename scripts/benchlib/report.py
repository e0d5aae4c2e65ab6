"""The table and the JSON file: the same numbers for eyes and for programs."""

import json
import os
import platform

from . import stats

PEERS = ("hydra", "prterun", "before")


def _show(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}" if value < 1000 else f"{value:.0f}"


def _line(result, name):
    case = result.case
    values = [value for part in result.values[name] for value in part]
    median = stats.middle(result.medians(name))
    cells = [name, _show(median), f"{100 * stats.spread(values):.0f} %" if len(values) > 3 else "-"]
    for other in (case.floor, *PEERS):
        cells.append(_show(result.ratio(name, other)) if other and other != name else "-")
    failures = result.failures[name]
    cells.append(f"{len(failures)} failed: {failures[-1]}" if failures else "")
    return cells


def goals(result):
    """(text, figure, met) of each goal of a case; met is None when no sitting could judge it."""
    found = []
    for goal in result.case.goals:
        figure = result.figure(goal)
        failed = bool(result.failures.get(goal.who))
        met = False if failed else None if figure is None or result.all_void else goal.met(figure)
        found.append((str(goal), figure, met))
    return found


def table(results):
    """The plain table."""
    heads = ["", "median", "iqr", "x floor", *(f"x {name}" for name in PEERS), ""]
    lines = []
    for result in results:
        void = sum(result.void)
        note = f"   ({void} of {len(result.void)} sittings void)" if void else ""
        rows = [heads] + [_line(result, name) for name in result.case.contenders]
        widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
        lines.append(f"{result.case.name} [{result.case.unit}]{note}")
        for row in rows:
            cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1])]
            lines.append("  " + "  ".join([*cells, row[-1]]).rstrip())
        for text, figure, met in goals(result):
            verdict = {True: "met", False: "MISSED", None: "not judged"}[met]
            lines.append(f"  goal {text}: {_show(figure)} {verdict}")
        lines.append("")
    return "\n".join(lines)


def write_json(path, results, options):
    """Everything, sample by sample."""
    document = {
        "v": 1,
        "machine": {"kernel": platform.release(), "cpus": os.cpu_count(), "load": os.getloadavg()},
        "options": options,
        "cases": [
            {
                "name": result.case.name,
                "unit": result.case.unit,
                "void": result.void,
                "samples": result.values,
                "failures": result.failures,
                "goals": [dict(zip(("goal", "figure", "met"), goal)) for goal in goals(result)],
            }
            for result in results
        ],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
