"""Reading, as far as it needs neither socket nor thread: replicas, fetchers, records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.reading.fetching import Fetcher, elsewhere
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import DLedgerError, FrameTooLarge, OffsetOutOfRange, ProtocolError, Unavailable
from dledger.net.address import split_address
from dledger.net.connections.blocking import Lost
from dledger.protocol.messages.client import MetadataRequest, TopicInfo
from dledger.protocol.messages.fetched import FetchResponse
from dledger.records.columns.types import Columns

if TYPE_CHECKING:
    import pyarrow as pa

    from dledger.client.protocol.reading.damage import DamagePolicy
    from dledger.client.protocol.reading.fetched import FetchedBodies


class Replicas:
    """The order in which a reader asks replicas: one as long as it answers well, then the next one.

    Those on the reader's own machine come first, among these and among the others any: readers
    spread.
    """

    def __init__(self, core: ClientState, preferred: str) -> None:
        near: list[str] = []
        far: list[str] = []
        for address in core.routes.addresses():
            (near if core.environment.is_here(split_address(address)[0]) else far).append(address)
        self._order = _turned(near, core) + _turned(far, core)
        if preferred in self._order:
            self._order.remove(preferred)
            self._order.insert(0, preferred)
        self._at = 0
        self._core = core
        self.worked()

    @property
    def address(self) -> str:
        return self._order[self._at % len(self._order)]

    def worked(self) -> None:
        """It answered well; from now on the time of a request counts anew."""
        self._pause_ms = 0.0
        self._deadline_ms = self._core.environment.now_ms() + self._core.config.request_timeout_ms

    def failed(self, error: DLedgerError) -> float:
        """Go on to the next one; seconds to wait before, 0 until each one was tried.

        Raises:
            DLedgerError: this error, where no other one knows better or the time is over.
        """
        config, pause_ms = self._core.config, 0.0
        self._at += 1
        if not self._at % len(self._order):
            pause_ms = min(max(2 * self._pause_ms, config.retry_min_ms), config.retry_max_ms)
            self._pause_ms = pause_ms
        late = self._core.environment.now_ms() + pause_ms > self._deadline_ms
        if late or not getattr(error, "elsewhere", isinstance(error, Unavailable)):
            raise error
        return pause_ms / 1000


def _turned(addresses: list[str], core: ClientState) -> list[str]:
    """The same round, begun anywhere."""
    start = core.environment.below(len(addresses)) if addresses else 0
    return addresses[start:] + addresses[:start]


def preferred_address(core: ClientState, replica: str | None, follow: bool) -> str:
    """The named node's address; for a reader that follows the leader's, which knows of each commit
    first; else any."""
    if replica is not None:
        return core.routes.peers.get(replica, "")
    return core.routes.leader or "" if follow else ""


def reader(
    core: ClientState,
    topic: TopicInfo | int,
    partition: int,
    start: int,
    end: int | None,
    max_bytes: int,
    damage: DamagePolicy | None = None,
) -> Fetcher:
    """Of a topic that is described, or of an id alone: then its offsets do not bind later
    answers."""
    if isinstance(topic, int):
        what = f"read '#{topic}' partition {partition}"
        return Fetcher(topic, partition, start, end, max_bytes, what, damage=damage)
    what, seen = f"read {topic.name!r} partition {partition}", core.ends.reading(topic, partition)
    return Fetcher(topic.topic_id, partition, start, end, max_bytes, what, seen, damage)


def unanswered(fetcher: Fetcher, address: str, error: Lost | ProtocolError) -> Unavailable:
    """The error for a question without an answer that can be read. An answer of more batches than
    its header may name, as a node from before `MOST_ROWS` gives, is asked for in halves."""
    cause = error.error if isinstance(error, Lost) else error
    if isinstance(cause, FrameTooLarge):
        fetcher.max_bytes = max(1, fetcher.max_bytes // 2)
    return Unavailable(f"{address}: {error}")


def take(fetcher: Fetcher, answer: FetchResponse, payload: memoryview) -> FetchedBodies:
    """`Fetcher.take`; an error carries ``elsewhere``: whether another replica may know better."""
    try:
        return fetcher.take(answer, payload)
    except DLedgerError as error:
        refused = answer.code is not answer.code.SUCCESS
        error.elsewhere = elsewhere(answer.code) if refused else True  # type: ignore[attr-defined]
        raise


def records(
    bodies: FetchedBodies, start: int, end: int | None, columns: Columns | None = None
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The records of fetched bodies within [start, end), in the READ_SCHEMA, with the offset behind
    them; a typed topic's, which were written under ``columns``, as keys and JSON."""
    if columns is None:
        if len(bodies) == 1 and (one := bodies.one_record(start, end)) is not None:
            yield one, bodies.batches.base_offset + 1
            return
        decoded = bodies.plain_records()
    else:
        from dledger.records.body.json_rows import as_records  # other readers need not load it

        decoded = bodies.decoded(lambda body: as_records(body, lambda version: columns))
    from dledger.records.body.records import with_offsets

    for found, batches in decoded:
        base = batches.base_offset
        behind = base + found.num_rows
        yield with_offsets(found, base, start, end), behind if end is None else min(behind, end)


def find_nodes(core: ClientState) -> Operation[None]:
    """Fill the routes, for a reader that was given all ids and asked nothing yet."""
    if not core.routes.peers:
        answer, _ = yield Request(MetadataRequest(), CallPolicy(what="find the group's nodes"))
        core.routes.learned(answer)


def check_partition(topic: str, partition: int, known: Mapping[int, int]) -> None:
    if partition not in known:
        raise OffsetOutOfRange(
            f"topic {topic!r} has partitions 0 to {len(known) - 1}, not {partition}"
        )
