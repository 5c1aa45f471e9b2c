"""The settings of groups and nodes.

Every field gives its unit, its default and the reason for it. Settings are checked once, here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dledger.config.names import check_absolute, check_name
from dledger.config.tls import Tls, tls_files
from dledger.errors import ConfigError
from dledger.logs.formats import FORMATS, LEVELS
from dledger.release import GROUP_VERSION, OLDEST_GROUP_VERSION
from dledger.types import NodeId

MIB: Final = 1 << 20
LEAST_CATCH_UP: Final = 64 << 10
"""Least limit of the bytes a second for members that catch up: a second lets each message pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings on which every node of a group must agree."""

    group: str = "default"
    """Identity of the group. Stores and messages carry it; one of another group is refused."""
    members: tuple[NodeId, ...] = (NodeId("n0"),)
    """All voters, in the order of their preference lists."""
    heartbeat_ms: int = 100
    """Time between a leader's heartbeats (D11)."""
    election_ms: int = 1000
    """Shortest patience of a follower, and how long a leader goes on without a quorum of answers;
    each wait is drawn from [election_ms, 2 * election_ms). Ten heartbeats, so that a pause of the
    process is not an election (D11)."""
    takeover_ms: int = 100
    """When the connection from the leader ends, as it does when its process is killed, its
    followers ask for votes one after the other, so far apart, the first one after half of it.
    Pre-votes keep that harmless where the leader lives. 0: no hurry, wait as for a leader that is
    only silent."""
    vote_interval_ms: int = 150
    """Shortest pause before the next vote round after one that was not won; drawn from [1, 2) times
    this."""
    ack_timeout_ms: int = 10_000
    """An append that no quorum acknowledged by then is answered WAIT_QUORUM_ACK_TIMEOUT; it may
    still commit."""
    push_timeout_ms: int = 1000
    """An unanswered push is sent again after this, as DLedger's maxPushTimeOutMs."""
    push_window_bytes: int = 32 * MIB
    """Unacknowledged bytes in flight to one follower."""
    push_batch_bytes: int = 4 * MIB
    """Bytes of entries in one push, unless a single entry is larger."""
    catch_up_bytes_per_s: int = 0
    """Most bytes a second that a leader sends to members that are not near the end of its log, all
    of them together: new ones, and those that were away. It holds back neither entries for a member
    without which there is no quorum, nor those for members that are near. 0: no limit; else at
    least 64 KiB."""
    pending_bytes: int = 64 * MIB
    """Appends that a leader holds uncommitted; more is refused with LEADER_PENDING_FULL."""
    max_body_bytes: int = 8 * MIB
    """Largest body of an entry."""
    segment_bytes: int = 1024 * MIB
    """Size of each data file. Equal on all nodes, because an entry's pos is."""
    index_file_bytes: int = 5 * MIB * 32
    """Size of each index file: DLedger's default, five million units of 32 bytes."""
    commit_log: str = "topics"
    """The content of the log. ``topics``: records in topics, as Spark reads and writes them.
    ``rocketmq``: messages of a RocketMQ commit log, each an entry of its own (DLedgerCommitLog).
    Never changed once the group has files."""
    founding_version: int = GROUP_VERSION
    """Version that a new group gets, if all of its members support it. An older one leaves the way
    back to older releases open until ``dledger upgrade``; 0: to those that know no versions. A
    group that keeps a RocketMQ commit log begins with 0."""
    max_topics: int = 10_000
    """Topics in all. These limits keep a node within 300 MiB; the leader refuses a command over one
    before it is written."""
    max_partitions: int = 100_000
    """Partitions of all topics together."""
    max_consumer_groups: int = 20_000
    """Consumer groups."""
    max_producers: int = 100_000
    """Producer sessions, at most 100,000: from there on the longest unused ones are forgotten, and
    a new one is refused where that would be one in use within the last hour."""
    max_catalog_bytes: int = 96 * MIB
    """Memory of topics, groups, producers and transactions in all, about."""
    preferred_leaders: tuple[NodeId, ...] = ()
    """Leadership moves to one of these whenever it is up to date."""
    max_transfer_lag: int = 1000
    """A transfer to a follower that is more entries behind is refused (FALL_BEHIND_TOO_MUCH)."""

    def __post_init__(self) -> None:
        check_name("group", self.group)
        for member in (*self.members, *self.preferred_leaders):
            check_name("node id", member)
        if not self.members or len(set(self.members)) != len(self.members):
            raise ConfigError(f"members must be different nodes, at least one: {self.members}")
        if not 0 < 3 * self.heartbeat_ms <= self.election_ms:
            raise ConfigError(
                f"election_ms {self.election_ms} is under three times heartbeat_ms "
                f"{self.heartbeat_ms}"
            )
        if self.commit_log not in {"topics", "rocketmq"}:
            raise ConfigError(f"commit_log {self.commit_log!r}: write 'topics' or 'rocketmq'")
        if not OLDEST_GROUP_VERSION <= self.founding_version <= GROUP_VERSION:
            raise ConfigError(
                f"founding_version {self.founding_version}: write {OLDEST_GROUP_VERSION} to "
                f"{GROUP_VERSION}"
            )
        limits = (
            self.max_topics,
            self.max_partitions,
            self.max_consumer_groups,
            self.max_catalog_bytes,
        )
        if min(limits) < 1 or not 1 <= self.max_producers <= 100_000:
            raise ConfigError(
                "max_topics, max_partitions, max_consumer_groups, max_catalog_bytes: 1 or more; "
                "max_producers: 1 to 100000"
            )
        if 0 != self.catch_up_bytes_per_s < LEAST_CATCH_UP:
            raise ConfigError(
                f"catch_up_bytes_per_s {self.catch_up_bytes_per_s}: write 0 for no limit, or "
                f"{LEAST_CATCH_UP} or more"
            )
        if self.takeover_ms < 0:
            raise ConfigError(f"takeover_ms {self.takeover_ms} is negative; 0 switches it off")
        if self.max_body_bytes + BODY_ROOM > self.segment_bytes:
            raise ConfigError(
                f"a body of max_body_bytes {self.max_body_bytes} does not fit segment_bytes"
            )
        if self.index_file_bytes % 32:
            raise ConfigError(
                f"index_file_bytes {self.index_file_bytes} is no multiple of 32, the size of a unit"
            )


NOTHING_ACCEPTED: Final = -2
"""In the place of an entry's index; -1 is that of an empty log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings of each node."""

    node_id: NodeId
    directory: Path
    """Holds this node's files, and no other's."""
    host: str = "127.0.0.1"
    """Where it listens. Loopback unless told otherwise. Beyond it, clients must be known: by
    ``tls_ca``, or by ``clients_prove``."""
    insecure: bool = False
    """It may listen beyond loopback although nothing tells its clients from strangers, and serve
    metrics there without TLS. A warning says so at each start and each hour."""
    port: int = 0
    """0: any free one, printed and written to the store."""
    unix_group_reads: bool = False
    """The directory's Unix group may read the files (modes 0640 and 0750), for a backup for one;
    else the node's user alone may (0600 and 0700, whatever the umask is). Files with more rights
    lose them at the start."""
    flush: str = "sync"
    """``sync``: acknowledge after fdatasync. ``async``: from the page cache, as DLedger and Kafka
    do; a power cut of a quorum can then lose acknowledged records."""
    retention_ms: int = 0
    """Data files whose newest record is older go. 0: kept for ever."""
    retention_bytes: int = 0
    """Oldest data files go while all together are larger. 0: no limit."""
    hold_retention_ms: int = 7 * 24 * 3600 * 1000
    """A data file that is expired stays this much longer for a consumer group that holds retention
    back and has not processed all of it: until its newest record is older than this and
    ``retention_ms`` together. 0: no group holds."""
    hold_retention_bytes: int = 0
    """Oldest files that stay for such groups go while these are larger together. 0: no limit in
    bytes. They all go at ``disk_warn_ratio``."""
    member_retention_ms: int = 24 * 3600 * 1000
    """A data file that is expired stays this much longer for a member that is down, or slow, and
    has not got all of it. Then it goes, and that member takes over the leader's state when it
    comes. 0: nothing waits for a member."""
    member_retention_bytes: int = 0
    """Oldest files that stay for such a member go while these are larger together. 0: as many as
    ``retention_bytes``, and no limit where that is 0. They all go at ``disk_warn_ratio``."""
    delete_when: str = ""
    """Hours of the day (``04`` or ``04;16``) in which expired files may go; empty: any."""
    disk_warn_ratio: float = 0.90
    """Used share of the disk from which expired files go at once, at any hour."""
    disk_full_ratio: float = 0.97
    """Used share from which writes are refused; nothing unexpired is ever deleted to make room
    (D12)."""
    disk_reserve_bytes: int = 64 * MIB
    """Writes are refused when less than this is free."""
    max_connections: int = 4096
    """Connections of clients. One more takes the place of those that have been idle longest, and is
    refused where none is idle. Members of the group always get in."""
    max_connections_per_address: int = 1024
    """Of these, connections from one address, in the same way. A Spark worker has one or two to
    each node."""
    client_idle_ms: int = 600_000
    """A client's connection is closed after this time without a request or one that waits; the
    client opens another one when it needs it. 0: never; nor on a node with ``idle_timeout_ms``, for
    which an open connection is use."""
    max_client_bytes: int = 64 * MIB
    """Request bytes of all clients that are unanswered or still on their way; more are not read
    until some are answered. Connections take 16 KiB of it each, and leave a quarter. As many of
    answers that are being read or wait to be taken; others wait for room, and a client that takes
    nothing meanwhile is closed."""
    cache_bytes: int = 32 * MIB
    """Newest entries kept in memory for followers and tailing readers."""
    checkpoint_bytes: int = 256 * MIB
    """The catalog is saved after this much log, so that a restart replays no more."""
    scrub_bytes_per_s: int = 8 * MIB
    """The whole log is read over and over in the background, no faster than this, to find damage
    while other members have a copy. 0: not at all."""
    scrub_pause_ms: int = 60_000
    """Rest of the scrub between the end of the log and its beginning."""
    checkpoint_entries: int = 100_000
    """The catalog is also saved after this many entries, which a restart replays in seconds."""
    idle_timeout_ms: int = 0
    """End by itself when unused for this long and ``parent_pid`` is gone. 0: never."""
    accept_loss: int = NOTHING_ACCEPTED
    """``dledger serve --accept-loss``: the last entry of a log that has lost committed entries, in
    a group of one that is to go on without them. -2: a start of such a node is refused."""
    joins: bool = False
    """``dledger serve --join``: a new node founds no group, but joins one that lists it."""
    parent_pid: int = 0
    """The process that asked for this node; see ``idle_timeout_ms``."""
    log_format: str = "text"
    """Lines of the node's log: ``text``, or ``json`` with one object for each."""
    log_level: str = "info"
    """Least of ``debug``, ``info``, ``warning`` and ``error`` that is written there."""
    audit_files: int = 8
    """Files of the audit log in the directory: ``audit.log``, and the former ones ``audit.log.1``
    and so on. 0: none; its lines are in the node's log alone."""
    audit_file_bytes: int = 16 * MIB
    """Size at which a new one is begun."""
    audit_topic: bool = False
    """Lines of the audit log also go to the topic ``__audit`` of the group, which only nodes
    write."""
    secret_file: str = ""
    """File with the group's secret, which other nodes prove before this one listens to them;
    absolute path. Made by ``dledger secret create``, the same on every node, readable for its owner
    alone."""
    clients_prove: bool = False
    """Clients prove the secret too, as those of an embedded group do; they name its file as
    ``secret_file``."""
    tls_ca: str = ""
    """PEM file with the authority's certificates. With it the node takes only connections under TLS
    1.3 from nodes and clients whose certificates that authority signed, and connects to other nodes
    so. Given with the other two."""
    tls_certificate: str = ""
    """PEM file with this node's own certificate, for the host that others reach it by."""
    tls_key: str = ""
    """PEM file with its private key, without a passphrase."""
    tls_crl: str = ""
    """PEM file with the authority's lists of certificates that it has revoked (CRL): no node or
    client that shows one of these is taken, and nobody once a list is out of date."""
    metrics_port: int = -1
    """Port of metrics and health over HTTP: ``/metrics``, ``/livez``, ``/readyz``. 0: any free one,
    which the status has. -1: none. The nodes of a path have this port and those behind it."""
    metrics_host: str = "127.0.0.1"
    """Where that port is open; beyond loopback it needs TLS, or ``insecure``."""

    def __post_init__(self) -> None:
        check_name("node id", self.node_id)
        if not -1 <= self.metrics_port < 65536:
            raise ConfigError(
                f"metrics_port {self.metrics_port}: a port, 0 for any free one, or -1 for none"
            )
        check_absolute("secret_file", self.secret_file)
        if self.clients_prove and not self.secret_file:
            raise ConfigError("clients_prove without secret_file: which secret is it?")
        tls_files(self.tls_ca, self.tls_certificate, self.tls_key, self.tls_crl)
        if self.flush not in {"sync", "async"}:
            raise ConfigError(f"flush {self.flush!r}: write 'sync' or 'async'")
        if not 0 < self.disk_warn_ratio <= self.disk_full_ratio <= 1:
            raise ConfigError(
                "disk_warn_ratio and disk_full_ratio must be in (0, 1], the first one not above"
            )
        if self.hold_retention_ms < 0 or self.hold_retention_bytes < 0:
            raise ConfigError("hold_retention_ms and hold_retention_bytes must be 0 or more")
        if self.member_retention_ms < 0 or self.member_retention_bytes < 0:
            raise ConfigError("member_retention_ms and member_retention_bytes must be 0 or more")
        if self.scrub_bytes_per_s < 0 or self.scrub_pause_ms < 0:
            raise ConfigError("scrub_bytes_per_s and scrub_pause_ms must be 0 or more")
        if (
            min(self.max_connections, self.max_connections_per_address) < 1
            or self.client_idle_ms < 0
        ):
            raise ConfigError(
                "max_connections and max_connections_per_address: 1 or more; client_idle_ms: 0 or "
                "more"
            )
        if self.log_format not in FORMATS or self.log_level not in LEVELS:
            raise ConfigError(
                f"log_format {self.log_format!r}, log_level {self.log_level!r}: write one of "
                f"{', '.join(FORMATS)}, and one of {', '.join(LEVELS)}"
            )
        if self.audit_files < 0 or self.audit_file_bytes < 1024:
            raise ConfigError("audit_files: 0 or more; audit_file_bytes: 1024 or more")
        if self.checkpoint_entries < 1:
            raise ConfigError(f"checkpoint_entries {self.checkpoint_entries}: at least 1")
        for hour in filter(None, self.delete_when.split(";")):
            if not (hour.isdecimal() and int(hour) < 24):
                raise ConfigError(
                    f"delete_when {self.delete_when!r}: write hours, as in '04' or '04;16'"
                )

    @property
    def tls(self) -> Tls | None:
        return tls_files(self.tls_ca, self.tls_certificate, self.tls_key, self.tls_crl)


LIVE: Final = (
    "log_format",
    "log_level",
    "retention_ms",
    "retention_bytes",
    "hold_retention_ms",
    "hold_retention_bytes",
    "member_retention_ms",
    "member_retention_bytes",
    "delete_when",
    "disk_warn_ratio",
    "disk_full_ratio",
    "disk_reserve_bytes",
    "max_connections",
    "max_connections_per_address",
    "client_idle_ms",
    "checkpoint_bytes",
    "checkpoint_entries",
)
"""Settings of a node that may change while it runs."""


BODY_ROOM: Final = 4096
"""A segment file has to be so much larger than the largest body."""
EMBEDDED_DEFAULTS: Final[dict[str, Any]] = {"segment_bytes": 256 * MIB, "index_file_bytes": 4 * MIB}
"""A laptop's group: smaller files, so that a first log costs little disk."""
