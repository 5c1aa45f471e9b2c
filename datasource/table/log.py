"""The log as the Spark edge sees it: found by its options on the driver, then questions about
topics."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from dledger import path_groups
from dledger.client import Client, Span
from dledger.client.blocking.pool import shared_client
from dledger.client.protocol.results import Lineage, Range
from dledger.config import RACK_VARIABLE
from dledger.datasource.options.offsets import Positions
from dledger.datasource.options.options import Options, need_group
from dledger.errors import (
    ConfigError,
    OffsetOutOfRange,
    TopicNotFound,
    TopicRecreated,
    Unavailable,
    WrongGroup,
)
from dledger.net.secret import read_credentials
from dledger.protocol.messages.client import OffsetKind, TopicInfo

T = TypeVar("T")
LOOKS: Final = 5
"""So often topics are asked for anew when one went between two questions."""
LOOPBACK: Final = {"127.0.0.1", "::1", "[::1]", "localhost"}


@dataclass(frozen=True, slots=True)
class Address:
    """How an executor reaches the group: plain values that travel with each task."""

    bootstrap_servers: str
    settings: dict[str, Any] = field(default_factory=dict)
    """Client settings."""
    local_to: str = ""
    """Host of a group that listens on loopback, which only that host can reach."""
    group_id: str = ""
    """Of the group for which a task was planned: numbers of topics and offsets mean nothing in
    another one."""
    path: str = ""
    """Of a path's group: it may have other nodes by the time the task runs."""
    group: str = ""
    """Its name: at the same path of another host there may be another group."""

    def __reduce__(self) -> tuple[Any, ...]:
        """With the credentials themselves, whose file may not be there where a task runs."""
        settings = dict(self.settings)
        if isinstance(file := settings.get("credentials"), str):
            settings["credentials"] = replace(read_credentials(file), file=file)
        found = (self.bootstrap_servers, settings, self.local_to, self.group_id)
        return Address, (*found, self.path, self.group)

    def client(self) -> Client:
        """This process's client for the group.

        Raises:
            ConfigError: the group listens on another machine's loopback.

        Its calls raise WrongGroup where another group is at these addresses.
        """
        if self.local_to and self.local_to != platform.node():
            raise ConfigError(
                f"this task runs on host {platform.node()}, but the group at "
                f"{self.bootstrap_servers} can only be reached on host {self.local_to}: set "
                "option 'dledger.advertise.host' to that host's name when the group is made, and "
                "'dledger.secret.file' for the executors; or use a group of its own machines "
                "with 'dledger.bootstrap.servers'"
            )
        group, servers = path_groups.told_by(self.path) if self.path else ("", "")
        if not servers or group != self.group:
            servers = self.bootstrap_servers
        settings = self.settings
        if "rack" not in settings and (rack := os.environ.get(RACK_VARIABLE)):
            settings = {**settings, "rack": rack}  # of this process: executors stand anywhere
        return shared_client(servers, group_id=self.group_id, **settings)


def find_group(options: Options, create: bool = False) -> Address:
    """Find the group that the options name; one that belongs to a path is started when it does not
    run, and with ``create`` made when it does not exist.

    To be called on the driver: an executor on another machine must not start a group of its own.

    Raises:
        ConfigError, PathError, WrongGroup, Unavailable: as the message says.
    """
    need_group(options)
    settings = dict(options.settings.client)
    if options.bootstrap_servers:
        return Address(options.bootstrap_servers, settings)
    from dledger.embedded import connect_path  # only the driver may load the code that starts nodes

    if options.peers:
        return Address(_own_node(options), settings)
    # The group has a secret of its own in its directory; the option says where its clients find a
    # copy.
    of_nodes = {
        name: value for name, value in options.settings.group.items() if name != "secret_file"
    }
    servers = connect_path(options.path, options.replicas, create=create, **of_nodes)
    hosts = {server.rpartition(":")[0] for server in servers.split(",")}
    local_to = platform.node() if hosts <= LOOPBACK else ""
    group, _ = path_groups.told_by(options.path)
    return Address(servers, settings, local_to, path=options.path, group=group)


def _own_node(options: Options) -> str:
    from dledger.embedded import EmbeddedNode

    if not options.path:
        raise ConfigError(
            f"node {options.self_id!r} of 'dledger.peers' keeps its files in the path: add "
            ".load('/data/log') or .save('/data/log')"
        )
    node = EmbeddedNode(
        path=options.path, peers=options.peers, self_id=options.self_id, **options.settings.group
    )
    return node.bootstrap_servers


class GroupView(NamedTuple):
    """Where topics end at one moment, their log ids, and where they begin."""

    offsets: Positions
    ids: dict[str, str]
    begins: Positions


def until_settled(question: Callable[[], T], changed: Callable[[], bool]) -> T:
    """Ask, and ask anew when topics have ``changed`` between two parts of the question."""
    for _ in range(LOOKS):
        try:
            return question()
        except (TopicNotFound, TopicRecreated, OffsetOutOfRange):
            if not changed():
                raise  # not for what has changed
    return question()


@dataclass(slots=True)
class Log:
    """Questions to the group, asked again at a new address when all its nodes have moved (they were
    all restarted). The caller must then check which group answers (`lineage`)."""

    options: Options
    address: Address | None = None
    group_id: str = ""
    """The last `lineage`."""
    _ranges: tuple[list[Any], ...] = ()
    _sizes: list[int] = field(default_factory=list)

    def found(self) -> Address:
        """The group's address; found once."""
        if self.address is None:
            self.address = find_group(self.options)
        return self.address

    def ask(self, question: Callable[[Client], T]) -> T:
        """Ask, and when no node can be reached, or another group than this process has met there
        before, look for the group once more."""
        try:
            return question(self.found().client())
        except (Unavailable, WrongGroup) as error:
            if self.options.bootstrap_servers and isinstance(error, Unavailable):
                raise
            self.address = None
            return question(self.found().client())

    def lineage(self) -> Lineage:
        """Which group answers now. Tasks that are planned from now on are for this one."""
        found = self.ask(lambda client: client.lineage())
        self.group_id = found.group_id
        return found

    def select(self) -> dict[str, TopicInfo]:
        """The topics to read, as they are now; under a pattern perhaps none.

        Raises:
            TopicNotFound: one that is named is not there; the message has those that are.
            OffsetOutOfRange: a partition that is named is not there.
        """
        selection = self.options.selection
        if selection.pattern:
            return {
                info.name: info
                for info in self.ask(lambda client: client.topics())
                if selection.fits(info.name)
            }
        infos = self.topics(selection.names)
        for name, info in infos.items():
            selection.part(name, dict.fromkeys(range(info.partitions), 0))
        return infos

    def settled(self, question: Callable[[dict[str, TopicInfo]], T]) -> T:
        """Ask about the topics to read, and ask anew when one of them goes, or is made again,
        between two questions.

        Raises:
            TopicNotFound: one that is named is not there.
        """
        infos = self.select()

        def changed() -> bool:
            nonlocal infos
            before, infos = infos, self.select()
            return infos != before

        return until_settled(lambda: question(infos), changed)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """The state of these topics.

        Raises:
            TopicNotFound: one is not there; the message has those that are.
        """
        wanted = tuple(names)
        try:
            return self.ask(lambda client: client.described(wanted))
        except TopicNotFound as error:
            there = [info.name for info in self.ask(lambda client: client.topics())]
            name = next((name for name in wanted if name not in there), wanted[0])
            raise TopicNotFound(
                f"topic {name!r} does not exist in {self.options.address}; topics there: "
                f"{self.some_names()}. Create "
                f"it: dledger topics create {name}, Client.create_topic({name!r}), or a write to it"
            ) from error

    def some_names(self) -> str:
        """Topics that there are, for messages."""
        return (
            ", ".join(info.name for info in self.ask(lambda client: client.topics())[:20]) or "none"
        )

    def look(
        self, names: Iterable[str], newer_than: Positions | None = None, wait_ms: int = 0
    ) -> GroupView:
        """Where these topics end and begin, linearizable, and which topics they are. With
        ``newer_than`` and ``wait_ms`` the answer may take that long, while nothing is newer.

        Raises:
            TopicNotFound: one is not there.
        """
        asked = tuple(names)
        try:
            return self._edges(asked, newer_than=newer_than or {}, wait_ms=wait_ms)
        except TopicNotFound:
            self.topics(asked)  # says which one, and what is there instead
            raise

    def edges(self, ids: Mapping[str, str]) -> GroupView:
        """Where every partition that is read of these topics (name -> log id) ends and begins,
        linearizable.

        Raises:
            TopicRecreated: a topic is another one by now.
        """
        try:
            view = self._edges(tuple(ids))
        except TopicNotFound:
            for topic, log_id in ids.items():
                check_ids(
                    {topic: log_id},
                    {name: info.log_id for name, info in self.topics([topic]).items()},
                )
            raise
        check_ids(ids, view.ids)
        return view

    def at_times(self, ids: Mapping[str, str], times_us: Positions) -> Positions:
        """The first offset at or after each time, -1 where no record is that new; raises as
        `edges`."""
        if not times_us:
            return {}
        answer = self.ask(lambda client: client.offsets_at(times_us))
        check_ids(ids, answer.log_ids)
        return {topic: dict(answer.offsets[topic]) for topic in times_us}

    def committed(self) -> Positions:
        """The offsets that the consumer group of option groupId has processed."""
        return self.ask(lambda client: client.group(self.options.group_id)).offsets

    def _edges(self, names: tuple[str, ...], **more: Any) -> GroupView:
        if not names:
            return GroupView({}, {}, {})
        answer = self.ask(lambda client: client.offsets(names, OffsetKind.EDGES, **more))
        ends, begins = (
            {name: self.options.selection.part(name, found) for name, found in offsets.items()}
            for offsets in (answer.offsets, answer.begins)
        )
        return GroupView(ends, answer.log_ids, begins)

    def sizes(
        self, topics: list[str], partitions: list[int], starts: list[int], ends: list[int]
    ) -> list[int]:
        """The stored bytes of each range [start, end) of a partition; by one question, or none when
        they are the ranges of the one before: stored batches do not change."""
        ranges = topics, partitions, starts, ends
        if topics and ranges != self._ranges:
            self._sizes = self.ask(lambda client: client.stored_bytes(*ranges))
            self._ranges = ranges
        return self._sizes if topics else []

    def split(self, spans: Sequence[Span]) -> list[list[Range]]:
        """Cut each span between stored batches into pieces of at least its target; by one
        question."""
        return self.ask(lambda client: client.split_many(spans))


def check_ids(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse topics that were deleted and created again since their offsets were noted.

    Raises:
        TopicRecreated: with the way out.
    """
    for topic, log_id in wanted.items():
        if found.get(topic) != log_id:
            raise TopicRecreated(
                f"topic {topic!r} was deleted and created again since this read began: the "
                f"offsets of its former life (log id {log_id}) mean nothing in it. For a stream: "
                "give the query a new checkpointLocation"
            )
