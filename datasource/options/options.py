"""The options of one read or write: parsed, checked by themselves and against one another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dledger.client.protocol.reading.damage import FAIL, SKIP
from dledger.config import check_name, nearest
from dledger.config.log_paths import local_path
from dledger.datasource.options.addresses import check_group, group_servers
from dledger.datasource.options.bounds import Bound, BoundKind, parse_bound
from dledger.datasource.options.kafka_options import kafka_advice
from dledger.datasource.options.option_table import ALL, BATCH, OPTIONS, TABLES, is_for
from dledger.datasource.options.option_values import flag, names, size_or_number, word
from dledger.datasource.options.rate_limits import RateLimits, rate_limits
from dledger.datasource.options.selection import Selection, parse_selection
from dledger.datasource.options.settings import (
    PREFIX,
    Settings,
    duration_ms,
    is_setting,
    nearest_setting,
    nearest_spelled,
    parse_settings,
)
from dledger.errors import ConfigError, UnknownOption

_BY_LOWER: Final = {name.lower(): name for name in OPTIONS if "*" not in name}
_ADDED_BY_SPARK: Final = {
    "checkpointlocation",
    "queryname",
    "provider",
    "owner",
    "outputmode",
    "is_managed_location",
}
CREATE: Final = "createTopic."
DESCRIPTION: Final = "createTopic.description"
OF_TRANSACTIONS: Final = ("txnId", "txnTimeout", "onReplayMismatch")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write, checked."""

    path: str = ""
    """Absolute, or empty."""
    replicas: int | None = None
    """None: 3 for a new group, its own number for an existing one."""
    bootstrap_servers: str = ""
    peers: str = ""
    self_id: str = ""
    settings: Settings = field(default_factory=Settings)
    selection: Selection = field(default_factory=Selection)
    topic: str = ""
    starting: Bound | None = None
    ending: Bound | None = None
    group_id: str = ""
    hold_retention: bool | None = None
    """None: the group's retention hold stays as it is."""
    limits: RateLimits = field(default_factory=RateLimits)
    min_partitions: int = 0
    max_task_records: int | None = None
    max_task_bytes: int | None = None
    fail_on_data_loss: bool = True
    on_damage: str = FAIL
    """``fail`` or ``skip``: of records that nobody can open."""
    restart_recreated: bool = False
    """A topic that was created again is read from its first record; otherwise it is an error."""
    wait_ms: int = 200
    columns: tuple[str, ...] = ()
    """That are read; empty: all of the table."""
    pushdown_mark: int = 0
    """Of a DataFrame whose filters limit what is read; 0: they do not."""
    include_headers: bool = False
    include_metadata: bool = False
    metadata: str = ""
    """Which of the log's own tables is read; empty: records."""
    starting_entry: int = 0
    """Of such a table; below 0 counted back from the log's end."""
    create_topic: bool = False
    create_partitions: int | None = None
    create_settings: dict[str, Any] = field(default_factory=dict)
    """Of a topic that is created, beside its partitions."""
    topic_type: str = ""
    """``raw``, ``typed``, or empty: as the topic or the frame is."""
    evolves: bool = False
    """Whether a frame may change a typed topic's columns."""
    key_column: str = ""
    time_column: str = ""
    schema_version: int | None = None
    """None: the newest one."""
    as_json: bool = False
    """Typed topics are read as keys and values."""
    partitioner: str = "murmur2"
    exactly_once: bool = True
    compression: str = "none"
    txn_id: str = ""
    txn_timeout_ms: int = 3_600_000
    keeps_committed: bool = False

    @property
    def address(self) -> str:
        """The group as the user named it, for messages."""
        return self.bootstrap_servers or self.peers or self.path


def parse_options(given: Mapping[str, str], use: str = "") -> Options:
    """Check options as Spark hands them over: names in any case, values as text.

    Args:
        use: ``batch read``, ``stream read`` or ``write``; empty where that is not known yet.

    Raises:
        UnknownOption: options that do not exist, each with the way out.
        ConfigError: a value cannot be, options contradict one another, or one is not for this use.
    """
    values, loose = sort_options(given)
    check_use(values, use)
    _refuse_of_stores(values)
    servers, settings = group_servers(values), parse_settings(loose)
    check_group(values, servers, settings)
    topic = check_name("topic", values["topic"].strip()) if values.get("topic", "").strip() else ""
    starting, ending = parse_bound(values, "starting"), parse_bound(values, "ending")
    return Options(
        path=local_path(values.get("path", "")),
        replicas=size_or_number(values, "replicas"),
        bootstrap_servers=servers,
        peers=values.get("dledger.peers", ""),
        self_id=values.get("dledger.selfId", ""),
        settings=settings,
        selection=parse_selection(values, topic),
        topic=topic,
        starting=starting,
        ending=ending,
        group_id=_group_id(values, use, starting, ending),
        hold_retention=flag(values, "holdRetention", None),
        limits=rate_limits(values),
        min_partitions=size_or_number(values, "minPartitions") or 0,
        max_task_records=size_or_number(values, "maxRecordsPerPartition"),
        max_task_bytes=size_or_number(values, "maxBytesPerPartition"),
        fail_on_data_loss=flag(values, "failOnDataLoss", True),
        on_damage=word(values, "onDamage", (FAIL, SKIP)),
        restart_recreated=word(values, "onTopicRecreate", ("fail", "restart")) == "restart",
        wait_ms=duration_ms("fetch.maxWaitMs", values.get("fetch.maxWaitMs", "200")),
        columns=_columns(values),
        pushdown_mark=_pushdown_mark(values),
        include_headers=flag(values, "includeHeaders", False),
        include_metadata=flag(values, "includeMetadata", False),
        metadata=_metadata(values),
        starting_entry=_starting_entry(values),
        create_topic=_creates(values, not servers),
        create_partitions=size_or_number(values, "createTopic.partitions"),
        create_settings={"description": values[DESCRIPTION]} if DESCRIPTION in values else {},
        topic_type=word(values, "topicType", ("", "raw", "typed")),
        evolves=word(values, "schemaEvolution", ("none", "add")) == "add",
        key_column=values.get("keyColumn", "").strip(),
        time_column=values.get("timeColumn", "").strip(),
        schema_version=size_or_number(values, "schemaVersion"),
        as_json=_as_json(values),
        partitioner=word(values, "partitioner", ("murmur2", "roundRobin", "explicit")),
        exactly_once=_exactly_once(values),
        compression=word(values, "compression", ("none", "lz4", "zstd")),
        txn_id=check_name("option 'txnId'", values["txnId"]) if values.get("txnId") else "",
        txn_timeout_ms=duration_ms("txnTimeout", values.get("txnTimeout", "1h")),
        keeps_committed=word(values, "onReplayMismatch", ("fail", "keep")) == "keep",
    )


def _refuse_of_stores(values: Mapping[str, str]) -> None:
    if "storageOptions" in values:
        raise ConfigError(
            "option 'storageOptions' is for the files of a store: give the option 'layout' too"
        )


def need_group(options: Options, hint: str = "") -> None:
    """Check that exactly one way to find a group was given; ``hint`` ends the message when none
    was.

    Raises:
        ConfigError: none was, or two were.
    """
    if not options.address:
        raise ConfigError(
            "which log? Give a path, as in .load('/data/log') or .save('/data/log'), or the option "
            "'dledger.bootstrap.servers' with host:port of a running group"
            + (f". {hint}" if hint else "")
        )
    if options.bootstrap_servers and (options.path or options.peers):
        raise ConfigError(
            f"both 'dledger.bootstrap.servers' ({options.bootstrap_servers}) and "
            f"{options.path or options.peers!r} say which log: give only one"
        )


def need_topics(options: Options) -> Selection:
    """The topics to read.

    Raises:
        ConfigError: no topics were named.
    """
    if not options.selection.given:
        raise ConfigError(
            "which topics? Give the option 'subscribe', as in .option('subscribe', "
            "'orders,payments'), or 'subscribePattern' or 'assign'"
        )
    return options.selection


def check_use(values: Mapping[str, str], use: str) -> None:
    """Refuse options that say nothing to this use.

    Raises:
        ConfigError: naming the first one.
    """
    for name in values:
        if use and not is_for(OPTIONS[name], use):
            kinds = " or ".join(f"a {kind}" for kind in OPTIONS[name].split(", "))
            raise ConfigError(
                f"option {name!r} is for {kinds} and says nothing to a {use}: leave it away here"
            )


def sort_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options by the names of the table, and those of ``dledger.*``.

    Raises:
        UnknownOption: there is no such option; the message names all of these, each with the
            nearest name, or with what to do about an option of Kafka.
    """
    values: dict[str, str] = {}
    loose: dict[str, str] = {}
    unknown: list[str] = []
    for name, text in given.items():
        lower = name.lower()
        if lower in _BY_LOWER:
            values[_BY_LOWER[lower]] = text
        elif lower.startswith(PREFIX) and is_setting(lower):
            loose[lower] = text
        elif lower not in _ADDED_BY_SPARK and not lower.startswith("option."):
            unknown.append(name)
    if unknown:
        raise UnknownOption(_refusal(unknown))
    return values, loose


def _refusal(unknown: list[str]) -> str:
    """What to do about each of these options."""
    told, of_kafka = [], 0
    for name in unknown:
        lower = name.lower()
        if advice := kafka_advice(lower):
            told.append(f"{name!r} of Kafka, {advice}")
            of_kafka += 1
        elif lower.startswith(PREFIX):
            told.append(f"{name!r}{nearest_setting(lower)}")
        else:
            told.append(f"{name!r}{nearest_spelled(lower, _BY_LOWER)}")
    page = "docs/from-kafka.md" if of_kafka == len(told) else "docs/options.md"
    if len(told) == 1:
        return f"unknown option {told[0]}; {page} has all of them"
    lines = [f"{len(told)} unknown options; {page} has all of them:", *told]
    return "\n  ".join(lines)


def _group_id(values: Mapping[str, str], use: str, *bounds: Bound | None) -> str:
    group = values.get("groupId", "").strip()
    committed = [
        bound.option for bound in bounds if bound is not None and bound.kind is BoundKind.COMMITTED
    ]
    if committed and not group:
        raise ConfigError(
            f"option {committed[0]!r} is committed: by whom? Give the option 'groupId'"
        )
    if "holdRetention" in values and not group:
        raise ConfigError(
            "option 'holdRetention' is for a consumer group: give the option 'groupId' too"
        )
    if "groupId" in values and not committed and use == BATCH:
        raise ConfigError(
            "option 'groupId' says whose offsets 'committed' means, and a batch read tells a group "
            "nothing: set 'startingOffsets' or 'endingOffsets' to committed, or leave it away"
        )
    return check_name("option 'groupId'", group) if "groupId" in values else ""


def _columns(values: Mapping[str, str]) -> tuple[str, ...]:
    for other in ("includeHeaders", "includeMetadata"):
        if "columns" in values and other in values:
            raise ConfigError(
                f"option {other!r} adds columns, and 'columns' names all that are read: name them "
                "there, and leave it away"
            )
    return names(values, "columns")


def _metadata(values: Mapping[str, str]) -> str:
    """The table's name; other options than those that find the group say nothing to it."""
    if "metadata" not in values:
        return ""
    name = values["metadata"].strip().lower()
    if name not in TABLES:
        raise ConfigError(
            f"option 'metadata' is {values['metadata']!r}{nearest(name, list(TABLES))}: write "
            f"{', '.join(TABLES[:-1])} or {TABLES[-1]}"
        )
    for other in values:
        if other == "topic" or (
            OPTIONS[other] != ALL and other not in {"metadata", "startingEntry"}
        ):
            raise ConfigError(
                f"option {other!r} is for records and says nothing to the table {name!r} of "
                "option 'metadata': leave it away, and filter the table, as in "
                ".where(\"topic = 'orders'\")"
            )
    return name


def _starting_entry(values: Mapping[str, str]) -> int:
    if "startingEntry" not in values:
        return 0
    if values.get("metadata", "").strip().lower() not in {"commits", "entries"}:
        raise ConfigError(
            "option 'startingEntry' is for 'metadata' commits or entries: set that too"
        )
    text = values["startingEntry"].strip()
    if not text.removeprefix("-").isdecimal():
        raise ConfigError(
            f"option 'startingEntry' is {text!r}: write an entry's index, or -1000 for the last "
            f"ones"
        )
    return int(text)


def _creates(values: Mapping[str, str], default: bool) -> bool:
    creates = flag(values, "createTopic", default)
    if not creates and (settings := [name for name in values if name.startswith(CREATE)]):
        raise ConfigError(
            f"option {settings[0]!r} is for a topic that is created: set 'createTopic' to true"
        )
    return creates


def _exactly_once(values: Mapping[str, str]) -> bool:
    once = word(values, "deliveryGuarantee", ("exactly-once", "at-least-once")) == "exactly-once"
    if not once and (of_transactions := [name for name in OF_TRANSACTIONS if name in values]):
        raise ConfigError(
            f"option {of_transactions[0]!r} is for transactions, which 'deliveryGuarantee' "
            "at-least-once does without: leave one of them away"
        )
    return once


def _pushdown_mark(values: Mapping[str, str]) -> int:
    text = values.get("filterPushdown", "0").strip()
    if not text.isdecimal() or ("filterPushdown" in values and int(text) < 1):
        raise ConfigError(
            f"option 'filterPushdown' is {text!r}, and is a number that "
            "dledger.spark.load_with_pushdown(reader, path) chooses for each DataFrame: write that "
            "in place of reader.load(path)"
        )
    return int(text)


def _as_json(values: Mapping[str, str]) -> bool:
    as_json = word(values, "valueFormat", ("", "json")) == "json"
    if as_json and "schemaVersion" in values:
        raise ConfigError(
            "option 'schemaVersion' says nothing to 'valueFormat' json, which shows each row as it "
            "was written: leave one of them away"
        )
    return as_json
