"""Effect of each policy when rank 2 of 8 is lost: ranks before and after."""

import json

from .canvas import Canvas

CELL, GAP, HOST_GAP = 26, 2, 6
ROW = 58


def _cells(c, x, y, answer, lost, discarded):
    for initial, active in enumerate(answer["active_rank"]):
        at = x + initial * (CELL + GAP) + (initial // 2) * HOST_GAP
        if initial in lost:
            c.rect(at, y, CELL, CELL, "red", "red", 4)
            c.text(at + CELL / 2, y + 19, "×", "red", 17, "middle", bold=True)
        elif initial in discarded:
            c.rect(at, y, CELL, CELL, "orange", "orange", 4)
            c.text(at + CELL / 2, y + 18, "–", "orange", 15, "middle", bold=True)
        elif active is None:
            c.rect(at, y, CELL, CELL, "box", "line", 4, dashed=True)
        else:
            c.rect(at, y, CELL, CELL, "blue", "blue", 4)
            c.text(at + CELL / 2, y + 18, str(active), "text", 14, "middle")


def draw(data):
    """The picture, from answers of `rlaunch assign --json`."""
    rows = json.loads((data / "policies.json").read_text())
    c = Canvas(76 + ROW * len(rows) + 40, "What each policy does when rank 2 of 8 is lost")
    before, after = 262, 538
    c.text(20, 28, "8 ranks on 4 hosts; rank 2 is lost", bold=True)
    c.text(before, 54, "before", "muted")
    c.text(after, 54, "after", "muted")
    for number, row in enumerate(rows):
        y = 64 + ROW * number
        policy = row["args"][row["args"].index("--assign") + 1]
        c.text(20, y + 14, "@tree.toml" if policy.startswith("@") else policy, "text", 13, mono=True)
        c.text(20, y + 34, row["about"], "muted", 12)
        first, second = row["answer"]["rounds"]
        _cells(c, before, y, first, (), ())
        c.path([(after - 20, y + CELL / 2), (after - 8, y + CELL / 2)], "line", 2)
        c.path([(after - 13, y + CELL / 2 - 5), (after - 8, y + CELL / 2), (after - 13, y + CELL / 2 + 5)], "line", 2)
        _cells(c, after, y, second, second["lost"], second["discarded"])
    y = 72 + ROW * len(rows)
    for x, fill, stroke, mark, words in ((20, "blue", "blue", "2", "works as RANK 2"), (190, "box", "line", "", "in reserve"),
                                         (320, "red", "red", "×", "lost"), (420, "orange", "orange", "–", "discarded")):
        c.rect(x, y, 22, 22, fill, stroke, 4, dashed=not mark)
        c.text(x + 11, y + 16, mark, "text" if fill == "blue" else stroke, 13, "middle")
        c.text(x + 32, y + 16, words, size=13)
    return c.svg()
