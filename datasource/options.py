"""Every option of format "dledger": one table, from which the documentation is checked, and its parser. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dledger.config import MIB, check_name, nearest, parse_peers
from dledger.datasource.offsets import Positions, parse_positions
from dledger.datasource.settings import PREFIX, Settings, duration_ms, parse_settings, whole_number, yes_or_no
from dledger.errors import ConfigError, UnknownOption


@dataclass(frozen=True, slots=True)
class Option:
    """One row of docs/options.md."""

    name: str
    default: str
    where: str
    """``all``, or some of ``batch read``, ``stream read``, ``write``, separated by commas."""
    meaning: str


OPTIONS: Final = (
    Option("path", "", "all", "Directory of a group of nodes on this machine; `.load(path)` and `.save(path)` set it. "
           "A write makes the group where there is none; whoever comes first starts its nodes."),
    Option("replicas", "3 for a new group", "all", "Nodes of the group of a path: 1, 3, 5 or 7."),
    Option("dledger.bootstrap.servers", "", "all", "`host:port,...` of a running group, in place of a path."),
    Option("bootstrap.servers", "", "all", "The same as `dledger.bootstrap.servers`."),
    Option("dledger.peers", "", "all", "`n0-host:port;n1-host:port`: all nodes of a group of which this application "
           "runs one; its files lie under the path."),
    Option("dledger.selfId", "", "all", "Which of `dledger.peers` this application runs."),
    Option("dledger.*", "", "all", "Any other setting of the client, or of the group of a path: "
           "`dledger.request.timeout.ms`, `dledger.flush`."),
    Option("subscribe", "", "batch read, stream read", "Topics to read, separated by commas."),
    Option("topic", "", "all", "The topic to write; it overrides a column `topic`. In a read: the same as "
           "`subscribe` with one topic."),
    Option("startingOffsets", "earliest in batch, latest in a stream", "batch read, stream read",
           "`earliest`, `latest` (stream only) or JSON, as in `{\"orders\": {\"0\": 23, \"1\": -2}}`; -2 is earliest, "
           "-1 latest. A stream that has a checkpoint goes on from there."),
    Option("endingOffsets", "latest", "batch read", "`latest` or JSON; where a batch read stops. Fixed when the read "
           "is planned."),
    Option("maxOffsetsPerTrigger", "no limit", "stream read", "Most records of one micro-batch, over all partitions."),
    Option("maxBytesPerTrigger", "no limit", "stream read", "Most stored bytes of one micro-batch (`64m`, `1g`); the "
           "smaller one of the two limits counts."),
    Option("minPartitions", "one for each partition and 64 MiB", "batch read, stream read",
           "Least number of Spark tasks to cut a read into."),
    Option("failOnDataLoss", "true", "batch read, stream read", "Fail when records that should be read are no longer "
           "kept, naming them; false: warn and go on behind them."),
    Option("includeHeaders", "false", "batch read, stream read", "Add the column `headers`."),
    Option("createTopic", "true for a path, false for servers", "write", "Create a topic that is not there."),
    Option("createTopic.partitions", "1", "write", "Partitions of a topic that is created."),
    Option("compression", "none", "write", "`none`, `lz4` or `zstd`: how records are stored and sent."),
    Option("txnId", "", "write", "Names a write. In foreachBatch it tells apart two writes to one topic; a batch job "
           "that is run again under the same name does not write again."),
    Option("txnTimeout", "1h", "write", "Records staged by a task are dropped when nobody has committed them for this "
           "long (`30m`, `2h`)."),
)  # fmt: skip
"""The whole table, in the order of the documentation."""

_BY_LOWER: Final = {o.name.lower(): o.name for o in OPTIONS if "*" not in o.name}
_ADDED_BY_SPARK: Final = {"checkpointlocation", "queryname", "provider", "owner", "outputmode", "is_managed_location"}
_SIZE: Final = {"k": 1 << 10, "m": MIB, "g": MIB << 10, "b": 1}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write, checked."""

    path: str = ""
    """Absolute, or empty."""
    replicas: int | None = None
    """None: 3 for a new group, what it has for an existing one."""
    bootstrap_servers: str = ""
    peers: str = ""
    self_id: str = ""
    settings: Settings = field(default_factory=Settings)
    topics: tuple[str, ...] = ()
    topic: str = ""
    starting: str | Positions | None = None
    ending: str | Positions | None = None
    max_offsets: int | None = None
    max_bytes: int | None = None
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    include_headers: bool = False
    create_topic: bool = False
    create_partitions: int = 1
    compression: str = "none"
    txn_id: str = ""
    txn_timeout_ms: int = 3_600_000

    @property
    def address(self) -> str:
        """The group as the user named it, for messages."""
        return self.bootstrap_servers or self.peers or self.path


def parse_options(given: Mapping[str, str]) -> Options:
    """Check options as Spark hands them over: names in any case, values as text.

    Raises:
        UnknownOption: there is no such option; the message has the nearest one.
        ConfigError: a value cannot be, or two options contradict one another.
    """
    values, loose = _sort(given)
    servers = _servers(values)
    path = _local_path(values.get("path", ""))
    peers, self_id = values.get("dledger.peers", ""), values.get("dledger.selfId", "")
    if bool(peers) != bool(self_id):
        raise ConfigError("options 'dledger.peers' and 'dledger.selfId' go together: all nodes, and the one run here")
    if peers and self_id not in parse_peers(peers):
        raise ConfigError(f"option 'dledger.selfId' is {self_id!r}, which is none of the peers {peers!r}")
    settings = parse_settings(loose)
    if settings.group and servers:
        raise ConfigError(
            f"option {PREFIX + next(iter(settings.group))!r} is for a group that belongs to a path; "
            f"the group at {servers} has its settings already"
        )
    topic, topics = _topics(values)
    return Options(
        path=path,
        replicas=_limit(values, "replicas"),
        bootstrap_servers=servers,
        peers=peers,
        self_id=self_id,
        settings=settings,
        topics=topics,
        topic=topic,
        starting=_positions(values, "startingOffsets"),
        ending=_positions(values, "endingOffsets"),
        max_offsets=_limit(values, "maxOffsetsPerTrigger"),
        max_bytes=_limit(values, "maxBytesPerTrigger"),
        min_partitions=_limit(values, "minPartitions") or 0,
        fail_on_data_loss=_flag(values, "failOnDataLoss", True),
        include_headers=_flag(values, "includeHeaders", False),
        create_topic=_flag(values, "createTopic", not servers),
        create_partitions=_limit(values, "createTopic.partitions") or 1,
        compression=_compression(values),
        txn_id=check_name("option 'txnId'", values["txnId"]) if values.get("txnId") else "",
        txn_timeout_ms=duration_ms("txnTimeout", values.get("txnTimeout", "1h")),
    )


def need_group(options: Options) -> None:
    """Check that exactly one way to find a group was given.

    Raises:
        ConfigError: none was, or two were.
    """
    if not options.address:
        raise ConfigError(
            "which log? Give a path, as in .load('/data/log') or .save('/data/log'), or the option "
            "'dledger.bootstrap.servers' with host:port of a running group"
        )
    if options.bootstrap_servers and (options.path or options.peers):
        raise ConfigError(
            f"both 'dledger.bootstrap.servers' ({options.bootstrap_servers}) and "
            f"{options.path or options.peers!r} say which log: give only one"
        )


def need_topics(options: Options) -> tuple[str, ...]:
    """The topics to read.

    Raises:
        ConfigError: none was named.
    """
    if not options.topics:
        raise ConfigError("which topics? Give the option 'subscribe', as in .option('subscribe', 'orders,payments')")
    return options.topics


def _sort(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    values: dict[str, str] = {}
    loose: dict[str, str] = {}
    for name, text in given.items():
        lower = name.lower()
        if lower in _BY_LOWER:
            values[_BY_LOWER[lower]] = text
        elif lower.startswith(PREFIX):
            loose[lower] = text
        elif lower not in _ADDED_BY_SPARK and not lower.startswith("option."):
            close = nearest(lower.replace("kafka.", PREFIX, 1), list(_BY_LOWER))
            for short, full in _BY_LOWER.items():
                close = close.replace(f"'{short}'", f"'{full}'")
            raise UnknownOption(f"unknown option {name!r}{close}; docs/options.md has all of them")
    return values, loose


def _servers(values: dict[str, str]) -> str:
    first, second = values.get("dledger.bootstrap.servers", ""), values.get("bootstrap.servers", "")
    if first and second and first != second:
        raise ConfigError(f"'dledger.bootstrap.servers' is {first!r} but 'bootstrap.servers' is {second!r}: give one")
    servers = ",".join(filter(None, (part.strip() for part in (first or second).split(","))))
    for server in filter(None, servers.split(",")):
        host, colon, port = server.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            raise ConfigError(f"option 'dledger.bootstrap.servers' has {server!r}: write host:port,host:port")
    return servers


def _local_path(path: str) -> str:
    scheme, separator, rest = path.partition(":")
    if separator and scheme.lower() == "file":
        path = "/" + rest.lstrip("/")
    elif separator and rest.startswith("//"):
        raise ConfigError(f"the path {path!r} is on {scheme!r}; a log's path is a directory on a local disk")
    return os.path.abspath(path) if path else ""  # noqa: PTH100 - text in, text out; nothing is looked up


def _topics(values: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    topic = values.get("topic", "").strip()
    names = [part.strip() for part in values.get("subscribe", topic).split(",")]
    names = [name for name in names if name]
    for name in [*names, *([topic] if topic else [])]:
        check_name("topic", name)
    if topic and values.get("subscribe") and names != [topic]:
        raise ConfigError(f"'subscribe' is {values['subscribe']!r} but 'topic' is {topic!r}: a read needs only one")
    return topic, tuple(dict.fromkeys(names))


def _positions(values: dict[str, str], name: str) -> str | Positions | None:
    return parse_positions(name, values[name]) if name in values else None


def _limit(values: dict[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    unit = text.strip().lower()[-1:]
    if name == "maxBytesPerTrigger" and unit in _SIZE:
        return whole_number(name, text.strip()[:-1]) * _SIZE[unit]
    return whole_number(name, text)


def _flag(values: dict[str, str], name: str, default: bool) -> bool:
    return yes_or_no(name, values[name]) if name in values else default


def _compression(values: dict[str, str]) -> str:
    codec = values.get("compression", "none").strip().lower()
    if codec not in {"none", "lz4", "zstd"}:
        raise ConfigError(f"option 'compression' is {codec!r}: write none, lz4 or zstd")
    return codec


__all__ = ["OPTIONS", "Option", "Options", "need_group", "need_topics", "parse_options"]
