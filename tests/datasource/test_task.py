"""What a task learns from Spark about its query and its batch: the transaction is named after
them."""

from __future__ import annotations

import pytest
from pyspark import TaskContext

from dledger.datasource.write.sink_task import Task

QUERY, RUN = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


class Context:
    """In place of Spark's: the properties of the thread that has started the job."""

    def __init__(self, **properties: str) -> None:
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return 3

    def attemptNumber(self) -> int:
        return 2


def current(monkeypatch: pytest.MonkeyPatch, context: Context | None) -> Task:
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    return Task.current()


def test_task_is_identified_by_query_and_batch_in_any_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The id of the query stays when it is started again; that of the run does not."""
    found = Context(sql_streaming_queryId=QUERY, streaming_sql_batchId="7", spark_jobGroup_id=RUN)
    assert current(monkeypatch, found) == Task(3, 2, QUERY, RUN, 7)


def test_a_task_of_a_job_of_the_users_own_is_of_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session keeps the properties of a query that has ended; without a batch they say
    nothing."""
    assert current(monkeypatch, Context(spark_jobGroup_id="nightly")) == Task(
        3, 2, None, "nightly", 0
    )
    assert current(monkeypatch, Context(sql_streaming_queryId=QUERY)) == Task(3, 2, None, "", 0)


def test_outside_of_a_task_there_is_nothing_to_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current(monkeypatch, None) == Task(0, 0, None, "", 0)
