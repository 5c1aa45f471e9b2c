"""What the plan of a micro-batch asks, and what it leaves in the checkpoint, when there are many
partitions."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from dledger.datasource.options.offsets import StreamOffset
from tests.streaming.stream_engine import Query, numbers


def fill(group: Any, topics: int, partitions: int, value: int) -> None:
    for number in range(topics):
        name = f"t{number:02}"
        if name not in group.by_name:
            group.create_topic(name, partitions)
        for partition in range(partitions):
            group.append(name, partition, numbers(value))


def questions(group: Any, topics: int, partitions: int, **options: str) -> list[str]:
    """What the second micro-batch asks, when every partition has a new record."""
    fill(group, topics, partitions, 0)
    query = Query(group, startingOffsets="earliest", **options)
    query.trigger()
    fill(group, topics, partitions, 1)
    group.asked.clear()
    assert query.trigger()
    return list(group.asked)


@pytest.mark.parametrize("more", [{}, {"maxBytesPerTrigger": "500"}, {"maxOffsetsPerTrigger": "7"}])
@pytest.mark.parametrize("select", [{"subscribe": "t00,t01,t02"}, {"subscribePattern": "t.*"}])
def test_a_plan_asks_as_much_for_many_partitions_as_for_three(
    make_group: Any, select: dict[str, str], more: dict[str, str]
) -> None:
    few = questions(make_group(), 3, 1, **select, **more)
    many = questions(make_group(), 3, 40, **select, **more)
    assert many == few
    assert len(many) <= 6


def test_backlog_is_cut_into_tasks_by_one_request_for_all_partitions(
    make_group: Any,
) -> None:
    few, many = (
        questions(make_group(), 2, number, subscribe="t00,t01", maxBytesPerPartition="100")
        for number in (1, 30)
    )
    assert many == few


def test_a_new_query_describes_all_its_topics_by_one_question(group: Any) -> None:
    fill(group, 20, 1, 0)
    group.asked.clear()
    Query(
        group, subscribe=",".join(f"t{number:02}" for number in range(20))
    ).start().initialOffset()
    assert group.asked == ["described", "offsets"]


def test_offsets_of_1000_partitions_stay_below_64_kib_in_a_checkpoint() -> None:
    """Also the first one, which has every start too, with offsets as a partition reaches them that
    takes ten thousand records a second for three years."""
    names = [f"some-department.orders-{number:02}" for number in range(50)]
    ends = {name: dict.fromkeys(range(20), 10**12) for name in names}
    ids = dict.fromkeys(names, "123e4567-e89b-12d3-a456-426614174000")
    text = json.dumps(StreamOffset(ends, ids, begin=ends).as_json())
    assert len(text.encode()) < 64 << 10


def test_process_that_plans_a_stream_loads_no_code_for_rows() -> None:
    """Spark starts one for each query, which waits until all of it is loaded."""
    code = (
        "import sys, pyspark.sql.streaming.python_streaming_source_runner\n"
        "import dledger.streaming.reader\n"
        "rows = 'pyarrow.compute', 'dledger.records.body.records', 'dledger.datasource.read.rows'\n"
        "print(*[name for name in rows if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code]).split() == []
