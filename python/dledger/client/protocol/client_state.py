"""The common part of the blocking and the asyncio client: settings, routes, and the operations,
written once as generators.

An operation yields a `Request` for each question and is sent `(answer, payload)`, or has the error
thrown into it; a shell (`dledger.client.blocking.transport`, `dledger.client.aio.transport`) does
the asking.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from dledger import path_groups
from dledger.client.protocol.racks import Racks
from dledger.client.protocol.routing import Call, CallPolicy, RetryTimes, Routes
from dledger.client.protocol.seen_end_offsets import SeenEndOffsets
from dledger.config import ClientConfig, Credentials, check_name, check_rack, from_settings
from dledger.config.log_paths import is_log_path, local_path
from dledger.environment import REAL, Environment
from dledger.errors import ConfigError, DLedgerError, Unavailable, WrongGroup
from dledger.net.address import split_addresses
from dledger.net.connections.certificates import client_contexts
from dledger.net.connections.handshake import Greeting, LoginRefused
from dledger.net.connections.tls import CertificateRefused
from dledger.net.reloaded import Reloaded
from dledger.net.secret import Secret, read_credentials, read_secret
from dledger.net.user_directory import group_secret
from dledger.protocol.messages.client import MetadataRequest, TopicInfo
from dledger.protocol.messages.codes import Code
from dledger.protocol.messages.hello import HelloRequest, HelloResponse
from dledger.protocol.wire import FrameLimits, Message
from dledger.records.body.header import Codec
from dledger.records.columns.types import Columns
from dledger.types import Buffer

T = TypeVar("T")
ATTEMPT_MS: Final = 5000
"""Longest silence after a request before it is asked again elsewhere. Only a request that is safe
to repeat is asked again."""
SERVER_MS: Final = 4000
"""The time a node is given for a write: it answers before we stop listening."""
LIMITS: Final = FrameLimits(payload_bytes=1 << 30)
"""The largest frames that a client takes. An answer is as large as the largest stored body, with
any limit of the group when it was written."""
CODECS: Final = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


@dataclass(frozen=True, slots=True)
class Request:
    """One question of an operation."""

    message: Message
    terms: CallPolicy
    payload: Sequence[Buffer] = ()
    attempt_ms: float = ATTEMPT_MS
    timeout_ms: float | None = None
    """For all attempts; None: the client's request_timeout_ms."""
    behind: Callable[[Any], str] | None = None
    """Why an answer is older than the client's knowledge, or ""; then it is asked again."""

    def outcome(self, answer: Any) -> tuple[Code, str, str]:
        """The outcome of an answer: its code, message, and hint at the leader."""
        code: Code = answer.code
        if code is Code.SUCCESS and self.behind is not None and (why := self.behind(answer)):
            return Code.BEHIND, why, ""
        return code, getattr(answer, "message", ""), getattr(answer, "leader_id", "")


PROBE: Final = Request(
    MetadataRequest(), CallPolicy(what="find the leader", anybody=True), attempt_ms=1000
)
"""The question of a `Probe`; `Call.learned` takes its answer."""
Operation = Generator[Request, tuple[Any, memoryview], T]


def _told_by(path: str, routes: Routes) -> list[str]:
    """Where the group is by its directory, unless that has another one by now."""
    group, servers = path_groups.told_by(path)
    return split_addresses(servers) if servers and routes.group in {"", group} else []


class OperationRunner(Protocol):
    """Carries out operations of a client that waits."""

    def __call__(self, operation: Operation[T], /) -> T: ...


@dataclass(slots=True)
class ClientState:
    """A client's settings and its knowledge of the group. Plain values: threads may share it."""

    bootstrap_servers: str
    config: ClientConfig
    routes: Routes
    environment: Environment = REAL
    contexts: Reloaded[ssl.SSLContext | None] = field(default_factory=lambda: client_contexts(None))
    """Of connections to the nodes; None in it for plain ones."""
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    """Topics as last seen; a wrong one is noticed when a node refuses its id."""
    ends: SeenEndOffsets = field(default_factory=SeenEndOffsets)
    schemas: dict[str, list[Columns]] = field(default_factory=dict)
    """The versions of typed topics' columns as far as they are known, by log id; none of them ever
    changes."""
    racks: Racks = field(default_factory=partial(Racks, ""))
    turn: int = 0
    lost: bool = False
    """A call found no node, or another group: perhaps this one has gone from these addresses for
    good."""
    throttled_ms: int = 0
    """For so long nodes have taken no requests of this client: its principal was over a quota."""

    @staticmethod
    def make(
        bootstrap_servers: str | os.PathLike[str],
        group: str,
        settings: dict[str, Any],
        environment: Environment = REAL,
        group_id: str = "",
    ) -> ClientState:
        """Check and take settings; a path becomes the addresses of the group that lies there.

        Raises:
            ConfigError, UnknownOption: an address or a setting cannot be.
            PathError, Unavailable: the directory cannot be used, or its group did not start.
        """
        if group:
            check_name("group", group)
        config = from_settings(ClientConfig, settings)
        own_rack = "" if settings.get("rack") is None else check_rack(config.rack)
        bootstrap_servers = os.fspath(bootstrap_servers)
        path = local_path(bootstrap_servers) if is_log_path(bootstrap_servers) else ""
        if path:
            bootstrap_servers = path_groups.servers_of(path)
        routes = Routes(split_addresses(bootstrap_servers), group, group_id=group_id)
        if path:
            routes.look = partial(_told_by, path, routes)
        contexts = client_contexts(config.tls)
        return ClientState(
            bootstrap_servers, config, routes, environment, contexts, racks=Racks(own_rack)
        )

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context of a connection that is opened now, by the files as they are now; None for a
        plain one."""
        self.contexts.changed(at_once=True)
        return self.contexts.value

    def seen_topic(self, name: str, partition: int | None = None) -> TopicInfo | None:
        """A topic as last seen; None where it was not, or not with that ``partition``."""
        info = self.topics.get(name)
        return info if info is not None and (partition or 0) < info.partitions else None

    def greeting(self) -> Greeting:
        """How a new connection begins."""
        own = HelloRequest(
            group=self.routes.group, group_id=self.routes.lineage.group_id, takes_notices=True
        )
        strict = bool(self.config.secret_file)
        return Greeting(
            own,
            secret=self._secret,
            strict=strict,
            credentials=self._credentials(),
            environment=self.environment,
        )

    def throttled(self, ms: int) -> None:
        """A node takes no requests of this client for so long."""
        self.throttled_ms += ms

    def _secret(self, answer: HelloResponse) -> Secret | None:
        return (
            read_secret(self.config.secret_file)
            if self.config.secret_file
            else group_secret(answer.group)
        )

    def _credentials(self) -> Credentials | None:
        given = self.config.credentials
        if not given:
            return None
        if isinstance(given, str):
            return read_credentials(given)
        if given.file:
            with suppress(ConfigError):  # there is none on this host
                return read_credentials(given.file)
        return given

    def refusal(
        self, address: str, error: WrongGroup | CertificateRefused | LoginRefused
    ) -> DLedgerError:
        """The exception for a node that is refused, or refuses this side: the error itself where no
        other address is left; else `Unavailable`, for that address alone."""
        routes = self.routes
        # one node's certificate may be wrong, or one node may learn of a user later than others
        if isinstance(error, CertificateRefused | LoginRefused):
            return error if routes.is_refused(address) else Unavailable(str(error))
        if routes.peers and not routes.is_foreign(address):  # its port was given to another
            return Unavailable(str(error))
        self.lost = True
        return error

    def call(self, request: Request) -> Call:
        """The attempts of a request, beginning now."""
        config = self.config
        timeout = config.request_timeout_ms if request.timeout_ms is None else request.timeout_ms
        patience = RetryTimes(timeout, config.retry_min_ms, config.retry_max_ms)
        return Call(
            self.routes,
            request.terms,
            patience=patience,
            now_ms=self.environment.now_ms(),
            dice=self.environment.fraction,
        )
