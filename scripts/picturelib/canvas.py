"""An SVG of 800 pixels width, whose colours follow the reader's light or dark theme."""

from xml.sax.saxutils import escape

WIDTH = 800

# name -> (light, dark)
INKS = {
    "text": ("#1f2328", "#e6edf3"),
    "muted": ("#59636e", "#9198a1"),
    "line": ("#818b98", "#6e7681"),
    "blue": ("#0969da", "#58a6ff"),
    "green": ("#1a7f37", "#3fb950"),
    "red": ("#cf222e", "#f85149"),
    "orange": ("#bc4c00", "#f0883e"),
    "purple": ("#8250df", "#bc8cff"),
}
FILLS = {
    "paper": ("#ffffff", "#0d1117"),
    "panel": ("#f6f8fa", "#161b22"),
    "box": ("#ffffff", "#21262d"),
    "blue": ("#ddf4ff", "#12305a"),
    "green": ("#dafbe1", "#12391f"),
    "red": ("#ffebe9", "#4c1519"),
    "orange": ("#fff1e5", "#4a2a10"),
    "purple": ("#fbefff", "#352058"),
    "bar-blue": ("#0969da", "#388bfd"),
    "bar-grey": ("#afb8c1", "#6e7681"),
}
FONT = "system-ui,-apple-system,'Segoe UI','Noto Sans','DejaVu Sans',Helvetica,Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


def _rules(theme):
    inks = "".join(f".i-{name}{{fill:{pair[theme]}}}.s-{name}{{stroke:{pair[theme]}}}" for name, pair in INKS.items())
    return inks + "".join(f".f-{name}{{fill:{pair[theme]}}}" for name, pair in FILLS.items())


def number(value):
    """A coordinate: one decimal, and none where it is 0."""
    return f"{value:.1f}".removesuffix(".0")


class Canvas:
    """A picture under construction."""

    def __init__(self, height, title):
        self.height = height
        self.title = title
        self.parts = []
        self.rect(0, 0, WIDTH, height, "paper", None, radius=0)

    def rect(self, x, y, width, height, fill, stroke="line", radius=6, dashed=False):
        """A box."""
        border = f' class="f-{fill}"' if stroke is None else f' class="f-{fill} s-{stroke}" stroke-width="1.3"'
        dash = ' stroke-dasharray="5 3"' if dashed else ""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        self.parts.append(f'<rect {place} rx="{radius}"{border}{dash}/>')

    def text(self, x, y, words, ink="text", size=14, anchor="start", bold=False, mono=False):
        """A line of text; `y` is its base line."""
        weight = ' font-weight="600"' if bold else ""
        family = " mono" if mono else ""
        place = f'x="{number(x)}" y="{number(y)}" font-size="{size}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} class="i-{ink}{family}"{weight}>{escape(words)}</text>')

    def box(self, x, y, width, height, words, fill="box", stroke="line", under=None, mono=False):
        """A box with words in its middle, and smaller ones under them."""
        self.rect(x, y, width, height, fill, stroke)
        middle = y + height / 2 + 5
        self.text(x + width / 2, middle - (8 if under else 0), words, anchor="middle", bold=not mono, mono=mono)
        if under:
            self.text(x + width / 2, middle + 10, under, "muted", 12, "middle")

    def path(self, points, stroke="line", width=1.5, dashed=False, curve=False):
        """A line through points; with `curve` they are the four of a Bezier curve."""
        head = f"M{number(points[0][0])} {number(points[0][1])}"
        rest = " ".join(f"{number(x)} {number(y)}" for x, y in points[1:])
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<path d="{head}{"C" if curve else "L"}{rest}" fill="none" class="s-{stroke}" stroke-width="{width}"{dash}/>')

    def svg(self):
        """The file."""
        style = f"text{{font-family:{FONT}}}.mono{{font-family:{MONO}}}" + _rules(0) + "@media (prefers-color-scheme: dark){" + _rules(1) + "}"
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" '
                f'viewBox="0 0 {WIDTH} {self.height}" role="img">')
        return "\n".join([head, f"<title>{escape(self.title)}</title>", f"<style>{style}</style>", *self.parts, "</svg>", ""])
