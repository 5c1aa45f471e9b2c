"""What people do to checkpoints and queries, once each; ``make job-kills`` does it again and again,
under kills."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from dledger import Client, EmbeddedGroup
from tests.cluster.checkpoint_faults import CASES, WARNING, Case, copy_half
from tests.cluster.queries import Desk

Desks = dict[str, Desk]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedGroup]:
    with EmbeddedGroup(tmp_path_factory.mktemp("faults") / "log", replicas=1) as group:
        yield group


@pytest.fixture(scope="module")
def desks(running: EmbeddedGroup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desks]:
    """Classic Spark and Spark Connect, each in a process of its own: they do not live together."""
    directory = tmp_path_factory.mktemp("desks")
    found = {
        kind: Desk(kind, running.bootstrap_servers, directory) for kind in ("classic", "connect")
    }
    yield found
    for desk in found.values():
        desk.end()


@pytest.fixture
def client(running: EmbeddedGroup) -> Iterator[Client]:
    with Client(running.bootstrap_servers) as one:
        yield one


@pytest.fixture
def make_case(
    desks: Desks,
    client: Client,
    dice: random.Random,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Callable[..., Case]:
    def make(kind: str) -> Case:
        if kind == "connect":
            pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
        name = f"case-{abs(hash(request.node.name)) % 10**8}"
        return Case(name, tmp_path, client, dice, desks[kind], lambda: None)

    return make


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.parametrize("fault", [fault for fault in CASES if "txnId" not in fault])
def test_checkpoint_fault_loses_and_doubles_nothing_without_an_error(
    fault: str, make_case: Callable[..., Case]
) -> None:
    case = make_case("classic")
    CASES[fault](case)
    assert case.problems == []


WAYS = pytest.mark.parametrize(("kind", "thread"), [("classic", True), ("connect", False)])


def run_twice(case: Case, *, named: bool, thread: bool) -> tuple[list[bytes], str]:
    """A query of foreachBatch whose first run fails behind its write; rows and topic."""
    source, target, fail = case.topic(), f"{case.name}-copy", case.checkpoint.with_name("fail")
    rows = case.append(source)
    fail.touch()
    asked = {"fail": str(fail), "named": named, "thread": thread}
    assert "a failure behind the write" in case.ask(target, **asked)
    assert case.ask(target, **asked) == ""
    return rows, target


@pytest.mark.cluster
@pytest.mark.spark
@WAYS
def test_write_without_visible_batch_is_repeated_with_warning_and_mark(
    kind: str, thread: bool, make_case: Callable[..., Case]
) -> None:
    """In foreachBatch, by a plain thread or over Spark Connect, without a txnId."""
    case = make_case(kind)
    rows, target = run_twice(case, named=False, thread=thread)
    assert Counter(case.written(target)) == Counter(rows * 2)
    marks = [(one["source"], one["query"], one["repeat"]) for one in case.writers(target)]
    assert marks == [("batch", None, "again")] * 2
    assert case.warned()


@pytest.mark.cluster
@pytest.mark.spark
@WAYS
def test_a_write_with_a_txn_id_is_made_once_by_whatever_thread_or_client(
    kind: str, thread: bool, make_case: Callable[..., Case]
) -> None:
    case = make_case(kind)
    rows, target = run_twice(case, named=True, thread=thread)
    assert Counter(case.written(target)) == Counter(rows)
    marks = [(one["source"], one["txnId"], one["repeat"]) for one in case.writers(target)]
    assert marks == [("batch", "batch-0", "nothing")]
    assert not case.warned()


class Recorded:
    """In place of a client and of a desk: topics with rows that were given."""

    def __init__(self, rows: list[bytes], error: str = "", log: str = "") -> None:
        self._rows, self._error, self._log = rows, error, log

    def end_offsets(self, _: str) -> dict[int, int]:
        return {0: len(self._rows)}

    def read(self, *_: Any) -> list[pa.RecordBatch]:
        rows = pa.array(self._rows, pa.binary())
        return [pa.record_batch({"key": rows, "value": rows})]

    def create_topic(self, *_: Any) -> None: ...

    def commits(self, _: int) -> list[Any]:
        return [SimpleNamespace(writer_id="job/1", sequence=0, offsets={"case-copy": {}})]

    def run(self, *_: Any) -> str:
        return self._error

    def said(self) -> str:
        return self._log


def recorded(tmp_path: Path, rows: list[bytes], error: str = "", log: str = "") -> Case:
    there: Any = Recorded(rows, error, log)
    case = Case("case", tmp_path, there, random.Random(1), there, lambda: None)
    case.topic()
    return case


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([b"a", b"b"], None),
        ([b"a"], "1 rows are lost"),
        ([b"a", b"b", b"b"], "1 rows are doubled"),
        ([b"a", b"b", b"c"], "1 rows are invented"),
    ],
)
def test_the_check_of_a_case_tells_what_is_lost_doubled_or_invented(
    rows: list[bytes], found: str | None, tmp_path: Path
) -> None:
    case = recorded(tmp_path, rows)
    case.exact("case-copy", [b"a", b"b"])
    assert len(case.problems) == (found is not None)
    assert found is None or found in case.problems[0]


def test_check_of_case_detects_missing_and_unexpected_query_failures(
    tmp_path: Path,
) -> None:
    silent, failed = (
        recorded(tmp_path, []),
        recorded(tmp_path, [], "set option 'onReplayMismatch' to keep"),
    )
    silent.copy("case-copy", refused=True)
    assert "without an error" in silent.problems[0]
    failed.copy("case-copy")
    assert "has no reason to fail" in failed.problems[0]
    failed.problems.clear()
    failed.copy("case-copy", refused=True)
    assert failed.problems == []


def test_check_of_case_finds_warning_of_its_topics_and_writer_mark(
    tmp_path: Path,
) -> None:
    assert recorded(tmp_path, [], log=f"a write to topic 'case-copy' {WARNING}").warned()
    assert not recorded(tmp_path, [], log=f"a write to topic 'other' {WARNING}").warned()
    assert [one["repeat"] for one in recorded(tmp_path, []).writers("case-copy")] == ["again"]


def test_half_a_copy_lacks_files_and_keeps_the_id_of_the_query(tmp_path: Path) -> None:
    for name in ("metadata", "offsets/0", "commits/0"):
        (tmp_path / "whole" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "whole" / name).write_bytes(b"0123456789")
    sizes = set()
    for seed in range(50):
        half = tmp_path / str(seed)
        copy_half(tmp_path / "whole", half, random.Random(seed))
        assert (half / "metadata").exists()
        sizes.add(sum(file.stat().st_size for file in half.rglob("*") if file.is_file()))
    assert min(sizes) <= 10 < max(sizes) <= 30
