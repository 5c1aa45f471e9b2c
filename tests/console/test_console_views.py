"""What pages show of what a group says, without a group."""

from __future__ import annotations

import json
from html import escape
from typing import Any

import pyarrow as pa
import pytest

from dledger.client import Lag, MemberState, PartitionState
from dledger.console.views.certificates import certificate_row
from dledger.console.views.groups import group_row, member_rows, position_rows
from dledger.console.views.nodes import node_rows, sentence, setting_rows
from dledger.console.views.paging import named, ordered, paged
from dledger.console.views.record_filter import RecordFilter
from dledger.console.views.records import (
    CELL,
    PAGE_BYTES,
    SHOWN_COLUMNS,
    Taken,
    field_rows,
    fitting,
    fitting_lines,
    most_rows,
    record_table,
    value_text,
)
from dledger.console.views.sections import SECTIONS, sections_of
from dledger.console.views.text import Verbatim, duration, moment, number, shown, size, visible
from dledger.console.views.topics import Rate, partition_rows, rates, topic_rows, total
from dledger.protocol.messages.client import TopicInfo
from dledger.records.body.schema import READ_SCHEMA


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("orders é 漢 🙂 \\x1b", "orders é 漢 🙂 \\x1b"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\x00\x7f\x9b", "a\\x00\\x7f\\x9b"),
        ("one\r\n\ttwo", "one\\r\\n\\ttwo"),
        ("\u202egpj.exe\u202c", "\\u202egpj.exe\\u202c"),
        ("\u2066a\u2069\u200f\u061c", "\\u2066a\\u2069\\u200f\\u061c"),
        ("a\u200bb\ufeff\u00ad\u2028", "a\\u200bb\\ufeff\\xad\\u2028"),
        ("\U000e0041\ud800", "\\U000e0041\\ud800"),
    ],
)
def test_hidden_characters_are_shown(text: str, seen: str) -> None:
    assert visible(text) == seen
    assert visible(seen) == seen
    seen.encode()


def test_templates_print_everything_visibly_but_what_goes_back_into_inputs() -> None:
    assert shown("\u202e") == shown(ValueError("\u202e")) == "\\u202e"
    assert shown(Verbatim("\u202e")) == "\u202e"
    assert shown(None) == ""
    assert shown(7) == "7"


def test_numbers_sizes_and_times() -> None:
    assert [number(n) for n in (None, 0, 1234, 2.34, 1234.5)] == ["–", "0", "1,234", "2.3", "1,234"]
    assert [size(n) for n in (None, 1023, 1536, 5 << 30)] == ["–", "1023 B", "1.5 KiB", "5.0 GiB"]
    spans = [duration(s) for s in (None, 3.21, 300, 7200, 259200)]
    assert spans == ["–", "3.2 s", "5 min", "2 h", "3 d"]
    assert moment(0) == "–"
    assert moment(1_700_000_000_123_456) == "2023-11-14 22:13:20.123Z"
    assert moment(1 << 62) == f"{1 << 62} µs"  # a writer's time may be any


def status(**more: Any) -> dict[str, Any]:
    said = {"role": "FOLLOWER", "term": 3, "durable_index": 90, "disk_level": "OK"}
    return said | {"bytes_used": 10, "host": "a", "port": 1, "uptime_ms": 2000} | more


def test_nodes_have_the_lag_to_the_leader_of_the_newest_term() -> None:
    said = {
        "n2": status(durable_index=101),  # was asked a moment later
        "n0": status(role="LEADER", term=4, durable_index=100, release="0.2.0"),
        "n1": status(),
        "n3": status(role="LEADER", term=2, durable_index=300),  # deposed, and does not know it
        "n4": {"error": "Connection refused"},
    }
    rows = node_rows(said)
    assert [row.node for row in rows] == ["n0", "n1", "n2", "n3", "n4"]
    assert [row.lag for row in rows] == [0, 10, 0, 0, None]
    assert rows[0].release == "0.2.0"
    assert rows[4].error == "Connection refused"
    assert {row.rack for row in rows} == {""}
    assert sentence(rows) == "n0 leads; 4 of 5 nodes answer, not n4"


def test_nodes_have_the_rack_and_the_part_in_the_group() -> None:
    lists = {"member_roles": {"n0": "VOTER", "n1": "LEARNER"}, "member_racks": {"n1": "east"}}
    before = {"member_roles": {"n0": "VOTER", "n1": "VOTER"}, "member_racks": {"n0": "west"}}
    rows = node_rows({"n0": status(role="LEADER", **lists), "n1": status(**before)})
    assert [(row.rack, row.member) for row in rows] == [("", ""), ("east", "learner")]


def test_state_of_the_group_is_one_sentence() -> None:
    assert sentence([]) == "no node answers"
    leads = {"n0": status(role="LEADER")}
    assert sentence(node_rows(leads)) == "n0 leads; it is alone"
    assert sentence(node_rows({"n1": status(), "n2": status()})) == "no leader; all 2 nodes answer"


def test_node_notes_say_what_to_look_into() -> None:
    ill = status(
        admission={"admitted": False},
        repair={"faulty": [1, 2]},
        clock={"off": "5 s ahead"},
        disk_level="FULL",
        catalog_lost=True,
        compiled=False,
    )
    (row,) = node_rows({"n0": ill})
    assert len(row.notes) == 6
    assert "2 damaged entries" in row.notes
    assert node_rows({"n0": status()})[0].notes == ()


def test_settings_name_the_node_where_they_differ() -> None:
    said = {"n0": status(flush="sync"), "n1": status(flush="async"), "n2": {"error": "gone"}}
    rows = dict(setting_rows(said))
    assert rows["flush"] == "n0: sync; n1: async"
    assert rows["secret"] == "none, not required"


def part(topic: str, partition: int, begin: int, end: int, stored: int) -> PartitionState:
    return PartitionState(topic, partition, begin, end, stored, 5)


def places(*parts: PartitionState) -> dict[tuple[str, int], PartitionState]:
    return {(one.topic, one.partition): one for one in parts}


def test_throughput_is_that_between_two_looks() -> None:
    before = places(part("t", 0, 0, 100, 1000), part("t", 1, 0, 10, 100), part("u", 0, 0, 9, 9))
    now = places(
        part("t", 0, 0, 300, 5000),
        part("t", 1, 8, 20, 240),  # retention took eight
        part("u", 0, 0, 1, 1),  # made anew
        part("v", 0, 0, 9, 9),  # new
    )
    found = rates(before, now, 2.0)
    assert found == {
        ("t", 0): Rate(100.0, 2000.0),
        ("t", 1): Rate(5.0, 100.0),
        ("u", 0): Rate(0.0, 0.0),
    }
    assert total(found.values()) == Rate(105.0, 2100.0)
    assert rates(before, now, 0.0) == {}


def test_topic_is_the_sum_of_its_partitions() -> None:
    seen = places(part("t", 0, 5, 100, 1000), part("t", 1, 0, 10, 100))
    infos = [TopicInfo(name="t", topic_id=1, log_id="x", partitions=2, settings={"type": "typed"})]
    (row,) = topic_rows(infos, seen, {("t", 0): Rate(1.0, 2.0)})
    assert (row.kind, row.begin, row.end, row.records, row.bytes) == ("typed", 0, 100, 105, 1100)
    assert row.rate == Rate(1.0, 2.0)
    assert [one.records for one in partition_rows("t", seen, {})] == [95, 10]


def test_group_is_behind_by_all_of_its_partitions() -> None:
    lag = [
        Lag("g", "t", 0, 5, 8, 20, 15, 150, 2.5, 1000, False),
        Lag("g", "t", 1, 20, 0, 20, 0, 0, 0.0, 1000, True),
    ]
    members = [MemberState("m-1", "", "host:7", 3, "reads", {"t": [0], "u": [0, 1]})]
    row = group_row("g", lag, members)
    assert (row.lag, row.lag_bytes, row.lag_s, row.holds, row.members) == (15, 150, 2.5, True, 1)
    rows = position_rows(lag, members)
    where = [(one.topic, one.partition, one.member, one.lag) for one in rows]
    assert where == [
        ("t", 0, "host:7", 15),
        ("t", 1, "", 0),
        ("u", 0, "host:7", None),
        ("u", 1, "host:7", None),
    ]
    assert rows[0].lost == 3
    assert member_rows(members)[0].partitions == 3


def test_tables_are_cut_filtered_and_ordered() -> None:
    rows = [f"t{n}" for n in range(250)]
    page = paged(rows, "3")
    assert (page.rows[0], len(page.rows), page.pages, page.total) == ("t200", 50, 3, 250)
    for wild in ("0", "-1", "x", "99", "9" * 400, "²"):
        assert 1 <= paged(rows, wild).number <= 3
    assert paged([], "7").number == 1
    assert named(["Orders", "clicks"], "ORD", str) == ["Orders"]
    assert ordered(["b", "cc", "a"], "size", {"name": str, "size": len}) == (
        ["cc", "b", "a"],
        "size",
    )
    assert ordered(["b", "a"], "nonsense", {"name": str, "size": len}) == (["a", "b"], "name")


def record(**more: Any) -> Taken:
    values = {"offset": 1, "time_us": 2, "key": b"k", "value": b"v", "size": 1} | more
    return Taken(**values)


def test_raw_values_are_text_hex_or_json() -> None:
    value = b'{"b":1.50,"a":[1,2]}'
    one = record(value=value, size=len(value))
    assert value_text(one, "text") == value.decode()
    assert value_text(one, "hex") == value.hex(" ")
    assert value_text(one, "json") == '{"b": 1.50, "a": [1, 2]}'
    assert value_text(one, "json", indent=1) == '{\n "b": 1.50,\n "a": [\n  1,\n  2\n ]\n}'
    assert value_text(record(value=None, size=0), "json") is None
    assert value_text(record(value=b"\xff{"), "json") == "\\xff{"
    deep = b"[" * 100_000
    assert value_text(record(value=deep, size=len(deep)), "json") == deep.decode()
    lying = b'["\\ue0001", 1.5]'
    assert value_text(record(value=lying, size=len(lying)), "json") == lying.decode()


def test_typed_rows_are_columns_with_all_their_digits() -> None:
    value = json.dumps({"id": 2**62, "tags": ["a", None], "Name": None}).encode()
    value = value[:-1] + b', "price": 12345678901234567890.1234567890}'
    one = record(value=value, size=len(value))
    table = record_table([one], ["id", "tags", "name", "price", "new"], "text")
    assert [cell.text for cell in table.rows[0].cells] == [
        str(2**62),
        '["a", null]',
        "null",
        "12345678901234567890.1234567890",
        "null",
    ]
    assert [cell.null for cell in table.rows[0].cells] == [False, False, True, False, True]
    assert dict(field_rows(one, ["id"]))["id"].text == str(2**62)
    cut = record(value=value[:9], size=len(value))
    assert field_rows(cut, ["id", "tags"])[0][1].text == value[:9].decode()


@pytest.mark.parametrize("character", ["x", "<", "漢", "\u202e", "🙂", "\U000e0001", "\n"])
@pytest.mark.parametrize("limit", [*CELL, 5000])
def test_cell_has_a_size_whatever_is_in_it(character: str, limit: int) -> None:
    sent = escape(fitting(character * 10_000, limit)).encode()
    assert len(sent) <= limit + 3
    assert sum(len(escape(line).encode()) for line in fitting_lines(character * 9999, limit)) <= (
        limit + 3
    )


@pytest.mark.parametrize("columns", [None, ["a"], [f"c{n}" for n in range(2000)]])
def test_table_has_a_size_whatever_is_in_it(columns: list[str] | None) -> None:
    count = min(500, most_rows(columns or ("key", "value", "headers")))
    row = json.dumps(dict.fromkeys(columns or (), "<" * 99)).encode()
    one = record(key=b"<" * 999, value=row, size=len(row), headers=((">" * 99, b"\x00"),))
    table = record_table([one] * count, columns, "text")
    cells = [cell for row in table.rows for cell in row.cells]
    assert sum(len(escape(cell.text).encode()) for cell in cells) <= PAGE_BYTES + 3 * len(cells)
    assert table.more_columns == max(0, len(columns or ()) - SHOWN_COLUMNS)


def batch(*records: tuple[Any, ...]) -> pa.RecordBatch:
    """Of key, value and headers each."""
    rows = [
        {"offset": at, "timestamp": 0, "key": key, "value": value, "headers": headers}
        for at, (key, value, headers) in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, READ_SCHEMA)


SOME = batch(
    (b"other", b"none of these", []),
    (b"a", b"one two", [("trace", b"7"), ("x", None)]),
    (None, None, None),
    (b"a", b"two", []),
    (b"b", b"two \xff", [("x", b""), ("trace", b"8")]),
)


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        (RecordFilter(), [0, 1, 2, 3, 4]),
        (RecordFilter(key="a"), [1, 3]),
        (RecordFilter(contains="two"), [1, 3, 4]),
        (RecordFilter(contains="TWO"), []),
        (RecordFilter(contains="\udcff"), [4]),
        (RecordFilter(header="trace"), [1, 4]),
        (RecordFilter(header="trace=7"), [1]),
        (RecordFilter(header="x="), [4]),
        (RecordFilter(header="trace=9"), []),
        (RecordFilter(key="a", contains="one", header="x"), [1]),
        (RecordFilter(key="b", header="trace=7"), []),
    ],
)
def test_records_are_filtered_by_columns(wanted: RecordFilter, offsets: list[int]) -> None:
    assert wanted.of(SOME).column("offset").to_pylist() == offsets
    part = wanted.of(SOME.slice(1)).column("offset").to_pylist()
    assert part == [at for at in offsets if at >= 1]


def test_certificate_says_how_long_it_is_valid() -> None:
    shown_ = {
        "notBefore": "Jan  1 00:00:00 2026 GMT",
        "notAfter": "Jan 11 00:00:00 2026 GMT",
        "subjectAltName": (("DNS", "a"), ("URI", "dledger://node/n1")),
    }
    row = certificate_row("a:1", shown_, 1_767_225_600 + 3600)
    assert (row.days, row.soon, row.names) == (9, True, "DNS:a, URI:dledger://node/n1")
    assert certificate_row("a:1", {}, 0).days is None


def test_section_is_there_where_the_client_has_its_call() -> None:
    class Older:
        status = partitions = None

    titles = [one.title for one in sections_of(Older)]
    assert titles == ["Nodes", "Topics", "Audit log", "Settings", "Certificates"]
    assert len(SECTIONS) == 9
