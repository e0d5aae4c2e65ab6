"""Times of rlaunch beside its peers, on a logarithmic scale."""

import json
import math

from .canvas import Canvas

CASES = (
    ("launch -n 1 true", "Launch 1 rank"),
    ("launch -n 16 true", "Launch 16 ranks"),
    ("launch -n 256 true", "Launch 256 ranks"),
    ("fail -n 64: a rank is killed", "A rank of 64 is killed, until all is gone"),
    ("fail -n 64: a rank exits 3", "A rank of 64 exits with 3, until all is gone"),
    ("fail -n 64: the launcher is killed", "The launcher of 64 is killed, until all is gone"),
)
NAMES = ("rlaunch", "hydra", "prterun", "torchrun")
COLUMN, DECADE, GROUP, LINE = 390, 50, 122, 20


def shown(ms):
    """A time with two digits that matter."""
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def _length(ms):
    """Pixels of a bar that begins at 1 ms."""
    return max(2.0, DECADE * math.log10(max(ms, 1.0)))


def _group(c, x, y, title, case):
    c.text(x, y, title, size=13, bold=True)
    for line, name in enumerate(NAMES):
        at = y + 10 + LINE * line
        c.text(x + 62, at + 12, name, "text" if name == "rlaunch" else "muted", 12, "end")
        ms = case.get(name)
        if isinstance(ms, (int, float)):
            length = _length(ms)
            c.rect(x + 70, at + 2, length, 13, "bar-blue" if name == "rlaunch" else "bar-grey", None, 2)
            c.text(x + 76 + length, at + 13, shown(ms), "text", 12, bold=name == "rlaunch")
        else:
            c.text(x + 72, at + 12, ms or "not measured", "red" if ms else "muted", 12)


def draw(data):
    """The picture, from the medians in `speed.json`."""
    kept = json.loads((data / "speed.json").read_text())
    c = Canvas(3 * GROUP + 90, "Times of rlaunch beside Hydra, prterun and torchrun")
    for number, (name, title) in enumerate(CASES):
        column, row = divmod(number, 3)
        _group(c, 20 + column * COLUMN, 28 + GROUP * row, title, kept["cases"][name])
    y = 3 * GROUP + 44
    c.text(20, y, "Shorter is better. Each tenfold time makes a bar 50 pixels longer.", "muted", 12)
    c.text(20, y + 20, f"Measured {kept['date']} by scripts/bench: {kept['machine']}.", "muted", 12)
    return c.svg()


def keep(bench, date, machine):
    """The medians of a file that `scripts/bench --json` has written."""
    cases = {case["name"]: case for case in json.loads(bench.read_text())["cases"]}
    return {"date": date, "machine": machine, "cases": {name: _kept(cases[name]) for name, _ in CASES}}


def _kept(case):
    found = {}
    for name in NAMES:
        values = sorted(value for sitting in case["samples"].get(name, []) for value in sitting)
        failures = case["failures"].get(name) or []
        if values and len(values) >= len(failures):
            found[name] = round(values[len(values) // 2], 2)
        elif failures:
            found[name] = _why(failures[0])
    return found


def _why(failure):
    if "processes left" in failure:
        return f"{failure.split()[0]} processes still there after 10 s"
    return "no end within 10 s" if "no end" in failure else "failed"
