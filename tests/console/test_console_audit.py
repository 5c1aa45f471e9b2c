"""The audit log on a page: out of the files of a path's nodes, the newest lines first."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dledger.console.watch import audit_files
from dledger.console.watch.audit_files import CHUNK_BYTES, MOST_LINES, AuditFiles
from dledger.embedded.groupfile import GroupFile
from dledger.testing import InProcessGroup
from dledger.types import NodeId
from tests.console.conftest import Page
from tests.console.test_console_pages import EVIL, SEEN, cells


def line(at: int, **more: Any) -> bytes:
    """One event, at a second of a day."""
    fields = {
        "time": f"2026-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}.000Z",
        "node": "n0",
        "event": "create topic",
        "principal": "User:alice",
        "address": "127.0.0.1:7",
        "result": "done",
        "details": {"at": at},
    }
    return json.dumps(fields | more).encode() + b"\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of a group of two nodes, which has begun no audit log."""
    nodes = NodeId("n0"), NodeId("n1")
    group = GroupFile(
        group="g", members=nodes, addresses=dict.fromkeys(nodes, "127.0.0.1:1"), local=nodes
    )
    (tmp_path / "group.json").write_bytes(group.encode())
    for node in nodes:
        (tmp_path / node).mkdir()
    return tmp_path


def write(place: Path, name: str, lines: Sequence[bytes]) -> None:
    (place / name).write_bytes(b"".join(lines))


def seconds(files: AuditFiles) -> list[int]:
    """When the events of the rows were."""
    return [json.loads(row.details)["at"] for row in files.rows()]


def test_lines_of_all_nodes_and_files_come_newest_first(place: Path) -> None:
    write(place, "n0/audit.log", [line(at) for at in (50, 60)])
    write(place, "n0/audit.log.1", [line(at) for at in (10, 30)])
    write(place, "n1/audit.log", [line(at) for at in (20, 40, 70)])
    files = AuditFiles(str(place))
    assert seconds(files) == [70, 60, 50, 40, 30, 20, 10]
    assert not files.is_cut


def test_file_that_was_just_renamed_is_read(place: Path) -> None:
    write(place, "n0/audit.log.1", [line(1)])
    assert seconds(AuditFiles(str(place))) == [1]


def test_file_that_is_renamed_meanwhile_is_read_once(place: Path) -> None:
    write(place, "n0/audit.log", [line(2)])
    (place / "n0/audit.log.1").hardlink_to(place / "n0/audit.log")
    write(place, "n0/audit.log.2", [line(1)])
    assert seconds(AuditFiles(str(place))) == [2, 1]


def test_newest_200_lines_are_shown_of_many(place: Path) -> None:
    """Over the borders of chunks, wherever these are."""
    write(place, "n0/audit.log", [line(at, reason="x" * (at % 997)) for at in range(5000)])
    assert (place / "n0/audit.log").stat().st_size > 10 * CHUNK_BYTES
    files = AuditFiles(str(place))
    assert seconds(files) == list(range(4999, 4999 - MOST_LINES, -1))
    assert files.is_cut
    old = AuditFiles(str(place), event="create")
    write(place, "n0/audit.log", [line(at, reason="x" * (at % 997)) for at in range(2, 200)])
    assert seconds(old) == list(range(199, 1, -1))
    assert not old.is_cut


def test_lines_are_filtered_by_event_and_principal(place: Path) -> None:
    write(
        place,
        "n0/audit.log",
        [
            line(1, event="Delete topic"),
            line(2, principal="User:bob"),
            line(3, event="delete topic", principal="User:bob"),
            line(4, reason="delete User:bob"),
        ],
    )
    assert seconds(AuditFiles(str(place), event="DELETE")) == [3, 1]
    assert seconds(AuditFiles(str(place), principal=":Bob")) == [3, 2]
    assert seconds(AuditFiles(str(place), event="delete", principal="bob")) == [3]
    assert seconds(AuditFiles(str(place), event="nothing")) == []


def test_look_ends_after_so_many_bytes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_files, "LOOK_BYTES", 2 * CHUNK_BYTES)
    write(place, "n0/audit.log", [line(at) for at in range(5000)])
    write(place, "n1/audit.log", [line(at, event="old") for at in range(3)])
    files = AuditFiles(str(place), event="old")
    assert seconds(files) == []  # the node's lines are older than what was not looked at
    assert files.is_cut


def test_what_is_no_line_is_left_out(place: Path) -> None:
    torn = line(3)[:40] + b"\n"
    write(place, "n0/audit.log", [b"\n", b"[1]\n", b"\xff\n", torn, line(1), b"[" * 9999, b"\n"])
    assert seconds(AuditFiles(str(place))) == [1]


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "unreadable"])
def test_what_is_in_the_place_of_a_file_is_not_read(place: Path, kind: str) -> None:
    path = place / "n0/audit.log"
    if kind == "link":
        write(place, "elsewhere", [line(9)])
        path.symlink_to(place / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        if os.geteuid() == 0:
            pytest.skip("root reads everything")
        write(place, "n0/audit.log", [line(9)])
        path.chmod(0)
    write(place, "n1/audit.log", [line(1)])
    files = AuditFiles(str(place))
    assert seconds(files) == [1]
    (fault,) = files.faults
    assert fault.startswith(f"{path}: ")


@pytest.fixture
def page(open_console: Callable[..., Page], place: Path) -> Page:
    """Of a console whose group is that of a path."""
    page = open_console()
    page.app.state.console.group.place = str(place)
    return page


def test_page_has_its_size_and_escapes_all(page: Page, place: Path) -> None:
    names = ("node", "event", "principal", "address", "result", "reason")
    write(place, "n0/audit.log", [line(1, **dict.fromkeys(names, EVIL), details={EVIL: 1})])
    text = page.get("/audit").text
    assert "<script>" not in text
    assert not {"\x1b", "\u202e"} & {*text}
    assert unescape(text).count(SEEN[:20]) >= 5
    wide = dict.fromkeys((*names, "time"), "<" * 5000)
    write(place, "n0/audit.log", [line(1, **wide, details={"<" * 5000: 1})] * 300)
    answer = page.get("/audit")
    assert len(cells(answer.text)) == 1 + MOST_LINES
    assert len(answer.content) < 190 << 10
    find = page.get("/audit", params={"event": EVIL, "principal": EVIL}).text
    assert "<script>" not in find
    assert find.count("\u202e") == 2  # in their own inputs alone, as they were written there


def test_page_says_what_cannot_be_read_and_that_there_is_more(page: Page, place: Path) -> None:
    assert "There are no lines." in page.get("/audit").text
    write(place, "n0/audit.log", [line(at) for at in range(300)])
    (place / "n1/audit.log").mkdir()
    text = page.get("/audit").text
    assert f"{place}/n1/audit.log: " in text
    assert "There are older ones." in text
    found = page.get("/audit", params={"principal": "nobody"}).text
    assert "No line that was looked at fits." in found
    (place / "group.json").unlink()
    assert page.get("/audit").status_code == 409


def test_of_a_running_group_the_page_says_where_it_is(open_console: Callable[..., Page]) -> None:
    text = open_console().get("/audit").text
    assert "its part in the file <code>audit.log</code> of its own directory" in text
    assert "<table" not in text


def test_page_shows_what_a_node_has_written(page: Page, tmp_path: Path) -> None:
    with InProcessGroup(1, directory=tmp_path) as group, group.client() as client:
        client.create_topic("orders", 2)
        client.delete_topic("orders")
    first, second = cells(page.get("/audit").text)[1:]
    assert first[1:4] == ["n0", "delete topic", "User:ANONYMOUS"]
    assert (second[2], second[5]) == ("create topic", "done")
    assert json.loads(second[7])["partitions"] == 2
