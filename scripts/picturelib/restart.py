"""A restart on a time axis: one rank is killed, the others continue, and a new process takes its place."""

import json

from .canvas import Canvas

TOP, ROW, BAR = 96, 40, 28
LEFT, BREAK, RIGHT, END = 86, 470, 500, 784
BEFORE = 1.0


class Axis:
    """Milliseconds to pixels; the axis is broken while the new process starts."""

    def __init__(self, times):
        self.early = times["again_1"] + 1.7
        self.late = (times["joined"] - 1.6, times["again_2"] + 3.2)

    def __call__(self, ms):
        if ms <= self.early:
            return LEFT + (ms + BEFORE) * (BREAK - LEFT) / (self.early + BEFORE)
        begin, end = self.late
        return RIGHT + (max(ms, begin) - begin) * (END - RIGHT) / (end - begin)


def _bar(c, axis, row, begin, end, colour, words="", dashed=False):
    y = TOP + ROW * row
    x, width = axis(begin), axis(end) - axis(begin)
    c.rect(x, y, width, BAR, colour, colour if colour != "box" else "line", 3, dashed)
    if words:
        c.text(x + width / 2, y + 19, words, size=12, anchor="middle")


def _break(c, y, height):
    c.rect(BREAK + 8, y, RIGHT - BREAK - 16, height, "paper", None, 0)
    for x in (BREAK + 8, RIGHT - 8):
        c.path([(x - 3, y + height), (x + 3, y)], "line")


def _survivor(c, axis, row, t):
    _bar(c, axis, row, -BEFORE, 0, "green")
    _bar(c, axis, row, 0, t["again_1"], "orange", "leaves the function")
    _bar(c, axis, row, t["again_1"], t["joined"], "green")
    _bar(c, axis, row, t["joined"], t["again_2"], "orange", "leaves at a ping")
    _bar(c, axis, row, t["again_2"], axis.late[1], "green", "4 ranks")


def _respawned(c, axis, row, t):
    _bar(c, axis, row, -BEFORE, 0, "green")
    _bar(c, axis, row, t["started"], t["joined"], "purple", "")
    _bar(c, axis, row, t["joined"], t["again_2"], "box", "waits", dashed=True)
    _bar(c, axis, row, t["again_2"], axis.late[1], "green", "4 ranks")
    c.text(axis(0) + 7, TOP + ROW * row + 19, "killed (SIGKILL)", "red", 12, bold=True)


def _moments(c, axis, t, bottom):
    moments = ((0, "the first fault", "is noticed", "start"), (t["again_1"], "3 ranks run again", None, "middle"),
               (t["joined"], "rank 2 has", "registered", "middle"), (t["again_2"], "4 ranks", "run again", "middle"))
    for ms, first, second, anchor in moments:
        x = axis(ms)
        c.path([(x, 80), (x, bottom)], "muted", 1.2, dashed=True)
        c.text(x if anchor == "middle" else x - 4, 58 if second else 74, first, size=12, anchor=anchor)
        if second:
            c.text(x if anchor == "middle" else x - 4, 74, second, size=12, anchor=anchor)
        c.text(x, bottom + 17, f"{ms:.1f} ms" if ms else "0", "text", 13, "middle", bold=True)


def draw(data):
    """The picture, from the times in `restart.json`."""
    t = json.loads((data / "restart.json").read_text())
    axis = Axis(t)
    bottom = TOP + 4 * ROW + 6
    c = Canvas(bottom + 100, "A restart within the processes, on a time axis")
    c.text(20, 28, "rlaunch -n 4 --respawn ./train --resilient", mono=True)
    for row in range(4):
        c.text(20, TOP + ROW * row + 19, f"rank {row}", bold=True)
        (_respawned if row == 2 else _survivor)(c, axis, row, t)
    for row in range(4):
        _break(c, TOP + ROW * row - 1, BAR + 2)
    c.text(axis(t["started"]) - 4, TOP + ROW * 2 + 19, "new process", size=12, anchor="end")
    _moments(c, axis, t, bottom)
    y = bottom + 44
    for x, colour, words in ((20, "green", "in the function"), (160, "orange", "leaving it"), (270, "purple", "starts, registers")):
        c.rect(x, y - 13, 18, 18, colour, colour, 3)
        c.text(x + 26, y + 1, words, size=13)
    c.text(20, y + 34, f"Measured {t['date']} with examples/train on {t['machine']}.", "muted", 12)
    return c.svg()


def keep(events, date, machine):
    """The times of a job with one loss and `--respawn`, from its event log, in milliseconds after the first fault."""
    records = [json.loads(line) for line in events.read_text().splitlines()]
    rounds = {record["round"]: record for record in records if record["ev"] == "round" and record["generation"] == 0}
    took = {number: rounds[number]["decided"] + rounds[number]["drained"] + rounds[number]["assigned"] for number in (1, 2)}
    # The record of a round is made when its ranks run.
    begin = rounds[1]["t"] - took[1]
    started = next(record["at"] for record in records if record["ev"] == "rank.started" and record.get("round") == 1)
    moments = {"again_1": rounds[1]["t"], "started": started, "joined": rounds[2]["t"] - took[2], "again_2": rounds[2]["t"]}
    return {"date": date, "machine": machine, **{name: round((at - begin) / 1e6, 2) for name, at in moments.items()}}
