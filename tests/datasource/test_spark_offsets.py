"""Offsets in options and in the checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dledger.datasource.options.offsets import StreamOffset, batch_start, is_of_kafka
from dledger.datasource.read.loss import check_order, keep_or_fail
from dledger.errors import ConfigError, OffsetOutOfRange


def test_an_offset_in_the_checkpoint_has_the_documented_form() -> None:
    assert StreamOffset({"orders": {0: 123}}, {"orders": "id"}).as_json() == {
        "v": 1,
        "logs": {"orders": {"id": "id", "p": {"0": 123}}},
    }


def test_an_offset_says_of_which_group_it_is_where_that_is_known() -> None:
    data = StreamOffset({"t": {0: 1}}, {"t": "id"}, group="A").as_json()
    assert data == {"v": 1, "logs": {"t": {"id": "id", "p": {"0": 1}}}, "group": "A"}
    assert StreamOffset.from_json(data).group == "A"
    assert StreamOffset.from_json({"v": 1, "logs": {}}).group == ""


def test_an_offset_comes_back_from_the_checkpoint_as_the_same_text() -> None:
    """Spark compares texts to see whether there is anything new."""
    offset = StreamOffset(
        {"b": {1: 2, 0: 1}, "a": {0: 7}}, {"a": "x", "b": "y"}, begin={"b": {1: 1, 0: 0}}
    )
    text = json.dumps(offset.as_json())
    assert json.dumps(StreamOffset.from_json(json.loads(text)).as_json()) == text


def test_an_offset_keeps_places_that_are_not_read_now() -> None:
    offset = StreamOffset(
        {"t": {0: 9}},
        {"t": "x"},
        unread={"t": {1: 4}, "u": {0: 2}},
        unread_ids={"t": "x", "u": "y"},
    )
    data = offset.as_json()
    assert data["unread"] == {"t": {"id": "x", "p": {"1": 4}}, "u": {"id": "y", "p": {"0": 2}}}
    assert StreamOffset.from_json(data) == offset
    assert offset.known() == StreamOffset({"t": {0: 9, 1: 4}, "u": {0: 2}}, {"t": "x", "u": "y"})


@pytest.mark.parametrize(
    "data", [{}, {"v": 2, "logs": {}}, {"v": 1, "logs": 3}, {"v": 1, "logs": {"a": {"p": {}}}}]
)
def test_a_foreign_offset_in_the_checkpoint_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="checkpoint"):
        StreamOffset.from_json(data)


def test_offset_of_kafkas_connector_is_known() -> None:
    assert is_of_kafka({"orders": {"0": 23, "1": 345}, "payments": {"0": 0}})
    for other in (StreamOffset({"t": {0: 1}}, {"t": "A"}).as_json(), {}, {"a": 5}, {"a": {"b": 1}}):
        assert not is_of_kafka(other)


def test_first_batch_starts_at_its_planned_begin() -> None:
    """The end offset of the batch names the begin; what the start would be now does not count."""
    planned = StreamOffset({"t": {0: 10}}, {"t": "x"}, begin={"t": {0: 5}})
    asked_again_after_a_crash = StreamOffset({"t": {0: 99}}, {"t": "x"}, init=True)
    assert batch_start(asked_again_after_a_crash, planned) == {"t": {0: 5}}


def test_a_later_batch_starts_where_the_one_before_ended() -> None:
    before = StreamOffset({"t": {0: 10}}, {"t": "x"}, begin={"t": {0: 5}})
    assert batch_start(before, StreamOffset({"t": {0: 20}}, {"t": "x"})) == {"t": {0: 10}}


def test_a_batch_without_a_known_start_is_refused() -> None:
    with pytest.raises(ConfigError, match="partition 1"):
        batch_start(
            StreamOffset({"t": {0: 1}}, {"t": "x"}), StreamOffset({"t": {0: 1, 1: 1}}, {"t": "x"})
        )


def test_a_topic_that_was_created_again_starts_where_the_end_says() -> None:
    end = StreamOffset({"t": {0: 3}}, {"t": "new"}, begin={"t": {0: 0}})
    assert batch_start(StreamOffset({"t": {0: 7}}, {"t": "old"}), end) == {"t": {0: 0}}
    with pytest.raises(ConfigError, match="does not say where"):
        batch_start(
            StreamOffset({"t": {0: 7}}, {"t": "old"}), StreamOffset({"t": {0: 9}}, {"t": "new"})
        )


LOST = {"t": {0: 2}, "u": {0: 0}}, {"t": {0: 9}, "u": {0: 7}}, {"t": {0: 5}, "u": {0: 8}}
"""Where a batch starts and ends, and where its partitions begin by now."""


def test_lost_records_are_an_error_that_names_every_range() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"t/0 offsets 2 to 4; u/0 offsets 0 to 6"):
        keep_or_fail(*LOST, fail=True)


def test_lost_records_are_skipped_when_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    assert keep_or_fail(*LOST, fail=False) == {"t": {0: 5}, "u": {0: 7}}
    assert "t/0 offsets 2 to 4; u/0 offsets 0 to 6" in caplog.text


def test_removed_records_behind_an_empty_range_are_no_loss() -> None:
    assert keep_or_fail({"t": {0: 2}}, {"t": {0: 2}}, {"t": {0: 5}}, fail=True) == {"t": {0: 2}}


def test_a_range_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(OffsetOutOfRange, match="from offset 7 to 3"):
        check_order({"t": {0: 7}}, {"t": {0: 3}}, "here")
