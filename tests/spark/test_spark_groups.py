"""Consumer groups and the log's own tables through Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from dledger import Client
from dledger.datasource.options.option_table import TABLES
from tests.spark.conftest import run

pytestmark = pytest.mark.spark


def test_group_equals_the_query_position_and_a_new_query_continues_there(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    """The last batch of a run counts too, of which Spark never tells the source that it is
    committed."""
    seen: list[list[str]] = []

    def note(frame: Any, batch: int) -> None:
        seen.append(sorted(bytes(row.value).decode() for row in frame.collect()))
        if len(seen) == 3:
            raise RuntimeError("planned")

    client.create_topic(topic, 2)
    for partition in (0, 1):
        client.append(topic, [f"{partition}-{i}".encode() for i in range(4)], partition=partition)

    def noted(where: str, **options: str) -> None:
        stream = table.stream(topic, groupId=f"of-{topic}", maxOffsetsPerTrigger="2", **options)
        run(stream.writeStream.foreachBatch(note), where)

    with pytest.raises(StreamingQueryException, match="planned"):
        noted(checkpoint)
    assert [len(values) for values in seen] == [2, 2, 2]
    told = client.lag(f"of-{topic}")
    assert sum(one.rows for one in told) == 4, "two batches are committed, the third one is not"
    noted(checkpoint)
    assert seen[2] == seen[3], "the batch that failed is read again"
    assert [one.rows for one in client.lag(f"of-{topic}")] == [0, 0]
    client.append(topic, [b"new"], partition=0)
    noted(f"{checkpoint}-2", startingOffsets="committed")
    assert seen[-1] == ["new"]
    assert [one.rows for one in client.lag(f"of-{topic}")] == [0, 0]


def test_stream_commits_match_its_progress_and_the_topics_records(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    client.create_topic(topic)
    client.append(topic, [str(i).encode() for i in range(50)])
    copy = f"{topic}-copy"
    source = table.stream(topic, maxOffsetsPerTrigger=20, groupId=topic)
    query = table.copy(source, copy, checkpoint)
    load = table.metadata
    commits = load("commits").where(f"query = '{query.id}'").orderBy("batch").collect()
    assert [(row.batch, row.source, row.rows) for row in commits] == [
        (0, "stream", 20),
        (1, "stream", 20),
        (2, "stream", 10),
    ]
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [
        row.rows for row in commits
    ]
    spans = [(one.startOffset, one.endOffset) for row in commits for one in row.ranges]
    assert spans == [(0, 20), (20, 40), (40, 50)]
    assert table.read(copy).count() == sum(row.rows for row in commits)
    (group,) = load("groups").where(f"topic = '{topic}'").collect()
    assert (group.groupId, group.offset, group.lag, group.lagSeconds) == (topic, 50, 0, 0.0)
    assert load("topics").where(f"topic = '{copy}'").collect()[0].records == 50
    assert {name: load(name).count() > 0 for name in TABLES} == dict.fromkeys(TABLES, True)
    assert load("nodes").where("role = 'LEADER'").count() == 1
    with pytest.raises(AnalysisException, match="did you mean 'commits'"):
        load("comits")
