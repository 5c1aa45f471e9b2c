"""What metrics cost: a scrape of a node with many topics, and appends at a leader that counts
beside one that does not."""

from __future__ import annotations

import itertools
import time
import urllib.request
from pathlib import Path
from typing import Final

from benchmarks.appends import leader_address
from benchmarks.groups import group
from benchmarks.load import append_load
from benchmarks.pairs import processor_s
from benchmarks.report import Report
from dledger import Client, EmbeddedGroup
from dledger.node.monitoring.monitor import TOKEN_FILE

SCRAPE: Final = "a scrape of a node"
COST: Final = "appends of 1 KiB with metrics and without, 3 replicas: processor time at the leader"
WITH, WITHOUT, TIMES = "with metrics", "without", "with, times without"
IN_FLIGHT: Final = {"1 in flight": 1, "512 in flight": 512}
SLICE_S: Final = 0.5
ACCEPTS: Final = {
    "text": "text/plain",
    "OpenMetrics": "application/openmetrics-text;version=1.0.0",
}
_numbers = itertools.count()


class Scraper:
    """Scrapes the leader of a group."""

    def __init__(self, running: EmbeddedGroup, client: Client, path: Path) -> None:
        leader = running.leader
        self._url = f"http://127.0.0.1:{client.status()[leader]['metrics_port']}/metrics"
        self._token = (path / leader / TOKEN_FILE).read_text().strip()

    def seconds(self, accept: str) -> float:
        """Until the whole page is here, which is made for this request."""
        fresh = f"{accept};number={next(_numbers)}"
        headers = {"Authorization": f"Bearer {self._token}", "Accept": fresh}
        asked = urllib.request.Request(self._url, headers=headers)
        start = time.perf_counter()
        with urllib.request.urlopen(asked) as answer:
            answer.read()
        return time.perf_counter() - start


def metrics(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Both."""
    scrapes(report, directory, repetitions, quick=quick)
    costs(report, directory, repetitions, quick=quick)


def scrapes(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """With 1,000 topics of one record and a consumer group each, and with 10,000."""
    with (
        group(directory, 1, metrics_port=0, max_topics=11_000) as running,
        Client(running.bootstrap_servers) as client,
    ):
        scraper, topics = Scraper(running, client, Path(running.path)), 0
        for more in (100,) if quick else (1_000, 10_000):
            for number in range(topics, more):
                client.create_topic(f"topic-{number}")
                client.append(f"topic-{number}", b"x")
                client.commit_offsets(f"group-{number}", {f"topic-{number}": {0: 0}})
            topics = more
            for label, accept in ACCEPTS.items():
                took = [scraper.seconds(accept) * 1000 for _ in range(10 * repetitions)]
                report.add(SCRAPE, f"{topics:,} topics and groups, {label}", "ms", *took)


def costs(report: Report, directory: Path, repetitions: int, *, quick: bool) -> None:
    """Two groups side by side, one of them idle while the other works."""
    with group(directory, 3, metrics_port=0) as counted, group(directory, 3) as plain:
        for label, in_flight in IN_FLIGHT.items():
            for number in range((1 if quick else 4 * repetitions) + 1):
                spent = {}
                both = (WITH, counted), (WITHOUT, plain)
                for name, running in both if number % 2 else both[::-1]:
                    spent[name] = leader_us(running, in_flight)
                if number:  # the first slice warms both
                    for name, each in spent.items():
                        report.add(COST, f"{label}, {name}", "µs", each)
                    report.add(COST, f"{label}, {TIMES}", "", spent[WITH] / spent[WITHOUT])


def leader_us(running: EmbeddedGroup, in_flight: int) -> float:
    """Processor time of a request at the leader, over a slice."""
    with Client(running.bootstrap_servers) as client:
        topic_id = client.topic("bench").topic_id
    pid = running.nodes[running.leader].pid
    assert pid is not None
    before = processor_s(pid)
    load = append_load(leader_address(running), topic_id, 1024, in_flight, SLICE_S)
    return (processor_s(pid) - before) * 1e6 / load.requests
