"""A terminal in which a rank fails, with rlaunch's colours."""

import pathlib
import re
import subprocess
import tempfile

from .canvas import WIDTH, Canvas, escape, number

COMMAND = ("-n", "3", "-l", "./train")
PROGRAM = """#!/bin/sh
echo "epoch 1"
sleep 0.2
[ "$RANK" != 2 ] || { echo "RuntimeError: loss is nan at step 117" >&2; exit 3; }
sleep 9
"""
# Colours of the terminal, by their number in SGR.
INKS = {31: "red", 32: "green", 33: "orange", 34: "blue", 35: "purple", 36: "blue"}
SIZE, COLUMN, ROW, LEFT, TOP = 13, 7.83, 20, 28, 62


def spans(line):
    """Pieces of a line: words, ink, whether bold."""
    ink, bold = "text", False
    for words in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not words.startswith("\x1b"):
            if words:
                yield words, ink, bold
            continue
        for code in (int(part or 0) for part in words[2:-1].split(";")):
            if code == 0:
                ink, bold = "text", False
            elif code == 1:
                bold = True
            else:
                ink = INKS.get(code, ink)


def _line(c, y, pieces):
    """Each piece stands in its columns, whichever font the reader has."""
    column, parts = 0, []
    for words, ink, bold in pieces:
        place = f'x="{number(LEFT + column * COLUMN)}" textLength="{number(len(words) * COLUMN)}"'
        weight = ' font-weight="700"' if bold else ""
        parts.append(f'<tspan {place} class="i-{ink}"{weight}>{escape(words)}</tspan>')
        column += len(words)
    c.parts.append(f'<text y="{number(y)}" font-size="{SIZE}" class="mono" xml:space="preserve">{"".join(parts)}</text>')


def draw(data):
    """The picture, from what was recorded in `terminal.txt`."""
    lines = (data / "terminal.txt").read_text().splitlines()
    rows = [[("$ ", "muted", False), (" ".join(("rlaunch", *COMMAND)), "text", False)], *([*spans(line)] for line in lines)]
    height = TOP + ROW * len(rows) + 14
    c = Canvas(height, "A terminal in which rank 2 of a job fails, with rlaunch's report")
    c.rect(10, 10, WIDTH - 20, height - 20, "panel", "line", 8)
    for place, ink in enumerate(("red", "orange", "green")):
        c.parts.append(f'<circle cx="{30 + 18 * place}" cy="30" r="5.5" class="i-{ink}"/>')
    for row, pieces in enumerate(rows):
        _line(c, TOP + ROW * row, pieces)
    return c.svg()


def keep(program):
    """The output of this rlaunch for the command on a terminal."""
    words = [str(pathlib.Path(program).resolve()), "--color=always", *COMMAND]
    with tempfile.TemporaryDirectory() as folder:
        train = pathlib.Path(folder, "train")
        train.write_text(PROGRAM)
        train.chmod(0o755)
        ran = subprocess.run(words, check=False, text=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return ran.stdout
