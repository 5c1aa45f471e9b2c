"""Options of a read with ``layout``: the files of a RocketMQ store, or of a node of Java's DLedger.
Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dledger.config import nearest
from dledger.datasource.options.bounds import time_us
from dledger.datasource.options.option_table import BATCH, STORE_TABLES, STREAM
from dledger.datasource.options.option_values import flag, names, size_or_number, word
from dledger.datasource.options.options import check_use, sort_options
from dledger.datasource.options.patterns import java_pattern
from dledger.datasource.options.rate_limits import DEFAULT_BYTES, most_bytes
from dledger.datasource.options.selection import Selection
from dledger.datasource.options.settings import duration_ms
from dledger.errors import ConfigError
from dledger.rocketmq.columns.commit_log import Wanted
from dledger.rocketmq.files.layout import DLEDGER, LAYOUTS
from dledger.rocketmq.files.storage import Storage

USED: Final = (
    "path", "layout", "storageOptions", "onDamage", "subscribe", "subscribePattern", "topic",
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "minPartitions",
    "maxBytesPerPartition", "maxBytesPerTrigger", "failOnDataLoss", "fetch.maxWaitMs", "metadata",
    "columns",
)  # fmt: skip
OF_MESSAGES: Final = (
    "subscribe",
    "subscribePattern",
    "topic",
    "startingTimestamp",
    "endingTimestamp",
)
INSTEAD: Final = {
    "maxOffsetsPerTrigger": "; how many messages lie between two places of a log is not known "
    "before they are read: give 'maxBytesPerTrigger'",
    "maxRecordsPerPartition": ": give 'maxBytesPerPartition'",
    "startingOffsetsByTimestamp": ": give 'startingTimestamp'",
    "endingOffsetsByTimestamp": ": give 'endingTimestamp'",
    "assign": ": give 'subscribe', and filter by the column queueId",
}
EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The options of one such read, checked."""

    storage: Storage
    layout: str
    selection: Selection = field(default_factory=Selection)
    """Topics; empty: all."""
    stored_from: int | None = None
    """Milliseconds since 1970."""
    stored_before: int | None = None
    begin: int = EARLIEST
    """A place in the log, or EARLIEST or LATEST."""
    stop: int = LATEST
    min_partitions: int = 0
    max_task_bytes: int | None = None
    max_bytes: int | None = DEFAULT_BYTES
    """Of a micro-batch."""
    fail_on_damage: bool = True
    fail_on_data_loss: bool = True
    wait_ms: int = 200
    table: str = ""
    """``damage``: that is read in place of messages."""
    columns: tuple[str, ...] = ()
    """That are read; empty: all."""

    @property
    def wanted(self) -> Wanted:
        """Which messages are read."""
        return Wanted(
            self.selection.fits if self.selection.given else None,
            self.stored_from,
            self.stored_before,
        )


def parse_store_options(given: Mapping[str, str], use: str = "") -> StoreOptions:
    """Check options as Spark hands them over.

    Args:
        use: ``batch read`` or ``stream read``; empty where that is not known yet.

    Raises:
        UnknownOption: there is no such option; the message names all of these.
        ConfigError: a value cannot be, or an option says nothing to such a read.
    """
    values, settings = sort_options(given)
    layout = word(values, "layout", ("rocketmq", "dledger"))
    assert layout in LAYOUTS
    check_use(values, use)
    _check_used(values, settings, layout)
    if not values.get("path", "").strip():
        raise ConfigError(
            "which store? Give a path or URL, as in .load('/data/store') or "
            ".load('s3://bucket/store')"
        )
    begin, stop = _place(values, "startingOffsets", use), _place(values, "endingOffsets", use)
    return StoreOptions(
        storage=Storage.of(values["path"].strip(), _storage_options(values)),
        layout=layout,
        selection=_selection(values),
        stored_from=_stored(values, "startingTimestamp"),
        stored_before=_stored(values, "endingTimestamp"),
        begin=(LATEST if use == STREAM else EARLIEST) if begin is None else begin,
        stop=LATEST if stop is None else stop,
        min_partitions=size_or_number(values, "minPartitions") or 0,
        max_task_bytes=size_or_number(values, "maxBytesPerPartition"),
        max_bytes=most_bytes(values, DEFAULT_BYTES),
        fail_on_damage=word(values, "onDamage", ("fail", "skip")) == "fail",
        fail_on_data_loss=flag(values, "failOnDataLoss", True),
        wait_ms=duration_ms("fetch.maxWaitMs", values.get("fetch.maxWaitMs", "200")),
        table=_table(values),
        columns=names(values, "columns"),
    )


def _check_used(values: Mapping[str, str], settings: Mapping[str, str], layout: str) -> None:
    for name in (*values, *settings):
        if name not in USED:
            raise ConfigError(
                f"option {name!r} says nothing to a read of files with 'layout' {layout}"
                f"{INSTEAD.get(name, ': leave it away')}"
            )
        if layout == DLEDGER and name in OF_MESSAGES:
            raise ConfigError(
                f"option {name!r} is for messages, and the entries that 'layout' dledger reads "
                "have neither topic nor time: leave it away, or set 'layout' to rocketmq if a "
                "broker wrote them"
            )


def _selection(values: Mapping[str, str]) -> Selection:
    """Topics have any names there, such as ``%RETRY%group``."""
    given = [name for name in OF_MESSAGES[:3] if values.get(name, "").strip()]
    if len(given) > 1:
        raise ConfigError(f"{given[0]!r} and {given[1]!r} both say what to read: give one of them")
    if given == ["subscribePattern"]:
        return Selection(pattern=java_pattern("subscribePattern", values["subscribePattern"]))
    text = values[given[0]] if given else ""
    return Selection(tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(","))))))


def _place(values: Mapping[str, str], option: str, use: str) -> int | None:
    """A physical offset, or a value for one end of the log."""
    if option not in values:
        return None
    text = values[option].strip().lower()
    words = {
        "endingOffsets": {"latest": LATEST},
        "startingOffsets": {"earliest": EARLIEST, "latest": LATEST},
    }[option]
    if text in words:
        if words[text] == LATEST and option == "startingOffsets" and use == BATCH:
            raise ConfigError(
                "'startingOffsets' latest would read nothing in a batch: write earliest or a place"
            )
        return words[text]
    if not text.isdecimal():
        raise ConfigError(
            f"option {option!r} is {values[option]!r}: write {' or '.join(words)}, or a place in "
            "the log in bytes, as in the column physicalOffset"
        )
    return int(text)


def _stored(values: Mapping[str, str], option: str) -> int | None:
    """Milliseconds since 1970, rounded up: stores know no finer times."""
    return None if option not in values else -(-time_us(option, values[option]) // 1000)


def _storage_options(values: Mapping[str, str]) -> dict[str, Any]:
    try:
        options = json.loads(values.get("storageOptions", "{}"))
    except ValueError:
        options = None
    if not isinstance(options, dict):  # its text may be a secret
        raise ConfigError(
            "option 'storageOptions' is no JSON object: write it as in {\"anon\": true}"
        )
    return options


def _table(values: Mapping[str, str]) -> str:
    if "metadata" not in values:
        return ""
    name = values["metadata"].strip().lower()
    if name not in STORE_TABLES:
        raise ConfigError(
            f"option 'metadata' is {values['metadata']!r}{nearest(name, list(STORE_TABLES))}: "
            f"with 'layout' there is {' and '.join(STORE_TABLES)}"
        )
    for other in (*OF_MESSAGES, "onDamage", "columns"):
        if other in values:
            raise ConfigError(f"option {other!r} says nothing to the table {name!r}: leave it away")
    return name
