"""Three jobs that run against Kafka give the same results here, moved by docs/from-kafka.md
alone."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dledger import Client, EmbeddedGroup
from examples.kafka_copy.broker import Broker
from tests.cli.commands import out
from tests.kafka.producing import consumed, make_topic, produce
from tests.rules.markdown import table

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs" / "from-kafka.md").read_text()
JOBS = (TOP / "tests" / "kafka" / "jobs.py").read_text()
BEGIN = 1_700_000_000
OPTION = re.compile(r'\n *\.option\("(?P<name>[\w.]+)", (?P<value>[^)\n]+)\)')
TOPICS = ("orders", "payments", "paid-orders", "totals", "changes")


def advice() -> dict[str, str]:
    """Kafka's option -> what the page says to write in its place; empty: drop it."""
    rows = table(PAGE, "Kafka's option | write | why")
    return {name.strip("`"): "" if here == "drop it" else here.strip("`") for name, here, _ in rows}


def moved(source: str) -> str:
    """A job behind the edits of the page."""
    for before, after in table(PAGE, "in the job | becomes"):
        assert before.strip("`") in source, before
        source = source.replace(before.strip("`"), after.strip("`"))
    told = advice()
    seen: dict[tuple[int, str], int] = {}

    def edit(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        here = told.get(name, name)
        if not here:
            return ""
        # two options of Kafka may be one here
        statement = source.rfind(".format(", 0, found.start())
        if seen.setdefault((statement, here), found.start()) != found.start():
            return ""
        return found[0].replace(f'"{name}", {value}', f'"{here}", {value}')

    return OPTION.sub(edit, source)


def fill(servers: str, phase: int) -> None:
    """Orders, some of them twice, and payments of most; at the end of the second phase one that is
    two days later, so that all windows close."""
    orders, payments = [], []
    for n in range(phase * 600, phase * 600 + 600):
        at = BEGIN + n * 2
        order = {"event": f"e{n}", "id": n, "customer": f"c{n % 7}", "amount": n % 90, "at": at}
        for _ in range(1 + (n % 5 == 0)):
            orders.append((n % 3, b"c%d" % (n % 7), json.dumps(order).encode()))
        if n % 4:
            paid = {"id": n, "paid": n % 90, "at": at + n % 50}
            payments.append((n % 2, b"%d" % n, json.dumps(paid).encode()))
    if phase:
        late = {"event": "end", "id": -1, "customer": "end", "amount": 0, "at": BEGIN + 172_800}
        orders.append((0, b"end", json.dumps(late).encode()))
    produce(servers, "orders", orders)
    produce(servers, "payments", payments)


def run_jobs(source: str, spark: SparkSession, directory: Path) -> None:
    """All three, until they have read what there is."""
    directory.mkdir(exist_ok=True)
    job: dict[str, Any] = {}
    exec(compile(source, str(directory / "jobs.py"), "exec"), job)
    job["join"](spark, str(directory / "join")).awaitTermination()
    job["totals"](spark, str(directory / "totals")).awaitTermination()
    job["upsert"](spark, str(directory / "upsert"), str(directory / "table")).awaitTermination()


Rows = list[tuple[bytes | None, bytes | None]]


def results(directory: Path, read: Callable[[str], Rows]) -> dict[str, Any]:
    """What the jobs have made, in an order of its own."""
    with sqlite3.connect(directory / "table") as database:
        last = database.execute("SELECT * FROM last ORDER BY customer").fetchall()
    return {"last": last} | {topic: sorted(read(topic), key=repr) for topic in TOPICS[2:]}


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    """Of a Kafka that has the topics."""
    for topic in TOPICS:
        make_topic(broker.servers, topic, 3)
    return broker.servers


def test_jobs_give_the_same_results_behind_the_edits_of_the_page(
    servers: str, group: EmbeddedGroup, client: Client, spark: SparkSession, tmp_path: Path
) -> None:
    there = JOBS.replace("kafka:9092", servers)
    here = moved(JOBS).replace("log:7001", group.bootstrap_servers)
    assert "kafka" not in here.split('"""', 2)[2], "the page has left an option of Kafka's"
    for topic in TOPICS[2:]:
        client.create_topic(topic, 3)
    for phase in (0, 1):
        fill(servers, phase)
        out(f"import kafka --from {servers} -b {group.bootstrap_servers} orders payments")
        run_jobs(there, spark, tmp_path / "kafka")
        run_jobs(here, spark, tmp_path / "dledger")

    def in_kafka(topic: str) -> Rows:
        return [row[1:3] for rows in consumed(servers, topic, 3) for row in rows]

    def in_log(topic: str) -> Rows:
        return [
            (row["key"], row["value"])
            for at in range(3)
            for batch in client.read(topic, at, 0)
            for row in batch.to_pylist()
        ]

    expected = results(tmp_path / "kafka", in_kafka)
    assert {name: len(rows) for name, rows in expected.items()} == {
        "last": 8, "paid-orders": 1080, "totals": 35, "changes": 1441,
    }  # fmt: skip
    assert results(tmp_path / "dledger", in_log) == expected
