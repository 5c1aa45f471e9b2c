"""Ranges of offsets, cut between stored batches into pieces for tasks: operations, as
generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.operations.topics import known_topics
from dledger.client.protocol.results import Range, Span
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import ProtocolError, TopicNotFound
from dledger.protocol.messages.client import SplitResponse
from dledger.protocol.messages.splits import WHOLE, SplitRequest, SplitSpan

SPANS: Final = 2000
"""Most spans of one question to split: a few milliseconds of the leader's time."""


def split(
    core: ClientState,
    topic: str,
    partition: int,
    start: int,
    end: int,
    target_bytes: int,
    *,
    max_pieces: int = 10_000,
) -> Operation[list[Range]]:
    """Cut [start, end) between stored batches into pieces of about ``target_bytes`` stored
    bytes."""
    span = Span(topic, partition, start, end, target_bytes, max_pieces)
    return (yield from split_many(core, [span]))[0]


def split_many(core: ClientState, spans: Sequence[Span]) -> Operation[list[list[Range]]]:
    """Cut many ranges as `split` does; the pieces of each. One question for up to SPANS of them,
    and more where an answer is full."""
    pieces: list[list[Range]] = [[] for _ in spans]
    names = list(dict.fromkeys(span.topic for span in spans))
    infos = yield from known_topics(core, names)
    ids = {name: infos[name].topic_id for name in names}
    open_spans = [i for i, span in enumerate(spans) if span.start < span.end]
    while open_spans:
        asked, later = open_spans[:SPANS], open_spans[SPANS:]
        request = SplitRequest.of(_rest(spans[i], ids, pieces[i]) for i in asked)
        answer = yield from _asked(core, names, request)
        unfinished = []
        for i, cuts in zip(asked, answer.cuts(), strict=True):
            begin = pieces[i][-1].end if pieces[i] else spans[i].start
            for cut, size in cuts:
                pieces[i].append(Range(begin, cut, size))
                begin = cut
            if cuts and begin < spans[i].end and len(pieces[i]) < spans[i].max_pieces:
                unfinished.append(i)
        open_spans = unfinished + later
    return pieces


def stored_bytes(
    core: ClientState,
    topics: Sequence[str],
    partitions: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
) -> Operation[list[int]]:
    """Stored bytes of the batches that have records of [start, end) of a partition, for many
    ranges: columns of one length. Cheaper than `split_many` with one piece each."""
    names = list(dict.fromkeys(topics))
    infos = yield from known_topics(core, names)
    ids = {name: infos[name].topic_id for name in names}
    found: list[int] = []
    for at in range(0, len(topics), SPANS):
        some = slice(at, at + SPANS)
        numbers = [ids[name] for name in topics[some]]
        asked = len(numbers)
        columns = partitions[some], starts[some], ends[some], [WHOLE] * asked, [1] * asked
        spans = zip(numbers, *columns, strict=True)
        answer = yield from _asked(core, names, SplitRequest.of(spans))
        found += answer.sizes()
        if len(found) != at + asked:
            raise ProtocolError(f"SplitResponse: {len(found) - at} sizes of {asked} ranges")
    return found


def _asked(
    core: ClientState, names: Sequence[str], request: SplitRequest
) -> Operation[SplitResponse]:
    try:
        answer, _ = yield Request(request, CallPolicy(what=f"split {', '.join(names)}"))
    except TopicNotFound:
        for name in names:
            core.topics.pop(name, None)
        raise
    found: SplitResponse = answer
    return found


def _rest(span: Span, ids: Mapping[str, int], done: list[Range]) -> SplitSpan:
    start = done[-1].end if done else span.start
    most = span.max_pieces - len(done)
    return SplitSpan(ids[span.topic], span.partition, start, span.end, span.target_bytes, most)
