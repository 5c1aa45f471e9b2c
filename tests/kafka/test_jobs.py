"""Three jobs that run against Kafka give the same results here, moved by docs/from-kafka.md alone:
as new queries, and from their checkpoints with all their state."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
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
RESULTS = ("paid-orders", "totals", "changes")


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
    """Orders, some of them twice, and payments of most, of which some come in the second phase; at
    its end one that is two days later, so that all windows close."""
    orders, payments = [], []
    for n in range(phase * 600, phase * 600 + 600):
        at = BEGIN + n * 2
        order = {"event": f"e{n}", "id": n, "customer": f"c{n % 7}", "amount": n % 90, "at": at}
        for _ in range(1 + (n % 5 == 0)):
            orders.append((n % 3, b"c%d" % (n % 7), json.dumps(order).encode()))
        if n % 4 > 1:
            paid = {"id": n, "paid": n % 90, "at": at + n % 50}
            payments.append((n % 2, b"%d" % n, json.dumps(paid).encode()))
    for n in range(1, 1200 * phase, 4):
        paid = {"id": n, "paid": n % 90, "at": BEGIN + n * 2 + n % 50}
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


def last_orders(directory: Path) -> list[Any]:
    """The table of job upsert."""
    with sqlite3.connect(directory / "table") as database:
        return database.execute("SELECT * FROM last ORDER BY customer").fetchall()


def in_kafka(servers: str) -> dict[str, Rows]:
    """Keys and values of the topics that the jobs write, in an order of their own."""
    read = {topic: consumed(servers, topic, 3) for topic in RESULTS}
    return {
        topic: sorted((row[1:3] for rows in found for row in rows), key=repr)
        for topic, found in read.items()
    }


def in_log(client: Client, prefix: str = "") -> dict[str, Rows]:
    """The same of the topics here."""
    return {
        topic: sorted(
            (
                (row["key"], row["value"])
                for at in range(3)
                for batch in client.read(prefix + topic, at, 0)
                for row in batch.select(["key", "value"]).to_pylist()
            ),
            key=repr,
        )
        for topic in RESULTS
    }


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    """Of a Kafka that has the topics."""
    for topic in ("orders", "payments", *RESULTS):
        make_topic(broker.servers, topic, 3)
    return broker.servers


def test_jobs_give_the_same_results_behind_the_edits_of_the_page(
    servers: str, group: EmbeddedGroup, client: Client, spark: SparkSession, tmp_path: Path
) -> None:
    there = JOBS.replace("kafka:9092", servers)
    here = moved(JOBS).replace("log:7001", group.bootstrap_servers)
    assert "kafka" not in here.split('"""', 2)[2], "the page has left an option of Kafka's"
    kept = here
    for topic in RESULTS:
        kept = kept.replace(f'"{topic}"', f'"kept-{topic}"')
        client.create_topic(topic, 3)
        client.create_topic(f"kept-{topic}", 3)

    def run_phase(phase: int) -> None:
        fill(servers, phase)
        out(f"import kafka --from {servers} -b {group.bootstrap_servers} orders payments")
        run_jobs(there, spark, tmp_path / "kafka")
        run_jobs(here, spark, tmp_path / "dledger")

    run_phase(0)
    first = in_kafka(servers)
    shutil.copytree(tmp_path / "kafka", tmp_path / "kept")
    run_phase(1)
    run_jobs(kept, spark, tmp_path / "kept")

    expected, last = in_kafka(servers), last_orders(tmp_path / "kafka")
    counts = {topic: len(rows) for topic, rows in expected.items()}
    assert counts == {"paid-orders": 1080, "totals": 35, "changes": 1441}
    assert len(last) == 8
    assert in_log(client) == expected
    assert last_orders(tmp_path / "dledger") == last
    # what the query put out here, behind what it had put out over Kafka
    both = {
        topic: sorted(first[topic] + rows, key=repr)
        for topic, rows in in_log(client, "kept-").items()
    }
    assert both == expected
    assert last_orders(tmp_path / "kept") == last
    assert all(first.values()), "and it had put something out there"
