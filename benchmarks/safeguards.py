"""What rules and metrics cost in throughput, under TLS and without: groups side by side, of which
one works at a time.

Users without TLS are anonymous, so that rules hold for them too: the owner of a path's group may do
everything, and no rule is looked at. A request is decided by the last one of fifty rules and some.
"""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.fairness import PatientNodes
from benchmarks.load import append_load
from benchmarks.report import Report
from dledger import Client
from dledger.config import tls_files
from dledger.net.connections.tls import client_context
from dledger.types import NodeId
from verification.strangers.certificates import Authority
from verification.strangers.nodes import Nodes

SAFEGUARDS: Final = "appends with rules and metrics, and without, 3 replicas"
SHARE: Final = "with rules and metrics, share of that without"
UNDER_TLS, WITHOUT_TLS = "under TLS", "without TLS"
LOADS: Final = {"1 KiB, 512 in flight": (1024, 512), "64 KiB, 32 in flight": (64 << 10, 32)}
LEAST_PAIRS: Final = 5
RULES: Final = (
    "allow User:* all cluster",
    *(f"allow User:team-{number} all topic team-{number}-*" for number in range(50)),
    "allow User:* describe topic *",
    "allow User:* write topic bench",
)


class MeteredNodes(PatientNodes):
    """Nodes that serve metrics."""

    def command(self, name: NodeId) -> list[str]:
        return [*super().command(name), "--set", "metrics_port=0"]


class Running(NamedTuple):
    """A group's leader, and the topic there."""

    address: str
    topic_id: int
    tls: ssl.SSLContext | None

    def rate(self, load: tuple[int, int], seconds: float) -> float:
        """Requests in a second."""
        return append_load(self.address, self.topic_id, *load, seconds, tls=self.tls).per_second


def safeguards(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """(q) Pairs of slices, with and without, in turn; which comes first changes."""
    seconds, pairs = (0.5, 1) if quick else (3.0, max(LEAST_PAIRS, repetitions))
    for where in (UNDER_TLS, WITHOUT_TLS):
        with ExitStack() as stack:
            bare, guarded = (
                _start(stack, directory, where, is_guarded=guarded) for guarded in (False, True)
            )
            for running in (bare, guarded):  # the first slice warms both
                running.rate(LOADS["1 KiB, 512 in flight"], seconds / 3)
            for number in range(pairs):
                for label, load in LOADS.items():
                    both = (bare, guarded) if number % 2 else (guarded, bare)
                    rates = {running: running.rate(load, seconds) for running in both}
                    _add(report, f"{where}, {label}", rates[bare], rates[guarded])


def _add(report: Report, case: str, bare: float, guarded: float) -> None:
    report.add(SAFEGUARDS, f"{case}, without", "/s", bare)
    report.add(SAFEGUARDS, f"{case}, with rules and metrics", "/s", guarded)
    report.add(SAFEGUARDS, f"{case}, {SHARE}", "x", guarded / bare)


def _start(stack: ExitStack, directory: Path, where: str, *, is_guarded: bool) -> Running:
    folder = directory / f"safeguards {where} {is_guarded}".replace(" ", "-")
    folder.mkdir()
    authority = Authority(folder) if where == UNDER_TLS else None
    kind: type[Nodes] = MeteredNodes if is_guarded else PatientNodes
    nodes = stack.enter_context(kind(folder, 3, authority))
    with Client(nodes.bootstrap_servers, **nodes.settings) as client:
        topic_id = client.create_topic("bench").topic_id
        leader = next(iter(client.status().values()))["leader_id"]
        if is_guarded:
            client.add_acls(RULES)
    files = nodes.settings
    tls = (
        client_context(tls_files(files["tls_ca"], files["tls_certificate"], files["tls_key"]))
        if files
        else None
    )
    return Running(nodes.addresses[leader], topic_id, tls)
