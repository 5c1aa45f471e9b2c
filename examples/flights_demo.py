"""python examples/flights_demo.py [--flights N]

336,776 real flights through a group of three nodes, while its leader and the Spark program are
killed; then the proof, from the log itself, that every flight is there exactly once. Exit code 0
only when all of it holds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from dledger import Client, EmbeddedGroup
from flights.board import Board, delay_table, summary
from flights.data import read_csv, write_pieces
from flights.proof import Finding, compare_log, compare_query, compare_replicas, read_log
from flights.pulse import Pulse
from flights.spark_process import SparkProcess

PIECES = 30
PATIENCE_S = 240


class Demo:
    """One run: the group, the Spark program, the pulse, and the screen."""

    def __init__(self, scratch: Path, lines: list[str], board: Board) -> None:
        self.lines, self.board = lines, board
        self.path = scratch / "log"
        write_pieces(lines, scratch / "inbox", PIECES)
        self.group = EmbeddedGroup(self.path, replicas=3)
        self.client = Client(self.group.bootstrap_servers)
        for topic in ("flights", "pulse"):
            self.client.create_topic(topic)
        self.pulse = Pulse(self.group.bootstrap_servers)
        self.pulse.start()
        log = scratch / "spark.log"
        self.spark = SparkProcess(
            self.group.bootstrap_servers, scratch / "inbox", scratch / "checkpoint", log
        )
        self.facts: dict[str, str] = {}

    def rows_in(self) -> int:
        """Flights that are committed."""
        return self.client.end_offsets("flights")[0]

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Show the state until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.spark.check()
            self.board.show(self.rows_in(), self.spark.rows, self.spark.totals)
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"waited {PATIENCE_S} s for {what}: {self.rows_in()} rows in, "
                    f"{self.spark.rows} out"
                )
            time.sleep(0.2)

    def run(self) -> None:
        """The story, from the first flight to the last."""
        total = len(self.lines)
        self.board.event(f"three nodes are up, {self.group.leader} leads; Spark starts")
        self.wait_for("the first flight", lambda: self.rows_in() > 0)
        began = time.monotonic()

        self.wait_for(
            "a quarter of the flights", lambda: self.spark.rows > 0 and self.rows_in() > total // 4
        )
        self.kill_leader()
        self.wait_for("half of the flights", lambda: self.rows_in() > total // 2)
        down = self.kill_spark()
        self.wait_for("all flights in the log", lambda: self.rows_in() >= total)
        seconds = time.monotonic() - began
        self.facts["rows in"] = (
            f"{self.rows_in():,} in {seconds:.1f} s, kills and restarts included"
        )
        without = (
            f"{total / (seconds - down):,.0f} without the {down:.0f} s in which Spark started again"
        )
        self.facts["rows/s"] = f"{total / seconds:,.0f} through both queries; {without}"
        self.wait_for("all flights in the table", lambda: self.spark.rows >= total)
        self.facts["rows out"] = f"{self.spark.rows:,} in {self.spark.batches} micro-batches"
        self.board.event("all flights are through")
        self.spark.end()

    def kill_leader(self) -> None:
        """SIGKILL, the gap, and back again on the same files."""
        victim, killed_at = self.group.leader, time.monotonic()
        self.group.kill(victim)
        self.board.event(
            f"[bold]SIGKILL of the leader {victim}[/bold] at {self.rows_in():,} flights"
        )
        self.wait_for("an append after the kill", lambda: self.pulse.gap_ms(killed_at) is not None)
        gap = self.pulse.gap_ms(killed_at)
        self.facts["failover gap"] = (
            f"{gap:.0f} ms without an acknowledgement, {victim} to {self.group.leader}"
        )
        self.board.event(f"{self.group.leader} leads; nothing was acknowledged for {gap:.0f} ms")
        self.group.restart(victim)
        self.board.event(f"{victim} is back on its own files")

    def kill_spark(self) -> float:
        """SIGKILL of Python and JVM, then the same program on the same checkpoint; seconds until it
        writes again."""
        rows, killed_at = self.spark.rows, time.monotonic()
        self.spark.kill()
        rows_in = self.rows_in()
        self.board.event(
            f"[bold]SIGKILL of the Spark program[/bold] at {rows:,} flights in its table; it "
            f"starts again"
        )
        self.spark.start()
        self.facts["Spark killed at"] = (
            f"{rows_in:,} rows in, {rows:,} rows out; resumed from its checkpoints"
        )
        self.wait_for("a flight after the kill", lambda: self.rows_in() > rows_in)
        return time.monotonic() - killed_at

    def prove(self) -> list[Finding]:
        """Read the log back, then stop the group and compare the nodes' files."""
        self.pulse.finish()
        began = time.monotonic()
        records = read_log(self.group.bootstrap_servers, "flights")
        self.facts["read back"] = (
            f"{len(records) / (time.monotonic() - began):,.0f} rows/s, checked against the CSV"
        )
        findings = [*compare_log(records, self.lines), compare_query(self.spark.totals, self.lines)]
        beats, lost = len(self.pulse.acknowledged), self.pulse.lost_or_doubled()
        findings.append(
            Finding(
                "acknowledged pulses are there once", f"{beats - lost:,} of {beats:,}", not lost
            )
        )
        return [*findings, self.compare_files()]

    def compare_files(self) -> Finding:
        """Wait until all nodes know the same commit index, stop them, compare."""
        deadline = time.monotonic() + 30
        while True:
            committed = [
                status.get("committed_index", -1) for status in self.client.status().values()
            ]
            if len(set(committed)) == 1 and committed[0] >= 0:
                break
            if time.monotonic() > deadline:
                return Finding(
                    "replicas agree byte for byte", f"commit indexes differ: {committed}", False
                )
            time.sleep(0.1)
        nodes = sorted(self.group.nodes)
        self.client.close()
        self.group.stop()
        return compare_replicas([self.path / node for node in nodes], committed[0])

    def close(self) -> None:
        """Whatever still runs, ends."""
        if self.spark.running:
            self.spark.kill()
        self.group.stop()


def main() -> int:
    """Run it in a folder of its own; 0 when everything holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flights", type=int, help="only the first so many of the 336,776")
    lines = read_csv()[: parser.parse_args().flights]
    console = Console(width=None if sys.stdout.isatty() else 110)
    with tempfile.TemporaryDirectory(prefix="dledger-demo-") as scratch, Board(console) as board:
        demo = Demo(Path(scratch), lines, board)
        try:
            demo.run()
            findings = demo.prove()
        finally:
            demo.close()
    console.print(delay_table(len(lines), demo.spark.rows, demo.spark.totals))
    summary(console, demo.facts, findings)
    return 0 if all(finding.holds for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
