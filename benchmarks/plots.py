"""The plot of a curve: a panel for each figure, medians with their spread, and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.ticker import FixedFormatter, FixedLocator

from benchmarks.curves import Curve

PANEL_INCHES: Final = (3.2, 2.6)
LETTERS: Final = 40
"""Of a line of a panel's title."""


def draw(curve: Curve, cases: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write it as SVG, the same bytes for the same cases."""
    found = {case["name"]: case for case in cases}
    drawn = {name: points for name in curve.figures if (points := points_of(curve, found, name))}
    width, height = PANEL_INCHES
    style: Any = {"font.size": 8, "axes.titlesize": 8}
    style |= {"svg.hashsalt": path.stem, "svg.fonttype": "none"}
    with pyplot.rc_context(style):
        whole, panels = pyplot.subplots(
            1, len(drawn), figsize=(width * len(drawn), height), squeeze=False, layout="constrained"
        )
        for panel, (name, points) in zip(panels[0], drawn.items(), strict=True):
            places = [place for place, _ in points]
            medians = [case["median"] for _, case in points]
            panel.plot(places, medians, marker="o", markersize=3)
            panel.fill_between(
                places,
                [case["least"] for _, case in points],
                [case.get("p99", case["most"]) for _, case in points],
                alpha=0.2,
            )
            if (bound := curve.bounds.get(name)) is not None:
                panel.axhline(bound, linestyle="--", linewidth=1, color="tab:red")
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(FixedLocator(places))
            panel.xaxis.set_major_formatter(FixedFormatter([f"{place:,.9g}" for place in places]))
            panel.minorticks_off()
            panel.set_ylim(bottom=0)
            panel.set_xlabel(curve.over)
            panel.set_ylabel(points[0][1]["unit"])
            panel.set_title(fill(name, LETTERS))
        whole.savefig(path, metadata={"Date": None})
        pyplot.close(whole)


def points_of(
    curve: Curve, found: Mapping[str, Mapping[str, Any]], name: str
) -> list[tuple[float, Mapping[str, Any]]]:
    """Where a figure was measured, and its case there."""
    return [
        (place, found[key])
        for label, place in curve.points.items()
        if (key := f"{name}, {label}") in found
    ]
