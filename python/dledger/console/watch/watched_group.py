"""The group that the console shows: each question by a public client, each answer for all pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from dledger.client import AclRule, Client, DynamicSetting, Lag, MemberState, UserState
from dledger.config import Tls
from dledger.config.log_paths import is_log_path
from dledger.console.views.certificates import CertificateRow
from dledger.console.views.topics import Places, Rate, rates
from dledger.console.watch.certificates import certificates
from dledger.console.watch.samples import NamedSamples, Sample
from dledger.embedded.group import read_group
from dledger.environment import REAL
from dledger.errors import ConfigError, TopicNotFound
from dledger.protocol.messages.client import TopicInfo

LOOK: Final[dict[str, Any]] = {"connect_timeout_ms": 600, "request_timeout_ms": 3000}
"""Of the client that looks: a page shows within two seconds that a node is gone."""
CERTIFICATES_S: Final = 60.0
ACCESS_S: Final = 3.0
"""Users, rules, quotas and settings change seldom; of rules there may be 10,000."""
_ANY_HOST: Final = ("0.0.0.0", "::")


NodesNow = dict[str, dict[str, Any]]
"""What each node says of itself."""


@dataclass(frozen=True, slots=True)
class TopicsNow:
    """All topics at one moment."""

    infos: Mapping[str, TopicInfo] = field(default_factory=dict)
    places: Places = field(default_factory=dict)
    rated: Mapping[tuple[str, int], Rate] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class GroupNow:
    """One consumer group at one moment."""

    lags: Sequence[Lag]
    members: Sequence[MemberState]


class WatchedGroup:
    """What the pages show of a group, and the clients by which they ask.

    Args:
        target: addresses of nodes, or the directory of a path's group, which is there.
        timeout_ms: of a change.
        settings: those of `Client` by which it proves who it is.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout_ms: int = 15_000,
        **settings: Any,
    ) -> None:
        self.place = target if is_log_path(target) else ""
        """Of a path's group."""
        self.looking = Client(target, **settings, **LOOK)
        self.changing = Client(target, **settings, request_timeout_ms=timeout_ms)
        self.tls: Tls | None = self.changing.core.config.tls
        self._pool, self._group_pool = ThreadPoolExecutor(8), ThreadPoolExecutor(16)
        pool = self._pool
        self.nodes: Sample[NodesNow] = Sample(self._nodes, pool)
        self.topics: Sample[TopicsNow] = Sample(self._topics, pool)
        self.group_names: Sample[list[str]] = Sample(self.looking.groups, pool)
        self.groups: NamedSamples[GroupNow] = NamedSamples(self._group, self._group_pool)
        self.certificates: Sample[list[CertificateRow]] = Sample(
            self._certificates, pool, fresh_s=CERTIFICATES_S
        )
        self.users: Sample[list[UserState]] = Sample(self.looking.users, pool, fresh_s=ACCESS_S)
        self.acls: Sample[list[AclRule]] = Sample(self.looking.acls, pool, fresh_s=ACCESS_S)
        self.quotas: Sample[dict[str, dict[str, int]]] = Sample(
            self.looking.quotas, pool, fresh_s=ACCESS_S
        )
        self.settings: Sample[list[DynamicSetting]] = Sample(
            self.looking.settings, pool, fresh_s=ACCESS_S
        )
        self._before = TopicsNow()

    def close(self) -> None:
        """End all that is on its way, and the connections."""
        for pool in (self._pool, self._group_pool):
            pool.shutdown(cancel_futures=True)
        self.looking.close()
        self.changing.close()

    def topic(self, name: str) -> TopicInfo:
        """A topic as it is now.

        Raises:
            TopicNotFound: there is none, or no name can be so.
        """
        try:
            return self.looking.topic(name)
        except ConfigError as error:
            raise TopicNotFound(str(error)) from None

    def own_settings(self) -> list[tuple[str, str]]:
        """What the group of a path was given; others tell a client nothing of it.

        Raises:
            PathError, ConfigError: its directory cannot be read any more.
        """
        if not self.place:
            return []
        _, file = read_group(self.place)
        return [(name, str(value)) for name, value in sorted(file.settings.items())]

    def changed(self, group: str = "") -> None:
        """Something was changed by this console: its pages show it at once."""
        for sample in (
            self.nodes,
            self.topics,
            self.group_names,
            self.users,
            self.acls,
            self.quotas,
        ):
            sample.forget()
        self.groups.forget(group)

    def _nodes(self) -> NodesNow:
        return {str(node): said for node, said in self.looking.status().items()}

    def _topics(self) -> TopicsNow:
        infos = {info.name: info for info in self.looking.topics()}
        places = {(one.topic, one.partition): one for one in self.looking.partitions()}
        before, at_ms = self._before, REAL.now_ms()
        rated = rates(before.places, places, (at_ms - before.at_ms) / 1000)
        self._before = TopicsNow(infos, places, rated, at_ms)
        return self._before

    def _group(self, name: str) -> GroupNow:
        return GroupNow(self.looking.lag(name), self.looking.members(name))

    def _certificates(self) -> list[CertificateRow]:
        if self.tls is None:
            return []
        found = dict.fromkeys(self.looking.bootstrap_servers.split(","))
        for said in self.looking.status().values():
            # without "describe cluster" a status has no address
            if (host := said.get("host")) and host not in _ANY_HOST:
                found[f"{host}:{said['port']}"] = None
        return certificates(self.tls, found)
