"""The settings that are drawn anew for every seed: the size of the group, its limits, its clients,
and its kinds of faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from dledger.catalog.clients.writers import MAX_WRITERS
from dledger.config import GroupConfig, NodeConfig
from dledger.config.settings import LEAST_CATCH_UP
from dledger.types import NodeId
from verification.sim.rng import Rng
from verification.sim.turns import LONGEST_NS

KIB: Final = 1 << 10
PORT: Final = 7000
TOPICS: Final = "topics"
ROCKETMQ: Final = "rocketmq"
CONSUMER_SEEDS: Final = 200_000
"""So many seeds in a million have consumers that share groups; they keep all records."""
ROCKETMQ_SEEDS: Final = 120_000
"""So many seeds in a million have a group that keeps a RocketMQ commit log."""

CHANGES: Final = "change of members"
MOVES: Final = "member moves"
DISASTER: Final = "majority gone"
NAMESAKES: Final = "two groups of one name"
VERSION_STEP: Final = "version step"
SETTINGS_CHANGE: Final = "change of settings"
FAULTS: Final = (
    "loss", "duplication", "replay", "reorder", "packet loss", "connection reset", "split write",
    "slow network", "cut", "pause", "kill", "kill at a disk operation", "power cut",
    "group power cut", "stop", "transfer", "EIO on write", "EIO on fsync", "EIO on read", "ENOSPC",
    "slow disk", "wall clock jump", "drift", "bad luck", "client crash", "bit rot",
    "misdirected write", "empty disk", "deposed leader", "machine back", "wrong list of members",
    NAMESAKES, VERSION_STEP, SETTINGS_CHANGE, CHANGES, MOVES, DISASTER,
)  # fmt: skip
"""Kinds that a seed may have."""
OFTEN: Final = {CHANGES: 667_000, MOVES: 300_000, DISASTER: 200_000}
"""So many seeds in a million have that kind; of the others, 450,000."""
CATCH_UP_BYTES: Final = (0, LEAST_CATCH_UP, LEAST_CATCH_UP, 4 * LEAST_CATCH_UP)
"""A second, for members that are far behind; the logs of seeds are some seconds of it."""
MOST_WITH_SPARES: Final = 5
"""A larger group takes no machines besides: its seeds would take too long."""
NEED_VERSION: Final = (CHANGES, MOVES, SETTINGS_CHANGE)
"""Kinds that need a group version above 0."""
UNPROMISED: Final = ("older disk",)
"""Kinds that a seed has only when asked. An older copy of a disk is found out by the leader that
knew more of it, but when another one leads by then, no node can tell (docs/guarantees.md, P13)."""


def addresses_of(names: Iterable[str], places: Mapping[str, tuple[str, int]] | None = None) -> str:
    """The nodes' addresses as a client takes them: those of the founding, unless given."""
    known = [(places or {}).get(name, (name, PORT)) for name in names]
    return ",".join(f"{host}:{port}" for host, port in known)


@dataclass(slots=True, kw_only=True)
class SeedPlan:
    """One seed's settings. Times in ms, probabilities in millionths."""

    nodes: int
    """Founding members."""
    clients: int
    topics: int
    faults: tuple[str, ...]
    safety_ms: int
    """The first phase: faults, and clients that work."""
    group_name: str = "sim"
    """Of half of the seeds that need no chosen one it is drawn, as those of path groups are."""
    group: dict[str, Any] = field(default_factory=dict)
    node: dict[str, Any] = field(default_factory=dict)
    client: dict[str, Any] = field(default_factory=dict)
    tear: int = 512
    disk_bytes: int = 64 << 20
    sync_us: int = 500
    network_us: tuple[int, int] = (100, 1000)
    think_ms: int = 300
    """Longest pause of a client between two calls."""
    most_records: int = 8
    value_bytes: int = 40
    fault_every_ms: int = 2000
    bad_luck: int = 0
    turns_left: int = 0
    """At so many disk operations in a million a turn of a node's thread is left, or goes on while
    the loop waits."""
    turn_left_ns: int = LONGEST_NS
    """For how long it is left at most."""
    consumers: bool = False
    """Whether each client has a consumer, of a group that it shares with others."""
    spares: int = 0
    """Machines that are no founding members, and may become members."""
    most_writers: int = MAX_WRITERS
    """Writers of transactions that the nodes remember by name."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def names(self) -> list[NodeId]:
        """Of the founding members."""
        return [NodeId(f"n{number}") for number in range(self.nodes)]

    @property
    def all_names(self) -> list[NodeId]:
        """And of the machines that may become members."""
        return [NodeId(f"n{number}") for number in range(self.nodes + self.spares)]

    @property
    def begins_with_version(self) -> bool:
        """Whether the group is founded with one, and nobody is to raise it later. Without the kinds
        that need one a log begins with its clients' entries, as before there were versions."""
        wants_version = any(map(self.has, NEED_VERSION)) and not self.is_rocketmq
        return wants_version and not self.has(VERSION_STEP)

    def group_config(self) -> GroupConfig:
        settings = {"founding_version": int(self.begins_with_version), **self.group}
        return GroupConfig(group=self.group_name, members=tuple(self.names), **settings)

    def node_config(self, name: NodeId) -> NodeConfig:
        return NodeConfig(
            node_id=name,
            directory=Path("/sim") / name,
            host=name,
            port=PORT,
            audit_files=0,  # no promise is about them, and each write would be a turn of the story
            **self.node,
        )

    @property
    def is_rocketmq(self) -> bool:
        """Whether its group keeps a RocketMQ commit log."""
        return self.group.get("commit_log") == ROCKETMQ

    def has(self, fault: str) -> bool:
        return fault in self.faults


def draw_plan(
    rng: Rng,
    safety_ms: int,
    without: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    commit_log: str = "",
    consumers: bool | None = None,
) -> SeedPlan:
    """The settings of a seed. ``without``: faults that it must not have, ``also``: such that it
    must; they change nothing else. ``commit_log``: the group's commit log; drawn by default, as is
    whether there are ``consumers``."""
    drawn = ROCKETMQ if rng.fork("commit log").chance(ROCKETMQ_SEEDS) else TOPICS
    faults = rng.fork("faults")
    drawn_kinds = [kind for kind in FAULTS if faults.chance(OFTEN.get(kind, 450_000))]
    chosen = (*(kind for kind in drawn_kinds if kind not in without and kind not in also), *also)
    nodes = rng.pick((1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5, 5, 7))
    plan = SeedPlan(
        nodes=nodes,
        clients=rng.between(1, 4),
        topics=rng.between(1, 2),
        faults=chosen,
        safety_ms=safety_ms,
        group=_group(rng.fork("group"), nodes),
        node=_node(rng.fork("node"), chosen),
        client=_client(rng.fork("client")),
        tear=rng.pick((512, 4096)),
        sync_us=rng.pick((50, 500, 500, 5000)),
        network_us=rng.pick(((10, 100), (100, 1000), (100, 5000), (1000, 40_000))),
        think_ms=rng.pick((300, 1500, 3000, 6000)),
        most_records=rng.pick((1, 4, 12, 40)),
        value_bytes=rng.pick((12, 40, 200)),
        fault_every_ms=rng.pick((700, 1500, 3000, 6000)),
    )
    if CHANGES in chosen and nodes <= MOST_WITH_SPARES:
        plan.spares = rng.fork("spares").pick((0, 0, 1, 2))
    if not {NAMESAKES, DISASTER} & set(chosen) and (name := rng.fork("name")).chance(500_000):
        plan.group_name = f"{name.bits():016x}{name.bits():016x}"
    plan.most_writers = rng.fork("writers").pick((MAX_WRITERS, 24))
    plan.turns_left = rng.fork("turns").pick((0, 0, 0, 20_000, 100_000, 400_000))
    if not consumers and (commit_log or drawn) == ROCKETMQ:
        plan.group["commit_log"] = ROCKETMQ
    if consumers is None:
        consumers = not plan.is_rocketmq and rng.fork("consumers").chance(CONSUMER_SEEDS)
    if consumers:
        plan.consumers = True
        plan.node |= {"retention_bytes": 0, "retention_ms": 0}
    if "bad luck" in chosen:
        plan.bad_luck = rng.pick((20_000, 200_000, 600_000))
    return plan


def in_time(plan: SeedPlan) -> int:
    """How long the first phase is to be, in ms: shorter the more calls there are that each node has
    to carry out, so that no seed takes many times what others do, and there is time for more of
    them."""
    return plan.safety_ms * 100 // (100 + 3000 * plan.nodes * plan.clients // plan.think_ms)


def _group(rng: Rng, nodes: int) -> dict[str, Any]:
    heartbeat = rng.pick((50 if nodes < 4 else 100, 100, 200, 300, 400))
    body = rng.pick((2 * KIB, 4 * KIB, 16 * KIB))
    return {
        "heartbeat_ms": heartbeat,
        "election_ms": heartbeat * rng.pick((3, 5, 10, 10)),
        "vote_interval_ms": rng.pick((20, 150, 300)),
        "ack_timeout_ms": rng.pick((500, 2000, 10_000)),
        "push_timeout_ms": rng.pick((200, 1000)),
        "push_window_bytes": rng.pick((KIB, 16 * KIB, 1024 * KIB)),
        "push_batch_bytes": rng.pick((KIB // 2, 4 * KIB, 256 * KIB)),
        "pending_bytes": rng.pick((32 * KIB, 64 * KIB, 1024 * KIB)),
        "max_body_bytes": body,
        "segment_bytes": body + 4096 + rng.pick((0, 4 * KIB, 60 * KIB)),
        "index_file_bytes": 32 * rng.pick((16, 100, 1000)),
        "max_transfer_lag": rng.pick((1, 50, 1000)),
        "catch_up_bytes_per_s": rng.pick(CATCH_UP_BYTES),
    }


def _node(rng: Rng, faults: tuple[str, ...]) -> dict[str, Any]:
    scrub = {
        "scrub_bytes_per_s": rng.pick((0, 4 * KIB, 256 * KIB)),
        "scrub_pause_ms": rng.pick((500, 5000)),
    }
    safe = "power cut" in faults or "group power cut" in faults
    return {
        **scrub,
        "flush": "sync" if safe else rng.pick(("sync", "sync", "async")),
        "retention_bytes": rng.pick((0, 0, 100 * KIB, 24 * KIB)),
        "disk_reserve_bytes": 256 * KIB,
        "max_client_bytes": rng.pick((8 * KIB, 1024 * KIB)),
        "cache_bytes": rng.pick((KIB, 32 * KIB, 1024 * KIB)),
        "checkpoint_bytes": rng.pick((4 * KIB, 64 * KIB, 1024 * KIB)),
        "retention_ms": rng.pick((0, 500, 3000, 15_000)),
        "hold_retention_ms": rng.pick((2000, 20_000, 7 * 24 * 3_600_000)),
        "hold_retention_bytes": rng.pick((0, 0, 64 * KIB)),
        "member_retention_ms": rng.pick((0, 2000, 20_000, 24 * 3_600_000)),
        "member_retention_bytes": rng.pick((0, 64 * KIB, 1024 * KIB)),
    }


def _client(rng: Rng) -> dict[str, Any]:
    return {
        "connect_timeout_ms": rng.pick((300, 2000)),
        "request_timeout_ms": rng.pick((2000, 10_000, 30_000)),
        "retry_min_ms": 20,
        "retry_max_ms": rng.pick((80, 500)),
        "max_in_flight": rng.pick((1, 5, 1024)),
        "batch_bytes": rng.pick((200, 2048)),
        "linger_ms": rng.pick((0, 2, 20)),
    }
