"""Ranges of offsets, cut between stored batches into pieces for tasks: operations, as
generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dledger.client.protocol.client_state import ClientState, Operation, Request
from dledger.client.protocol.operations.topics import known_topics
from dledger.client.protocol.results import Range, Span
from dledger.client.protocol.routing import CallPolicy
from dledger.errors import TopicNotFound
from dledger.protocol.messages.splits import SplitRequest, SplitSpan

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
        try:
            answer, _ = yield Request(request, CallPolicy(what=f"split {', '.join(names)}"))
        except TopicNotFound:
            for name in names:
                core.topics.pop(name, None)
            raise
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


def _rest(span: Span, ids: Mapping[str, int], done: list[Range]) -> SplitSpan:
    start = done[-1].end if done else span.start
    most = span.max_pieces - len(done)
    return SplitSpan(ids[span.topic], span.partition, start, span.end, span.target_bytes, most)
