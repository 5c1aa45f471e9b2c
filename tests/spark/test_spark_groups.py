"""Consumer groups and the log's own tables through Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from dledger import Client

pytestmark = pytest.mark.spark


def test_a_group_is_exactly_where_the_query_is_and_a_new_query_goes_on_from_there(
    table: Any, topic: str, client: Client, checkpoint: str
) -> None:
    """The last batch of a run counts too, of which Spark never tells the source that it is committed."""
    seen: list[list[str]] = []

    def note(frame: Any, batch: int) -> None:
        seen.append(sorted(row.value for row in frame.selectExpr("CAST(value AS STRING) AS value").collect()))
        if len(seen) == 3:
            raise RuntimeError("planned")

    client.create_topic(topic, 2)
    for partition in (0, 1):
        client.append(topic, [f"{partition}-{i}".encode() for i in range(4)], partition=partition)

    def run(where: str, **options: str) -> None:
        stream = table.stream(topic, groupId=f"of-{topic}", maxOffsetsPerTrigger="2", **options)
        writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", where)
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="planned"):
        run(checkpoint, startingOffsets="earliest")
    assert [len(values) for values in seen] == [2, 2, 2]
    told = client.lag(f"of-{topic}")
    assert sum(one.rows for one in told) == 4, "two batches are committed, the third one is not"
    run(checkpoint, startingOffsets="earliest")
    assert seen[2] == seen[3], "the batch that failed is read again"
    assert [one.rows for one in client.lag(f"of-{topic}")] == [0, 0]
    client.append(topic, [b"new"], partition=0)
    run(f"{checkpoint}-2", startingOffsets="committed")
    assert seen[-1] == ["new"]
    assert [one.rows for one in client.lag(f"of-{topic}")] == [0, 0]
