"""Operations on offsets, as generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dledger.client.protocol.arguments import Time, microseconds
from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.routing import CallPolicy
from dledger.client.protocol.seen_end_offsets import behind
from dledger.config import check_name
from dledger.protocol.messages.client import OffsetKind, OffsetsRequest, OffsetsResponse


def offsets(
    core: ClientState,
    topics: Sequence[str],
    kind: OffsetKind = OffsetKind.END,
    *,
    timestamp_us: Time = 0,
    stale: bool = False,
    newer_than: Mapping[str, Mapping[int, int]] | None = None,
    wait_ms: int = 0,
) -> Operation[OffsetsResponse]:
    """Offsets of several topics at one moment, with the topics' log ids. By TIME, those of whole
    batches; see `offsets_at`.

    Raises:
        Behind: for the whole time no node answered that knows as much as this client has seen.
    """
    for name in topics:
        check_name("topic", name)
    time_us = microseconds("timestamp_us", timestamp_us)
    request = OffsetsRequest(
        topics=tuple(topics),
        kind=kind,
        timestamp_us=time_us,
        stale=stale,
        newer_than={name: dict(wanted) for name, wanted in (newer_than or {}).items()},
        wait_ms=wait_ms,
    )
    what = f"{kind.name.lower()} offsets of {', '.join(topics)}"
    patience = core.config.request_timeout_ms + wait_ms
    terms = CallPolicy(what=what, anybody=stale)
    of_ends = kind in (OffsetKind.END, OffsetKind.EDGES)
    is_behind = partial(behind, known=core.ends.of(topics)) if of_ends else None
    answer: OffsetsResponse
    answer, _ = yield Request(request, terms, (), 5000 + wait_ms, patience, is_behind)
    if of_ends:
        core.ends.told(answer)
    return answer


def begin_offsets(
    core: ClientState, topic: str, *, stale: bool = False
) -> Operation[dict[int, int]]:
    """First kept offset of each partition. Linearizable unless ``stale``."""
    return (yield from topic_offsets(core, topic, OffsetKind.BEGIN, stale=stale))


def end_offsets(
    core: ClientState,
    topic: str,
    *,
    stale: bool = False,
    newer_than: Mapping[int, int] | None = None,
    wait_ms: int = 0,
) -> Operation[dict[int, int]]:
    """The offset behind the last record of each partition. Linearizable unless ``stale``:
    everything that was acknowledged before the call is below it. ``stale``: the leader's applied
    state or, where no leader is known, any node's; never below offsets that this client has seen.

    With ``newer_than`` (partition -> offset): wait up to ``wait_ms`` for any partition to end
    above.
    """
    wanted = None if newer_than is None else {topic: newer_than}
    more = {"stale": stale, "newer_than": wanted, "wait_ms": wait_ms}
    return (yield from topic_offsets(core, topic, OffsetKind.END, **more))


def topic_offsets(
    core: ClientState, name: str, kind: OffsetKind, **more: Any
) -> Operation[dict[int, int]]:
    """Offsets of one topic's partitions."""
    answer = yield from offsets(core, (name,), kind, **more)
    found: dict[int, int] = answer.offsets[name]
    return found
