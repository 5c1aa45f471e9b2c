"""The lines of a node's log: their form, and messages that come again and again."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger.config import NodeConfig
from dledger.embedded.nodelog import BoundedLog
from dledger.errors import ConfigError
from dledger.logs.formats import JsonFormatter, TextFormatter
from dledger.logs.output import AUDIT, BURST, Output, RateLimit
from dledger.logs.repeats import INTERVAL_S
from dledger.types import NodeId

log = logging.getLogger("dledger.test")


class Lines(logging.StreamHandler[io.StringIO]):
    def __init__(self) -> None:
        super().__init__(io.StringIO())

    def all(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What an output writes of this process's records."""
    root, handler = logging.getLogger(), Lines()
    level = root.level
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def record(message: str, *args: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("dledger.test", level, "", 0, message, args, None)


def test_json_lines_have_stable_names_and_one_line_each(lines: Lines) -> None:
    Output(lines).use("json", "info")
    log.warning("%s is\n gone", "n1\x1b[31m")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("a defect")
    first, second = map(json.loads, lines.all())
    assert list(first) == ["time", "level", "logger", "message"]
    assert (first["level"], first["logger"]) == ("warning", "dledger.test")
    assert first["message"] == "n1\x1b[31m is\n gone"
    assert first["time"].endswith("Z")
    assert second["error"].startswith("Traceback")
    assert "\x1b" not in lines.stream.getvalue()


def test_text_lines_escape_what_ends_a_line_or_commands_a_terminal() -> None:
    text = TextFormatter().format(record("topic %s", "a\nERROR b\x1b[2J\u202e\x9b"))
    assert text.endswith("WARNING dledger.test: topic a\\nERROR b\\x1b[2J\\u202e\\x9b")
    assert "\\" not in TextFormatter().format(record("Grüße, 東京"))


def test_level_is_that_of_the_settings(lines: Lines) -> None:
    output = Output(lines)
    log.debug("unseen")
    output.use("text", "debug")
    log.debug("seen")
    output.use("text", "error")
    log.warning("unseen")
    assert [line.rpartition(" ")[2] for line in lines.all()] == ["seen"]


def test_messages_of_one_template_pass_a_few_times_then_are_counted() -> None:
    clock = [0.0]
    limit = RateLimit(lambda: clock[0])
    passed = [limit.filter(record("%d votes refused", n)) for n in range(100)]
    assert passed == [True] * BURST + [False] * (100 - BURST)
    assert limit.filter(record("%d other votes", 1))
    assert limit.filter(record("%d votes refused", 1, level=logging.ERROR))
    assert all(limit.filter(record("end %d", n, level=logging.CRITICAL)) for n in range(100))


def test_what_was_counted_is_told_with_its_number(lines: Lines) -> None:
    clock = [0.0]
    output = Output(lines)
    output._limit._repeats._now_s = lambda: clock[0]
    output.use("json", "info")
    for n in range(100):
        log.warning("%d votes refused", n)
    output.sweep()
    assert len(lines.all()) == BURST
    clock[0] = INTERVAL_S
    output.sweep()
    last = json.loads(lines.all()[-1])
    assert last["repeated"] == 100 - BURST
    assert last["message"] == "90 more in 10 s: %d votes refused"


def test_texts_alone_are_told_apart_and_audit_lines_never_lost() -> None:
    limit = RateLimit(lambda: 0.0)
    assert all(limit.filter(record("%s", f"fact {n}")) for n in range(100))
    audit = logging.getLogger(AUDIT)
    line = audit.makeRecord(AUDIT, logging.WARNING, "", 0, "%s", ("{}",), None)
    assert all(limit.filter(line) for _ in range(100))


def test_embedded_nodes_log_takes_form_and_level_too(tmp_path: Path) -> None:
    with (tmp_path / "node.log").open("wb") as file:
        handler = BoundedLog(tmp_path / "node.log", descriptor=file.fileno())
        handler.setFormatter(JsonFormatter())
        handler.emit(record("one"))
    assert json.loads((tmp_path / "node.log").read_text())["message"] == "one"


@pytest.mark.parametrize("wrong", [{"log_format": "xml"}, {"log_level": "loud"}])
def test_wrong_settings_of_the_log_are_refused(wrong: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write one of text, json"):
        NodeConfig(node_id=NodeId("n0"), directory=tmp_path, **wrong)  # type: ignore[arg-type]
