"""python docs/site/diagrams.py

Draws docs/diagrams/*.svg from the descriptions beside them: who does what, from top to bottom. The
colours go with the reader's system, light or dark. A line of a description is one of

    lane NAME            a column
    > FROM TO TEXT       a message
    = NAME TEXT          what happens there
    x NAME TEXT          what ends there
    -- TEXT              from here on

and names of lanes have no spaces; an underscore is shown as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

DIAGRAMS: Final = Path(__file__).resolve().parents[1] / "diagrams"
LANE, ROW, TOP, CHAR = 190, 46, 64, 6.3
"""Width of a lane, height of a row, of the heads, and of a letter, in pixels."""
STYLE: Final = """
text{font:12px system-ui,sans-serif;fill:#1f2328;text-anchor:middle}
.lane{stroke:#8c959f;stroke-dasharray:3 4}.head{fill:#3f51b5}.head+text{fill:#fff;font-weight:600}
.step{fill:#dfe3f7;stroke:#7986cb}.end{fill:#ffdad6;stroke:#c62828}.arrow{stroke:#3f51b5;fill:none}
.tip{fill:#3f51b5}.phase{stroke:#8c959f}.phase+text{text-anchor:start;font-style:italic;fill:#57606a}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.step{fill:#2b3358;stroke:#7986cb}
.end{fill:#5c1f1b;stroke:#ef9a9a}.arrow{stroke:#9fa8da}.tip{fill:#9fa8da}.phase+text{fill:#9da7b3}}
"""


def drawing(description: str) -> str:
    """The SVG of a description.

    Raises:
        ValueError: a line is of none of the kinds, or names no lane.
    """
    lines = [line.split(maxsplit=1) for line in description.splitlines() if line.strip()]
    lanes = [name for kind, name in lines if kind == "lane"]
    rows = [(kind, rest) for kind, rest in lines if kind != "lane"]
    width, height = LANE * len(lanes), TOP + ROW * len(rows)
    shapes = [*_heads(lanes, height)]
    for number, (kind, rest) in enumerate(rows):
        shapes += _row(kind, rest, lanes, TOP + ROW * number + ROW // 2)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">\n<style>{STYLE}</style>\n'
        + "\n".join(shapes)
        + "\n</svg>\n"
    )


def _heads(lanes: list[str], height: int) -> Iterator[str]:
    for number, name in enumerate(lanes):
        x = LANE * number + LANE // 2
        yield f'<line class="lane" x1="{x}" y1="40" x2="{x}" y2="{height}"/>'
        yield f'<rect class="head" x="{x - 80}" y="8" width="160" height="32" rx="6"/>'
        yield _text(x, 28, name.replace("_", " "))


def _row(kind: str, rest: str, lanes: list[str], y: int) -> Iterator[str]:
    if kind == "--":
        yield f'<line class="phase" x1="8" y1="{y + 6}" x2="{LANE * len(lanes) - 8}" y2="{y + 6}"/>'
        yield _text(10, y, rest)
    elif kind == ">":
        source, target, text = rest.split(maxsplit=2)
        yield from _arrow(_middle(source, lanes), _middle(target, lanes), y, text)
    elif kind in ("=", "x"):
        name, text = rest.split(maxsplit=1)
        yield from _box(_middle(name, lanes), y, text, "step" if kind == "=" else "end")
    else:
        raise ValueError(f"{kind} {rest}: no line of a diagram begins so")


def _middle(name: str, lanes: list[str]) -> int:
    return LANE * lanes.index(name) + LANE // 2


def _arrow(start: int, end: int, y: int, text: str) -> Iterator[str]:
    back = 8 if end > start else -8
    yield f'<line class="arrow" x1="{start}" y1="{y + 6}" x2="{end - back}" y2="{y + 6}"/>'
    yield f'<path class="tip" d="M{end} {y + 6}l{-back} -4v8z"/>'
    yield _text((start + end) // 2, y, text)


def _box(x: int, y: int, text: str, kind: str) -> Iterator[str]:
    lines = _wrapped(text)
    width = max(len(line) for line in lines) * CHAR + 14
    yield (
        f'<rect class="{kind}" x="{x - width / 2:.0f}" y="{y - 9 * len(lines):.0f}" '
        f'width="{width:.0f}" height="{18 * len(lines)}" rx="4"/>'
    )
    for number, line in enumerate(lines):
        yield _text(x, y + 4 + 16 * number - 8 * (len(lines) - 1), line)


def _wrapped(text: str, most: int = 26) -> list[str]:
    """In two lines where one would be wider than a lane."""
    if len(text) <= most:
        return [text]
    cut = text.rfind(" ", 0, len(text) // 2 + 6)
    return [text[:cut], text[cut + 1 :]]


def _text(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(text)}</text>'


if __name__ == "__main__":
    for path in sorted(DIAGRAMS.glob("*.txt")):
        path.with_suffix(".svg").write_text(drawing(path.read_text()))
