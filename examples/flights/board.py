"""The screen: a live table while it runs (plain lines where there is no terminal), one page at the
end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from flights.proof import Finding


class Board:
    """Shows the query's table and what happens to the group."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True)
            if console.is_terminal
            else None
        )
        self._started = self._told = time.monotonic()

    def __enter__(self) -> Board:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def event(self, text: str) -> None:
        """Something happened that should stay on the screen."""
        self._console.print(
            f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]  {text}", highlight=False
        )

    def show(self, rows_in: int, rows: int, totals: Mapping[str, Mapping[str, Any]]) -> None:
        """The newest state; without a terminal a line every few seconds."""
        if self._live:
            self._live.update(delay_table(rows_in, rows, totals))
        elif time.monotonic() - self._told > 5:
            self._told = time.monotonic()
            self.event(f"{rows_in:,} flights in the log, {rows:,} in the table")


def delay_table(rows_in: int, rows: int, totals: Mapping[str, Mapping[str, Any]]) -> Table:
    """Delays by carrier, the latest first."""
    table = Table(
        title=f"Delays by carrier: {rows_in:,} flights in the log, {rows:,} in this table"
    )
    table.add_column("carrier")
    for column in ("flights", "mean departure delay, min", "mean arrival delay, min"):
        table.add_column(column, justify="right")
    late = {c: t["arrival"] / t["arrivals"] for c, t in totals.items() if t["arrivals"]}
    for carrier in sorted(late, key=lambda c: -late[c]):
        t = totals[carrier]
        table.add_row(
            carrier,
            f"{t['flights']:,}",
            f"{t['departure'] / t['flights']:.1f}",
            f"{late[carrier]:.1f}",
        )
    return table


def summary(console: Console, facts: Mapping[str, str], findings: list[Finding]) -> None:
    """One page: what happened, and what was found."""
    happened = Table(title="What happened", show_header=False)
    for name, value in facts.items():
        happened.add_row(name, value)
    console.print(happened)
    proof = Table(title="What the log says")
    for column in ("claim", "found", ""):
        proof.add_column(column)
    for finding in findings:
        proof.add_row(
            finding.claim,
            finding.found,
            "[green]holds[/green]" if finding.holds else "[red]BROKEN[/red]",
        )
    console.print(proof)
